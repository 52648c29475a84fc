"""What the kernels of a profile mean: rows, summary and findings, and how they are shown."""
