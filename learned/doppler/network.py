r"""The networks of DOPPLER: messages along the graph, SELECT over the ready ops, PLACE over the devices.

1. Messages, once per episode. For a few rounds every op hears its producers and its readers, through weights of their
   own, along edges that tell what the tensor costs:
   :math:`h_v \leftarrow \mathrm{LN}(h_v + \mathrm{ReLU}(W [h_v;\; \bar m_{in}(v);\; \bar m_{out}(v)]))` with means of
   :math:`m_{uv} = \mathrm{ReLU}(W' h_u + w' c_{uv})`.
2. SELECT: a score of every op from :math:`h_v`, its features, and the means of :math:`h` over the longest path to the
   exit and to the entry. The next op is drawn from the softmax over the ready ones. Scores do not change during an
   episode: SELECT is an order of priorities.
3. PLACE: for every device a hidden layer of :math:`h_v` and the longest path's mean, the mean of :math:`h` over the ops
   that are there, and what the op would meet on it (:mod:`placekit.learned.doppler.episodes`); one number per device,
   the next device is drawn from their softmax. The weights are the same for all devices: a policy serves any number.

Features of an op (`op_inputs`), with mean seconds of ops and tensors (:mod:`placekit.objectives.makespan.ranks`), all
in units of the mean op or of the longest path through the graph, so that times may be scaled:

* log(1 + .) of mean and least seconds of the op, of the seconds of its inputs, and of its outputs;
* t-level and b-level, the longest paths that end before the op and begin with it, their sum, and both without tensors;
* log(1 + .) of the numbers of inputs and readers, and the share of the ops' memory.

The longest path itself is followed as well: `exit_next` is the reader on the way to the exit, `entry_next` the producer
on the way from the entry.

Shapes
------
``V`` ops, ``H`` hidden, ``B`` episodes, ``S`` steps (one per op), ``D`` devices.

References
----------
Yao et al., "DOPPLER: dual-policy learning for device assignment in asynchronous dataflow graphs", arXiv 2505.23131.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import embedding  # rows by index; the gradient of [] is slower
from torch_geometric.utils import scatter

from placekit.arrays import sum_by
from placekit.learned.doppler.episodes import FEATURES
from placekit.objectives.makespan.arrays import MakespanInstance
from placekit.objectives.makespan.ranks import downward_rank, mean_time_s, mean_transfer_s, upward_rank

LARGEST_SCORE = 8.0
"""Scores of SELECT stay within this: sums of their exponentials over steps keep their digits."""


@dataclass(frozen=True, eq=False)
class OpInputs:
    """Ops as tensors."""

    features: Tensor  # ``[V, F]`` float32; see the module docstring
    # senders, receivers: ``[E]`` ends of every pair of tensor and reader
    senders: Tensor
    receivers: Tensor
    edge_cost: Tensor  # ``[E]`` log(1 + mean seconds of the tensor), in units of the mean op
    # exit_next, entry_next: ``[V]`` the next op on the longest path to the exit, and to the entry; V where it ends
    exit_next: Tensor
    entry_next: Tensor
    longest_path: int  # ops on the longest of these paths
    unit_s: float  # seconds of the mean op
    urgency: NDArray[np.float64]  # ``[V]`` b-levels in seconds: the order of the teacher


def op_inputs(instance: MakespanInstance) -> OpInputs:
    """Return what the policies see of the ops. O(V K + E log E)."""
    num_ops = instance.num_ops
    mean_s, moves_s = mean_time_s(instance), mean_transfer_s(instance)
    least_s = np.where(instance.is_supported, instance.op_time_s, np.inf).min(axis=1)
    least_s = np.where(np.isfinite(least_s), least_s, 0.0)
    unit_s = float(mean_s.mean()) or 1.0
    senders = np.repeat(np.arange(num_ops), np.diff(instance.edge_offsets))
    receivers, edge_s = instance.edge_readers, moves_s[instance.edge_tensors]
    b_level, t_level = upward_rank(instance, mean_s, moves_s), downward_rank(instance, mean_s, moves_s)
    still = np.zeros_like(moves_s)
    b_bare, t_bare = upward_rank(instance, mean_s, still), downward_rank(instance, mean_s, still)
    longest_s, bare_s = (float((b + t).max()) or 1.0 for b, t in ((b_level, t_level), (b_bare, t_bare)))
    memory = instance.memory_bytes / (float(instance.memory_bytes.sum()) or 1.0)
    seconds = np.stack([mean_s, least_s, sum_by(receivers, edge_s, num_ops), sum_by(senders, edge_s, num_ops)], axis=1)
    degrees = np.stack([np.bincount(ends, minlength=num_ops) for ends in (receivers, senders)], axis=1)
    levels = np.stack([t_level, b_level, t_level + b_level], axis=1) / longest_s
    bare = np.stack([t_bare, b_bare], axis=1) / bare_s
    columns = [np.log1p(seconds / unit_s), levels, bare, np.log1p(degrees), memory[:, None]]
    exit_next, towards = _next(senders, receivers, edge_s + b_level[receivers], instance)
    entry_next, back = _next(receivers, senders, (t_level + mean_s)[senders] + edge_s, instance)
    return OpInputs(
        features=torch.from_numpy(np.concatenate(columns, axis=1)).float(),
        senders=torch.from_numpy(senders),
        receivers=torch.from_numpy(receivers.copy()),
        edge_cost=torch.from_numpy(np.log1p(edge_s / unit_s)).float(),
        exit_next=torch.from_numpy(exit_next),
        entry_next=torch.from_numpy(entry_next),
        longest_path=max(towards, back),
        unit_s=unit_s,
        urgency=b_level,
    )


def _next(
    ends: NDArray[np.int64], others: NDArray[np.int64], path_s: NDArray[np.float64], instance: MakespanInstance
) -> tuple[NDArray[np.int64], int]:
    """``[V]`` other end of the edge of longest path of every op, V for none; ops on the longest chain of them."""
    num_ops = instance.num_ops
    found = np.full(num_ops, num_ops)
    along = np.lexsort((-instance.rank[others], path_s, ends))
    found[ends[along]] = others[along]  # the last one stays: the longest, ties by topological position
    length = np.ones(num_ops + 1, dtype=np.int64)
    length[num_ops] = 0
    is_forward = bool((instance.rank[others] > instance.rank[ends]).all()) if len(ends) else True
    for op in instance.order[::-1] if is_forward else instance.order:
        length[op] = 1 + length[found[op]]
    return found, int(length.max())


class Embedded(NamedTuple):
    """Outputs of the network for every op before an episode."""

    score: Tensor  # ``[V]`` of SELECT
    # own, joins: ``[V, H]`` what an op adds to the hidden layer of PLACE; see
    # :func:`placekit.learned.doppler.episodes.play`
    own: Tensor
    joins: Tensor


class DopplerNetwork(nn.Module):
    """Both policies; see the module docstring.

    Parameters
    ----------
    num_features
        Columns of `OpInputs.features`.
    hidden
        Width of the embeddings.
    rounds
        Rounds of messages.

    Notes
    -----
    O(rounds (V H + E) H + V H log(longest path)) per episode batch, O(B S D H FEATURES) for its decisions.
    """

    def __init__(self, num_features: int, hidden: int, rounds: int) -> None:
        super().__init__()
        self.enter = nn.Sequential(nn.Linear(num_features, hidden), nn.LayerNorm(hidden), nn.ReLU())
        self.say = nn.ModuleList(nn.Linear(hidden, 2 * hidden) for _ in range(rounds))
        self.edge = nn.ModuleList(nn.Linear(1, 2 * hidden, bias=False) for _ in range(rounds))
        self.hear = nn.ModuleList(nn.Linear(3 * hidden, hidden) for _ in range(rounds))
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(rounds))
        self.select = nn.Sequential(nn.Linear(3 * hidden + num_features, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.own = nn.Linear(2 * hidden, hidden)
        self.joins = nn.Linear(hidden, hidden, bias=False)
        self.sees = nn.Linear(FEATURES, hidden, bias=False)
        self.says = nn.Linear(hidden, 1, bias=False)

    def forward(self, inputs: OpInputs) -> Embedded:
        """Return what is said of every op."""
        h: Tensor = self.enter(inputs.features)
        cost = inputs.edge_cost.to(h.dtype)[:, None]
        senders, receivers = inputs.senders, inputs.receivers
        for say, edge, hear, norm in zip(self.say, self.edge, self.hear, self.norms, strict=True):
            forwards, backwards = say(h).chunk(2, dim=1)
            cost_forwards, cost_backwards = edge(cost).chunk(2, dim=1)
            heard = [
                scatter(torch.relu(embedding(senders, forwards) + cost_forwards), receivers, 0, len(h), "mean"),
                scatter(torch.relu(embedding(receivers, backwards) + cost_backwards), senders, 0, len(h), "mean"),
            ]
            h = norm(h + torch.relu(hear(torch.cat([h, *heard], dim=1))))
        to_exit = _path_means(h, inputs.exit_next, inputs.longest_path)
        from_entry = _path_means(h, inputs.entry_next, inputs.longest_path)
        score = self.select(torch.cat([h, to_exit, from_entry, inputs.features], dim=1))[:, 0]
        return Embedded(
            LARGEST_SCORE * torch.tanh(score / LARGEST_SCORE),
            self.own(torch.cat([h, to_exit], dim=1)),
            self.joins(h),
        )

    def place_log_probs(
        self,
        embedded: Embedded,  # what `forward` returned
        prior: Tensor,  # ``[V, D]`` what is added to the numbers of the devices
        # op_of_step, chosen: ``[B, S]`` op of every step, and the device that it went to
        op_of_step: Tensor,
        chosen: Tensor,
        # seen, may: ``[B, S, D, FEATURES]`` and ``[B, S, D]`` what PLACE saw, and where it might place
        seen: Tensor,
        may: Tensor,
    ) -> Tensor:
        """``[B, S, D]`` log-probabilities of PLACE in every state of some episodes."""
        went = torch.nn.functional.one_hot(chosen, may.shape[2]).to(embedded.own.dtype)  # [B, S, D]
        joined = went[:, :, :, None] * embedding(op_of_step, embedded.joins)[:, :, None]
        before = went.cumsum(dim=1) - went
        there = (joined.cumsum(dim=1) - joined) / before.clamp_min(1)[:, :, :, None]
        layer = embedding(op_of_step, embedded.own)[:, :, None] + there + self.sees(seen.to(there.dtype))
        logits = self.says(torch.relu(layer))[:, :, :, 0] + prior[op_of_step]
        return torch.log_softmax(logits.masked_fill(~may, -torch.inf), dim=2)


def select_log_probs(
    score: Tensor,  # ``[V]`` scores
    # op_of_step, ready_from: ``[B, S]`` op of every step, and ``[B, V]`` the step from which every op is ready
    op_of_step: Tensor,
    ready_from: Tensor,
) -> tuple[Tensor, Tensor]:
    """``[B, S]`` logarithm of the sum of the ready ops' exponentials, and the entropy of SELECT, at every step.

    The log-probability of an op that is ready is its score minus the first. O(B V): an op is ready from one step to
    another, so that sums over ready ops are differences of running sums.
    """
    weights = score.double().exp()
    values = torch.stack([weights, weights * score.double()])  # [2, V]
    shape = (2, *ready_from.shape)
    comes = values.new_zeros(shape).scatter_add(
        2, ready_from.expand(shape), values[:, None].expand(shape)
    )  # what becomes ready at a step
    goes = values[:, op_of_step]  # what is picked there, and is gone after it
    total, weighted = comes.cumsum(dim=2) - (goes.cumsum(dim=2) - goes)
    log_total = total.clamp_min(1e-300).log()
    return log_total.to(score.dtype), (log_total - weighted / total.clamp_min(1e-300)).to(score.dtype)


def _path_means(h: Tensor, following: Tensor, longest: int) -> Tensor:
    """``[V, H]`` the mean of `h` over the path that begins in every op, from each op to the `following` one.

    O(V H log(longest path)): every round doubles how much of the path a sum covers.
    """
    nowhere = torch.tensor([len(h)])
    step = torch.cat([following, nowhere])
    total = torch.cat([torch.cat([h, h.new_ones(len(h), 1)], dim=1), h.new_zeros(1, h.shape[1] + 1)])
    covered = 1
    while covered < longest:
        total = total + total[step]
        step = step[step]
        covered *= 2
    return total[:-1, :-1] / total[:-1, -1:]
