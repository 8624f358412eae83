"""Kind of a file, from its suffix and, for JSON, from its content."""

from __future__ import annotations

import reprlib
from pathlib import Path
from typing import Any

from placekit.io.readers import READERS, reader_of_document, reader_of_suffix, suffixes
from placekit.io.reading import no_such_file, read_json
from placekit.model.errors import InvalidFileError
from placekit.model.problem import Problem

_SCHEMA_KINDS = ("problem", "costs", "placement", "result", "training-plan")
_JSON_KINDS = "workload, problem, costs, placement, result, training-problem, training-plan"

_HINTS = {
    (".pt", ".pth", ".bin", ".safetensors"): "From PyTorch: torch.export.save(torch.export.export(module, inputs), "
    "'model.pt2'), or openvino.save_model(openvino.convert_model(module, example_input=inputs), 'model.xml')",
    (".tflite", ".pb", ".pbtxt", ".pdmodel"): "OpenVINO converts it: "
    "openvino.save_model(openvino.convert_model(path), 'model.xml')",
    (".h5", ".keras"): "Save it as a TensorFlow SavedModel; openvino.convert_model(folder) reads that, and "
    "openvino.save_model(model, 'model.xml') writes it",
}
"""How files of others become one that placekit reads, by suffix."""


def kind_of_file(path: str | Path) -> str:
    """Return what kind of file `path` is.

    That is ``"model"`` or the name of the reader that makes a problem of it (:data:`~placekit.io.readers.READERS`), for
    example ``"problem"``, ``"workload"`` or ``"graph"``; else ``"costs"``, ``"placement"``, ``"result"``,
    ``"platform"``, ``"training-problem"`` or ``"training-plan"``. A file is known by its suffix; a JSON file by its
    `schema`, and without one by its fields: a training problem (Piper's) has `mbsInBatch`, and all values of a plain
    placement are strings.
    """
    suffix = Path(path).suffix.lower()
    if suffix == ".json":
        return kind_of_document(read_json(path), path)
    if suffix == ".toml":
        return "platform"
    if (name := reader_of_suffix(suffix)) is not None:
        return _kind_of_reader(name)
    if not Path(path).exists():
        raise InvalidFileError(no_such_file(path))
    if Path(path).is_dir():
        raise InvalidFileError(f"{path}: a folder; give a file{_inside(Path(path))}")
    known = f"{', '.join((*suffixes('model'), '.json', '.toml', *suffixes('problem')))}"
    hint = next((f". {how}" for others, how in _HINTS.items() if suffix in others), "")
    raise InvalidFileError(
        f"{path}: a file with suffix {suffix!r} is nothing that placekit reads; it reads {known}{hint}"
    )


def _kind_of_reader(name: str) -> str:
    return "model" if READERS[name].gives == "model" else name


def problem_of_file(path: Path, kind: str) -> Problem | None:
    """Return the problem in a file of a kind; None if it is of a kind that has none."""
    return None if kind == "model" or kind not in READERS else READERS[kind](path)


def _inside(folder: Path) -> str:
    """Return words for what a folder has that a command could take."""
    if (folder / "config.json").is_file():
        return f", or `placekit llm {folder}` for the language model of its config.json"
    try:
        models = sorted(each.name for each in folder.iterdir() if each.suffix.lower() in suffixes("model"))
    except OSError:
        return ""
    return f", for example {folder / models[0]}" if models else ""


def kind_of_document(data: Any, path: str | Path) -> str:
    """Return what kind of file the JSON value `data` is; `path` names it in the message."""
    if not isinstance(data, dict):
        what = {list: "list", str: "string", type(None): "null", bool: "boolean"}.get(type(data), "number")
        raise InvalidFileError(f"{path}: a JSON {what}; expected an object with fields")
    if not data:
        raise InvalidFileError(f"{path}: an object without fields; expected {_JSON_KINDS}")
    schema = data.get("schema")
    if isinstance(schema, str) and schema.startswith("placekit/"):
        for kind in _SCHEMA_KINDS:
            if schema.startswith(f"placekit/{kind}/"):
                return kind
        raise InvalidFileError(f"{path}: unknown schema {reprlib.repr(schema)}; known are {', '.join(_SCHEMA_KINDS)}")
    if "mbsInBatch" in data or "maxMemoryPerDevice" in data:
        return "training-problem"
    if (name := reader_of_document(data)) is not None:
        return _kind_of_reader(name)
    if all(isinstance(value, str) for value in data.values()):
        return "placement"
    raise InvalidFileError(
        f"{path}: not a {_JSON_KINDS}: it has no placekit schema, is no workload "
        "(nodes, edges, maxFPGAs) or graph (nodes, links), and is no plain placement (op name: device name)"
    )
