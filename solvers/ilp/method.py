"""Method ``ilp``: the integer program of :mod:`placekit.solvers.ilp.model`, by HiGHS or another PuLP solver."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pulp
from numpy.typing import NDArray

from placekit.coarsen import Contraction, contract
from placekit.errors import InvalidProblemError, SolverUnavailableError, UnknownNameError
from placekit.method import Run
from placekit.objectives import SerialLatency, Throughput
from placekit.placement import Violation
from placekit.problem import Problem
from placekit.solvers.baselines import offer_single_devices
from placekit.solvers.bounds import largest_op
from placekit.solvers.ilp.highs import AnytimeHiGHS
from placekit.solvers.ilp.model import IlpModel
from placekit.solvers.params import read_params
from placekit.stop import StopReason

__all__ = ["Ilp", "IlpParams"]

BOUND_SLACK = 5e-7
"""Relative slack that is taken off a solver's bound: it is proven within tolerances only."""
CLAIM_SLACK = 1e-5
"""Relative slack on the objective of a solver's solution: binaries are integral within a tolerance only."""


@dataclass(frozen=True, slots=True)
class IlpParams:
    """Parameters of `Ilp`.

    Parameters
    ----------
    solver
        ``"HiGHS"``, or any other solver that PuLP knows by name and finds (``"PULP_CBC_CMD"``, ``"GUROBI"``, ...).
        Only HiGHS reports a bound and incumbents while it runs.
    threads
        Threads of the solver; every usable core if None.
    mps
        File to which the model is written in MPS format before it is solved; None for no file.
    """

    solver: str = "HiGHS"
    threads: int | None = None
    mps: str | None = None

    def __post_init__(self) -> None:
        if self.threads is not None and self.threads < 1:
            raise InvalidProblemError(f"ilp: threads is {self.threads}; it must be >= 1")


