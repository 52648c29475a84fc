"""Profiles: readers of dumps, names of kernels, events added up by kernel."""
