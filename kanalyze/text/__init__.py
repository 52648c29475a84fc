"""Text for people: numbers, pages, safe strings, mangled names."""
