"""Classical scheduling problems as makespan problems: machines are devices of a kind each, and nothing is transferred.

Times are whole numbers of seconds. `parse_job_shop` reads the text in which job shops are published, and `PUBLISHED`
has some. The others are drawn: every random choice comes from the seed.

References
----------
Fisher, Thompson, "Probabilistic learning combinations of local job-shop scheduling rules", 1963 (ft06, ft10). Lawrence,
"Resource constrained project scheduling", 1984 (la01). Taillard, "Benchmarks for basic scheduling problems", European
Journal of Operational Research 64, 1993 (the generator of `taillard_job_shop`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from placekit.benchmarks.generators.families import require_ranges
from placekit.model.costs import CostTable
from placekit.model.errors import InvalidProblemError, UnknownNameError
from placekit.model.graph import OpGraph
from placekit.model.platform import Device, Platform
from placekit.model.problem import Problem
from placekit.objectives import Makespan

_MODULUS = 2**31 - 1
MAX_SHOP = 1000
"""Jobs and machines of a drawn shop, at most."""

Job = Sequence[dict[int, float]]
"""The operations of a job in their order: seconds on each machine that can do it."""

PUBLISHED: Mapping[str, tuple[str, int]] = MappingProxyType(
    {
        "ft06": (
            """6 6
            2  1 0  3 1  6 3  7 5  3 4  6
            1  8 2  5 4 10 5 10 0 10 3  4
            2  5 3  4 5  8 0  9 1  1 4  7
            1  5 0  5 2  5 3  3 4  8 5  9
            2  9 1  3 4  5 5  4 0  3 3  1
            1  3 3  3 5  9 0 10 4  4 2  1""",
            55,
        ),
        "ft10": (
            """10 10
            0 29 1 78 2  9 3 36 4 49 5 11 6 62 7 56 8 44 9 21
            0 43 2 90 4 75 9 11 3 69 1 28 6 46 5 46 7 72 8 30
            1 91 0 85 3 39 2 74 8 90 5 10 7 12 6 89 9 45 4 33
            1 81 2 95 0 71 4 99 6  9 8 52 7 85 3 98 9 22 5 43
            2 14 0  6 1 22 5 61 3 26 4 69 8 21 7 49 9 72 6 53
            2 84 1  2 5 52 3 95 8 48 9 72 0 47 6 65 4  6 7 25
            1 46 0 37 3 61 2 13 6 32 5 21 9 32 8 89 7 30 4 55
            2 31 0 86 1 46 5 74 4 32 6 88 8 19 9 48 7 36 3 79
            0 76 1 69 3 76 5 51 2 85 9 11 6 40 7 89 4 26 8 74
            1 85 0 13 2 61 6  7 8 64 9 76 5 47 3 52 4 90 7 45""",
            930,
        ),
        "la01": (
            """10 5
            1 21 0 53 4 95 3 55 2 34
            0 21 3 52 4 16 2 26 1 71
            3 39 4 98 1 42 2 31 0 12
            1 77 0 55 4 79 2 66 3 77
            0 83 3 34 2 64 1 19 4 37
            1 54 2 43 4 79 0 92 3 62
            3 69 4 77 1 87 2 87 0 93
            2 38 0 60 1 41 3 24 4 83
            3 17 1 49 4 25 0 44 2 98
            4 77 3 79 2 43 1 75 0 96""",
            666,
        ),
    }
)
"""Job shops by name, as `parse_job_shop` reads them, and their published optima in seconds."""


def shop(name: str, jobs: Sequence[Job], num_machines: int) -> Problem:
    """Return the problem of `jobs` on the machines ``0 .. num_machines - 1``.

    Raises `InvalidProblemError`: an operation that no machine can do, or a machine that there is not.

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
    return _on_machines(OpGraph.from_edges(names, edges, name=name), times, supported)


def _on_machines(graph: OpGraph, times: NDArray[np.float64], supported: NDArray[np.bool_]) -> Problem:
    """Return the problem of ops with times ``[num_ops, num_machines]``."""
    kinds = tuple(f"machine{m}" for m in range(times.shape[1]))
    transfers = np.zeros((graph.num_tensors, len(kinds)))
    costs = CostTable(kinds, times, transfers, np.zeros(graph.num_ops), supported=supported)
    return Problem(graph, Platform(tuple(Device(kind, kind) for kind in kinds)), costs, Makespan())


