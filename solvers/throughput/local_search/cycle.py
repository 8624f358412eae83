"""One V-cycle: cluster, anneal the clusters, then smaller clusters, then the classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placekit.solvers.assignment.flat import FlatProblem
from placekit.solvers.generic.draws import Cooling
from placekit.solvers.throughput.local_search.anneal import anneal, score
from placekit.solvers.throughput.local_search.clusters import coarsen, find_clusters
from placekit.solvers.throughput.local_search.state import State, empty_state, load_state

CHUNK = 100_000
"""Proposals between two looks at the clock: some hundredths of a second."""
COLD = 0.003
"""Last temperature: moves that raise the potential by more than a few thousandths are over."""


@dataclass(frozen=True, slots=True)
class Solution:
    """A placement of classes, and its objective in seconds (infinity if it overfills a device)."""

    device: NDArray[np.int64]
    objective_s: float


@dataclass(frozen=True, slots=True)
class Cycle:
    """Settings of one V-cycle."""

    hot: float  # first temperature at the coarsest level; it halves from level to level
    num_clusters: int  # where coarsening stops
    steps_per_class: int  # proposals per class or cluster, at every level
    # work of the largest cluster, as a share of a device's fair load: large clusters move whole subgraphs, small ones
    # can be balanced
    share: float = 0.25
    squarings: int = 4  # the potential takes loads to the power ``2 ** squarings``
    # True to forget the devices of the start at the coarsest level; only where the problem is not ordered
    shuffle: bool = False


def _levels(
    flat: FlatProblem, labels: NDArray[np.int64], cycle: Cycle, rng: np.random.Generator
) -> list[tuple[FlatProblem, NDArray[np.int64]]]:
    """Return problems from fine to coarse, each with the cluster of every class of the one before."""
    levels = [(flat, np.arange(len(labels)))]
    most_s = cycle.share * float(flat.time_s.sum(axis=2).min(axis=1).sum()) / len(flat.kind)
    while len(labels) > cycle.num_clusters:
        cluster, num_clusters = find_clusters(flat, labels, most_s, int(rng.integers(2**31)))
        if num_clusters > 0.95 * len(labels):
            break
        flat = coarsen(flat, cluster, num_clusters)
        levels.append((flat, cluster))
        coarse = np.zeros(num_clusters, dtype=np.int64)
        coarse[cluster] = labels
        labels = coarse
    return levels


def run_cycle(
    flat: FlatProblem,  # the problem at the level of classes
    start: Solution,  # where to start
    best_s: float,  # objective of the best placement known, in seconds, which sets the scale; infinity if there is none
    cycle: Cycle,  # how to go
    rng: np.random.Generator,  # source of all random choices
    should_stop: Callable[[], bool],  # asked between chunks; True ends the cycle early, with what it has
) -> Solution:
    """Return the best placement of one V-cycle from `start`; never a worse one unless the start is forgotten."""
    levels = _levels(flat, np.zeros_like(start.device) if cycle.shuffle else start.device, cycle, rng)
    device = start.device
    for _, cluster in levels[1:]:
        coarse = np.zeros(int(cluster.max()) + 1, dtype=np.int64)
        coarse[cluster] = device
        device = coarse
    best = Solution(device, start.objective_s)
    if cycle.shuffle:
        allowed = levels[-1][0].allowed
        device = np.argmax(rng.random(allowed.shape) * allowed, axis=1)
        best = Solution(device, np.inf)
    hot = cycle.hot
    for problem, cluster in reversed(levels):
        state = empty_state(problem)
        best = _anneal_level(problem, state, best, best_s, hot, cycle, rng, should_stop)
        hot = max(hot / 2, 2 * COLD)
        if problem is flat:
            return best
        best = Solution(best.device[cluster], best.objective_s)
    return best


def _anneal_level(
    flat: FlatProblem,
    state: State,
    best: Solution,
    best_s: float,
    hot: float,
    cycle: Cycle,
    rng: np.random.Generator,
    should_stop: Callable[[], bool],
) -> Solution:
    """Anneal from `best` in chunks; the walk goes on where the last chunk ended."""
    device = best.device.copy()
    value, over = score(flat, state, device)
    objective_s = value if over == 0 else np.inf
    # loads at par with the best placement known count 1; a hopeless start must not set the scale
    loads = state.work_s + state.moved_s
    known = min(value, best_s) if np.isfinite(best_s) else value
    scale = loads.max(axis=0) * (known / value if value > 0 else 1.0)
    scale = np.maximum(scale, max(1e-9 * float(scale.max()), 1e-290))
    num_steps = cycle.steps_per_class * len(device)
    num_chunks = -(-num_steps // CHUNK)
    edges = hot * (COLD / hot) ** (np.arange(num_chunks + 1) / num_chunks)
    for i in range(num_chunks):
        if should_stop():
            break
        steps = min(CHUNK, num_steps - i * CHUNK)
        if i:
            load_state(flat, state, state.device.copy())  # rounding errors of the last chunk's additions
        cooling = Cooling(float(edges[i]), float(edges[i + 1]), steps, int(rng.integers(2**31)))
        before, before_s = device.copy(), objective_s
        found_s = anneal(flat, state, device, objective_s, scale, cycle.squarings, cooling)
        if found_s < before_s:
            # moves add up their differences, which cancel where times are of very different sizes: once more, in full
            walked = state.device.copy()
            value, over = score(flat, state, device)
            objective_s = value if over == 0 else np.inf
            if objective_s >= before_s:
                device, objective_s = before, before_s
            load_state(flat, state, walked)
    # where nothing kept the memory limits, the end of the walk is nearer to doing so than its start
    return Solution(device if np.isfinite(objective_s) else state.device.copy(), objective_s)
