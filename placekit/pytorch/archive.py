"""Saved programs of torch.export (``.pt2``), read without torch; modules in memory are read from the same JSON.

The file is a zip archive. Its JSON has all that a placement needs: nodes, shapes, and the parameters that share memory.
Pickled parts (example inputs, constants of unusual classes) and weights are not opened. So no code of the file can run,
and reading a file of many gigabytes takes a second. torch's own reader of the same JSON evaluates the text of sizes as
Python code, and its schema classes take more than ten times as long as this module (measured with 2,000 calls).
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placekit.io.reading import MAX_TEXT_BYTES, open_input
from placekit.model.errors import InvalidFileError
from placekit.pytorch.program import Body, Ref, Special, TorchNode, TorchProgram, TorchTensor
from placekit.pytorch.sizes import Size

__all__ = ["Archive", "dtype_of", "open_archive", "read_archive", "read_program"]

_MAX_ENTRIES = 200_000
_SYMBOL = re.compile(r"Symbol\('(\w+)'(?:, \w+=\w+)*\)|Integer\((-?\d+)\)|Float\('([\d.e+-]+)'(?:, \w+=\w+)*\)")
_DTYPES: Mapping[int, tuple[str, int]] = {
    1: ("uint8", 1), 2: ("int8", 1), 3: ("int16", 2), 4: ("int32", 4), 5: ("int64", 8), 6: ("float16", 2),
    7: ("float32", 4), 8: ("float64", 8), 9: ("complex32", 4), 10: ("complex64", 8), 11: ("complex128", 16),
    12: ("bool", 1), 13: ("bfloat16", 2), 28: ("uint16", 2), 29: ("float8_e4m3fn", 1), 30: ("float8_e5m2", 1),
    31: ("float8_e4m3fnuz", 1), 32: ("float8_e5m2fnuz", 1), 33: ("float8_e8m0fnu", 1), 34: ("uint32", 4),
    35: ("uint64", 8),
}  # fmt: skip
"""Name and bytes of every ``ScalarType`` of torch's schema; a test compares them with torch's own."""

_NAMES: Mapping[str, Mapping[int, str]] = {
    "as_layout": {1: "sparse_coo", 2: "sparse_csr", 3: "sparse_csc", 4: "sparse_bsr", 5: "sparse_bsc", 7: "strided"},
    "as_memory_format": {1: "contiguous_format", 2: "channels_last", 3: "channels_last_3d", 4: "preserve_format"},
}
"""Names of torch's layouts and memory formats in the schema."""


