"""ONNX models, through OpenVINO's converter.

``Core.read_model`` would read ONNX too, but leaves weights as small subgraphs and batch normalisations unfused; the
converter gives the graph that OpenVINO is meant to run.

The file's own names and the files with its external data are collected beforehand with the package onnx, which leaves
external data where it is: weights of more than 2 GiB, as much as protobuf can hold, never pass through it. Calls of
the file's own functions are replaced by the nodes inside, whose names and those of their outputs become names of ops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from placekit.io.folders import link_or_copy
from placekit.io.models.model import ModelSource
from placekit.io.models.openvino_graph import apply_shapes, settle_names, short_reason
from placekit.io.models.openvino_source import openvino_source
from placekit.io.needs import require
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


def read_onnx(path: Path, shapes: Mapping[str, Sequence[int]]) -> ModelSource:
    """Read an ONNX file."""
    return openvino_source(path, shapes, load_model, model_files(path))


def has_functions(path: Path) -> bool:
    """Return whether the file has functions of its own."""
    return _read(path).has_functions


def load_model(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> openvino.Model:
    """Convert an ONNX file with OpenVINO, names settled and `shapes` applied."""
    found = _read(path)
    for name in sorted(found.external):
        if not inside(path.parent, name, path).is_file():
            raise InvalidFileError(f"{path}: the file with its external data is missing: {name}")
    if found.has_functions:
        model, found = _convert_inlined(path)
    else:
        model = _convert(path, path)
    _join_inputs(model)
    apply_shapes(model, shapes, path)
    settle_names(model, found.names, found.node_of_tensor)
    return model


def _convert_inlined(path: Path) -> tuple[openvino.Model, _Found]:
    """Return what OpenVINO makes of a file with functions of its own, and what is in the file without them."""
    with TemporaryDirectory(prefix="placekit-") as folder:
        inlined = Path(folder) / path.name
        model = read_nodes(path)
        inlined.write_bytes(model.SerializeToString())
        for name in external_files(model):
            link_or_copy(inside(path.parent, name, path), inlined.parent / name)
        return _convert(inlined, path), _read(inlined)


def read_nodes(path: Path) -> onnx.ModelProto:
    """Return the model without the weights that lie in files beside it, and without calls of functions of its own."""
    onnx = require("onnx", f"reading {path}")
    from onnx import inliner

    model: Any = onnx.load(path, load_external_data=False)
    try:
        return inliner.inline_local_functions(model) if model.functions else model
    except Exception as error:  # the inliner raises types of its own
        raise InvalidFileError(f"{path}: its functions cannot be inlined: {short_reason(error)}") from None


def external_files(model: onnx.ModelProto) -> list[str]:
    """Return the paths of the files with the weights of a model, below its folder."""
    entries = (entry for tensor in tensors_of(model) for entry in tensor.external_data)
    return sorted({entry.value for entry in entries if entry.key == "location"})


def tensors_of(model: onnx.ModelProto) -> Iterator[Any]:
    """Yield the tensors of a model: its weights, and those in attributes of nodes, also inside bodies and functions."""
    for graph in (*_graphs(model.graph), *(each for function in model.functions for each in _graphs(function))):
        sparse = list(getattr(graph, "sparse_initializer", ()))
        yield from getattr(graph, "initializer", ())
        for node in graph.node:
            for attribute in node.attribute:
                yield from (attribute.t, *attribute.tensors)
                sparse += [attribute.sparse_tensor, *attribute.sparse_tensors]
        yield from (each for pair in sparse for each in (pair.values, pair.indices))


def _convert(file: Path, path: Path) -> openvino.Model:
    """Return what OpenVINO makes of `file`; messages name `path`."""
    ov = require("openvino", f"reading {path}")
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
    onnx = require("onnx", f"reading {path}")
    with open_input(path, _MAX_BYTES) as stream:
        try:
            model = onnx.load_model_from_string(stream.read())
        except Exception as error:  # protobuf's DecodeError has another home in each of its versions
            raise InvalidFileError(f"{path}: not an ONNX model, or truncated: {error}") from None
    if not model.HasField("graph"):
        raise InvalidFileError(f"{path}: not an ONNX model: it has no graph")
    names: set[str] = set()
    node_of_tensor: dict[str, str] = {}
    for graph in _graphs(model.graph):
        tensors = [*graph.initializer, *(each.values for each in graph.sparse_initializer)]
        names |= {each.name for each in (*graph.input, *graph.output, *tensors)}
        for node in graph.node:
            names |= {node.name, *node.output}
    damaged = next((name for name in names if not isinstance(name, str)), None)
    if damaged is not None:  # protobuf gives bytes
        raise InvalidFileError(f"{path}: not an ONNX model, or damaged: the name {damaged!r} is not UTF-8")
    names_of = names_of_nodes(model)
    for name, node in zip(names_of, (node for graph in _graphs(model.graph) for node in graph.node), strict=True):
        node_of_tensor |= {output: name for output in node.output if output and name}
    names |= set(names_of)
    return _Found(frozenset(names), node_of_tensor, frozenset(external_files(model)), bool(model.functions))


def names_of_nodes(model: onnx.ModelProto) -> list[str]:
    """Return the name of every node, of the graph and then of bodies: of equal ones the later are ``name#2``, ...

    A node without a name has an empty one here.
    """
    own = [node.name for graph in _graphs(model.graph) for node in graph.node]
    taken, count = set(own), Counter[str]()
    names = []
    for name in own:
        count[name] += 1
        fresh = name
        if name and count[name] > 1:
            while (fresh := f"{name}#{count[name]}") in taken:
                count[name] += 1
            taken.add(fresh)
        names.append(fresh)
    return names


def _graphs(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[Any]:
    """Yield a graph or a function, and the bodies of its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for body in (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs):
                yield from _graphs(body)
