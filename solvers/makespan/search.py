"""Local search for `Makespan`: annealing of placement and order, with restarts; the part of ``local-search``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from placekit.method import Run
from placekit.objectives import Makespan
from placekit.placement import Placement
from placekit.solvers.makespan.anneal import anneal, sort_by_start
from placekit.solvers.makespan.beam import MAX_OPS_BEAM, Beam
from placekit.solvers.makespan.prices import Prices, price
from placekit.solvers.makespan.segments import cut_ops
from placekit.solvers.makespan.sequence import SequenceProblem, sequence_problem
from placekit.solvers.makespan.starts import (
    Start,
    known_starts,
    mean_rank_s,
    offer_list_schedules,
    redispatch,
    scattered,
)
from placekit.solvers.makespan.stretch import cut_stretch
from placekit.solvers.makespan.tasks import make_tasks
from placekit.solvers.makespan.walk import Walk, empty_walk, load
from placekit.stop import StopReason

if TYPE_CHECKING:
    from placekit.solvers.local_search.method import LocalSearchParams

__all__ = ["search_makespan"]

FIRST_STEPS = 5
"""Proposals per op in the first cycle; doubled from cycle to cycle up to the parameter."""
NUM_CYCLES = 8
"""Long cycles for which there is time, at least: where one ends is as much chance as length."""
IN_TIME = 0.95
"""Share of the time left that a cycle may take, by the pace of the one before."""
MEAN_WEIGHT = 0.2
"""What a later mean finish costs; see :mod:`placekit.solvers.makespan.anneal`."""
HOT = (0.001, 0.002, 0.003, 0.003, 0.01, 0.03)
"""First temperatures of a cycle, in units of the best makespan, from which one is drawn.

