"""Caches and time of a launch: simulation, bounds, prediction."""
