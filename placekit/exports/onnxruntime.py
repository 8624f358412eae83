"""Placements for ONNX Runtime: nodes that say where they go, and the session option that reads it.

Every node gets the metadata entry ``layer_ann``; the session option ``session.layer_assignment_settings``, rules
``device(=annotation); ...``, binds annotations to devices. A session has one device of each type, a CPU and one
accelerator say.

References
----------
ONNX Runtime documentation, "Partitioning with annotations and memory constraints".
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placekit.errors import SolverUnavailableError, UnsupportedProblemError
from placekit.graph import OpGraph
from placekit.io.atomic import encode_json, write_together
from placekit.placement import Placement
from placekit.platform import Device, Platform

if TYPE_CHECKING:
    import onnx

__all__ = ["ANNOTATION", "SETTING", "annotate", "session_setting", "write_annotated"]

ANNOTATION = "layer_ann"
"""Metadata entry of a node."""
SETTING = "session.layer_assignment_settings"
"""Session option that binds annotations to devices."""


def session_setting(platform: Platform, placement: Placement) -> str:
    """Return the value of `SETTING` for the devices that hold ops.

    Raises
    ------
    UnsupportedProblemError
        A team, or two devices of one type.

    Examples
    --------
    >>> platform = Platform.of(cpu=1, gpu=2, host="cpu")
    >>> session_setting(platform, Placement(("a", "b"), platform.device_names, [0, 2]))
    'cpu(=cpu_0);gpu:1(=gpu_1)'
    """
    teams = [team for team in placement.teams if len(team) > 1]
    if teams:
        raise UnsupportedProblemError(
            f"onnxruntime has no replicas, as {placement.team_name(teams[0][0])!r} is; place with --teams off"
        )
    used = [d for d in range(platform.num_devices) if (placement.device_of_op == d).any()]
    types: dict[str, str] = {}
    rules = []
    for d in used:
        device = platform.devices[d]
        target = _target(device, platform)
        other = types.setdefault(target.partition(":")[0], device.name)
        if other != device.name:
            raise UnsupportedProblemError(
                f"onnxruntime has one device of a type in a session; {other!r} and {device.name!r} are both "
                f"{target.partition(':')[0]}"
            )
        rules.append(f"{target}(={_label(device)})")
    return ";".join(rules)


def annotate(model: onnx.ModelProto, graph: OpGraph, placement: Placement, platform: Platform) -> None:
    """Write the device of every node of an ONNX model into its metadata. In place.

    A node is where the op of its name is, or of one of its outputs. One that conversion folded or renamed follows the
    nodes that read it, or else those that it reads.

    Parameters
    ----------
    model
        The model; nodes inside control flow stay with theirs.
    graph, placement, platform
        What was read of the same file, and where it goes.

    Raises
    ------
    UnsupportedProblemError
        No node has the name of an op: another model.
    """
    nodes = list(model.graph.node)
    device: list[int | None] = []
    for node in nodes:
        names = [name for name in (node.name, *node.output) if name in graph.op_index]
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
    for node, found in zip(nodes, device, strict=True):
        for entry in [entry for entry in node.metadata_props if entry.key == ANNOTATION]:
            node.metadata_props.remove(entry)
        entry = node.metadata_props.add()
        entry.key, entry.value = ANNOTATION, _label(platform.devices[fallback if found is None else found])


def write_annotated(
    source: Path, graph: OpGraph, placement: Placement, platform: Platform, target: Path
) -> dict[str, str]:
    """Write the annotated copy of an ONNX file, and beside it a JSON file with the session options; return the files.

    Weights in files beside the model are not copied: they are read from there.

    Raises
    ------
    UnsupportedProblemError
        As `session_setting`, `annotate`; or a file that is no ONNX.
    SolverUnavailableError
        The package onnx is not installed.
    """
    if source.suffix.lower() != ".onnx":
        raise UnsupportedProblemError(f"{source}: onnxruntime takes an .onnx file")
    setting = session_setting(platform, placement)
    try:
        import onnx
    except ImportError:
        raise SolverUnavailableError("export --to onnxruntime needs the package onnx: pip install onnx") from None
    model: Any = onnx.load(source, load_external_data=False)
    if target.resolve().parent != source.resolve().parent and any(
        tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in model.graph.initializer
    ):
        raise UnsupportedProblemError(
            f"{source} has weights in files beside it: write the annotated model into the same folder, {source.parent}"
        )
    annotate(model, graph, placement, platform)
    options = target.with_name(f"{target.stem}.session.json")
    write_together([(target, model.SerializeToString()), (options, encode_json(options, {SETTING: setting}))])
    return {"model": str(target), "session": str(options)}


def _label(device: Device) -> str:
    """Return an annotation; rules separate them by other characters than these."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", device.name).strip("_")


def _target(device: Device, platform: Platform) -> str:
    """Return how rules call a device: ``cpu``, ``npu``, ``gpu:0``; GPUs count in the order of the platform."""
    if device.is_host:
        return "cpu"
    said = (device.openvino or device.kind).upper()
    if said.startswith("NPU"):
        return "npu"
    cards = [each.name for each in platform.devices if not each.is_host and each.kind.upper() != "NPU"]
    return f"gpu:{cards.index(device.name)}"
