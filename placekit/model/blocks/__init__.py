"""Models that consist of blocks."""
