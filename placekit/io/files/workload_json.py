"""The public workload format of Tarnawski et al. 2020 (github.com/msr-fiddle/dnn-partitioning): read and write.

A workload is a graph with two times per op, on `maxFPGAs` equal accelerators with a memory limit and on `maxCPUs`
equal CPUs without one. Its times are in milliseconds; here they become seconds, and come back unchanged: of the
millisecond values next to each other, the writer chooses one that reads as the same number of seconds.

The format has one transfer cost per producer (the same on all of its out-edges) and no names for devices: they are
called ``ACC.0``, ... and ``CPU.0``, ... here. Objective and contiguity are not part of it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import count, islice
from math import isclose
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placekit.io.atomic import write_json
from placekit.io.files.compute_graph import read_compute_graph
from placekit.io.files.schemas import WorkloadModel
from placekit.io.reading import blaming, read_json, validated
from placekit.model.contiguity import Contiguity
from placekit.model.costs import CostTable
from placekit.model.errors import InvalidFileError, UnsupportedProblemError
from placekit.model.graph import OpGraph
from placekit.model.platform import Device, Platform
from placekit.model.problem import UNPINNED, Problem
from placekit.objectives.base import Objective
from placekit.objectives.throughput import Throughput

NO_MEMORY_LIMIT = sys.float_info.max
"""The `maxSizePerFPGA` that stands for "no limit"; JSON has no infinity."""

_COST_TOLERANCE = 1e-9
"""Relative; out-edges of one op may differ by this much in cost (they were printed separately)."""
NODE_IDS = "node_ids"
"""Key of the nodes' ids in the provenance of the costs of a problem."""


def read_workload(
    path: str | Path,
    *,
    objective: Objective | None = None,
    contiguity: Contiguity | str | None = None,
    name: str | None = None,
) -> Problem:
    """Read the workload in `path`; one that ends in ``.txt`` by `read_compute_graph`.

    The format does not say what to minimise (`Throughput` by default), nor what the ops of a device must form (the
    objective's own default). The problem is called as the file is, unless `name` says otherwise.

    Returns
    -------
    Problem
        Devices ``ACC.0``, ... of kind ``"accelerator"`` first, then hosts ``CPU.0``, ... of kind ``"cpu"``. An op is
        called by its name if the names are unique, else by its id. Ops of one `colorClass` are colocated. The
        memory of an op is its `size`; the bytes of a tensor are the largest `size` on its edges, 0 where not given.

    Raises
    ------
    InvalidFileError
        The file is broken or is no workload; the message names the file, the place, the value and the bound.
    """
    if Path(path).suffix.lower() == ".txt":
        return read_compute_graph(path, objective=objective, contiguity=contiguity, name=name)
    model = validated(WorkloadModel, read_json(path), path)
    nodes = model.nodes
    if model.maxFPGAs + model.maxCPUs == 0:
        raise InvalidFileError(f"{path}: maxFPGAs and maxCPUs are both 0; there must be at least one device")
    if model.maxFPGAs > 0 and model.maxSizePerFPGA == 0:
        raise InvalidFileError(f"{path}: maxSizePerFPGA is 0.0 for {model.maxFPGAs} accelerators; it must be > 0")
    op_names, op_of_id = _op_names(model, path)
    with blaming(path):
        graph, cost_ms = _graph(model, op_names, op_of_id, name or Path(path).stem, path)
        limit = None if model.maxSizePerFPGA >= NO_MEMORY_LIMIT else model.maxSizePerFPGA
        accelerators = [Device(f"ACC.{d}", "accelerator", memory_bytes=limit) for d in range(model.maxFPGAs)]
        platform = Platform((*accelerators, *(Device(f"CPU.{d}", "cpu", is_host=True) for d in range(model.maxCPUs))))
        supported = [[bool(node.supportedOnFpga), True] for node in nodes]
        costs = CostTable(
            kinds=("accelerator", "cpu"),
            op_time_s=np.array([[node.fpgaLatency, node.cpuLatency] for node in nodes]) / 1e3,
            transfer_time_s=np.stack([cost_ms / 1e3, np.zeros(graph.num_tensors)], axis=1),
            op_memory_bytes=np.array([node.size for node in nodes]),
            supported=np.array(supported),
            provenance={"source": "workload file"} | _kept_ids(model, op_names),
        )
        return Problem(
            graph,
            platform,
            costs.for_kinds(platform.kinds),
            Throughput() if objective is None else objective,
            contiguity,  # type: ignore[arg-type]  # None and names are converted
            _colocation([node.colorClass for node in nodes]),
        )


