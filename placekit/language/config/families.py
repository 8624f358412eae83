"""Families of language models whose modules follow from the fields of their ``config.json``.

A family gives the parameters of a block, in the order and by the names of transformers, so that no model class is
built. Packages add families by entry points ``placekit.language_models``, named as ``model_type`` with dashes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from placekit.language.config.outline import Fields, Module, Shape, outline
from placekit.model.blocks.transformers import MAX_BLOCKS
from placekit.model.errors import InvalidProblemError
from placekit.plugins import OpenTable, load_class

Parameters = Iterator[tuple[str, Shape]]


@dataclass(frozen=True)
class Family:
    """A family of models: embedding, blocks, a norm and a head."""

    name: str  # ``model_type``, with dashes for underscores
    # from the fields and the number of a block to its parameters in order: path inside the block, and shape
    block: Callable[[Fields, int], Parameters]
    # values of fields that configurations leave out; functions of the fields also fill in for null
    defaults: Mapping[str, Any] = field(default_factory=dict)
    # from the fields and the number of a block to attributes of modules by their paths inside the block
    attributes: Callable[[Fields, int], Mapping[str, Mapping[str, Any]]] = lambda fields, layer: {}  # noqa: ARG005

    def fields(self, values: Mapping[str, Any]) -> Fields:
        """Return the fields of a configuration, with those that it leaves out."""
        found = Fields(**values)
        common = {
            "num_key_value_heads": lambda each: each.num_attention_heads,
            "head_dim": lambda each: each.hidden_size // each.num_attention_heads,
        }
        for name, value in {**common, **self.defaults}.items():
            if not hasattr(found, name) or (callable(value) and getattr(found, name) is None):
                setattr(found, name, value(found) if callable(value) else value)
        return found

    def model(self, values: Mapping[str, Any]) -> Module:
        """Return the outline of the model of a configuration."""
        fields = self.fields(values)
        hidden, vocab = fields.hidden_size, fields.vocab_size

        def parameters() -> Parameters:
            yield "model.embed_tokens.weight", (vocab, hidden)
            for layer in range(fields.num_hidden_layers):
                for path, shape in self.block(fields, layer):
                    yield f"model.layers.{layer}.{path}", shape
            yield "model.norm.weight", (hidden,)
            yield "lm_head.weight", (vocab, hidden)

        attributes = {
            f"model.layers.{layer}.{path}": values
            for layer in range(fields.num_hidden_layers)
            for path, values in self.attributes(fields, layer).items()
        }
        return outline(fields, parameters(), attributes)


def linear(path: str, rows: int, columns: int, *, bias: bool = False) -> Parameters:
    """Yield the parameters of a product that writes `rows` numbers and reads `columns`."""
    yield f"{path}.weight", (rows, columns)
    if bias:
        yield f"{path}.bias", (rows,)


def attention(fields: Fields, *, bias: bool = False, out_bias: bool = False, gates: int = 1) -> Parameters:
    """Yield the products of attention with grouped heads; queries may have gates of the same width."""
    size, hidden = fields.head_dim, fields.hidden_size
    queries, keys = fields.num_attention_heads * size, fields.num_key_value_heads * size
    yield from linear("self_attn.q_proj", gates * queries, hidden, bias=bias)
    yield from linear("self_attn.k_proj", keys, hidden, bias=bias)
    yield from linear("self_attn.v_proj", keys, hidden, bias=bias)
    yield from linear("self_attn.o_proj", hidden, queries, bias=out_bias)


def norms(fields: Fields, *names: str) -> Parameters:
    """Yield norms of the hidden state."""
    for name in names:
        yield f"{name}.weight", (fields.hidden_size,)


def head_norms(fields: Fields) -> Parameters:
    """Yield norms of queries and keys by head."""
    for name in ("q_norm", "k_norm"):
        yield f"self_attn.{name}.weight", (fields.head_dim,)


def gated(fields: Fields, path: str = "mlp", width: int | None = None, *, bias: bool = False) -> Parameters:
    """Yield a feed-forward layer of three products."""
    wide = fields.intermediate_size if width is None else width
    for name in ("gate_proj", "up_proj"):
        yield from linear(f"{path}.{name}", wide, fields.hidden_size, bias=bias)
    yield from linear(f"{path}.down_proj", fields.hidden_size, wide, bias=bias)


def experts(fields: Fields, count: int, width: int) -> Parameters:
    """Yield stacked experts of three products, the first two of them in one."""
    yield "mlp.experts.gate_up_proj", (count, 2 * width, fields.hidden_size)
    yield "mlp.experts.down_proj", (count, fields.hidden_size, width)


_BOTH = ("input_layernorm", "post_attention_layernorm")


def _llama(fields: Fields, _: int) -> Parameters:
    biased = bool(fields.get("attention_bias", False))
    yield from attention(fields, bias=biased, out_bias=biased)
    yield from gated(fields, bias=bool(fields.get("mlp_bias", False)))
    yield from norms(fields, *_BOTH)


def _plain(fields: Fields, _: int) -> Parameters:
    yield from attention(fields)
    yield from gated(fields)
    yield from norms(fields, *_BOTH)


def _qwen2(fields: Fields, _: int) -> Parameters:
    yield from attention(fields, bias=True)
    yield from gated(fields)
    yield from norms(fields, *_BOTH)


def _qwen3(fields: Fields, layer: int) -> Parameters:
    biased = bool(fields.get("attention_bias", False))
    yield from attention(fields, bias=biased, out_bias=biased)
    yield from head_norms(fields)
    count = fields.get("num_experts", 0)
    is_dense = layer in fields.get("mlp_only_layers", ()) or (layer + 1) % fields.get("decoder_sparse_step", 1) != 0
    if count and not is_dense:
        yield from experts(fields, count, fields.moe_intermediate_size)
        yield "mlp.gate.weight", (count, fields.hidden_size)
    else:
        yield from gated(fields)
    yield from norms(fields, *_BOTH)


def _is_linear(fields: Fields, layer: int) -> bool:
    return bool(fields.layer_types[layer] == "linear_attention")


def _qwen3_next(fields: Fields, layer: int) -> Parameters:
    hidden, count = fields.hidden_size, fields.num_experts
    if _is_linear(fields, layer):
        heads, keys = fields.linear_num_value_heads, fields.linear_num_key_heads * fields.linear_key_head_dim
        values = heads * fields.linear_value_head_dim
        yield "linear_attn.dt_bias", (heads,)
        yield "linear_attn.A_log", (heads,)
        yield "linear_attn.conv1d.weight", (2 * keys + values, 1, fields.linear_conv_kernel_dim)
        yield from linear("linear_attn.in_proj_qkvz", 2 * keys + 2 * values, hidden)
        yield from linear("linear_attn.in_proj_ba", 2 * heads, hidden)
        yield "linear_attn.norm.weight", (fields.linear_value_head_dim,)
        yield from linear("linear_attn.out_proj", hidden, values)
    else:
        biased = bool(fields.get("attention_bias", False))
        yield from attention(fields, bias=biased, out_bias=biased, gates=2)
        yield from head_norms(fields)
    if layer in fields.get("mlp_only_layers", ()) or not count or (layer + 1) % fields.get("decoder_sparse_step", 1):
        yield from gated(fields)
    else:
        yield "mlp.gate.weight", (count, hidden)
        yield from experts(fields, count, fields.moe_intermediate_size)
        yield from gated(fields, "mlp.shared_expert", fields.shared_expert_intermediate_size)
        yield from linear("mlp.shared_expert_gate", 1, hidden)
    yield from norms(fields, *_BOTH)


def _deltas(fields: Fields, layer: int) -> Mapping[str, Mapping[str, Any]]:
    if not _is_linear(fields, layer):
        return {}
    sizes = {"head_k_dim": fields.linear_key_head_dim, "head_v_dim": fields.linear_value_head_dim}
    return {"linear_attn": {**sizes, "num_v_heads": fields.linear_num_value_heads}}


def _gemma(fields: Fields, _: int) -> Parameters:
    biased = bool(fields.get("attention_bias", False))
    yield from attention(fields, bias=biased, out_bias=biased)
    if fields.model_type.startswith("gemma3"):
        yield from head_norms(fields)
    yield from gated(fields)
    yield from norms(fields, *_BOTH, "pre_feedforward_layernorm", "post_feedforward_layernorm")


def _gpt_oss(fields: Fields, _: int) -> Parameters:
    hidden, count, wide = fields.hidden_size, fields.num_local_experts, fields.intermediate_size
    yield "self_attn.sinks", (fields.num_attention_heads,)
    yield from attention(fields, bias=True, out_bias=True)
    yield from linear("mlp.router", count, hidden, bias=True)
    yield "mlp.experts.gate_up_proj", (count, hidden, 2 * wide)
    yield "mlp.experts.gate_up_proj_bias", (count, 2 * wide)
    yield "mlp.experts.down_proj", (count, wide, hidden)
    yield "mlp.experts.down_proj_bias", (count, hidden)
    yield from norms(fields, *_BOTH)


def _shared_mixture(fields: Fields, layer: int) -> Parameters:
    """Yield a dense layer in the first blocks, and routed experts beside shared ones in the others."""
    if layer < fields.first_k_dense_replace:
        yield from gated(fields)
        return
    yield from experts(fields, fields.n_routed_experts, fields.moe_intermediate_size)
    yield "mlp.gate.weight", (fields.n_routed_experts, fields.hidden_size)
    yield from gated(fields, "mlp.shared_experts", fields.moe_intermediate_size * fields.n_shared_experts)


def _deepseek(fields: Fields, layer: int) -> Parameters:
    hidden, heads, rank = fields.hidden_size, fields.num_attention_heads, fields.kv_lora_rank
    queries = heads * (fields.qk_nope_head_dim + fields.qk_rope_head_dim)
    biased = bool(fields.get("attention_bias", False))
    if fields.get("q_lora_rank", 0):
        yield from linear("self_attn.q_a_proj", fields.q_lora_rank, hidden, bias=biased)
        yield "self_attn.q_a_layernorm.weight", (fields.q_lora_rank,)
        yield from linear("self_attn.q_b_proj", queries, fields.q_lora_rank)
    else:
        yield from linear("self_attn.q_proj", queries, hidden)
    yield from linear("self_attn.kv_a_proj_with_mqa", rank + fields.qk_rope_head_dim, hidden, bias=biased)
    yield "self_attn.kv_a_layernorm.weight", (rank,)
    yield from linear("self_attn.kv_b_proj", heads * (fields.qk_nope_head_dim + fields.v_head_dim), rank)
    yield from linear("self_attn.o_proj", hidden, heads * fields.v_head_dim, bias=biased)
    yield from _shared_mixture(fields, layer)
    yield from norms(fields, *_BOTH)


def _glm4_moe(fields: Fields, layer: int) -> Parameters:
    yield from attention(fields, bias=bool(fields.get("attention_bias", False)))
    if fields.get("use_qk_norm", False):
        yield from head_norms(fields)
    yield from _shared_mixture(fields, layer)
    yield from norms(fields, *_BOTH)


def _mixtral(fields: Fields, _: int) -> Parameters:
    yield from attention(fields)
    yield "mlp.gate.weight", (fields.num_local_experts, fields.hidden_size)
    yield from experts(fields, fields.num_local_experts, fields.intermediate_size)
    yield from norms(fields, *_BOTH)


def _phi3(fields: Fields, _: int) -> Parameters:
    hidden, size = fields.hidden_size, fields.head_dim
    queries, keys = fields.num_attention_heads * size, fields.num_key_value_heads * size
    yield from linear("self_attn.o_proj", hidden, queries)
    yield from linear("self_attn.qkv_proj", queries + 2 * keys, hidden)
    yield from linear("mlp.gate_up_proj", 2 * fields.intermediate_size, hidden)
    yield from linear("mlp.down_proj", hidden, fields.intermediate_size)
    yield from norms(fields, *_BOTH)


def _all_full(fields: Fields) -> list[str]:
    """Return kinds of layers of Qwen: windows only where they are switched on, from a layer on."""
    has_windows = fields.get("use_sliding_window", False) and fields.get("sliding_window") is not None
    first = fields.get("max_window_layers", 28) if has_windows else fields.num_hidden_layers
    return ["sliding_attention" if layer >= first else "full_attention" for layer in range(fields.num_hidden_layers)]


def _every(pattern: int, other: str, name: str = "") -> Callable[[Fields], list[str]]:
    """Return kinds of layers of which every one of so many, or as a field says, sees all tokens."""

    def kinds(fields: Fields) -> list[str]:
        step = fields.get(name, pattern) if name else pattern
        return ["full_attention" if not (at + 1) % step else other for at in range(fields.num_hidden_layers)]

    return kinds


_SEES = "max_position_embeddings"
_YARN = {"factor": 32.0, "original_max_position_embeddings": 4096}
_GEMMA = {"head_dim": 256, "tie_word_embeddings": True}

OWN = (
    Family("llama", _llama, {_SEES: 2048}),
    Family("mistral", _plain, {_SEES: 131072, "sliding_window": 4096}),
    Family("qwen2", _qwen2, {_SEES: 32768, "layer_types": _all_full}),
    Family("qwen3", _qwen3, {_SEES: 32768, "layer_types": _all_full, "head_dim": 128}),
    Family("qwen3-moe", _qwen3, {_SEES: 32768, "layer_types": _all_full}),
    Family(
        "qwen3-next",
        _qwen3_next,
        {
            _SEES: 32768,
            "layer_types": _every(4, "linear_attention", "full_attention_interval"),
            "head_dim": 256,
        },
        _deltas,
    ),
    Family("gemma2", _gemma, {**_GEMMA, _SEES: 8192, "layer_types": _every(2, "sliding_attention")}),
    Family(
        "gemma3-text",
        _gemma,
        {
            **_GEMMA,
            _SEES: 131072,
            "layer_types": _every(6, "sliding_attention", "sliding_window_pattern"),
        },
    ),
    Family(
        "gpt-oss",
        _gpt_oss,
        {_SEES: 131072, "layer_types": _every(2, "sliding_attention"), "head_dim": 64, "rope_scaling": _YARN},
    ),
    Family("deepseek-v3", _deepseek, {_SEES: 4096, "num_nextn_predict_layers": 1}),
    Family("glm4-moe", _glm4_moe, {_SEES: 131072, "head_dim": 128, "num_nextn_predict_layers": 1}),
    Family("mixtral", _mixtral, {_SEES: 131072}),
    Family("phi3", _phi3, {_SEES: 4096}),
)
"""Families that come with placekit; tests compare each with the model class of transformers."""


def _check(family: Any, whose: str) -> None:
    if not isinstance(family, Family):
        raise InvalidProblemError(f"{whose} is {family!r}, and no Family (placekit.language.config.families)")


FAMILIES: OpenTable[Family] = OpenTable(
    "language model",
    {family.name: family for family in OWN},
    lambda point: load_class(point, "family of language models", _check),
)
"""Families of placekit, of installed packages, and those that are registered."""


def outlined(values: Mapping[str, Any]) -> Module | None:
    """Return the outline of the model of a configuration; None where its class has to tell.

    That is for a family that is not known, another head, or fields that are missing or out of range.
    """
    kind = str(values.get("model_type", "")).replace("_", "-")
    named, layers = values.get("architectures"), values.get("num_hidden_layers")
    wanted = str(named[0]) if isinstance(named, list) and named else "CausalLM"
    has_blocks = isinstance(layers, int) and 1 <= layers <= MAX_BLOCKS
    if kind not in FAMILIES or not wanted.endswith("CausalLM") or not has_blocks:
        return None
    try:
        return FAMILIES[kind].model(values)
    except (AttributeError, TypeError, ValueError, ZeroDivisionError, IndexError):
        return None
