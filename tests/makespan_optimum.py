"""Small makespan problems: their optimum by enumeration, written from the definition, and schedules at random."""

from __future__ import annotations

import math

import numpy as np
import oracle
from hypothesis import assume
from hypothesis import strategies as st
from numpy.typing import NDArray
from strategies import problems

import placekit as pk
from placekit.contiguity import Contiguity
from placekit.objectives import Makespan
from placekit.problem import Problem
from placekit.solvers.makespan.bounds.quick import look
from placekit.solvers.makespan.bounds.windows import HeadsTails
from placekit.solvers.makespan.schedule.tasks import Tasks

SMALL = problems(
    max_ops=6,
    max_kinds=2,
    max_devices=4,
    objective=st.just(Makespan()),
    contiguity=st.just(Contiguity.NONE),
)
"""Problems that `best_makespan` can enumerate."""


def best_makespan(problem: Problem) -> float | None:
    """Return the least makespan over all placements and orders, without contention; None if nothing is feasible.

    Ops are appended one by one, in every order that the edges allow, each on every device where its class can be; a
    sequence of this kind gives every schedule that starts its ops as early as its orders allow. Contention and
    contiguity are not looked at.
    """
    graph, platform, costs = problem.graph, problem.platform, problem.costs
    alike = [(d.kind, d.node) for d in platform.devices]
    kind = [platform.kinds.index(d.kind) for d in platform.devices]
    inputs: dict[int, list[tuple[int, int]]] = {op: [] for op in range(graph.num_ops)}
    for t, producer, readers in oracle.tensors(problem):
        for op in readers:
            inputs[op].append((t, producer))
    class_of = {op: number for number, members in enumerate(oracle.classes(problem)) for op in members}
    homes = [
        [
            d
            for d in range(platform.num_devices)
            if all(costs.supported[op, kind[d]] and problem.pinned[op] in (-1, d) for op in members)
        ]
        for members in oracle.classes(problem)
    ]
    best = math.inf
    device: dict[int, int] = {}
    finish: dict[int, float] = {}
    free = [0.0] * platform.num_devices
    used = [0.0] * platform.num_devices

    def fits(d: int, op: int) -> bool:
        limit = platform.devices[d].memory_bytes
        return limit is None or used[d] + costs.op_memory_bytes[op] <= limit * (1 + 1e-12)

    def extend(end: float) -> None:
        nonlocal best
        if len(finish) == graph.num_ops:
            best = min(best, end)
            return
        tried: set[tuple[int, tuple[str, str | None]]] = set()
        for op in range(graph.num_ops):
            if op in finish or any(producer not in finish for _, producer in inputs[op]):
                continue
            c = class_of[op]
            for d in [device[c]] if c in device else homes[c]:
                if not fits(d, op):
                    continue
                # devices that are still empty are alike if they are of one kind, on one node, and without pins
                if free[d] == 0.0 and used[d] == 0.0 and d not in device.values() and not (problem.pinned >= 0).any():
                    if (op, alike[d]) in tried:
                        continue
                    tried.add((op, alike[d]))
                ready = 0.0
                for t, producer in inputs[op]:
                    source = device[class_of[producer]]
                    ready = max(ready, finish[producer] + (oracle.move_s(problem, t, source, d) if source != d else 0))
                done = max(ready, free[d]) + costs.op_time_s[op, kind[d]]
                if done >= best:
                    continue
                is_first = c not in device
                before = free[d]
                device[c], finish[op], free[d] = d, done, done
                used[d] += costs.op_memory_bytes[op]
                extend(max(end, done))
                used[d] -= costs.op_memory_bytes[op]
                free[d] = before
                del finish[op]
                if is_first:
                    del device[c]

    extend(0.0)
    return None if math.isinf(best) else best


def known_optimum(problem: Problem) -> float:
    """Return :func:`best_makespan`; the example is passed over if nothing is feasible."""
    optimum = best_makespan(problem)
    assume(optimum is not None)
    assert optimum is not None
    return optimum


def fork(num_branches: int, transfer_s: float, num_devices: int) -> Problem:
    """Return one op, `num_branches` ops of 1 s behind it, and one op behind them."""
    middle = [f"m{i}" for i in range(num_branches)]
    graph = pk.OpGraph.from_edges(
        ["a", *middle, "z"], [("a", m) for m in middle] + [(m, "z") for m in middle], name="fork"
    )
    costs = pk.CostTable(
        ("d",), np.ones((graph.num_ops, 1)), np.full((graph.num_tensors, 1), transfer_s / 2), np.ones(graph.num_ops)
    )
    return Problem(graph, pk.Platform.of(d=num_devices), costs, Makespan())


def random_schedule(
    data: st.DataObject, problem: Problem, tasks: Tasks
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return devices, starts and finishes, in the order of the tasks, of a random feasible placement."""
    device = np.zeros(problem.graph.num_ops, dtype=np.int64)
    for c in range(tasks.num_classes):
        members = np.flatnonzero(tasks.class_of_op == c)
        homes = np.flatnonzero(np.isfinite(tasks.time_s[members]).all(axis=0)).tolist()
        assume(homes)
        device[tasks.op[members]] = data.draw(st.sampled_from(homes))
    step = np.argsort(data.draw(st.permutations(range(problem.graph.num_ops))))
    evaluation = pk.evaluate(problem, pk.Placement.of(problem, device, step))
    if evaluation.violations:
        evaluation = pk.evaluate(problem, pk.Placement.of(problem, device))
    assume(evaluation.is_feasible)
    assert evaluation.score is not None
    schedule = evaluation.score.schedule
    assert schedule is not None
    ops = ~schedule.is_transfer
    start, finish = np.zeros(len(device)), np.zeros(len(device))
    start[schedule.op[ops]], finish[schedule.op[ops]] = schedule.start_s[ops], schedule.finish_s[ops]
    return device[tasks.op], start[tasks.op], finish[tasks.op]


def refute(tasks: Tasks, heads_tails: HeadsTails, low_s: float, high_s: float) -> float:
    """Return a limit between `low_s` and `high_s` below which no schedule stays, by bisection."""
    while high_s - low_s > 1e-4 * high_s:
        limit_s = (low_s + high_s) / 2
        if look(tasks, limit_s, heads_tails) is None:
            low_s = limit_s
        else:
            high_s = limit_s
    return low_s
