"""Proofs and optima. In: a run. Out: bounds raised and schedules offered, until nothing is left or the time is up.

- `cp_method`: methods ``cpsat`` and ``bound``; `cp_model`: the constraint program
- `proofs`: every bound in its share of the time
- `lns`: neighbourhoods of the best schedule, by the constraint program
"""
