"""ONNX models, through OpenVINO's converter.

``Core.read_model`` would read ONNX too, but leaves weights as small subgraphs and batch normalisations unfused; the
converter gives the graph that OpenVINO is meant to run.

The file's own names and the files with its external data are collected beforehand with the package onnx, which leaves
external data where it is. A model without external data has at most 2 GiB, as much as protobuf can hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from placekit.io.needs import require_onnx
from placekit.io.openvino_graph import apply_shapes, settle_names, short_reason
from placekit.io.reading import inside, open_input
from placekit.model.errors import InvalidFileError

if TYPE_CHECKING:
    import onnx
    import openvino

_MAX_BYTES = (1 << 31) - 1
"""Protobuf reads no longer message."""


def model_files(path: Path) -> list[Path]:
    """Return the files that make up the model: the ``.onnx``, and those with its external data."""
    return [path, *(path.parent / name for name in sorted(_read(path).external))]


def load_model(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> openvino.Model:
    """Convert an ONNX file with OpenVINO, names settled and `shapes` applied."""
    found = _read(path)
    for name in sorted(found.external):
        if not inside(path.parent, name, path).is_file():
            raise InvalidFileError(f"{path}: the file with its external data is missing: {name}")
    names, node_of_tensor = found.names, dict(found.node_of_tensor)
    try:
        model = _convert(path, path)
    except InvalidFileError:
        if not found.has_functions:
            raise
        from onnx import inliner, load, save

        with TemporaryDirectory(prefix="placekit-") as folder:
            inlined = Path(folder) / path.name
            whole = inliner.inline_local_functions(load(path))
            save(whole, inlined, save_as_external_data=bool(found.external))
            names |= _read(inlined).names
            node_of_tensor |= _read(inlined).node_of_tensor
            model = _convert(inlined, path)
    _join_inputs(model)
    apply_shapes(model, shapes, path)
    settle_names(model, names, node_of_tensor)
    return model


def _convert(file: Path, path: Path) -> openvino.Model:
    """Return what OpenVINO makes of `file`; messages name `path`."""
    import openvino as ov

    try:
        return ov.convert_model(file)
    except Exception as error:  # the converter raises types of its own
        raise InvalidFileError(f"{path}: OpenVINO cannot convert it: {short_reason(error)}") from None


def _join_inputs(model: openvino.Model) -> None:
    """Make one input of two that the converter makes of an input that is an output as well. In place.

    The converter leaves the input's tensor name with a parameter that nothing reads, and its friendly name with another
    one, which all read.
    """
    read = {each.get_friendly_name(): each for each in model.get_parameters() if each.output(0).get_target_inputs()}
    for unread in model.get_parameters():
        names = unread.output(0).get_names()
        twin = next((read[name] for name in names if name in read), None)
        if twin is None or unread.output(0).get_target_inputs():
            continue
        twin.output(0).replace(unread.output(0))
        model.remove_parameter(twin)
        unread.set_friendly_name(twin.get_friendly_name())
        unread.output(0).set_names(names)


@dataclass(frozen=True)
class _Found:
    """Names in a file, the node that computes each tensor, paths of external data, and whether it has functions."""

    names: frozenset[str]
    node_of_tensor: Mapping[str, str]
    external: frozenset[str]
    has_functions: bool


def _read(path: Path) -> _Found:
    """Return what is in the file; one that has not changed since is not parsed again."""
    try:
        state = path.stat()
    except OSError as error:
        raise InvalidFileError(f"cannot read {path}: {error.strerror}") from error
    return _parsed(path, state.st_ino, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=4)
def _parsed(path: Path, *_state: int) -> _Found:
    onnx = require_onnx(f"reading {path}")
    with open_input(path, _MAX_BYTES) as stream:
        try:
            model = onnx.load_model_from_string(stream.read())
        except Exception as error:  # protobuf's DecodeError has another home in each of its versions
            raise InvalidFileError(f"{path}: not an ONNX model, or truncated: {error}") from None
    if not model.HasField("graph"):
        raise InvalidFileError(f"{path}: not an ONNX model: it has no graph")
    names: set[str] = set()
    node_of_tensor: dict[str, str] = {}
    external: set[str] = set()
    for graph in _graphs(model.graph):
        tensors = [*graph.initializer, *(each.values for each in graph.sparse_initializer)]
        names |= {each.name for each in (*graph.input, *graph.output, *tensors)}
        for node in graph.node:
            names |= {node.name, *node.output}
            node_of_tensor |= {name: node.name for name in node.output if name and node.name}
            tensors += [tensor for each in node.attribute for tensor in (each.t, *each.tensors)]
        entries = [entry for tensor in tensors for entry in tensor.external_data]
        external |= {entry.value for entry in entries if entry.key == "location"}
    return _Found(frozenset(names), node_of_tensor, frozenset(external), bool(model.functions))


def _graphs(graph: onnx.GraphProto) -> Iterator[Any]:
    """Yield a graph, and the bodies of its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for body in (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs):
                yield from _graphs(body)
