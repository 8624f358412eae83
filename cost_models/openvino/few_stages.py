"""Cut the ops of every device into few stages that can run one after another.

A device whose ops others interrupt has to be cut; how often depends on the order in which the devices take turns. The
fewest turns are a shortest common supersequence (Raiha and Ukkonen 1981, NP-hard for many devices), so they are
approximated, exactly in the cases that matter: one stage per device wherever that is possible, and the least number
for two devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import number_by_first, topological_order
from placekit.io.models.openvino_graph import STATEFUL
from placekit.model.graph import OpGraph

NO_STAGE = -1
"""Stage of a Parameter or Result, which are the ends of the model and not work."""

_BOUNDARY = frozenset({"Parameter", "Result"})


def few_stages(
    graph: OpGraph, device_of_op: NDArray[np.int64], colocation: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Return the stage of every op: the ops of a stage are on one device, and no stage waits for a later one.

    What keeps a state, ops of one label of `colocation`, is in one stage, wherever one device has all of it.

    Devices take turns; in its turn a device runs everything that it can. The next turn goes to

    1. a device that can finish in it: it needs one more turn anyway, and a turn now is as good as any later;
    2. else the device with the op from which most changes of device follow, the lower index among equals.

    By 1. there is one stage per device if the devices do not wait for each other in a circle. With two devices the
    number of stages is the least possible: after the first turn they alternate, so only the first choice matters, and
    the longest alternation has to start on the device that 2. chooses.

    Parameters
    ----------
    graph
        The ops; Parameter and Result have no stage.
    device_of_op
        ``[num_ops]`` device of every op.
    colocation
        ``[num_ops]`` labels of `ModelSource.colocation`; only those of ops that read or assign a state are looked at.

    Returns
    -------
    NDArray[np.int64]
        ``[num_ops]`` stages ``0 .. num_stages - 1`` in the order in which they run, or `NO_STAGE`.

    Examples
    --------
    >>> graph = OpGraph.from_edges(["a", "b", "c", "d"], [("a", "b"), ("b", "c")])
    >>> few_stages(graph, np.array([0, 1, 0, 1])).tolist()  # d, which needs nothing, waits for b's turn
    [0, 1, 2, 1]

    Notes
    -----
    O(edges * devices) per turn at worst; a device is looked at again only after it got new work.
    """
    works = np.array([op_type not in _BOUNDARY for op_type in graph.op_types])
    unit = np.arange(graph.num_ops) if colocation is None else _units(graph, device_of_op, colocation)
    order = graph.order
    if len(np.unique(unit)) < graph.num_ops:
        senders, receivers = unit[graph.senders], unit[graph.receivers]
        is_between = senders != receivers
        order, stuck = topological_order(int(unit.max()) + 1, senders[is_between], receivers[is_between])
        if stuck.size:  # states that wait for each other: whoever cuts the model says so
            return few_stages(graph, device_of_op)
    _, first = np.unique(unit, return_index=True)
    edges = zip(unit[graph.senders].tolist(), unit[graph.receivers].tolist(), strict=True)
    return _Turns(edges, order.tolist(), device_of_op[first], works[first]).run()[unit]


def _units(graph: OpGraph, device_of_op: NDArray[np.int64], colocation: NDArray[np.int64]) -> NDArray[np.int64]:
    """``[num_ops]`` numbers: ops that keep a state together share one if they are on one device."""
    is_state = np.isin(graph.op_types, sorted(STATEFUL))
    labels = np.arange(graph.num_ops)
    for label in np.unique(colocation[is_state]).tolist():
        ops = np.flatnonzero(colocation == label)
        if len(np.unique(device_of_op[ops])) == 1:
            labels[ops] = ops[0]
    return number_by_first(labels)


class _Turns:
    """The devices taking turns; see `few_stages`."""

    def __init__(
        self,
        edges: Iterable[tuple[int, int]],
        order: Sequence[int],
        device_of_op: NDArray[np.int64],
        works: NDArray[np.bool_],
    ) -> None:
        self._device: list[int] = device_of_op.tolist()
        self._consumers: list[list[int]] = [[] for _ in works]
        self._waits_for = [0] * len(works)
        for sender, receiver in edges:
            if sender != receiver and works[sender] and works[receiver]:
                self._consumers[sender].append(receiver)
                self._waits_for[receiver] += 1
        self._changes_after = [0] * len(works)
        for op in reversed(order):
            changes = (self._changes_after[c] + (self._device[c] != self._device[op]) for c in self._consumers[op])
            self._changes_after[op] = max(changes, default=0)
        self._ready: dict[int, list[int]] = {}
        self._left: dict[int, int] = {}
        self._turn: dict[int, list[int]] = {}  # what a device would run now, where that is known
        for op in order:
            if works[op]:
                self._left[self._device[op]] = self._left.get(self._device[op], 0) + 1
                if not self._waits_for[op]:
                    self._ready.setdefault(self._device[op], []).append(op)

    def run(self) -> NDArray[np.int64]:
        stage_of_op = np.full(len(self._device), NO_STAGE, dtype=np.int64)
        number = 0
        while self._ready:
            stage_of_op[self._take_turn(self._choose())] = number
            number += 1
        return stage_of_op

    def _choose(self) -> int:
        for device in self._ready:
            if device not in self._turn:
                self._turn[device] = self._runnable(device)
        for device in sorted(self._ready):
            if len(self._turn[device]) == self._left[device]:
                return device
        return max(sorted(self._ready), key=lambda each: max(self._changes_after[op] for op in self._ready[each]))

    def _runnable(self, device: int) -> list[int]:
        """Return what `device` can run without the others' help."""
        turn = list(self._ready[device])
        waits_for: dict[int, int] = {}
        for op in turn:  # grows on the way
            for consumer in self._consumers[op]:
                if self._device[consumer] == device:
                    waits_for[consumer] = waits_for.get(consumer, self._waits_for[consumer]) - 1
                    if not waits_for[consumer]:
                        turn.append(consumer)
        return turn

    def _take_turn(self, device: int) -> list[int]:
        turn = self._turn.pop(device)
        del self._ready[device]
        self._left[device] -= len(turn)
        for op in turn:
            for consumer in self._consumers[op]:
                self._waits_for[consumer] -= 1
                other = self._device[consumer]
                if other != device:
                    self._turn.pop(other, None)  # also if the consumer still waits: now only for its own device, maybe
                    if not self._waits_for[consumer]:
                        self._ready.setdefault(other, []).append(consumer)
        return turn
