"""Bounds that take a second at most, for the start of a plan: whoever stops early still gets a gap that says something.

- *contiguous stages* for acyclic `Throughput`, at any size (:mod:`placekit.solvers.throughput.bounds.stages`);
- *unrelated machines* for `Throughput` and, without transfers, for `Makespan`: the linear program that shares out the
  work (:mod:`placekit.solvers.throughput.bounds.unrelated_machines`);
- *critical path with transfers* for `Makespan` (:mod:`placekit.solvers.makespan.bounds.windows`).

Before them come the bounds that are to be had at any size (:mod:`placekit.solvers.generic.bounds.work_and_path`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from placekit.model.errors import SolverUnavailableError
from placekit.model.problem import Problem
from placekit.objectives import Makespan, Throughput
from placekit.solve.method import Run
from placekit.solve.stop import wanted_until

QUICK_S = 1.0
"""Seconds that all of them together may take."""
QUICK_SHARE = 0.1
"""Share of the time left that they may take."""
STAGES_S = 1e-5
"""Seconds per class that the bound of contiguous stages takes; without so many it is left out."""
CHOICES_UP_TO = 50_000
"""Classes times devices up to which the program is built and solved in that time."""
EDGES_UP_TO = 50_000
"""Tensors up to which the longest path is."""


def raise_quick_bounds(run: Run) -> None:
    """Raise the quick bounds of the objective of `run`, and pass over those that are not to be had in time."""
    raise_bounds = _QUICK_BOUNDS.get(run.problem.objective.name)
    if raise_bounds is None:
        return
    with run.limited_to(QUICK_S if run.remaining_s is None else min(QUICK_S, QUICK_SHARE * run.remaining_s)):
        raise_bounds(run)


def _of_throughput(run: Run[Throughput]) -> None:
    from placekit.solvers.throughput.bounds.stages import contiguous_stages

    needed_s = QUICK_SHARE * STAGES_S * run.problem.num_classes
    stages_s = contiguous_stages(run.problem) if (run.remaining_s or 0.0) >= needed_s else None
    if stages_s is not None:
        run.raise_bound(stages_s, "contiguous stages")
    _raise_shared_work(run, run.problem)


def _of_makespan(run: Run[Makespan]) -> None:
    _raise_longest_path(run)
    problem: Problem = run.problem
    costs = problem.costs.replace(transfer_time_s=np.zeros_like(problem.costs.transfer_time_s))
    _raise_shared_work(run, problem.replace(objective=Throughput(), costs=costs))


def _raise_longest_path(run: Run) -> None:
    if run.problem.graph.num_edges > EDGES_UP_TO or run.should_stop() is not None:
        return
    from placekit.solvers.makespan.bounds.windows import narrow
    from placekit.solvers.makespan.schedule.tasks import make_tasks

    with wanted_until(run.should_stop):
        windows = narrow(make_tasks(run.problem))
    if windows is not None:
        run.raise_bound(windows.path_s * (1 - 1e-12), "critical path with transfers")


def _raise_shared_work(run: Run, problem: Problem[Throughput]) -> None:
    if problem.num_classes * problem.platform.num_devices > CHOICES_UP_TO or run.should_stop() is not None:
        return
    try:
        from placekit.solvers.throughput.bounds.unrelated_machines import certified_machines

        with wanted_until(run.should_stop):
            found = certified_machines(problem, time_limit_s=run.remaining_s or 0.0)
    except SolverUnavailableError:
        return
    if found is not None:
        # of a pipeline without transfers it is one of the makespan, too: both are at least a weighted sum of loads
        bound_s, certificate = found
        run.raise_bound(bound_s, "unrelated machines", certificate)


_QUICK_BOUNDS: Mapping[str, Callable[[Run[Any]], None]] = MappingProxyType(
    {"throughput": _of_throughput, "makespan": _of_makespan}
)
"""By objective."""
