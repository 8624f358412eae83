"""Saved programs of torch.export (``.pt2``), read without running anything of the file.

``torch.export.load`` is not used: it unpickles parts of the archive, loads libraries in it, evaluates the text of sizes
as Python code, and calls whatever functions of torch the JSON names. Here torch's own classes read the JSON after it
has been vetted: names are plain words, sizes are arithmetic, targets are registered operators. Weights are mapped into
memory and not loaded, so that a file of many gigabytes takes no more memory than its program.
"""

from __future__ import annotations

import json
import mmap
import re
import sys
import zipfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placekit.io.needs import require_torch
from placekit.io.reading import MAX_TEXT_BYTES, open_input
from placekit.model.errors import InvalidFileError, PlacekitError, UnsupportedProblemError

if TYPE_CHECKING:
    import torch

_MAX_ENTRIES = 200_000
_MAX_LENGTH = 1000
"""Characters of a size."""

_NAMESPACES = frozenset({"aten", "prims", "quantized", "quantized_decomposed"})
"""Namespaces of torch's own operators that compute. Its others reach out of the program: to files, to processes."""

_REFUSED = frozenset({"from_file", "save", "load", "open_registration", "_print"})
"""Operators that do so in these."""

_TOKENS = re.compile(
    r"(?P<function>Add|Mul|CeilDiv|Identity|Pow|PowByNatural|FloatPow|FloorDiv|CleanDiv|Mod|PythonMod|IntTrueDiv"
    r"|FloatTrueDiv|floor|FloorToInt|ceiling|CeilToInt|Max|Min|abs|Abs|Rational|ToFloat|TruncToInt|RoundToInt|Integer"
    r"|OpaqueUnaryFn_sqrt|Equality|Unequality|StrictLessThan|LessThan|StrictGreaterThan|GreaterThan|Not|And|Or)(?=\()"
    r"|Symbol\('[A-Za-z_]\w{0,30}'(?:, \w{1,20}=(?:True|False))*\)|Float\('[-+.\de]{1,30}', precision=\d{1,3}\)"
    r"|true|false|-?\d{1,19}(?![\w.])|[(), ]",
    re.ASCII,
)
"""Words that torch writes into sizes, by sympy's names: calls, symbols and numbers."""


def check_size(text: str) -> None:
    """Raise unless the text of a size is arithmetic that takes no time; torch evaluates it as Python code.

    Examples
    --------
    >>> check_size("Mul(Integer(2), Symbol('s0', positive=True, integer=True))")
    """
    at, powers = 0, 0
    while at < len(text) <= _MAX_LENGTH and (token := _TOKENS.match(text, at)):
        at = token.end()
        powers += "Pow" in (token["function"] or "")
    # a power of a power of a power has more digits than memory
    is_small = powers <= 1 and (not powers or re.search(r"Pow\w*\(.*, Integer\(-?[0-8]\)\)", text))
    if at < len(text) or not is_small:
        raise InvalidFileError(f"size {text[:80]!r} is not arithmetic as torch.export writes it")


@lru_cache(maxsize=4096)
def check_target(target: str) -> None:
    """Raise unless a target is an operator of torch that computes, of an imported package, or of this program.

    Operators that reach for files or other processes are refused.
    """
    import torch
    from torch._export.serde.serialize import _SYM_OPS
    from torch._library.custom_ops import OPDEFS

    if target in {f"{each.__module__}.{each.__name__}" for each in _SYM_OPS}:  # numbers of sizes
        return
    if re.fullmatch(r"torch\.ops\.higher_order\.[a-z]\w*", target, re.ASCII):  # never called, see `program_of`
        return
    found = re.fullmatch(r"torch\.ops\.(\w+)\.(\w+)\.(\w+)", target, re.ASCII)
    namespace, name, overload = found.groups() if found else ("", "", "")
    if name in _REFUSED:
        raise UnsupportedProblemError(f"it calls {target}, which reads or writes files; it is not run")
    qualified = f"{namespace}::{name}"
    try:
        torch._C._dispatch_find_schema_or_throw(qualified, "" if overload == "default" else overload)
    except RuntimeError:
        raise UnsupportedProblemError(
            f"it calls {target[:200]!r}, an operator that is not registered here; import the package that registers "
            "it first, or export the module without it"
        ) from None
    made = OPDEFS.get(qualified)
    is_own = made is not None and made._init_fn.__module__.partition(".")[0] != "torch"
    if namespace not in _NAMESPACES and namespace not in sys.modules and not is_own:
        raise UnsupportedProblemError(
            f"it calls {target}, which is not run: {namespace} is no imported package, and the operator was not made "
            "by torch.library.custom_op"
        )


