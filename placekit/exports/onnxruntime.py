"""Placements for ONNX Runtime: nodes that say where they go, and the session option that reads it.

Every node gets the metadata entry ``layer_ann``; the session option ``session.layer_assignment_settings``, rules
``device(=annotation); ...``, binds annotations to devices. A session has one device of each type, a CPU and one
accelerator say.

References
----------
ONNX Runtime documentation, "Partitioning with annotations and memory constraints".
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from placekit.exports.blocks import refuse_teams
from placekit.exports.onnx_nodes import labelled_nodes, write_copy
from placekit.io.atomic import encode_json
from placekit.model.errors import ExecutionError, OutputMismatchError, UnsupportedProblemError
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement
from placekit.model.platform import Device, Platform

ANNOTATION = "layer_ann"
"""Metadata entry of a node."""
SETTING = "session.layer_assignment_settings"
"""Session option that binds annotations to devices."""


def session_setting(platform: Platform, placement: Placement) -> str:
    """Return the value of `SETTING` for the devices that hold ops.

    Raises `UnsupportedProblemError`: a team, or two devices of one type.

    Examples
    --------
    >>> platform = Platform.of(cpu=1, gpu=2, host="cpu")
    >>> session_setting(platform, Placement(("a", "b"), platform.device_names, [0, 2]))
    'cpu(=cpu_0);gpu:1(=gpu_1)'
    """
    refuse_teams("onnxruntime", platform, placement)
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


def write_annotated(
    source: Path,
    graph: OpGraph,
    placement: Placement,
    platform: Platform,
    target: Path,
    check: Callable[[Path, str], object] | None = None,
) -> dict[str, str]:
    """Write the annotated copy of an ONNX file, and beside it a JSON file with the session options; return the files.

    Weights in files beside the model stay there; a `target` in another folder has copies of them beside it. `check` is
    called with the annotated model, before it takes its place, and with the value of `SETTING`; what it raises
    leaves everything as it was. Raises `UnsupportedProblemError`: as `session_setting`, `devices_of_nodes`; or a file
    that is no ONNX; `SolverUnavailableError`: the package onnx is not installed.
    """
    if source.suffix.lower() != ".onnx":
        raise UnsupportedProblemError(f"{source}: onnxruntime takes an .onnx file")
    setting = session_setting(platform, placement)
    labels = [_label(device) for device in platform.devices]
    model = labelled_nodes(source, "onnxruntime", graph, placement, ANNOTATION, labels)
    options = target.with_name(f"{target.stem}.session.json")
    weights = write_copy(
        model,
        source,
        target,
        {options.name: encode_json(options, {SETTING: setting})},
        None if check is None else lambda new: check(new, setting),
    )[1:-1]
    return {"model": str(target), "session": str(options), **_weights(weights)}


def _weights(files: Sequence[Path]) -> dict[str, str]:
    return {f"weights{f' {at}' * (at > 0)}": str(file) for at, file in enumerate(files)}


def check_annotated(source: Path, annotated: Path, setting: str, inputs: dict[str, Any]) -> str:
    """Run one sample through the annotated model in ONNX Runtime, and return what was checked.

    `setting` is the value of `SETTING`. Raises `ExecutionError`: ONNX Runtime runs the model as it was, and not the
    annotated one; `OutputMismatchError`: an output differs.
    """
    try:
        onnxruntime: Any = importlib.import_module("onnxruntime")
    except ImportError:
        return "every node annotated; not run: onnxruntime is not installed"

    def run(path: Path, setting: str | None) -> list[Any]:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # a rule for a device that is not there is an error in the log, and skipped
        if setting is not None:
            options.add_session_config_entry(SETTING, setting)
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return list(session.run(None, inputs))

    try:
        expected = run(source, None)
    except Exception as error:  # ONNX Runtime has errors of its own
        return f"every node annotated; not run: onnxruntime does not run {source.name}: {_first_line(error)}"
    try:
        found = run(annotated, setting)
    except Exception as error:
        raise ExecutionError(f"onnxruntime does not run the annotated model: {_first_line(error)}") from error
    for at, (one, other) in enumerate(zip(expected, found, strict=True)):
        is_number = np.asarray(one).dtype.kind in "fc"
        if not (np.allclose(one, other, 1e-3, 1e-5, equal_nan=True) if is_number else np.array_equal(one, other)):
            raise OutputMismatchError(f"output {at} of the annotated model differs from that of {source.name}")
    return "one sample run in onnxruntime on the CPU: outputs as the model's"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


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
