"""Sums over a launch: requests, sectors, bytes, instructions, draws."""
