"""Command ``placekit learn``."""
