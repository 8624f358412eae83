"""Placements for Model Explorer: node data, a colour for each device, and the graph where it has no reader of its own.

References
----------
Model Explorer, https://github.com/google-ai-edge/model-explorer, "Custom node data" and the JSON graph format (0.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placekit.exports.onnx_nodes import devices_of_nodes
from placekit.io.atomic import STDOUT, encode_json, write_together
from placekit.io.models.onnx import has_functions, read_nodes
from placekit.io.visible import device_color
from placekit.model.errors import UnsupportedProblemError
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement


def node_data(
    nodes: Iterable[tuple[str, int]], placement: Placement, time_s: Sequence[float] | None = None
) -> dict[str, Any]:
    """Return node data for the graph that is open: what a node says, in the colour of its device.

    `nodes` are names of nodes or of one of their outputs, with their devices. `time_s` is shown in milliseconds; nodes
    say their device if it is None, or where it is not finite.
    """
    results = {}
    for at, (name, device) in enumerate(nodes):
        known = time_s is not None and np.isfinite(time_s[at])
        results[name] = {
            "value": float(time_s[at]) * 1e3 if time_s is not None and known else placement.team_name(device),
            "bgColor": device_color(device),
            "textColor": "#ffffff",
        }
    return {"results": results, "thresholds": []}


def explorer_graph(graph: OpGraph, placement: Placement, modules: Sequence[str] | None = None) -> dict[str, Any]:
    """Return a graph as Model Explorer's JSON reader takes it; nodes have ``device`` among their attributes.

    Nodes nest by `modules`, the path of the module of every op; by default, by what stands before the last slash of
    their names.
    """
    names = graph.op_names
    nodes: list[dict[str, Any]] = [
        {
            "id": name,
            "label": kind,
            "namespace": modules[op].replace(".", "/") if modules else name.strip("/").rpartition("/")[0],
            "attrs": [
                {"key": "name", "value": name},
                {"key": "device", "value": placement.team_name(int(placement.device_of_op[op]))},
            ],
            "incomingEdges": [],
        }
        for op, (name, kind) in enumerate(zip(names, graph.op_types, strict=True))
    ]
    for tensor, producer in enumerate(graph.tensor_producer.tolist()):
        for consumer in graph.consumers_of(tensor):
            nodes[int(consumer)]["incomingEdges"].append(
                {"sourceNodeId": names[producer], "sourceNodeOutputId": str(tensor)}
            )
    return {"label": graph.name, "graphs": [{"id": graph.name, "nodes": nodes}]}


def write_model_explorer(
    source: Path,
    graph: OpGraph,
    placement: Placement,
    target: Path,
    modules: Sequence[str] | None = None,
    op_time_s: NDArray[np.float64] | None = None,
) -> dict[str, str]:
    """Write node data to `target`, and unless `source` is ONNX the graph that they belong to; return the files.

    The `source` is a model or problem file; Model Explorer opens ONNX, by its extension ``model-explorer-onnx``. The
    graph is written beside the node data, as ``STEM.graph.json``; `graph`, `placement` and `modules` are as for
    `explorer_graph`. Of `op_time_s`, ``[num_ops]`` times of the ops where they are placed, none is shown for ONNX,
    whose nodes are not ops. Raises `UnsupportedProblemError`: as `devices_of_nodes`, or two
    files are asked for on stdout; `SolverUnavailableError`: the package onnx is not installed.
    """
    nodes = _nodes_of_onnx(source, graph, placement) if source.suffix.lower() == ".onnx" else None
    if nodes is not None:
        write_together([(target, encode_json(target, node_data(nodes, placement)))])
        return {"node data": str(target)}
    if target == STDOUT:
        raise UnsupportedProblemError(f"{source}: two files, the data and the graph, do not go to stdout")
    beside = target.with_name(f"{target.stem}.graph.json")
    ops = zip(graph.op_names, placement.device_of_op.tolist(), strict=True)
    data = node_data(ops, placement, None if op_time_s is None else op_time_s.tolist())
    write_together(
        [(target, encode_json(target, data)), (beside, encode_json(beside, explorer_graph(graph, placement, modules)))]
    )
    return {"node data": str(target), "graph": str(beside)}


def _nodes_of_onnx(source: Path, graph: OpGraph, placement: Placement) -> list[tuple[str, int]] | None:
    """Return the nodes that Model Explorer shows of an ONNX file, with their devices.

    None if it shows others than there are ops: calls of the file's own functions, or several nodes of one name.
    """
    model = read_nodes(source)
    devices = devices_of_nodes(model, "model-explorer", graph, placement)
    names = [node.name or node.output[0] for node in model.graph.node]
    if has_functions(source) or len(set(names)) < len(names):
        return None
    return list(zip(names, devices, strict=True))
