"""Training plans: the exact dynamic program, and baselines."""
