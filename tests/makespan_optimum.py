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
from placekit.model.contiguity import Contiguity
from placekit.model.problem import Problem
from placekit.objectives import Makespan
from placekit.solvers.makespan.bounds.quick import look
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
    it = oracle.plain(problem)
    num_ops, devices = len(it.time_s), range(len(it.kind))
    rooms = [
        frozenset((limit, tuple(sharing) if len(sharing) > 1 else ()) for sharing, limit in it.limits if d in sharing)
        for d in devices
    ]
    alike = [(d.kind, d.node, room) for d, room in zip(problem.platform.devices, rooms, strict=True)]
    has_pins = max(it.pinned) >= 0
    inputs: dict[int, list[tuple[int, list[list[float]]]]] = {op: [] for op in range(num_ops)}
    for t, producer, readers in it.tensors:
        move_s = [[oracle.move_s(problem, t, a, b) if a != b else 0.0 for b in devices] for a in devices]
        for op in readers:
            inputs[op].append((producer, move_s))
    class_of = {op: number for number, members in enumerate(it.classes) for op in members}
    homes = [
        [d for d in devices if all(it.supported[op][it.kind[d]] and it.pinned[op] in (-1, d) for op in members)]
        for members in it.classes
    ]
    fastest = [min((it.time_s[op][it.kind[d]] for d in homes[class_of[op]]), default=0.0) for op in range(num_ops)]
    behind = [0.0] * num_ops  # least seconds from the end of each op to the end of all
    for op in reversed(it.inputs):
        for producer in it.inputs[op]:
            behind[producer] = max(behind[producer], fastest[op] + behind[op])
    best = math.inf
    device: dict[int, int] = {}
    finish: dict[int, float] = {}
    free = [0.0 for _ in devices]
    used = [0.0 for _ in devices]

    def fits(d: int, op: int) -> bool:
        return all(
            sum(used[at] for at in sharing) + it.num_bytes[op] <= limit * (1 + 1e-12)
            for sharing, limit in it.limits
            if d in sharing
        )

    def extend(end: float) -> None:
        nonlocal best
        if len(finish) == num_ops:
            best = min(best, end)
            return
        tried: set[tuple[int, tuple[object, ...]]] = set()
        for op in range(num_ops):
            if op in finish or any(producer not in finish for producer, _ in inputs[op]):
                continue
            c = class_of[op]
            for d in [device[c]] if c in device else homes[c]:
                if not fits(d, op):
                    continue
                # devices that are still empty are alike if they are of one kind, on one node, and without pins
                if free[d] == 0.0 and used[d] == 0.0 and d not in device.values() and not has_pins:
                    if (op, alike[d]) in tried:
                        continue
                    tried.add((op, alike[d]))
                ready = 0.0
                for producer, move_s in inputs[op]:
                    ready = max(ready, finish[producer] + move_s[device[class_of[producer]]][d])
                done = max(ready, free[d]) + it.time_s[op][it.kind[d]]
                if done + behind[op] >= best:
                    continue
                is_first = c not in device
                before = free[d]
                device[c], finish[op], free[d] = d, done, done
                used[d] += it.num_bytes[op]
                extend(max(end, done))
                used[d] -= it.num_bytes[op]
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


def refute(tasks: Tasks, low_s: float, high_s: float) -> float:
    """Return a limit between `low_s` and `high_s` below which no schedule stays, by bisection."""
    while high_s - low_s > 1e-4 * high_s:
        limit_s = (low_s + high_s) / 2
        if look(tasks, limit_s) is None:
            low_s = limit_s
        else:
            high_s = limit_s
    return low_s
