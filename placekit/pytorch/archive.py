"""Saved programs of torch.export (``.pt2``), read without torch; modules in memory come by the same way.

The file is a zip archive. What a placement needs is in its JSON: nodes, shapes, which parameters share memory. Pickled
parts (example inputs, constants of unusual classes) and weights are not opened, so no code of the file can run, and a
file of many gigabytes is read in a second.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placekit.io.reading import MAX_TEXT_BYTES, open_input
from placekit.model.errors import InvalidFileError
from placekit.pytorch.program import Body, Ref, Size, Special, TorchNode, TorchProgram, TorchTensor, held_bytes

__all__ = ["read_archive", "read_program", "read_weights"]

_MAX_ENTRIES = 200_000
_SYMBOL = re.compile(r"Symbol\('(\w+)'(?:, \w+=\w+)*\)")
_NUMBER = re.compile(r"Integer\((-?\d+)\)")
_DTYPES: Mapping[int, tuple[str, int]] = {
    1: ("uint8", 1), 2: ("int8", 1), 3: ("int16", 2), 4: ("int32", 4), 5: ("int64", 8), 6: ("float16", 2),
    7: ("float32", 4), 8: ("float64", 8), 9: ("complex32", 4), 10: ("complex64", 8), 11: ("complex128", 16),
    12: ("bool", 1), 13: ("bfloat16", 2), 28: ("uint16", 2), 29: ("float8_e4m3fn", 1), 30: ("float8_e5m2", 1),
    31: ("float8_e4m3fnuz", 1), 32: ("float8_e5m2fnuz", 1), 33: ("float8_e8m0fnu", 1), 34: ("uint32", 4),
    35: ("uint64", 8),
}  # fmt: skip
"""Name and bytes of torch's ``ScalarType`` in the schema of torch.export."""

_NAMES: Mapping[str, Mapping[int, str]] = {
    "as_layout": {1: "sparse_coo", 2: "sparse_csr", 3: "sparse_csc", 4: "sparse_bsr", 5: "sparse_bsc", 7: "strided"},
    "as_memory_format": {1: "contiguous_format", 2: "channels_last", 3: "channels_last_3d", 4: "preserve_format"},
}
"""Names of torch's layouts and memory formats there."""


def read_archive(path: str | Path) -> TorchProgram:
    """Read the program in the ``.pt2`` file `path`; see the module docstring.

    Raises
    ------
    InvalidFileError
        No such file, no archive of torch.export, several programs in it, or a part that is not as torch writes it.
    """
    path = Path(path)
    with open_input(path, None) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                return _from_archive(archive, path)
        except zipfile.BadZipFile as error:
            raise InvalidFileError(f"{path}: not an archive of torch.export: {error}") from None
        except RecursionError:
            raise InvalidFileError(f"{path}: bodies of calls are nested too deeply") from None
        except (KeyError, TypeError, AttributeError, IndexError, ValueError, NotImplementedError) as error:
            raise InvalidFileError(f"{path}: not as torch.export writes it: {type(error).__name__}: {error}") from None


