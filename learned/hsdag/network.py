"""The networks of HSDAG: node encoder, edge scorer, pooling, and the policy head.

Shapes
------
``N`` nodes or groups, ``E`` undirected edges, ``H`` hidden width, ``F`` feature width, ``D`` devices.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from placekit.learned.sorted_edges import sorted_edges


class Dropout(nn.Module):
    """Dropout that draws from a generator of its own, so that a training can be repeated exactly.

    Parameters
    ----------
    rate
        Share of the values that become zero.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.generator: torch.Generator | None = None
        """Where randomness comes from; None switches the dropout off."""

    def forward(self, values: Tensor) -> Tensor:
        """Return `values`, some of them zero and the others scaled up; unchanged without a generator."""
        if self.generator is None or self.rate == 0:
            return values
        kept = torch.rand(values.shape, generator=self.generator) >= self.rate
        return values * kept / (1 - self.rate)


def mlp(width_in: int, hidden: int, width_out: int, dropout: float, *, is_last_active: bool = False) -> nn.Sequential:
    """Return two linear layers with a normalised ReLU between them, and another behind them if `is_last_active`."""
    layers: list[nn.Module] = [
        nn.Linear(width_in, hidden),
        nn.LayerNorm(hidden),
        nn.ReLU(),
        Dropout(dropout),
        nn.Linear(hidden, width_out),
    ]
    if is_last_active:
        layers += [nn.LayerNorm(width_out), nn.ReLU(), Dropout(dropout)]
    return nn.Sequential(*layers)


class Encoder(nn.Module):
    """Graph convolutions (Kipf and Welling, ICLR 2017) with a residual connection: ``LN(h + GCN(...))``.

    Parameters
    ----------
    width
        Hidden width.
    layers
        Number of convolutions.
    dropout
        Rate behind each of them.
    """

    def __init__(self, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(GCNConv(width, width, normalize=False) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)

    def forward(self, hidden: Tensor, neighbours: Callable[[Tensor], Tensor]) -> Tensor:
        """Return ``[N, H]`` from ``[N, H]`` and what `normed_neighbours` returns."""
        found = hidden
        convolution: Any  # a GCNConv, whose own sums take several times as long
        for convolution in self.convolutions:
            heard = neighbours(convolution.lin(found)) + convolution.bias
            found = self.dropout(torch.relu_(heard))
        normed: Tensor = self.norm(hidden + found)
        return normed


def normed_neighbours(edges: Tensor, num_nodes: int) -> Callable[[Tensor], Tensor]:
    """Return a product with ``D^(-1/2) (A + I) D^(-1/2)`` of undirected `edges` ``[2, E]``, with degrees D of A + I."""
    loops = torch.arange(num_nodes)
    ends = torch.cat([edges, edges.flip(0), loops.expand(2, -1)], dim=1)
    matrix, scale = (
        sorted_edges(ends[0], ends[1], num_nodes),
        torch.bincount(ends[0]).to(torch.get_default_dtype()).rsqrt(),
    )
    return partial(matrix.matmul, input_value=scale[matrix.as_tensor()].prod(dim=0))


class EdgeScorer(nn.Module):
    """Score of an edge from its ends, ``sigmoid(MLP(h_u * h_v) + w c)``: the same for (u, v) and (v, u).

    Parameters
    ----------
    width
        Hidden width.
    weighs_costs
        True if the cost c of cutting the edge counts; its weight w is learned and begins at 1.
    """

    def __init__(self, width: int, *, weighs_costs: bool) -> None:
        super().__init__()
        self.network = mlp(width, width, 1, 0.0)
        self.cost_weight = nn.Parameter(torch.tensor(float(weighs_costs)), requires_grad=weighs_costs)

    def forward(self, hidden: Tensor, edges: Tensor, costs: Tensor) -> Tensor:
        """Return ``[E]`` from ``[N, H]``, ``[2, E]`` and ``[E]``."""
        logits = self.network(hidden[edges[0]] * hidden[edges[1]]).squeeze(1)
        scores: Tensor = torch.sigmoid(logits + self.cost_weight * costs)
        return scores


class Pooling(nn.Module):
    """Embedding of a group: a normalised sum over its members, scaled by the mean score of its edges.

    The scale is the only path by which gradients reach the edge scorer.

    Parameters
    ----------
    width
        Hidden width.
    scales_by_count
        True to multiply by the number of edges inside the group as well, as the released code does.
    """

    def __init__(self, width: int, *, scales_by_count: bool) -> None:
        super().__init__()
        self.before, self.after = nn.Linear(width, width), nn.Linear(width, width)
        self.norm_before, self.norm_after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.scales_by_count = scales_by_count

    def forward(self, hidden: Tensor, group: Tensor, num_groups: int, inside: Tensor, scores: Tensor) -> Tensor:
        """Return ``[num_groups, H]`` from the embeddings ``[N, H]`` of the members and the `group` ``[N]`` of each.

        `inside` and `scores` have the group and the score of every edge within a group.
        """
        members = self.norm_before(hidden + self.before(hidden))
        total = hidden.new_zeros(num_groups, hidden.shape[1]).index_add(0, group, members)
        pooled: Tensor = self.norm_after(total + self.after(total))
        count = hidden.new_zeros(num_groups).index_add(0, inside, torch.ones_like(scores))
        score = hidden.new_zeros(num_groups).index_add(0, inside, scores)
        scale = torch.where(count > 0, score / count.clamp_min(1), torch.ones_like(count))
        if self.scales_by_count:
            scale = scale * count.clamp_min(1)
        return pooled * scale[:, None]
