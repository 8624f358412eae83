"""Best schedule of a local search for `Makespan`, with the cycles and sweeps that anneal it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from placekit.model.placement import Placement
from placekit.solve.method import Run
from placekit.solvers.generic.draws import Cooling
from placekit.solvers.makespan.decomposition.stretch import cut_stretch
from placekit.solvers.makespan.schedule.sequence import SequenceProblem
from placekit.solvers.makespan.search.anneal import anneal, sort_by_start
from placekit.solvers.makespan.search.walk import Walk, empty_walk, load

HOT = (0.001, 0.002, 0.003, 0.003, 0.01, 0.03)
"""First temperatures of a cycle, in units of the best makespan, from which one is drawn.

Cycles over a list schedule end as low from 0.3 % as from 10 % on all that was measured, in a third of the time: while
it is hot, most proposals are kept, and each of these costs a schedule.
"""
MEAN_WEIGHT = 0.2
"""What a later mean finish costs; see :mod:`placekit.solvers.makespan.search.anneal`."""
COLD = 2e-4
"""Last temperature of a cycle, in the same unit."""
STRETCHES = (60, 120, 240, 480)
"""Ops of a stretch, from which one is drawn for every sweep."""
STRETCH_STEPS = 300
"""Proposals per op of a stretch at most."""
STRETCH_HOT = (0.01, 0.03, 0.1)
"""First temperatures in a stretch, in units of the time from its beginning to its end."""
JUDGE_EVERY = 20.0
"""Seconds of a sweep between two judgements, in units of what a judgement took: with 50,000 ops that of a stretch."""
CHUNK = 2_000_000
"""Ops and edges visited between two looks at the clock, at most: some hundredths of a second."""


class Best:
    """Best schedule so far, in arrays that the kernels overwrite."""

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


def cycle(best: Best, flat: SequenceProblem, hot: float, num_steps: int) -> None:
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
        The run, the problem, and the state to start from.
    schedule
        Best device, sequence and seconds so far; better ones overwrite the arrays.
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
        falling = Cooling(begin, end, steps, int(seeds.integers(2**32)))
        value_s = anneal(flat, walk, device, sequence, value_s, MEAN_WEIGHT, falling)
        yield value_s


def sweep(best: Best, flat: SequenceProblem, num_steps: int) -> None:
    """Anneal the stretches of the best schedule in turn, `num_steps` proposals per op, until told to stop."""
    run, walk = best.run, best.walk
    seeds = np.random.default_rng(run.rng.integers(2**63))
    num_ops = flat.instance.num_ops
    load(flat, walk, best.device, best.sequence)
    sort_by_start(walk)
    width = int(seeds.choice([each for each in STRETCHES if each <= max(num_ops // 2, STRETCHES[0])]))
    hot = float(seeds.choice(STRETCH_HOT))
    bounds = [0, *range(width - int(seeds.integers(width)), num_ops, width), num_ops]
    # a copy: the walk is loaded again whenever a stretch improves
    device, sequence = walk.device.copy(), walk.sequence.copy()
    load(flat, walk, device, sequence)
    next_s = run.elapsed_s
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
            if run.elapsed_s >= next_s:
                judged_s = run.elapsed_s
                best.offer()
                next_s = run.elapsed_s + JUDGE_EVERY * (run.elapsed_s - judged_s)
    best.offer()
