"""Branch and bound in floating point: its bounds against enumeration in rational arithmetic."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array
from strategies import ALL, draws

from placekit.solvers.backends.arrays import Arrays, weak_bound
from placekit.solvers.backends.certified import branch_and_bound


def random_covering(rng: np.random.Generator) -> Arrays:
    """Return min c.x over binaries with rows a.x >= b, of numbers of very different sizes."""
    num_columns, num_rows = int(rng.integers(1, 7)), int(rng.integers(1, 5))
    spread = float(rng.choice([0, 3, 9]))
    matrix = rng.integers(0, 4, (num_rows, num_columns)) * 10.0 ** rng.uniform(-spread, 0, (num_rows, num_columns))
    need = matrix.sum(axis=1) * rng.uniform(0, 1.05, num_rows)
    return Arrays(
        cost=rng.integers(0, 9, num_columns) * 10.0 ** rng.uniform(-spread, 0, num_columns),
        low=np.zeros(num_columns),
        high=np.ones(num_columns),
        is_integer=np.ones(num_columns, dtype=bool),
        matrix=csr_array(matrix),
        row_low=need,
        row_high=np.full(num_rows, np.inf),
    )


def exact_optimum(arrays: Arrays) -> Fraction | None:
    """Return the optimum over all binary points in rational arithmetic; None if there is none."""
    rows = [
        whole([*row, b])[0] for row, b in zip(arrays.matrix.toarray().tolist(), arrays.row_low.tolist(), strict=True)
    ]
    cost, unit = whole(arrays.cost.tolist())
    values = [
        sum(itertools.compress(cost, point))
        for point in itertools.product((0, 1), repeat=len(cost))
        if all(sum(itertools.compress(row, point)) >= row[-1] for row in rows)
    ]
    return Fraction(min(values), unit) if values else None


def whole(values: list[float]) -> tuple[list[int], int]:
    """Return the values as whole numbers of an exact unit, and how many units are 1."""
    unit = max(value.as_integer_ratio()[1] for value in values)  # powers of two
    return [numerator * (unit // denominator) for numerator, denominator in map(float.as_integer_ratio, values)], unit


def test_no_bound_is_above_the_optimum_of_random_programs() -> None:
    """However wide the coefficients are; and with ordinary ones the bound is the optimum."""
    rng = np.random.default_rng(0)
    for _ in range(draws(1500)):
        arrays = random_covering(rng)
        proof, optimum = branch_and_bound(arrays), exact_optimum(arrays)
        if optimum is None:
            continue  # any bound holds
        assert Fraction(proof.bound) <= optimum
        wide = arrays.matrix.data[arrays.matrix.data > 0].min(initial=1.0) < 1e-5
        if proof.is_done and not wide:
            assert proof.bound >= float(optimum) * (1 - 1e-6) - 1e-6


@pytest.mark.parametrize("seed", range(3))
def test_any_multipliers_prove_a_bound_that_holds(seed: int) -> None:
    """Weak duality does not ask where the multipliers come from."""
    rng = np.random.default_rng(seed)
    for _ in range(200 if ALL else 50):
        arrays = random_covering(rng)
        optimum = exact_optimum(arrays)
        if optimum is None:
            continue
        y: NDArray[np.float64] = rng.normal(size=len(arrays.row_low)) * 10.0 ** rng.uniform(-6, 6)
        assert weak_bound(arrays, y, arrays.low, arrays.high) <= float(optimum) * (1 + 1e-15)


def test_an_infinite_box_proves_something_only_with_the_right_sign() -> None:
    """Minimise x with x >= 1 and no upper end."""
    arrays = Arrays(
        cost=np.ones(1),
        low=np.zeros(1),
        high=np.full(1, np.inf),
        is_integer=np.zeros(1, dtype=bool),
        matrix=csr_array(np.ones((1, 1))),
        row_low=np.ones(1),
        row_high=np.full(1, np.inf),
    )
    assert weak_bound(arrays, np.array([0.5]), arrays.low, arrays.high) == pytest.approx(0.5)
    assert weak_bound(arrays, np.array([2.0]), arrays.low, arrays.high) == -math.inf


def test_what_has_no_solution_is_proven_to_have_none() -> None:
    """X + y = 1.5 has no solution in whole numbers, though one in the relaxation."""
    arrays = Arrays(
        cost=np.ones(2),
        low=np.zeros(2),
        high=np.ones(2),
        is_integer=np.ones(2, dtype=bool),
        matrix=csr_array(np.ones((1, 2))),
        row_low=np.full(1, 1.5),
        row_high=np.full(1, 1.5),
    )
    proof = branch_and_bound(arrays)
    assert (proof.bound, proof.is_done) == (math.inf, True)
