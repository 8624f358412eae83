"""Seeded inputs on which a program can be run without having its data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placekit.io.needs import require_torch
from placekit.model.errors import UnsupportedProblemError
from placekit.pytorch.program import TorchProgram, operator_name

if TYPE_CHECKING:
    import torch

_TRANSPARENT = frozenset({"to", "view", "reshape", "unsqueeze", "squeeze", "_to_copy", "flatten"})
_DEFAULT_BOUND = 2
"""Integers without a known use are 0 or 1: valid as ids of any table, types of tokens, masks and flags."""


def random_inputs(program: TorchProgram, seed: int = 0) -> list[torch.Tensor]:
    """Return one tensor per input of a program whose sizes are bound, in its order.

    Real numbers are standard normal. Integers that look up rows of an embedding are uniform over its rows; other
    integers are 0 or 1; booleans, and integers whose name says mask, are 1.
    """
    torch = require_torch(f"running {program.name!r}")
    generator = torch.Generator().manual_seed(seed)
    found = []
    for name in program.inputs:
        meta = program.tensors[name]
        dtype = getattr(torch, meta.dtype)
        if dtype.is_floating_point or dtype.is_complex:
            draw = torch.complex64 if dtype.is_complex else torch.float32
            found.append(torch.randn(meta.shape, generator=generator, dtype=draw).to(dtype))
        elif dtype == torch.bool or "mask" in name.lower():
            found.append(torch.ones(meta.shape, dtype=dtype))
        else:
            try:
                bound = min(_table_size(program, name), torch.iinfo(dtype).max)
                found.append(torch.randint(0, bound, meta.shape, generator=generator).to(dtype))
            except (TypeError, RuntimeError) as error:
                raise UnsupportedProblemError(
                    f"model {program.name!r}: input {name!r} of type {meta.dtype} has no random numbers: {error}"
                ) from None
    return found


def _table_size(program: TorchProgram, name: str) -> int:
    """Return the number of rows of the smallest embedding that is looked up by an input's values."""
    same = {name}
    sizes = []
    for node in program.nodes:
        operator, refs = operator_name(node.target), node.refs()
        if operator in _TRANSPARENT and refs and refs[0] in same:
            same |= set(node.outputs)
        table, indices = (getattr(node.arguments.get(each), "name", "") for each in ("weight", "indices"))
        if operator == "embedding" and indices in same:
            sizes.append(program.tensors[table].shape[0])
    return max(min(sizes), 1) if sizes else _DEFAULT_BOUND
