"""A language model that was read from a file, served in phases: prompts and steps of one token through the same ops.

The file is read at the shapes of a step without a past. What the past adds is put where it is: an attention op sees the
tokens before it, and reads their keys and values from its cache. A stateful OpenVINO model says itself what it keeps
(a ReadValue of every cache); in others the keys and values that reach an attention op are traced back to the smallest
tensor on the way, which is what a cache holds: heads that were repeated for groups of queries are not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import number_by_first
from placekit.io.models.model import ModelSource
from placekit.io.models.model_inputs import ModelInput
from placekit.io.models.openvino_graph import ATTENTION
from placekit.io.models.read_model import read_model
from placekit.language.decoder import bits_of
from placekit.language.serving import Phase, Serving
from placekit.language.task import Costs, HeldByOps, LanguageTask, TaskForm, language_task
from placekit.model.errors import UnsupportedProblemError
from placekit.model.graph import DYNAMIC, OpGraph
from placekit.model.platform import Platform

_CARRIES = frozenset(
    (
        "View", "Reshape", "Transpose", "Unsqueeze", "Squeeze", "Broadcast", "Expand", "Concat", "Gather", "Convert",
        "Copy", "Slice", "StridedSlice", "Split", "VariadicSplit", "Identity",
    )
)  # fmt: skip
"""Types that hand keys and values on as they are."""

Read = Callable[[Mapping[str, Sequence[int]]], ModelSource]


@dataclass(frozen=True)
class Caches:
    """Ops of a model that hold its cache."""

    values: NDArray[np.float64]  # ``[num_ops]`` numbers that an op keeps of one token of one sequence
    reader: NDArray[np.int64]  # ``[num_ops]`` attention op that reads what the op keeps; itself where nothing else does
    # ops that must not be cut from each other: a cache, its attention, and what is between them
    groups: tuple[tuple[int, ...], ...]


def find_caches(graph: OpGraph, num_tokens: int, attention: Mapping[int, tuple[int, int, int]]) -> Caches:
    """Return the caches of a graph that was read without a past.

    The graph was read at `num_tokens` of all sequences; `attention` is that of `placekit.io.models.model.ModelSource`.
    Raises `UnsupportedProblemError`: no attention op, or a cache that no attention op reads.
    """
    if not attention:
        raise UnsupportedProblemError(
            f"{graph.name!r} has no op of type {ATTENTION}: it is not known what it caches; export it with attention "
            "as one op (transformers: attn_implementation='sdpa')"
        )
    values = np.zeros(graph.num_ops)
    reader = np.arange(graph.num_ops)
    groups: list[tuple[int, ...]] = []
    made: dict[int, list[int]] = {}
    for tensor, producer in enumerate(graph.tensor_producer.tolist()):
        made.setdefault(producer, []).append(tensor)
    states = [op for op, op_type in enumerate(graph.op_types) if op_type == "ReadValue"]
    for state in states:
        path = _way_to_attention(graph, made, state)
        known = [dim for dim in graph.tensor_shapes[made[state][0]] if dim != DYNAMIC]
        values[state] = float(math.prod(known))
        reader[state] = path[-1]
        groups.append(tuple(path))
    if not states:
        inputs: dict[int, list[int]] = {}
        for tensor, op in zip(graph.consumed_tensor.tolist(), graph.consumers.tolist(), strict=True):
            inputs.setdefault(op, []).append(tensor)
        for op, (_, *kept) in attention.items():
            values[op] = sum(_narrowest(graph, inputs, tensor) for tensor in kept if tensor >= 0) / num_tokens
    return Caches(values, reader, tuple(groups))


def _way_to_attention(graph: OpGraph, made: Mapping[int, list[int]], state: int) -> list[int]:
    """Return the ops from a state to the first attention op that reads it, both included."""
    came_from: dict[int, int] = {state: state}
    waiting = [state]
    for op in waiting:
        if graph.op_types[op] == ATTENTION:
            path = [op]
            while path[-1] != state:
                path.append(came_from[path[-1]])
            return path[::-1]
        for tensor in made.get(op, ()):
            for follower in graph.consumers_of(tensor).tolist():
                if came_from.setdefault(follower, op) == op and follower not in waiting:
                    waiting.append(follower)
    raise UnsupportedProblemError(f"{graph.name!r}: no attention op reads the state {graph.op_names[state]!r}")


def _narrowest(graph: OpGraph, inputs: Mapping[int, list[int]], tensor: int) -> float:
    """Return the numbers of the smallest tensor from `tensor` back to the op that computes it."""
    size = float(math.prod(graph.tensor_shapes[tensor]))
    producer = int(graph.tensor_producer[tensor])
    if graph.op_types[producer] in _CARRIES and len(inputs.get(producer, ())) == 1:
        return min(size, _narrowest(graph, inputs, inputs[producer][0]))
    return size


def step_shapes(inputs: Sequence[ModelInput], phase: Phase, batch: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a step for inputs whose dimensions are sequences, tokens, and what is fixed.

    Raises `UnsupportedProblemError`: an input with an open dimension behind the second.
    """
    found = {}
    for each in inputs:
        shape = list(each.shape)
        if DYNAMIC in shape[2:]:
            raise UnsupportedProblemError(
                f"input {each.name!r} has shape {shape}: dimensions behind sequences and tokens must be fixed"
            )
        is_known = DYNAMIC not in shape  # an example that a program was made with; else what is fixed stays
        sizes = zip(shape, (batch, phase.tokens), strict=False)
        shape[:2] = [size if is_known or dim == DYNAMIC else dim for dim, size in sizes]
        found[each.name] = tuple(shape)
    return found


