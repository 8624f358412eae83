r"""The memory-forced cuts: many devices mean many parts, and every part pays for at least a minimum cut.

Either one device holds everything, and its load is known; or at least two devices are used. In the second case every
used device holds a non-empty proper part of the classes, and pays at least :math:`c_{gp}`, the smallest cut of the
hypergraph with the transfer times of its group :math:`g` in pass :math:`p`. With :math:`u_g` used devices in group
:math:`g`, the unrelated-machines program (:mod:`placekit.solvers.throughput.bounds.unrelated_machines`) stays below
every feasible objective with

.. math::

   \sum_v t_{vgp} z_{vg} + c_{gp} u_g \le n_g T_p, \quad \sum_v m_v z_{vg} \le M_g u_g, \quad z_{vg} \le u_g \le n_g,
   \quad \sum_g u_g \ge 2, \quad u_g \text{ integer}

(with overlap, work and cuts are two rows instead of one). The smaller of the two cases is the bound.

With teams of equal devices, :math:`u_g` counts teams: a team of :math:`r` devices has :math:`r` times its load of work
and cuts, and the memory of one device. Either the largest team of a kind holds everything, or there are two teams.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from placekit.model.problem import Problem
from placekit.solvers.backends.program import round_down
from placekit.solvers.throughput.bounds.groups import Machines, machines_of
from placekit.solvers.throughput.bounds.unrelated_machines import MachineProgram

logger = logging.getLogger(__name__)

MAX_CLASSES = 2000
"""The minimum cut takes cubic time: two seconds at this size."""


def memory_forced_cuts(
    problem: Problem,  # a problem with the throughput objective
    *,
    time_limit_s: float = math.inf,  # time for the cuts and the integer program
    should_stop: Callable[[], bool] | None = None,  # asked often; True ends the search with the bound so far
) -> float | None:
    """Return the bound of the module docstring in seconds; None if the smallest cuts are zero, or nothing is proven."""
    machines = machines_of(problem)
    num_devices = int(machines.count.sum())
    if not machines.has_home or machines.num_classes < 2 or num_devices < 2 or machines.largest_team is None:
        return None
    if machines.num_classes > MAX_CLASSES:
        logger.info("no minimum cut for %d classes; the limit is %d", machines.num_classes, MAX_CLASSES)
        return None
    end_s = perf_counter() + time_limit_s

    def is_over() -> bool:
        return perf_counter() > end_s or (should_stop is not None and should_stop())

    cut_s = smallest_cuts_s(machines, is_over)
    if cut_s is None or not cut_s.any():
        return None
    program = MachineProgram.of(machines, float(cut_s.max()))
    rows = program.program
    used = [rows.column(0.0, float(n), is_integer=True) for n in machines.count.tolist()]
    rows.row(dict.fromkeys(used, 1.0), low=2.0)
    for (_, g), share in program.share.items():
        rows.row({share: 1.0, used[g]: -1.0}, high=0.0)
    size = machines.contraction.memory_bytes
    for g, limit in enumerate(machines.memory_limit_bytes.tolist()):
        fits = np.flatnonzero(machines.allowed[:, g]).tolist()
        if math.isfinite(limit):
            rows.row({**{program.share[v, g]: float(size[v] / limit) for v in fits}, used[g]: -1.0}, high=0.0)
        for p, level in enumerate(program.level):
            terms = {used[g]: float(cut_s[g, p] / program.unit_s), level: -float(machines.count[g])}
            if not machines.has_overlap:
                time = machines.time_s[:, g, p] / program.unit_s
                terms |= {program.share[v, g]: float(time[v]) for v in fits}
            rows.row(terms, high=0.0)
    outcome = rows.solve(max(0.0, end_s - perf_counter()), should_stop)
    # infeasible: no two devices together can take it, so one device holds everything
    several = math.inf if outcome.status == "infeasible" else rows.proven_s(outcome, program.unit_s)
    alone = one_device_s(machines)
    if several is None:
        return None
    least = min(several, alone)
    return least if math.isfinite(least) and least > 0 else None


def smallest_cuts_s(machines: Machines, should_stop: Callable[[], bool] = lambda: False) -> NDArray[np.float64] | None:
    """``[num_groups, num_passes]`` seconds of the smallest cut; each at most 1e-12 relative below the exact sum.

    None if it is time to stop before they are known.
    """
    from placekit.solvers.throughput.bounds.minimum_cut import minimum_cut

    contraction = machines.contraction
    cuts = np.zeros((machines.num_groups, len(machines.passes)))
    known: dict[bytes, float] = {}
    for g in range(machines.num_groups):
        for p in range(len(machines.passes)):
            weight = np.ascontiguousarray(machines.net_time_s[:, g, p])
            if weight.tobytes() not in known:
                cut = minimum_cut(
                    machines.num_classes, contraction.net_offsets, contraction.net_pins, weight, should_stop
                )
                if cut is None:
                    return None
                known[weight.tobytes()] = cut
            cuts[g, p] = known[weight.tobytes()] * (1 - 1e-12)
    return cuts


def one_device_s(machines: Machines) -> float:
    """Return a value that no placement of everything on one device is below; infinity if there is none."""
    size = float(machines.contraction.memory_bytes.sum())
    able = machines.allowed.all(axis=0) & (size * (1 - 1e-12) <= machines.memory_limit_bytes)
    if not able.any():
        return math.inf
    shared_s = machines.time_s.sum(axis=(0, 2)) / machines.largest_team
    load_s = float(shared_s[able].min())
    return round_down(load_s * (1 - 1e-12), 1.0) or 0.0
