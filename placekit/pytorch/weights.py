"""The tensors that a program holds, as torch's, from its file. Nothing of a file is unpickled."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placekit.model.errors import InvalidFileError
from placekit.pytorch.archive import dtype_of, open_archive
from placekit.pytorch.needs import require_torch
from placekit.pytorch.program import TorchProgram

if TYPE_CHECKING:
    import torch

__all__ = ["check_weights", "load_weights"]


def load_weights(path: Path) -> dict[str, torch.Tensor]:
    """Return every tensor of the program in the ``.pt2`` file `path`, by its path in the module.

    Tensors that share memory in the file share it here. What torch stored as a pickle (tensors of unusual classes) is
    refused, not opened; so are compressed parts, which torch does not write.

    Raises
    ------
    InvalidFileError
        A weight that is missing, pickled, compressed, or shorter than it says.
    SolverUnavailableError
        torch is not installed.
    """
    torch = require_torch(f"running {path}")
    found: dict[str, Any] = {}
    memories: dict[str, Any] = {}
    with open_archive(path) as archive:
        for folder in ("weights", "constants"):
            for name, entry in archive.held(folder).items():
                part, meta = f"{archive.folder}/data/{folder}/{entry['path_name']}", entry["tensor_meta"]
                if meta is None:  # an object, which no operator here reads
                    continue
                if entry["use_pickle"]:
                    raise InvalidFileError(f"{path}: {name!r} is stored as a pickle, which is not opened")
                sizes, strides = ([int(each["as_int"]) for each in meta[what]] for what in ("sizes", "strides"))
                dtype, offset = getattr(torch, dtype_of(meta["dtype"])[0]), int(meta["storage_offset"]["as_int"])
                if part not in memories:
                    if archive.parts.getinfo(part).compress_type != zipfile.ZIP_STORED:
                        raise InvalidFileError(f"{path}: {part} is compressed, which torch does not do")
                    content = bytearray(archive.parts.read(part))
                    memories[part] = torch.frombuffer(content, dtype=torch.uint8) if content else torch.empty(0)
                memory = memories[part]
                try:  # as_strided checks that the tensor lies inside of its memory
                    whole = torch.empty(0, dtype=dtype) if 0 in sizes else memory.view(dtype)
                    found[name] = whole.as_strided(sizes, strides, offset)
                except (RuntimeError, OverflowError) as error:
                    what = str(error).partition("\n")[0]
                    raise InvalidFileError(f"{path}: weight {name!r} has {len(memory)} bytes: {what}") from None
    return found


def check_weights(program: TorchProgram, tensors: Mapping[str, torch.Tensor], where: Path) -> None:
    """Raise unless `tensors` has every parameter that `program` reads, in its type and shape.

    Raises
    ------
    InvalidFileError
        One that is missing or another.
    """
    read = {ref for node in program.nodes for ref in node.refs()}
    for name, path in program.parameters.items():
        if name not in read:
            continue
        meta, tensor = program.tensors[name], tensors.get(path)
        if tensor is None:
            raise InvalidFileError(f"{where}: the tensor {path!r}, which the program reads, is not there")
        if tuple(tensor.shape) != meta.shape or str(tensor.dtype) != f"torch.{meta.dtype}":
            raise InvalidFileError(
                f"{where}: {path!r} is {tensor.dtype} {list(tensor.shape)}; the program reads torch.{meta.dtype} "
                f"{list(meta.shape)}"
            )