def _op_names(model: WorkloadModel, path: str | Path) -> tuple[list[str], dict[int, int]]:
    """Return the names that the ops get, and the position of every id."""
    op_of_id: dict[int, int] = {}
    for op, node in enumerate(model.nodes):
        if node.id in op_of_id:
            raise InvalidFileError(
                f"{path}: nodes[{op_of_id[node.id]}] and nodes[{op}] both have id {node.id}; ids must be unique"
            )
        op_of_id[node.id] = op
    names = [node.name for node in model.nodes if node.name is not None]
    if len(set(names)) != len(model.nodes):
        names = [str(node.id) for node in model.nodes]
    return names, op_of_id


def _kept_ids(model: WorkloadModel, op_names: list[str]) -> dict[str, dict[str, int]]:
    """Return the ids of the nodes where the ops are called otherwise: splits by experts name them."""
    ids = [node.id for node in model.nodes]
    return {} if op_names == list(map(str, ids)) else {NODE_IDS: dict(zip(op_names, ids, strict=True))}


def node_ids(problem: Problem) -> list[int] | None:
    """Return the id that each op had in the workload file of a problem; None if its ops are called by their ids."""
    kept = problem.costs.provenance.get(NODE_IDS)
    found = [kept.get(name) for name in problem.graph.op_names] if isinstance(kept, Mapping) else []
    ids = [each for each in found if type(each) is int]
    return ids if len(set(ids)) == problem.graph.num_ops == len(found) else None


def _graph(
    model: WorkloadModel, op_names: list[str], op_of_id: dict[int, int], name: str, path: str | Path
) -> tuple[OpGraph, NDArray[np.float64]]:
    """Return the graph, and the transfer cost of every tensor in milliseconds."""
    readers: dict[int, dict[int, None]] = {}
    cost_ms: dict[int, float] = {}
    size: dict[int, float] = {}
    for at, edge in enumerate(model.edges):
        for field, end in (("sourceId", edge.sourceId), ("destId", edge.destId)):
            if end not in op_of_id:
                raise InvalidFileError(f"{path}: edges[{at}].{field} is {end}; no node has that id")
        if edge.sourceId == edge.destId:
            raise InvalidFileError(f"{path}: edges[{at}] goes from node {edge.sourceId} to itself")
        producer = op_of_id[edge.sourceId]
        readers.setdefault(producer, {})[op_of_id[edge.destId]] = None
        known = cost_ms.setdefault(producer, edge.cost)
        if not isclose(known, edge.cost, rel_tol=_COST_TOLERANCE):
            raise InvalidFileError(
                f"{path}: edges[{at}].cost is {edge.cost}, but another edge of node {edge.sourceId} has {known}; "
                "all out-edges of a node must have the same cost"
            )
        size[producer] = max(size.get(producer, 0.0), edge.size or 0.0)
    producers = sorted(readers)
    graph = OpGraph(
        name=name,
        op_names=tuple(op_names),
        op_types=("Op",) * len(op_names),
        tensor_producer=np.array(producers, dtype=np.int64),
        consumer_offsets=np.cumsum([0, *(len(readers[op]) for op in producers)], dtype=np.int64),
        consumers=np.array([reader for op in producers for reader in readers[op]], dtype=np.int64),
        tensor_bytes=np.array([size[op] for op in producers], dtype=np.float64),
        is_backward=np.array([bool(node.isBackwardNode) for node in model.nodes]),
    )
    return graph, np.array([cost_ms[op] for op in producers], dtype=np.float64)


def _colocation(labels: list[int | None]) -> NDArray[np.int64]:
    """Keep the given labels, so that they are written back as they were; nodes without one get unused labels."""
    used = {label for label in labels if label is not None}
    fresh = islice((label for label in count() if label not in used), labels.count(None))
    return np.array([next(fresh) if label is None else label for label in labels], dtype=np.int64)


def write_workload(problem: Problem, path: str | Path) -> None:
    """Write `problem` to `path` as a workload file. The write is atomic.

    Names of devices, op types, FLOPs, shapes, spreads and provenance have no place in the format and are lost, as are
    the objective and the contiguity; fused groups become part of the colour classes.

    Raises
    ------
    UnsupportedProblemError
        The format cannot say it: more than one kind of CPU or of accelerator, a CPU with a memory limit or a transfer
        cost, an op that a CPU cannot run, an op with several outputs, a pinned op. The message says which.
    PlacekitError
        The file cannot be written.
    """
    write_json(path, workload_to_dict(problem))


