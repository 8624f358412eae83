"""Method ``bound`` for `Throughput`: all lower bounds, one after the other, within a time limit."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter

from placekit.model.contiguity import Contiguity
from placekit.model.problem import Problem
from placekit.objectives import Throughput
from placekit.solve.certificates import Certificate
from placekit.solve.method import Run, no_teams
from placekit.solve.result import SOLVER_TOLERANCE
from placekit.solve.stop import StopReason
from placekit.solvers.generic.bounds.bound import DEFAULT_TIME_LIMIT_S, BoundMethod, recorded
from placekit.solvers.generic.bounds.largest_op import largest_op
from placekit.solvers.generic.enumeration.method import enumerate_first
from placekit.solvers.throughput.bounds.bottleneck import bottleneck
from placekit.solvers.throughput.bounds.forced_cuts import memory_forced_cuts
from placekit.solvers.throughput.bounds.forced_work import memory_forced_work
from placekit.solvers.throughput.bounds.stages import contiguous_stages
from placekit.solvers.throughput.bounds.unrelated_machines import certified_machines


def lower_bounds(
    problem: Problem[Throughput],
    *,
    # time for all of them. What the quick ones leave goes to the bottleneck programs: one device in detail, then two,
    # and so on, as long as they close.
    time_limit_s: float = 60.0,
    upper_bound_s: float | None = None,  # objective of a feasible placement, which the bottleneck program profits from
    should_stop: Callable[[], bool] | None = None,  # asked often; True ends the search with the bounds so far
    # called with every bound, in seconds, its name and its certificate, if it has one, as soon as it is proven
    on_bound: Callable[[float, str, Certificate | None], None] | None = None,
    # called after the quick bounds; it may make `should_stop` true
    before_programs: Callable[[], object] | None = None,
) -> list[tuple[float, str]]:
    """Prove lower bounds on the objective of every feasible placement, the quick ones first.

    Returns
    -------
    list[tuple[float, str]]
        Bounds in seconds with their names, best first. Bounds that say nothing are left out.

    Raises
    ------
    SolverUnavailableError
        HiGHS is not installed.
    """
    deadline = perf_counter() + time_limit_s
    found: list[tuple[float, str]] = []

    def add(bound_s: float | None, name: str, certificate: Certificate | None = None) -> None:
        if bound_s is not None:
            found.append((bound_s, name))
            if on_bound is not None:
                on_bound(bound_s, name, certificate)

    add(*largest_op(problem))
    add(contiguous_stages(problem), "contiguous stages")

    def left_s(share: float = 1.0) -> float:
        if should_stop is not None and should_stop():
            return 0.0
        return max(0.0, deadline - perf_counter()) * share

    if left_s() > 0:
        machines = certified_machines(problem, time_limit_s=left_s())
        if machines is not None:
            add(machines[0], "unrelated machines", machines[1])
    if left_s() > 0:
        add(
            memory_forced_work(problem, time_limit_s=left_s(0.1), should_stop=should_stop),
            "memory-forced work",
        )
    if left_s() > 0:
        add(
            memory_forced_cuts(problem, time_limit_s=left_s(0.1), should_stop=should_stop),
            "memory-forced cuts",
        )
    if left_s() > 0 and before_programs is not None:
        before_programs()
    most = max(len(problem.platform.devices_of_kind(kind)) for kind in range(len(problem.platform.kinds)))
    if problem.contiguity is Contiguity.ACYCLIC:
        most = 1
    if no_teams(problem) is not None:
        most = 0
    for num_detailed in range(1, most + 1):
        best_s = max(bound_s for bound_s, _ in found)
        if left_s() <= 0 or (upper_bound_s is not None and best_s >= upper_bound_s * (1 - SOLVER_TOLERANCE)):
            break
        bound_s, is_closed = bottleneck(
            problem,
            time_limit_s=left_s(),
            upper_bound_s=upper_bound_s,
            num_detailed=num_detailed,
            should_stop=should_stop,
        )
        add(bound_s, "bottleneck device" if num_detailed == 1 else f"{num_detailed} bottleneck devices")
        if not is_closed:
            break
    return sorted(found, reverse=True)


class ThroughputBound(BoundMethod):
    """Lower bounds by every means of :mod:`placekit.solvers.throughput.bounds`; the best is the result's."""

    def run(self, run: Run[Throughput]) -> StopReason:
        """Offer the quick placements, then raise the bound until the time is up or nothing is left to try."""
        keep = recorded(run)
        self.offer_quickly(run)
        limit_s = run.remaining_s
        lower_bounds(
            run.problem,
            time_limit_s=DEFAULT_TIME_LIMIT_S if limit_s is None or math.isinf(limit_s) else limit_s,
            upper_bound_s=run.objective,
            should_stop=lambda: run.should_stop() is not None,
            on_bound=keep,
            before_programs=lambda: enumerate_first(run, keep),
        )
        return run.should_stop() or StopReason.FINISHED
