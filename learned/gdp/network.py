r"""The network of GDP: GraphSAGE embeds the groups, segment-recurrent attention places them.

1. Embedding (section 3.2): for a few rounds, with neighbours in both directions,
   :math:`h_v \leftarrow \mathrm{ReLU}(W [h_v; \max_{u \in N(v)} \sigma(W' h_u + b')])`.
2. Placement (section 3.3): the groups in topological order, in segments. Every layer attends from a segment to itself
   and to the layer's inputs of the segment before, through which no gradient flows (Transformer-XL), so that the cost
   is linear in the number of segments. There is no positional embedding: the graph embedding carries the order.
3. Superposition (section 3.4): the mean embedding of the graph gates the inputs of every layer's dense parts (queries,
   keys and values; the projection of what was attended to; the feed-forward part), so that one network can serve many
   graphs.
4. One distribution per group, independent of the others given the graph, over the devices of the problem that the
   network was made for: a policy serves other graphs, not other numbers of devices.

Shapes
------
``[num_groups, hidden]`` embeddings; ``[length, hidden]`` inside a segment; ``[num_groups, num_devices]`` logits.

References
----------
Zhou et al., "GDP: generalized device placement for dataflow graphs", arXiv 1910.01578, 2019.
Hamilton, Ying, Leskovec, "Inductive representation learning on large graphs", NeurIPS 2017.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from placekit.learned.group_graph import GroupGraph

__all__ = ["GdpNetwork", "SegmentLayer"]


class GdpNetwork(nn.Module):
    """Logits of every group and device; see the module docstring.

    Parameters
    ----------
    num_features, num_devices
        Width of the input and of the output.
    hidden
        Width of the embeddings.
    rounds
        Rounds of GraphSAGE.
    layers, heads
        Layers of attention, and heads of each.
    segment
        Groups in one segment.

    Notes
    -----
    O(rounds * (edges + groups * hidden) * hidden + layers * groups * (segment + hidden) * hidden).
    """

    def __init__(
        self, num_features: int, num_devices: int, *, hidden: int, rounds: int, layers: int, heads: int, segment: int
    ) -> None:
        super().__init__()
        self.segment = segment
        self.enter = nn.Sequential(nn.Linear(num_features, hidden), nn.LayerNorm(hidden), nn.ReLU())
        self.messages = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(rounds))
        self.updates = nn.ModuleList(nn.Linear(2 * hidden, hidden) for _ in range(rounds))
        self.gates = nn.ModuleList(nn.Linear(hidden, 3 * hidden) for _ in range(layers))
        self.layers = nn.ModuleList(SegmentLayer(hidden, heads) for _ in range(layers))
        self.head = nn.Linear(hidden, num_devices)
        nn.init.normal_(self.head.weight, std=0.01)  # a policy that begins without opinions
        nn.init.zeros_(self.head.bias)

    def forward(self, graph: GroupGraph) -> Tensor:
        """Return ``[num_groups, num_devices]`` logits, without the mask."""
        x = self.embed(graph)[graph.order]  # [num_groups, hidden], in topological order
        summary = x.mean(dim=0)
        gates = [(2 * torch.sigmoid(gate(summary))).view(3, -1) for gate in self.gates]
        memories = [x.new_empty(0, x.shape[1])] * len(self.layers)
        placed = []
        for part in torch.split(x, self.segment):
            for i, (layer, gate) in enumerate(zip(self.layers, gates, strict=True)):
                gated = gate[0] * part
                part = layer(gated, memories[i], gate[1], gate[2])  # noqa: PLW2901  # the segment moves on
                memories[i] = gated.detach()
            placed.append(part)
        logits: Tensor = self.head(torch.cat(placed))
        return torch.empty_like(logits).index_copy(0, graph.order, logits)

    def embed(self, graph: GroupGraph) -> Tensor:
        """Return ``[num_groups, hidden]`` embeddings."""
        h: Tensor = self.enter(graph.features)
        source = torch.cat([graph.senders, graph.receivers])
        target = torch.cat([graph.receivers, graph.senders])[:, None].expand(-1, h.shape[1])
        for message, update in zip(self.messages, self.updates, strict=True):
            said = torch.sigmoid(message(h))[source]
            # sigmoids are positive: zero stands for a group without neighbours
            heard = torch.zeros_like(h).scatter_reduce(0, target, said, "amax")
            h = torch.relu(update(torch.cat([h, heard], dim=1)))
        return h


class SegmentLayer(nn.Module):
    """One layer of attention from a segment to itself and the segment before, with a feed-forward part.

    Parameters
    ----------
    hidden
        Width.
    heads
        Number of heads; divides `hidden`.
    """

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(hidden, hidden)
        self.key_value = nn.Linear(hidden, 2 * hidden)
        self.out = nn.Linear(hidden, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.feed_forward = nn.Sequential(nn.Linear(hidden, 2 * hidden), nn.ReLU(), nn.Linear(2 * hidden, hidden))
        self.norm_out = nn.LayerNorm(hidden)

    def forward(self, x: Tensor, memory: Tensor, gate_out: Tensor, gate_feed_forward: Tensor) -> Tensor:
        """Return ``[length, hidden]`` from the segment `x` ``[length, hidden]`` and `memory` ``[memory, hidden]``.

        The gates ``[hidden]`` multiply what enters the projection after the attention, and the feed-forward part.
        """
        length, hidden = x.shape

        def split(rows: Tensor) -> Tensor:
            return rows.view(len(rows), self.heads, -1).transpose(0, 1)  # [heads, rows, hidden / heads]

        key, value = self.key_value(torch.cat([memory, x])).chunk(2, dim=1)
        attended = nn.functional.scaled_dot_product_attention(split(self.query(x)), split(key), split(value))
        x = self.norm(x + self.out(gate_out * attended.transpose(0, 1).reshape(length, hidden)))
        result: Tensor = self.norm_out(x + self.feed_forward(gate_feed_forward * x))
        return result
