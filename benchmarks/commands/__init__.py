"""Commands ``placekit bench`` and ``report``."""
