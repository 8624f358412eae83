"""Edges of a graph as torch-geometric multiplies them fastest: sorted once, and so for the gradients."""

from __future__ import annotations

import warnings
from functools import cache

import torch
from torch import Tensor
from torch_geometric import EdgeIndex


def sorted_edges(receivers: Tensor, senders: Tensor, num_nodes: int) -> EdgeIndex:
    """Return the matrix whose product with ``[num_nodes, width]`` is, for every node, the sum over its senders.

    It is sorted once. Layers of messages (`torch_geometric.nn.MessagePassing`) take several times as long per product.

    Examples
    --------
    >>> edges = sorted_edges(torch.tensor([1, 1]), torch.tensor([0, 2]), 3)
    >>> edges.matmul(torch.tensor([[1.0], [10.0], [100.0]])).tolist()
    [[0.0], [101.0], [0.0]]
    """
    _warn_unheard()
    order = torch.argsort(receivers * num_nodes + senders)
    ends = torch.stack([receivers, senders])[:, order]
    return EdgeIndex(ends, sparse_size=(num_nodes, num_nodes), sort_order="row").fill_cache_()


@cache
def _warn_unheard() -> None:
    """Let torch say what it says once of sparse matrices, that they may change, where nobody hears it."""
    with warnings.catch_warnings(), torch.enable_grad():
        warnings.simplefilter("ignore", UserWarning)
        edge = EdgeIndex([[0], [0]], sparse_size=(1, 1), sort_order="row")
        edge.matmul(torch.zeros(1, 1, requires_grad=True)).sum().backward()