def workload_to_dict(problem: Problem) -> dict[str, Any]:
    """Return `problem` as the JSON values of a workload file; see `write_workload`."""
    graph, platform, costs = problem.graph, problem.platform, problem.costs
    accelerator, cpu = _the_two_kinds(problem)
    num_ops = graph.num_ops
    absent = np.zeros(num_ops)
    acc_ms = absent if accelerator is None else milliseconds(costs.op_time_s[:, accelerator])
    cpu_ms = absent if cpu is None else milliseconds(costs.op_time_s[:, cpu])
    can_accelerate = np.ones(num_ops, dtype=bool) if accelerator is None else costs.supported[:, accelerator]
    transfer_ms = (
        np.zeros(graph.num_tensors) if accelerator is None else milliseconds(costs.transfer_time_s[:, accelerator])
    )
    limit: float | None = None
    if accelerator is not None:
        limit = platform.devices[platform.devices_of_kind(accelerator)[0]].memory_bytes
    is_fused = not np.array_equal(costs.op_group, np.arange(num_ops))
    ids = np.array(node_ids(problem) or range(num_ops), dtype=np.int64)
    columns = zip(
        graph.op_names,
        ids.tolist(),
        can_accelerate.tolist(),
        cpu_ms.tolist(),
        acc_ms.tolist(),
        graph.is_backward.tolist(),
        (problem.op_class if is_fused else problem.colocation).tolist(),
        costs.op_memory_bytes.tolist(),
        strict=True,
    )
    keys = ("name", "id", "supportedOnFpga", "cpuLatency", "fpgaLatency", "isBackwardNode", "colorClass", "size")
    tensor = graph.consumed_tensor
    edges = zip(
        ids[graph.tensor_producer[tensor]].tolist(),
        ids[graph.consumers].tolist(),
        transfer_ms[tensor].tolist(),
        graph.tensor_bytes[tensor].tolist(),
        strict=True,
    )
    return {
        "maxSizePerFPGA": NO_MEMORY_LIMIT if limit is None else limit,
        "maxFPGAs": 0 if accelerator is None else len(platform.devices_of_kind(accelerator)),
        "maxCPUs": 0 if cpu is None else len(platform.devices_of_kind(cpu)),
        "nodes": [dict(zip(keys, row, strict=True)) for row in columns],
        "edges": [dict(zip(("sourceId", "destId", "cost", "size"), row, strict=True)) for row in edges],
    }


def _the_two_kinds(problem: Problem) -> tuple[int | None, int | None]:
    """Return the kind indices of the accelerator and of the CPU, or say why the format has no place for them."""
    graph, platform, costs = problem.graph, problem.platform, problem.costs
    if platform.direct_links:
        name = platform.direct_links[0].name
        raise UnsupportedProblemError(f"a workload file has no direct links between devices; there is {name!r}")
    roles: dict[bool, int] = {}
    for kind, name in enumerate(platform.kinds):
        device = platform.devices[platform.devices_of_kind(kind)[0]]
        if device.is_host in roles:
            role = "CPU" if device.is_host else "accelerator"
            other = platform.kinds[roles[device.is_host]]
            raise UnsupportedProblemError(f"a workload file has one kind of {role}; there are {other!r} and {name!r}")
        roles[device.is_host] = kind
        if device.is_host and device.memory_bytes is not None:
            raise UnsupportedProblemError(
                f"a workload file has no memory limit for CPUs; kind {name!r} has {device.memory_bytes:.0f} bytes"
            )
        if device.is_host and costs.transfer_time_s[:, kind].any():
            raise UnsupportedProblemError(f"in a workload file CPUs transfer for free; kind {name!r} does not")
        if device.is_host and not costs.supported[:, kind].all():
            op = graph.op_names[np.flatnonzero(~costs.supported[:, kind])[0]]
            raise UnsupportedProblemError(f"in a workload file CPUs run every op; kind {name!r} cannot run {op!r}")
    producers, tensors = np.unique(graph.tensor_producer, return_counts=True)
    if (tensors > 1).any():
        op = producers[np.flatnonzero(tensors > 1)[0]]
        raise UnsupportedProblemError(
            f"a workload file has one output per op; {graph.op_names[op]!r} has {tensors.max()}"
        )
    pinned = np.flatnonzero(problem.pinned != UNPINNED)
    if pinned.size:
        raise UnsupportedProblemError(f"a workload file pins no ops; {graph.op_names[pinned[0]]!r} is pinned")
    return roles.get(False), roles.get(True)


def milliseconds(time_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return `time_s` in milliseconds, such that division by 1000 gives the same seconds back where any number does.

    ``x / 1000 * 1000`` is not always ``x`` in floating point; the number that was read is then a neighbour. Seconds
    that never were a whole double of milliseconds (about one in a hundred) come back one rounding step off.
    """
    with np.errstate(over="ignore"):
        time_ms = time_s * 1e3
    for neighbour in (np.nextafter(time_ms, 0), np.nextafter(time_ms, np.inf)):
        time_ms = np.where((time_ms / 1e3 != time_s) & (neighbour / 1e3 == time_s), neighbour, time_ms)
    return time_ms
