"""Method ``cpsat``: the constraint program of :mod:`placekit.solvers.assignment.cpsat.model`, by OR-Tools CP-SAT."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from placekit.coarsen import Contraction
from placekit.contiguity import Contiguity
from placekit.cores import num_usable_cpus
from placekit.errors import InvalidProblemError
from placekit.graph import topological_order
from placekit.method import Run
from placekit.objectives import Makespan, OffloadLatency, SerialLatency, Throughput
from placekit.problem import Problem
from placekit.solvers.assignment.cpsat.model import Convexity, CpsatModel
from placekit.solvers.assignment.flat import flatten
from placekit.solvers.assignment.infeasible import clash
from placekit.solvers.assignment.opening import offer_best_chains, open_run
from placekit.solvers.backends.cpsat import CpsatLimits, Outcome, search
from placekit.solvers.makespan.exact.cp_method import solve_makespan, why_not
from placekit.solvers.makespan.mechanisms import Mechanisms
from placekit.solvers.params import read_params
from placekit.solvers.throughput.local_search.method import LocalSearchParams
from placekit.solvers.throughput.local_search.method import search as local_search
from placekit.stop import StopReason

__all__ = ["Cpsat", "CpsatParams", "build_model"]

LOCAL_SEARCH_FROM = 100
"""Classes times devices from which the model is started from a local search."""
START_SHARE = 0.1
"""Share of the time limit that this start may take."""
ONE_WORKER_UP_TO = 1000
"""Variables up to which one worker is enough, and the answer reproducible."""


@dataclass(frozen=True, slots=True)
class CpsatParams:
    """Parameters of `Cpsat`.

    Parameters
    ----------
    workers
        Parallel workers of CP-SAT; 8 or the usable cores if None, whichever is more, because CP-SAT's strategies
        complement each other even where they share a core. Only with one worker, which small models always get, does
        the same seed give the same answer whatever the machine does besides. Limits below the best makespan are refuted
        by one worker whatever this says.
    without
        Mechanisms of the makespan that are switched off, by name and with commas: see
        :class:`placekit.solvers.makespan.mechanisms.Mechanisms`.
    """

    workers: int | None = None
    without: str = ""

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise InvalidProblemError(f"cpsat: workers is {self.workers}; it must be >= 1")
        Mechanisms.without(self.without)


class Cpsat:
    """Exact placement by constraint programming.

    `Throughput` and `SerialLatency` under any contiguity; `Makespan` and `OffloadLatency`, where an answer may carry
    steps, without.
    """

    name: ClassVar[str] = "cpsat"

    def __init__(self, params: CpsatParams | None = None) -> None:
        self.params = params or CpsatParams()

    @classmethod
    def from_params(cls, argument: str | None, params: Mapping[str, Any]) -> Self:
        """Make the method; ``cpsat:4`` gives the number of workers."""
        if argument is not None:
            if not argument.isdigit():
                raise InvalidProblemError(f"cpsat: workers is {argument!r}; it must be a whole number >= 1")
            params = {**params, "workers": int(argument)}
        return cls(read_params(CpsatParams, cls.name, params))

    def supports(self, problem: Problem) -> str | None:
        """Return None for the objectives that the constraint program models."""
        if isinstance(problem.objective, Throughput | SerialLatency):
            return None
        if isinstance(problem.objective, Makespan):
            return why_not(problem)
        if isinstance(problem.objective, OffloadLatency):
            is_free = problem.contiguity is Contiguity.NONE
            return None if is_free else f"its offload-latency model does not keep parts {problem.contiguity}"
        return f"it models throughput, serial-latency, makespan and offload-latency, not {problem.objective.name}"

    def run(self, run: Run) -> StopReason:
        """Build the model, start it from the best placement known, and solve it.

        Its unit of time is set by that placement's objective. If the optimum turns out to be far below, so that the
        rounding hides the last part of the gap, it is built and solved again from the new one.
        """
        if isinstance(run.problem.objective, OffloadLatency):
            from placekit.solvers.offload_latency.cp_method import solve_offload_program

            return solve_offload_program(run, self._workers)
        contraction = open_run(run)
        if contraction is None:
            return StopReason.PROVED
        if isinstance(run.problem.objective, Makespan):
            return solve_makespan(run, self._workers, Mechanisms.without(self.params.without))
        offer_best_chains(run, contraction)
        self._search_locally(run, contraction)
        reason = run.should_stop()
        while reason is None:
            ceiling_s = run.objective
            reason = self._solve(run, contraction, build_model(contraction, ceiling_s))
            improved = run.objective is not None and (ceiling_s is None or run.objective < ceiling_s / 2)
            if reason is StopReason.FINISHED and improved:
                reason = run.should_stop()
        return reason

    def _search_locally(self, run: Run, contraction: Contraction) -> None:
        """Search locally for a moment: a good placement sets a fine unit and closes slow devices from the start."""
        if isinstance(run.problem.objective, Throughput) and contraction.allowed.size > LOCAL_SEARCH_FROM:
            with run.limited_to(None if run.remaining_s is None else START_SHARE * run.remaining_s):
                local_search(run, LocalSearchParams(patience=3, steps=100))

    def _workers(self, num_variables: int) -> int:
        if num_variables <= ONE_WORKER_UP_TO:
            return 1
        return self.params.workers or max(8, num_usable_cpus())

    def _solve(self, run: Run, contraction: Contraction, model: CpsatModel) -> StopReason:
        num_variables = len(model.proto.proto.variables)
        run.info |= {"variables": num_variables, "constraints": len(model.proto.proto.constraints)}
        # the program counts subgraphs too low, so its objective is a promise only without that term
        is_exact = not model.slot_used
        refused: list[NDArray[np.int64]] = []

        def see_solution(device: NDArray[np.int64], value: float) -> None:
            promised = model.scale.at_most_s(value) if is_exact else None
            if not run.offer(contraction.expand(device), at_most=promised).is_feasible:
                refused.append(device)

        def see_bound(bound: float) -> None:
            run.raise_bound(model.scale.bound_s(bound), "CP-SAT bound")

        while True:
            if run.placement is not None:
                model.hint(contraction.restrict(run.placement.device_of_op))
            limits = CpsatLimits(
                workers=self._workers(num_variables),
                presolve=num_variables > ONE_WORKER_UP_TO,
                seed=run.seed,
                time_s=run.remaining_s,
                gap=run.asked_gap / 2,
            )
            outcome = search(model, limits, see_solution, see_bound, lambda: run.should_stop() is not None)
            run.info["solver_status"] = str(outcome)
            if outcome is Outcome.INFEASIBLE and run.placement is None:
                return run.prove_infeasible(clash())
            reason = run.should_stop()
            if reason is not None:
                return reason
            if outcome in (Outcome.FEASIBLE, Outcome.UNKNOWN):
                return StopReason.TIME  # CP-SAT gives up early where the rest of its time is too short for a next step
            again = [model.forbid_together(device) for device in refused]
            refused.clear()
            if not any(again):
                return StopReason.FINISHED


def build_model(contraction: Contraction, ceiling_s: float | None) -> CpsatModel:
    """Return the model of a contraction; `ceiling_s` is the objective of a feasible placement, if one is known."""
    problem = contraction.problem
    flat = flatten(contraction)
    convexity = None
    if problem.contiguity is Contiguity.CONVEX:
        flat = flat._replace(is_ordered=False)
        senders, receivers = problem.order_edges
        order, _ = topological_order(problem.graph.num_ops, senders, receivers)
        convexity = Convexity(contraction.class_of_op, senders, receivers, order)
    return CpsatModel(
        flat,
        ceiling_s,
        is_total=isinstance(problem.objective, SerialLatency),
        slot_cost_s=getattr(problem.objective, "subgraph_cost_s", 0.0),
        convexity=convexity,
    )
