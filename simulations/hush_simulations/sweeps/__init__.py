"""Sweeps: a scenario at every point of a grid, many trials of each, and what the estimates are worth there."""
