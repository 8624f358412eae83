"""Cost tables as JSON files that carry op names, so that they can be checked against a model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from placekit.io.files.npz_arrays import nullable, unpack_arrays, write_document
from placekit.io.files.schemas import CostArraysModel, CostsModel
from placekit.io.reading import blaming, read_json, validated
from placekit.model.costs import CostTable
from placekit.model.errors import InvalidFileError, InvalidProblemError
from placekit.model.graph import OpGraph
from placekit.model.memory import MemoryBlocks


def write_costs(
    costs: CostTable, graph: OpGraph, path: str | Path, *, arrays: Literal["inline", "npz"] = "inline"
) -> None:
    """Write `costs`, made for the model `graph`, which gives the names, to the JSON file `path`. The write is atomic.

    With ``arrays="npz"`` long columns go into `path` with the suffix ``.npz``.

    Raises
    ------
    InvalidProblemError
        The table has another number of ops or tensors than the graph.
    PlacekitError
        The file cannot be written.
    """
    if (costs.num_ops, costs.num_tensors) != (graph.num_ops, graph.num_tensors):
        raise InvalidProblemError(
            f"costs of {costs.num_ops} ops and {costs.num_tensors} tensors do not belong to {graph.name!r}, "
            f"which has {graph.num_ops} and {graph.num_tensors}"
        )
    document: dict[str, Any] = {
        "schema": "placekit/costs/1",
        "model": {"name": graph.name, "hash": graph.content_hash},
        "ops": list(graph.op_names),
        "tensors": {
            "producer": [graph.op_names[op] for op in graph.tensor_producer.tolist()],
            "port": tensor_ports(graph).tolist(),
        },
        "costs": costs_to_dict(costs),
    }
    write_document(document, path, arrays=arrays)


def read_costs(path: str | Path, graph: OpGraph) -> CostTable:
    """Read the costs in `path` and line them up with `graph` by op name.

    Ops and tensors may stand in another order than in the file.

    Raises
    ------
    InvalidFileError
        The file is broken, or was made for a model with other ops or tensors; the message names the first.
    """
    model = validated(CostsModel, unpack_arrays(read_json(path), path), path)
    costs = costs_from_model(model.costs, len(model.ops), len(model.tensors.producer), f"{path}: costs")
    names = [graph.op_names[op] for op in graph.tensor_producer.tolist()]
    op_at = _line_up(model.ops, graph.op_names, "op", path, graph)
    tensor_at = _line_up(
        list(zip(model.tensors.producer, model.tensors.port, strict=True)),
        list(zip(names, tensor_ports(graph).tolist(), strict=True)),
        "output (op, port)",
        path,
        graph,
    )
    with blaming(path):
        return costs.replace(
            op_time_s=costs.op_time_s[op_at],
            transfer_time_s=costs.transfer_time_s[tensor_at],
            op_memory_bytes=costs.op_memory_bytes[op_at],
            supported=costs.supported[op_at],
            op_group=costs.op_group[op_at] if model.costs.op_group is not None else None,
            op_time_spread=None if costs.op_time_spread is None else costs.op_time_spread[op_at],
            blocks=None if costs.blocks is None else costs.blocks.renumbered(op_at),
            direct_time_s=costs.direct_time_s[tensor_at],
        )


def _line_up(there: Sequence[Any], here: Sequence[Any], what: str, path: str | Path, graph: OpGraph) -> Any:
    """Return the position in the file of every op or tensor of the graph."""
    position = {key: at for at, key in enumerate(there)}
    if len(position) != len(there):
        twice = next(key for at, key in enumerate(there) if position[key] != at)
        raise InvalidFileError(f"{path}: {what} {twice!r} appears twice")
    for key in here:
        if key not in position:
            raise InvalidFileError(f"{path}: no costs for {what} {key!r} of model {graph.name!r}")
    if len(here) != len(there):
        known = set(here)
        extra = next(key for key in there if key not in known)
        raise InvalidFileError(f"{path}: has costs for {what} {extra!r}, which model {graph.name!r} does not have")
    return np.array([position[key] for key in here], dtype=np.int64)


def tensor_ports(graph: OpGraph) -> NDArray[np.int64]:
    """``[num_tensors]`` rank of every tensor among those of its producer."""
    order = np.argsort(graph.tensor_producer, kind="stable")
    producers = graph.tensor_producer[order]
    ports = np.empty(graph.num_tensors, dtype=np.int64)
    ports[order] = np.arange(graph.num_tensors) - np.searchsorted(producers, producers)
    return ports


def costs_to_dict(costs: CostTable) -> dict[str, Any]:
    """Return `costs` as JSON values, one column per kind; see :class:`placekit.io.files.schemas.CostArraysModel`."""
    times = np.where(costs.supported, costs.op_time_s, np.nan)
    spread = costs.op_time_spread
    document: dict[str, Any] = {
        "kinds": list(costs.kinds),
        "op_time_s": {kind: nullable(times[:, k]) for k, kind in enumerate(costs.kinds)},
        "transfer_time_s": {kind: costs.transfer_time_s[:, k].tolist() for k, kind in enumerate(costs.kinds)},
        "op_memory_bytes": costs.op_memory_bytes.tolist(),
    }
    if not np.array_equal(costs.op_group, np.arange(costs.num_ops)):
        document["op_group"] = costs.op_group.tolist()
    if spread is not None:
        document["op_time_spread"] = {kind: nullable(spread[:, k]) for k, kind in enumerate(costs.kinds)}
    document["provenance"] = dict(costs.provenance)
    if costs.blocks is not None:
        blocks = costs.blocks
        ops = blocks.ops.tolist()
        document["blocks"] = {
            "bytes": blocks.num_bytes.tolist(),
            "ops": [ops[start:end] for start, end in pairwise(blocks.offsets.tolist())],
            "is_weight": blocks.is_weight.tolist(),
            "queue_slots": blocks.queue_slots,
        }
    if costs.direct_links:
        document["direct_time_s"] = {
            link: costs.direct_time_s[:, at].tolist() for at, link in enumerate(costs.direct_links)
        }
    return document


def costs_from_model(model: CostArraysModel, num_ops: int, num_tensors: int, where: str) -> CostTable:
    """Return the table that `costs_to_dict` described.

    `where` is the file and the place, for messages.
    """
    kinds = model.kinds
    if len(set(kinds)) != len(kinds):
        raise InvalidFileError(f"{where}.kinds names a kind twice: {', '.join(kinds)}")

    def columns(field: str, values: dict[str, Any], length: int) -> NDArray[np.float64]:
        for kind in (*kinds, *values):
            if kind not in values or kind not in kinds:
                raise InvalidFileError(f"{where}.{field} has kinds {', '.join(values)}; kinds are {', '.join(kinds)}")
            if len(values[kind]) != length:
                raise InvalidFileError(
                    f"{where}.{field}[{kind!r}] has {len(values[kind])} entries; there must be {length}"
                )
        columns = [np.array(values[kind], dtype=np.float64) for kind in kinds]  # None becomes NaN
        return np.stack(columns, axis=1)

    times = columns("op_time_s", model.op_time_s, num_ops)
    for field, values in (("op_memory_bytes", model.op_memory_bytes), ("op_group", model.op_group)):
        if values is not None and len(values) != num_ops:
            raise InvalidFileError(f"{where}.{field} has {len(values)} entries; there must be {num_ops}")
    for link, seconds in model.direct_time_s.items():
        if len(seconds) != num_tensors:
            raise InvalidFileError(
                f"{where}.direct_time_s[{link!r}] has {len(seconds)} entries; there must be {num_tensors}"
            )
    blocks = None
    with blaming(where):
        if model.blocks is not None:
            told = zip(model.blocks.bytes, model.blocks.is_weight, model.blocks.ops, strict=True)
            blocks = MemoryBlocks.of(list(told), model.blocks.queue_slots)
        return CostTable(
            kinds=tuple(kinds),
            op_time_s=times,
            transfer_time_s=columns("transfer_time_s", model.transfer_time_s, num_tensors),
            op_memory_bytes=np.array(model.op_memory_bytes),
            supported=~np.isnan(times),
            op_group=None if model.op_group is None else np.array(model.op_group),  # type: ignore[arg-type]  # None = default
            op_time_spread=None
            if model.op_time_spread is None
            else columns("op_time_spread", model.op_time_spread, num_ops),
            provenance=model.provenance,
            blocks=blocks,
            direct_links=tuple(model.direct_time_s),
            direct_time_s=np.array([*model.direct_time_s.values()]).reshape(len(model.direct_time_s), num_tensors).T,
        )
