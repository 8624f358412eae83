"""Method ``ilp``: the program of :mod:`placekit.solvers.assignment.ilp.model`, by HiGHS or another PuLP solver."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pulp
from numpy.typing import ArrayLike, NDArray

from placekit.machine import num_usable_cpus
from placekit.model.errors import InvalidProblemError, SolverUnavailableError, UnknownNameError
from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.solve.method import Method, Run, no_links
from placekit.solve.stop import StopReason
from placekit.solvers.assignment.first_answers import open_run
from placekit.solvers.assignment.ilp.model import CEILING, IlpModel, count_coefficients
from placekit.solvers.assignment.memory_rows import knows_pools
from placekit.solvers.assignment.teams import SpareRun, rows_of
from placekit.solvers.backends.building import PULP, Building, time_left
from placekit.solvers.backends.program import ABSOLUTE_SLACK, RELATIVE_SLACK, ROUNDING
from placekit.solvers.backends.pulp_highs import solve_with_highs
from placekit.solvers.generic.coarsen import Contraction
from placekit.solvers.generic.enumeration.exhausted import clash
from placekit.solvers.generic.enumeration.method import enumerate_first
from placekit.solvers.generic.rescaled import rescaled
from placekit.solvers.params import IlpParams

SOLVER_SHARE = 0.8
"""Share of the remaining time for the solver; the rest is for proving its bound."""
CLAIM_SLACK = 1e-5
"""Tolerance of a solver's objective, relative and to the ceiling: binaries are integral only within a tolerance."""


Values = dict[pulp.LpVariable, float]
Answer = TypeVar("Answer", bound="Placement | ArrayLike")


class PulpModel(Protocol[Answer]):
    """A model of a problem.

    Parameters
    ----------
    unit_s
        Seconds per unit of its objective.
    covers
        Sets that `forbid_together` has forbidden.
    """

    lp: pulp.LpProblem
    unit_s: float
    covers: set[tuple[int, ...]]

    @property
    def is_exact(self) -> bool:
        """False if the objective of the program is only a lower bound."""
        ...

    def decode(self, values: Values) -> Answer:
        """Return the answer from the values of the solver."""
        ...

    def forbid_together(self, answer: Answer, /) -> None:
        """Forbid what a device cannot hold and the solver accepted within its tolerance."""
        ...


