"""Dynamic programming over ideals, and over the prefixes of one order."""