class Ilp:
    """Exact placement by integer programming, for `Throughput` and `SerialLatency` under any contiguity."""

    name: ClassVar[str] = "ilp"

    def __init__(self, params: IlpParams | None = None) -> None:
        self.params = params or IlpParams()

    @classmethod
    def from_params(cls, argument: str | None, params: Mapping[str, Any]) -> Self:
        """Make the method; ``ilp:PULP_CBC_CMD`` names the solver."""
        given = {**params, **({"solver": argument} if argument else {})}
        return cls(read_params(IlpParams, cls.name, given))

    def supports(self, problem: Problem) -> str | None:
        """Return None for the objectives that the integer program models."""
        if isinstance(problem.objective, Throughput | SerialLatency):
            return None
        return f"it models throughput and serial-latency, not {problem.objective.name}"

    def run(self, run: Run) -> StopReason:
        """Build the program, start it from the best placement known, and solve it."""
        offer_single_devices(run)
        run.raise_bound(*largest_op(run.problem))
        reason = run.should_stop()
        if reason is not None:
            return reason
        contraction = contract(run.problem)
        nowhere = np.flatnonzero(~contraction.allowed.any(axis=1))
        if nowhere.size:
            return run.prove_infeasible(cannot_share(contraction, int(nowhere[0])))
        model = IlpModel(contraction)
        run.info |= {"variables": len(model.lp.variables()), "constraints": len(model.lp.constraints)}
        if self.params.mps is not None:
            self._write_mps(model.lp, Path(self.params.mps))
        if self.params.solver == "HiGHS":
            return self._solve_with_highs(run, model)
        return self._solve_with_pulp(run, model)

    def _write_mps(self, lp: pulp.LpProblem, path: Path) -> None:
        try:
            lp.writeMPS(str(path))
        except OSError as error:
            raise InvalidProblemError(f"ilp: cannot write the model to {path}: {error.strerror}") from None

    @property
    def _threads(self) -> int:
        return self.params.threads or len(os.sched_getaffinity(0))

    def _solve_with_highs(self, run: Run, model: IlpModel) -> StopReason:
        variables = model.lp.variables()
        has_levels = bool(model.level) or not model.device_used

        def offer(values: NDArray[np.float64], objective: float) -> None:
            device_of_op = model.decode(dict(zip(variables, values.tolist(), strict=True)))
            # the program counts subgraphs too low, so its objective is a promise only without that term
            claimed = objective * model.unit_s * (1 + CLAIM_SLACK) if has_levels else None
            run.offer(device_of_op, at_most=claimed)

        def raise_bound(bound: float) -> None:
            run.raise_bound(round_down(bound * model.unit_s), "ILP dual bound")

        start = None
        if run.placement is not None:
            start = model.encode(run.placement.device_of_op)
        gap = run.stop.gap if run.stop and run.stop.gap else 0.0
        highs = AnytimeHiGHS(
            offer,
            raise_bound,
            lambda: run.should_stop() is not None,
            start,
            timeLimit=run.remaining_s,
            threads=self._threads,
            gapRel=gap / 2,  # HiGHS measures against its own incumbent; the run stops at the exact gap
            gapAbs=0.0,
            mip_feasibility_tolerance=1e-7,
            random_seed=run.seed % 2**31,
        )
        model.lp.solve(highs)
        return self._conclude(run, highs.status.name)

    def _conclude(self, run: Run, status: str) -> StopReason:
        table = {
            "kOptimal": StopReason.PROVED,
            "kInfeasible": StopReason.PROVED,
            "kTimeLimit": StopReason.TIME,
            "kInterrupt": StopReason.USER,
        }
        if status not in table:
            raise SolverUnavailableError(f"ilp: HiGHS ended with the unexpected status {status}")
        if status == "kInfeasible":
            return run.prove_infeasible(infeasible())
        reason = run.should_stop()
        if reason is not None:
            return reason
        if status == "kOptimal" and run.stop is not None and run.stop.gap:
            return StopReason.GAP
        return StopReason.FINISHED if status == "kOptimal" else table[status]

    def _solve_with_pulp(self, run: Run, model: IlpModel) -> StopReason:
        known = pulp.listSolvers()
        if self.params.solver not in known:
            raise UnknownNameError(f"ilp: PuLP has no solver {self.params.solver!r}; it has {', '.join(known)}")
        options: dict[str, Any] = {"msg": False}
        if run.remaining_s is not None:
            options["timeLimit"] = run.remaining_s
        if run.stop is not None and run.stop.gap:
            options["gapRel"] = run.stop.gap
        solver = pulp.getSolver(self.params.solver, **options)
        if not solver.available():
            raise SolverUnavailableError(f"ilp: PuLP does not find the solver {self.params.solver!r} on this machine")
        status = model.lp.solve(solver)
        if status == pulp.LpStatusInfeasible:
            return run.prove_infeasible(infeasible())
        values = {variable: variable.value() for variable in model.lp.variables()}
        if model.lp.sol_status in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
            if None not in values.values():
                run.offer(model.decode(values))
            # PuLP passes no dual bound on: only "optimal", within the gap that was asked for, is one
            if model.lp.sol_status == pulp.LpSolutionOptimal and status == pulp.LpStatusOptimal:
                value = pulp.value(model.lp.objective) * (1 - options.get("gapRel", 0.0))
                run.raise_bound(round_down(value * model.unit_s), f"{self.params.solver} optimum")
        return run.should_stop() or StopReason.FINISHED


def round_down(bound: float) -> float:
    """Take the solver's tolerances off a bound; a bound is never rounded up."""
    return math.nextafter(bound * (1 - BOUND_SLACK), -math.inf)


def cannot_share(contraction: Contraction, c: int) -> Violation:
    """Return what is wrong with class `c`, which has no device: only a fused cycle gets this far."""
    ops = np.flatnonzero(contraction.class_of_op == c)
    names = [contraction.problem.graph.op_names[op] for op in ops[:3]]
    message = (
        f"ops {', '.join(map(repr, names))}{', ...' if len(ops) > 3 else ''} ({len(ops)} in all) wait for each other "
        "through colocation, so an acyclic placement keeps them together; no device supports them all"
    )
    return Violation("support", message, names[0])


def infeasible() -> Violation:
    """Return what is known when the integer program has no solution."""
    message = (
        "no placement satisfies memory, support, pins, colocation and contiguity together "
        "(each can be satisfied on its own; the integer program is infeasible)"
    )
    return Violation("infeasible", message)
