"""The op graph of a step of a decoder, from its shape alone.

Ops are called as in transformers' Llama (``model.layers.3.self_attn.qkv_proj``), one per matrix product, norm,
attention, activation and addition; the experts of a block are two ops, as their weights are stored together. Tensors
are activations of 16 bits. `OpGraph.op_weight_bytes` is what a step *reads* beside activations: weights, of experts
those that the tokens are expected to meet, and the part of the cache that is there before the step. Only the last token
of a sequence passes the head.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from placekit.language.decoder import Decoder, attention_flops, bits_of
from placekit.language.serving import Phase
from placekit.model.graph import OpGraph

__all__ = ["ACTIVATION_BYTES", "DecoderStep", "decoder_step"]

ACTIVATION_BYTES = 2
"""Of a number in a hidden state."""
LOGIT_BYTES = 4
"""Of a logit."""


@dataclass(frozen=True)
class DecoderStep:
    """A step of a decoder.

    Parameters
    ----------
    graph
        The ops; see the module docstring.
    weight_bytes
        ``[num_ops]`` bytes of weights that an op holds, all experts included.
    cache_values
        ``[num_ops]`` numbers that an op keeps of one token: keys and values, in attention ops.
    """

    graph: OpGraph
    weight_bytes: np.ndarray[tuple[int], np.dtype[np.float64]]
    cache_values: np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass
class _Ops:
    """Ops in the making: one list per column."""

    names: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    flops: list[float] = field(default_factory=list)
    read: list[float] = field(default_factory=list)
    held: list[float] = field(default_factory=list)
    cached: list[float] = field(default_factory=list)
    written: list[float] = field(default_factory=list)
    edges: list[tuple[str, str]] = field(default_factory=list)

    def add(
        self, name: str, op_type: str, inputs: tuple[str, ...], *, written: float, flops: float = 0.0,
        held: float = 0.0, read: float | None = None, cached: float = 0.0,
    ) -> str:  # fmt: skip
        self.edges += [(source, name) for source in inputs]
        for column, value in (
            (self.names, name), (self.types, op_type), (self.flops, flops), (self.held, held),
            (self.read, held if read is None else read), (self.cached, cached), (self.written, written),
        ):  # fmt: skip
            column.append(value)  # type: ignore[arg-type]  # each is of its column's type
        return name


def decoder_step(
    model: Decoder,
    phase: Phase,
    *,
    batch: int = 1,
    precision: str = "f16",
    cache_precision: str = "f16",
    name: str = "decoder",
) -> DecoderStep:
    """Return the graph of one step of `phase` for `batch` sequences.

    Parameters
    ----------
    model, phase
        What is computed.
    batch
        Sequences that take the step together.
    precision, cache_precision
        Of weights, and of keys and values.
    name
        Name of the graph.

    Raises
    ------
    UnknownNameError
        No such precision.

    Examples
    --------
    >>> step = decoder_step(Decoder(2, 64, 128, 1000, heads=4), Phase("decode", 1, 1, 100.0))
    >>> step.graph.num_ops, step.graph.op_names[1], float(step.cache_values.sum())
    (26, 'model.layers.0.input_layernorm', 256.0)
    """
    weight = bits_of(precision) / 8
    cached = bits_of(cache_precision, "cache_precision") / 8
    tokens = float(batch * phase.tokens)
    state = tokens * model.hidden * ACTIVATION_BYTES
    ops = _Ops()

    def product(path: str, inputs: tuple[str, ...], rows: int, columns: int, count: float = tokens) -> str:
        """Add a product of `count` vectors of `rows` with a matrix."""
        return ops.add(
            path, "MatMul", inputs, written=count * columns * ACTIVATION_BYTES,
            flops=2 * count * rows * columns, held=rows * columns * weight,
        )  # fmt: skip

    def norm(path: str, *inputs: str) -> str:
        scale = model.hidden * ACTIVATION_BYTES
        return ops.add(path, "RMSNorm", inputs, written=state, flops=4 * tokens * model.hidden, held=scale)

    def add(path: str, *inputs: str) -> str:
        return ops.add(path, "Add", inputs, written=state, flops=tokens * model.hidden)

    table = model.hidden * model.vocab * weight
    hidden = ops.add("model.embed_tokens", "Gather", (), written=state, held=table, read=tokens * model.hidden * weight)
    kept = float(model.cache_values_per_token)
    for layer in range(model.layers):
        block = f"model.layers.{layer}"
        normed = norm(f"{block}.input_layernorm", hidden)
        qkv = product(f"{block}.self_attn.qkv_proj", (normed,), model.hidden, model.query_width + 2 * model.kv_width)
        turned = ops.add(
            f"{block}.self_attn.rotary_emb", "RoPE", (qkv,),
            written=tokens * (model.query_width + 2 * model.kv_width) * ACTIVATION_BYTES,
            flops=3 * tokens * (model.query_width + model.kv_width),
        )  # fmt: skip
        mixed = ops.add(
            f"{block}.self_attn.attn", "ScaledDotProductAttention", (turned,),
            written=tokens * model.query_width * ACTIVATION_BYTES,
            flops=attention_flops(tokens, phase.context, model.query_width),
            read=batch * phase.past * kept * cached, cached=kept,
        )  # fmt: skip
        projected = product(f"{block}.self_attn.o_proj", (mixed,), model.query_width, model.hidden)
        hidden = add(f"{block}.self_attn.add", hidden, projected)
        normed = norm(f"{block}.post_attention_layernorm", hidden)
        hidden = add(f"{block}.mlp.add", hidden, _feed_forward(ops, model, f"{block}.mlp", normed, tokens, weight))
    last = norm("model.norm", hidden)
    logits = product("lm_head", (last,), model.hidden, model.vocab, float(batch))
    ops.written[ops.names.index(logits)] = batch * model.vocab * LOGIT_BYTES
    ops.add("output", "Result", (logits,), written=0.0)
    graph = OpGraph.from_edges(ops.names, ops.edges, name=name, op_types=ops.types, output_bytes=ops.written)
    graph = graph.replace(op_flops=np.array(ops.flops), op_weight_bytes=np.array(ops.read))
    return DecoderStep(graph, np.array(ops.held), np.array(ops.cached))


def _feed_forward(ops: _Ops, model: Decoder, path: str, normed: str, tokens: float, weight: float) -> str:
    """Add the feed-forward part of a block, dense or of experts, and return its last op."""
    met, visits = model.experts_met(tokens), tokens * model.experts_per_token
    held = model.hidden * model.ffn * weight
    inputs: tuple[str, ...] = (normed,)
    suffix = ""
    if model.experts > 1:
        router = ops.add(
            f"{path}.gate", "MatMul", inputs, written=tokens * model.experts * ACTIVATION_BYTES,
            flops=2 * tokens * model.hidden * model.experts, held=model.hidden * model.experts * ACTIVATION_BYTES,
        )  # fmt: skip
        inputs, suffix = (normed, router), "_exps"
    ups = 2 if model.gated else 1
    up = ops.add(
        f"{path}.{'gate_up_proj' if model.gated else 'up_proj'}{suffix}", "MatMul", inputs,
        written=ups * visits * model.ffn * ACTIVATION_BYTES, flops=2.0 * ups * visits * model.hidden * model.ffn,
        held=ups * model.experts * held, read=ups * met * held,
    )  # fmt: skip
    activated = ops.add(
        f"{path}.act_fn", "Swish" if model.gated else "Gelu", (up,),
        written=visits * model.ffn * ACTIVATION_BYTES, flops=5 * visits * model.ffn,
    )  # fmt: skip
    return ops.add(
        f"{path}.down_proj{suffix}", "MatMul", (activated,), written=tokens * model.hidden * ACTIVATION_BYTES,
        flops=2.0 * visits * model.hidden * model.ffn, held=model.experts * held, read=met * held,
    )  # fmt: skip
