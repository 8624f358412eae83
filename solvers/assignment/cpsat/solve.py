"""Method ``cpsat``: the constraint program of :mod:`placekit.solvers.assignment.cpsat.model`, by OR-Tools CP-SAT."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placekit.model.problem import Problem
from placekit.objectives import Loads
from placekit.solve.method import Run, no_links
from placekit.solve.stop import StopReason
from placekit.solvers.assignment.cpsat.convexity import flat_and_convexity
from placekit.solvers.assignment.cpsat.method import CpsatMethod
from placekit.solvers.assignment.cpsat.model import CpsatModel, count_literals
from placekit.solvers.assignment.first_answers import open_run
from placekit.solvers.assignment.memory_rows import knows_pools, pool_rows
from placekit.solvers.assignment.teams import NO_ROWS, TeamRows, rows_of
from placekit.solvers.backends.building import CPSAT, Building, time_left
from placekit.solvers.backends.cpsat import CpStatus, search_for
from placekit.solvers.generic.coarsen import Contraction
from placekit.solvers.generic.enumeration.exhausted import clash
from placekit.solvers.generic.rescaled import rescaled

NO_PRESOLVE_UP_TO = 200
"""Variables up to which a program is solved as it is. Presolve closes one of 500 variables in 0.2 s, and without it
eight seconds do not."""


class AssignmentCpsat(CpsatMethod):
    """Exact placement by constraint programming for objectives made of loads, under any contiguity."""

    def supports(self, problem: Problem[Any]) -> str | None:
        """Return None without direct links; the program has rows for memory that ops share."""
        return no_links(problem)

    def start(self, run: Run, contraction: Contraction) -> None:
        """Offer placements that set the unit of time; by default only the single devices."""

    def knows_pools(self, problem: Problem[Any]) -> bool:
        """Return True where all bytes are of single ops: they have rows."""
        return knows_pools(problem)

    def run(self, run: Run) -> StopReason:
        """Build the model with a unit from the best known objective, and solve it from that placement."""
        contraction = open_run(run)
        if contraction is None:
            return StopReason.PROVED
        self.start(run, contraction)

        def solve(ceiling_s: float | None) -> StopReason:
            model = build_model(contraction, ceiling_s, lambda: time_left(run), rows_of(run, contraction.class_of_op))
            return solve_model(run, contraction, model, self.workers)

        return rescaled(run, solve)


def solve_model(
    run: Run,
    contraction: Contraction,
    model: CpsatModel,
    workers: Callable[[int], int],  # returns the number of CP-SAT workers for a number of variables
    most_s: float = math.inf,  # largest bound in seconds; the model is exact for placements below it
) -> StopReason:
    """Solve a model from the best known placement, and again while `evaluate` finds its answers infeasible.

    Every such answer forbids a set of classes, so the loop ends.
    """
    # the program undercounts subgraphs, so its objective is exact only without that term
    is_exact = not model.slot_used
    refused: list[NDArray[np.int64]] = []

    def see_solution(device: NDArray[np.int64], value: float) -> None:
        promised = model.scale.at_most_s(value) if is_exact else None
        if not run.offer(contraction.expand(device), at_most=promised).is_feasible:
            refused.append(device)

    def see_bound(bound: float) -> None:
        run.raise_bound(min(model.scale.bound_s(bound), most_s), "CP-SAT bound")

    while True:
        if run.placement is not None:
            model.hint(contraction.restrict(run.placement.device_of_op))
        outcome = search_for(run, model, workers, see_solution, see_bound, no_presolve_up_to=NO_PRESOLVE_UP_TO)
        if outcome is CpStatus.INFEASIBLE and run.placement is None:
            return run.prove_infeasible(clash())
        reason = run.should_stop()
        if reason is not None:
            return reason
        if outcome in (CpStatus.FEASIBLE, CpStatus.UNKNOWN):
            return StopReason.TIME  # CP-SAT ends early if its time is too short for a next step
        again = [model.memory.forbid_together(contraction, device) for device in refused]
        refused.clear()
        if not any(again):
            return StopReason.FINISHED


def build_model(
    contraction: Contraction,
    ceiling_s: float | None,
    left_s: Callable[[], float] = lambda: math.inf,
    teams: TeamRows = NO_ROWS,
) -> CpsatModel:
    """Return the model of a contraction; `ceiling_s` is the objective of a feasible placement, if one is known.

    Raises `ProgramTooLargeError`: memory or time is too short; `left_s` returns the seconds left.
    """
    problem = contraction.problem
    flat, convexity = flat_and_convexity(contraction)
    loads = problem.objective.loads(problem) or Loads()
    return CpsatModel(
        flat,
        ceiling_s,
        loads,
        convexity=convexity,
        step=Building("constraint program", count_literals(flat, convexity), CPSAT, left_s),
        with_blocks=contraction if problem.has_tight_blocks else None,
        pools=pool_rows(problem),
        teams=teams,
    )
