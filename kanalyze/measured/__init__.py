"""Launches that ran on a GPU: records, their check against estimates, and the benchmark."""
