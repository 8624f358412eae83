r"""The memory-forced work: what the devices with a limit cannot hold must run on those without.

Let :math:`U` be the groups without a memory limit and :math:`C = \sum_{g \notin U} n_g M_g` what the others hold. In
every feasible placement the classes :math:`F` on :math:`U` satisfy :math:`\sum_{v \in F} m_v \ge \sum_v m_v - C`,
and the devices of :math:`U` do their work: a knapsack over whole classes. So the unrelated-machines program
(:mod:`placekit.solvers.throughput.bounds.unrelated_machines`) stays below every feasible objective when
:math:`f_v = \sum_{g \in U} z_{vg}` must be 0 or 1, and is above the linear one wherever the knapsack's rounding costs
something. The dual bound of a branch and bound is below that program's optimum at any time. With teams of any devices a
class can be on both sides: nothing is forced.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from placekit.model.problem import Problem
from placekit.solvers.throughput.bounds.groups import machines_of
from placekit.solvers.throughput.bounds.unrelated_machines import MachineProgram


def memory_forced_work(
    problem: Problem,  # a problem with the throughput objective
    *,
    time_limit_s: float = math.inf,  # time for the integer program
    should_stop: Callable[[], bool] | None = None,  # asked often; True ends the search with the bound so far
) -> float | None:
    """Return the bound of the module docstring in seconds; None if memory forces nothing, or nothing is proven."""
    machines = machines_of(problem)
    is_limited = np.isfinite(machines.memory_limit_bytes)
    size = machines.contraction.memory_bytes
    held = float((machines.count * machines.memory_limit_bytes)[is_limited].sum())
    is_stranded = (machines.allowed & is_limited).sum(axis=1) == 0
    if not machines.has_home or is_limited.all() or not is_limited.any() or machines.largest_team is None:
        return None
    if float(size[~is_stranded].sum()) <= held:
        return None  # nothing is forced but the stranded classes, which the linear program sees
    program = MachineProgram.of(machines)
    for v in range(machines.num_classes):
        outside = {program.share[v, g]: 1.0 for g in np.flatnonzero(machines.allowed[v] & ~is_limited).tolist()}
        if outside and not is_stranded[v]:
            is_forced = program.program.column(is_integer=True)
            program.program.row({**outside, is_forced: -1.0}, 0.0, 0.0)
    return program.program.proven_s(program.program.solve(time_limit_s, should_stop), program.unit_s)
