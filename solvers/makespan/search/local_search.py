"""Local search for `Makespan`: annealing of placement and order, with restarts (method ``local-search``)."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from placekit.objectives import Makespan
from placekit.solve.lifting.lift import Lift, LiftedRun, left_s
from placekit.solve.method import Run
from placekit.solve.stop import StopReason
from placekit.solvers.generic.excess import find_feasible
from placekit.solvers.makespan.lists.schedulers import Heft, MEtf
from placekit.solvers.makespan.schedule.sequence import SequenceProblem, sequence_problem
from placekit.solvers.makespan.search.clusters import clustered
from placekit.solvers.makespan.search.incumbent import HOT, STRETCH_STEPS, STRETCHES, Best, cycle, sweep
from placekit.solvers.makespan.search.starts import known_starts, list_schedule, redispatch
from placekit.solvers.makespan.search.walk import load
from placekit.solvers.params import PATIENCE, LocalSearchParams

FIRST_STEPS = 5
"""Proposals per op in the first cycle; doubled from cycle to cycle up to the parameter."""
NUM_CYCLES = 8
"""Long cycles for which there is time, at least: where one ends is as much chance as length."""
MILD, MILD_STEPS = 0.005, 5_000
"""Temperatures below are mild: a cycle keeps most of what it starts from. Its proposals per op at most."""
WARM = 0.3
"""Other cycles begin at this share of the mean op time at least: of few ops, none is as short as a percent of all."""
NOISE = 0.3
"""Largest noise of the list schedules from which fresh cycles start."""
CLUSTERINGS, CLUSTER_CYCLES, CLUSTER_STEPS = 8, 16, 100
"""Clusterings that are searched, cycles of each search, and proposals per op of a cycle at most."""
CLUSTERS_AT = 10
"""Cycles before them: what they find is no start where these cycles alone find better."""
CLUSTER_SHARE = 0.2
"""Share of the time for all of these searches at most."""
FAR = 1.25
"""Clusters whose best schedule exceeds the best one so far by this factor do not fit the problem: no more are tried."""
WHOLE_UP_TO = 2_000
"""Ops up to which cycles over the whole schedule are worth their time."""


def search_makespan(run: Run[Makespan], params: LocalSearchParams) -> StopReason:
    """Search from the placements that `run` holds, and offer better ones; return why the search ended.

    1. Start from the warm start, single devices, `heft` and `m-etf`. If none is feasible, anneal the excess
       (:mod:`placekit.solvers.generic.excess`).
    2. A cycle anneals (:mod:`placekit.solvers.makespan.search.anneal`) from the best schedule at a random temperature.
       At high temperatures it starts from a noisy list schedule with probability `fresh`. Cycles grow longer, up to
       `steps` proposals per op (`MILD_STEPS` at low temperatures), or to an eighth of the time. If transfers take
       longer than ops, the cycle `CLUSTERS_AT` is preceded by the same search of a few clustered problems
       (:mod:`placekit.solvers.makespan.search.clusters`), where a move of many ops is a single move.
    3. Every other cycle anneals the best schedule stretch by stretch
       (:mod:`placekit.solvers.makespan.decomposition.stretch`), at a cost that does not grow with the schedule. With
       more than `WHOLE_UP_TO` ops every cycle does.
    4. Between two cycles the best placement is also dispatched by devices that never idle, which may give a better
       order.
    5. The search ends when `patience` cycles in a row bring no improvement.

    Parameters
    ----------
    run
        The solve in progress; its problem asks for no contiguity.
    params
        How to search.

    Notes
    -----
    O(steps * ops * (ops + edges)) per cycle at worst; in practice a proposal costs a fraction of the schedule. A sweep
    costs O(ops * (steps * stretch + (ops + edges) / stretch)). Memory O(ops + edges + (ops + tensors) * devices).
    """
    flat = sequence_problem(run.problem, has_contention=run.problem.objective.contention)
    if not flat.allowed.any(axis=1).all():
        return StopReason.FINISHED
    for scheduler in (Heft(), MEtf()):  # no search ends worse than they do
        if run.placement is not None and (reason := run.should_stop()) is not None:
            return reason
        scheduler.run(run)
    if run.placement is not None and (reason := run.should_stop()) is not None:  # the starts take as long again
        return reason
    best = _best_start(run, flat)
    if best is None:
        return run.should_stop() or StopReason.FINISHED
    longest_s = math.inf if run.remaining_s is None else run.remaining_s / NUM_CYCLES
    stale, number, num_ops, proposal_s = 0, 0, flat.instance.num_ops, 0.0
    patience = run.tries(params.patience, PATIENCE)
    has_slow_links = flat.link_s.size > 0 and 2.0 * flat.link_s.mean() > flat.time_s.mean()
    while (reason := run.should_stop()) is None:
        if stale >= patience or number == params.max_cycles or best.value_s <= 0.0:
            return StopReason.FINISHED
        before = best.value_s
        if number == CLUSTERS_AT and num_ops <= WHOLE_UP_TO and has_slow_links:
            _search_clusters(run, flat, params)
            for device, sequence in known_starts(run, flat):
                best.consider(device, sequence)
        for device, sequence in redispatch(flat, best.device.copy()):
            best.consider(device, sequence)
        steps = min(params.steps, FIRST_STEPS * 2 ** min(number, 30))
        if proposal_s and run.remaining_s is not None:  # a walk that is cut off before it is cold has hardly begun
            cycle_s = min(longest_s, 0.95 * run.remaining_s)
            steps = min(steps, max(int(cycle_s / (proposal_s * num_ops)), FIRST_STEPS))
        can_sweep = not flat.has_contention and num_ops > STRETCHES[0]
        if can_sweep and (num_ops > WHOLE_UP_TO or number % 2 == 1):
            sweep(best, flat, min(steps, STRETCH_STEPS))
        else:
            start, hot = None, float(run.rng.choice(HOT))
            if hot < MILD:
                steps = min(steps, MILD_STEPS)
            else:
                hot = max(hot, WARM * flat.time_s.shape[1] / num_ops)
                if number and run.rng.random() < params.fresh:
                    start = list_schedule(flat, NOISE * run.rng.random(), run.rng)
            load(flat, best.walk, *(start or (best.device, best.sequence)))
            since_s = run.elapsed_s
            cycle(best, flat, hot, steps * num_ops)
            proposal_s = (run.elapsed_s - since_s) / (steps * num_ops)
        number += 1
        stale = 0 if best.value_s < before * (1 - 1e-9) else stale + 1
    return reason


def _best_start(run: Run[Makespan], flat: SequenceProblem) -> Best | None:
    """Offer the best schedule to start from; None if no placement fits."""
    best = Best(run, flat)
    for device, sequence in known_starts(run, flat):
        best.consider(device, sequence)
    if not np.isfinite(best.value_s):
        listed = list_schedule(flat, 0.0, run.rng)
        if listed is None and not find_feasible(run):
            return None
        for device, sequence in known_starts(run, flat) if listed is None else [listed]:
            best.consider(device, sequence)
    best.offer()
    return best


def _search_clusters(run: Run[Makespan], flat: SequenceProblem, params: LocalSearchParams) -> None:
    """Search a few clustered problems, which offer what they find to `run`, until they prove useless."""
    few = replace(params, patience=None, steps=min(params.steps, CLUSTER_STEPS), max_cycles=CLUSTER_CYCLES)
    share_s = CLUSTER_SHARE * left_s(run) / CLUSTERINGS
    for _ in range(CLUSTERINGS):
        problem = clustered(run.problem, flat, run.rng)
        if problem is None or run.should_stop() is not None:
            return
        inner = LiftedRun(run, Lift(problem), share_s, seed=int(run.rng.integers(2**31)))
        search_makespan(inner, few)
        if inner.objective is None or run.objective is None or inner.objective > FAR * run.objective:
            return
