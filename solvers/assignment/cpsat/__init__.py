"""Constraint programming through OR-Tools CP-SAT."""
