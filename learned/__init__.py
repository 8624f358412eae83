"""Learned placers (arrive with their own issue)."""
