"""Headers of GGUF files, without weights, for models of published shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Shapes = Mapping[str, tuple[int, ...]]
"""Sides of tensors, the innermost first, as tools print them, by name without ``.weight``."""
KINDS = {bool: "add_bool", int: "add_uint32", float: "add_float32", str: "add_string", list: "add_array"}
WITHOUT_SUFFIX = ("ssm_a", "ssm_d")
VOCAB = 32000


def write_header(
    path: Path, family: str, keys: Mapping[str, Any], tensors: Shapes, *, is_big: bool = False, tokens: int = 0
) -> None:
    """Write a file of a family with these keys and tensors of 16 bits; keys that begin with a dot are the family's."""
    import gguf

    writer = gguf.GGUFWriter(path, family, endianess=gguf.GGUFEndian.BIG if is_big else gguf.GGUFEndian.LITTLE)
    for key, value in keys.items():
        getattr(writer, KINDS[type(value)])(f"{family}{key}" if key.startswith(".") else key, value)
    if tokens:
        writer.add_array("tokenizer.ggml.tokens", [f"token {number}" for number in range(tokens)])
    for name, shape in tensors.items():
        full = name if name.endswith((*WITHOUT_SUFFIX, ".weight", ".bias")) else f"{name}.weight"
        writer.add_tensor_info(full, shape[::-1], np.dtype(np.float16), 2 * math.prod(shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()


def write_model(
    path: Path, family: str, keys: Mapping[str, Any], blocks: Sequence[Shapes], *, tied: bool = False, **more: Any
) -> None:
    """Write a model with these tensors in its blocks; `keys` has ``.embedding_length``."""
    hidden = keys[".embedding_length"]
    ends: dict[str, tuple[int, ...]] = {"token_embd": (hidden, VOCAB), "output_norm": (hidden,)}
    ends |= {} if tied else {"output": (hidden, VOCAB)}
    inside = {f"blk.{number}.{name}": shape for number, block in enumerate(blocks) for name, shape in block.items()}
    write_header(path, family, {".block_count": len(blocks), ".context_length": 32768, **keys}, ends | inside, **more)


def attention(hidden: int, heads: int, kv_heads: int, keys: int, values: int | None = None) -> dict[str, Any]:
    """Return the tensors of attention with heads of `keys` channels."""
    values = keys if values is None else values
    return {
        "attn_norm": (hidden,), "attn_q": (hidden, heads * keys), "attn_k": (hidden, kv_heads * keys),
        "attn_v": (hidden, kv_heads * values), "attn_output": (heads * values, hidden),
    }  # fmt: skip


def fused_attention(hidden: int, heads: int, kv_heads: int, size: int) -> dict[str, Any]:
    """Return the tensors of attention whose queries, keys and values are one product."""
    width = (heads + 2 * kv_heads) * size
    return {"attn_norm": (hidden,), "attn_qkv": (hidden, width), "attn_output": (heads * size, hidden)}


def latent_attention(hidden: int, heads: int, rank: int, turned: int, plain: int, values: int) -> dict[str, Any]:
    """Return the tensors of latent attention, as files have them since llama.cpp multiplies with the latent vector."""
    return {
        "attn_norm": (hidden,), "attn_q": (hidden, heads * (plain + turned)), "attn_kv_a_mqa": (hidden, rank + turned),
        "attn_kv_a_norm": (rank,), "attn_k_b": (plain, rank, heads), "attn_v_b": (rank, values, heads),
        "attn_output": (heads * values, hidden),
    }  # fmt: skip


def state_space(hidden: int, inner: int, taps: int, channels: int) -> dict[str, Any]:
    """Return the tensors of a state-space mixer whose convolution has `channels`."""
    heads = inner // 64
    return {
        "attn_norm": (hidden,), "ssm_in": (hidden, 2 * inner), "ssm_conv1d": (taps, channels), "ssm_a": (1, heads),
        "ssm_d": (1, heads), "ssm_out": (inner, hidden),
    }  # fmt: skip


def feed_forward(hidden: int, width: int) -> dict[str, Any]:
    """Return the tensors of a gated feed-forward layer."""
    return {
        "ffn_norm": (hidden,), "ffn_gate": (hidden, width), "ffn_up": (hidden, width), "ffn_down": (width, hidden),
    }  # fmt: skip


def experts(hidden: int, width: int, count: int) -> dict[str, Any]:
    """Return the tensors of a layer of experts."""
    return {
        "ffn_norm": (hidden,), "ffn_gate_inp": (hidden, count), "ffn_gate_exps": (hidden, width, count),
        "ffn_up_exps": (hidden, width, count), "ffn_down_exps": (width, hidden, count),
    }  # fmt: skip
