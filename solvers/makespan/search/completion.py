"""A schedule of some of the ops, made one of all: the others are put where they cost least."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.problem import Problem
from placekit.solvers.makespan.schedule.sequence import sequence_problem
from placekit.solvers.makespan.search.moves import window
from placekit.solvers.makespan.search.walk import empty_walk, load

__all__ = ["complete"]

POSITIONS = 32
"""Positions that are tried for an op, evenly spread over all that it can take."""


def complete(
    problem: Problem, device: NDArray[np.int64], sequence: NDArray[np.int64], left_out: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Insert ops into a schedule, one after the other, each at the device and the position of the least makespan.

    Parameters
    ----------
    problem
        The problem; its objective is the makespan.
    device
        ``[V]`` device of each op; of those left out it is not looked at.
    sequence
        The other ops in an order that keeps their precedences, of paths through those left out as well.
    left_out
        The ops to insert, in topological order. One whose class has a device goes there.

    Returns
    -------
    tuple[NDArray[np.int64], NDArray[np.int64]]
        ``[V]`` device of each op, and a topological order. Memory is not looked at.

    Notes
    -----
    O(left out * POSITIONS * devices * (ops + edges)).
    """
    flat = sequence_problem(problem, has_contention=problem.objective.contention)
    graph, class_of_op = problem.graph, flat.instance.class_of_op
    device, waiting = device.copy(), set(left_out.tolist())
    homes: dict[int, list[int]] = {}
    key = np.full(graph.num_ops, -0.5)
    key[sequence] = np.arange(len(sequence))
    for v in left_out.tolist():
        mates = np.flatnonzero(class_of_op == class_of_op[v]).tolist()
        known = [int(device[w]) for w in mates if w not in waiting]
        homes[v] = known[:1] or np.flatnonzero(flat.allowed[class_of_op[v]]).tolist()
        # until it is its turn: where it is fastest, right behind the last op that it needs
        device[v] = homes[v][int(flat.time_s[v, homes[v]].argmin())]
        key[v] = np.floor(key[graph.senders[graph.receivers == v]]).max(initial=-1.0) + 0.5
    order = np.lexsort((np.argsort(flat.instance.order), key))
    walk = empty_walk(flat)
    for v in left_out.tolist():
        load(flat, walk, device, order)
        low, high = window(flat, walk, v)
        others, best_s, best = order[order != v], np.inf, (int(device[v]), order)
        for d in homes[v]:
            for at in np.unique(np.linspace(low, high, POSITIONS).round().astype(np.int64)).tolist():
                device[v], tried = d, np.insert(others, at, v)
                value_s = load(flat, walk, device, tried)
                if value_s < best_s:
                    best_s, best = value_s, (d, tried)
        device[v], order = best
        for w in np.flatnonzero(class_of_op == class_of_op[v]).tolist():
            device[w], homes[w] = device[v], [int(device[v])]
    return device, order
