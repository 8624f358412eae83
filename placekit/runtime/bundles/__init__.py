"""Placements as folders and files that run without a solver."""
