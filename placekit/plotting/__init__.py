"""Figures, one per module: ``plot_x(result, ax=None)``. matplotlib is imported when one is drawn."""
