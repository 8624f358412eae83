"""Sums of rows of a tensor: messages along the edges of a graph, at the speed of a sparse matrix.

A scatter sorts its index in every call, and its gradient is another scatter. The lists here are sorted once per graph,
and so are those of the gradient.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn


class RowSums:
    """Sparse matrix that is multiplied with dense ones: every output row is a sum of input rows.

    Parameters
    ----------
    sources, targets
        ``[terms]`` input row and output row of every term of the sums, in any order.
    num_sources, num_targets
        Numbers of rows.
    weights
        ``[terms]`` factors of the terms; None for 1. No gradient flows to them.
    is_symmetric
        True if the matrix is, which saves sorting its terms for gradients.

    Examples
    --------
    >>> sums = RowSums(torch.tensor([0, 2, 1]), torch.tensor([1, 1, 0]), 3, 2)
    >>> sums(torch.tensor([[1.0], [10.0], [100.0]])).tolist()
    [[10.0], [101.0]]
    """

    def __init__(
        self,
        sources: Tensor,
        targets: Tensor,
        num_sources: int,
        num_targets: int,
        weights: Tensor | None = None,
        *,
        is_symmetric: bool = False,
    ) -> None:
        by_target = targets.argsort(stable=True)
        self._terms = sources, targets, num_targets, num_sources
        self._given, self._is_symmetric = weights, is_symmetric
        self._sources = sources[by_target]
        self._weights = None if weights is None else weights[by_target]
        self.counts = torch.bincount(targets, minlength=num_targets)
        """``[num_targets]`` terms of every sum."""
        self._first = self.counts.cumsum(0) - self.counts

    @cached_property
    def transposed(self) -> RowSums:
        """The sums that gradients take the other way."""
        sources, targets, num_sources, num_targets = self._terms
        return self if self._is_symmetric else RowSums(targets, sources, num_sources, num_targets, self._given)

    def __call__(self, rows: Tensor) -> Tensor:
        """Return ``[num_targets, width]`` sums of `rows` ``[num_sources, width]``."""
        summed: Tensor = _Sum.apply(rows, self)  # type: ignore[no-untyped-call]  # torch has no types here
        return summed

    def of(self, rows: Tensor) -> Tensor:
        """Return the sums, without a record for gradients."""
        weights = None if self._weights is None else self._weights.to(rows.dtype)
        return nn.functional.embedding_bag(
            self._sources, rows.contiguous(), self._first, mode="sum", per_sample_weights=weights
        )


class _Sum(torch.autograd.Function):
    """Sums of rows, with their gradient."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sums: RowSums) -> Tensor:
        """Return the sums."""
        ctx.sums = sums
        return sums.of(rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of the rows."""
        return ctx.sums.transposed.of(gradients[0]), None
