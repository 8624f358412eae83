"""Method ``ilp`` for `OffloadLatency`: series program, annealing, then the integer program."""

from __future__ import annotations

from collections.abc import Callable

from placekit.method import Run
from placekit.objectives import OffloadLatency
from placekit.solvers.backends.building import PULP, Building, time_left
from placekit.solvers.offload_latency.flat import flatten_calls
from placekit.solvers.offload_latency.ilp_model import OffloadIlp, count_coefficients
from placekit.solvers.offload_latency.mechanisms import ALL, Mechanisms
from placekit.solvers.offload_latency.opening import longest_latency, search_before
from placekit.stop import StopReason

__all__ = ["solve_offload_ilp"]


def solve_offload_ilp(
    run: Run[OffloadLatency], solve: Callable[[Run, OffloadIlp], StopReason], mechanisms: Mechanisms = ALL
) -> StopReason:
    """Start from the series program and a search, build the model, and solve it.

    Parameters
    ----------
    run
        The run, without contiguity.
    solve
        Solves a model, and reports through the run.
    mechanisms
        What the program is built with.
    """
    if (stopped := search_before(run)) is not None:
        return stopped
    flat = flatten_calls(run.problem)
    while True:
        ceiling_s = run.objective
        step = Building("integer program", count_coefficients(run.problem, flat), PULP, lambda: time_left(run))
        model = OffloadIlp(run.problem, flat, ceiling_s or longest_latency(run.problem), step, mechanisms)
        reason = solve(run, model)
        improved = run.objective is not None and (ceiling_s is None or run.objective < ceiling_s / 2)
        if reason is not StopReason.FINISHED or not improved:
            return reason
