"""The tensors that a program holds, as torch's, from its file or from memory. Nothing of a file is unpickled."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placekit.model.errors import InvalidFileError
from placekit.pytorch.archive import read_weights
from placekit.pytorch.needs import require_torch
from placekit.pytorch.program import TorchProgram

if TYPE_CHECKING:
    import torch

__all__ = ["check_weights", "load_weights", "pack_weights", "unpack_weights"]


def load_weights(path: Path) -> dict[str, torch.Tensor]:
    """Return every tensor of the program in the ``.pt2`` file `path`, by its path in the module.

    Tensors that share memory in the file share it here.

    Raises
    ------
    InvalidFileError
        A weight that is missing, pickled, compressed, or shorter than it says.
    SolverUnavailableError
        torch is not installed.
    """
    torch = require_torch(f"running {path}")
    found = {}
    flat: dict[tuple[int, str], Any] = {}
    for name, (stored, memory) in read_weights(path).items():
        dtype = getattr(torch, stored.dtype)
        last = stored.offset + sum(
            (size - 1) * stride for size, stride in zip(stored.sizes, stored.strides, strict=True)
        )
        is_empty = 0 in stored.sizes
        if min((stored.offset, *stored.strides)) < 0 or (not is_empty and (last + 1) * stored.item_bytes > len(memory)):
            raise InvalidFileError(f"{path}: weight {name!r} needs {last + 1} elements, and has {len(memory)} bytes")
        if is_empty:
            found[name] = torch.empty(stored.sizes, dtype=dtype)
            continue
        key = id(memory), stored.dtype
        if key not in flat:
            flat[key] = torch.frombuffer(memory, dtype=dtype, count=len(memory) // stored.item_bytes)
        found[name] = flat[key].as_strided(stored.sizes, stored.strides, stored.offset)
    return found


def pack_weights(tensors: Mapping[str, torch.Tensor]) -> bytes:
    """Return tensors as bytes, which another process can have without sharing memory with this one."""
    torch = require_torch("sending a PyTorch program")
    content = io.BytesIO()
    torch.save(dict(tensors), content)
    return content.getvalue()


def unpack_weights(packed: bytes) -> dict[str, torch.Tensor]:
    """Return what `pack_weights` packed; nothing else is unpickled."""
    torch = require_torch("receiving a PyTorch program")
    found: dict[str, Any] = torch.load(io.BytesIO(packed), weights_only=True)
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
