"""Planned servers started, measured, compared with the runtime's own choice, and ended with all that they started."""
