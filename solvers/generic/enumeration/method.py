"""Method ``enumerate``: every placement of a small problem, by depth-first branch and bound."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import FEW_OPS, interpreted
from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.objectives import Makespan, OffloadLatency
from placekit.objectives.makespan.instance import instance_of
from placekit.solve.method import Method, Run
from placekit.solve.result import OPTIMALITY_TOLERANCE
from placekit.solve.stop import StopReason
from placekit.solvers.generic.baselines import offer_single_devices
from placekit.solvers.generic.bounds.bound import KeepBound
from placekit.solvers.generic.enumeration.exhausted import clash
from placekit.solvers.generic.enumeration.items import Beginnings, Items, items_of
from placekit.solvers.generic.enumeration.orders import best_order
from placekit.solvers.generic.enumeration.scores import Score, score_for
from placekit.solvers.generic.teams.partitions import partitions

MAX_PLACEMENTS = 6_000_000
"""Placements up to which the method takes a problem: seconds, if no bound helped. Nine ops on five devices have two
million, in all divisions into teams five."""
ENUMERATE_FIRST_UP_TO = MAX_PLACEMENTS
"""Placements up to which the enumeration comes before other proofs: it takes less time than a program then."""
MAX_OPS = 12
"""Ops up to which a makespan's orders are searched."""
CHUNK = 8192
"""Beginnings that are extended together."""
ROUNDING = 1e-12
"""Relative: more than the sums of a few terms differ by when they are added in another order."""
NAME = "all placements"


MAX_PARTITIONS = 1000
"""Partitions of the devices into teams that are looked at."""
MAX_TEAMED = 8
"""Devices up to which partitions are counted."""


def is_small(problem: Problem) -> bool:
    """Return True if `problem` has few enough placements."""
    size = num_placements(problem)
    return size <= MAX_PLACEMENTS and (not isinstance(problem.objective, Makespan) or problem.graph.num_ops <= MAX_OPS)


def num_placements(problem: Problem) -> float:
    """Return the number of placements, of every partition into teams; infinity for more than `MAX_PARTITIONS`."""
    if problem.objective.team_rule == "off":
        return items_of(problem).num_placements
    if problem.platform.num_devices > MAX_TEAMED:
        return math.inf
    total, found = 0.0, list(itertools.islice(partitions(problem), MAX_PARTITIONS + 1))
    if len(found) > MAX_PARTITIONS:
        return math.inf
    for teams in found:
        total += items_of(problem, teams).num_placements
        if total > MAX_PLACEMENTS:
            return math.inf
    return total


def is_first(problem: Problem) -> bool:
    """Return True if the enumeration of `problem` is quicker than other proofs."""
    return num_placements(problem) <= ENUMERATE_FIRST_UP_TO and Enumerate().supports(problem) is None


def enumerate_first(
    run: Run,  # the run; afterwards it has the optimum and the proof, if its problem is small
    keep: KeepBound | None = None,  # takes the bound a second time, for a list of all bounds
) -> StopReason | None:
    """Enumerate the placements if they are few, before a program is solved that would take longer.

    Returns
    -------
    StopReason or None
        Why the run is to stop; None to go on.
    """
    reason = run.should_stop()
    if reason is not None or not is_first(run.problem):
        return reason
    reason = Enumerate().run(run)
    if keep is not None and run.bound is not None and run.bound_name == NAME:
        keep(run.bound, NAME)
    return None if reason is StopReason.FINISHED else reason


class _Branch(NamedTuple):
    """Beginnings of one partition into teams, all of them with the same number of items."""

    least_s: float
    beginnings: Beginnings
    items: Items
    score: Score
    teams: NDArray[np.int64] | None


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
            return f"it has {num_placements(problem):.1e} placements; {MAX_PLACEMENTS:.1e} can be enumerated"
        return None

    def knows_pools(self, problem: Problem) -> bool:  # noqa: ARG002
        """Return True: the judge counts them."""
        return True

    def run(self, run: Run) -> StopReason:
        """Enumerate until nothing is left, or told to stop."""
        offer_single_devices(run)
        has_teams = run.problem.objective.team_rule != "off"
        stack = [_root(run.problem, teams) for teams in (partitions(run.problem) if has_teams else (None,))]
        while stack:  # the last one is next
            reason = run.should_stop()
            if reason is not None:
                if reason is not StopReason.PROVED:
                    _raise_bound(run, min(branch.least_s for branch in stack))
                return reason
            stack += _extend(run, stack.pop())
        if run.objective is None:
            return run.prove_infeasible(clash())
        _raise_bound(run, math.inf)
        return run.should_stop() or StopReason.FINISHED


def _root(problem: Problem, teams: NDArray[np.int64] | None) -> _Branch:
    items = items_of(problem, teams)
    score = score_for(items)
    assert score is not None  # `supports` looked
    return _Branch(0.0, np.zeros((1, 0), dtype=np.int8), items, score, teams)


def _raise_bound(run: Run, left_s: float) -> None:
    """Raise the bound to the least score that is left, or to the best objective if that is less."""
    bound_s = min(left_s, math.inf if run.objective is None else run.objective) * (1 - 2 * ROUNDING)
    if math.isfinite(bound_s):
        run.raise_bound(bound_s, NAME, tolerance=OPTIMALITY_TOLERANCE)


def _most_s(run: Run) -> float:
    """Return the score from which on a placement is no better than the best known."""
    return math.inf if run.objective is None else run.objective * (1 - ROUNDING)


def _extend(run: Run, branch: _Branch) -> list[_Branch]:
    """Return chunks of the beginnings with one item more, the best last; offer them if they are whole."""
    items = branch.items
    longer = items.extended(branch.beginnings)
    longer = longer[items.is_contiguous(longer)]
    values = branch.score(longer)
    is_open = values < _most_s(run)
    longer, values = longer[is_open], values[is_open]
    order = np.argsort(values, kind="stable")
    longer, values = longer[order], values[order]
    if longer.shape[1] == items.num_items:
        _offer(run, branch, longer, values)
        return []
    starts = range(0, len(longer), CHUNK)
    return [branch._replace(least_s=float(values[at]), beginnings=longer[at : at + CHUNK]) for at in reversed(starts)]


def _offer(run: Run, branch: _Branch, places: Beginnings, values: NDArray[np.float64]) -> None:
    """Let the judge score whole placements as long as they may be better than the best known."""
    problem, items = run.problem, branch.items
    run.count_evaluations(len(places))
    for row, value in zip(places.astype(np.int64), values.tolist(), strict=True):
        if value >= _most_s(run):
            return
        device, slot = items.expand(row)
        step = slot if isinstance(problem.objective, OffloadLatency) and items.slot_of_place.any() else None
        if isinstance(problem.objective, Makespan) and problem.objective.steps == "runtime":
            instance = instance_of(problem)
            most_s = _most_s(run)
            with interpreted(instance.num_ops <= FEW_OPS):
                found = best_order(instance, device, problem.objective.contention, most_s)
            if found[0] >= most_s:
                continue
            step = np.argsort(found[1])
        run.offer(Placement.of(problem, device, step, branch.teams))
