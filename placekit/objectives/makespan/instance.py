"""The arrays of a makespan problem (:mod:`placekit.objectives.makespan.arrays`), made once and kept with it."""

from __future__ import annotations

import numpy as np

from placekit.model.problem import Problem
from placekit.objectives.makespan.arrays import MakespanInstance, csr_offsets, frozen, kernel_array
from placekit.objectives.makespan.ranks import mean_upward_rank

_KEPT = "_makespan_instance"
"""Where a problem keeps its arrays."""


def make_instance(problem: Problem) -> MakespanInstance:
    """Return the arrays of `problem`. O((ops + edges) log edges + ops * devices).

    The variant of the objective does not matter; contention and dispatch rules are arguments of the kernels.
    """
    graph, platform, costs = problem.graph, problem.platform, problem.costs
    num_ops, num_tensors, num_devices = graph.num_ops, graph.num_tensors, platform.num_devices
    rank = graph.rank
    # a reader may name a tensor twice (two inputs of the op): it still waits for one arrival
    tensors, readers = np.divmod(np.unique(graph.consumed_tensor * num_ops + graph.consumers), num_ops)
    by_reader = np.argsort(readers, kind="stable")
    sender = graph.tensor_producer[tensors]
    by_sender = np.argsort(sender, kind="stable")
    class_of_op = problem.op_class
    class_allowed = np.ones((problem.num_classes, num_devices), dtype=bool)
    np.logical_and.at(class_allowed, class_of_op, costs.supported[:, platform.kind_of_device])
    for op in np.flatnonzero(problem.pinned >= 0).tolist():
        class_allowed[class_of_op[op], np.arange(num_devices) != problem.pinned[op]] = False
    instance = MakespanInstance(
        op_time_s=costs.op_time_s,
        is_supported=costs.supported,
        allowed=class_allowed[class_of_op],
        kind=platform.kind_of_device,
        class_of_op=class_of_op,
        memory_bytes=costs.op_memory_bytes,
        limit_bytes=platform.memory_limits_bytes,
        order=graph.order,
        rank=rank,
        out_offsets=csr_offsets(graph.tensor_producer, num_ops),
        out_tensors=np.argsort(graph.tensor_producer, kind="stable"),
        in_offsets=csr_offsets(readers, num_ops),
        in_tensors=tensors[by_reader],
        producer=graph.tensor_producer,
        reader_offsets=csr_offsets(tensors, num_tensors),
        readers=readers,
        readers_in_turn=readers,
        edge_offsets=csr_offsets(sender, num_ops),
        edge_readers=readers[by_sender],
        edge_tensors=tensors[by_sender],
        transfer_s=costs.transfer_time_s,
        group=platform.group_of_device if problem.has_direct_links else np.zeros(num_devices, dtype=np.int64),
        link=platform.link_of_groups if problem.has_direct_links else np.full((1, 1), -1, dtype=np.int64),
        direct_s=costs.direct_time_s,
    )
    instance = frozen(instance)
    if "contention" in problem.objective.to_dict():  # receivers of a tensor may take turns
        in_turn = np.lexsort((rank[readers], -mean_upward_rank(instance)[readers], tensors))
        instance = instance._replace(readers_in_turn=kernel_array(readers[in_turn]))
    return instance


def instance_of(problem: Problem) -> MakespanInstance:
    """Return the arrays of `problem`, made on the first call and kept with it: judges are asked often."""
    kept = vars(problem)  # where a cached property would keep them; the problem is immutable, so they stay true
    if _KEPT not in kept:
        kept[_KEPT] = make_instance(problem)
    instance: MakespanInstance = kept[_KEPT]
    return instance
