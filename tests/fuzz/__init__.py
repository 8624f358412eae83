"""Fuzzing: small random problems, every method, against enumeration by the judge."""
