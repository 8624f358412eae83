"""Proof by exhaustion: no placement is feasible."""

from __future__ import annotations

from placekit.model.placement import Violation


def clash() -> Violation:
    """Return the violation of a problem for which an exhaustive search found no placement."""
    message = (
        "no placement satisfies memory, support, pins, colocation and contiguity together "
        "(each can be satisfied on its own; the search was exhaustive)"
    )
    return Violation("infeasible", message)
