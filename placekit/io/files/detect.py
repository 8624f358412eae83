"""Kind of a file, from its suffix and, for JSON, from its content."""

from __future__ import annotations

import reprlib
from pathlib import Path
from typing import Any, Literal, get_args

from placekit.io.models.model import MODEL_SUFFIXES
from placekit.io.reading import no_such_file, read_json
from placekit.model.errors import InvalidFileError

FileKind = Literal[
    "model", "workload", "problem", "costs", "placement", "result", "training-problem", "training-plan", "platform"
]

_SCHEMA_KINDS: tuple[FileKind, ...] = ("problem", "costs", "placement", "result", "training-plan")

_HINTS = {
    (".pt", ".pth", ".bin", ".safetensors"): "From PyTorch: torch.export.save(torch.export.export(module, inputs), "
    "'model.pt2'), or openvino.save_model(openvino.convert_model(module, example_input=inputs), 'model.xml')",
    (".tflite", ".pb", ".pbtxt", ".pdmodel"): "OpenVINO converts it: "
    "openvino.save_model(openvino.convert_model(path), 'model.xml')",
    (".h5", ".keras"): "Save it as a TensorFlow SavedModel; openvino.convert_model(folder) reads that, and "
    "openvino.save_model(model, 'model.xml') writes it",
}
"""How files of others become one that placekit reads, by suffix."""


def kind_of_file(path: str | Path) -> FileKind:
    """Return what kind of file `path` is.

    A model, a platform or a graph of DOPPLER (``.txt``, a workload) is known by its suffix. A JSON file is known by its
    `schema`; without one it is a workload if it has `nodes` and `edges`, or `maxFPGAs`, a training problem (Piper's) if
    it has `mbsInBatch`, and a plain placement if all of its values are strings.
    """
    suffix = Path(path).suffix.lower()
    if suffix in MODEL_SUFFIXES:
        return "model"
    if suffix == ".toml":
        return "platform"
    if suffix == ".txt":
        return "workload"
    if suffix != ".json":
        if not Path(path).exists():
            raise InvalidFileError(no_such_file(path))
        if Path(path).is_dir():
            raise InvalidFileError(f"{path}: a folder; give a file{_inside(Path(path))}")
        known = f"{', '.join(MODEL_SUFFIXES)}, .json, .toml and .txt"
        hint = next((f". {how}" for suffixes, how in _HINTS.items() if suffix in suffixes), "")
        raise InvalidFileError(
            f"{path}: a file with suffix {suffix!r} is nothing that placekit reads; it reads {known}{hint}"
        )
    return kind_of_document(read_json(path), path)


def _inside(folder: Path) -> str:
    """Return words for what a folder has that a command could take."""
    if (folder / "config.json").is_file():
        return f", or `placekit llm {folder}` for the language model of its config.json"
    try:
        models = sorted(each.name for each in folder.iterdir() if each.suffix.lower() in MODEL_SUFFIXES)
    except OSError:
        return ""
    return f", for example {folder / models[0]}" if models else ""


def kind_of_document(data: Any, path: str | Path) -> FileKind:
    """Return what kind of file the JSON value `data` is; `path` names it in the message."""
    if not isinstance(data, dict):
        what = {list: "list", str: "string", type(None): "null", bool: "boolean"}.get(type(data), "number")
        raise InvalidFileError(f"{path}: a JSON {what}; expected an object with fields")
    if not data:
        raise InvalidFileError(f"{path}: an object without fields; expected {', '.join(get_args(FileKind)[1:-1])}")
    schema = data.get("schema")
    if isinstance(schema, str) and schema.startswith("placekit/"):
        for kind in _SCHEMA_KINDS:
            if schema.startswith(f"placekit/{kind}/"):
                return kind
        raise InvalidFileError(f"{path}: unknown schema {reprlib.repr(schema)}; known are {', '.join(_SCHEMA_KINDS)}")
    if "mbsInBatch" in data or "maxMemoryPerDevice" in data:
        return "training-problem"
    if "maxFPGAs" in data or {"nodes", "edges"} <= data.keys():  # what it lacks, its reader says
        return "workload"
    if all(isinstance(value, str) for value in data.values()):
        return "placement"
    raise InvalidFileError(
        f"{path}: not a {', '.join(get_args(FileKind)[1:-1])}: it has no placekit schema, is no workload "
        "(nodes, edges, maxFPGAs), and is no plain placement (op name: device name)"
    )
