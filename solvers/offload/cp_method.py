"""Method ``cpsat`` for `OffloadLatency`: series program, annealing, then the constraint program."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from placekit.method import Run
from placekit.placement import Placement
from placekit.solvers.cpsat.search import CpsatLimits, Outcome, search
from placekit.solvers.infeasible import clash
from placekit.solvers.local_search.method import LocalSearchParams
from placekit.solvers.offload.cp_model import OffloadModel
from placekit.solvers.offload.flat import flatten_calls
from placekit.solvers.offload.method import solve_offload
from placekit.solvers.offload.search import search_offload
from placekit.stop import StopReason

__all__ = ["solve_offload_program"]

START_SHARE = 0.2
"""Share of the time limit that the annealing before may take."""


def solve_offload_program(run: Run, workers: Callable[[int], int]) -> StopReason:
    """Start from the series program and a search, build the model, and solve it.

    Parameters
    ----------
    run
        The run; its problem's objective is the offload latency, without contiguity.
    workers
        Number of CP-SAT's workers by the number of variables.
    """
    if "ideals" not in run.info:  # an earlier stage has not done it
        reason = solve_offload(run)
        if reason is not StopReason.FINISHED:
            return reason
    with run.limited_to(None if run.remaining_s is None else START_SHARE * run.remaining_s):
        search_offload(run, LocalSearchParams(patience=3, steps=200))
    if (stopped := run.should_stop()) is not None:
        return stopped
    flat = flatten_calls(run.problem)
    while True:
        ceiling_s = run.objective
        longest = _longest(run) if ceiling_s is None else ceiling_s
        model = OffloadModel(run.problem, flat, longest, run.bound or 0.0)
        reason = _solve(run, model, workers)
        improved = run.objective is not None and (ceiling_s is None or run.objective < ceiling_s / 2)
        if reason is not StopReason.FINISHED or not improved:
            return reason


def _longest(run: Run) -> float:
    """Return a latency that no placement exceeds: every op after the other, every tensor moved as often as possible."""
    costs, graph = run.problem.costs, run.problem.graph
    moves = 1 + np.diff(graph.consumer_offsets)
    return float(costs.op_time_s.max(axis=1).sum() + (moves * costs.transfer_time_s.max(axis=1)).sum())


def _solve(run: Run, model: OffloadModel, workers: Callable[[int], int]) -> StopReason:
    num_variables = len(model.proto.proto.variables)
    run.info |= {"variables": num_variables, "constraints": len(model.proto.proto.constraints)}
    if run.placement is not None and run.evaluation is not None and run.evaluation.score is not None:
        schedule = run.evaluation.score.schedule
        assert schedule is not None  # the offload latency has a clock
        starts = np.zeros(run.problem.graph.num_ops)
        ops = ~schedule.is_transfer
        starts[schedule.op[ops]] = schedule.start_s[ops]
        model.hint(run.placement, starts)

    def see_solution(placement: Placement, value: float) -> None:
        run.offer(placement, at_most=model.scale.at_most_s(value))

    def see_bound(bound: float) -> None:
        run.raise_bound(model.scale.bound_s(bound), "CP-SAT bound")

    limits = CpsatLimits(
        workers=workers(num_variables),
        seed=run.seed,
        time_s=run.remaining_s,
        gap=(run.stop.gap or 0.0) / 2 if run.stop else 0.0,
    )
    outcome = search(model, limits, see_solution, see_bound, lambda: run.should_stop() is not None)
    run.info["solver_status"] = str(outcome)
    if outcome is Outcome.INFEASIBLE and run.placement is None:
        return run.prove_infeasible(clash())
    reason = run.should_stop()
    if reason is not None:
        return reason
    return StopReason.TIME if outcome in (Outcome.FEASIBLE, Outcome.UNKNOWN) else StopReason.FINISHED
