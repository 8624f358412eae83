"""Large-neighbourhood search for the offload latency: CP-SAT re-optimises a few nodes at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from placekit.graph import topological_order
from placekit.method import Run
from placekit.placement import Placement
from placekit.solvers.lns.driver import Drawn, NeighbourhoodSearch, offer_answers
from placekit.solvers.lns.operators import Operator, adjacency, region
from placekit.solvers.offload_latency.cp_model import OffloadModel
from placekit.solvers.offload_latency.flat import OffloadProblem
from placekit.solvers.offload_latency.mechanisms import OffloadLnsParams
from placekit.solvers.offload_latency.opening import open_offload
from placekit.solvers.offload_latency.plans import node_places
from placekit.solvers.offload_latency.search import search_offload
from placekit.solvers.params import LocalSearchParams
from placekit.stop import StopReason

__all__ = ["search_neighbourhoods"]

START_SHARE = 0.25
"""Share of the time limit that the annealing before may take."""
OPERATORS = ("time", "region", "border", "call")
"""Which nodes are free: neighbours in time, a connected region, nodes along the border of a call, or of one call."""


def search_neighbourhoods(run: Run, params: OffloadLnsParams) -> StopReason:
    """Search until told to stop, or until `patience` rounds in a row brought nothing.

    1. Annealing (:mod:`placekit.solvers.offload_latency.search`) gives the first placement.
    2. Draw the nodes that may move (`OPERATORS`). All others keep their calls, whose order on a device stays; which of
       the slots of a device they take is drawn, so that a new call can come before, between or behind.
    3. CP-SAT minimises the latency (:mod:`placekit.solvers.offload_latency.cp_model`). Equal latencies are taken, too.
    4. When nothing moves any more, annealing has another go.

    Parameters
    ----------
    run
        The run; its problem's objective is the offload latency, without contiguity.
    params
        How to search.
    """
    if not params.mechanisms.neighbourhoods:
        return search_offload(run, LocalSearchParams(patience=params.patience))
    flat = open_offload(run)
    with run.limited_to(None if run.remaining_s is None else START_SHARE * run.remaining_s):
        search_offload(run, LocalSearchParams(patience=5, steps=100))
    reason = run.should_stop()
    if reason is not None or run.placement is None:
        return reason or StopReason.FINISHED
    it = _Search(run, params, flat)
    return it.search() if it.stand_on(run.placement) else StopReason.FINISHED


class _Search(NeighbourhoodSearch[Placement]):
    """Where the search stands.

    Attributes
    ----------
    rank, place
        ``[N]`` place of each node in a topological order, and in the placement.
    start_s
        ``[N]`` seconds at which the call or host op of each node starts.
    """

    restart_after = 20

    def __init__(self, run: Run, params: OffloadLnsParams, flat: OffloadProblem) -> None:
        super().__init__(run, params, [Operator(name) for name in OPERATORS], flat.num_nodes)
        self.flat = flat
        self.neighbours = adjacency(flat.senders, flat.receivers, flat.num_nodes)
        order, stuck = topological_order(flat.num_nodes, flat.senders, flat.receivers)
        self.rank: NDArray[np.int64] = np.argsort(np.concatenate([order, stuck]))

    def stand_on(self, placement: Placement) -> bool:
        """Go on from `placement`; return False if it makes more calls than there are slots."""
        flat, place = self.flat, node_places(self.flat, placement)
        if place is None:
            return False
        score = self.run.problem.objective.score(self.run.problem, placement.device_of_op, placement.step_of_op)
        assert score.schedule is not None  # the offload latency has a clock
        begin = np.full(len(flat.device_of_place) + flat.num_nodes, np.inf)
        node_of_op, num_places = flat.contraction.class_of_op, len(flat.device_of_place)
        unit = np.where(place < num_places - len(flat.hosts), place, num_places + np.arange(flat.num_nodes))
        ops = ~score.schedule.is_transfer
        np.minimum.at(begin, unit[node_of_op[score.schedule.op[ops]]], score.schedule.start_s[ops])
        self.place, self.start_s = place, begin[unit]
        return True

    def restart(self) -> None:
        """Anneal, and go on from the best."""
        search_offload(self.run, LocalSearchParams(patience=2))
        if self.run.placement is not None:
            self.stand_on(self.run.placement)

    def take(self, found: Sequence[Sequence[Placement]]) -> list[bool]:
        """Offer the placements, and go on from the best."""
        assert self.run.objective is not None  # the search began with a placement
        improved, best = offer_answers(self.run, found, self.run.objective)
        if best is not None:
            self.stand_on(best[0])
        return improved

    def draw(self, operator: Operator) -> Drawn[Placement]:
        """Return a neighbourhood around a random node."""
        rng, flat, place = self.run.rng, self.flat, self._spread()
        size = min(int(operator.size), flat.num_nodes)
        seed = int(rng.integers(flat.num_nodes))
        if size == flat.num_nodes:
            free = np.arange(size)
        elif operator.name == "time":
            in_time = np.lexsort((self.rank, self.start_s))
            at = int(np.clip(np.flatnonzero(in_time == seed)[0] - rng.integers(size), 0, flat.num_nodes - size))
            free = in_time[at : at + size]
        elif operator.name == "border":
            free = self._border(size)
        elif operator.name == "call":
            mine = np.flatnonzero(place == place[seed])
            at = int(rng.integers(max(1, len(mine) - size + 1)))
            free = mine[np.argsort(self.rank[mine])][at : at + size]
        else:
            free = region(self.neighbours, [seed], size, rng)
        fixed = place.copy()
        fixed[free] = -1
        ceiling_s = self.run.objective
        assert ceiling_s is not None  # the search began with a placement
        model = OffloadModel(self.run.problem, flat, ceiling_s, self.run.bound or 0.0, fixed)
        model.hint_places(place)
        return Drawn(model, lambda placement: placement, len(free) == flat.num_nodes)

    def _spread(self) -> NDArray[np.int64]:
        """Return the places with the calls of each device in random slots of it, in their order."""
        place, calls = self.place.copy(), self.flat.calls_per_device
        num_slots = len(self.flat.device_of_place) - len(self.flat.hosts)
        for first in range(0, num_slots if calls > 1 else 0, calls):
            on_device = (self.place >= first) & (self.place < first + calls)
            used, call = np.unique(self.place[on_device], return_inverse=True)
            place[on_device] = first + np.sort(self.run.rng.choice(calls, len(used), replace=False))[call]
        return place

    def _border(self, size: int) -> NDArray[np.int64]:
        """Return nodes near the edges between a place and the others, nearest first."""
        flat, rng = self.flat, self.run.rng
        crossing = self.place[flat.senders] != self.place[flat.receivers]
        u, v = flat.senders[crossing], flat.receivers[crossing]
        if not len(u):
            return region(self.neighbours, [int(rng.integers(flat.num_nodes))], size, rng)
        one = int(rng.choice(self.place[np.concatenate([u, v])]))
        mine = (self.place[u] == one) | (self.place[v] == one)
        seeds = rng.permutation(np.unique(np.concatenate([u[mine], v[mine]])))
        return region(self.neighbours, seeds[: max(1, size // 2)].tolist(), size, rng)
