"""Fused groups: ops that OpenVINO executes together, read from the runtime model.

Placement happens at the granularity of these groups, because a cut inside a fusion changes the cost. A runtime node
says which ops of the model it stands for, but not all do (transformations drop names, inserted layout conversions
have none), so the assignment is completed from the graph; see `fuse`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import components, number_by_first
from placekit.model.graph import OpGraph

if TYPE_CHECKING:
    import openvino

NO_GROUP = -1
"""Label of a runtime node that belongs to no group: it was not executed, or has no op near it."""

_BOUNDARY = frozenset({"Parameter", "Result"})


@dataclass(frozen=True, slots=True)
class RuntimeNode:
    """One node of a compiled model.

    Parameters
    ----------
    name
        Its name, as in the profiling counters.
    originals
        Names of the ops that it says it stands for; empty for one that the plugin inserted.
    inputs
        Indices of the nodes that it reads, in the list that it is part of.
    is_executed
        False for constants, no-ops and what was folded into another node.
    """

    name: str
    originals: tuple[str, ...]
    inputs: tuple[int, ...]
    is_executed: bool


@dataclass(frozen=True, eq=False)
class Fusion:
    """The fused groups of one compiled model.

    Parameters
    ----------
    op_group
        ``[num_ops]`` group ``0 .. num_groups - 1`` of every op, numbered by first op.
    node_group
        ``[num_nodes]`` group of every runtime node, or `NO_GROUP`.
    """

    op_group: NDArray[np.int64]
    node_group: NDArray[np.int64]

    @property
    def num_groups(self) -> int:
        """Number of groups."""
        return int(self.op_group.max()) + 1


def runtime_nodes(compiled: openvino.CompiledModel, executed: Collection[str]) -> list[RuntimeNode]:
    """Return the nodes of a compiled model in topological order.

    `executed` are the nodes that the counters of an inference report as executed.
    """
    nodes: list[RuntimeNode] = []
    index: dict[str, int] = {}
    for op in compiled.get_runtime_model().get_ordered_ops():
        info = op.get_rt_info()
        listed = str(info["originalLayersNames"].value) if "originalLayersNames" in info else ""
        name = op.get_friendly_name()
        sources = (each.get_source_output().get_node().get_friendly_name() for each in op.inputs())
        inputs = tuple(dict.fromkeys(index[source] for source in sources))
        index[name] = len(nodes)
        originals = tuple(each for each in listed.split(",") if each)
        nodes.append(RuntimeNode(name, originals, inputs, name in executed))
    return nodes


def fuse(graph: OpGraph, nodes: Sequence[RuntimeNode]) -> Fusion:
    """Assign every op and every executed node to a fused group, so that the groups form a DAG.

    1. An op that an executed node names belongs to this node. Nodes that name the same op are one group.
    2. An op that none names was fused away, is computed for free or was renamed: against the topological order, it
       joins the group of its first consumer that has one; what is left, along the order, that of a producer.
    3. An executed node that names no op of the graph (an inserted layout conversion) joins the first node behind it
       that is in a group, else the first before it.
    4. Groups on a common cycle are merged, so that a placement of groups can be run.

    Parameter and Result ops do no work and are groups of their own, unless step 4 says otherwise.

    Notes
    -----
    O(ops + edges + nodes).
    """
    num_ops, num_nodes = graph.num_ops, len(nodes)
    is_boundary = [op_type in _BOUNDARY for op_type in graph.op_types]
    is_named = [False] * num_nodes  # itself names an op of the graph
    node_of_op: dict[int, int] = {}
    ties: list[tuple[int, int]] = []  # pairs of nodes that name the same op
    for i, node in enumerate(nodes):
        ops = [graph.op_index[name] for name in node.originals if name in graph.op_index] if node.is_executed else []
        for op in ops:
            if is_boundary[op]:
                continue
            is_named[i] = True
            ties.append((node_of_op.setdefault(op, i), i))
    joined = components(num_nodes, *np.array(ties, dtype=np.int64).reshape(-1, 2).T)
    label = [NO_GROUP] * num_ops
    for op, i in node_of_op.items():
        label[op] = int(joined[i])
    _complete(graph, is_boundary, label)
    free = num_nodes  # labels from here on are of ops that nothing near them was measured for
    for op in range(num_ops):
        if label[op] == NO_GROUP:
            label[op] = free + op
    op_group = merge_cycles(graph, np.array(label, dtype=np.int64))
    group_of_label = dict(zip(label, op_group.tolist(), strict=True))
    node_group = [group_of_label[int(joined[i])] if is_named[i] else NO_GROUP for i in range(num_nodes)]
    _adopt(nodes, node_group)
    return Fusion(op_group, np.array(node_group, dtype=np.int64))


def _complete(graph: OpGraph, is_boundary: Sequence[bool], label: list[int]) -> None:
    """Give every op without a label that of its first labelled consumer, else of a labelled producer, in place."""
    readers: list[list[int]] = [[] for _ in range(graph.num_ops)]
    writers: list[list[int]] = [[] for _ in range(graph.num_ops)]
    for sender, receiver in zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True):
        readers[sender].append(receiver)
        writers[receiver].append(sender)
    order = [op for op in graph.order.tolist() if not is_boundary[op]]
    rank = {op: i for i, op in enumerate(graph.order.tolist())}
    for op in reversed(order):
        if label[op] == NO_GROUP:
            found = (label[each] for each in sorted(readers[op], key=rank.__getitem__) if not is_boundary[each])
            label[op] = next((each for each in found if each != NO_GROUP), NO_GROUP)
    for op in order:
        if label[op] == NO_GROUP:
            found = (label[each] for each in writers[op] if not is_boundary[each])
            label[op] = next((each for each in found if each != NO_GROUP), NO_GROUP)


def _adopt(nodes: Sequence[RuntimeNode], node_group: list[int]) -> None:
    """Give the executed nodes without a group that of the nearest node behind them, else before them, in place."""
    readers: list[list[int]] = [[] for _ in nodes]
    for i, node in enumerate(nodes):
        for source in node.inputs:
            readers[source].append(i)
    behind, before = list(node_group), list(node_group)
    for i in reversed(range(len(nodes))):
        if behind[i] == NO_GROUP:
            behind[i] = next((behind[each] for each in readers[i] if behind[each] != NO_GROUP), NO_GROUP)
    for i, node in enumerate(nodes):
        if before[i] == NO_GROUP:
            before[i] = next((before[each] for each in node.inputs if before[each] != NO_GROUP), NO_GROUP)
    for i, node in enumerate(nodes):
        if not node.is_executed:
            node_group[i] = NO_GROUP
        elif node_group[i] == NO_GROUP:
            node_group[i] = behind[i] if behind[i] != NO_GROUP else before[i]


def merge_cycles(graph: OpGraph, op_group: NDArray[np.int64]) -> NDArray[np.int64]:
    """Merge the groups that lie on a common cycle of the group graph; number groups by their first op.

    The new labels are ``0 .. num_groups - 1``, and their graph has no cycle.
    """
    _, group = np.unique(op_group, return_inverse=True)
    senders, receivers = group[graph.senders], group[graph.receivers]
    return number_by_first(components(int(group.max()) + 1, senders, receivers, is_strong=True)[group])


def join_groups(graph: OpGraph, op_groups: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the finest groups that no group of any of `op_groups` straddles, and that form a DAG.

    The runtimes of kinds of devices may fuse differently.
    """
    first_of_group = []
    for groups in op_groups:
        _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
        first_of_group.append(first[inverse])
    ops = np.tile(np.arange(graph.num_ops), len(op_groups))
    return merge_cycles(graph, components(graph.num_ops, ops, np.concatenate(first_of_group)))
