"""Tensors of a GGUF file that ops of a model hold, by llama.cpp's names: for rules that move them, written and read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from placekit.exports.blocks import BlockPlacement
from placekit.model.blocks.block_paths import BEFORE
from placekit.model.errors import InvalidProblemError, UnsupportedProblemError
from placekit.model.graph import OpGraph

GGUF_TENSORS: Mapping[str, tuple[str, ...]] = {
    "input_layernorm": ("attn_norm",),
    "self_attn.q_proj": ("attn_q",),
    "self_attn.k_proj": ("attn_k",),
    "self_attn.v_proj": ("attn_v",),
    "self_attn.qkv_proj": ("attn_q", "attn_k", "attn_v"),
    "self_attn.o_proj": ("attn_output",),
    "post_attention_layernorm": ("ffn_norm",),
    "mlp.gate": ("ffn_gate_inp",),
    "mlp.gate_proj": ("ffn_gate",),
    "mlp.up_proj": ("ffn_up",),
    "mlp.gate_up_proj": ("ffn_gate", "ffn_up"),
    "mlp.down_proj": ("ffn_down",),
    "mlp.up_proj_exps": ("ffn_up_exps", "ffn_up_chexps"),
    "mlp.gate_up_proj_exps": (
        "ffn_gate_exps",
        "ffn_up_exps",
        "ffn_gate_up_exps",
        "ffn_gate_chexps",
        "ffn_up_chexps",
        "ffn_gate_up_chexps",
    ),
    "mlp.down_proj_exps": ("ffn_down_exps", "ffn_down_chexps"),
    "mlp.shared_experts.gate_up_proj": ("ffn_gate_shexp", "ffn_up_shexp"),
    "mlp.shared_experts.down_proj": ("ffn_down_shexp",),
}
"""Tensors of a GGUF file by path inside a block: files differ in how they fuse experts, and a rule must cover all."""

FILE_STACK = "blk."
"""Beginning of the paths of blocks of a GGUF file, whose ops are called as their tensors."""
KEEPING = ("ScaledDotProductAttention", "StateUpdate")
"""Types of ops that keep something of a sequence."""
EXPERTS = {name for path, names in GGUF_TENSORS.items() if path.endswith("_exps") for name in names}
ALL_EXPERTS = "ffn_(up|down|gate_up|gate)_(ch|)exps"
"""llama.cpp's own pattern."""


def is_file(blocks: BlockPlacement) -> bool:
    """Return whether ops are those of a GGUF file, which are called as their tensors."""
    return blocks.stack == FILE_STACK


def block_tensors(graph: OpGraph, blocks: BlockPlacement, op: int) -> tuple[str, ...]:
    """Return the names of the tensors of a block that an op holds; an op of a file is called as its tensor.

    Raises `UnsupportedProblemError`: an op without a tensor of a known name.
    """
    number, rest = int(blocks.block_of_op[op]), blocks.rest_of_op[op]
    if is_file(blocks) and graph.op_types[op] not in KEEPING:
        return (rest,)
    path = next((path for path in GGUF_TENSORS if re.fullmatch(rf"{re.escape(path)}(\.[a-z_]+)?(#\d+)?", rest)), None)
    if path is None:
        raise UnsupportedProblemError(
            f"{graph.name!r}: {rest!r} of block {number} is not where its block is, and has no tensor of a known name "
            "in llama.cpp; place with --granularity layer"
        )
    return GGUF_TENSORS[path]


def end_tensor(name: str, number: int) -> str:
    """Return the tensor that an op outside of the blocks holds, by the op's name."""
    is_norm = re.search(r"norm|(^|[./])ln_?f?\b", name.lower()) is not None
    if number == BEFORE:
        return "token_embd_norm" if is_norm else "position_embd" if "pos" in name or "wpe" in name else "token_embd"
    return "output_norm" if is_norm else "output"


def moved_ops(
    graph: OpGraph, blocks: BlockPlacement, home_of_op: NDArray[np.int64], rules: Sequence[tuple[str, int]],
    is_host: NDArray[np.bool_],
) -> NDArray[np.int64]:  # fmt: skip
    """``[num_ops]`` device of every op where rules move tensors: those that the first matching pattern names.

    `home_of_op` has the devices without rules, `rules` a pattern and a device each, `is_host` True for hosts. What
    holds nothing is computed beside its neighbours, as llama.cpp's scheduler does: with what runs before or behind it
    on a device that is no host, if there is one.

    Raises
    ------
    InvalidProblemError
        A pattern that is none.
    UnsupportedProblemError
        A rule that moves a part of an op.
    """
    try:
        patterns = [(re.compile(pattern), device) for pattern, device in rules]
    except re.error as error:
        raise InvalidProblemError(f"--override-tensor: a pattern cannot be read: {error}") from None
    place, number = home_of_op.copy(), blocks.block_of_op
    is_told = np.isin(graph.op_types, KEEPING)
    for op in np.flatnonzero((graph.op_weight_bytes > 0) & blocks.is_work).tolist():
        found = {
            next((device for pattern, device in patterns if pattern.search(name)), int(home_of_op[op])): name
            for name in _full_names(graph, blocks, op)
        }
        if len(found) > 1:
            raise UnsupportedProblemError(
                f"--override-tensor: rules part {' and '.join(found.values())}, one op here: give the GGUF file"
            )
        place[op], is_told[op] = next(iter(found), int(home_of_op[op])), True
    is_near = np.isin(number, number[place != home_of_op]) & (number >= 0)
    order = graph.order[is_near[graph.order]]
    told = np.flatnonzero(is_told[order])
    for at in np.flatnonzero(~is_told[order]).tolist():
        behind = int(np.searchsorted(told, at))
        near = [int(place[order[told[each]]]) for each in (behind - 1, behind) if 0 <= each < len(told)]
        place[order[at]] = next((device for device in near if not is_host[device]), near[0])
    return place


def _full_names(graph: OpGraph, blocks: BlockPlacement, op: int) -> list[str]:
    """Return the names of the tensors of an op; of those that files fuse in their own way, the plain ones."""
    number, name = int(blocks.block_of_op[op]), graph.op_names[op]
    if number < 0:
        return [f"{name if is_file(blocks) else end_tensor(name, number)}.weight"]
    try:
        names = block_tensors(graph, blocks, op)
    except UnsupportedProblemError:
        return []  # no rule of a known name moves it
    plain = [each for each in names if not re.search(r"chexps|gate_up", each)] or list(names)
    return [f"blk.{number}.{each}.weight" for each in plain]
