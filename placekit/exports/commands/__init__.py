"""Command ``placekit export``, and what writes for each runtime."""
