"""Methods ``cpsat`` and ``bound`` for the makespan: the exact search, and the bounds.

The exact search asks the constraint program for a schedule up to a limit below the best known makespan, which narrows
the windows. A limit far below is refuted much faster than one just below, so the limits rise (:func:`limit_to_refute`).
One worker that learns clauses does that, without linear relaxation, objective or cumulative constraint. On one core it
is faster than eight workers with other strategies on two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from placekit.model.contiguity import Contiguity
from placekit.objectives import Makespan
from placekit.solve.method import Run
from placekit.solve.stop import StopReason
from placekit.solvers.assignment.first_answers import open_run
from placekit.solvers.backends.building import CPSAT, Building, time_left
from placekit.solvers.backends.cpsat import CpStatus, search_for
from placekit.solvers.generic.bounds.bound import KeepBound, raise_bounds_of_many
from placekit.solvers.generic.bounds.largest_op import largest_op
from placekit.solvers.generic.enumeration.exhausted import clash
from placekit.solvers.generic.enumeration.method import enumerate_first
from placekit.solvers.makespan.bounds.quick import MAX_OPS_REFUTE, look
from placekit.solvers.makespan.bounds.windows import SLACK, Windows, narrow
from placekit.solvers.makespan.exact.cp_model import MakespanModel, count_literals
from placekit.solvers.makespan.exact.proofs import Proof
from placekit.solvers.makespan.exact.series import solve_in_series
from placekit.solvers.makespan.schedule.tasks import Tasks
from placekit.solvers.makespan.schedule.timetable import Timetable, offer_timetable, timetable_of

SERIES = 0.8
"""Share of the rest of the time for the segments between cuts, where there are any."""
RESTART_GAIN, RESTART_AFTER_S = 0.005, 3.0
"""Relative gain since the model was built that is worth building it anew, with narrower windows; and seconds that every
model gets at least."""
GAP_DIVISOR, LEAST_GAP = 3.0, 2e-5
"""What is left of the gap if the next limit is refuted: a part of this, and at least so much; below, the next limit is
the best makespan itself, for which the program has an objective and proves much less in the same time."""


def solve_makespan(
    run: Run[Makespan],  # the run; its problem's objective is the makespan
    workers: Callable[[int], int],  # returns the number of CP-SAT workers for a number of variables
    *,
    in_series: bool = True,  # False for a segment, which is not divided again
) -> StopReason:
    """Build and solve the model from the best known placement, again whenever a better placement narrows it."""
    proof = Proof(run)
    tasks = proof.tasks
    proof.quickly()
    proof.anneal()
    if in_series:
        _solve_segments(proof, workers)
    while (reason := run.should_stop()) is None:
        known = run.objective, run.bound
        ceiling_s = _worst_s(tasks) if run.objective is None else run.objective
        if in_series:  # a segment is closed at once
            ceiling_s = min(ceiling_s, limit_to_refute(run))
        refutes = run.objective is not None and ceiling_s < run.objective
        windows = _windows(proof, ceiling_s)
        if windows is None:
            if run.objective is None:
                return run.prove_infeasible(clash())
            run.raise_bound(ceiling_s, "windows")
            continue
        step = Building("constraint program", count_literals(tasks), CPSAT, lambda: time_left(run))
        model = MakespanModel(tasks, windows, ceiling_s, run.bound or 0.0, decides=refutes, step=step)
        if run.placement is not None and run.evaluation is not None and not refutes:
            model.hint(timetable_of(run.placement, run.evaluation, tasks))
        outcome, was_cut_short = _search(run, tasks, model, workers, ceiling_s)
        if outcome is CpStatus.INFEASIBLE:
            if run.objective is None:
                return run.prove_infeasible(clash())
            # no rounded schedule of makespan at most the limit
            run.raise_bound(ceiling_s, "CP-SAT bound")
        is_decided = refutes and outcome in (CpStatus.INFEASIBLE, CpStatus.OPTIMAL)
        if was_cut_short or (is_decided and (run.objective, run.bound) != known):
            continue
        reason = run.should_stop()
        return reason or (StopReason.TIME if outcome in (CpStatus.FEASIBLE, CpStatus.UNKNOWN) else StopReason.FINISHED)
    return reason


def limit_to_refute(run: Run) -> float:
    """Return the limit for the next program: at most the best known makespan; infinity without one.

    A limit far below the best makespan is refuted much faster than one just below. So the gap is divided by
    `GAP_DIVISOR`, down to the gap that is asked for.
    """
    if run.objective is None:
        return math.inf
    left = max((1.0 if run.gap is None else run.gap) / GAP_DIVISOR, run.asked_gap)
    if left < LEAST_GAP:
        return run.objective
    # slightly above, so that a refuted limit proves the gap that was asked for
    return run.objective * (1 - left) * (1 + SLACK)


def _windows(proof: Proof, limit_s: float) -> Windows | None:
    """Return the windows of schedules up to a limit, without too expensive devices; None if no schedule is left."""
    if proof.tasks.num_ops > MAX_OPS_REFUTE:
        return narrow(proof.tasks, limit_s)
    found = look(proof.tasks, limit_s)
    return None if found is None else found.windows


def bound_makespan(
    run: Run[Makespan],  # the run; its problem's objective is the makespan, under any contiguity
    keep: KeepBound,  # takes bounds in seconds, their names and certificates
) -> StopReason:
    """Prove bounds without the constraint program of the whole problem; method ``bound``."""
    was_searched = run.placement is not None
    if open_run(run) is None:
        return StopReason.PROVED
    keep(*largest_op(run.problem))
    raise_bounds_of_many(run)
    proof = Proof(run, keep)
    proof.quickly()
    reason = enumerate_first(run, keep)
    if reason is not None:
        return reason
    if run.problem.contiguity is Contiguity.NONE:
        if not was_searched:
            proof.anneal()
        _solve_segments(proof, lambda _: 1)
        proof.by_cases()
    return run.should_stop() or StopReason.FINISHED


def _solve_segments(proof: Proof, workers: Callable[[int], int]) -> None:
    solve = partial(solve_makespan, workers=workers, in_series=False)
    solve_in_series(proof.run, proof.tasks, solve, proof.keep, proof.seconds(SERIES))


def _search(
    run: Run[Makespan], tasks: Tasks, model: MakespanModel, workers: Callable[[int], int], ceiling_s: float
) -> tuple[CpStatus, bool]:
    has_bus = run.problem.objective.contention
    since_s = run.elapsed_s
    cut_short = False

    def see_plan(plan: Timetable, value: float) -> None:
        units = model.horizon if model.decides else value
        # the model has no contention, so that its value promises nothing
        offer_timetable(run, tasks, plan, None if has_bus else model.scale.at_most_s(units))

    def see_bound(bound: float) -> None:
        # the model covers schedules up to the ceiling only, and there may be none
        run.raise_bound(min(model.scale.bound_s(bound), ceiling_s), "CP-SAT bound")

    def should_stop() -> bool:
        nonlocal cut_short
        if run.should_stop() is not None:
            return True
        # an unnecessarily high limit is harder to refute
        needed_s = limit_to_refute(run) if model.decides else run.objective
        gained = needed_s is not None and needed_s < ceiling_s * (1 - RESTART_GAIN)
        cut_short = gained and run.elapsed_s - since_s > RESTART_AFTER_S
        return cut_short

    see = None if model.decides else see_bound
    outcome = search_for(run, model, workers, see_plan, see, refutes=model.decides, should_stop=should_stop)
    return outcome, cut_short and outcome is not CpStatus.OPTIMAL


def _worst_s(tasks: Tasks) -> float:
    """Return an upper bound on the best makespan of any placement: all ops in turn, every edge crossing."""
    time_s = np.where(np.isfinite(tasks.time_s), tasks.time_s, 0.0).max(axis=1)
    return float(time_s.sum() + tasks.delay_s.max(axis=(1, 2), initial=0.0).sum())
