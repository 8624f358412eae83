"""Classical scheduling problems: their shape, and a published optimum."""

from __future__ import annotations

import pytest

import placekit as pk
from placekit.benchmarks.scheduling import flexible_job_shop, job_shop, shop, unrelated_machines
from placekit.errors import InvalidProblemError

FT06 = """
2 1  0 3  1 6  3 7  5 3  4 6
1 8  2 5  4 10 5 10 0 10 3 4
2 5  3 4  5 8  0 9  1 1  4 7
1 5  0 5  2 5  3 3  4 8  5 9
2 9  1 3  4 5  5 4  0 3  3 1
1 3  3 3  5 9  0 10 4 4  2 1
"""
"""Machine and time of every operation (Fisher and Thompson 1963); the optimum is 55."""


def test_published_job_shop_is_proven() -> None:
    """The 6 x 6 job shop of Fisher and Thompson takes 55."""
    rows = [list(map(int, line.split())) for line in FT06.split("\n") if line]
    jobs = [[{m: float(t)} for m, t in zip(row[::2], row[1::2], strict=True)] for row in rows]
    result = pk.solve(shop("ft06", jobs, 6), method="auto", stop=pk.MaxRuntime(120))
    assert result.objective == 55
    assert result.status is pk.Status.OPTIMAL


def test_shops_have_the_shape_of_their_kind() -> None:
    """A job visits every machine once; flexible ops have a choice; unrelated machines can all do everything."""
    problem = job_shop(4, 3, seed=1)
    assert problem.graph.num_ops == 12
    assert (problem.costs.supported.sum(axis=1) == 1).all()
    assert (problem.costs.supported.reshape(4, 3, 3).sum(axis=1) == 1).all()
    assert len(problem.graph.senders) == 4 * 2
    assert flexible_job_shop(5, 4, seed=2).costs.supported.sum(axis=1).max() > 1
    assert unrelated_machines(10, 3, seed=3).costs.supported.all()
    for make in (job_shop, flexible_job_shop, unrelated_machines):
        assert make(8, 4, seed=5) == make(8, 4, seed=5)
        assert make(8, 4, seed=5) != make(8, 4, seed=6)


def test_operation_without_a_machine_is_an_error() -> None:
    """The message names the operation."""
    with pytest.raises(InvalidProblemError, match=r"operation 'job0\.1' has machines \[2\]; .* 0 to 1"):
        shop("bad", [[{0: 1.0}, {2: 1.0}]], 2)
