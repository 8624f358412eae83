"""Exact search and proofs: they raise bounds and offer schedules until the optimum is proven or the time is up.

- `cp_method`: methods ``cpsat`` and ``bound``; `cp_model`: the constraint program
- `proofs`: every bound in its share of the time; `series`: segments one by one
"""
