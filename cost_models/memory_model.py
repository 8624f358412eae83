"""Bytes that the ops of a model take of a device: weights, live tensors when they are most, and slots of queues.

See :mod:`placekit.model.memory`. A weight that several ops read counts once per device. The model's inputs and outputs
have slots, too, which their ops hold. A view (Reshape, Squeeze, ...) is the tensor that it shows, which lives on until
the view's last reader. A tensor inside a group that the device fuses is never written.

What a runtime needs beside that (packed copies of weights, scratch memory of kernels) does not count.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.base import graph_of
from placekit.cost_models.op_classes import VIEW_TYPES
from placekit.io.models.model import ModelSource
from placekit.model.graph import OpGraph
from placekit.model.memory import MemoryBlocks, positions

QUEUE_SLOTS = 2
"""Slots of a tensor between two stages of a pipeline, as it is run unless told otherwise."""
SHOWS_ITS_INPUT = VIEW_TYPES - {"Parameter", "Result", "Constant", "ReadValue", "Assign", "ShapeOf"}
"""Types whose output is their first input in another shape."""


def op_memory(source: ModelSource | OpGraph, op_group: NDArray[np.int64]) -> tuple[NDArray[np.float64], MemoryBlocks]:
    """Return ``[num_ops]`` bytes that each op holds alone, and what ops share.

    Parameters
    ----------
    source
        A model that was read, or a bare graph, whose weights then count for every op that reads them.
    op_group
        ``[num_ops]`` label of the fused group of every op.
    """
    graph = graph_of(source)
    shared = () if isinstance(source, OpGraph) else source.shared_weights
    own, slots_bytes = graph.op_weight_bytes.copy(), (QUEUE_SLOTS - 1) * graph.tensor_bytes
    for num_bytes, ops in shared:
        own[list(ops)] -= num_bytes
    # what the model reads and writes stands in slots whatever the other devices do; one of them is the live tensor
    types = np.array(graph.op_types)
    np.add.at(own, graph.tensor_producer, np.where(types[graph.tensor_producer] == "Parameter", 1.0, 0.0) * slots_bytes)
    np.add.at(own, graph.consumers, (types[graph.consumers] == "Result") * slots_bytes[graph.consumed_tensor])
    blocks = [(num_bytes, True, ops) for num_bytes, ops in shared]
    blocks += [(num_bytes, False, ops) for num_bytes, ops in _live_tensors(graph, op_group)]
    return np.maximum(own, 0.0), MemoryBlocks.of(blocks, QUEUE_SLOTS)


def _live_tensors(graph: OpGraph, op_group: NDArray[np.int64]) -> list[tuple[float, tuple[int, ...]]]:
    """Return bytes and ops of every piece of memory that holds one tensor and the views of it."""
    shows = np.isin(graph.op_types, sorted(SHOWS_ITS_INPUT))
    root = np.arange(graph.num_tensors)
    read_by: dict[int, int] = {}  # the first tensor that a view reads
    for tensor, reader in zip(graph.consumed_tensor.tolist(), graph.consumers.tolist(), strict=True):
        if shows[reader]:
            read_by.setdefault(reader, tensor)
    made = positions(graph)[graph.tensor_producer]
    for tensor in np.argsort(made, kind="stable").tolist():  # what is shown comes first
        producer = int(graph.tensor_producer[tensor])
        if producer in read_by:
            root[tensor] = root[read_by[producer]]
    held: dict[int, tuple[float, dict[int, None]]] = {}
    for tensor, num_bytes in enumerate(graph.tensor_bytes.tolist()):
        ops = [int(graph.tensor_producer[tensor]), *graph.consumers_of(tensor).tolist()]
        largest, users = held.get(int(root[tensor]), (0.0, {}))
        held[int(root[tensor])] = max(largest, num_bytes), users | dict.fromkeys(ops)
    return [
        (num_bytes, tuple(users))
        for num_bytes, users in held.values()
        if num_bytes > 0 and len({int(op_group[op]) for op in users}) > 1
    ]
