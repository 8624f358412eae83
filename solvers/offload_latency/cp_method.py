"""Building and solving the constraint program of `OffloadLatency` for a run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from placekit.model.contiguity import Contiguity
from placekit.model.placement import Placement
from placekit.objectives import OffloadLatency
from placekit.solve.method import Run
from placekit.solve.stop import StopReason
from placekit.solvers.assignment.cpsat.solve import NO_PRESOLVE_UP_TO
from placekit.solvers.backends.building import CPSAT, Building, time_left
from placekit.solvers.backends.cpsat import CpStatus, search_for
from placekit.solvers.generic.enumeration.exhausted import clash
from placekit.solvers.generic.rescaled import rescaled
from placekit.solvers.offload_latency.bounds import longest_latency
from placekit.solvers.offload_latency.cp_model import OffloadModel, count_literals
from placekit.solvers.offload_latency.flat import flatten_calls
from placekit.solvers.offload_latency.free_followers import free_followers, memory_is_moot


def solve_offload_program(
    run: Run[OffloadLatency],
    workers: Callable[[int], int],  # returns the number of CP-SAT workers for a number of variables
) -> StopReason:
    """Build the model, start it from the best known placement, and solve it."""
    flat = flatten_calls(run.problem)
    is_free = run.problem.contiguity is Contiguity.NONE  # a node that follows another one may break a contiguity
    follows = free_followers(flat) if is_free else {}
    # the memory of following nodes is left out, a relaxation; if it may matter, the program with all nodes comes next
    ways = [follows, {}] if follows and not memory_is_moot(flat) else [follows]

    def solve(ceiling_s: float | None) -> StopReason:
        longest_s = longest_latency(run.problem) if ceiling_s is None else ceiling_s
        step = Building("constraint program", count_literals(run.problem, flat), CPSAT, lambda: time_left(run))
        model = OffloadModel(run.problem, flat, longest_s, run.bound or 0.0, follows=ways[0], step=step)
        reason = _solve(run, model, workers)
        if reason is StopReason.FINISHED and len(ways) > 1:
            ways.pop(0)
            return solve(run.objective)
        return reason

    return rescaled(run, solve)


def _solve(run: Run[OffloadLatency], model: OffloadModel, workers: Callable[[int], int]) -> StopReason:
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

    # presolved, a fan-out of 5 ops on equal devices was searched without end by some seeds (OR-Tools 9.15)
    outcome = search_for(run, model, workers, see_solution, see_bound, no_presolve_up_to=NO_PRESOLVE_UP_TO)
    if outcome is CpStatus.INFEASIBLE and run.placement is None:
        return run.prove_infeasible(clash())
    reason = run.should_stop()
    if reason is not None:
        return reason
    return StopReason.TIME if outcome in (CpStatus.FEASIBLE, CpStatus.UNKNOWN) else StopReason.FINISHED
