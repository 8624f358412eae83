"""Values of options: whole numbers, shares, and names in a row."""

from __future__ import annotations

import re

from placekit.model.errors import InvalidProblemError


def whole_number(option: str, told: str) -> int:
    """Return the value of an option that is a whole number.

    Raises `InvalidProblemError`: it is none.
    """
    if not re.fullmatch(r"\d+", told):
        raise InvalidProblemError(f"{option} {told!r}: it is a whole number from 0 on")
    return int(told)


def share(option: str, told: str) -> float:
    """Return the value of an option that is a share, above 0 and at most 1.

    Raises `InvalidProblemError`: it is none.
    """
    if not re.fullmatch(r"\d*\.?\d+|\d+\.", told) or not 0 < float(told) <= 1:
        raise InvalidProblemError(f"{option} {told!r}: it is a share above 0 and up to 1")
    return float(told)


def names(text: str) -> frozenset[str]:
    """Return the words of a text, for lists of many options."""
    return frozenset(text.split())
