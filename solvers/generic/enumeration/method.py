"""Method ``enumerate``: every placement of a small problem, by depth-first branch and bound."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from placekit.makespan.instance import instance_of
from placekit.method import Method, Run
from placekit.objectives import Makespan, OffloadLatency
from placekit.placement import Placement
from placekit.problem import Problem
from placekit.result import OPTIMALITY_TOLERANCE
from placekit.solvers.assignment.infeasible import clash
from placekit.solvers.generic.baselines import offer_single_devices
from placekit.solvers.generic.enumeration.items import Beginnings, Items, items_of
from placekit.solvers.generic.enumeration.orders import best_order
from placekit.solvers.generic.enumeration.scores import Score, score_for
from placekit.stop import StopReason

__all__ = ["MAX_PLACEMENTS", "Enumerate", "is_small"]

MAX_PLACEMENTS = 4.0**10
"""Placements that are no problem: seconds, if no bound helped."""
MAX_OPS = 12
"""Ops up to which a makespan's orders are searched."""
CHUNK = 8192
"""Beginnings that are extended together."""
ROUNDING = 1e-12
"""Relative: more than the sums of a few terms differ by when they are added in another order."""
NAME = "all placements"


def is_small(problem: Problem) -> bool:
    """Return True if `problem` has few enough placements."""
    size = items_of(problem).num_placements
    return size <= MAX_PLACEMENTS and (not isinstance(problem.objective, Makespan) or problem.graph.num_ops <= MAX_OPS)


class Enumerate(Method):
    """Branch and bound over all placements, under any objective and contiguity: the proof for small problems.

    1. Give the items (:mod:`~placekit.solvers.generic.enumeration.items`) places one after the other, all beginnings
       of a chunk at once, best first.
    2. Drop beginnings that break a constraint, or whose score
       (:mod:`~placekit.solvers.generic.enumeration.scores`) is no less than the best objective known.
    3. Let the judge score what is left at the end; for a makespan search all orders of each such placement first
       (:mod:`~placekit.solvers.generic.enumeration.orders`).

    When nothing is left, the best objective known is optimal, or no placement is feasible. Told to stop before, the
    least score that is left is a bound.
    """

    name = "enumerate"

    def supports(self, problem: Problem) -> str | None:
        """Return None for problems of up to `MAX_PLACEMENTS` placements."""
        items = items_of(problem)
        if score_for(items) is None:
            return f"it has no score for objective {problem.objective.name}"
        if not is_small(problem):
            return f"it has {items.num_placements:.1e} placements; {MAX_PLACEMENTS:.1e} can be enumerated"
        return None

    def run(self, run: Run) -> StopReason:
        """Enumerate until nothing is left, or told to stop."""
        offer_single_devices(run)
        items = items_of(run.problem)
        score = score_for(items)
        assert score is not None  # `supports` looked
        # the last one is next: beginnings, and the least score of any of them
        stack: list[tuple[float, Beginnings]] = [(0.0, np.zeros((1, 0), dtype=np.int8))]
        while stack:
            reason = run.should_stop()
            if reason is not None:
                if reason is not StopReason.PROVED:
                    _raise_bound(run, min(least for least, _ in stack))
                return reason
            _, beginnings = stack.pop()
            stack += _extend(run, items, score, beginnings)
        if run.objective is None:
            return run.prove_infeasible(clash())
        _raise_bound(run, math.inf)
        return run.should_stop() or StopReason.FINISHED


def _raise_bound(run: Run, left_s: float) -> None:
    """Raise the bound to the least score that is left, or to the best objective if that is less."""
    bound_s = min(left_s, math.inf if run.objective is None else run.objective) * (1 - 2 * ROUNDING)
    if math.isfinite(bound_s):
        run.raise_bound(bound_s, NAME, tolerance=OPTIMALITY_TOLERANCE)


def _most_s(run: Run) -> float:
    """Return the score from which on a placement is no better than the best known."""
    return math.inf if run.objective is None else run.objective * (1 - ROUNDING)


def _extend(run: Run, items: Items, score: Score, beginnings: Beginnings) -> list[tuple[float, Beginnings]]:
    """Return chunks of the beginnings with one item more, the best last; offer them if they are whole."""
    longer = items.extended(beginnings)
    longer = longer[items.is_contiguous(longer)]
    values = score(longer)
    is_open = values < _most_s(run)
    longer, values = longer[is_open], values[is_open]
    order = np.argsort(values, kind="stable")
    longer, values = longer[order], values[order]
    if longer.shape[1] == items.num_items:
        _offer(run, items, longer, values)
        return []
    starts = range(0, len(longer), CHUNK)
    return [(float(values[at]), longer[at : at + CHUNK]) for at in reversed(starts)]


def _offer(run: Run, items: Items, places: Beginnings, values: NDArray[np.float64]) -> None:
    """Let the judge score whole placements as long as they may be better than the best known."""
    problem = run.problem
    run.count_evaluations(len(places))
    for row, value in zip(places.astype(np.int64), values.tolist(), strict=True):
        if value >= _most_s(run):
            return
        device, slot = items.expand(row)
        step = slot if isinstance(problem.objective, OffloadLatency) and items.slot_of_place.any() else None
        if isinstance(problem.objective, Makespan):
            instance = instance_of(problem)
            most_s = _most_s(run)
            found = best_order(instance, device, problem.objective.contention, most_s)
            if found[0] >= most_s:
                continue
            step = np.empty(len(device), dtype=np.int64)
            step[found[1]] = np.arange(len(device))
        run.offer(Placement.of(problem, device, step))
