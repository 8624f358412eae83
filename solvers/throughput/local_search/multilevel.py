"""Method ``local-search`` for `Throughput`: multilevel annealing with restarts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from placekit.model.contiguity import Contiguity, quotient_cycle
from placekit.objectives import Throughput
from placekit.solve.method import Method, Run
from placekit.solve.result import OPTIMALITY_TOLERANCE
from placekit.solve.stop import StopReason
from placekit.solvers.assignment.flat import FlatProblem, flatten
from placekit.solvers.generic.baselines import offer_single_devices
from placekit.solvers.generic.bounds.largest_op import largest_op
from placekit.solvers.generic.bounds.work_and_path import raise_bounds_at_once
from placekit.solvers.generic.coarsen import Contraction, contract
from placekit.solvers.generic.excess import find_feasible
from placekit.solvers.generic.greedy import offer_filled
from placekit.solvers.generic.local_search import LocalSearch
from placekit.solvers.generic.teams.fixed import on_partitions
from placekit.solvers.params import PATIENCE, LocalSearchParams
from placekit.solvers.throughput.dp.linear import offer_best_chains, offer_team_chains
from placekit.solvers.throughput.local_search.anneal import score
from placekit.solvers.throughput.local_search.cycle import Cycle, Solution, run_cycle
from placekit.solvers.throughput.local_search.state import empty_state

FIRST_STEPS = 50
"""Proposals per class in the first cycle; doubled from cycle to cycle up to the parameter."""


class ThroughputLocalSearch(Method):
    """Multilevel local search for `Throughput` under any contiguity.

    1. Start from what is known (warm start, single devices), from ``greedy`` and from the chains of ``dpl``; if none is
       feasible, from where annealing of the excess leads (:mod:`placekit.solvers.generic.excess`).
    2. V-cycle: join classes into clusters along heavy nets (of the same device, if the start is to be kept), several
       levels deep; at the coarsest level, and then at every finer one, anneal single moves and swaps
       (:mod:`placekit.solvers.throughput.local_search.anneal`), cooler and cooler.
    3. Repeat from the best placement, at random temperatures and depths, or from a random placement of the coarsest
       clusters, until `patience` cycles in a row brought nothing.

    Under `Contiguity.ACYCLIC` every move keeps the quotient acyclic. Under `Contiguity.CONVEX` too, which is sound but
    not complete: some convex placements have a cyclic quotient. If no others are found, moves of single classes
    (:mod:`placekit.solvers.generic.local_search`) improve one of these. It proves nothing beyond the largest op.
    """

    name = "local-search"
    params_type = LocalSearchParams
    argument = "patience"
    params: LocalSearchParams

    def run(self, run: Run[Throughput]) -> StopReason:
        """Search until told to stop, or until `patience` cycles in a row brought nothing; with teams of each partition.

        The best chain over all teams says which partition to begin with.
        """
        raise_bounds_at_once(run)
        offer_team_chains(run)
        return self._search(run)

    @on_partitions
    def _search(self, run: Run[Throughput]) -> StopReason:
        offer_single_devices(run)
        run.raise_bound(*largest_op(run.problem), tolerance=OPTIMALITY_TOLERANCE)
        return search(run, self.params)


def search(
    run: Run[Throughput],
    params: LocalSearchParams,  # how to search
) -> StopReason:
    """Search from what `run` holds, and offer what is found; return why it ended.

    Notes
    -----
    A cycle costs O(steps * (classes + clusters)) proposals of O(nets of the class) each, and coarsening
    O(pins log pins); memory O(pins + nets * devices).
    """
    problem = run.problem
    if problem.contiguity is Contiguity.CONVEX:
        problem = problem.replace(contiguity=Contiguity.ACYCLIC)  # cycles fused: chains need an order
    contraction = contract(problem)
    flat = flatten(contraction)
    if not flat.allowed.any(axis=1).all():
        return StopReason.FINISHED
    best = _best_start(run, contraction, flat)
    if best is None:
        return LocalSearch(params).run(run) if run.placement else run.should_stop() or StopReason.FINISHED
    can_move = (flat.allowed.sum(axis=1) > 1).any()
    stale, number, patience = 0, 0, run.tries(params.patience, PATIENCE)
    while (reason := run.should_stop()) is None:
        if not can_move or stale >= patience or number == params.max_cycles:
            return StopReason.FINISHED
        cycle = _draw_cycle(run.rng, flat, params, number)
        found = run_cycle(flat, best, best.objective_s, cycle, run.rng, lambda: run.should_stop() is not None)
        number += 1
        stale += 1
        if found.objective_s < best.objective_s * (1 - 1e-9):
            best, stale = found, 0
            _offer(run, contraction, best)
    return reason


def _best_start(run: Run[Throughput], contraction: Contraction, flat: FlatProblem) -> Solution | None:
    """Return the best start, offered; None if none is feasible, or the only one has a cyclic quotient."""
    best: Solution | None = None
    state = empty_state(flat)
    for device in _starts(run, contraction, flat):
        value, over = score(flat, state, device)
        if over == 0 and (best is None or value < best.objective_s):
            best = Solution(device, value)
            _offer(run, contraction, best)
        if run.should_stop() is not None:
            break
    return best


def _draw_cycle(rng: np.random.Generator, flat: FlatProblem, params: LocalSearchParams, number: int) -> Cycle:
    """Return how cycle `number` goes: bold first, then at random between bold and careful."""
    shuffle = not flat.is_ordered and (0 < number <= 3 or bool(rng.random() < params.fresh))
    few = max(6 * len(flat.kind), 20)
    bold = shuffle or number == 0
    return Cycle(
        hot=0.3 if bold else 0.3 * float(rng.choice([0.1, 0.3, 1.0])),
        num_clusters=few if bold else max(few, len(flat.memory_bytes) // int(rng.choice([2, 4, 8, 32]))),
        steps_per_class=min(params.steps, FIRST_STEPS * 2 ** min(number, 20)),
        share=float(rng.choice([0.125, 0.25, 0.5, 1.0])),
        squarings=int(rng.choice([3, 4, 5])),
        shuffle=shuffle,
    )


def _offer(run: Run, contraction: Contraction, solution: Solution) -> None:
    run.offer(contraction.expand(solution.device), at_most=solution.objective_s)


def _starts(run: Run, contraction: Contraction, flat: FlatProblem) -> Iterator[NDArray[np.int64]]:
    """Yield placements of classes: the best one known, chains included, or what a search of its own finds."""
    if run.placement is None or run.should_stop() is None:  # for large problems, whose chains take seconds
        offer_filled(run, contract(run.problem) if contraction.problem is not run.problem else contraction)
    offer_best_chains(run, contraction)
    if run.placement is not None or find_feasible(run):
        yield from _known(run, contraction, flat)


def _known(run: Run, contraction: Contraction, flat: FlatProblem) -> Iterator[NDArray[np.int64]]:
    """Yield the best placement and the warm start, where classes are whole and wait in no circle."""
    classes = np.arange(len(flat.memory_bytes))
    for placement in (run.placement, run.warm_start):
        if placement is None:
            continue
        device = contraction.restrict(placement.device_of_op)
        is_allowed = bool(flat.allowed[classes, device].all())
        if is_allowed and (not flat.is_ordered or _is_acyclic(contraction, device)):
            yield device


def _is_acyclic(contraction: Contraction, device: NDArray[np.int64]) -> bool:
    num_devices = contraction.problem.platform.num_devices
    return not quotient_cycle(contraction.senders, contraction.receivers, device, num_devices)
