"""Sizes of transformers, which serving and training share: parameters and operations of their parts."""

from __future__ import annotations

MAX_BLOCKS = 10_000
"""Largest number of blocks of a model: each is several ops of a problem."""
MAX_SIZE = 2**32
"""Largest value of any other number of a shape: products of these stay finite."""


def attention_parameters(hidden: int, query_width: int, kv_width: int) -> int:
    """Return the parameters of the four projections."""
    return 2 * hidden * (query_width + kv_width)


def feed_forward_parameters(hidden: int, ffn: int, *, gated: bool = True) -> int:
    """Return the parameters of one feed-forward part."""
    return (3 if gated else 2) * hidden * ffn


def attention_flops(tokens: float, context: float, query_width: int) -> float:
    """Return the operations of `tokens` queries that see `context` tokens each: scores and their mixture."""
    return 4.0 * tokens * context * query_width
