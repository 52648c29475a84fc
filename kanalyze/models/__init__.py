"""Formulas: pure functions, one subject a file."""
