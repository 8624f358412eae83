"""Whole problems as JSON files: graph, platform, costs, objective and constraints."""

from __future__ import annotations

from dataclasses import asdict
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from placekit.io.files.costs_json import costs_from_model, costs_to_dict
from placekit.io.files.npz_arrays import unpack_arrays, write_document
from placekit.io.files.schemas import ObjectiveModel, OpsModel, ProblemModel, ServedModel, TensorsModel
from placekit.io.reading import blaming, read_json, validated
from placekit.model.contiguity import Contiguity
from placekit.model.errors import InvalidFileError, InvalidProblemError, PlacekitError
from placekit.model.graph import OpGraph
from placekit.model.memory import Pool
from placekit.model.op_patterns import matching_ops
from placekit.model.platform import Device, Platform
from placekit.model.problem import UNPINNED, Problem
from placekit.model.served import Served
from placekit.objectives import OBJECTIVES, Objective, get_objective


def write_problem(problem: Problem, path: str | Path, *, arrays: Literal["inline", "npz"] = "inline") -> None:
    """Write `problem` to the JSON file `path`; `read_problem` gives an equal one. The write is atomic.

    With ``arrays="npz"`` long columns go into `path` with the suffix ``.npz``: smaller, and faster to read.

    Raises
    ------
    PlacekitError
        The file cannot be written.
    """
    document = problem_to_dict(problem)
    write_document(document, path, arrays=arrays)


def read_problem(path: str | Path) -> Problem:
    """Read the problem in the JSON file `path`.

    Raises
    ------
    InvalidFileError
        The file is broken or is no problem; the message names the file, the place, the value and the bound.
    """
    return problem_from_dict(unpack_arrays(read_json(path), path), path)


def problem_to_dict(problem: Problem) -> dict[str, Any]:
    """Return `problem` as JSON values; see :class:`placekit.io.files.schemas.ProblemModel`."""
    num_ops = problem.graph.num_ops
    document: dict[str, Any] = {
        "schema": "placekit/problem/1",
        "name": problem.name,
        **_graph_to_dict(problem.graph),
        "platform": _platform_to_dict(problem.platform),
        "costs": costs_to_dict(problem.costs),
        "objective": {"name": problem.objective.name, "params": problem.objective.identity()},
        "contiguity": str(problem.contiguity),
    }
    if not np.array_equal(problem.colocation, np.arange(num_ops)):
        document["colocation"] = problem.colocation.tolist()
    document["pinned"] = {
        problem.graph.op_names[op]: problem.platform.device_names[problem.pinned[op]]
        for op in np.flatnonzero(problem.pinned != UNPINNED).tolist()
    }
    if problem.served is not None:
        document["served"] = problem.served.to_dict()
    return document


def problem_from_dict(data: Any, path: str | Path = "problem") -> Problem:
    """Return the problem that `problem_to_dict` described; `path` names the source in messages."""
    model = validated(ProblemModel, data, path)
    with blaming(path):
        graph = _graph_from_model(model.name, model.ops, model.tensors)
        platform = Platform(
            tuple(Device(**device.model_dump()) for device in model.platform.devices),
            {kind: link.to_link() for kind, link in model.platform.links.items()},
            tuple(link.to_direct_link() for link in model.platform.direct_links),
            pools=tuple(Pool(pool.name, pool.memory_bytes, tuple(pool.devices)) for pool in model.platform.pools),
        )
        costs = costs_from_model(model.costs, graph.num_ops, graph.num_tensors, f"{path}: costs")
        pinned = np.full(graph.num_ops, UNPINNED)
        for pattern, device in model.pinned.items():
            try:
                pinned[matching_ops(graph, pattern)] = platform.index(device)
            except InvalidProblemError:
                message = f"{path}: pinned names op {pattern!r}, which the problem does not have"
                raise InvalidFileError(message) from None
        return Problem(
            graph,
            platform,
            costs,
            _objective_from_model(model.objective, path),
            Contiguity(model.contiguity),
            None if model.colocation is None else np.array(model.colocation),  # type: ignore[arg-type]  # None = default
            pinned,
            _served_from_model(model, path),
        )


