"""The devices of the nodes of an ONNX file, and copies of the file that say them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placekit.io.needs import require_onnx
from placekit.model.errors import UnsupportedProblemError
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement

if TYPE_CHECKING:
    import onnx


def load_nodes(source: Path, runtime: str, target: Path | None = None) -> onnx.ModelProto:
    """Read an ONNX file without the weights that lie in files beside it.

    A copy that goes to `target` reads weights beside it from there. Raises `UnsupportedProblemError`: the copy would
    not find its weights; `SolverUnavailableError`: the package onnx is not installed.
    """
    onnx = require_onnx(f"export --to {runtime}")
    model: Any = onnx.load(source, load_external_data=False)
    if (
        target is not None
        and target.resolve().parent != source.resolve().parent
        and any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in model.graph.initializer)
    ):
        raise UnsupportedProblemError(
            f"{source} has weights in files beside it: write the annotated model into the same folder, {source.parent}"
        )
    return model  # type: ignore[no-any-return]


def devices_of_nodes(model: onnx.ModelProto, graph: OpGraph, placement: Placement) -> list[int]:
    """Return the device of every node.

    A node is where the op of its name is, or of one of its outputs. One that conversion folded or renamed follows the
    nodes that read it, or else those that it reads. Nodes inside control flow stay with theirs. Raises
    `UnsupportedProblemError`: no node has the name of an op: another model.
    """
    nodes = list(model.graph.node)
    device: list[int | None] = []
    # a Result has the name of a tensor, and its device is not that of the node which computes the tensor
    ops = {name for name, op_type in zip(graph.op_names, graph.op_types, strict=True) if op_type != "Result"}
    for node in nodes:
        names = [name for name in (node.name, *node.output) if name in ops]
        device.append(int(placement.device_of_op[graph.op_index[names[0]]]) if names else None)
    if all(found is None for found in device):
        raise UnsupportedProblemError(f"{graph.name!r}: no node of the ONNX model has the name of an op")
    maker = {name: at for at, node in enumerate(nodes) for name in node.output}
    for at in reversed(range(len(nodes))):  # ONNX lists nodes in topological order
        for name in nodes[at].input:
            if name in maker and device[maker[name]] is None:
                device[maker[name]] = device[at]
    for at, node in enumerate(nodes):
        if device[at] is None:
            device[at] = next((device[maker[name]] for name in node.input if name in maker), None)
    fallback = next(found for found in device if found is not None)
    return [fallback if found is None else found for found in device]


def label_nodes(model: onnx.ModelProto, key: str, values: Sequence[str]) -> None:
    """Set the metadata entry `key` of every node to its value. In place."""
    for node, value in zip(model.graph.node, values, strict=True):
        for entry in [entry for entry in node.metadata_props if entry.key == key]:
            node.metadata_props.remove(entry)
        entry = node.metadata_props.add()
        entry.key, entry.value = key, value
