"""Large-neighbourhood search around CP-SAT."""
