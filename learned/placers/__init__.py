"""Placers of papers, one module each."""
