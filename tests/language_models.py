"""Small language models: a stateful one of OpenVINO, caches in variables; and one of torch without a cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openvino as ov
import torch
from openvino import opset13 as ops
from torch import nn

HEADS, KV_HEADS, HEAD_DIM, VOCABULARY = 4, 2, 16, 100
HIDDEN = HEADS * HEAD_DIM


def write_stateful(path: Path, layers: int = 3) -> Path:
    """Write the model to `path` (``.xml``) and return it."""
    rng = np.random.default_rng(0)

    def constant(*shape: int) -> ov.Node:
        return ops.constant(rng.normal(size=shape).astype(np.float32))

    ids = ops.parameter([-1, -1], np.int64, name="input_ids")
    beams = ops.parameter([-1], np.int32, name="beam_idx")
    zero = ops.constant(np.int64(0))
    x = ops.gather(constant(VOCABULARY, HIDDEN), ids, zero, name="embed_tokens")
    batch = ops.gather(ops.shape_of(ids), ops.constant(np.array([0])), zero)
    sinks = []
    for layer in range(layers):
        name = f"layers.{layer}.self_attn"

        def heads(count: int, which: str, x: ov.Node = x, name: str = name) -> ov.Node:
            product = ops.matmul(x, constant(HIDDEN, count * HEAD_DIM), False, False, name=f"{name}.{which}_proj")
            split = ops.reshape(product, ops.constant(np.array([0, 0, count, HEAD_DIM])), True)
            return ops.transpose(split, ops.constant(np.array([0, 2, 1, 3])))

        cached = []
        for which in ("k", "v"):
            empty = ops.broadcast(
                ops.constant(np.float32(0)), ops.concat([batch, ops.constant(np.array([KV_HEADS, 0, HEAD_DIM]))], 0)
            )
            state = ops.read_value(empty, f"past.{layer}.{which}", np.float32, [-1, KV_HEADS, -1, HEAD_DIM])
            state.set_friendly_name(f"past.{layer}.{which}")
            grown = ops.concat([ops.gather(state, beams, zero), heads(KV_HEADS, which)], 2)
            sinks.append(ops.assign(grown, f"past.{layer}.{which}"))
            sinks[-1].set_friendly_name(f"present.{layer}.{which}")
            grouped = ops.unsqueeze(grown, ops.constant(np.int64(2)))
            ones = ops.constant(np.array([1, 1, HEADS // KV_HEADS, 1, 1]))
            repeated = ops.broadcast(grouped, ones, broadcast_spec="BIDIRECTIONAL")
            cached.append(ops.reshape(repeated, ops.constant(np.array([0, HEADS, -1, HEAD_DIM])), True))
        mixed = ops.scaled_dot_product_attention(heads(HEADS, "q"), *cached, causal=True, name=f"{name}.sdpa")
        joined = ops.reshape(
            ops.transpose(mixed, ops.constant(np.array([0, 2, 1, 3]))), ops.constant(np.array([0, 0, HIDDEN])), True
        )
        projected = ops.matmul(joined, constant(HIDDEN, HIDDEN), False, False, name=f"{name}.o_proj")
        x = ops.add(x, projected, name=f"layers.{layer}.add")
    logits = ops.matmul(x, constant(HIDDEN, VOCABULARY), False, False, name="lm_head")
    ov.save_model(ov.Model([ops.result(logits)], sinks, [ids, beams], "stateful"), path, compress_to_fp16=False)
    return path


class TorchDecoder(nn.Module):
    """A decoder with grouped heads and a gated feed-forward part.

    Parameters
    ----------
    layers, hidden, heads, kv_heads, ffn, vocabulary
        Shape.
    is_fused
        True for one projection to queries, keys and values.
    """

    def __init__(
        self, layers: int, hidden: int, heads: int, kv_heads: int, ffn: int, vocabulary: int, *, is_fused: bool
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, hidden)
        self.layers = nn.ModuleList(TorchBlock(hidden, heads, kv_heads, ffn, is_fused=is_fused) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return logits at every position."""
        x: torch.Tensor = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits


class TorchBlock(nn.Module):
    """One layer of `TorchDecoder`."""

    def __init__(self, hidden: int, heads: int, kv_heads: int, ffn: int, *, is_fused: bool) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size, self.is_fused = heads, kv_heads, hidden // heads, is_fused
        widths = [hidden, kv_heads * self.size, kv_heads * self.size]
        self.qkv = nn.ModuleList(
            nn.Linear(hidden, width, bias=False) for width in ([sum(widths)] if is_fused else widths)
        )
        self.widths = widths
        self.o = nn.Linear(hidden, hidden, bias=False)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(2))
        self.gate, self.up = nn.Linear(hidden, ffn, bias=False), nn.Linear(hidden, ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the hidden state behind attention and feed-forward part."""
        batch, tokens, hidden = x.shape
        normed = self.norms[0](x)
        made = self.qkv[0](normed).split(self.widths, -1) if self.is_fused else [each(normed) for each in self.qkv]
        q, k, v = (each.view(batch, tokens, -1, self.size).transpose(1, 2) for each in made)
        if self.kv_heads != self.heads:
            k, v = (
                each[:, :, None]
                .expand(batch, self.kv_heads, self.heads // self.kv_heads, tokens, self.size)
                .reshape(batch, self.heads, tokens, self.size)
                for each in (k, v)
            )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).reshape(batch, tokens, hidden))
        normed = self.norms[1](x)
        added: torch.Tensor = self.down(nn.functional.silu(self.gate(normed)) * self.up(normed))
        return x + added
