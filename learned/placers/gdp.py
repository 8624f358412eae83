r"""GDP, method ``gdp``: a graph network and segment-recurrent attention place the whole graph at once, trained by PPO.

1. Embedding (section 3.2): GraphSAGE with neighbours in both directions and a maximum over what they say,
   :math:`h_v \leftarrow \mathrm{ReLU}(W [h_v; \max_{u \in N(v)} \sigma(W' h_u + b')])`.
2. Placement (section 3.3): the groups in topological order, in segments. Every layer attends from a segment to itself
   and to the layer's inputs of the segment before, through which no gradient flows (Transformer-XL). There is no
   positional embedding: the graph embedding carries the order.
3. Superposition (section 3.4): the mean embedding of the graph gates the inputs of every layer's dense parts, so that
   one network can serve many graphs.
4. One distribution per group, independent of the others given the graph, over the devices of the problem that the
   network was made for: a policy serves other graphs, not other numbers of devices.

References
----------
Zhou et al., "GDP: generalized device placement for dataflow graphs", arXiv 1910.01578, 2019.
Hamilton, Ying, Leskovec, "Inductive representation learning on large graphs", NeurIPS 2017.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv

from placekit.learned.environment import Environment
from placekit.learned.group_graph import GroupGraph, best_single, group_graph, preference
from placekit.learned.learner import GroupwiseLearner, Rollout, TrainingParams
from placekit.learned.method import LearnedMethod

LEAST_DEVIATION = 0.01
"""Advantages shrink where samples deviate less than this, in units of the best single device.

