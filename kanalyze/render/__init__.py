"""Results as text, CSV, Markdown, SARIF and plots; nothing is computed here."""
