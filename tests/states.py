"""States of trainings, compared."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def same(one: Any, other: Any) -> bool:
    """Return whether two nested states are equal bit for bit."""
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)
