"""Large-neighbourhood search for the offload latency: CP-SAT re-optimises a few nodes at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from placekit.graph import topological_order
from placekit.method import Run
from placekit.placement import Placement
from placekit.solvers.backends.cpsat import CpsatLimits, Outcome, search
from placekit.solvers.lns.operators import Operator, adjacency, choose_operators, region, search_side_by_side
from placekit.solvers.offload_latency.cp_model import OffloadModel
from placekit.solvers.offload_latency.flat import OffloadProblem
from placekit.solvers.offload_latency.opening import open_offload
from placekit.solvers.offload_latency.plans import node_places
from placekit.solvers.offload_latency.search import search_offload
from placekit.solvers.params import LocalSearchParams
from placekit.stop import StopReason

__all__ = ["search_neighbourhoods"]

FIRST_SIZE = 25
"""Free nodes of the first neighbourhoods; more once CP-SAT is quick with them, fewer when it is not."""
SMALLEST_SIZE = 6
START_SHARE = 0.25
"""Share of the time limit that the annealing before may take."""
ANNEAL_AFTER = 20
"""Rounds without a better placement after which annealing has another go."""
_OPERATORS = ("time", "region", "border", "call")
SHRINK = 0.85
"""Factor of the size after a neighbourhood that was not closed."""


@dataclass(slots=True)
class _Search:
    """Where the search stands.

    Parameters
    ----------
    run, flat, effort
        The solve, its flat problem, and the limit of one neighbourhood.
    neighbours
        Nodes next to each node.
    rank
        ``[N]`` place of each node in a topological order.
    place
        ``[N]`` place of each node.
    start_s
        ``[N]`` seconds at which the call or host op of each node starts.
    """

    run: Run
    flat: OffloadProblem
    effort: float
    neighbours: list[NDArray[np.int64]]
    rank: NDArray[np.int64]
    place: NDArray[np.int64]
    start_s: NDArray[np.float64]
    operators: list[Operator] = field(
        default_factory=lambda: [Operator(name, FIRST_SIZE, SMALLEST_SIZE, SHRINK) for name in _OPERATORS]
    )


@dataclass(frozen=True, eq=False)
class _Task:
    """One neighbourhood to search."""

    operator: Operator
    model: OffloadModel
    is_everything: bool
    seed: int


def search_neighbourhoods(run: Run, patience: int, effort: float, workers: int) -> StopReason:
    """Search until told to stop, or until `patience` rounds in a row brought nothing.

    1. Annealing (:mod:`placekit.solvers.offload_latency.search`) gives the first placement.
    2. Draw the nodes that may move: neighbours in time, a connected region, nodes along the border of a call, or of
       one call. All others keep their calls, whose order on a device stays; which of the slots of a device they take
       is drawn, so that a new call can come before, between or behind.
    3. CP-SAT minimises the latency (:mod:`placekit.solvers.offload_latency.cp_model`). Equal latencies are taken, too.
    4. Kinds of neighbourhoods that succeed are drawn more often; sizes adapt to what CP-SAT closes in its limit. A
       neighbourhood that is the whole problem and is closed is a proof.
    5. When nothing moves any more, annealing has another go.

    Parameters
    ----------
    run
        The run; its problem's objective is the offload latency, without contiguity.
    patience
        Rounds without improvement after which the search ends.
    effort
        Limit of one neighbourhood in CP-SAT's deterministic time.
    workers
        Neighbourhoods that are searched side by side.
    """
    flat = open_offload(run)
    with run.limited_to(None if run.remaining_s is None else START_SHARE * run.remaining_s):
        search_offload(run, LocalSearchParams(patience=5, steps=100))
    reason = run.should_stop()
    if reason is not None or run.placement is None:
        return reason or StopReason.FINISHED
    it = _begin(run, flat, effort)
    if it is None:
        return StopReason.FINISHED
    stale = 0
    while (reason := run.should_stop()) is None:
        if stale >= patience:
            return StopReason.FINISHED
        before_s = run.objective
        assert before_s is not None  # the search began with a placement
        if stale and stale % ANNEAL_AFTER == 0:
            search_offload(run, LocalSearchParams(patience=2))
            _stand_on(it, run.placement)
        elif _round(it, workers):
            return run.should_stop() or StopReason.FINISHED
        stale = 0 if run.objective is not None and run.objective < before_s * (1 - 1e-9) else stale + 1
    return reason


def _begin(run: Run, flat: OffloadProblem, effort: float) -> _Search | None:
    """Return the search at the best placement; None if that makes more calls than there are slots."""
    neighbours = adjacency(flat.senders, flat.receivers, flat.num_nodes)
    order, stuck = topological_order(flat.num_nodes, flat.senders, flat.receivers)
    rank = np.empty(flat.num_nodes, dtype=np.int64)
    rank[np.concatenate([order, stuck])] = np.arange(flat.num_nodes)
    nothing = np.zeros(flat.num_nodes, dtype=np.int64)
    it = _Search(run, flat, effort, neighbours, rank, nothing, np.zeros(flat.num_nodes))
    return it if _stand_on(it, run.placement) else None


def _stand_on(it: _Search, placement: Placement | None) -> bool:
    """Go on from `placement`; return False if there is none, or it makes more calls than there are slots."""
    place = None if placement is None else node_places(it.flat, placement)
    if placement is None or place is None:
        return False
    score = it.run.problem.objective.score(it.run.problem, placement.device_of_op, placement.step_of_op)
    assert score.schedule is not None  # the offload latency has a clock
    begin = np.full(len(it.flat.device_of_place) + it.flat.num_nodes, np.inf)
    node_of_op, num_places = it.flat.contraction.class_of_op, len(it.flat.device_of_place)
    is_call = place < num_places - len(it.flat.hosts)
    unit = np.where(is_call, place, num_places + np.arange(it.flat.num_nodes))
    ops = ~score.schedule.is_transfer
    np.minimum.at(begin, unit[node_of_op[score.schedule.op[ops]]], score.schedule.start_s[ops])
    it.place, it.start_s = place, begin[unit]
    return True


def _round(it: _Search, workers: int) -> bool:
    """Search some neighbourhoods side by side and go on from the best; return True if that proved the optimum."""
    run = it.run
    tasks = [_draw(it, operator) for operator in choose_operators(run.rng, it.operators, workers)]
    futures = search_side_by_side(lambda task: _optimise(it, task), tasks, workers)
    closed_all, value_s = False, run.objective
    assert value_s is not None  # the search began with a placement
    best_s, best = value_s, None
    for task, future in zip(tasks, futures, strict=True):
        outcome, answer = future.result()
        improved = False
        if answer is not None:
            objective = run.offer(answer).objective
            improved = objective is not None and objective < value_s * (1 - 1e-9)
            if objective is not None and objective <= best_s:
                best_s, best = objective, answer
        was_closed = outcome in (Outcome.OPTIMAL, Outcome.INFEASIBLE)
        task.operator.learn(succeeded=improved, was_closed=was_closed, largest=it.flat.num_nodes)
        closed_all |= task.is_everything and outcome is Outcome.OPTIMAL
    if best is not None:
        _stand_on(it, best)
    return closed_all


def _draw(it: _Search, operator: Operator) -> _Task:
    """Return a random neighbourhood of the operator's kind and size."""
    rng, flat, place = it.run.rng, it.flat, _spread(it)
    size = min(int(operator.size), flat.num_nodes)
    seed = int(rng.integers(flat.num_nodes))
    if size == flat.num_nodes:
        free = np.arange(size)
    elif operator.name == "time":
        in_time = np.lexsort((it.rank, it.start_s))
        at = int(np.clip(np.flatnonzero(in_time == seed)[0] - rng.integers(size), 0, flat.num_nodes - size))
        free = in_time[at : at + size]
    elif operator.name == "border":
        free = _border(it, size)
    elif operator.name == "call":
        mine = np.flatnonzero(place == place[seed])
        at = int(rng.integers(max(1, len(mine) - size + 1)))
        free = mine[np.argsort(it.rank[mine])][at : at + size]
    else:
        free = region(it.neighbours, [seed], size, rng)
    fixed = place.copy()
    fixed[free] = -1
    ceiling_s = it.run.objective
    assert ceiling_s is not None  # the search began with a placement
    model = OffloadModel(it.run.problem, flat, ceiling_s, it.run.bound or 0.0, fixed)
    model.hint_places(place)
    return _Task(operator, model, len(free) == flat.num_nodes, int(rng.integers(2**31)))


