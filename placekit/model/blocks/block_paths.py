"""Blocks of a model, known by the first number in the paths of their ops."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import number_by_first
from placekit.model.graph import OpGraph

BEFORE, BEHIND = -1, -2
"""In `block_numbers`: before the first block (embedding), and behind the last one (norm, head)."""

BLOCK = re.compile(r"(?P<stack>(?:[^./]+\.)*?)(?P<number>\d+)(?:[./](?P<rest>.*)|$)")
"""Path of an op of a block: the stack, the number, and the path inside. Converters put operators behind a slash."""


def layer_labels(op_names: tuple[str, ...], together: int = 1) -> NDArray[np.int64]:
    """``[num_ops]`` label of the block of every op: the beginning of its path up to the first number; else itself.

    Blocks ``0 .. together - 1`` of a stack share a label, and so on.

    Examples
    --------
    >>> layer_labels(("embed", "h.0.attn", "h.0.mlp", "h.1.attn", "head")).tolist()
    [0, 1, 1, 2, 3]
    >>> layer_labels(("embed", "h.0.attn", "h.0.mlp", "h.1.attn", "head"), 2).tolist()
    [0, 1, 1, 1, 2]
    """

    def block(name: str) -> str:
        found = BLOCK.match(name)
        return name if found is None else f"{found['stack']}{int(found['number']) // together}"

    return number_by_first(np.unique([block(name) for name in op_names], return_inverse=True)[1])


_KNOWN = "_block_numbers"
"""Attribute of a graph that has its `block_numbers`."""


def block_stacks(graph: OpGraph) -> list[str]:
    """Return the beginnings of the paths of blocks that compute or hold something, up to their numbers.

    Where nothing does, all count. States of a cache have paths with numbers, too, such as ``past.0.key``.
    """
    working = (graph.op_flops > 0) | (graph.op_weight_bytes > 0)
    found = {name: BLOCK.match(name) for name in graph.op_names}
    stacks = dict.fromkeys(
        match["stack"] for match, works in zip(found.values(), working.tolist(), strict=True) if match and works
    )
    return list(stacks or dict.fromkeys(match["stack"] for match in found.values() if match))


def block_numbers(graph: OpGraph) -> NDArray[np.int64]:
    """``[num_ops]`` block of every op in the order in which blocks come; -1 before the first, -2 behind the last.

    A state, and what hands it on, goes with the block that reads it. Any other op outside of blocks goes with the last
    block before it.

    Examples
    --------
    >>> names = ("embed", "h.0.attn", "mask", "h.1.attn", "head")
    >>> block_numbers(OpGraph.from_edges(names, [*zip(names, names[1:])])).tolist()
    [-1, 0, 0, 1, -2]
    """
    known: NDArray[np.int64] | None = vars(graph).get(_KNOWN)
    if known is not None:
        return known
    found = _block_numbers(graph)
    found.setflags(write=False)
    vars(graph)[_KNOWN] = found  # as a cached property: graphs do not change
    return found


def _block_numbers(graph: OpGraph) -> NDArray[np.int64]:
    """Return what `block_numbers` does, which every step of a search asks for."""
    stacks = set(block_stacks(graph))
    matches = [BLOCK.match(name) for name in graph.op_names]
    paths = [(match["stack"], match["number"]) if match and match["stack"] in stacks else None for match in matches]
    number: dict[tuple[str, str], int] = {}
    for op in graph.order.tolist():
        if (path := paths[op]) is not None:
            number.setdefault(path, len(number))
    found = np.array([BEFORE if path is None else number[path] for path in paths])
    inside = found != BEFORE
    named = [match is not None and path is None for match, path in zip(matches, paths, strict=True)]
    is_state = np.array(named) | np.isin(graph.op_types, ("ReadValue", "Assign"))
    edges = graph.ordered_edges
    for sender, receiver in edges:
        if not inside[receiver]:
            found[receiver] = max(found[receiver], found[sender])
            is_state[receiver] |= is_state[sender] and found[receiver] == BEFORE
    leads = inside | is_state  # to an op of a block, so that it is not behind the last one
    for sender, receiver in reversed(edges):
        leads[sender] |= leads[receiver]
        if is_state[sender] and found[sender] == BEFORE:
            found[sender] = found[receiver]
    found[~leads & (found == len(number) - 1)] = BEHIND if number else BEFORE
    return found
