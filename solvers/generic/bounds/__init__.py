"""Lower bounds for any objective."""
