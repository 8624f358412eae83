"""OpenVINO IR: an ``.xml`` file with the graph, and a ``.bin`` file next to it with the constants.

The XML is checked before OpenVINO sees it: that it is the root of an IR, that every edge ends at a layer that
exists, and that every constant lies inside the ``.bin``. OpenVINO's own reader would otherwise offer a broken file to
all of its frontends, which write to the terminal, and reads constants past the end of a file that is too short.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET  # Python's expat bounds entity expansion, and an IR needs none
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from placekit.errors import InvalidFileError
from placekit.io.openvino_graph import apply_shapes, settle_names, short_reason

if TYPE_CHECKING:
    import openvino

__all__ = ["load_model", "model_files"]


def model_files(path: Path) -> list[Path]:
    """Return the files that make up the model: the ``.xml``, and the ``.bin`` if there is one."""
    weights = path.with_suffix(".bin")
    return [path, weights] if weights.is_file() else [path]


def load_model(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> openvino.Model:
    """Read an IR with OpenVINO, names settled and `shapes` applied.

    Raises
    ------
    InvalidFileError
        A file that is no IR, contradicts itself or its ``.bin``, or that OpenVINO refuses.
    UnknownNameError
        A shape for an input that the model does not have.
    """
    names = _check(path)
    import openvino as ov

    try:
        model = ov.Core().read_model(path)
    except Exception as error:  # OpenVINO raises RuntimeError and types of its own
        raise InvalidFileError(f"{path}: OpenVINO cannot read it: {short_reason(error)}") from None
    apply_shapes(model, shapes, path)
    settle_names(model, names)
    return model


def _check(path: Path) -> frozenset[str]:
    """Check what OpenVINO does not, and return the names of the layers."""
    try:
        root = ET.parse(path).getroot()  # noqa: S314
    except (ET.ParseError, OSError, ValueError, LookupError) as error:  # LookupError: an encoding nobody knows
        raise InvalidFileError(f"{path}: not an OpenVINO IR: {error}") from None
    if root.tag != "net" or root.find("layers") is None:
        raise InvalidFileError(f"{path}: not an OpenVINO IR: expected <net> with <layers>, found <{root.tag}>")
    weights = path.with_suffix(".bin")
    try:
        num_bytes = weights.stat().st_size
    except OSError:
        num_bytes = None
    bodies = (body for tag in ("body", "then_body", "else_body") for body in root.iter(tag))
    for network in (root, *bodies):
        layers = network.find("layers")
        if layers is not None:
            _check_layers(path, layers, weights, num_bytes)
            _check_edges(path, layers, network.find("edges"))
    return frozenset(layer.get("name", "") for layer in root.iterfind("layers/layer"))


def _check_layers(path: Path, layers: ET.Element, weights: Path, num_bytes: int | None) -> None:
    for layer in layers.iterfind("layer"):
        for attribute in ("id", "type"):
            if not layer.get(attribute):
                raise InvalidFileError(f"{path}: layer {layer.get('name')!r} has no {attribute}")
        data = layer.find("data")
        if layer.get("type") not in {"Const", "Constant"} or data is None:
            continue
        what = f"{path}: constant {layer.get('name')!r}"
        begin, size = (_number(data.get(attribute, "0"), f"{what}: {attribute}") for attribute in ("offset", "size"))
        if size and num_bytes is None:
            raise InvalidFileError(f"{what} needs {weights.name}, which is missing")
        if num_bytes is not None and begin + size > num_bytes:
            raise InvalidFileError(
                f"{what} ends at byte {begin + size}, but {weights.name} has {num_bytes} bytes; is it truncated?"
            )


def _check_edges(path: Path, layers: ET.Element, edges: ET.Element | None) -> None:
    ports = {
        layer.get("id"): {port.get("id") for side in ("input", "output") for port in layer.iterfind(f"{side}/port")}
        for layer in layers.iterfind("layer")
    }
    for edge in edges.iterfind("edge") if edges is not None else ():
        for end in ("from", "to"):
            layer, port = edge.get(f"{end}-layer"), edge.get(f"{end}-port")
            if layer not in ports or port not in ports[layer]:
                raise InvalidFileError(f"{path}: an edge leads {end} port {port} of layer {layer}, which is missing")


def _number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise InvalidFileError(f"{what} is {text!r}; expected a number >= 0")
    return int(text)