@dataclass(frozen=True)
class Archive:
    """An open ``.pt2`` file with one program in it.

    Parameters
    ----------
    path
        The file.
    parts
        The zip archive.
    folder
        Folder in the archive that has everything.
    program
        Name of the program.
    """

    path: Path
    parts: zipfile.ZipFile
    folder: str
    program: str

    def json(self, name: str) -> Any:
        """Return a part that is JSON."""
        with self.parts.open(f"{self.folder}/{name}") as part:
            text = part.read(MAX_TEXT_BYTES + 1)  # the size that an archive tells can be a lie
        if len(text) > MAX_TEXT_BYTES:
            raise InvalidFileError(f"{self.path}: {name} is too large; {MAX_TEXT_BYTES} bytes are the limit")
        return json.loads(text)

    def held(self, folder: str) -> dict[str, Any]:
        """Return the entries of all tensors in the folder ``weights`` or ``constants``, by path in the module."""
        name = f"data/{folder}/{self.program}_{folder}_config.json"
        is_there = f"{self.folder}/{name}" in self.parts.NameToInfo
        return {str(path): entry for path, entry in self.json(name)["config"].items()} if is_there else {}


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open a ``.pt2`` file.

    Raises
    ------
    InvalidFileError
        No such file, no archive of torch.export, several programs in it; or whatever reading a part of it raises.
    """
    with open_input(path, None) as file:
        try:
            with zipfile.ZipFile(file) as parts:
                yield Archive(path, parts, *_program_of(parts.namelist(), path))
        except zipfile.BadZipFile as error:
            raise InvalidFileError(f"{path}: not an archive of torch.export: {error}") from None
        except RecursionError:
            raise InvalidFileError(f"{path}: bodies of calls are nested too deeply") from None
        except (KeyError, TypeError, AttributeError, IndexError, ValueError, NotImplementedError) as error:
            raise InvalidFileError(f"{path}: not as torch.export writes it: {type(error).__name__}: {error}") from None


def _program_of(names: list[str], path: Path) -> tuple[str, str]:
    """Return the folder of an archive, and the name of the one program in it."""
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


def read_archive(path: str | Path) -> TorchProgram:
    """Read the program in the ``.pt2`` file `path`; see the module docstring.

    Raises
    ------
    InvalidFileError
        As `open_archive`; or a part that is not as torch writes it.
    """
    path = Path(path)
    with open_archive(path) as archive:
        storage = {
            name: f"{entry['path_name']}:{int(entry['tensor_meta']['storage_offset']['as_int'])}"
            for name, entry in archive.held("weights").items()
        }  # two slices of one memory are two
        return read_program(archive.json(f"models/{archive.program}.json")["graph_module"], storage, path.stem)


def read_program(module: Any, storage: Mapping[str, str], name: str) -> TorchProgram:
    """Return the program in the JSON of torch.export.

    Parameters
    ----------
    module
        Value of ``graph_module`` in the JSON.
    storage
        Key of the memory behind parameters, by path; others have memory of their own.
    name
        Name of the model.
    """
    graph = module["graph"]
    hints: dict[str, int] = {}
    tensors, numbers = _values(graph, hints)
    inputs, outputs = (
        [next(iter(spec.items())) for spec in module["signature"][f"{which}_specs"]] for which in ("input", "output")
    )
    parameters = {
        str(told["arg"]["name"]): str(told[f"{kind}_name"])
        for kind, told in inputs
        if kind in ("parameter", "buffer", "tensor_constant")
    }
    keys = {each: storage.get(each, each) for each in parameters.values()}
    sizes: dict[str, float] = {}
    for tensor, path in parameters.items():
        if tensor in tensors:
            strides = graph["tensor_values"][tensor]["strides"]
            held = float(tensors[tensor].item_bytes)
            for size, stride in zip(tensors[tensor].shape, strides, strict=True):
                held *= size if int(stride["as_int"]) or not size else 1  # what is expanded is there once
            sizes[keys[path]] = max(held, sizes.get(keys[path], 0.0))
    returned = [(kind, told, _tensor_name(told["arg"])) for kind, told in outputs]
    return TorchProgram(
        name=name,
        nodes=tuple(map(_node, graph["nodes"])),
        tensors=tensors,
        numbers=numbers,
        inputs=tuple(name for kind, told in inputs if kind == "user_input" and (name := _tensor_name(told["arg"]))),
        outputs=tuple(name for kind, _, name in returned if name and kind in ("user_output", "loss_output")),
        parameters=parameters,
        storage=keys,
        storage_bytes=sizes,
        mutations={name: str(told["buffer_name"]) for kind, told, name in returned if kind == "buffer_mutation"},
        hints=hints,
    )


def _values(graph: Any, hints: dict[str, int]) -> tuple[dict[str, TorchTensor], dict[str, Size]]:
    """Return type and shape of the tensors of a graph, and its numbers, by name; `hints` gets examples of symbols."""
    tensors = {str(name): _tensor(meta, hints) for name, meta in graph["tensor_values"].items()}
    kinds = ("sym_int_values", "sym_float_values", "sym_bool_values")
    numbers = {str(name): _size(value, hints) for kind in kinds for name, value in graph.get(kind, {}).items()}
    return tensors, numbers


def dtype_of(number: Any) -> tuple[str, int]:
    """Return name and bytes of a type of torch's schema."""
    return _DTYPES[int(number)]


