"""Timing of placements beside simpler ways of running the model."""
