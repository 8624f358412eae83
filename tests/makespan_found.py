"""What a search for the makespan found, checked: a schedule as it says, and the same one every time."""

from __future__ import annotations

import numpy as np
from makespan_optimum import best_makespan
from numpy.typing import NDArray
from oracle import is_feasible

import placekit as pk
from placekit.solvers.makespan.schedule.sequence import decode, empty_timeline
from placekit.solvers.makespan.search.incumbent import Best


def check_found(problem: pk.Problem, best: Best | None, again: Best | None) -> None:
    """Assert that `best` is feasible, that decoder and judge agree, and that `again`, of the same seed, is the same."""
    if best is None or again is None:
        assert best is again
        return
    assert decode(best.flat, best.device, best.sequence, empty_timeline(best.flat), 0) == best.value_s
    assert is_feasible(problem, tuple(best.device.tolist()))
    assert best.run.objective is not None
    assert best.run.objective <= best.value_s * (1 + 1e-9)
    assert (best.value_s, best.device.tolist(), best.sequence.tolist()) == (
        again.value_s,
        again.device.tolist(),
        again.sequence.tolist(),
    )


def check_at_least_optimum(problem: pk.Problem, best: Best | None) -> None:
    """Assert that what was found, if anything, is no shorter than the optimum by enumeration."""
    if best is not None:
        optimum = best_makespan(problem)
        assert optimum is not None
        assert best.value_s >= optimum * (1 - 1e-12)


def random_order(problem: pk.Problem, rng: np.random.Generator) -> NDArray[np.int64]:
    """``[V]`` a topological order at random."""
    graph = problem.graph
    missing = np.bincount(graph.receivers, minlength=graph.num_ops)
    order: list[int] = []
    while len(order) < graph.num_ops:
        ready = np.setdiff1d(np.flatnonzero(missing == 0), order)
        op = int(rng.choice(ready))
        np.subtract.at(missing, graph.receivers[graph.senders == op], 1)
        order.append(op)
    return np.array(order)