def read_archive(path: Path) -> torch.export.ExportedProgram:
    """Read the program in the ``.pt2`` file `path`."""
    require_torch(f"reading {path}")
    with open_input(path, None) as file:
        try:
            with zipfile.ZipFile(file) as parts:
                return _read(parts)
        except PlacekitError as error:
            raise type(error)(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None
        except zipfile.BadZipFile as error:
            raise InvalidFileError(f"{path}: not an archive of torch.export: {error}") from None
        except RecursionError:
            raise InvalidFileError(f"{path}: bodies of calls are nested too deeply") from None
        except Exception as error:  # torch's reader raises everything there is
            raise InvalidFileError(f"{path}: not as torch.export writes it: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """Return the cause of an error in a line; torch wraps it into pages."""
    while error.__cause__ is not None and isinstance(error.__cause__, Exception):
        error = error.__cause__
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first[:300]}"


def _read(parts: zipfile.ZipFile) -> torch.export.ExportedProgram:
    """Return the program in an open archive."""
    from torch._export.serde import schema, serialize

    folder, name = _program_in(parts.namelist())
    document = _json(parts, f"{folder}/models/{name}.json")
    module = document["graph_module"]
    # parts of no use here that torch would look up, evaluate or unpickle
    module["module_call_graph"], module["metadata"], module["treespec_namedtuple_fields"] = [], {}, {}
    document["guards_code"] = []
    serde: Any = serialize  # half of it is not annotated
    tensors = [_tensors(parts, folder, kind, name) for kind in ("weights", "constants")]
    told = serde._dict_to_dataclass(schema.ExportedProgram, document)
    program: torch.export.ExportedProgram = serde.ExportedProgramDeserializer().deserialize(told, *tensors)
    return program


def _program_in(names: list[str]) -> tuple[str, str]:
    """Return the folder of an archive, and the name of the one program in it."""
    if len(names) > _MAX_ENTRIES:
        raise InvalidFileError(f"an archive of {len(names)} parts; {_MAX_ENTRIES} are the limit")
    programs = [name for name in names if name.endswith(".json") and name.split("/")[-2:-1] == ["models"]]
    if not programs:
        old = any(name.split("/")[-1] == "serialized_exported_program.json" for name in names)
        raise InvalidFileError(
            "no program of torch.export in it"
            + ("; it was saved before torch 2.8, load and save it again with a newer one" if old else "")
        )
    if len(programs) > 1:
        raise InvalidFileError(f"{len(programs)} programs in it; one is expected")
    return programs[0].split("/models/")[0], programs[0].split("/")[-1].removesuffix(".json")


def _json(parts: zipfile.ZipFile, name: str) -> Any:
    """Return a part that is JSON, vetted."""
    with parts.open(name) as part:
        text = part.read(MAX_TEXT_BYTES + 1)  # the size that an archive tells can be a lie
    if len(text) > MAX_TEXT_BYTES:
        raise InvalidFileError(f"{name} is too large; {MAX_TEXT_BYTES} bytes are the limit")
    return json.loads(text, object_hook=_vetted)


def _vetted(node: dict[str, Any]) -> dict[str, Any]:
    """Return an object of the JSON if torch can read it without harm."""
    for key in ("name", "as_name"):
        name = node.get(key, "")
        # torch.fx writes names into code
        if name is not None and not re.fullmatch(r"\w*", str(name), re.ASCII):
            raise InvalidFileError(f"{str(name)[:80]!r} is no name of a value")
    if "expr_str" in node:
        check_size(str(node["expr_str"]))
        # a function that torch writes and does not read
        node["expr_str"] = node["expr_str"].replace("OpaqueUnaryFn_sqrt(", "sqrt(")
    if "as_operator" in node:
        raise UnsupportedProblemError("a call takes an operator as its argument, which is not read")
    if "target" in node:
        check_target(str(node["target"]))
        told = {"nn_module_stack": str((node.get("metadata") or {}).get("nn_module_stack", ""))}
        node["metadata"] = told  # the rest names functions that torch would look up
    return node


def _tensors(parts: zipfile.ZipFile, folder: str, kind: str, program: str) -> dict[str, torch.Tensor]:
    """Return the tensors in a folder of the archive by their path in the module, mapped into memory.

    Tensors that share memory in the file share it here. What torch stored as a pickle (tensors of unusual classes) is
    not opened, nor are compressed parts, which torch does not write: such tensors have a shape and no numbers.
    """
    import torch
    from torch._export.serde.serialize import _SERIALIZE_TO_TORCH_DTYPE

    name = f"{folder}/data/{kind}/{program}_{kind}_config.json"
    entries: Mapping[str, Any] = _json(parts, name)["config"] if name in parts.NameToInfo else {}
    assert parts.fp is not None  # it is open
    mapped = mmap.mmap(parts.fp.fileno(), 0, access=mmap.ACCESS_COPY)  # changes stay in this process
    memories: dict[str, torch.Tensor] = {}
    found: dict[str, torch.Tensor] = {}
    for weight, entry in entries.items():
        meta = entry["tensor_meta"]
        if meta is None:  # an object, which no operator here reads
            continue
        sizes, strides = ([int(each["as_int"]) for each in meta[what]] for what in ("sizes", "strides"))
        dtype, offset = _SERIALIZE_TO_TORCH_DTYPE[meta["dtype"]], int(meta["storage_offset"]["as_int"])
        part = parts.getinfo(f"{folder}/data/{kind}/{entry['path_name']}")
        if entry["use_pickle"] or part.compress_type != zipfile.ZIP_STORED:
            found[weight] = torch.empty_strided(sizes, strides, dtype=dtype, device="meta")
            continue
        if part.file_size and part.filename not in memories:
            with parts.open(part) as opened:
                start = int(opened._orig_compress_start)  # type: ignore[attr-defined]  # where its bytes begin
            memory = torch.frombuffer(mapped, dtype=torch.uint8, count=part.file_size, offset=start)
            # torch aligns parts, other writers of archives may not
            memories[part.filename] = memory if start % 16 == 0 else memory.clone()
        try:  # as_strided checks that the tensor lies inside of its memory
            memory = torch.empty(0, dtype=dtype) if 0 in sizes else memories[part.filename].view(dtype)
            found[weight] = memory.as_strided(sizes, strides, offset)
        except (RuntimeError, OverflowError) as error:
            raise InvalidFileError(f"weight {weight!r} has {part.file_size} bytes: {_reason(error)}") from None
    return {
        name: torch.nn.Parameter(each, requires_grad=False) if entries[name]["is_param"] else each
        for name, each in found.items()
    }
