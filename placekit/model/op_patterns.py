"""Patterns that select ops of a graph: a name, a wildcard, a type, or a regular expression."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from placekit.model.errors import InvalidProblemError, did_you_mean
from placekit.model.graph import OpGraph
from placekit.model.reprs import short_list

_WILDCARDS = frozenset("*?[")


def matching_ops(graph: OpGraph, pattern: str) -> list[int]:
    """Return the indices of the ops that `pattern` stands for, in graph order.

    A pattern is the name of an op, whatever characters it has; else ``re:EXPRESSION``, a regular expression that must
    match a whole name; else ``type:PATTERN``, a type of op, wildcards allowed; else a pattern of names with the
    wildcards of a shell (``*``, ``?``, ``[0-9]``). Raises `InvalidProblemError`: it stands for no op, or the regular
    expression is none.

    Examples
    --------
    >>> graph = OpGraph.from_edges(["layers.0.mlp", "layers.1.mlp", "head"], [("layers.1.mlp", "head")])
    >>> matching_ops(graph, "layers.[0-9].*"), matching_ops(graph, "re:head|tail"), matching_ops(graph, "type:Op")
    ([0, 1], [2], [0, 1, 2])
    """
    if pattern in graph.op_index:
        return [graph.op_index[pattern]]
    if pattern.startswith("re:"):
        try:
            expression = re.compile(pattern.removeprefix("re:"))
        except re.error as error:
            raise InvalidProblemError(f"{pattern!r} is no regular expression: {error}") from None
        found = [op for op, name in enumerate(graph.op_names) if expression.fullmatch(name)]
    elif pattern.startswith("type:"):
        wanted = pattern.removeprefix("type:")
        found = [op for op, name in enumerate(graph.op_types) if fnmatchcase(name, wanted)]
    else:
        found = [op for op, name in enumerate(graph.op_names) if fnmatchcase(name, pattern)]
    if not found:
        if pattern.startswith("type:"):
            hint = f"; its types are {short_list(sorted(set(graph.op_types)))}"
        else:
            hint = "" if _WILDCARDS & set(pattern) else did_you_mean(pattern, graph.op_names)
        raise InvalidProblemError(f"problem {graph.name!r} has no op {pattern!r}{hint}")
    return found


def overridden(graph: OpGraph, devices: Mapping[str, str]) -> Iterator[tuple[str, str, list[int]]]:
    """Yield which pattern was overridden by which later one, and for what ops; the last one that matches an op counts.

    Patterns that agree on the device of an op do not override each other.

    Examples
    --------
    >>> graph = OpGraph.from_edges(["layers.0.mlp", "layers.1.mlp"], [("layers.0.mlp", "layers.1.mlp")])
    >>> list(overridden(graph, {"layers.*": "GPU", "type:Op": "GPU", "layers.1.mlp": "CPU"}))
    [('type:Op', 'layers.1.mlp', [1])]
    """
    last: dict[int, str] = {}
    lost: dict[tuple[str, str], list[int]] = {}
    for pattern in devices:
        for op in matching_ops(graph, pattern):
            if op in last and devices[last[op]] != devices[pattern]:
                lost.setdefault((last[op], pattern), []).append(op)
            last[op] = pattern
    for (earlier, later), ops in lost.items():
        yield earlier, later, ops