def _tensor(meta: Any, hints: dict[str, int]) -> TorchTensor:
    return TorchTensor(*dtype_of(meta["dtype"]), tuple(_size(each, hints) for each in meta["sizes"]))


def _size(value: Any, hints: dict[str, int]) -> Size:
    """Return a size or another number; a lone symbol's example goes into `hints`."""
    ((kind, told),) = value.items()
    if str(kind) != "as_expr":
        return int(told) if str(kind) == "as_int" else float(told)
    # as sympy writes it for its own reader: Mul(Integer(2), Symbol('s0', positive=True, integer=True))
    text = _SYMBOL.sub(lambda found: found[1] or found[2] or found[3], str(told["expr_str"]))
    hint = told.get("hint")
    if text.isidentifier() and isinstance(hint, Mapping) and "as_int" in hint:
        hints.setdefault(text, int(hint["as_int"]))
    return text


def _tensor_name(argument: Any) -> str:
    """Return the name of an argument that is a tensor, bare or in a union; an empty one for numbers and the like."""
    return str(argument.get("as_tensor", argument).get("name", ""))


def _node(node: Any) -> TorchNode:
    stack = str((node.get("metadata") or {}).get("nn_module_stack", "")).split(";")[-1]
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
    found = [_value(each) for each in returned]
    if len(found) == 1 and isinstance(found[0], Ref):
        return (found[0].name,), ()
    is_nested = len(found) > 1 and any(isinstance(each, list) for each in found)  # a list among others: no place
    flat = [value for each in found for value in (each if isinstance(each, list) else [each])]
    named = [(-1 if is_nested else at, value.name) for at, value in enumerate(flat) if isinstance(value, Ref)]
    return tuple(name for _, name in named), tuple(at for at, _ in named)


def _value(argument: Any) -> Any:
    """Return an argument as a plain value; what has no meaning here (objects) as its kind's name."""
    ((tag, value),) = argument.items()
    kind = str(tag)  # the tags of torch's serializer refuse to be compared with others
    match kind:
        case "as_none":
            return None
        case "as_tensor":
            return Ref(str(value["name"]))
        case "as_name":
            return Ref(str(value))
        case "as_tensors":
            return [Ref(str(each["name"])) for each in value]
        case "as_nested_tensors":
            return [[Ref(str(each["name"])) for each in row] for row in value]
        case "as_optional_tensor" | "as_sym_int" | "as_sym_bool" | "as_sym_float":
            return _value(value)
        case "as_optional_tensors" | "as_sym_ints" | "as_sym_bools" | "as_sym_floats":
            return list(map(_value, value))
        case "as_int" | "as_bool" | "as_string":
            return value
        case "as_float":
            return float(value)  # JSON has no infinity and no NaN: torch writes "-Infinity"
        case "as_complex":
            return complex(float(value["real"]), float(value["imag"]))
        case "as_scalar_type":
            return Special("dtype", dtype_of(value)[0])
        case "as_layout" | "as_memory_format":
            return Special(kind.removeprefix("as_"), _NAMES[kind][int(value)])
        case "as_device":
            return Special("device", str(value["type"]))
        case "as_ints" | "as_bools" | "as_strings" | "as_int_lists":
            return list(value)
        case "as_floats":
            return list(map(float, value))
        case "as_float_lists":
            return [list(map(float, row)) for row in value]
        case "as_graph":
            return _body(value["graph"])
    return kind


def _body(graph: Any) -> Body:
    """Return the body of a call; the program outside of it has the examples of its symbols."""
    tensors, numbers = _values(graph, {})
    return Body(
        inputs=tuple(each.name if isinstance(each, Ref) else "" for each in map(_value, graph["inputs"])),
        outputs=tuple(map(_value, graph["outputs"])),
        nodes=tuple(map(_node, graph["nodes"])),
        tensors=tensors,
        numbers=numbers,
        devices=frozenset(str(meta["device"]["type"]) for meta in graph["tensor_values"].values()),
    )
