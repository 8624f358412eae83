"""Placement and order for the makespan: search, constraint programming, bounds."""
