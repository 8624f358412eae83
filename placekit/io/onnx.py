"""ONNX models, through OpenVINO's converter.

``Core.read_model`` would read ONNX too, but leaves weights as small subgraphs and batch normalisations unfused; the
converter gives the graph that OpenVINO is meant to run.

The file's own names and the files with its external data are collected beforehand by a walk over the protobuf
encoding (https://protobuf.dev/programming-guides/encoding), which also finds truncated and foreign files early.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from placekit.io.openvino_graph import apply_shapes, settle_names, short_reason
from placekit.io.reading import inside, open_input
from placekit.model.errors import InvalidFileError

if TYPE_CHECKING:
    import openvino

__all__ = ["load_model", "model_files"]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
"""Wire types of protobuf; the two others belong to groups, which ONNX does not use."""

# Field numbers of onnx.proto3 (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3).
_DESCENT: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 11: "value", 12: "value"},
    "node": {2: "name", 3: "name", 5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph"},
    "value": {1: "name"},
    "tensor": {8: "name", 13: "external"},
    "external": {1: "key", 2: "location"},
}
_LEAVES = frozenset({"name", "key", "location"})


def model_files(path: Path) -> list[Path]:
    """Return the files that make up the model: the ``.onnx``, and those with its external data."""
    return [path, *(path.parent / name for name in sorted(_walk(path).external))]


def load_model(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> openvino.Model:
    """Convert an ONNX file with OpenVINO, names settled and `shapes` applied.

    Raises
    ------
    InvalidFileError
        A file that is no ONNX model, lacks its external data, or that OpenVINO refuses.
    UnknownNameError
        A shape for an input that the model does not have.
    """
    found = _walk(path)
    for name in sorted(found.external):
        if not inside(path.parent, name, path).is_file():
            raise InvalidFileError(f"{path}: the file with its external data is missing: {name}")
    names = found.names
    try:
        model = _convert(path, path)
    except InvalidFileError as error:
        if not found.has_functions:
            raise
        try:
            from onnx import inliner, load, save
        except ModuleNotFoundError:
            raise InvalidFileError(
                f"{error}; the model has functions of its own, which are inlined if the package onnx is installed: "
                "pip install onnx"
            ) from None
        with TemporaryDirectory(prefix="placekit-") as folder:
            inlined = Path(folder) / path.name
            save(inliner.inline_local_functions(load(path)), inlined, save_as_external_data=bool(found.external))
            names |= _walk(inlined).names
            model = _convert(inlined, path)
    _join_inputs(model)
    apply_shapes(model, shapes, path)
    settle_names(model, names)
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
    """Names in a file, relative paths of its external data, and whether it has functions of its own."""

    names: frozenset[str]
    external: frozenset[str]
    has_functions: bool


def _walk(path: Path) -> _Found:
    """Return what is in the file."""
    names, external = set(), set()
    has_graph = has_functions = False
    with ExitStack() as stack_of_files:
        stream = stack_of_files.enter_context(open_input(path, None))
        if os.fstat(stream.fileno()).st_size == 0:
            raise InvalidFileError(f"{path}: not an ONNX model: the file is empty")
        data = stack_of_files.enter_context(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
        try:
            stack = [("model", 0, len(data))]
            while stack:
                message, begin, end = stack.pop()
                key = b""
                for number, start, stop in _fields(data, begin, end):
                    inner = _DESCENT[message].get(number)
                    if inner in _LEAVES:
                        value = data[start:stop]
                        if inner == "name":
                            names.add(value.decode())
                        elif inner == "key":
                            key = value
                        elif key == b"location":  # other entries are offset and length
                            external.add(value.decode())
                    elif inner == "function":
                        has_functions = True
                    elif inner is not None:
                        has_graph = has_graph or inner == "graph"
                        stack.append((inner, start, stop))
        except (IndexError, ValueError) as error:  # UnicodeDecodeError is a ValueError
            raise InvalidFileError(f"{path}: not an ONNX model, or truncated: {error}") from None
    if not has_graph:
        raise InvalidFileError(f"{path}: not an ONNX model: it has no graph")
    return _Found(frozenset(names), frozenset(external), has_functions)


def _fields(data: mmap.mmap, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (field number, begin, end) of the length-delimited fields of the message at ``data[at:end]``."""
    while at < end:
        tag, at = _varint(data, at, end)
        wire_type = tag & 7
        if wire_type == _VARINT:
            _, at = _varint(data, at, end)
        elif wire_type == _BYTES:
            length, at = _varint(data, at, end)
            if at + length > end:
                raise ValueError(f"a field at byte {at} ends {at + length - end} bytes behind its message")
            yield tag >> 3, at, at + length
            at += length
        elif wire_type in {_FIXED64, _FIXED32}:
            at += 8 if wire_type == _FIXED64 else 4
            if at > end:
                raise ValueError(f"a number at byte {at} ends behind its message")
        else:
            raise ValueError(f"wire type {wire_type} at byte {at}")


def _varint(data: mmap.mmap, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError(f"a number at byte {at} has no end")
