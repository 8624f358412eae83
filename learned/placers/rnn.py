r"""HDP, method ``rnn``: one network puts ops into groups, a recurrent one gives every group a device; REINFORCE.

1. Grouper: two linear layers per op, softmax over the groups. Sampled.
2. Embedding of a group: the mean features of its ops, its share of the ops, and its rows of the numbers of edges to and
   from the other groups, each divided by its largest entry plus one.
3. Placer: a bidirectional LSTM reads the groups; an LSTM writes one device per group, from its last device's embedding,
   with additive attention :math:`v^T \tanh(W q + W' m)` over what was read.

The published grouper has no notion of order, so that its first groups are random sets of ops. `RnnParams.locality` adds
:math:`-\lambda K |p_v - c_k|` to its logits, for the place :math:`p_v` of the op in topological order and the centre
:math:`c_k` of group k of K, both between 0 and 1; :math:`\lambda = 0` is the published one.

Shapes: ``B`` samples, ``N`` nodes, ``K`` groups, ``D`` devices.

References
----------
Mirhoseini et al., "A hierarchical model for device placement", ICLR 2018, section 3.
Mirhoseini et al., "Device placement optimization with reinforcement learning", ICML 2017 (the placer).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from placekit.learned.environment import Environment
from placekit.learned.group_graph import GroupGraph, best_single, group_graph, preference
from placekit.learned.learner import Learner, MovingBaseline, Rollout, TrainingParams, entropy
from placekit.learned.method import LearnedMethod


@dataclass(frozen=True)
class RnnParams(TrainingParams):
    """Parameters of `Rnn`; the published step size, 0.1, is for one sample per update and hours of training.

    Parameters
    ----------
    samples
        Placements per update.
    hidden
        Width of the LSTMs. Published: 512.
    groups_per_device
        Groups per device; never more groups than nodes. Published code: 20.
    locality
        See :mod:`placekit.learned.placers.rnn`; 0 as published.
    decay
        Share of the old baseline that an update keeps. Published: 0.9.
    deviations
        How many groups leave the preferred device in a placement, about, before anything is learned; the device is the
        best single one, or that of a warm start. 0 for no preference.
    """

    updates: int = 600
    patience: int = 200
    learning_rate: float = 2e-3
    entropy_start: float = 0.05
    entropy_end: float = 0.002
    entropy_updates: int = 200
    samples: int = 32
    hidden: int = 64
    groups_per_device: int = 20
    locality: float = 2.0
    decay: float = 0.9
    deviations: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("groups_per_device", least=1)
        self.require("samples", "hidden", least=2)
        self.require("locality", "deviations", "decay", least=0)
        self.require_that(self.hidden % 2 == 0, "hidden", "even")
        self.require_that(self.decay < 1, "decay", "below 1")


class RnnNetwork(nn.Module):
    """Grouper and placer; a sample costs O(N F + edges + K (K + F + hidden) hidden)."""

    def __init__(self, num_features: int, num_devices: int, num_groups: int, params: RnnParams) -> None:
        super().__init__()
        self.num_groups, self.locality, hidden = num_groups, params.locality, params.hidden
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

    def group_log_probs(self, graph: GroupGraph) -> Tensor:
        """Return ``[N, K]`` log-probabilities of the groups of every node."""
        place = torch.empty(graph.num_groups, dtype=graph.features.dtype)
        place[graph.order] = (torch.arange(graph.num_groups, dtype=place.dtype) + 0.5) / graph.num_groups
        centre = (torch.arange(self.num_groups, dtype=place.dtype) + 0.5) / self.num_groups
        prior = -self.locality * self.num_groups * (place[:, None] - centre).abs()
        return torch.log_softmax(self.grouper(graph.features) + prior, dim=1)

    def embed(self, graph: GroupGraph, member: Tensor, group: Tensor) -> Tensor:
        """Return ``[B, K, features + 1 + 2 K]`` embeddings of groups from membership ``[B, N, K]``."""
        size = member.sum(dim=1)[..., None]  # [B, K, 1]
        mean = member.transpose(1, 2) @ graph.features / size.clamp_min(1)
        pairs = group[:, graph.senders] * self.num_groups + group[:, graph.receivers]
        between = mean.new_zeros(len(group), self.num_groups**2)
        between = between.scatter_add(1, pairs, mean.new_ones(1).expand(pairs.shape))
        between = between.view(-1, self.num_groups, self.num_groups)
        rows = [counts / (counts.amax(dim=2, keepdim=True) + 1) for counts in (between, between.transpose(1, 2))]
        return torch.cat([mean, size / graph.num_groups, *rows], dim=2)


class RnnLearner(Learner):
    """Samples groupings and their devices; both networks learn from the same advantage.

    The cost is the square root of the time, as published, and the advantage is moving baseline *minus* cost. It is not
    divided by the deviation of the samples: where they agree, that would blow up the lag of the baseline. The published
    noise on the logits is replaced by an entropy bonus.
    """

    params: RnnParams
    policy: RnnNetwork
    baseline: MovingBaseline

    def __init__(self, environment: Environment, params: RnnParams) -> None:
        super().__init__(environment, params)
        self.graph = group_graph(environment)
        num_groups = min(params.groups_per_device * environment.num_devices, self.graph.num_groups)
        self.policy = RnnNetwork(self.graph.num_features, environment.num_devices, num_groups, params)
        self.baseline = MovingBaseline(params.decay)
        self.preferred = best_single(environment)
        self._first_allowed = torch.from_numpy(environment.mask.argmax(axis=1))

    def rollout(self, generator: torch.Generator) -> Rollout:
        """Sample `samples` placements; a decision per node, its group, and one per group that is not empty."""
        group, device, grouping, placing = self._decide(self.params.samples, generator)
        used = torch.zeros(device.shape, dtype=torch.bool).scatter_(1, group, value=True)
        samples = torch.arange(len(group))
        row = torch.cat([samples.repeat_interleave(self.graph.num_groups), samples.repeat_interleave(used.sum(dim=1))])
        of_nodes, of_groups = grouping.flatten(0, 1), placing[used]
        log_probs = [of_nodes.gather(1, group.flatten()[:, None]), of_groups.gather(1, device[used][:, None])]
        entropies = torch.cat([entropy(of_nodes), entropy(of_groups)])
        return Rollout(self._placements(group, device), row, torch.cat(log_probs)[:, 0], entropies)

    def advantages(self, rollout: Rollout, costs: Tensor) -> Tensor:
        """``[decisions]`` the advantage of the placement that each belongs to: the loss is a mean over decisions."""
        return self.baseline.advantages(costs.sqrt())[rollout.row] * len(costs) / len(rollout.row)

    def decode(self) -> NDArray[np.int64]:
        """Return the placement ``[1, num_ops]`` of the most probable groups and devices."""
        return self._placements(*self._decide(1, None)[:2])

    def _decide(self, samples: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Draw groups ``[B, N]`` and devices ``[B, K]``; return them and the log-probabilities that they come from.

        Without a generator they are the most probable ones.
        """
        graph, policy = self.graph, self.policy
        grouping = policy.group_log_probs(graph).expand(samples, -1, -1)
        group = _pick(grouping, generator)
        member = nn.functional.one_hot(group, policy.num_groups).to(grouping.dtype)  # [B, N, K]
        size = member.sum(dim=1)[..., None]
        likes = preference(self.preferred, graph.num_devices, self.params.deviations, policy.num_groups)
        liked = member.transpose(1, 2) @ likes.to(member.dtype) / size.clamp_min(1)
        # a group may go wherever one of its nodes may: those that may not go there are placed apart
        allowed = (member.transpose(1, 2) @ graph.mask.to(member.dtype) > 0) | (size == 0)
        memory, (last_h, last_c) = policy.reader(policy.embed(graph, member, group))
        key = policy.key(memory)
        h, c = (state.transpose(0, 1).reshape(samples, -1) for state in (last_h, last_c))
        said = policy.device_embedding.weight[-1].expand(samples, -1)
        devices, log_probs = [], []
        for k in range(policy.num_groups):
            if k:
                self.environment.check_stop()
            h, c = policy.writer(said, (h, c))
            attention = torch.softmax(policy.energy(torch.tanh(policy.query(h)[:, None] + key)), dim=1)  # [B, K, 1]
            context = (attention * memory).sum(dim=1)
            logits = policy.head(torch.cat([h, context], dim=1)) + liked[:, k]
            log_probs.append(torch.log_softmax(logits.masked_fill(~allowed[:, k], -torch.inf), dim=1))
            devices.append(_pick(log_probs[-1], generator))
            said = policy.device_embedding(devices[-1])
        return group, torch.stack(devices, dim=1), grouping, torch.stack(log_probs, dim=1)

    def _placements(self, group: Tensor, device: Tensor) -> NDArray[np.int64]:
        """Return ``[batch, num_ops]``: every node on its group's device, or on the first one where it may go."""
        wanted = device.gather(1, group)
        may = self.graph.mask[torch.arange(self.graph.num_groups), wanted]
        return self.environment.expand(torch.where(may, wanted, self._first_allowed).numpy())


def _pick(log_probs: Tensor, generator: torch.Generator | None) -> Tensor:
    """Sample from the last axis, or take its largest entry if there is no generator."""
    if generator is None:
        return log_probs.argmax(dim=-1)
    flat = log_probs.detach().exp().reshape(-1, log_probs.shape[-1])
    return torch.multinomial(flat, 1, generator=generator).view(log_probs.shape[:-1])


class Rnn(LearnedMethod):
    """HDP (Mirhoseini et al., ICLR 2018): grouper and sequence-to-sequence placer, trained together."""

    name = "rnn"
    params_type = RnnParams
    learner_type = RnnLearner
