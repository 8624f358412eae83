r"""The unrelated-machines bound: work divided over the groups of devices as an ideal balance would, with memory.

Every feasible placement gives, for every group :math:`g` of :math:`n_g` equal devices, the share
:math:`z_{vg} \in \{0, 1\}` of every class :math:`v`. The largest load is at least the average work of a group's
devices, and at least the time of any class where it stands; the bytes of a group are at most :math:`n_g M_g`. So the
linear program

.. math::

   \min \sum_p T_p \quad \text{s.t.} \quad \sum_g z_{vg} = 1, \quad
   \sum_v t_{vgp} z_{vg} \le n_g T_p, \quad \sum_g t_{vgp} z_{vg} \le T_p, \quad \sum_v m_v z_{vg} \le n_g M_g

is below every feasible objective (:math:`p`: the passes that the schedule separates; one of everything under 1F1B).
Transfers are left out, so it holds with overlap, too, and under any contiguity.

With teams :math:`z_{vg}` is the share of the samples of class :math:`v` that devices of kind :math:`g` take. A member
of a team works for its share only and holds everything, so work and bytes are bounded as before; a class by itself
takes :math:`t_{vgp} / n_g` on the largest team of its kind. Where teams mix kinds, no row is left for single classes.

The solver is not trusted: from its multipliers :math:`y_{gp}, s_{vp}, \mu_g \ge 0`, whatever they are, weak duality
gives a bound by hand. Scaled so that :math:`\sum_g n_g y_{gp} + \sum_v s_{vp} \le 1` for every pass,
multiplying the rows and adding them up yields

.. math::

   \sum_p T_p \ge \sum_v \min_{g \text{ allowed}} \Big( \sum_p (y_{gp} + s_{vp}) t_{vgp} + \mu_g m_v \Big)
   - \sum_g \mu_g n_g M_g,

which is evaluated in floating point with its rounding error taken off.

References
----------
Lenstra, Shmoys, Tardos, "Approximation algorithms for scheduling unrelated parallel machines", Mathematical Programming
46 (1990), the relaxation; the memory rows are ours.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from placekit.model.errors import ProgramTooLargeError
from placekit.model.problem import Problem
from placekit.solve.certificates import Prices
from placekit.solvers.backends.building import ARRAYS, Building, no_step, time_until
from placekit.solvers.backends.program import Program, round_down
from placekit.solvers.throughput.bounds.groups import Machines, machines_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class MachineProgram:
    """The program of the module docstring, and where its parts are.

    Times are in units of `unit_s`, bytes in units of the group's limit.
    """

    program: Program
    unit_s: float
    share: dict[tuple[int, int], int]
    """Column of ``z[class, group]``, where allowed."""
    level: list[int]
    """Column of ``T`` of every pass."""
    work_row: dict[tuple[int, int], int]
    """Row of ``(group, pass)``."""
    op_row: dict[tuple[int, int], int]
    """Row of ``(class, pass)``."""
    memory_row: dict[int, int]
    """Row of a group that has a limit."""

    @classmethod
    def of(cls, machines: Machines, least_s: float = 0.0, step: Callable[[], None] = no_step) -> MachineProgram:
        """Build the program; `least_s` is a time that its unit must be able to express, `step` is called with rows."""
        program = Program(step)
        # the sum of the largest times is at least the optimum of the relaxation and of the same order of magnitude
        unit_s = max(float(machines.time_s.max(axis=1).sum()), least_s, 1e-290) / 100
        # no optimum needs more: all work, and what every device may have to pay beside it; bounds need finite boxes
        top = 101.0 * (1 + float(machines.count.sum()))
        level = [program.column(0.0, top, cost=1.0) for _ in machines.passes]
        share = {
            (v, g): program.column()
            for v in range(machines.num_classes)
            for g in range(machines.num_groups)
            if machines.allowed[v, g]
        }
        homes = [np.flatnonzero(row).tolist() for row in machines.allowed]
        time = machines.time_s / unit_s
        work_row, op_row, memory_row = {}, {}, {}
        for v, groups in enumerate(homes):
            program.row({share[v, g]: 1.0 for g in groups}, 1.0, 1.0)
        for p, of_pass in enumerate(level):
            for g in range(machines.num_groups):
                terms = {share[v, g]: float(time[v, g, p]) for v in np.flatnonzero(machines.allowed[:, g]).tolist()}
                work_row[g, p] = program.row({**terms, of_pass: -float(machines.count[g])}, high=0.0)
            if machines.largest_team is None:
                continue
            alone = time[:, :, p] / machines.largest_team
            for v, groups in enumerate(homes):
                terms = {share[v, g]: float(alone[v, g]) for g in groups}
                op_row[v, p] = program.row({**terms, of_pass: -1.0}, high=0.0)
        size = machines.contraction.memory_bytes
        for g, limit in enumerate(machines.memory_limit_bytes.tolist()):
            if math.isfinite(limit):
                fits = np.flatnonzero(machines.allowed[:, g]).tolist()
                memory_row[g] = program.row(
                    {share[v, g]: float(size[v] / limit) for v in fits}, high=float(machines.count[g])
                )
        return cls(program, unit_s, share, level, work_row, op_row, memory_row)


def certified_machines(
    problem: Problem,  # a problem with the throughput objective
    *,
    time_limit_s: float = math.inf,  # time for the linear program
) -> tuple[float, Prices] | None:
    """Return the bound of the module docstring in seconds; None if the program is infeasible, zero or out of time.

    The certificate holds for the throughput of `problem`, whatever its transfer times are.

    Notes
    -----
    One linear program of classes * groups variables: milliseconds for a thousand classes.
    """
    machines = machines_of(problem)
    if not machines.has_home:
        return None
    deadline = perf_counter() + time_limit_s
    coefficients = float(machines.allowed.sum()) * (2 + 2 * len(machines.passes))
    try:
        step = Building("linear program", coefficients, ARRAYS, time_until(deadline))
        program = MachineProgram.of(machines, step=step)
    except ProgramTooLargeError as error:
        logger.info("%s", error)
        return None
    outcome = program.program.solve(deadline - perf_counter())
    if outcome.row_dual is None:
        return None
    return _by_duality(machines, program, outcome.row_dual)


def _by_duality(
    machines: Machines, program: MachineProgram, row_dual: NDArray[np.float64]
) -> tuple[float, Prices] | None:
    """Evaluate the bound of the module docstring for the multipliers of a solved program."""
    num_passes = len(machines.passes)
    multiplier = np.maximum(-row_dual, 0.0)  # rows `<=` of a minimisation have multipliers <= 0
    y = np.zeros((machines.num_groups, num_passes))
    s = np.zeros((machines.num_classes, num_passes))
    mu = np.zeros(machines.num_groups)
    for (g, p), row in program.work_row.items():
        y[g, p] = multiplier[row]
    for (v, p), row in program.op_row.items():
        s[v, p] = multiplier[row]
    for g, row in program.memory_row.items():
        mu[g] = multiplier[row]
    total = (machines.count[:, None] * y).sum(axis=0) + s.sum(axis=0)
    scale = np.maximum(total, 1.0) * (1 + 1e-12)  # rounding cannot bring the weights above one
    y, s = y / scale, s / scale
    time = machines.time_s / program.unit_s
    size = machines.contraction.memory_bytes
    limit = np.where(np.isfinite(machines.memory_limit_bytes), machines.memory_limit_bytes, 1.0)
    sharing = np.ones(machines.num_groups) if machines.largest_team is None else machines.largest_team
    weight = y[None, :, :] + s[:, None, :] / sharing[:, None]
    price = (weight * time).sum(axis=2) + mu * size[:, None] / limit
    cheapest = np.where(machines.allowed, price, math.inf).min(axis=1).tolist()
    spent = (mu * machines.count).tolist()
    error = 1e-14 * (math.fsum(cheapest) + math.fsum(spent))  # each term: a handful of roundings of 1.1e-16
    bound_s = round_down(math.fsum(cheapest) - math.fsum(spent) - error, program.unit_s)
    return None if bound_s is None else (bound_s, _certificate(machines, y, s, mu * program.unit_s / limit))


def _certificate(
    machines: Machines, y: NDArray[np.float64], s: NDArray[np.float64], price: NDArray[np.float64]
) -> Prices:
    """Return the multipliers for the verifier: one profile per group of devices; `price` in seconds per byte."""
    contraction = machines.contraction
    if contraction.problem.objective.schedule == "gpipe" and y.shape[1] == 1:
        # without backward ops there is nothing in the second pass, which the certificate has to weigh all the same
        y, s = (np.pad(weights, ((0, 0), (0, 1))) for weights in (y, s))
    group_of = {d: g for g, group in enumerate(machines.groups) for d in group}
    leader = contraction.leader.tolist()
    limited = np.isfinite(machines.memory_limit_bytes)
    return Prices(
        profile_of_device=tuple(group_of[d] for d in range(len(group_of))),
        work_weight=tuple(map(tuple, y.tolist())),
        transfer_weight=tuple((0.0,) * y.shape[1] for _ in y),
        memory_price=tuple(np.where(limited, price, 0.0).tolist()),
        op_weight=tuple((leader[v], tuple(s[v].tolist())) for v in np.flatnonzero(s.any(axis=1)).tolist()),
    )
