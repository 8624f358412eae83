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

Shapes
------
``V`` ops, ``H`` hidden, ``B`` episodes, ``S`` steps (one per op), ``D`` devices.

References
----------
Yao et al., "DOPPLER: dual-policy learning for device assignment in asynchronous dataflow graphs", arXiv 2505.23131.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.utils import scatter

from placekit.learned.doppler.episodes import FEATURES
from placekit.learned.doppler.inputs import OpInputs

__all__ = ["DopplerNetwork", "Embedded", "select_log_probs"]

LARGEST_SCORE = 8.0
"""Scores of SELECT stay within this: sums of their exponentials over steps keep their digits."""


class Embedded(NamedTuple):
    """Outputs of the network for every op before an episode.

    Parameters
    ----------
    score
        ``[V]`` of SELECT.
    own, joins
        ``[V, H]`` what an op adds to the hidden layer of PLACE; see :func:`placekit.learned.doppler.episodes.play`.
    """

    score: Tensor
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
                scatter(torch.relu(forwards[senders] + cost_forwards), receivers, 0, len(h), "mean"),
                scatter(torch.relu(backwards[receivers] + cost_backwards), senders, 0, len(h), "mean"),
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
        self, embedded: Embedded, prior: Tensor, op_of_step: Tensor, chosen: Tensor, seen: Tensor, may: Tensor
    ) -> Tensor:
        """``[B, S, D]`` log-probabilities of PLACE in every state of some episodes.

        Parameters
        ----------
        embedded
            What `forward` returned.
        prior
            ``[V, D]`` what is added to the numbers of the devices.
        op_of_step, chosen
            ``[B, S]`` op of every step, and the device that it went to.
        seen, may
            ``[B, S, D, FEATURES]`` and ``[B, S, D]`` what PLACE saw, and where it might place.
        """
        went = torch.nn.functional.one_hot(chosen, may.shape[2]).to(embedded.own.dtype)  # [B, S, D]
        joined = went[:, :, :, None] * embedded.joins[op_of_step][:, :, None]
        before = went.cumsum(dim=1) - went
        there = (joined.cumsum(dim=1) - joined) / before.clamp_min(1)[:, :, :, None]
        layer = embedded.own[op_of_step][:, :, None] + there + self.sees(seen.to(there.dtype))
        logits = self.says(torch.relu(layer))[:, :, :, 0] + prior[op_of_step]
        return torch.log_softmax(logits.masked_fill(~may, -torch.inf), dim=2)


def select_log_probs(score: Tensor, op_of_step: Tensor, ready_from: Tensor) -> tuple[Tensor, Tensor]:
    """``[B, S]`` logarithm of the sum of the ready ops' exponentials, and the entropy of SELECT, at every step.

    The log-probability of an op that is ready is its score minus the first.

    Parameters
    ----------
    score
        ``[V]`` scores.
    op_of_step, ready_from
        ``[B, S]`` op of every step, and ``[B, V]`` the step from which every op is ready.

    Notes
    -----
    O(B V): an op is ready from one step to another, so that sums over ready ops are differences of running sums.
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

    Notes
    -----
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
