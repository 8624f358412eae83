"""Description of a decoder that is given by its numbers, with modules called as in transformers' Llama or GPT-2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from placekit.language.decoder import Decoder
from placekit.language.description import Block, ModelDescription, Part
from placekit.language.precision import Precision, precision_of
from placekit.model.blocks.transformers import attention_flops

NORM_BYTES = 2
"""Bytes of a parameter of a norm or a router, which are not quantised."""

_NAMES: Mapping[str, Mapping[str, str]] = {
    "llama": {
        "embed": "model.embed_tokens", "stack": "model.layers", "norm_1": "input_layernorm",
        "qkv": "self_attn.qkv_proj", "rotary": "self_attn.rotary_emb", "attention": "self_attn.attn",
        "out": "self_attn.o_proj", "add_1": "self_attn.add", "norm_2": "post_attention_layernorm",
        "mlp": "mlp", "up": "gate_up_proj", "up_alone": "up_proj", "down": "down_proj", "norm": "model.norm",
    },
    "gpt2": {
        "embed": "transformer.wte", "positions": "transformer.wpe", "stack": "transformer.h", "norm_1": "ln_1",
        "qkv": "attn.c_attn", "attention": "attn.attn", "out": "attn.c_proj", "add_1": "attn.add", "norm_2": "ln_2",
        "mlp": "mlp", "up": "c_fc", "up_alone": "c_fc", "down": "c_proj", "norm": "transformer.ln_f",
    },
}  # fmt: skip
"""Paths of modules by family."""


@dataclass
class _Parts:
    """Parts of a decoder in the making."""

    model: Decoder
    precision: Precision
    found: list[Part] = field(default_factory=list)

    def add(self, part: Part) -> str:
        self.found.append(part)
        return part.path

    def product(self, path: str, source: str, rows: int, columns: int, *, is_last: bool = False) -> str:
        """Add a product with a matrix of `rows` by `columns`."""
        count = rows * columns
        num_bytes = count * self.precision.bytes_each(is_head=is_last)
        return self.add(
            Part(path, "MatMul", (source,), float(columns), count, num_bytes, flops=2.0 * count,
                 is_last=is_last, tensors=(f"{path}.weight",))
        )  # fmt: skip

    def norm(self, path: str, source: str) -> str:
        hidden = self.model.hidden
        return self.add(
            Part(path, "RMSNorm", (source,), float(hidden), hidden, float(hidden * NORM_BYTES), flops=4.0 * hidden,
                 tensors=(f"{path}.weight",))
        )  # fmt: skip

    def plus(self, path: str, *sources: str) -> str:
        return self.add(Part(path, "Add", sources, float(self.model.hidden), flops=float(self.model.hidden)))

    def take(self) -> tuple[Part, ...]:
        """Return the parts since the last call."""
        taken, self.found = tuple(self.found), []
        return taken


def describe_decoder(model: Decoder, precision: str = "f16", name: str = "decoder") -> ModelDescription:
    """Return the description of a decoder.

    The precision of weights is that of `placekit.language.precision.precision_of`. Raises `UnknownNameError`: no such
    precision.

    Examples
    --------
    >>> from placekit.language.decoder import DECODERS
    >>> gpt2 = describe_decoder(DECODERS["gpt2"])
    >>> gpt2.parameters == DECODERS["gpt2"].num_parameters, gpt2.blocks[0].path
    (True, 'transformer.h.0')
    """
    names, hidden = _NAMES[model.family], model.hidden
    stored = precision_of(precision)
    parts = _Parts(model, stored)
    table_bytes = stored.bytes_each(is_head=model.tied)

    def table(path: str, rows: int) -> str:
        count = rows * hidden
        return parts.add(
            Part(path, "Gather", (), float(hidden), count, count * table_bytes, is_lookup=True,
                 tensors=(f"{path}.weight",))
        )  # fmt: skip

    state = table(names["embed"], model.vocab)
    if model.positions:
        state = parts.plus("transformer.add", state, table(names["positions"], model.positions))
    front = parts.take()
    kind = "attention" if model.kv_heads == model.heads else "grouped-query attention"
    kind += f" + {model.experts} experts, {model.experts_per_token} active" if model.experts > 1 else ""
    blocks = []
    for layer in range(model.layers):
        path = f"{names['stack']}.{layer}"
        state = _add_block(parts, path, names, state)
        blocks.append(Block(path, kind, parts.take()))
    parts.product("lm_head", parts.norm(names["norm"], state), hidden, model.vocab, is_last=True)
    table_size = hidden * model.vocab
    shared = ((table_size * table_bytes, table_size, (names["embed"], "lm_head")),) if model.tied else ()
    return ModelDescription(
        name, model.family, hidden, model.vocab, stored.name, front, tuple(blocks), parts.take(), shared=shared
    )


def _add_block(parts: _Parts, path: str, names: Mapping[str, str], state: str) -> str:
    model, hidden = parts.model, parts.model.hidden
    wide = model.query_width + 2 * model.kv_width
    source = parts.norm(f"{path}.{names['norm_1']}", state)
    source = parts.product(f"{path}.{names['qkv']}", source, hidden, wide)
    if "rotary" in names:
        turned = 3.0 * (model.query_width + model.kv_width)
        source = parts.add(Part(f"{path}.{names['rotary']}", "RoPE", (source,), float(wide), flops=turned))
    pair = attention_flops(1, 1, model.query_width)
    source = parts.add(
        Part(f"{path}.{names['attention']}", "ScaledDotProductAttention", (source,), float(model.query_width),
             pair_flops=(pair, pair), cache_values=model.cache_values_per_token, heads=model.heads,
             kv_heads=model.kv_heads)
    )  # fmt: skip
    source = parts.product(f"{path}.{names['out']}", source, model.query_width, hidden)
    state = parts.plus(f"{path}.{names['add_1']}", state, source)
    source = _add_feed_forward(parts, f"{path}.{names['mlp']}", names, parts.norm(f"{path}.{names['norm_2']}", state))
    return parts.plus(f"{path}.{names['mlp']}.add", state, source)


def _add_feed_forward(parts: _Parts, path: str, names: Mapping[str, str], source: str) -> str:
    """Add a feed-forward layer, dense or of experts, and return its last part."""
    model, hidden = parts.model, parts.model.hidden
    inputs: tuple[str, ...] = (source,)
    suffix, active = "", model.experts_per_token
    if model.experts > 1:
        count = hidden * model.experts
        router = parts.add(
            Part(f"{path}.gate", "MatMul", (source,), float(model.experts), count, float(count * NORM_BYTES),
                 flops=2.0 * count)
        )  # fmt: skip
        inputs, suffix = (source, router), "_exps"
    ups, one = (2 if model.gated else 1), hidden * model.ffn
    bytes_each = parts.precision.bytes_each(is_expert=model.experts > 1)
    up = parts.add(
        Part(f"{path}.{names['up' if model.gated else 'up_alone']}{suffix}", "MatMul", inputs,
             float(ups * active * model.ffn), ups * model.experts * one, ups * model.experts * one * bytes_each,
             model.experts, active, 2.0 * ups * active * one)
    )  # fmt: skip
    activated = parts.add(
        Part(f"{path}.act_fn", "Swish" if model.gated else "Gelu", (up,), float(active * model.ffn),
             flops=5.0 * active * model.ffn)
    )  # fmt: skip
    return parts.add(
        Part(f"{path}.{names['down']}{suffix}", "MatMul", (activated,), float(hidden), model.experts * one,
             model.experts * one * bytes_each, model.experts, active, 2.0 * active * one)
    )  # fmt: skip