Cycles over a list schedule end as low from 0.3 % as from 10 % on all that was measured, in a third of the time: while
it is hot, most proposals are kept, and each of these costs a schedule.
"""
MILD = 0.005
"""Temperatures below are mild: a cycle keeps most of what it starts from."""
WARM = 0.3
"""Other cycles begin at this share of the mean op time at least: of few ops, none is as short as a percent of all."""
BEAMED = 0.6
"""Probability that a cycle begins at a schedule by beam search, if that is worth its time."""
ALL_WORK = 0.95
"""It is if all ops at their cheapest cost this share of the best makespan: prices tell good schedules apart then."""
BEAM_S = 5.0
"""Seconds that must be left when a beam search begins: it takes a second or so, and does not look at the clock."""
AFTER_BEAM = 8e-4
"""First temperature of a cycle after a beam search: its schedules are good on the whole, and poor in detail."""
MILD_STEPS = 5_000
"""Proposals per op of a mild cycle at most."""
COLD = 2e-4
"""Last temperature of a cycle, in the same unit."""
PRICING = (1.0, 3.0, 3.0)
"""Weights of the prices, from which one is drawn for every cycle where devices are unequal."""
SHARED_OUT = 0.5
"""Probability that a fresh list schedule keeps to the shares of the linear program."""
NOISE = 0.3
"""Largest noise of the list schedules from which fresh cycles start."""
STRETCHES = (60, 120, 240, 480)
"""Ops of a stretch, from which one is drawn for every sweep."""
STRETCH_STEPS = 300
"""Proposals per op of a stretch at most."""
STRETCH_HOT = (0.01, 0.03, 0.1)
"""First temperatures in a stretch, in units of the time from its beginning to its end."""
WHOLE_EVERY = 6
"""Cycles over the whole schedule of a graph with cuts: one of so many. The others anneal the parts between them."""
WHOLE_UP_TO = 2_000
"""Ops up to which cycles over the whole schedule are worth their time."""
CHUNK = 2_000_000
"""Ops and edges visited between two looks at the clock, at most: some hundredths of a second."""


class _Best:
    """The best schedule so far, in the arrays that the kernels overwrite."""

    def __init__(self, run: Run, flat: SequenceProblem) -> None:
        self.run = run
        self.flat = flat
        self.walk = empty_walk(flat)
        self.device: NDArray[np.int64] = np.zeros(flat.instance.num_ops, dtype=np.int64)
        self.sequence = self.device.copy()
        self.value_s = np.inf
        self._offered_s = np.inf

    def consider(self, device: NDArray[np.int64], sequence: NDArray[np.int64]) -> float:
        """Load a schedule into the walk, keep it if it is better, and return its makespan."""
        value = load(self.flat, self.walk, device, sequence)
        if value < self.value_s:
            self.value_s = value
            self.device[:], self.sequence[:] = device, sequence
        return value

    def offer(self) -> None:
        """Let the judge score the best schedule, if it is new."""
        if self.value_s < self._offered_s:
            self._offered_s = self.value_s
            step = np.empty(len(self.sequence), dtype=np.int64)
            step[self.sequence] = np.arange(len(step))
            self.run.offer(Placement.of(self.run.problem, self.device, step), at_most=self.value_s)


def search_makespan(run: Run, params: LocalSearchParams) -> StopReason:
    """Search from what `run` holds, and offer what is found; return why it ended.

    1. Start from what is known (warm start, single devices, `heft`, `m-etf`), from a list schedule by HEFT's rank, and
       where devices are unequal from a beam search (:mod:`placekit.solvers.makespan.beam`).
    2. A cycle anneals (:mod:`placekit.solvers.makespan.anneal`) from the best schedule at a random temperature; if that
       is not mild, with probability `fresh` from a list schedule with noise; where work is nearly all that counts, most
       begin at another beam search. Cycles grow longer, up to `steps` proposals per op (mild ones up to `MILD_STEPS`),
       or to an eighth of the time. Every other cycle, and every cycle of more than `WHOLE_UP_TO` ops, anneals the best
       schedule stretch by stretch instead (:mod:`placekit.solvers.makespan.stretch`), which costs as much per proposal
       however long the schedule. Where the graph has cuts (:mod:`placekit.solvers.makespan.segments`), most of the long
       cycles anneal the parts between.
    3. Between two cycles the best placement is also run by devices that never idle, in case they find a better order.
    4. Ends when `patience` cycles in a row brought nothing.

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
    objective = run.problem.objective
    assert isinstance(objective, Makespan)
    flat = sequence_problem(run.problem, has_contention=objective.contention)
    if not flat.allowed.any(axis=1).all():
        return StopReason.FINISHED
    offer_list_schedules(run)
    best, rank_s = _Best(run, flat), mean_rank_s(flat)
    for device, sequence in known_starts(run, flat):
        best.consider(device, sequence)
    listed = scattered(flat, rank_s, 0.0, run.rng)
    if listed is not None:
        best.consider(*listed)
    if not np.isfinite(best.value_s):
        return StopReason.FINISHED
    best.offer()
    prices = price(flat, best.value_s)
    beam = Beam(flat, prices) if prices is not None and flat.instance.num_ops <= MAX_OPS_BEAM else None
    found = _beamed(beam, best)
    if found is not None:
        best.consider(*found)
        best.offer()
    cuts = np.zeros(0, dtype=np.int64)
    if not flat.has_contention and flat.instance.num_ops <= WHOLE_UP_TO:
        cuts = cut_ops(make_tasks(run.problem))
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
        can_sweep = not flat.has_contention and num_ops > STRETCHES[0]
        is_short = can_sweep and (num_ops > WHOLE_UP_TO or number % 2 == 1)
        since_s = run.elapsed_s
        if is_short:
            _sweep(best, priced, min(steps, STRETCH_STEPS))
        elif len(cuts) and number % WHOLE_EVERY:
            _sweep(best, priced, steps, cuts)
        else:
            listed, hot = None, float(run.rng.choice(HOT))
            if beam is not None and beam.work_s >= ALL_WORK * best.value_s and run.rng.random() < BEAMED:
                listed, hot = _beamed(beam, best), AFTER_BEAM
            if hot < MILD:
                steps = min(steps, MILD_STEPS)
            else:
                hot = max(hot, WARM * flat.time_s.shape[1] / num_ops)
                if number and run.rng.random() < params.fresh:
                    listed = _fresh_start(flat, prices, rank_s, run.rng)
            load(flat, best.walk, *(listed or (best.device, best.sequence)))
            _cycle(best, priced, hot, steps * num_ops)
        if not is_short:
            proposal_s = (run.elapsed_s - since_s) / (steps * num_ops)
        number += 1
        stale = 0 if best.value_s < before * (1 - 1e-9) else stale + 1
    return reason


def _beamed(beam: Beam | None, best: _Best) -> Start | None:
    """Return a schedule by beam search; None if there is no beam, no time for it, or it found none."""
    left_s = best.run.remaining_s
    if beam is None or (left_s is not None and left_s < BEAM_S):
        return None
    return beam.start(best.value_s, best.run.rng)


