"""Lower bounds that hold for every feasible placement."""

from __future__ import annotations

import numpy as np

from placekit.errors import UnsupportedProblemError
from placekit.objectives import Makespan, OffloadLatency, SerialLatency, Throughput
from placekit.problem import Problem

__all__ = ["largest_op"]


def largest_op(problem: Problem) -> tuple[float, str]:
    """Bound by the work that cannot be divided, with its name.

    Every class of ops that must share a device costs at least the smallest sum of its times over the kinds that can
    run all of it. The largest of these is below any throughput objective (that device's load contains it; under GPipe
    and with overlap too) and any makespan, their sum below any serial latency.

    Notes
    -----
    O(ops * kinds). Exact up to one rounding per addition, for which 1e-12 is taken off.

    Raises
    ------
    UnsupportedProblemError
        An objective that is none of these.
    """
    costs = problem.costs
    times = np.zeros((problem.num_classes, len(costs.kinds)))
    np.add.at(times, problem.op_class, np.where(costs.supported, costs.op_time_s, np.inf))
    fastest = times.min(axis=1)
    fastest = fastest[np.isfinite(fastest)]
    if isinstance(problem.objective, Throughput | Makespan):
        return float(fastest.max(initial=0.0)) * (1 - 1e-12), "largest op"
    if isinstance(problem.objective, OffloadLatency):  # hosts are wide: the ops of a class may run at the same time
        single = np.where(costs.supported, costs.op_time_s, np.inf).min(axis=1)
        return float(single[np.isfinite(single)].max(initial=0.0)) * (1 - 1e-12), "largest op"
    if isinstance(problem.objective, SerialLatency):
        return float(fastest.sum()) * (1 - 1e-12), "fastest device for every op"
    raise UnsupportedProblemError(f"no bound for objective {problem.objective.name!r}")
