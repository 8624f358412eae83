"""Solving: the run, its limits, methods and their registry, results with their evidence."""
