"""Header of a GGUF file: its keys, and the name, shape, type and bytes of every tensor. No weights are read.

References
----------
GGUF specification, https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; names of tensors and keys as in the
package ``gguf``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from placekit.io.needs import require
from placekit.io.reading import no_such_file
from placekit.model.blocks.transformers import MAX_BLOCKS
from placekit.model.errors import InvalidFileError

_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")
_REMOVED: Mapping[int, str] = {
    4: "Q4_2", 5: "Q4_3", 31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8", 36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}  # fmt: skip
"""Types that llama.cpp has removed, by their number."""
_FIRST_OF_FORKS = 97
"""Number of the first type that only forks of llama.cpp have."""
_OTHER_FILES: Mapping[str, str] = {
    "adapter": "a LoRA adapter, which changes a model; give the file of the model",
    "mmproj": "a projector of another modality, which goes with a model; give the file of the model",
    "clip": "a projector of another modality, which goes with a model; give the file of the model",
    "imatrix": "an importance matrix, which quantisation uses; give the file of the model",
    "controlvector": "a control vector, which changes a model; give the file of the model",
}
"""Words for files that hold no model, by their ``general.type`` or architecture."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of a file: name, dimensions with the innermost first, type and bytes."""

    name: str
    shape: tuple[int, ...]
    kind: str
    num_bytes: int

    @property
    def size(self) -> int:
        """Numbers of the tensor."""
        return math.prod(self.shape)


@dataclass
class GgufFile:
    """Keys and tensors of a file."""

    path: Path
    keys: dict[str, Any]
    tensors: list[Tensor]

    @property
    def family(self) -> str:
        """Architecture of the model; empty if the file has none."""
        return str(self.keys.get("general.architecture", ""))

    def value(self, name: str, default: int = 0) -> int:
        """Return a number of the family; `default` without the key.

        Raises `InvalidFileError`: the key has no number, or a list of different ones.
        """
        found = self.keys.get(f"{self.family}.{name}", default)
        if isinstance(found, list) and len(set(found)) == 1:
            found = found[0]
        return self._checked(name, found)

    def per_block(self, name: str, count: int, default: int = 0) -> list[int]:
        """Return the number of every block, which a file gives once or as a list.

        Raises `InvalidFileError`: the key has no numbers, or too few.
        """
        found = self.keys.get(f"{self.family}.{name}", default)
        values = found if isinstance(found, list) else [found] * count
        if len(values) < count:
            raise InvalidFileError(
                f"{self.path}: {self.family}.{name} has {len(values)} numbers; there are {count} blocks"
            )
        return [self._checked(name, each) for each in values[:count]]

    def _checked(self, name: str, found: Any) -> int:
        if isinstance(found, int | float) and 0 <= found < 2**53 and found == int(found):
            return int(found)
        raise InvalidFileError(f"{self.path}: {self.family}.{name} is {found!r}; it must be a whole number")

    @property
    def num_blocks(self) -> int:
        """Number of all blocks, those of multi-token prediction too."""
        count = self.value("block_count")
        if count > MAX_BLOCKS:
            raise InvalidFileError(
                f"{self.path}: {self.family}.block_count is {count}; it must be at most {MAX_BLOCKS}"
            )
        return count


class _UnknownTypeError(Exception):
    """A type of tensors that the package does not know."""


