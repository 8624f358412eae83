r"""Training losses: cross-entropy of the label, and the relaxed objective of the scores.

The *relaxed objective* lets every op choose its device on its own, with probability :math:`p_{v,d}`. By linearity the
expected load of a device is exact,

.. math:: E[load(d)] = \sum_v p_{v,d} t_{v,d} + \sum_u c_{u,d} \Big( p_{u,d} \big(1 - \prod_r p_{r,d}\big)
    + (1 - p_{u,d}) \big(1 - \prod_r (1 - p_{r,d})\big) \Big)

over tensors u with producer u and readers r: a tensor leaves its device if a reader is elsewhere, and enters every
other device that has a reader. Then

* serial latency: the sum of the loads, exact;
* throughput: their p-norm, which is close to the largest;
* makespan: the p-norm of the loads of compute and of the longest path at expected times and transfers (a path that is
  longest at the present scores; its gradient is that of the longest path wherever there is only one).

The loss of a problem is ``w * cross-entropy + 2 log(relaxed objective / objective of the label)``, and for makespan
four times the squared error of the starts. Labels that are proven weigh most: `w` is ``1 / (1 + 4 gap)``, times a
factor by objective. Either side can be left out: what the relaxed objective teaches needs no label.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from placekit.learned.imitation.inputs import OBJECTIVES, Batch
from placekit.learned.imitation.network import Scores, sum_rows
from placekit.learned.imitation.targets import Targets

__all__ = ["imitation_loss", "relaxed_objective"]

_NORM = 8.0
_LEAST = 1e-6
_SERIAL, _MAKESPAN, _THROUGHPUT = range(len(OBJECTIVES))
_IMITATION = (1.0, 1.0, 0.5)
"""Weight of the cross-entropy by objective: without contiguity a balanced load has many equally good placements."""
_OF_START = 4.0
_DOUBT = 4.0


def relaxed_objective(batch: Batch, log_probs: Tensor) -> Tensor:
    """``[G]`` relaxed objective of every problem, in its unit; see the module docstring.

    Parameters
    ----------
    batch
        ``G`` problems.
    log_probs
        ``[N]`` log-probabilities of the states.
    """
    probs = torch.where(batch.allowed, log_probs.exp(), torch.zeros_like(log_probs))
    num_devices, num_graphs = len(batch.graph_of_device), len(batch.objective)
    of_rows = batch.producer_state
    log_here = sum_rows(probs.clamp_min(_LEAST).log()[batch.pair_reader], batch.pair_tensor, len(of_rows))
    log_away = sum_rows((1 - probs).clamp_min(_LEAST).log()[batch.pair_reader], batch.pair_tensor, len(of_rows))
    home = probs[of_rows]
    moved = batch.transfer * (home * (1 - log_here.exp()) + (1 - home) * (1 - log_away.exp()))
    work = sum_rows(probs * batch.time, batch.device_of_state, num_devices)
    load = work + sum_rows(moved, batch.device_of_state[of_rows], num_devices)
    serial = sum_rows(load, batch.graph_of_device, num_graphs)
    throughput = _norm(load, batch.graph_of_device, num_graphs)
    path = _longest_path(batch, probs)
    makespan = (_norm(work, batch.graph_of_device, num_graphs) ** 4 + path**4 + _LEAST) ** 0.25
    both = torch.stack([serial, makespan, throughput])
    chosen: Tensor = both.gather(0, batch.objective[None])[0]
    return chosen


def _norm(load: Tensor, graph: Tensor, num_graphs: int) -> Tensor:
    """``[G]`` p-norm of the loads of each problem: at least the largest."""
    largest = load.detach().new_zeros(num_graphs).scatter_reduce(0, graph, load.detach(), "amax").clamp_min(_LEAST)
    total = sum_rows((load / largest[graph]).clamp_min(0) ** _NORM, graph, num_graphs)
    return largest * total ** (1 / _NORM)


def _longest_path(batch: Batch, probs: Tensor) -> Tensor:
    """``[G]`` longest path at expected times and transfers, with the gradient of the path that is longest now."""
    num_ops, num_graphs = len(batch.graph_of_op), len(batch.objective)
    time = sum_rows(probs * batch.time, batch.op_of_state, num_ops)
    home, there = probs[batch.producer_state[batch.pair_tensor]], probs[batch.pair_reader]
    cost = batch.transfer[batch.pair_tensor] * (home * (1 - there) + there * (1 - home))
    transfer = sum_rows(cost, batch.edge_of_pair, len(batch.edge_from))
    on_path, edges_on_path = _trace(batch, time, transfer)
    total = sum_rows(time[on_path], batch.graph_of_op[on_path], num_graphs)
    return total + sum_rows(transfer[edges_on_path], batch.graph_of_op[batch.edge_from[edges_on_path]], num_graphs)


def _trace(batch: Batch, time: Tensor, transfer: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ops and the edges of a longest path in every problem. O(ops + edges)."""
    times, transfers = time.detach().cpu().tolist(), transfer.detach().cpu().tolist()
    senders, receivers = batch.edge_from.tolist(), batch.edge_to.tolist()
    end = list(times)  # producers come in topological order: what enters an op is final before it is read
    through = [-1] * len(times)
    for edge, (u, v) in enumerate(zip(senders, receivers, strict=True)):
        reached = end[u] + transfers[edge] + times[v]
        if reached > end[v]:
            end[v], through[v] = reached, edge
    graph = batch.graph_of_op.cpu().numpy()
    by_end = np.lexsort((end, graph))
    last = by_end[np.append(np.diff(graph[by_end]) > 0, True)]
    ops: list[int] = []
    edges: list[int] = []
    for op in last.tolist():
        ops.append(op)
        while through[ops[-1]] >= 0:
            edges.append(through[ops[-1]])
            ops.append(senders[edges[-1]])
    device = time.device
    return torch.tensor(ops, dtype=torch.int64, device=device), torch.tensor(edges, dtype=torch.int64, device=device)


def imitation_loss(
    batch: Batch, scores: Scores, targets: Targets, imitation: float = 1.0, relaxed: float = 2.0
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss of a batch, and its parts ``[G]`` by name.

    Parameters
    ----------
    batch, scores, targets
        ``G`` problems, what the network says of them, and their labels.
    imitation, relaxed
        Weights of what is imitated, devices and starts, and of the relaxed objective.
    """
    num_graphs = len(batch.objective)
    graph = batch.graph_of_op
    per_graph = sum_rows(torch.ones_like(scores.start), graph, num_graphs)
    surprise = sum_rows(-scores.log_probs[targets.state], graph, num_graphs) / per_graph
    factor = torch.tensor(_IMITATION, device=surprise.device)[batch.objective]
    weight = factor / (1 + _DOUBT * targets.gap.clamp(0, 10))
    # not the logarithm of the ratio: its gradient would be rounded by what the label is, and Adam enlarges that
    promised = relaxed_objective(batch, scores.log_probs).log() - targets.objective.clamp_min(_LEAST).log()
    has_start = ~targets.start.isnan()
    error = torch.where(has_start, scores.start - targets.start.nan_to_num(), torch.zeros_like(scores.start)) ** 2
    start = sum_rows(error, graph, num_graphs) / per_graph
    loss = (imitation * (weight * surprise + _OF_START * start) + relaxed * promised).mean()
    return loss, {"surprise": surprise.detach(), "promised": promised.detach(), "start": start.detach()}
