"""Costs that were measured: conditions, cache, stages, and the fit to measured splits."""
