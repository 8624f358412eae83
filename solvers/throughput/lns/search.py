"""Method ``lns`` for `Throughput`: CP-SAT re-optimises a part of the placement at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from placekit.model.contiguity import Contiguity
from placekit.model.graph import topological_order
from placekit.model.problem import Problem
from placekit.objectives import Throughput
from placekit.solve.method import Method, Run
from placekit.solve.result import OPTIMALITY_TOLERANCE
from placekit.solve.stop import StopReason
from placekit.solvers.assignment.cpsat.model import CpsatModel
from placekit.solvers.assignment.flat import flatten
from placekit.solvers.generic.baselines import offer_single_devices
from placekit.solvers.generic.coarsen import Contraction, contract
from placekit.solvers.generic.largest_op import largest_op
from placekit.solvers.generic.teams.fixed import on_partitions
from placekit.solvers.lns.driver import Drawn, NeighbourhoodSearch
from placekit.solvers.lns.operators import Operator
from placekit.solvers.params import LnsParams, LocalSearchParams
from placekit.solvers.throughput.dp.linear import offer_team_chains
from placekit.solvers.throughput.lns.neighbourhood import (
    FIRST_SIZE,
    OPERATORS,
    SMALLEST_SIZE,
    Position,
    draw,
    reduce_problem,
)
from placekit.solvers.throughput.local_search.anneal import score
from placekit.solvers.throughput.local_search.cycle import Cycle, Solution, run_cycle
from placekit.solvers.throughput.local_search.multilevel import search
from placekit.solvers.throughput.local_search.state import empty_state, overflow

__all__ = ["ThroughputLns", "is_below", "profile_of"]

START_PATIENCE = 10
"""V-cycles without improvement after which the local search hands over."""
START_SHARE = 0.25
"""Share of the time limit after which it hands over in any case."""

TOLERANCE = 1e-12
"""Relative difference below which two loads count as equal: they are kept up to date by additions."""


class ThroughputLns(Method):
    """Large-neighbourhood search for `Throughput` without contiguity.

    1. Local search (:mod:`placekit.solvers.throughput.local_search`) gives the first placement.
    2. Draw a neighbourhood around a fullest device: the classes of this device and one or two others; a region that
       grows along nets; a window of the topological order; or the classes on the border of the device. Everything
       else is fixed: all fixed classes of a device become one, so that the model's size is that of the neighbourhood.
    3. CP-SAT minimises the largest load of the devices concerned. The answer is taken if the sorted load vector falls
       lexicographically, so that two devices that are equally full are relieved one after the other.
    4. Kinds of neighbourhoods that succeed are drawn more often; sizes adapt to what CP-SAT closes in its limit.
       A neighbourhood that is the whole problem and is closed is a proof.
    5. When nothing moves any more, go on from a new placement, annealed and crossed with the best.
    """

    name = "lns"
    params_type = LnsParams
    argument = "patience"
    params: LnsParams

    def supports(self, problem: Problem[Throughput]) -> str | None:
        """Return None without contiguity, where the rest can stand still."""
        if problem.contiguity is not Contiguity.NONE:
            return f"its neighbourhoods do not keep parts {problem.contiguity}; use contiguity none"
        return super().supports(problem)

    def run(self, run: Run[Throughput]) -> StopReason:
        """Search until told to stop, or until `patience` neighbourhoods in a row brought nothing.

        With teams, of each partition; the best chain over all teams says which one to begin with.
        """
        offer_team_chains(run)
        return self._search(run)

    @on_partitions
    def _search(self, run: Run[Throughput]) -> StopReason:
        offer_single_devices(run)
        run.raise_bound(*largest_op(run.problem), tolerance=OPTIMALITY_TOLERANCE)
        with run.limited_to(None if run.remaining_s is None else START_SHARE * run.remaining_s):
            search(run, LocalSearchParams(patience=START_PATIENCE))
        reason = run.should_stop()
        if reason is not None or run.placement is None:
            return reason or StopReason.FINISHED
        contraction = contract(run.problem)
        flat = flatten(contraction)
        order, stuck = topological_order(contraction.num_classes, contraction.senders, contraction.receivers)
        rank = np.empty(contraction.num_classes, dtype=np.int64)
        rank[np.concatenate([order, stuck])] = np.arange(contraction.num_classes)
        device = contraction.restrict(run.placement.device_of_op)
        position = Position(flat, empty_state(flat), rank, device, run.rng)
        return _Search(run, self.params, contraction, position).search()


class _Search(NeighbourhoodSearch[NDArray[np.int64]]):
    """State of the search: `at`; answers are ``[C]`` devices."""

    restart_after = 25

    def __init__(
        self, run: Run[Throughput], params: LnsParams, contraction: Contraction[Throughput], at: Position
    ) -> None:
        super().__init__(run, params, [Operator(name, FIRST_SIZE, SMALLEST_SIZE) for name in OPERATORS], len(at.device))
        self.contraction, self.at = contraction, at

    def draw(self, operator: Operator) -> Drawn[NDArray[np.int64]]:
        """Return a neighbourhood around a fullest device."""
        flat, state, device = self.at.flat, self.at.state, self.at.device
        neighbourhood = draw(self.at, operator)
        score(flat, state, device)
        inside = neighbourhood.devices
        profile = profile_of(state.work_s[inside], state.moved_s[inside], flat.has_overlap)
        reduced, cluster = reduce_problem(flat, device, neighbourhood)
        model = CpsatModel(reduced, float(profile[0]))
        start = np.zeros(len(reduced.memory_bytes), dtype=np.int64)
        start[cluster] = device
        model.hint(start)
        return Drawn(model, lambda answer: answer[cluster], neighbourhood.is_everything)

    def take(self, found: Sequence[Sequence[NDArray[np.int64]]]) -> list[bool]:
        """Take the answer with the lowest load profile, and offer it if it is the best."""
        profile = best = self._profile(self.at.device)
        improved, taken = [], self.at.device
        for answers in found:
            fell = False
            for device in answers:
                after = self._profile(device)
                if overflow(self.at.flat, self.at.state) > 0:
                    continue  # by less than the rounding of the sizes
                fell = fell or is_below(after, profile)
                if is_below(after, best):
                    best, taken = after, device
            improved.append(fell)
        self.at.device = taken
        value, _ = score(self.at.flat, self.at.state, taken)
        if any(improved) and (self.run.objective is None or value < self.run.objective):
            self.run.offer(self.contraction.expand(taken), at_most=value)
        return improved

    def _profile(self, device: NDArray[np.int64]) -> NDArray[np.float64]:
        score(self.at.flat, self.at.state, device)
        return profile_of(self.at.state.work_s, self.at.state.moved_s, self.at.flat.has_overlap)

    def restart(self) -> None:
        """Go on from a new placement: annealed from a random one, then crossed with the best."""
        run, flat = self.run, self.at.flat
        best = self.contraction.restrict(run.placement.device_of_op) if run.placement is not None else self.at.device
        value, _ = score(flat, self.at.state, best)

        def should_stop() -> bool:
            return run.should_stop() is not None

        few = max(6 * len(flat.kind), 20)
        bold = Cycle(hot=0.3, num_clusters=few, steps_per_class=200, shuffle=True)
        fresh = run_cycle(flat, Solution(best, value), None, value, bold, run.rng, should_stop)
        self.at.device = best
        if not np.isfinite(fresh.objective_s):
            return
        cross = Cycle(hot=0.1, num_clusters=few, steps_per_class=200)
        crossed = run_cycle(flat, fresh, best, value, cross, run.rng, should_stop)
        if crossed.objective_s < value:
            run.offer(self.contraction.expand(crossed.device), at_most=crossed.objective_s)
        self.at.device = crossed.device


def profile_of(work_s: NDArray[np.float64], moved_s: NDArray[np.float64], has_overlap: bool) -> NDArray[np.float64]:
    """``[D]`` load profile of ``[D, P]`` seconds of work and of transfers.

    The loads are sorted, the largest first; of two passes the two sorted vectors are added. An answer is taken iff the
    profile falls lexicographically: plateaus of equal largest load are left, and no cycle is possible.
    """
    load_s = np.maximum(work_s, moved_s) if has_overlap else work_s + moved_s
    profile: NDArray[np.float64] = np.sort(load_s, axis=0)[::-1].sum(axis=1)
    return profile


def is_below(a: NDArray[np.float64], b: NDArray[np.float64]) -> bool:
    """Return True if profile `a` is lexicographically below `b`, by more than rounding."""
    differing = np.flatnonzero(np.abs(a - b) > TOLERANCE * max(a[0], b[0]))
    return len(differing) > 0 and bool(a[differing[0]] < b[differing[0]])