def _fresh_start(
    flat: SequenceProblem, prices: Prices | None, rank_s: NDArray[np.float64], rng: np.random.Generator
) -> Start | None:
    """Return a list schedule with noise, by the shares of the linear program now and then; None if none was found."""
    noise, listed = NOISE * rng.random(), None
    if prices is not None and rng.random() < SHARED_OUT:
        listed = scattered(flat._replace(allowed=prices.allowed), rank_s, noise, rng)
    return listed or scattered(flat, rank_s, noise, rng)


def _cycle(best: _Best, flat: SequenceProblem, hot: float, num_steps: int) -> None:
    """Anneal from the walk of `best` until done or told to stop."""
    seeds = np.random.default_rng(best.run.rng.integers(2**63))
    schedule = best.device, best.sequence, best.value_s
    cooling = hot * best.value_s, COLD * best.value_s
    for value_s in _annealed(best.run, flat, best.walk, schedule, cooling, num_steps, seeds):
        best.value_s = value_s
        best.offer()


def _annealed(
    run: Run,
    flat: SequenceProblem,
    walk: Walk,
    schedule: tuple[NDArray[np.int64], NDArray[np.int64], float],
    cooling: tuple[float, float],
    num_steps: int,
    seeds: np.random.Generator,
) -> Iterator[float]:
    """Anneal from the walk, a chunk of steps at a time, until done or told to stop.

    Parameters
    ----------
    run, flat, walk
        The solve, what is annealed, and where it begins.
    schedule
        Best device, sequence and seconds so far; the arrays receive what is better.
    cooling
        First and last temperature in seconds.
    num_steps
        Proposals.
    seeds
        Source of the seeds of the chunks.

    Yields
    ------
    float
        Best seconds, after every chunk.
    """
    device, sequence, value_s = schedule
    hot_s, cold_s = cooling
    size = flat.instance.num_ops + len(flat.instance.readers)
    chunk = max(1, CHUNK // (size * (2 if flat.has_contention else 1)))
    for done in range(0, num_steps, chunk):
        if done and run.should_stop() is not None:
            return
        steps = min(chunk, num_steps - done)
        begin, end = (hot_s * (cold_s / hot_s) ** (at / num_steps) for at in (done, done + steps))
        seed = int(seeds.integers(2**32))
        value_s = anneal(flat, walk, device, sequence, value_s, MEAN_WEIGHT, begin, end, steps, seed)
        yield value_s


def _sweep(best: _Best, flat: SequenceProblem, num_steps: int, cuts: NDArray[np.int64] | None = None) -> None:
    """Anneal one stretch of the best schedule after the other, `num_steps` proposals per op, until told to stop.

    The stretches are those between the ops `cuts`, or of a random width.
    """
    run, walk = best.run, best.walk
    seeds = np.random.default_rng(run.rng.integers(2**63))
    num_ops = flat.instance.num_ops
    load(flat, walk, best.device, best.sequence)
    sort_by_start(walk)
    if cuts is None:
        width = int(seeds.choice([each for each in STRETCHES if each <= max(num_ops // 2, STRETCHES[0])]))
        hot = float(seeds.choice(STRETCH_HOT))
        bounds = [0, *range(width - int(seeds.integers(width)), num_ops, width), num_ops]
    else:
        hot = float(seeds.choice(HOT))
        bounds = [0, *np.sort(walk.position[cuts]).tolist(), num_ops]
    # a schedule of its own: the walk, which is loaded anew whenever a stretch became better
    device, sequence = walk.device.copy(), walk.sequence.copy()
    load(flat, walk, device, sequence)
    for begin, end in pairwise(bounds):
        if run.should_stop() is not None:
            break
        if begin == end:
            continue
        finish_s = walk.timeline.finish_s
        part = cut_stretch(flat, device, sequence, finish_s, begin, end)
        inner = empty_walk(part.flat)
        part_device, part_sequence = device[part.ops], np.arange(len(part.ops))
        value = load(part.flat, inner, part_device, part_sequence)
        part_s = float(finish_s[part.ops].max() - walk.timeline.start_s[part.ops].min())
        if part_s <= 0:
            continue  # ops of no time
        schedule, cooling = (part_device, part_sequence, value), (hot * part_s, COLD * part_s)
        if min(_annealed(run, part.flat, inner, schedule, cooling, num_steps * len(part.ops), seeds)) < value:
            device[part.ops], sequence[begin:end] = part_device, part.ops[part_sequence]
            best.consider(device, sequence)
            best.offer()
    best.offer()
