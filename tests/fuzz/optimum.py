"""The optimum of a small problem, by asking the judge about every placement, and every order where orders count."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.objectives import Makespan, OffloadLatency
from placekit.objectives.evaluate import evaluate


def enumerated_optimum(problem: Problem) -> float | None:
    """Return the optimum in seconds by enumeration; None if no placement is feasible.

    Ops that must share a device move together, nothing else is cut off: no bound, no symmetry. Where devices may form
    teams, all divisions into teams are tried.
    """
    if problem.objective.team_rule != "off":
        return _optimum_of_teams(problem)
    best: float | None = None
    for device in _placements(problem):
        first = evaluate(problem, Placement.of(problem, device))
        if any(violation.constraint not in ("order", "calls") for violation in first.violations):
            continue
        values = [first.objective] if first.is_feasible else []
        for step in _steps(problem, device):
            found = evaluate(problem, Placement.of(problem, device, step))
            values += [found.objective] if found.is_feasible else []
        for value in values:
            if value is not None and (best is None or value < best):
                best = value
    return best


def _optimum_of_teams(problem: Problem) -> float | None:
    best: float | None = None
    for team in _divisions(problem.platform.num_devices):
        for choice in itertools.product(sorted(set(team)), repeat=problem.num_classes):
            device = np.array(choice, dtype=np.int64)[problem.op_class]
            found = evaluate(problem, Placement.of(problem, device, None, team))
            if found.is_feasible and found.objective is not None and (best is None or found.objective < best):
                best = found.objective
    return best


def _divisions(num_devices: int) -> Iterator[list[int]]:
    """Yield the first member of the team of every device, for every division into teams."""
    for team in itertools.product(*(range(d + 1) for d in range(num_devices))):
        if all(team[first] == first for first in team):
            yield list(team)


def _placements(problem: Problem) -> Iterator[NDArray[np.int64]]:
    kinds, supported = problem.platform.kind_of_device, problem.costs.supported
    choices = []
    for c in range(problem.num_classes):
        ops = np.flatnonzero(problem.op_class == c)
        pins = {int(d) for d in problem.pinned[ops] if d >= 0}
        choices.append([d for d in range(len(kinds)) if supported[ops, kinds[d]].all() and (not pins or pins == {d})])
    for choice in itertools.product(*choices):
        yield np.array(choice, dtype=np.int64)[problem.op_class]


def _steps(problem: Problem, device: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield every order of the ops for a makespan, and every division into calls for several calls a device."""
    num_ops = problem.graph.num_ops
    if isinstance(problem.objective, Makespan):
        seen = set()
        edges = sorted(set(zip(problem.graph.senders.tolist(), problem.graph.receivers.tolist(), strict=True)))
        for order in itertools.permutations(range(num_ops)):
            step = [0] * num_ops
            for at, op in enumerate(order):
                step[op] = at
            if any(step[u] > step[v] for u, v in edges):
                continue
            turns = tuple(tuple(op for op in order if device[op] == d) for d in range(problem.platform.num_devices))
            if turns not in seen:
                seen.add(turns)
                yield np.array(step)
    elif isinstance(problem.objective, OffloadLatency) and problem.objective.calls_per_device > 1:
        is_host = np.array([target.is_host for target in problem.platform.devices])[device]
        most = min(problem.objective.calls_per_device, num_ops)
        ranges = [range(1) if host else range(most) for host in is_host.tolist()]
        for steps in itertools.product(*ranges):
            yield np.array(steps)
