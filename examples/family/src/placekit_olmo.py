"""OLMo 2 by the fields of its ``config.json``: norms of whole queries and keys, and norms behind the layers."""

from __future__ import annotations

from placekit.language.config.families import Family, Parameters, attention, gated, norms
from placekit.language.config.outline import Fields


def block(fields: Fields, layer: int) -> Parameters:
    """Yield the parameters of a block, in the order of transformers' modules."""
    del layer  # all blocks are alike
    yield from attention(fields, bias=bool(fields.get("attention_bias", False)))
    yield "self_attn.q_norm.weight", (fields.num_attention_heads * fields.head_dim,)
    yield "self_attn.k_norm.weight", (fields.num_key_value_heads * fields.head_dim,)
    yield from gated(fields)
    yield from norms(fields, "post_attention_layernorm", "post_feedforward_layernorm")


OLMO2 = Family("olmo2", block, {"max_position_embeddings": 2048})