def read_weights(path: str | Path) -> dict[str, tuple[StoredTensor, bytearray]]:
    """Return every tensor that the program in the ``.pt2`` file `path` holds, by its path: how it lies in which bytes.

    Tied weights have one memory, which is read once. What torch stored as a pickle (tensors of unusual classes) is
    refused, not opened; so are compressed parts, which torch does not write.

    Raises
    ------
    InvalidFileError
        As `read_archive`; or a weight that is missing, pickled or compressed.
    """
    path = Path(path)
    with open_input(path, None) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                return _weights(archive, path)
        except (zipfile.BadZipFile, KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            raise InvalidFileError(f"{path}: not as torch.export writes it: {type(error).__name__}: {error}") from None


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Layout of a tensor in its memory: type, and sizes, strides and offset in elements."""

    dtype: str
    item_bytes: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


def _weights(archive: zipfile.ZipFile, path: Path) -> dict[str, tuple[StoredTensor, bytearray]]:
    root, stem = _program_of(archive, path)
    memories: dict[str, bytearray] = {}
    found = {}
    for folder in ("weights", "constants"):
        config = f"{root}/data/{folder}/{stem}_{folder}_config.json"
        if config not in archive.namelist():
            continue
        for parameter, entry in _json(archive, config, path)["config"].items():
            name, meta = f"{root}/data/{folder}/{entry['path_name']}", entry["tensor_meta"]
            if meta is None:  # an object, which no operator here reads
                continue
            if entry["use_pickle"]:
                raise InvalidFileError(f"{path}: {parameter!r} is stored as a pickle, which is not opened")
            if name not in memories:
                if archive.getinfo(name).compress_type != zipfile.ZIP_STORED:
                    raise InvalidFileError(f"{path}: {name} is compressed, which torch does not do")
                memories[name] = bytearray(archive.read(name))
            dtype, item_bytes = _DTYPES[int(meta["dtype"])]
            sizes, strides = ([int(each["as_int"]) for each in meta[what]] for what in ("sizes", "strides"))
            stored = StoredTensor(dtype, item_bytes, tuple(sizes), tuple(strides), _offset(entry))
            found[str(parameter)] = stored, memories[name]
    return found


def _from_archive(archive: zipfile.ZipFile, path: Path) -> TorchProgram:
    root, stem = _program_of(archive, path)
    document = _json(archive, f"{root}/models/{stem}.json", path)
    weights = f"{root}/data/weights/{stem}_weights_config.json"
    config = _json(archive, weights, path)["config"] if weights in archive.namelist() else {}
    storage = {str(parameter): f"{entry['path_name']}:{_offset(entry)}" for parameter, entry in config.items()}
    return read_program(document, storage, path.stem)


def _program_of(archive: zipfile.ZipFile, path: Path) -> tuple[str, str]:
    """Return the folder of the archive, and the name of the one program in it."""
    names = archive.namelist()
    if len(names) > _MAX_ENTRIES:
        raise InvalidFileError(f"{path}: an archive of {len(names)} parts; {_MAX_ENTRIES} are the limit")
    programs = [name for name in names if name.endswith(".json") and name.split("/")[-2:-1] == ["models"]]
    if not programs:
        old = any(name.split("/")[-1] == "serialized_exported_program.json" for name in names)
        raise InvalidFileError(
            f"{path}: no program of torch.export in it"
            + ("; it was saved before torch 2.8, load and save it again with a newer one" if old else "")
        )
    if len(programs) > 1:
        raise InvalidFileError(f"{path}: {len(programs)} programs in it; one is expected")
    return programs[0].split("/models/")[0], programs[0].split("/")[-1].removesuffix(".json")


def _offset(entry: Any) -> int:
    """Return where a parameter begins in its memory; two slices of one memory are two."""
    return int(entry["tensor_meta"]["storage_offset"]["as_int"])


def _json(archive: zipfile.ZipFile, name: str, path: Path) -> Any:
    size = archive.getinfo(name).file_size
    if size > MAX_TEXT_BYTES:
        raise InvalidFileError(f"{path}: {name} has {size} bytes; {MAX_TEXT_BYTES} are the limit")
    with archive.open(name) as part:
        text = part.read(MAX_TEXT_BYTES + 1)  # the size that an archive tells can be a lie
    if len(text) > MAX_TEXT_BYTES:
        raise InvalidFileError(f"{path}: {name} has more than {MAX_TEXT_BYTES} bytes, the limit")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidFileError(f"{path}: {name} is not JSON: {error}") from None


def read_program(document: Any, storage: Mapping[str, str], name: str) -> TorchProgram:
    """Return the program that a document of torch.export says.

    Parameters
    ----------
    document
        What the JSON of an archive has; only ``graph_module`` is read.
    storage
        Key of the memory behind parameters, by path; others have memory of their own.
    name
        Name of the model.
    """
    module = document["graph_module"]
    graph = module["graph"]
    hints: dict[str, int] = {}
    tensors = {str(key): _tensor(meta, hints) for key, meta in graph["tensor_values"].items()}
    for value in graph.get("sym_int_values", {}).values():
        _size(value, hints)
    parameters: dict[str, str] = {}
    inputs: list[str] = []
    for spec in module["signature"]["input_specs"]:
        ((kind, told),) = spec.items()
        argument = told.get("arg")
        if kind == "user_input":
            given = _tensor_name(argument)
            inputs += [] if given is None else [given]
        elif kind in ("parameter", "buffer", "tensor_constant"):
            parameters[str(argument["name"])] = str(told[f"{kind}_name"])
    outputs: list[str] = []
    mutations: dict[str, str] = {}
    for spec in module["signature"]["output_specs"]:
        ((kind, told),) = spec.items()
        made = _tensor_name(told["arg"])
        if kind == "buffer_mutation" and made is not None:
            mutations[made] = str(told["buffer_name"])
        elif kind in ("user_output", "loss_output") and made is not None:
            outputs.append(made)
    keys = {each: storage.get(each, each) for each in parameters.values()}
    sizes: dict[str, float] = {}
    for tensor, parameter in parameters.items():
        if tensor in tensors:
            meta = graph["tensor_values"][tensor]
            strides = [int(stride["as_int"]) for stride in meta["strides"]]
            held = held_bytes(tensors[tensor].item_bytes, tensors[tensor].shape, strides)
            sizes[keys[parameter]] = max(held, sizes.get(keys[parameter], 0.0))
    return TorchProgram(
        name=name,
        nodes=tuple(_node(each) for each in graph["nodes"]),
        tensors=tensors,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        parameters=parameters,
        storage=keys,
        storage_bytes=sizes,
        mutations=mutations,
        hints=hints,
    )


def _tensor_name(argument: Any) -> str | None:
    """Return the name of an argument that is a tensor, bare or in a union; None for numbers and the like."""
    if not isinstance(argument, Mapping):
        return None
    inner = argument.get("as_tensor", argument)
    return str(inner["name"]) if isinstance(inner, Mapping) and "name" in inner else None


def _tensor(meta: Any, hints: dict[str, int]) -> TorchTensor:
    dtype, item_bytes = _DTYPES[int(meta["dtype"])]
    return TorchTensor(dtype, item_bytes, tuple(_size(each, hints) for each in meta["sizes"]))


def _size(value: Any, hints: dict[str, int]) -> Size:
    """Return a size; a lone symbol's example goes into `hints`."""
    if "as_int" in value:
        return int(value["as_int"])
    told = value["as_expr"]
    # as sympy writes it for its own reader: Mul(Integer(2), Symbol('s0', positive=True, integer=True))
    text, hint = _NUMBER.sub(r"\1", _SYMBOL.sub(r"\1", str(told["expr_str"]))), told.get("hint")
    if text.isidentifier() and isinstance(hint, Mapping) and "as_int" in hint:
        hints.setdefault(text, int(hint["as_int"]))
    return text


def _node(node: Any) -> TorchNode:
    metadata = node.get("metadata") or {}
    stack = str(metadata.get("nn_module_stack", "")).split(";")[-1]
    # "key,path,class"; a path has no comma, a class may
    parts = stack.split(",")
    outputs, elements = _outputs(node["outputs"])
    return TorchNode(
        name=str(node.get("name") or (outputs[0] if outputs else node["target"])),
        target=str(node["target"]).removeprefix("torch.ops."),
        module=parts[1] if len(parts) > 1 else "",
        arguments={str(each["name"] or f"arg{at}"): _value(each["arg"]) for at, each in enumerate(node["inputs"])},
        outputs=outputs,
        elements=elements,
    )


def _outputs(returned: Any) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the names of what a call returns, and where each stands if it returns several values or a list."""
    found = [_returned(each) for each in returned]
    if len(found) == 1 and isinstance(found[0], str):
        return (found[0],), ()
    is_nested = len(found) > 1 and any(isinstance(each, list) for each in found)  # a list among others: no place
    flat = [name for each in found for name in (each if isinstance(each, list) else [each])]
    named = [(-1 if is_nested else at, name) for at, name in enumerate(flat) if name is not None]
    return tuple(name for _, name in named), tuple(at for at, _ in named)


def _returned(argument: Any) -> str | list[str | None] | None:
    ((kind, value),) = argument.items()
    if kind == "as_tensor":
        return str(value["name"])
    if kind == "as_tensors":
        return [str(each["name"]) for each in value]
    if kind == "as_optional_tensors":
        return [str(each["as_tensor"]["name"]) if "as_tensor" in each else None for each in value]
    if kind in ("as_sym_int", "as_sym_bool", "as_sym_float") and "as_name" in value:
        return str(value["as_name"])
    return None


def _value(argument: Any) -> Any:
    """Return an argument as a plain value; what has no meaning here (objects) as its kind's name."""
    ((kind, value),) = argument.items()
    match kind:
        case "as_none":
            return None
        case "as_tensor":
            return Ref(str(value["name"]))
        case "as_tensors":
            return [Ref(str(each["name"])) for each in value]
        case "as_optional_tensors":
            return [Ref(str(each["as_tensor"]["name"])) if "as_tensor" in each else None for each in value]
        case "as_nested_tensors":
            return [[Ref(str(each["name"])) for each in row] for row in value]
        case "as_optional_tensor":
            return Ref(str(value["as_tensor"]["name"])) if "as_tensor" in value else None
        case "as_sym_int" | "as_sym_bool" | "as_sym_float":
            return _number(value)
        case "as_sym_ints" | "as_sym_bools" | "as_sym_floats":
            return [_number(each) for each in value]
        case "as_int" | "as_bool" | "as_string":
            return value
        case "as_float":
            return float(value)  # JSON has no infinity and no NaN: torch writes "-Infinity"
        case "as_complex":
            return complex(float(value["real"]), float(value["imag"]))
        case "as_scalar_type":
            return Special("dtype", _DTYPES[int(value)][0])
        case "as_layout" | "as_memory_format":
            return Special(kind.removeprefix("as_"), _NAMES[kind][int(value)])
        case "as_device":
            return Special("device", str(value["type"]))
        case "as_ints" | "as_bools" | "as_strings" | "as_int_lists":
            return list(value)
        case "as_floats":
            return [float(each) for each in value]
        case "as_float_lists":
            return [[float(each) for each in row] for row in value]
        case "as_graph":
            return _body(value["graph"])
    return kind


def _body(graph: Any) -> Body:
    """Return the body of a call; the program outside of it has the examples of its symbols."""
    return Body(
        inputs=tuple(each.name if isinstance(each, Ref) else "" for each in map(_value, graph["inputs"])),
        outputs=tuple(map(_value, graph["outputs"])),
        nodes=tuple(map(_node, graph["nodes"])),
        tensors={str(name): _tensor(meta, {}) for name, meta in graph["tensor_values"].items()},
        devices=frozenset(str(meta["device"]["type"]) for meta in graph["tensor_values"].values()),
    )


def _number(value: Any) -> Any:
    """Return a number that may be symbolic."""
    ((tag, told),) = value.items()
    kind = str(tag)  # the tags of torch's serializer refuse to be compared with others
    return Ref(str(told)) if kind == "as_name" else float(told) if kind == "as_float" else told