@cache
def _header_class() -> Any:
    """Return a reader of headers that reads no data of tensors and skips lists of strings."""
    gguf = require("gguf", "a .gguf file")

    class Header(gguf.GGUFReader):  # type: ignore[misc, name-defined]  # a package without types
        """Header of a GGUF file."""

        def _get_field_parts(self, orig_offs: int, raw_type: int) -> tuple[int, list[Any], list[int], list[Any]]:
            kinds = gguf.GGUFValueType
            if raw_type != kinds.ARRAY:
                return super()._get_field_parts(orig_offs, raw_type)  # type: ignore[no-any-return]
            kind, count = kinds(self._get(orig_offs, "uint32")[0]), int(self._get(orig_offs + 4, "uint64")[0])
            at = orig_offs + 12
            if kind in self.gguf_scalar_to_np:  # all values at once: a vocabulary has hundreds of thousands
                values = self._get(at, self.gguf_scalar_to_np[kind], count)
                if len(values) < count:
                    raise IndexError("the list of numbers is cut")
                return 12 + int(values.nbytes), [values], [0], [kinds.ARRAY, kind]
            if kind != kinds.STRING:
                return super()._get_field_parts(orig_offs, raw_type)  # type: ignore[no-any-return]
            view, order = memoryview(self.data), self.endianess.name.lower()
            for _ in range(count):
                length = view[at : at + 8]
                if len(length) < 8:
                    raise IndexError("the list of strings is cut")
                at += 8 + int.from_bytes(length, order)
            return at - orig_offs, [], [], [kinds.ARRAY, kind]

        def _build_tensors(self, start_offs: int, fields: list[Any]) -> None:
            self.found: list[Tensor] = []
            self.end = start_offs
            known = {int(each): each for each in gguf.GGMLQuantizationType if each in gguf.GGML_QUANT_SIZES}
            for each in fields:
                _, name, _, dims, raw_kind, offset = each.parts
                number, called = int(raw_kind[0]), bytes(name).decode()
                if number not in known:
                    raise _UnknownTypeError(f"tensor {called!r} has type {number}, {_about_type(number)}")
                shape = tuple(int(side) for side in dims)
                block, stored = gguf.GGML_QUANT_SIZES[known[number]]
                tensor = Tensor(called, shape, known[number].name, math.prod(shape) // block * stored)
                self.found.append(tensor)
                self.end = max(self.end, start_offs + int(offset[0]) + tensor.num_bytes)

    return Header


def _about_type(number: int) -> str:
    if number in _REMOVED:
        return f"{_REMOVED[number]}, which llama.cpp has removed: quantise the model again"
    if number >= _FIRST_OF_FORKS:
        return "which only a fork of llama.cpp has (ik_llama.cpp): its bytes are not known"
    return "which this version of the package gguf does not know: upgrade it"


def _read_header(path: Path) -> GgufFile:
    if not path.is_file():
        raise InvalidFileError(no_such_file(path))
    kind = _header_class()
    try:
        header = kind(path)
        keys = {name: each.contents() for name, each in header.fields.items() if each.data}
    except _UnknownTypeError as error:
        raise InvalidFileError(f"{path}: {error}") from None
    except Exception as error:  # the package checks no lengths
        if isinstance(error, ValueError) and "magic" in str(error):
            raise InvalidFileError(f"{path} is no GGUF file: it does not start with GGUF") from None
        told = f": {error}" if "version" in str(error) else ""
        raise InvalidFileError(f"{path}: the header is cut off or damaged{told}") from None
    names = [tensor.name for tensor in header.found]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidFileError(f"{path}: the header is damaged: tensor {twice!r} is there twice")
    present = path.stat().st_size
    if header.data_offset < present < header.end:
        raise InvalidFileError(f"{path} is cut off: {present} of at least {header.end} bytes are there")
    return GgufFile(path, keys, header.found)


def read_gguf_file(path: Path) -> GgufFile:
    """Return keys and tensors of a model: of a file, and of the others of a split one.

    Raises `InvalidFileError`: a file that is cut off, damaged, or no model; a type of tensors that is not known; a part
    of a split model that is missing; `SolverUnavailableError`: the package ``gguf`` is not installed.
    """
    first = _read_header(path)
    found = _PART.fullmatch(path.name)
    count = int(first.keys.get("split.count", 1))
    if found:
        stem, number, count = found[1], int(found[2]), int(found[3])
        for other in range(1, count + 1):
            if other != number:
                more = _read_header(path.with_name(f"{stem}-{other:05d}-of-{count:05d}.gguf"))
                first.tensors += more.tensors
                first.keys = more.keys | first.keys
    elif count > 1:
        number = int(first.keys.get("split.no", 0)) + 1
        raise InvalidFileError(
            f"{path} is part {number} of {count} of a split model; the parts must have their names "
            f"(NAME-{number:05d}-of-{count:05d}.gguf) to be found"
        )
    tensors = int(first.keys.get("split.tensors.count", len(first.tensors)))
    if tensors != len(first.tensors):
        raise InvalidFileError(f"{path}: its parts have {len(first.tensors)} tensors; split.tensors.count is {tensors}")
    for key in ("general.type", "general.architecture"):
        told = _OTHER_FILES.get(str(first.keys.get(key)))
        if told:
            raise InvalidFileError(f"{path} is {told}")
    if not first.tensors:
        what = "a vocabulary" if "tokenizer.ggml.model" in first.keys or first.family else "nothing"
        raise InvalidFileError(f"{path} holds {what} only: it has no tensors")
    return first
