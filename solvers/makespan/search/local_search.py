"""Local search for `Makespan`: annealing of placement and order, with restarts; the part of ``local-search``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from placekit.method import Run
from placekit.objectives import Makespan
from placekit.solvers.makespan.decomposition.segments import cut_ops
from placekit.solvers.makespan.mechanisms import ALL, Mechanisms
from placekit.solvers.makespan.schedule.sequence import SequenceProblem, sequence_problem
from placekit.solvers.makespan.schedule.tasks import make_tasks
from placekit.solvers.makespan.search.beam import MAX_OPS_BEAM, Beam
from placekit.solvers.makespan.search.incumbent import HOT, STRETCH_STEPS, STRETCHES, Best, cycle, sweep
from placekit.solvers.makespan.search.parallel_tempering import LEAST_STEPS, REPLICAS, Tempering
from placekit.solvers.makespan.search.prices import Prices, price
from placekit.solvers.makespan.search.starts import (
    Start,
    known_starts,
    mean_rank_s,
    offer_list_schedules,
    redispatch,
    scattered,
)
from placekit.solvers.makespan.search.successive_halving import SuccessiveHalving
from placekit.solvers.makespan.search.walk import load
from placekit.stop import StopReason

if TYPE_CHECKING:
    from placekit.solvers.params import LocalSearchParams

__all__ = ["search_makespan"]

FIRST_STEPS = 5
"""Proposals per op in the first cycle; doubled from cycle to cycle up to the parameter."""
NUM_CYCLES = 8
"""Long cycles for which there is time, at least: where one ends is as much chance as length."""
IN_TIME = 0.95
"""Share of the time left that a cycle may take, by the pace of the one before."""
MILD = 0.005
"""Temperatures below are mild: a cycle keeps most of what it starts from."""
WARM = 0.3
"""Other cycles begin at this share of the mean op time at least: of few ops, none is as short as a percent of all."""
ALL_WORK = 0.95
"""Work is nearly all that counts if all ops at their cheapest cost this share of the best makespan: prices tell good
schedules apart then."""
TEMPERED = 0.5
"""Probability that one of the other cycles, if it is long enough, goes on with parallel tempering."""
HOTTEST = 0.01
"""Temperature of its last replica, in units of the makespan, but no colder than what is `WARM`."""
MILD_STEPS = 5_000
"""Proposals per op of a mild cycle at most."""
PRICING = (1.0, 3.0, 3.0)
"""Weights of the prices, from which one is drawn for every cycle where devices are unequal."""
SHARED_OUT = 0.5
"""Probability that a fresh list schedule keeps to the shares of the linear program."""
NOISE = 0.3
"""Largest noise of the list schedules from which fresh cycles start."""
WHOLE_EVERY = 6
"""Cycles over the whole schedule of a graph with cuts: one of so many. The others anneal the parts between them."""
WHOLE_UP_TO = 2_000
"""Ops up to which cycles over the whole schedule are worth their time."""


def search_makespan(run: Run[Makespan], params: LocalSearchParams, mechanisms: Mechanisms = ALL) -> StopReason:
    """Search from what `run` holds, and offer what is found; return why it ended.

    1. Start from what is known (warm start, single devices, `heft`, `m-etf`), from a list schedule by HEFT's rank, and
       where devices are unequal from a beam search (:mod:`placekit.solvers.makespan.search.beam`).
    2. A cycle anneals (:mod:`placekit.solvers.makespan.search.anneal`) from the best schedule at a random temperature;
       if that is not mild, with probability `fresh` from a list schedule with noise. Cycles grow longer, up to `steps`
       proposals per op (mild ones up to `MILD_STEPS`), or to an eighth of the time. Instead of a cycle over the whole:

       - every other one, and every one of more than `WHOLE_UP_TO` ops, anneals the best schedule stretch by stretch
         (:mod:`placekit.solvers.makespan.decomposition.stretch`), at a cost that does not grow with the schedule;
       - most of the long ones anneal the parts between cuts (:mod:`placekit.solvers.makespan.decomposition.segments`);
       - where work is nearly all that counts, schedules compete
         (:mod:`placekit.solvers.makespan.search.successive_halving`);
       - every other of those that are left goes on with :mod:`~placekit.solvers.makespan.search.parallel_tempering`.
    3. Between two cycles the best placement is also run by devices that never idle, in case they find a better order.
    4. Ends when `patience` cycles in a row brought nothing.

    Parameters
    ----------
    run
        The solve in progress; its problem asks for no contiguity.
    params
        How to search.
    mechanisms
        What is used of the above.

    Notes
    -----
    O(steps * ops * (ops + edges)) per cycle at worst; in practice a proposal costs a fraction of the schedule. A sweep
    costs O(ops * (steps * stretch + (ops + edges) / stretch)). Memory O(ops + edges + (ops + tensors) * devices).
    """
    objective = run.problem.objective
    flat = sequence_problem(run.problem, has_contention=objective.contention)
    if not flat.allowed.any(axis=1).all():
        return StopReason.FINISHED
    offer_list_schedules(run)
    best, rank_s = Best(run, flat, mechanisms=mechanisms), mean_rank_s(flat)
    for device, sequence in known_starts(run, flat):
        best.consider(device, sequence)
    listed = scattered(flat, rank_s, 0.0, run.rng)
    if listed is not None:
        best.consider(*listed)
    if not np.isfinite(best.value_s):
        return StopReason.FINISHED
    best.offer()
    prices = price(flat, best.value_s) if mechanisms.prices else None
    beam = Beam(flat, prices) if prices is not None and flat.instance.num_ops <= MAX_OPS_BEAM else None
    found = None if beam is None or not mechanisms.beam else beam.start_in_time(best.value_s, run)
    if found is not None:
        best.consider(*found)
        best.offer()
    cuts = np.zeros(0, dtype=np.int64)
    if mechanisms.cuts and not flat.has_contention and flat.instance.num_ops <= WHOLE_UP_TO:
        cuts = cut_ops(make_tasks(run.problem))
    tempering: Tempering | None = None
    halving: SuccessiveHalving | None = None
    longest_s = math.inf if run.remaining_s is None else run.remaining_s / NUM_CYCLES
    stale, number, num_ops, proposal_s = 0, 0, flat.instance.num_ops, 0.0
    while (reason := run.should_stop()) is None:
        if stale >= params.patience or number == params.max_cycles or best.value_s <= 0.0:
            return StopReason.FINISHED
        before = best.value_s
        for device, sequence in redispatch(flat, best.device.copy(), rank_s):
            best.consider(device, sequence)
        steps = min(params.steps, FIRST_STEPS * 2 ** min(number, 30))
        if proposal_s and run.remaining_s is not None:  # a walk that is cut off before it is cold has hardly begun
            cycle_s = min(longest_s, IN_TIME * run.remaining_s)
            steps = min(steps, max(int(cycle_s / (proposal_s * num_ops)), FIRST_STEPS))
        priced = flat
        if prices is not None:
            priced = flat._replace(price_s=prices.price_s * float(run.rng.choice(PRICING)))
        can_sweep = mechanisms.stretches and not flat.has_contention and num_ops > STRETCHES[0]
        is_short = can_sweep and (num_ops > WHOLE_UP_TO or number % 2 == 1)
        is_all_work = beam is not None and beam.work_s >= ALL_WORK * best.value_s
        if mechanisms.perturbation and prices is not None and is_all_work:
            starter = beam if mechanisms.beam and mechanisms.successive_halving else None
            halving = halving or SuccessiveHalving(best, prices, starter, params.steps)
        since_s, is_paced = run.elapsed_s, not is_short
        if is_short:
            sweep(best, priced, min(steps, STRETCH_STEPS))
        elif len(cuts) and number % WHOLE_EVERY:
            sweep(best, priced, steps, cuts)
        elif halving is not None:
            halving.turn(priced)
            is_paced = False  # a turn is as long as its rung says
        elif mechanisms.tempering and steps >= LEAST_STEPS and run.rng.random() < TEMPERED:
            tempering = tempering or _tempering(best, prices, rank_s)
            tempering.walk(priced, steps * num_ops)
        else:
            listed, hot = None, float(run.rng.choice(HOT))
            if hot < MILD:
                steps = min(steps, MILD_STEPS)
            else:
                hot = max(hot, WARM * flat.time_s.shape[1] / num_ops)
                if number and run.rng.random() < params.fresh:
                    listed = _fresh_start(flat, prices, rank_s, run.rng)
            load(flat, best.walk, *(listed or (best.device, best.sequence)))
            cycle(best, priced, hot, steps * num_ops)
        if is_paced:
            proposal_s = (run.elapsed_s - since_s) / (steps * num_ops)
        number += 1
        stale = 0 if best.value_s < before * (1 - 1e-9) else stale + 1
    return reason


def _tempering(best: Best, prices: Prices | None, rank_s: NDArray[np.float64]) -> Tempering:
    """Return replicas that begin at list schedules with noise, or at the best schedule where there are none."""
    flat = best.flat
    listed = [_fresh_start(flat, prices, rank_s, best.run.rng) for _ in range(REPLICAS)]
    starts = [start for start in listed if start is not None] or [(best.device, best.sequence)]
    return Tempering(best, starts, max(HOTTEST, WARM * flat.time_s.shape[1] / flat.instance.num_ops))


def _fresh_start(
    flat: SequenceProblem, prices: Prices | None, rank_s: NDArray[np.float64], rng: np.random.Generator
) -> Start | None:
    """Return a list schedule with noise, by the shares of the linear program now and then; None if none was found."""
    noise, listed = NOISE * rng.random(), None
    if prices is not None and rng.random() < SHARED_OUT:
        listed = scattered(flat._replace(allowed=prices.allowed), rank_s, noise, rng)
    return listed or scattered(flat, rank_s, noise, rng)
