"""Placements for Netron: a copy of the model whose nodes have an attribute ``device``.

The copy computes what the model does. In ONNX the attribute is a metadata entry of the node; in OpenVINO IR it stands
in the ``data`` of the layer, where readers skip what they do not know, and constants stay in the ``.bin`` of the model.

References
----------
Netron, https://netron.app (ONNX and OpenVINO readers of version 9.3).
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

from placekit.exports.kept import require_kept
from placekit.exports.onnx_nodes import labelled_nodes, write_copy
from placekit.io.atomic import write_bytes
from placekit.model.errors import UnsupportedProblemError
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement

ATTRIBUTE = "device"
"""Name of the attribute; its value is a device, or a team as ``a+b``."""


def write_netron(source: Path, graph: OpGraph, placement: Placement, target: Path) -> dict[str, str]:
    """Write a copy of an ONNX or OpenVINO IR file with the device of every node; return the files.

    Raises `UnsupportedProblemError`: a file of another kind, another model, or a device without nodes;
    `SolverUnavailableError`: the package onnx is not installed.
    """
    suffix = source.suffix.lower()
    if suffix == ".onnx":
        names = [placement.team_name(device) for device in range(len(placement.device_names))]
        files = write_copy(labelled_nodes(source, "netron", graph, placement, ATTRIBUTE, names), source, target)
        return {"model": str(target), **{f"weights {at}": str(file) for at, file in enumerate(files[1:])}}
    if suffix == ".xml":
        write_bytes(target, _labelled_ir(source, graph, placement))
        return {"model": str(target)}
    raise UnsupportedProblemError(
        f"{source}: netron shows devices in .onnx and .xml files; for this one take --to model-explorer"
    )


def _labelled_ir(source: Path, graph: OpGraph, placement: Placement) -> bytes:
    """Return the XML with the attribute; layers of bodies stay with theirs, and constants have none."""
    root = ET.parse(source).getroot()  # noqa: S314  the model was read from the same file
    found: list[tuple[int, str]] = []
    count = Counter[str]()
    for layer in root.iterfind("layers/layer"):
        name = layer.get("name", "")
        if layer.get("type") == "Const":
            continue
        count[name] += 1
        op = graph.op_index.get(name if count[name] == 1 else f"{name}#{count[name]}")  # as `settle_names` tells them
        if op is None:
            continue
        data = layer.find("data")
        if data is None:
            data = ET.Element("data")
            layer.insert(0, data)
        data.set(ATTRIBUTE, placement.team_name(int(placement.device_of_op[op])))
        found.append((op, data.get(ATTRIBUTE, "")))
    if not found:
        raise UnsupportedProblemError(f"{source}: no layer has the name of an op")
    require_kept("netron", graph, placement, found)
    return ET.tostring(root, encoding="utf-8", xml_declaration=True)  # type: ignore[no-any-return]
