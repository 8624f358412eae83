"""Saved programs of torch.export (``.pt2``), read without torch.

The file is a zip archive. What a placement needs is in its JSON: nodes, shapes, which parameters share memory. Pickled
parts (example inputs, constants of unusual classes) and weights are not opened, so no code of the file can run, and a
file of many gigabytes is read in a second.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from placekit.errors import InvalidFileError
from placekit.io.reading import MAX_TEXT_BYTES, open_input
from placekit.pytorch.program import Ref, Size, TorchNode, TorchProgram, TorchTensor, held_bytes

__all__ = ["read_archive"]

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
        except (KeyError, TypeError, AttributeError, IndexError, ValueError, NotImplementedError) as error:
            raise InvalidFileError(f"{path}: not as torch.export writes it: {type(error).__name__}: {error}") from None


def _from_archive(archive: zipfile.ZipFile, path: Path) -> TorchProgram:
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
    root, stem = programs[0].split("/models/")[0], programs[0].split("/")[-1].removesuffix(".json")
    document = _json(archive, programs[0], path)
    weights = f"{root}/data/weights/{stem}_weights_config.json"
    config = _json(archive, weights, path)["config"] if weights in names else {}
    storage = {str(parameter): f"{entry['path_name']}:{_offset(entry)}" for parameter, entry in config.items()}
    return _program(document, storage, path)


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


def _program(document: Any, storage: Mapping[str, str], path: Path) -> TorchProgram:
    module = document["graph_module"]
    graph = module["graph"]
    hints: dict[str, int] = {}
    tensors = {str(name): _tensor(meta, hints) for name, meta in graph["tensor_values"].items()}
    for value in graph.get("sym_int_values", {}).values():
        _size(value, hints)
    parameters: dict[str, str] = {}
    inputs: list[str] = []
    for spec in module["signature"]["input_specs"]:
        ((kind, told),) = spec.items()
        argument = told.get("arg")
        if kind == "user_input":
            name = _tensor_name(argument)
            inputs += [] if name is None else [name]
        elif kind in ("parameter", "buffer", "tensor_constant"):
            parameters[str(argument["name"])] = str(told[f"{kind}_name"])
    outputs: list[str] = []
    mutations: dict[str, str] = {}
    for spec in module["signature"]["output_specs"]:
        ((kind, told),) = spec.items()
        name = _tensor_name(told["arg"])
        if kind == "buffer_mutation" and name is not None:
            mutations[name] = str(told["buffer_name"])
        elif kind in ("user_output", "loss_output") and name is not None:
            outputs.append(name)
    keys = {each: storage.get(each, each) for each in parameters.values()}
    sizes: dict[str, float] = {}
    for name, parameter in parameters.items():
        if name in tensors:
            meta = graph["tensor_values"][name]
            strides = [int(stride["as_int"]) for stride in meta["strides"]]
            held = held_bytes(tensors[name].item_bytes, tensors[name].shape, strides)
            sizes[keys[parameter]] = max(held, sizes.get(keys[parameter], 0.0))
    return TorchProgram(
        name=path.stem,
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
    outputs: list[str] = []
    for each in node["outputs"]:
        _outputs(each, outputs)
    return TorchNode(
        name=str(node.get("name") or (outputs[0] if outputs else node["target"])),
        target=str(node["target"]).removeprefix("torch.ops."),
        module=parts[1] if len(parts) > 1 else "",
        arguments={str(each["name"] or f"arg{at}"): _value(each["arg"]) for at, each in enumerate(node["inputs"])},
        outputs=tuple(outputs),
    )


def _outputs(argument: Any, found: list[str]) -> None:
    ((kind, value),) = argument.items()
    if kind == "as_tensor":
        found.append(str(value["name"]))
    elif kind == "as_tensors":
        found += [str(each["name"]) for each in value]
    elif kind == "as_optional_tensors":
        found += [str(each["as_tensor"]["name"]) for each in value if "as_tensor" in each]
    elif kind in ("as_sym_int", "as_sym_bool", "as_sym_float") and "as_name" in value:
        found.append(str(value["as_name"]))


def _value(argument: Any) -> Any:
    """Return an argument as a plain value; what has no meaning here (devices, graphs, objects) as its kind's name."""
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
            return Ref(str(value["as_name"])) if "as_name" in value else next(iter(value.values()))
        case "as_sym_ints" | "as_sym_bools" | "as_sym_floats":
            return [Ref(str(each["as_name"])) if "as_name" in each else next(iter(each.values())) for each in value]
        case "as_int" | "as_float" | "as_bool" | "as_string" | "as_scalar_type":
            return value
        case "as_ints" | "as_floats" | "as_bools" | "as_strings" | "as_int_lists" | "as_float_lists":
            return list(value)
    return kind
