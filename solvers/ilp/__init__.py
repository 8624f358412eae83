"""Integer programming through PuLP."""
