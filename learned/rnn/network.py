r"""The two networks of HDP: one puts ops into groups, the other gives every group a device.

1. Grouper: two linear layers per op, softmax over the groups. Sampled.
2. Embedding of a group: the mean features of its ops, its share of the ops, and its rows of the numbers of edges to and
   from the other groups, each divided by its largest entry plus one.
3. Placer: a bidirectional LSTM reads the groups; an LSTM writes one device per group, from its last device's embedding,
   with additive attention :math:`v^T \tanh(W q + W' m)` over what was read.

The published grouper has no notion of order, so that its first groups are random sets of ops. `locality` adds a term to
its logits, :math:`-\lambda K |p_v - c_k|` for the place :math:`p_v` of the op in topological order and the centre
:math:`c_k` of group k of K, both between 0 and 1; :math:`\lambda = 0` is the published one.

Shapes
------
``B`` samples, ``N`` nodes, ``K`` groups, ``D`` devices, ``H`` hidden width.

References
----------
Mirhoseini et al., "A hierarchical model for device placement", ICLR 2018, section 3.
Mirhoseini et al., "Device placement optimization with reinforcement learning", ICML 2017 (the placer).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from placekit.learned.group_graph import GroupGraph

__all__ = ["Decision", "RnnNetwork"]


class Decision(NamedTuple):
    """What was sampled for every sample of a batch.

    Parameters
    ----------
    group_of_node
        ``[B, N]`` group of every node.
    device_of_group
        ``[B, K]`` device of every group.
    group_log_probs, device_log_probs
        ``[B, N, K]`` and ``[B, K, D]`` log-probabilities of the distributions that both were sampled from.
    """

    group_of_node: Tensor
    device_of_group: Tensor
    group_log_probs: Tensor
    device_log_probs: Tensor


class RnnNetwork(nn.Module):
    """Grouper and placer; see the module docstring.

    Parameters
    ----------
    num_features, num_devices, num_groups
        Sizes.
    hidden
        Width of the LSTMs; even.
    locality
        See the module docstring.

    Notes
    -----
    A sample costs O(N F + edges + K (K + F + hidden) hidden).
    """

    def __init__(self, num_features: int, num_devices: int, num_groups: int, hidden: int, locality: float) -> None:
        super().__init__()
        self.num_groups, self.num_devices, self.locality = num_groups, num_devices, locality
        last = nn.Linear(64, num_groups)
        self.grouper = nn.Sequential(nn.Linear(num_features, 64), last)
        self.reader = nn.LSTM(num_features + 1 + 2 * num_groups, hidden // 2, batch_first=True, bidirectional=True)
        self.writer = nn.LSTMCell(hidden, hidden)
        self.device_embedding = nn.Embedding(num_devices + 1, hidden)  # the last one is the "go" vector
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.key = nn.Linear(hidden, hidden, bias=False)
        self.energy = nn.Linear(hidden, 1, bias=False)
        self.head = nn.Linear(2 * hidden, num_devices)
        nn.init.normal_(last.weight, std=0.01)
        nn.init.normal_(self.head.weight, std=0.01)
        nn.init.zeros_(self.head.bias)

    def forward(
        self,
        graph: GroupGraph,
        preference: Tensor,
        samples: int,
        generator: torch.Generator | None,
        check_stop: Callable[[], None] = lambda: None,
    ) -> Decision:
        """Sample groups and devices, or take the most probable ones.

        Parameters
        ----------
        graph
            The nodes.
        preference
            ``[N, D]`` added to the logits of a group: the mean over its nodes.
        samples
            ``B``.
        generator
            Source of randomness; None for the most probable groups and devices.
        check_stop
            Called between two groups; what it raises ends the placement.
        """
        logits = self.grouper(graph.features) + self._prior(graph)
        log_probs = torch.log_softmax(logits, dim=1)
        group = _pick(log_probs.expand(samples, -1, -1), generator)
        member = nn.functional.one_hot(group, self.num_groups).to(logits.dtype)  # [B, N, K]
        device, device_log_probs = self._place(graph, member, group, preference, generator, check_stop)
        return Decision(group, device, log_probs.expand(samples, -1, -1), device_log_probs)

    def _prior(self, graph: GroupGraph) -> Tensor:
        place = torch.empty(graph.num_groups, dtype=graph.features.dtype)
        place[graph.order] = (torch.arange(graph.num_groups, dtype=place.dtype) + 0.5) / graph.num_groups
        centre = (torch.arange(self.num_groups, dtype=place.dtype) + 0.5) / self.num_groups
        return -self.locality * self.num_groups * (place[:, None] - centre).abs()

    def embed(self, graph: GroupGraph, member: Tensor, group: Tensor) -> Tensor:
        """Return ``[B, K, features + 1 + 2 K]`` embeddings of groups from membership ``[B, N, K]``."""
        size = member.sum(dim=1)[..., None]  # [B, K, 1]
        mean = member.transpose(1, 2) @ graph.features / size.clamp_min(1)
        pairs = group[:, graph.senders] * self.num_groups + group[:, graph.receivers]
        between = mean.new_zeros(len(group), self.num_groups**2).scatter_add(
            1, pairs, mean.new_ones(1).expand(pairs.shape)
        )
        between = between.view(-1, self.num_groups, self.num_groups)
        rows = [counts / (counts.amax(dim=2, keepdim=True) + 1) for counts in (between, between.transpose(1, 2))]
        return torch.cat([mean, size / graph.num_groups, *rows], dim=2)

    def _place(
        self,
        graph: GroupGraph,
        member: Tensor,
        group: Tensor,
        preference: Tensor,
        generator: torch.Generator | None,
        check_stop: Callable[[], None],
    ) -> tuple[Tensor, Tensor]:
        """Return devices ``[B, K]`` and the log-probabilities ``[B, K, D]`` they come from."""
        size = member.sum(dim=1)[..., None]
        liked = member.transpose(1, 2) @ preference / size.clamp_min(1)
        # a group may go wherever one of its nodes may: those that may not go there are placed apart
        allowed = (member.transpose(1, 2) @ graph.mask.to(member.dtype) > 0) | (size == 0)
        memory, (last_h, last_c) = self.reader(self.embed(graph, member, group))
        key = self.key(memory)
        h, c = (state.transpose(0, 1).reshape(len(group), -1) for state in (last_h, last_c))
        said = self.device_embedding.weight[-1].expand(len(group), -1)
        devices, log_probs = [], []
        for k in range(self.num_groups):
            if k:
                check_stop()
            h, c = self.writer(said, (h, c))
            attention = torch.softmax(self.energy(torch.tanh(self.query(h)[:, None] + key)), dim=1)  # [B, K, 1]
            context = (attention * memory).sum(dim=1)
            logits = self.head(torch.cat([h, context], dim=1)) + liked[:, k]
            log_probs.append(torch.log_softmax(logits.masked_fill(~allowed[:, k], -torch.inf), dim=1))
            devices.append(_pick(log_probs[-1], generator))
            said = self.device_embedding(devices[-1])
        return torch.stack(devices, dim=1), torch.stack(log_probs, dim=1)


def _pick(log_probs: Tensor, generator: torch.Generator | None) -> Tensor:
    """Sample from the last axis, or take its largest entry if there is no generator."""
    if generator is None:
        return log_probs.argmax(dim=-1)
    flat = log_probs.detach().exp().reshape(-1, log_probs.shape[-1])
    return torch.multinomial(flat, 1, generator=generator).view(log_probs.shape[:-1])
