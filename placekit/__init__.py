"""Decide on which device every operator of a neural network runs, and prove how good the decision is."""

__version__ = "0.1.0"