def _served_from_model(model: ProblemModel, path: str | Path) -> Served | None:
    """Return what is served; files of 0.5 and before have it in the provenance of the costs."""
    told = model.served
    if told is None and isinstance(old := model.costs.provenance.get("serving"), dict):
        told = validated(ServedModel, Served.from_dict(old).to_dict(), f"{path}: costs.provenance.serving")
    return None if told is None else Served.from_dict(told.model_dump())


def _graph_to_dict(graph: OpGraph) -> dict[str, Any]:
    ops: dict[str, Any] = {"name": list(graph.op_names), "type": list(graph.op_types)}
    for field, values in (
        ("flops", graph.op_flops),
        ("weight_bytes", graph.op_weight_bytes),
        ("is_backward", graph.is_backward),
    ):
        if values.any():
            ops[field] = values.tolist()
    consumers = graph.consumers.tolist()
    tensors: dict[str, Any] = {
        "producer": graph.tensor_producer.tolist(),
        "consumers": [consumers[start:end] for start, end in pairwise(graph.consumer_offsets.tolist())],
        "bytes": graph.tensor_bytes.tolist(),
    }
    if any(graph.tensor_shapes):
        tensors["shape"] = [list(shape) for shape in graph.tensor_shapes]
    return {"ops": ops, "tensors": tensors}


def _graph_from_model(name: str, ops: OpsModel, tensors: TensorsModel) -> OpGraph:
    return OpGraph(
        name=name,
        op_names=tuple(ops.name),
        op_types=tuple(ops.type),
        tensor_producer=np.array(tensors.producer, dtype=np.int64),
        consumer_offsets=np.cumsum([0, *map(len, tensors.consumers)], dtype=np.int64),
        consumers=np.array(list(chain.from_iterable(tensors.consumers)), dtype=np.int64),
        tensor_bytes=np.array(tensors.bytes, dtype=np.float64),
        op_flops=ops.flops,  # type: ignore[arg-type]  # lists are converted, None is zeros
        op_weight_bytes=ops.weight_bytes,  # type: ignore[arg-type]
        is_backward=ops.is_backward,  # type: ignore[arg-type]
        tensor_shapes=tuple(tuple(shape) for shape in tensors.shape or ()),
    )


def _platform_to_dict(platform: Platform) -> dict[str, Any]:
    document: dict[str, Any] = {
        "devices": [
            {
                "name": device.name,
                "kind": device.kind,
                "memory_bytes": device.memory_bytes,
                "is_host": device.is_host,
                "openvino": device.openvino,
                "cores": list(device.cores),
                "properties": dict(device.properties),
                **({} if device.node is None else {"node": device.node}),
                **({"members": list(device.members)} if device.members else {}),
            }
            for device in platform.devices
        ],
        "links": {kind: link.to_dict() for kind, link in platform.links.items()},
    }
    if platform.direct_links:
        document["direct_links"] = [link.to_dict() for link in platform.direct_links]
    if platform.pools:
        document["pools"] = [asdict(pool) for pool in platform.pools]
    return document


def _objective_from_model(model: ObjectiveModel, path: str | Path) -> Objective:
    where = f"{path}: objective {model.name!r}"
    if model.name not in OBJECTIVES:
        raise InvalidFileError(f"{where} is unknown; objectives are {', '.join(OBJECTIVES)}")
    # objectives are plain dataclasses, which do not check types: compare with the types of the defaults
    for field, default in OBJECTIVES[model.name]().to_dict().items():
        value = model.params.get(field, default)
        is_number = isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool)
        if default is not None and type(value) is not type(default) and not is_number:
            raise InvalidFileError(f"{where}: {field} is {value!r}; it should be a {type(default).__name__}")
    try:
        return get_objective(model.name, model.params)
    except PlacekitError as error:
        raise InvalidFileError(f"{where}: {error}") from None