def model_task(
    model: str | Path | Read,
    serving: Serving,
    platform: Platform,
    costs: Costs,
    form: TaskForm | None = None,
) -> LanguageTask:
    """Return the problem of serving a model file whose inputs are ``[sequences, tokens]``.

    Parameters
    ----------
    model
        A file that `read_model` reads, with open dimensions; or what reads a model at given shapes, for example
        ``lambda shapes: read_torch(module, inputs, dynamic_shapes=..., shapes=shapes)``.
    serving, platform, costs, form
        As of `placekit.language.task.decoder_task`. Weights are counted as the file stores them.

    Raises
    ------
    UnsupportedProblemError
        A model without attention ops, or whose ops depend on the number of tokens.
    PlacekitError
        Files and shapes that do not go together.
    """
    read: Read = model if callable(model) else lambda shapes: read_model(model, shapes)
    inputs = read({}).inputs
    graphs: dict[str, OpGraph] = {}
    first: tuple[ModelSource, Caches] | None = None
    form = form or TaskForm()
    bits = bits_of(form.cache_precision, "cache_precision")
    for phase in serving.phases:
        source = read(step_shapes(inputs, phase, serving.batch))
        caches = find_caches(source.graph, serving.batch * phase.tokens, source.attention)
        if first is None:
            first = source, caches
        elif first[0].graph.op_names != source.graph.op_names:
            raise UnsupportedProblemError(
                f"{source.name!r} has other ops for 1 token than for {serving.prompt}: export it with an open number "
                "of tokens, or serve one phase"
            )
        graphs[phase.name] = _with_past(source, caches, phase, serving.batch, bits / 8)
    assert first is not None  # a request has tokens
    source, caches = first
    labels = source.colocation.copy()
    for group in caches.groups:
        labels[np.isin(labels, labels[list(group)])] = labels[group[0]]
    held = HeldByOps(
        source.graph.op_weight_bytes, caches.values * serving.context * bits / 8, source.shared_weights,
        colocation=number_by_first(labels),
    )  # fmt: skip
    return language_task(graphs, serving, platform, costs, held, form)


def _with_past(source: ModelSource, caches: Caches, phase: Phase, batch: int, value_bytes: float) -> OpGraph:
    """Return the graph of a step; attention sees what was before, and reads it from the cache."""
    graph = source.graph
    flops, read = graph.op_flops.copy(), graph.op_weight_bytes.copy()
    np.add.at(read, caches.reader, caches.values * batch * phase.past * value_bytes)
    mixed = {op: tensor for tensor, op in reversed(list(enumerate(graph.tensor_producer.tolist())))}
    for op, (query, _, _) in source.attention.items():  # a score per query channel, its share per value channel
        made = math.prod(graph.tensor_shapes[mixed[op]])
        flops[op] = 2.0 * (made + (math.prod(graph.tensor_shapes[query]) if query >= 0 else made)) * phase.context
    return graph.replace(op_flops=flops, op_weight_bytes=read)
