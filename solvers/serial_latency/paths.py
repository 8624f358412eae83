r"""Lower bound with a cost per subgraph: a path with j device changes runs through at least j + 1 subgraphs.

Reason: the level of an op rises with every device change on a path
(:func:`placekit.objectives.serial_latency.subgraph_levels`), so each change starts another subgraph. The same holds for
an average of paths. With weights :math:`f_{uv} \ge 0` that form a flow of one unit through the graph,

.. math:: \#subgraphs(x) \ge 1 + \max_P \#changes_P(x) \ge 1 + \sum_{uv} f_{uv} [x_u \ne x_v]

So work plus transfers plus :math:`a \, (1 + \sum f_{uv} [x_u \ne x_v])` is a lower bound on the objective of every
placement x. Its minimum is one minimum cut, with every edge as a net of two pins. The labels stay valid: merging a
device into a dominating one (:mod:`placekit.solvers.serial_latency.labels`) adds no device changes.

The best weights solve a game: one player picks a cut, the other a path. Fictitious play approaches them: cut, find the
path with the most changes, and mix it into the weights with the share :math:`2 / (t + 2)`. The cuts are good
placements, too, because they avoid long chains of changes.

References
----------
Robinson, "An iterative method of solving a game", Annals of Mathematics 54(2), 1951.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import njit
from placekit.objectives import SerialLatency
from placekit.solve.certificates import Prices
from placekit.solvers.backends.flow import FLOAT_SLACK, Cut
from placekit.solvers.generic.coarsen import Contraction
from placekit.solvers.serial_latency.certificates import PathWeights, cut_prices, flow_prices
from placekit.solvers.serial_latency.expansion import best_labels
from placekit.solvers.serial_latency.labels import Labels

MAX_CUTS = 60
"""Rounds of the game; the last third hardly improves the bound."""


@dataclass(frozen=True, eq=False)
class PathCut:
    """Cut of one round of the game."""

    labels: Labels  # the costs with a net for every weighted edge
    label: NDArray[np.int64]  # ``[num_classes]`` labels: the best ones for two labels, good ones for more
    cut: Cut | None  # the proof; None for more than two labels
    subgraph_cost_s: float  # cost of a subgraph in seconds
    paths: PathWeights  # the weighted edges, with the net of each

    def bound_of(self, floor_s: float) -> float:
        """Return a lower bound on the serial latency from one on the cost of `labels`, in seconds."""
        # the weights along a path add up to one but for rounding
        return (floor_s + self.subgraph_cost_s) * (1 - 2 * FLOAT_SLACK)

    @property
    def bound_s(self) -> float:
        """Lower bound of the cut in seconds; 0 without a cut."""
        return 0.0 if self.cut is None else self.bound_of(self.cut.bound)

    def certificate(self, contraction: Contraction, flow_s: NDArray[np.float64] | None = None) -> Prices | None:
        """Return the certificate of `bound_s`, or of a bound on the cost of `labels` by ``[pins, labels]`` flows."""
        if flow_s is None:
            return None if self.cut is None else cut_prices(contraction, self.labels, self.cut, paths=self.paths)
        return flow_prices(contraction, self.labels, flow_s, paths=self.paths)


def price_paths(
    contraction: Contraction[SerialLatency],  # the contracted problem, with a cost per subgraph
    labels: Labels,  # at least two labels
) -> Iterator[PathCut]:
    """Yield the rounds of the game between cuts and paths.

    Notes
    -----
    One flow and one sweep over the edges per round, `MAX_CUTS` rounds; for more than two labels one alpha-expansion.
    """
    graph = contraction.problem.graph
    objective = contraction.problem.objective
    cost_s = objective.subgraph_cost_s
    along = np.argsort(graph.rank[graph.senders], kind="stable")
    senders, receivers = graph.senders[along], graph.receivers[along]
    ends = contraction.class_of_op[senders], contraction.class_of_op[receivers]
    weight = np.zeros(len(senders))
    label, _ = best_labels(labels)
    for t in range(MAX_CUTS):
        path = _longest_path(senders, receivers, contraction.expand(label))
        share = 2.0 / (t + 2.0)
        weight *= 1 - share
        weight[path] += share
        priced = np.flatnonzero((weight > 0) & (ends[0] != ends[1]))
        with_edges = replace(
            labels,
            net_offsets=np.concatenate([labels.net_offsets, len(labels.net_pins) + 2 * np.arange(1, len(priced) + 1)]),
            net_pins=np.concatenate([labels.net_pins, np.stack([end[priced] for end in ends], axis=1).ravel()]),
            # an edge between two devices pays half at each end
            net_time_s=np.concatenate(
                [labels.net_time_s, np.repeat(cost_s / 2 * weight[priced, None], labels.num_labels, axis=1)]
            ),
        )
        label, cut = best_labels(with_edges)
        used = np.flatnonzero(weight)
        net = np.full(len(weight), -1)
        net[priced] = len(labels.net_time_s) + np.arange(len(priced))
        yield PathCut(with_edges, label, cut, cost_s, (senders[used], receivers[used], weight[used], net[used]))


@njit
def _longest_path(
    senders: NDArray[np.int64], receivers: NDArray[np.int64], device: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the edges of a path with the most device changes; `senders` are in a topological order."""
    level = np.zeros(len(device), dtype=np.int64)
    arrived_by = np.full(len(device), -1)
    for at in range(len(senders)):
        u, v = senders[at], receivers[at]
        reached = level[u] + (1 if device[u] != device[v] else 0)
        if reached > level[v]:
            level[v] = reached
            arrived_by[v] = at
        elif arrived_by[v] < 0 and reached == level[v]:
            arrived_by[v] = at
    op = np.argmax(level)
    length = 0
    walk = op
    while arrived_by[walk] >= 0:
        walk = senders[arrived_by[walk]]
        length += 1
    path = np.empty(length, dtype=np.int64)
    for i in range(length):
        path[length - 1 - i] = arrived_by[op]
        op = senders[arrived_by[op]]
    return path
