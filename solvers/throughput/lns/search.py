"""Method ``lns`` for `Throughput`: CP-SAT re-optimises a part of the placement at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from placekit.coarsen import Contraction, contract
from placekit.contiguity import Contiguity
from placekit.graph import topological_order
from placekit.method import Method, Run
from placekit.objectives import Throughput
from placekit.problem import Problem
from placekit.result import OPTIMALITY_TOLERANCE
from placekit.solvers.assignment.cpsat.model import CpsatModel
from placekit.solvers.assignment.flat import flatten
from placekit.solvers.backends.cpsat import CpsatLimits, Outcome
from placekit.solvers.backends.cpsat import search as solve_model
from placekit.solvers.generic.baselines import offer_single_devices
from placekit.solvers.generic.largest_op import largest_op
from placekit.solvers.lns.operators import Operator, choose_operators, search_side_by_side
from placekit.solvers.lns.uncertain import UNCERTAIN, uncertain_ops
from placekit.solvers.params import LnsParams, LocalSearchParams
from placekit.solvers.throughput.lns.neighbourhood import (
    FIRST_SIZE,
    OPERATORS,
    SMALLEST_SIZE,
    Neighbourhood,
    Position,
    draw,
    reduce_problem,
)
from placekit.solvers.throughput.local_search.anneal import score
from placekit.solvers.throughput.local_search.cycle import Cycle, Solution, run_cycle
from placekit.solvers.throughput.local_search.ejection import is_below, profile_of
from placekit.solvers.throughput.local_search.multilevel import search
from placekit.solvers.throughput.local_search.state import empty_state, overflow
from placekit.stop import StopReason

__all__ = ["ThroughputLns"]

START_PATIENCE = 10
"""V-cycles without improvement after which the local search hands over."""
START_SHARE = 0.25
"""Share of the time limit after which it hands over in any case."""
RESTART_AFTER = 25
"""Rounds without a better load profile after which the search goes on from another placement."""
DEFAULT_WORKERS = 2


@dataclass(slots=True)
class _Search(Position):
    """Where the search stands."""

    run: Run[Throughput]
    contraction: Contraction
    params: LnsParams
    operators: list[Operator] = field(init=False)

    def __post_init__(self) -> None:
        names = OPERATORS if self.weights is None else (*OPERATORS, UNCERTAIN)
        self.operators = [Operator(name, FIRST_SIZE, SMALLEST_SIZE) for name in names]


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
        return None

    def run(self, run: Run[Throughput]) -> StopReason:
        """Search until told to stop, or until `patience` neighbourhoods in a row brought nothing."""
        offer_single_devices(run)
        run.raise_bound(*largest_op(run.problem), tolerance=OPTIMALITY_TOLERANCE)
        weights = uncertain_ops(run) if self.params.uncertainty else None
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
        weights = None if weights is None else weights[contraction.leader]
        it = _Search(flat, empty_state(flat), rank, device, run.rng, weights, run, contraction, self.params)
        return _iterate(it)


def _iterate(it: _Search) -> StopReason:
    run = it.run
    stale = idle = 0
    while (reason := run.should_stop()) is None:
        if stale >= it.params.patience:
            return StopReason.FINISHED
        if idle >= RESTART_AFTER:
            it.device = _another_start(it)
            idle = 0
            continue
        before = run.objective
        improved, closed_all = _round(it)
        if closed_all:
            return run.should_stop() or StopReason.FINISHED
        better = run.objective is not None and before is not None and run.objective < before * (1 - 1e-9)
        stale, idle = 0 if better else stale + 1, 0 if improved else idle + 1
    return reason


def _round(it: _Search) -> tuple[bool, bool]:
    """Search some neighbourhoods side by side and take the best answer.

    Returns
    -------
    tuple[bool, bool]
        Whether the load profile fell, and whether a neighbourhood that is the whole problem was closed.
    """
    run, num_workers = it.run, it.params.workers or DEFAULT_WORKERS
    profile = _profile(it, it.device)
    operators = choose_operators(run.rng, it.operators, num_workers)
    tasks = [(draw(it, operator), int(run.rng.integers(2**31))) for operator in operators]
    models = [_model(it, neighbourhood) for neighbourhood, _ in tasks]
    work = [(model, neighbourhood, seed) for (neighbourhood, seed), (model, _) in zip(tasks, models, strict=True)]
    futures = search_side_by_side(lambda part: _search(it, *part), work, num_workers)
    best, improved, closed_all = profile, False, False
    for operator, (neighbourhood, _), (_, cluster), future in zip(operators, tasks, models, futures, strict=True):
        outcome, answers = future.result()
        fell = False
        for answer in answers:
            device = answer[cluster]
            after = _profile(it, device)
            if overflow(it.flat, it.state) > 0:
                continue  # by less than the rounding of the sizes
            fell = fell or is_below(after, profile)
            if is_below(after, best):
                best, it.device, improved = after, device, True
        operator.learn(succeeded=fell, was_closed=outcome is Outcome.OPTIMAL, largest=len(it.device))
        closed_all |= neighbourhood.is_everything and outcome is Outcome.OPTIMAL
    value, _ = score(it.flat, it.state, it.device)
    if improved and (run.objective is None or value < run.objective):
        run.offer(it.contraction.expand(it.device), at_most=value)
    return improved, closed_all


def _profile(it: _Search, device: NDArray[np.int64]) -> NDArray[np.float64]:
    score(it.flat, it.state, device)
    return profile_of(it.state.work_s, it.state.moved_s, it.flat.has_overlap)


def _model(it: _Search, neighbourhood: Neighbourhood) -> tuple[CpsatModel, NDArray[np.int64]]:
    """Return the model of a neighbourhood, started at the current placement, and its class of every class."""
    score(it.flat, it.state, it.device)
    inside = neighbourhood.devices
    profile = profile_of(it.state.work_s[inside], it.state.moved_s[inside], it.flat.has_overlap)
    reduced, cluster = reduce_problem(it.flat, it.device, neighbourhood)
    model = CpsatModel(reduced, float(profile[0]))
    start = np.zeros(len(reduced.memory_bytes), dtype=np.int64)
    start[cluster] = it.device
    model.hint(start)
    return model, cluster


def _search(
    it: _Search, model: CpsatModel, neighbourhood: Neighbourhood, seed: int
) -> tuple[Outcome, list[NDArray[np.int64]]]:
    """Let CP-SAT re-optimise a neighbourhood; return its word, and its incumbents, the best first."""
    run = it.run
    answers: list[NDArray[np.int64]] = []

    def see_bound(bound: float) -> None:
        run.raise_bound(model.scale.bound_s(bound), "CP-SAT bound")

    limits = CpsatLimits(workers=1, seed=seed, time_s=run.remaining_s, deterministic_time=it.params.effort)
    outcome = solve_model(
        model,
        limits,
        lambda found, _: answers.append(found),
        see_bound if neighbourhood.is_everything else None,
        lambda: run.should_stop() is not None,
    )
    return outcome, answers[::-1]


def _another_start(it: _Search) -> NDArray[np.int64]:
    """Return a new placement: annealed from a random one, then crossed with the best."""
    run, flat = it.run, it.flat
    best = it.contraction.restrict(run.placement.device_of_op) if run.placement is not None else it.device
    value, _ = score(flat, it.state, best)

    def should_stop() -> bool:
        return run.should_stop() is not None

    few = max(6 * len(flat.kind), 20)
    bold = Cycle(hot=0.3, num_clusters=few, steps_per_class=200, shuffle=True)
    fresh = run_cycle(flat, Solution(best, value), None, value, bold, run.rng, should_stop)
    if not np.isfinite(fresh.objective_s):
        return best
    cross = Cycle(hot=0.1, num_clusters=few, steps_per_class=200)
    crossed = run_cycle(flat, fresh, best, value, cross, run.rng, should_stop)
    if crossed.objective_s < value:
        run.offer(it.contraction.expand(crossed.device), at_most=crossed.objective_s)
    return crossed.device
