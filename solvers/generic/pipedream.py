r"""Method ``pipedream``: the pipeline partitioner of PipeDream, over a line of ops and equal devices.

It is apart from :mod:`placekit.solvers.chain`, since it minimises PipeDream's objective, over an order that it makes.

Steps:

1. The classes are laid out in one topological order, which is contracted to a *linear path*: PipeDream knows only
   layers in a chain, so the order may be cut only where at most one tensor crosses. A branching region between two such
   places is one layer. With ``branches="cut"`` every place may be cut.
2. PipeDream knows one kind of device: the kind whose devices together finish all work first. A stage is a run of layers
   that the kind supports and that fits into the memory of one device.
3. ``A[j, m]``, the slowest stage of the first j layers on m devices, is computed for all j and m:

   .. math:: A[j, m] = \min_{i < j} \max\big(A[i, m - 1],\; B[i],\; T(i, j)\big)

   with the work :math:`T(i, j)` of layers :math:`i \ldots j - 1`, and the transfer :math:`B[i]` of the tensors that
   cross place i.
4. If no chain of stages fits, everything goes to the best single device that can take it.

Its **own objective** is the largest of all stage works and all transfers between stages (they overlap in PipeDream, and
activation and gradient of a place are sent both ways in training). In placekit's throughput a device pays for its work
plus all transfers, so the judge scores the answer anew, and `info` keeps PipeDream's own value
(`pipedream_objective_s`). Replicated stages (data parallelism) are left out, as in the comparison of Tarnawski et al.

References
----------
Narayanan et al., "PipeDream: generalized pipeline parallelism for DNN training", SOSP 2019, section 3.1;
Tarnawski et al., NeurIPS 2020, section 7 (the comparison, and the contraction to a linear path).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placekit.model.errors import InvalidProblemError
from placekit.solve.method import Method, Run
from placekit.solve.stop import StopReason
from placekit.solvers.generic.baselines import offer_single_devices
from placekit.solvers.generic.class_order import class_order, main_group, total_time_s
from placekit.solvers.generic.coarsen import Contraction, contract

_BRANCHES = ("contract", "cut")
LOOK_EVERY = 100
"""Places between two looks at whether to stop: of 100,000 layers some hundredths of a second."""


@dataclass(frozen=True, slots=True)
class PipeDreamParams:
    """Parameters of `PipeDream`.

    Parameters
    ----------
    branches
        ``"contract"``: a branching region is one layer, as PipeDream has it. ``"cut"``: the order may be cut anywhere,
        and all tensors that cross are sent.
    """

    branches: str = "contract"

    def __post_init__(self) -> None:
        if self.branches not in _BRANCHES:
            raise InvalidProblemError(f"pipedream: branches is {self.branches!r}; it must be one of {_BRANCHES}")


class PipeDream(Method):
    """Stages of a linear path on equal devices; see the module docstring for the rule and its own objective."""

    name = "pipedream"
    params_type = PipeDreamParams
    argument = "branches"
    params: PipeDreamParams

    def run(self, run: Run) -> StopReason:
        """Offer the one placement."""
        problem = run.problem
        contraction = contract(problem)
        order = class_order(contraction)
        devices = main_group(problem, contraction)
        crossing_s, num_crossing = crossings(contraction, order, int(problem.platform.kind_of_device[devices[0]]))
        places = np.arange(1, len(order)) if self.params.branches == "cut" else np.flatnonzero(num_crossing <= 1) + 1
        bounds = np.concatenate([[0], places[(places > 0) & (places < len(order))], [len(order)]]).astype(np.int64)
        stages = split_line(contraction, order, bounds, crossing_s, devices, lambda: run.should_stop() is not None)
        if stages is None:
            run.info["pipedream_objective_s"] = None
            offer_single_devices(run)
            return run.should_stop() or StopReason.FINISHED
        own_objective_s, ends = stages
        run.info["pipedream_objective_s"] = own_objective_s
        device = np.zeros(len(order), dtype=np.int64)
        for stage, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            device[order[begin:end]] = devices[stage]
        run.offer(contraction.expand(device))
        return StopReason.FINISHED


def crossings(
    contraction: Contraction, order: NDArray[np.int64], kind: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """``[num_classes - 1]`` seconds of the nets that cross each place between two classes of `order`, and their number.

    Place i lies after the first i + 1 classes. Nets that cost nothing on `kind` count, too: they are edges of the path.
    Several nets of one producer (forward and backward tensors, say) are one edge.
    """
    num_classes = contraction.num_classes
    rank = np.argsort(order)
    seconds, count = np.zeros(num_classes), np.zeros(num_classes, dtype=np.int64)
    if contraction.num_nets:
        pins = rank[contraction.net_pins]
        first = np.minimum.reduceat(pins, contraction.net_offsets[:-1])
        last = np.maximum.reduceat(pins, contraction.net_offsets[:-1])
        weight = contraction.net_time_s[:, kind].sum(axis=1)
        np.add.at(seconds, first, weight)
        np.add.at(seconds, last, -weight)
        seconds = np.maximum(np.cumsum(seconds), 0.0)  # the differences of sums may round below zero
    edges = np.stack([rank[contraction.senders], rank[contraction.receivers]])
    producers = np.full(num_classes, -1, dtype=np.int64)  # place at which each producer's last edge ends
    np.maximum.at(producers, edges.min(axis=0), edges.max(axis=0))
    starts = np.flatnonzero(producers >= 0)
    np.add.at(count, starts, 1)
    np.add.at(count, producers[starts], -1)
    return seconds[:-1], np.cumsum(count)[:-1]


def split_line(
    contraction: Contraction,
    order: NDArray[np.int64],  # ``[num_classes]`` the line
    bounds: NDArray[np.int64],  # ``[num_layers + 1]`` places between layers, from 0 to the number of classes
    crossing_s: NDArray[np.float64],  # ``[num_classes - 1]`` seconds of the tensors that cross after each class
    devices: list[int],  # the equal devices
    should_stop: Callable[[], bool] = lambda: False,  # asked now and then: then there is no answer
) -> tuple[float, list[int]] | None:
    """Run the dynamic program of the module docstring.

    Returns
    -------
    tuple[float, list[int]] or None
        PipeDream's own objective in seconds, and the place where each stage ends; None if no chain of stages fits, or
        if it was told to stop.

    Notes
    -----
    O(layers**2 * devices) time in vectors, O(layers * devices) memory. A stage must be supported by every device of
    the group (a pinned class belongs to one of them: its stage is then allowed on that one).
    """
    platform = contraction.problem.platform
    kind = int(platform.kind_of_device[devices[0]])
    limit = platform.memory_limits_bytes[devices[0]]
    work = np.concatenate([[0.0], np.cumsum(total_time_s(contraction)[order, kind])])[bounds]
    size = np.concatenate([[0.0], np.cumsum(contraction.memory_bytes[order])])[bounds]
    transfer = np.concatenate([[0.0], crossing_s, [0.0]])[bounds]
    num_layers = len(bounds) - 1
    best = np.full(num_layers + 1, math.inf)
    best[0] = 0.0
    parents: list[NDArray[np.int64]] = []
    answer: tuple[float, int] = (math.inf, 0)
    for m, device in enumerate(devices):
        refused = np.concatenate([[0], np.cumsum(~contraction.allowed[order, device])])[bounds]
        before, best = best, np.full(num_layers + 1, math.inf)
        parent = np.zeros(num_layers + 1, dtype=np.int64)
        for j in range(1, num_layers + 1):
            if j % LOOK_EVERY == 0 and should_stop():
                return None
            value = np.maximum(np.maximum(before[:j], transfer[:j]), work[j] - work[:j])
            value[(size[j] - size[:j] > limit) | (refused[j] > refused[:j])] = math.inf
            i = int(np.argmin(value))
            best[j], parent[j] = value[i], i
        parents.append(parent)
        if best[num_layers] < answer[0]:
            answer = (float(best[num_layers]), m + 1)
    if not math.isfinite(answer[0]):
        return None
    ends: list[int] = []
    j = num_layers
    for m in reversed(range(answer[1])):
        ends.append(int(bounds[j]))
        j = int(parents[m][j])
    return answer[0], ends[::-1]
