"""Figures: one per file, ``plot_x(result, ax=None)``."""