def parse_job_shop(text: str, name: str = "job-shop") -> Problem:
    """Return the problem of a job shop in its usual text form.

    Parameters
    ----------
    text
        Number of jobs and of machines, and then for each job as many pairs of a machine (from 0 on) and a time as there
        are machines.
    name
        Name of the problem.

    Raises
    ------
    InvalidProblemError
        Something else than whole numbers, a size or a time below its bound, too few or too many numbers, or a machine
        that there is not.

    Examples
    --------
    >>> parse_job_shop("2 2   0 3 1 2   1 2 0 4")
    Problem('job-shop': 4 ops in 4 classes on 2 devices, makespan, none)
    """
    values: list[int] = []
    for word in text.split():
        if not word.isascii() or not word.isdecimal() or len(word) > 9:
            raise InvalidProblemError(f"shop {name!r}: {word[:20]!r} is no whole number from 0 to 999999999")
        values.append(int(word))
    num_jobs, num_machines = (*values[:2], 0, 0)[:2]
    if min(num_jobs, num_machines) < 1 or len(values) != 2 + 2 * num_jobs * num_machines:
        raise InvalidProblemError(
            f"shop {name!r}: {len(values)} numbers for {num_jobs} jobs on {num_machines} machines; they must be at "
            f"least 1 each, and 2 + 2 * jobs * machines numbers"
        )
    table = np.array(values[2:], dtype=np.int64).reshape(num_jobs, num_machines, 2)
    jobs: list[Job] = [[{int(machine): float(time_s)} for machine, time_s in row] for row in table]
    return shop(name, jobs, num_machines)


def published_shop(instance: str) -> Problem:
    """Return a job shop of `PUBLISHED`.

    Raises `UnknownNameError`: it is not there; the message lists them.
    """
    if instance not in PUBLISHED:
        raise UnknownNameError(f"no published shop {instance!r}; published shops are {', '.join(PUBLISHED)}")
    return parse_job_shop(PUBLISHED[instance][0], instance)


def taillard_job_shop(num_jobs: int, num_machines: int, time_seed: int, machine_seed: int) -> Problem:
    """Return a job shop of Taillard's generator: 15 x 15 with seeds 840612802 and 398197754 is his first, ta01.

    Raises `InvalidProblemError`: a size below 1, or a seed that is not between 1 and 2147483646.
    """
    require_ranges(
        "Taillard's job shop",
        ("num_jobs", num_jobs, 1, MAX_SHOP),
        ("num_machines", num_machines, 1, MAX_SHOP),
        ("time_seed", time_seed, 1, _MODULUS - 1),
        ("machine_seed", machine_seed, 1, _MODULUS - 1),
    )
    times, swaps = _taillard_numbers(time_seed), _taillard_numbers(machine_seed)
    time_s = [[float(1 + int(next(times) * 99)) for _ in range(num_machines)] for _ in range(num_jobs)]
    jobs: list[Job] = []
    for row in time_s:
        machines = list(range(num_machines))
        for i in range(num_machines):
            other = i + int(next(swaps) * (num_machines - i))
            machines[i], machines[other] = machines[other], machines[i]
        jobs.append([{machine: time} for machine, time in zip(machines, row, strict=True)])
    return shop(f"taillard-{num_jobs}x{num_machines}-{time_seed}", jobs, num_machines)


def _taillard_numbers(seed: int) -> Iterator[float]:
    """Yield the numbers between 0 and 1 of the generator of Lewis, Goodman and Miller that the paper prints."""
    while True:
        seed = 16807 * seed % _MODULUS
        yield seed / _MODULUS


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
    times = rng.integers(1, longest_s + 1, (num_ops, num_machines)).astype(np.float64)
    return _on_machines(graph, times, np.ones(times.shape, dtype=bool))


SHOPS: Mapping[str, Callable[..., Problem]] = MappingProxyType(
    {
        "flexible-job-shop": flexible_job_shop,
        "job-shop": job_shop,
        "unrelated-machines": unrelated_machines,
        "published-shop": lambda seed, instance: published_shop(instance),  # noqa: ARG005  # nothing is drawn
        "taillard-job-shop": lambda seed, **params: taillard_job_shop(**params),  # noqa: ARG005  # it has two of its own
    }
)
"""Families of suites, by name."""
