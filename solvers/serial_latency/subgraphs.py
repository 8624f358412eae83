"""Local search with a cost per subgraph: moves of whole pieces.

No cut can express this cost, because the levels that count subgraphs
(:func:`placekit.objectives.serial_latency.subgraph_levels`) depend on whole paths. A piece is one subgraph, or
connected ops of one device. It moves to another device if the objective falls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import njit
from placekit.objectives import SerialLatency
from placekit.solvers.assignment.flat import FlatProblem, flatten
from placekit.solvers.generic.coarsen import Contraction

__all__ = ["PieceSearch", "fewest_subgraphs"]

MAX_WORK = 1e9
"""Largest number of ops and edges that a search visits, in a few seconds."""


def fewest_subgraphs(contraction: Contraction) -> int:
    """Return a lower bound on the number of subgraphs: the number of devices that must be used.

    A class that is allowed on one device needs that device, and the used devices need enough memory together.
    """
    platform = contraction.problem.platform
    is_only = contraction.allowed.sum(axis=1) == 1
    forced = int(contraction.allowed[is_only].any(axis=0).sum())
    limits = np.sort(platform.memory_limits_bytes)[::-1]
    # slightly fewer bytes, because sums are rounded
    need = float(contraction.memory_bytes.sum()) * (1 - 1e-11)
    holding = int(np.searchsorted(np.cumsum(limits), need)) + 1
    return max(forced, min(holding, platform.num_devices), 1)


class PieceSearch:
    """Moves of whole pieces, judged by work, transfers and subgraphs together.

    Parameters
    ----------
    contraction
        A contracted problem under `SerialLatency`.
    """

    def __init__(self, contraction: Contraction[SerialLatency]) -> None:
        graph = contraction.problem.graph
        objective = contraction.problem.objective
        self.contraction = contraction
        self.subgraph_cost_s = objective.subgraph_cost_s
        self.flat: FlatProblem = flatten(contraction)
        self._time_s = np.ascontiguousarray(self.flat.time_s[:, self.flat.kind, 0])
        self._net_time_s = np.ascontiguousarray(self.flat.net_time_s[:, self.flat.kind, 0])
        rank = np.empty(graph.num_ops, dtype=np.int64)
        rank[graph.order] = np.arange(graph.num_ops)
        along = np.argsort(rank[graph.senders], kind="stable")
        self._senders = np.ascontiguousarray(graph.senders[along])
        self._receivers = np.ascontiguousarray(graph.receivers[along])
        self.work_per_trial = graph.num_ops + graph.num_edges + len(self.flat.net_pins)

    def levels(self, device: NDArray[np.int64]) -> NDArray[np.int64]:
        """``[num_ops]`` levels under ``[num_classes]`` devices."""
        levels: NDArray[np.int64] = _levels(self._senders, self._receivers, self.contraction.expand(device))
        return levels

    def value_s(self, device: NDArray[np.int64]) -> float:
        """Return the objective of ``[num_classes]`` devices in seconds."""
        num_devices = len(self.flat.kind)
        of_op = self.contraction.expand(device)
        level = _levels(self._senders, self._receivers, of_op)
        moved = _transfers(device, self.flat.net_offsets, self.flat.net_pins, self._net_time_s)
        work = float(self._time_s[np.arange(len(device)), device].sum())
        num_calls: int = _count(level * num_devices + of_op)
        return float(work + moved + self.subgraph_cost_s * num_calls)

    def improve(
        self, device: NDArray[np.int64], should_stop: Callable[[], bool] | None = None
    ) -> Iterator[NDArray[np.int64]]:
        """Yield better and better ``[num_classes]`` devices, until no move of a piece helps or a limit is reached.

        Notes
        -----
        O(ops + edges) per trial, one trial per piece and device, `MAX_WORK` in all.
        """
        device = device.copy()
        best = self.value_s(device)
        trials = int(MAX_WORK / self.work_per_trial)
        has_moved = True
        while has_moved:
            has_moved = False
            for piece in self._pieces(device):
                here = device[piece]
                for there in range(len(self.flat.kind)):
                    if (here == there).all() or not self._may_hold(piece, device, there):
                        continue
                    if trials <= 0 or (should_stop is not None and should_stop()):
                        return
                    trials -= 1
                    here = device[piece]
                    device[piece] = there
                    value = self.value_s(device)
                    if value < best * (1 - 1e-12):
                        best, has_moved = value, True
                        yield device.copy()
                    else:
                        device[piece] = here

    def _may_hold(self, piece: NDArray[np.int64], device: NDArray[np.int64], there: int) -> bool:
        if not self.flat.allowed[piece, there].all():
            return False
        if np.isinf(self.flat.limit_bytes[there]):
            return True
        size = self.flat.memory_bytes
        held = float(size[device == there].sum()) + float(size[piece[device[piece] != there]].sum())
        return held <= float(self.flat.limit_bytes[there])

    def _pieces(self, device: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return sets of classes, small ones first: connected ops of one device, a whole subgraph, single classes."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        of_op = self.contraction.expand(device)
        num_ops, num_devices = len(of_op), len(self.flat.kind)
        inside = of_op[self._senders] == of_op[self._receivers]
        edges = (np.ones(int(inside.sum())), (self._senders[inside], self._receivers[inside]))
        component = connected_components(coo_array(edges, shape=(num_ops, num_ops)), directed=False)[1]
        subgraph = self.levels(device) * num_devices + of_op
        pieces: dict[bytes, NDArray[np.int64]] = {}
        for label in (component, subgraph):
            by_label = np.argsort(label, kind="stable")
            for ops in np.split(by_label, np.flatnonzero(np.diff(label[by_label])) + 1):
                piece = np.unique(self.contraction.class_of_op[ops])
                pieces.setdefault(piece.tobytes(), piece)
        if len(device) * num_devices * self.work_per_trial <= MAX_WORK / 5:
            for c in range(len(device)):
                single = np.array([c])
                pieces.setdefault(single.tobytes(), single)
        return sorted(pieces.values(), key=len)


@njit
def _levels(senders: NDArray[np.int64], receivers: NDArray[np.int64], device: NDArray[np.int64]) -> NDArray[np.int64]:
    """`subgraph_levels` for edges that are sorted along a topological order."""
    level = np.zeros(len(device), dtype=np.int64)
    for at in range(len(senders)):
        u, v = senders[at], receivers[at]
        level[v] = max(level[v], level[u] + (1 if device[u] != device[v] else 0))
    return level


@njit
def _count(labels: NDArray[np.int64]) -> int:
    seen = np.zeros(labels.max() + 1, dtype=np.bool_)
    number = 0
    for label in labels:
        if not seen[label]:
            seen[label] = True
            number += 1
    return number


@njit
def _transfers(
    device: NDArray[np.int64],
    net_offsets: NDArray[np.int64],
    net_pins: NDArray[np.int64],
    net_time: NDArray[np.float64],
) -> float:
    total = 0.0
    stamp = np.full(net_time.shape[1], -1)
    for net in range(len(net_time)):
        first = device[net_pins[net_offsets[net]]]
        is_split = False
        touched = 0.0
        for at in range(net_offsets[net], net_offsets[net + 1]):
            d = device[net_pins[at]]
            is_split = is_split or d != first
            if stamp[d] != net:
                stamp[d] = net
                touched += net_time[net, d]
        if is_split:
            total += touched
    return total
