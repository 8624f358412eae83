"""Bounds: tasks and a limit in, windows, loads and proven lower bounds out."""