def _spread(it: _Search) -> NDArray[np.int64]:
    """Return the places with the calls of each device in random slots of it, in their order."""
    place, calls = it.place.copy(), it.flat.calls_per_device
    num_slots = len(it.flat.device_of_place) - len(it.flat.hosts)
    for first in range(0, num_slots if calls > 1 else 0, calls):
        on_device = (it.place >= first) & (it.place < first + calls)
        used, call = np.unique(it.place[on_device], return_inverse=True)
        place[on_device] = first + np.sort(it.run.rng.choice(calls, len(used), replace=False))[call]
    return place


def _border(it: _Search, size: int) -> NDArray[np.int64]:
    """Return nodes near the edges between a place and the others, nearest first."""
    flat, rng = it.flat, it.run.rng
    crossing = it.place[flat.senders] != it.place[flat.receivers]
    u, v = flat.senders[crossing], flat.receivers[crossing]
    if not len(u):
        return region(it.neighbours, [int(rng.integers(flat.num_nodes))], size, rng)
    one = int(rng.choice(it.place[np.concatenate([u, v])]))
    mine = (it.place[u] == one) | (it.place[v] == one)
    seeds = rng.permutation(np.unique(np.concatenate([u[mine], v[mine]])))
    return region(it.neighbours, seeds[: max(1, size // 2)].tolist(), size, rng)


def _optimise(it: _Search, task: _Task) -> tuple[Outcome, Placement | None]:
    """Let CP-SAT re-optimise a neighbourhood; return its word, and its best placement."""
    run = it.run
    answers: list[Placement] = []

    def see_bound(bound: float) -> None:
        run.raise_bound(task.model.scale.bound_s(bound), "CP-SAT bound")

    limits = CpsatLimits(workers=1, seed=task.seed, time_s=run.remaining_s, deterministic_time=it.effort)
    outcome = search(
        task.model,
        limits,
        lambda placement, _: answers.append(placement),
        see_bound if task.is_everything else None,
        lambda: run.should_stop() is not None,
    )
    return outcome, answers[-1] if answers else None
