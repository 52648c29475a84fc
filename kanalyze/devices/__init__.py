"""The table of GPUs: what each has, and who says so."""
