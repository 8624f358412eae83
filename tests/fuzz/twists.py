"""Twists that make a random problem harder where solvers have failed before: memory by a hair, calls, parts, times."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.model.contiguity import Contiguity
from placekit.model.platform import Platform
from placekit.model.problem import Problem
from placekit.objectives import OffloadLatency

from .minimise import without_readers

HAIRS = (1.0, 1.0, 1 - 1.1e-12, 1 - 0.9e-12, 1 + 1.1e-12, 1 - 1e-9, 1 + 1e-9, 1 - 1e-6, 1.05)
"""Memory limits as multiples of what a placement needs; the judge forgives 1e-12."""
MAX_CALLS_TIMES_PLACEMENTS = 4_000
"""Placements times divisions into calls of a problem that is enumerated."""


def twisted(rng: np.random.Generator, problem: Problem, *, is_enumerated: bool) -> Problem:
    """Return `problem` with about two twists.

    Parameters
    ----------
    rng
        Source of all choices.
    problem
        A random problem.
    is_enumerated
        True if all placements and calls have to stay few.
    """
    num_ops = problem.graph.num_ops
    if rng.random() < 0.1:
        problem = _in_parts(rng, problem)
    if rng.random() < 0.2:
        problem = _with_other_times(rng, problem)
    if problem.objective.name != "makespan" and rng.random() < 0.3:
        problem = problem.replace(contiguity=Contiguity(str(rng.choice(["none", "convex", "acyclic"]))))
    if isinstance(problem.objective, OffloadLatency) and rng.random() < 0.5:
        calls = int(rng.choice([2, 3]))
        if not is_enumerated or (problem.platform.num_devices * calls) ** num_ops <= MAX_CALLS_TIMES_PLACEMENTS:
            problem = problem.replace(objective=OffloadLatency(calls))
    return _with_tight_memory(rng, problem) if rng.random() < 0.4 else problem


def _in_parts(rng: np.random.Generator, problem: Problem) -> Problem:
    """Cut the graph into two parts without edges between them, or drop all edges; mostly with colocation across."""
    graph = problem.graph
    side = rng.random(graph.num_ops) < (0.5 if rng.random() < 0.7 else np.inf)
    is_inside = side[graph.tensor_producer[graph.consumed_tensor]] == side[graph.consumers]
    problem = without_readers(problem, is_inside & (not side.all()))
    if rng.random() < 0.6:
        problem = problem.replace(colocation=rng.integers(0, graph.num_ops, graph.num_ops))
    return problem


def _with_other_times(rng: np.random.Generator, problem: Problem) -> Problem:
    """Make op times differ by a factor of 1e5, by op or by kind, or make all times zero."""
    times = problem.costs.op_time_s
    draw = rng.random()
    if draw < 0.2:
        changes = {"op_time_s": np.zeros_like(times)}
        if rng.random() < 0.5:
            changes["transfer_time_s"] = np.zeros_like(problem.costs.transfer_time_s)
        return problem.replace(costs=problem.costs.replace(**changes))
    shape = (len(times), 1) if draw < 0.6 else (1, times.shape[1])
    return problem.replace(costs=problem.costs.replace(op_time_s=times * rng.choice([1.0, 1e5], shape)))


def _with_tight_memory(rng: np.random.Generator, problem: Problem) -> Problem:
    """Set limits to what some placement needs, or a hair off: a placement is known, and few others fit."""
    costs, platform = problem.costs, problem.platform
    if costs.blocks is None and not costs.op_memory_bytes.any():
        sizes = rng.integers(1, 10, problem.graph.num_ops) * float(rng.choice([1.0, 0.1, 1e8 / 3, 2.0**30]))
        problem = problem.replace(costs=costs.replace(op_memory_bytes=sizes))
    device = planted(rng, problem)
    needed = [problem.stage_memory.of(device == d) for d in range(platform.num_devices)]
    limits: dict[str, float | None] = {}
    for kind in platform.kinds:
        most = max(bytes_ for each, bytes_ in zip(platform.devices, needed, strict=True) if each.kind == kind)
        limits[kind] = most * float(rng.choice(HAIRS)) if most > 0 and rng.random() < 0.9 else None
    devices = tuple(each.replace(memory_bytes=limits[each.kind]) for each in platform.devices)
    changed = Platform(devices, direct_links=platform.direct_links)
    return problem.replace(platform=changed)


def planted(rng: np.random.Generator, problem: Problem) -> NDArray[np.int64]:
    """Draw a placement that heeds pins, support and colocation, or one in blocks along a topological order."""
    num_ops, num_devices = problem.graph.num_ops, problem.platform.num_devices
    if problem.contiguity is not Contiguity.NONE and rng.random() < 0.7:
        cuts = np.sort(rng.integers(0, num_ops + 1, num_devices - 1))
        device = np.empty(num_ops, dtype=np.int64)
        device[problem.graph.order] = rng.permutation(num_devices)[np.searchsorted(cuts, np.arange(num_ops), "right")]
        return device
    device = rng.integers(0, num_devices, problem.num_classes)[problem.op_class]
    for c in range(problem.num_classes):
        ops = problem.op_class == c
        pins = problem.pinned[ops & (problem.pinned >= 0)]
        can = np.flatnonzero(problem.costs.supported[ops].all(axis=0)[problem.platform.kind_of_device])
        if pins.size or can.size:
            device[ops] = pins[0] if pins.size else rng.choice(can)
    return device
