"""Types of kernels as JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numba import typeof
from numba.core import types

from placekit.kernel_types import read_type, spell_type
from placekit.solvers.throughput.local_search.state import State


def test_types_come_back_as_they_were() -> None:
    """Scalars, arrays of every layout, and tuples in tuples."""
    read_only = np.zeros(3)
    read_only.setflags(write=False)
    matrix = np.zeros((4, 4))
    state = State(*(np.zeros(2, dtype=np.int64),) * 6)  # type: ignore[arg-type]  # as if they were equal
    mixed = State(np.zeros(2, dtype=np.int64), matrix, matrix, read_only, np.zeros((2, 2), np.int32), np.zeros((1, 1)))  # type: ignore[arg-type]
    values = (
        *(1, 2.0, True, np.int64(3), np.random.default_rng(0), read_only, matrix, matrix.T, matrix[:, ::2]),
        *(np.zeros(2, dtype=bool), np.zeros(2, dtype=np.uint64), np.zeros(2, dtype=np.int8)),
        *((1, 2), (1, 2.0), (matrix, (1, matrix)), state, mixed, (state, 1.0)),
    )
    for value in values:
        kind = typeof(value)  # type: ignore[no-untyped-call]
        assert read_type(json.loads(json.dumps(spell_type(kind)))) == kind


def test_other_types_are_refused() -> None:
    """Text is none of a kernel's."""
    with pytest.raises(TypeError, match="unicode_type"):
        spell_type(types.unicode_type)