class IlpMethod(Method):
    """Method ``ilp``: name and parameters for every objective."""

    name = "ilp"
    params_type = IlpParams
    argument = "solver"
    params: IlpParams

    def solve(self, run: Run, model: PulpModel[Answer], encode: Callable[[Placement], Values | None]) -> StopReason:
        """Solve a model from the best known placement, and again while an answer had to be forbidden.

        A problem with few placements is enumerated instead, which is faster.
        """
        if self.params.mps is not None:
            self._write_mps(model.lp, Path(self.params.mps))
        reason = enumerate_first(run.outer if isinstance(run, SpareRun) else run)
        if reason is not None:
            return reason
        while True:
            variables = model.lp.variables()  # slow
            run.info |= {"variables": len(variables), "constraints": model.lp.numConstraints()}
            num_covers = len(model.covers)
            refused: list[Answer] = []  # rows can be added only after the solver has ended
            if self.params.solver == "HiGHS":
                start = None if run.placement is None else encode(run.placement)
                reason = self._solve_with_highs(run, model, variables, start, refused)
            else:
                reason = self._solve_with_pulp(run, model, refused)
            for answer in refused:
                model.forbid_together(answer)
            if reason is not StopReason.FINISHED or len(model.covers) == num_covers:
                return reason

    def _write_mps(self, lp: pulp.LpProblem, path: Path) -> None:
        try:
            lp.writeMPS(str(path))
        except OSError as error:
            raise InvalidProblemError(f"ilp: cannot write the model to {path}: {error.strerror}") from None

    @property
    def _threads(self) -> int:
        return self.params.threads or num_usable_cpus()

    def _offer(
        self, run: Run, model: PulpModel[Answer], values: Values, objective: float | None, refused: list[Answer]
    ) -> None:
        answer = model.decode(values)
        promised = None
        if objective is not None and model.is_exact:
            promised = (objective * (1 + CLAIM_SLACK) + CLAIM_SLACK * CEILING) * model.unit_s
        if not run.offer(answer, at_most=promised).is_feasible:
            refused.append(answer)

    def _solve_with_highs(
        self,
        run: Run,
        model: PulpModel[Answer],
        variables: Sequence[pulp.LpVariable],
        start: Values | None,
        refused: list[Answer],
    ) -> StopReason:
        def offer(values: NDArray[np.float64], objective: float) -> None:
            self._offer(run, model, dict(zip(variables, values.tolist(), strict=True)), objective, refused)

        options: dict[str, object] = {} if run.remaining_s is None else {"time_limit": SOLVER_SHARE * run.remaining_s}
        report = solve_with_highs(
            model.lp,
            variables,
            offer,
            lambda bound, is_certified: run.raise_bound(
                certified_s(bound, model.unit_s) if is_certified else claimed_s(bound, model.unit_s), "ILP dual bound"
            ),
            lambda: run.should_stop() is not None,
            start,
            threads=self._threads,
            # HiGHS measures against its own incumbent and bound; the run stops at the exact gap
            mip_rel_gap=max(RELATIVE_SLACK / 2, run.asked_gap / 2),
            mip_abs_gap=0.0,
            mip_feasibility_tolerance=1e-7,
            random_seed=run.seed % 2**31,
            **options,
        )
        if report.status not in _REASONS:
            raise SolverUnavailableError(f"ilp: HiGHS ended with the unexpected status {report.status}")
        run.info["solver_status"] = report.status
        if report.refusal is not None:
            run.info["bound_refused"] = report.refusal
        if report.is_infeasible and run.placement is None:
            return run.prove_infeasible(clash())
        return run.should_stop() or _REASONS[report.status]

    def _solve_with_pulp(self, run: Run, model: PulpModel[Answer], refused: list[Answer]) -> StopReason:
        names = {"CBC": "COIN_CMD" if "COIN_CMD" in pulp.listSolvers(onlyAvailable=True) else "PULP_CBC_CMD"}
        name = names.get(self.params.solver, self.params.solver)
        if name not in pulp.listSolvers():
            known = ", ".join(["CBC", *pulp.listSolvers()])
            raise UnknownNameError(f"ilp: PuLP has no solver {self.params.solver!r}; it has {known}")
        gap = run.asked_gap
        options: dict[str, Any] = {"msg": False, "gapRel": gap or None, "timeLimit": run.remaining_s}
        solver = pulp.getSolver(name, **{key: value for key, value in options.items() if value is not None})
        if not solver.available():
            raise SolverUnavailableError(f"ilp: PuLP does not find the solver {name!r} on this machine")
        status = model.lp.solve(solver)
        run.info["solver_status"] = pulp.LpStatus[status]
        if status == pulp.LpStatusInfeasible and run.placement is None:
            return run.prove_infeasible(clash())
        values = {variable: variable.value() for variable in model.lp.variables()}
        has_solution = model.lp.sol_status in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible)
        if has_solution and None not in values.values():
            self._offer(run, model, values, None, refused)
            # PuLP reports no dual bound: only "optimal", within the requested gap, gives one
            if model.lp.sol_status == pulp.LpSolutionOptimal:
                bound = claimed_s(pulp.value(model.lp.objective) * (1 - gap), model.unit_s)
                run.raise_bound(bound, f"{self.params.solver} optimum")
        return run.should_stop() or StopReason.FINISHED


class AssignmentIlp(IlpMethod):
    """Exact placement by integer programming for objectives made of loads, under any contiguity."""

    def supports(self, problem: Problem[Any]) -> str | None:
        """Return None without direct links; the program has rows for memory that ops share."""
        return no_links(problem)

    def start(self, run: Run, contraction: Contraction) -> None:
        """Offer placements that scale the program; by default only the single devices."""

    def knows_pools(self, problem: Problem[Any]) -> bool:
        """Return True where all bytes are of single ops: they have rows."""
        return knows_pools(problem)

    def run(self, run: Run) -> StopReason:
        """Build the program, scaled by the best known objective, and solve it from that placement."""
        contraction = open_run(run)
        if contraction is None:
            return StopReason.PROVED
        self.start(run, contraction)

        def solve(ceiling_s: float | None) -> StopReason:
            step = Building("integer program", count_coefficients(contraction), PULP, lambda: time_left(run))
            model = IlpModel(contraction, ceiling_s, step, rows_of(run, contraction.class_of_op))
            return self.solve(run, model, partial(_encode, model))

        return rescaled(run, solve)


def _encode(model: IlpModel, placement: Placement) -> Values:
    return model.encode(placement.device_of_op)


_REASONS = {
    "kOptimal": StopReason.FINISHED,
    "kInfeasible": StopReason.FINISHED,
    "kUnknown": StopReason.FINISHED,
    "kTimeLimit": StopReason.TIME,
    "kInterrupt": StopReason.USER,
}
"""Why HiGHS stopped; "finished" becomes "proved" if bound and objective meet."""


def claimed_s(bound: float, unit_s: float) -> float:
    """Return a solver's bound in seconds, less the solver's tolerances."""
    return math.nextafter((bound - ABSOLUTE_SLACK) * (1 - RELATIVE_SLACK) * unit_s, -math.inf)


def certified_s(bound: float, unit_s: float) -> float:
    """Return a bound in seconds that is proven in floating point, less the rounding of coefficients and sums."""
    return math.nextafter(bound * (1 - ROUNDING) * unit_s, -math.inf)