Otherwise a policy that has settled would be shaken by every sample that differs in a hair.
"""


@dataclass(frozen=True)
class GdpParams(TrainingParams):
    """Parameters of `Gdp`. The paper gives none of the numbers; these are customary, and tuned on the zoo.

    Parameters
    ----------
    samples
        Placements per update.
    epochs, clip
        Steps of the optimiser per update; the ratio of new to old probability counts up to ``1 +- clip`` (PPO).
    deviations
        How many groups leave the preferred device in a placement, about, before anything is learned; the device is the
        best single one, or that of a warm start. 0 for no preference.
    hidden, rounds
        Width of the embeddings, and rounds of GraphSAGE.
    layers, heads, segment
        Layers of attention, heads of each, and groups in one segment.
    """

    updates: int = 600
    patience: int = 200
    learning_rate: float = 1e-3
    entropy_start: float = 0.1
    entropy_end: float = 0.01
    entropy_updates: int = 200
    epochs: int = 4
    clip: float = 0.2
    samples: int = 32
    deviations: float = 20.0
    hidden: int = 64
    rounds: int = 3
    layers: int = 2
    heads: int = 4
    segment: int = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("epochs", "hidden", "rounds", "layers", "heads", "segment", least=1)
        self.require("samples", least=2)
        self.require("deviations", least=0)
        self.require_that(0 < self.clip < 1, "clip", "between 0 and 1")
        self.require_that(self.hidden % self.heads == 0, "heads", f"a divisor of hidden, {self.hidden}")


class SegmentLayer(nn.Module):
    """Attention from a segment to itself and the segment before, with a feed-forward part."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(hidden, hidden)
        self.key_value = nn.Linear(hidden, 2 * hidden)
        self.out = nn.Linear(hidden, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.feed_forward = nn.Sequential(nn.Linear(hidden, 2 * hidden), nn.ReLU(), nn.Linear(2 * hidden, hidden))
        self.norm_out = nn.LayerNorm(hidden)

    def forward(self, x: Tensor, gates: Tensor, segment: int) -> Tensor:
        """Return ``[length, hidden]`` from `x` ``[length, hidden]``, in segments of `segment` rows.

        The gates ``[3, hidden]`` multiply `x`, what enters the projection after the attention, and the feed-forward
        part. All segments are known before the layer begins, so that those of full length go through at once.
        """
        x = gates[0] * x
        query, own, before = self.query(x), self.key_value(x), self.key_value(x.detach())
        whole = len(x) // segment
        last, end = max(whole - 1, 0) * segment, whole * segment
        attended = [self._attend(query[None, :segment], own[None, :segment])]
        if last:
            full = (whole - 1, segment, -1)
            known = torch.cat([before[:last].view(full), own[segment:end].view(full)], dim=1)
            attended.append(self._attend(query[segment:end].view(full), known))
        if 0 < end < len(x):
            attended.append(self._attend(query[None, end:], torch.cat([before[last:end], own[end:]])[None]))
        x = self.norm(x + self.out(gates[1] * torch.cat(attended)))
        result: Tensor = self.norm_out(x + self.feed_forward(gates[2] * x))
        return result

    def _attend(self, query: Tensor, key_value: Tensor) -> Tensor:
        """Return ``[segments * length, hidden]`` of `query` ``[segments, length, hidden]``."""

        def split(rows: Tensor) -> Tensor:  # [segments, heads, rows, hidden / heads]
            return rows.view(*rows.shape[:2], self.heads, -1).transpose(1, 2)

        key, value = key_value.chunk(2, dim=2)
        attended = nn.functional.scaled_dot_product_attention(split(query), split(key), split(value))
        return attended.transpose(1, 2).flatten(2).flatten(0, 1)


class GdpNetwork(nn.Module):
    """Logits of every group and device; see the module docstring, and `GdpParams` for the sizes.

    O(rounds * (edges + groups * hidden) * hidden + layers * groups * (segment + hidden) * hidden).
    """

    def __init__(self, num_features: int, num_devices: int, params: GdpParams) -> None:
        super().__init__()
        hidden, rounds, layers = params.hidden, params.rounds, params.layers
        self.segment = params.segment
        self.enter = nn.Sequential(nn.Linear(num_features, hidden), nn.LayerNorm(hidden), nn.ReLU())
        self.messages = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(rounds))
        self.updates = nn.ModuleList(SAGEConv(hidden, hidden, aggr="max") for _ in range(rounds))
        self.gates = nn.ModuleList(nn.Linear(hidden, 3 * hidden) for _ in range(layers))
        self.layers = nn.ModuleList(SegmentLayer(hidden, params.heads) for _ in range(layers))
        self.head = nn.Linear(hidden, num_devices)
        nn.init.normal_(self.head.weight, std=0.01)  # a policy that begins without opinions
        nn.init.zeros_(self.head.bias)

    def forward(self, graph: GroupGraph) -> Tensor:
        """Return ``[num_groups, num_devices]`` logits, without the mask."""
        h: Tensor = self.enter(graph.features)
        ends = torch.stack([graph.senders, graph.receivers])
        both_ways = torch.cat([ends, ends.flip(0)], dim=1)
        for message, update in zip(self.messages, self.updates, strict=True):
            h = torch.relu(update((torch.sigmoid(message(h)), h), both_ways))
        x = h[graph.order]  # [num_groups, hidden], in topological order
        summary = x.mean(dim=0)
        for layer, gate in zip(self.layers, self.gates, strict=True):
            x = layer(x, (2 * torch.sigmoid(gate(summary))).view(3, -1), self.segment)
        logits: Tensor = self.head(x)
        return torch.empty_like(logits).index_copy(0, graph.order, logits)


class GdpLearner(GroupwiseLearner):
    """Samples placements from one pass of the network.

    Costs enter as their square root (the paper's reward is minus the square root of the step time), relative to the
    other samples of the update: the mean of the same network's samples on the same graph is the paper's running mean
    without its lag.
    """

    params: GdpParams

    def __init__(self, environment: Environment, params: GdpParams) -> None:
        super().__init__(environment, params)
        self.epochs, self.clip, self.samples = params.epochs, params.clip, params.samples
        self.graph = group_graph(environment)
        self.policy = GdpNetwork(self.graph.num_features, self.graph.num_devices, params)
        self.preferred = best_single(environment)

    def log_probs(self) -> Tensor:
        """``[num_groups, num_devices]`` log-probability of every decision."""
        liked = preference(self.preferred, self.graph.num_devices, self.params.deviations)
        return self.graph.masked(self.policy(self.graph) + liked)

    def advantages(self, rollout: Rollout, costs: Tensor) -> Tensor:
        """``[decisions]`` advantages by the square roots of the costs."""
        roots = costs.sqrt()
        return (roots.std() / LEAST_DEVIATION).clamp(max=1) * super().advantages(rollout, roots)


class Gdp(LearnedMethod):
    """GDP (Zhou et al., arXiv 1910.01578): graph embedding, attention over segments, superposition, PPO."""

    name = "gdp"
    params_type = GdpParams
    learner_type = GdpLearner
