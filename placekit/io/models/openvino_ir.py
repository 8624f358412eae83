"""OpenVINO IR: an ``.xml`` file with the graph, and a ``.bin`` file next to it with the constants.

The XML is checked before OpenVINO sees it: that it is the root of an IR, that every edge ends at a layer that
exists, and that every constant lies inside the ``.bin``. OpenVINO's own reader would otherwise offer a broken file to
all of its frontends, which write to the terminal, and reads constants past the end of a file that is too short.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from placekit.io.models.model import ModelSource
from placekit.io.models.openvino_graph import apply_shapes, settle_names, short_reason
from placekit.io.models.openvino_source import openvino_source
from placekit.io.needs import require
from placekit.io.reading import open_input
from placekit.model.errors import InvalidFileError

if TYPE_CHECKING:
    import openvino

_NETWORKS = frozenset({"net", "body", "then_body", "else_body"})
_BLOCK_BYTES = 1 << 20


def read_ir(path: Path, shapes: Mapping[str, Sequence[int]]) -> ModelSource:
    """Read an IR: the ``.xml``, and the ``.bin`` if there is one."""
    files = [each for each in (path, path.with_suffix(".bin")) if each.is_file()]
    return openvino_source(path, shapes, load_model, files)


def load_model(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> openvino.Model:
    """Read an IR with OpenVINO, names settled and `shapes` applied."""
    names = check_ir(path)
    ov = require("openvino", f"reading {path}")
    try:
        model = ov.Core().read_model(path)
    except Exception as error:  # OpenVINO raises RuntimeError and types of its own
        raise InvalidFileError(f"{path}: OpenVINO cannot read it: {short_reason(error)}") from None
    apply_shapes(model, shapes, path)
    settle_names(model, names)
    return model


def check_ir(path: Path) -> frozenset[str]:
    """Check what OpenVINO does not, and return the names of the layers."""
    inspector = _Inspector(path)
    parser = ET.XMLParser(target=inspector)  # noqa: S314  # expat bounds what entities can expand to
    try:
        with open_input(path, None) as stream:
            while block := stream.read(_BLOCK_BYTES):
                parser.feed(block)
        parser.close()
    except (ET.ParseError, OSError, ValueError, LookupError) as error:  # LookupError: an encoding nobody knows
        if isinstance(error, InvalidFileError):
            raise
        raise InvalidFileError(f"{path}: not an OpenVINO IR: {error}") from None
    return frozenset(inspector.names)


class _Inspector:
    """Checks the XML while it is parsed: a tree of it would take longer to build than the model.

    The net, and every body of an If, Loop or TensorIterator inside it, has layers and then edges of its own.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.weights = path.with_suffix(".bin")
        self.num_bytes = self.weights.stat().st_size if self.weights.is_file() else None
        self.names: set[str] = set()
        self.tags: list[str] = []
        self.networks: list[dict[str, set[str]]] = []  # ports by layer, of each network that is open
        self.layers: list[dict[str, str]] = []
        self.has_layers = False

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "dim":  # more than half of all elements
            self.tags.append(tag)
            return
        parent = self.tags[-1] if self.tags else None
        if parent is None and tag != "net":
            raise InvalidFileError(f"{self.path}: not an OpenVINO IR: expected <net> with <layers>, found <{tag}>")
        self.tags.append(tag)
        if tag in _NETWORKS:
            self.networks.append({})
        elif tag == "layers":
            self.has_layers = True
        elif tag == "layer" and parent == "layers":
            self._start_layer(attributes)
        elif tag == "port" and self.layers:
            self.networks[-1].setdefault(self.layers[-1]["id"], set()).add(attributes.get("id", ""))
        elif tag == "data" and parent == "layer" and self.layers:
            self._check_constant(self.layers[-1], attributes)
        elif tag == "edge" and parent == "edges":
            self._check_edge(attributes)

    def end(self, tag: str) -> None:
        self.tags.pop()
        if tag == "layer" and self.tags[-1:] == ["layers"]:
            self.layers.pop()
        elif tag in _NETWORKS:
            self.networks.pop()

    def close(self) -> None:
        if not self.has_layers:
            raise InvalidFileError(f"{self.path}: not an OpenVINO IR: <net> has no <layers>")

    def _start_layer(self, layer: dict[str, str]) -> None:
        for attribute in ("id", "type"):
            if not layer.get(attribute):
                raise InvalidFileError(f"{self.path}: layer {layer.get('name')!r} has no {attribute}")
        self.networks[-1].setdefault(layer["id"], set())
        self.layers.append(layer)
        if len(self.networks) == 1:
            self.names.add(layer.get("name", ""))

    def _check_constant(self, layer: dict[str, str], data: dict[str, str]) -> None:
        if layer["type"] not in {"Const", "Constant"}:
            return
        what = f"{self.path}: constant {layer.get('name')!r}"
        begin, size = (_number(data.get(attribute, "0"), f"{what}: {attribute}") for attribute in ("offset", "size"))
        if size and self.num_bytes is None:
            raise InvalidFileError(f"{what} needs {self.weights.name}, which is missing")
        if self.num_bytes is not None and begin + size > self.num_bytes:
            raise InvalidFileError(
                f"{what} ends at byte {begin + size}, but {self.weights.name} has {self.num_bytes} bytes; "
                "is it truncated?"
            )

    def _check_edge(self, edge: dict[str, str]) -> None:
        for end in ("from", "to"):
            layer, port = edge.get(f"{end}-layer", ""), edge.get(f"{end}-port", "")
            if port not in self.networks[-1].get(layer, ()):
                raise InvalidFileError(
                    f"{self.path}: an edge leads {end} port {port!r} of layer {layer!r}, which is missing"
                )


def _number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise InvalidFileError(f"{what} is {text!r}; expected a number >= 0")
    return int(text)
