"""Classical scheduling problems as makespan problems: machines are devices of a kind each, and nothing is transferred.

The sizes are those of the public benchmarks (6 x 6 and 10 x 5 as by Fisher and Thompson, 10 x 10 and more as by
Lawrence and Taillard), the times are whole numbers of seconds. Every random choice comes from the seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from placekit.costs import CostTable
from placekit.errors import InvalidProblemError
from placekit.graph import OpGraph
from placekit.objectives import Makespan
from placekit.platform import Device, Platform
from placekit.problem import Problem

__all__ = ["flexible_job_shop", "job_shop", "shop", "unrelated_machines"]

Job = Sequence[dict[int, float]]
"""The operations of a job in their order: seconds on each machine that can do it."""


def shop(name: str, jobs: Sequence[Job], num_machines: int) -> Problem:
    """Return the problem of `jobs` on the machines ``0 .. num_machines - 1``.

    Raises
    ------
    InvalidProblemError
        An operation that no machine can do, or a machine that there is not.

    Examples
    --------
    >>> shop("two jobs", [[{0: 3}, {1: 2}], [{1: 2, 0: 4}]], 2)
    Problem('two jobs': 3 ops in 3 classes on 2 devices, makespan, none)
    """
    names, edges = [], []
    for j, job in enumerate(jobs):
        mine = [f"job{j}.{o}" for o in range(len(job))]
        names += mine
        edges += list(pairwise(mine))
    times = np.zeros((len(names), num_machines))
    supported = np.zeros((len(names), num_machines), dtype=bool)
    for op, choices in enumerate(choices for job in jobs for choices in job):
        if not choices or min(choices) < 0 or max(choices) >= num_machines:
            raise InvalidProblemError(
                f"shop {name!r}: operation {names[op]!r} has machines {sorted(choices)}; they must be at least one of "
                f"0 to {num_machines - 1}"
            )
        for machine, time_s in choices.items():
            times[op, machine], supported[op, machine] = time_s, True
    graph = OpGraph.from_edges(names, edges, name=name)
    kinds = [f"machine{m}" for m in range(num_machines)]
    transfers = np.zeros((graph.num_tensors, num_machines))
    costs = CostTable(tuple(kinds), times, transfers, np.zeros(len(names)), supported=supported)
    return Problem(graph, Platform(tuple(Device(kind, kind) for kind in kinds)), costs, Makespan())


def job_shop(num_jobs: int, num_machines: int, seed: int = 0, *, longest_s: int = 99) -> Problem:
    """Return a job shop: every job visits every machine once, in an order of its own, for 1 to `longest_s` seconds."""
    rng = np.random.default_rng(seed)
    jobs: list[Job] = [
        [{int(m): float(rng.integers(1, longest_s + 1))} for m in rng.permutation(num_machines)]
        for _ in range(num_jobs)
    ]
    return shop(f"job-shop-{num_jobs}x{num_machines}-{seed}", jobs, num_machines)


def flexible_job_shop(
    num_jobs: int, num_machines: int, seed: int = 0, *, most_machines: int = 3, longest_s: int = 20
) -> Problem:
    """Return a flexible job shop: every op can run on one to `most_machines` machines, at times of their own."""
    rng = np.random.default_rng(seed)
    jobs: list[Job] = []
    for _ in range(num_jobs):
        job = []
        for _ in range(int(rng.integers(max(2, num_machines - 2), num_machines + 1))):
            able = rng.choice(num_machines, size=int(rng.integers(1, most_machines + 1)), replace=False)
            job.append({int(m): float(rng.integers(1, longest_s + 1)) for m in able})
        jobs.append(job)
    return shop(f"flexible-job-shop-{num_jobs}x{num_machines}-{seed}", jobs, num_machines)


def unrelated_machines(num_ops: int, num_machines: int, seed: int = 0, *, longest_s: int = 20) -> Problem:
    """Return ops with random precedence that every machine can do, each in a time of its own."""
    rng = np.random.default_rng(seed)
    names = [f"op{o}" for o in range(num_ops)]
    edges = []
    for o in range(1, num_ops):
        readers = rng.choice(min(o, 8), size=min(o, int(rng.integers(0, 3))), replace=False)
        edges += [(names[o - 1 - int(back)], names[o]) for back in readers]
    graph = OpGraph.from_edges(names, edges, name=f"unrelated-machines-{num_ops}x{num_machines}-{seed}")
    kinds = [f"machine{m}" for m in range(num_machines)]
    times = rng.integers(1, longest_s + 1, (num_ops, num_machines)).astype(np.float64)
    costs = CostTable(tuple(kinds), times, np.zeros((graph.num_tensors, num_machines)), np.zeros(num_ops))
    return Problem(graph, Platform(tuple(Device(kind, kind) for kind in kinds)), costs, Makespan())
