"""The op graph of a step of a language model, from its description.

Every part is an op with the name of its module (``model.layers.3.self_attn.q_proj``). Tensors are activations of 16
bits. `OpGraph.op_weight_bytes` is what a step *reads* beside activations: weights, of experts those that the tokens are
expected to use, the part of the cache that is there before the step, and states, which are read and written. Only the
last token of a sequence passes the head.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placekit.language.decoder import bits_of
from placekit.language.description import ModelDescription, Part
from placekit.language.serving import Phase
from placekit.model.graph import OpGraph

ACTIVATION_BYTES = 2
"""Bytes of a number in a hidden state."""
LOGIT_BYTES = 4
"""Of a logit."""
LEAST_BITS = 4.5
"""Bits of a weight that a kernel reads in the time that it takes at least: fewer take as long to unpack."""
_OUTPUT = "output"
"""Name of the op that stands for the output of the model, unless a part is called so."""


@dataclass(frozen=True)
class ModelStep:
    """A step of a language model."""

    graph: OpGraph  # the ops: one per part, and the output
    parts: tuple[Part, ...]  # ``[num_ops - 1]`` part of every op but the output
    # bytes, and the ops that use them, of weights that several ops use
    shared_weights: tuple[tuple[float, tuple[int, ...]], ...] = ()
    num_front: int = 0  # number of parts before the blocks

    @property
    def weight_bytes(self) -> NDArray[np.float64]:
        """``[num_ops]`` bytes of weights that an op holds, all experts included."""
        return np.array([*(part.weight_bytes for part in self.parts), 0.0])

    def cache_bytes(self, context: int, value_bytes: float) -> NDArray[np.float64]:
        """``[num_ops]`` bytes that an op keeps of one sequence of `context` tokens."""
        cached = [part.cache_values * part.kept_tokens(context) * value_bytes + part.state_bytes for part in self.parts]
        return np.array([*cached, 0.0])


def free_name(wanted: str, taken: Container[str]) -> str:
    """Return a name that is not taken: the wanted one, or else with as many underscores behind it as it needs.

    Examples
    --------
    >>> free_name("output", {"output", "output_"})
    'output__'
    """
    while wanted in taken:
        wanted += "_"
    return wanted


def tokens_seen(phase: Phase, window: int | None = None) -> float:
    """Return the tokens that a token of a phase sees on average, itself included, none beyond its window.

    Examples
    --------
    >>> prompt = Phase("prefill", 1, 100, 0.0)
    >>> tokens_seen(prompt), tokens_seen(prompt, 10)
    (50.5, 9.55)
    """
    if window is None:
        return phase.context
    total = phase.count * phase.tokens
    start = phase.past - (phase.count - 1) * phase.tokens / 2  # tokens before the first step
    inside = min(max(int(window - start), 0), total)
    return (inside * start + inside * (inside + 1) / 2 + (total - inside) * window) / total


def tokens_cached(phase: Phase, window: int | None = None) -> float:
    """Return the tokens of a sequence that a step of a phase reads from a cache on average.

    Examples
    --------
    >>> tokens_cached(Phase("decode", 100, 1, 500.0)), tokens_cached(Phase("decode", 100, 1, 500.0), 128)
    (500.0, 128.0)
    """
    if window is None:
        return phase.past
    start = phase.past - (phase.count - 1) * phase.tokens / 2
    inside = min(max(int((window - start) // phase.tokens) + 1, 0), phase.count)
    return (inside * start + phase.tokens * inside * (inside - 1) / 2 + (phase.count - inside) * window) / phase.count


def model_step(model: ModelDescription, phase: Phase, *, batch: int = 1, cache_precision: str = "f16") -> ModelStep:
    """Return the graph of one step of `phase` for `batch` sequences.

    `batch` sequences take the step together. Raises `UnknownNameError`: no such precision.

    Examples
    --------
    >>> from placekit.language.decoder import Decoder
    >>> from placekit.language.from_numbers import describe_decoder
    >>> model = describe_decoder(Decoder(2, 64, 128, 1000, heads=4))
    >>> step = model_step(model, Phase("decode", 1, 1, 100.0))
    >>> step.graph.num_ops, step.graph.op_names[1], float(step.cache_bytes(1, 1.0).sum())
    (26, 'model.layers.0.input_layernorm', 256.0)
    """
    value_bytes = bits_of(cache_precision, "cache_precision") / 8
    tokens = float(batch * phase.tokens)
    parts = tuple(model.parts)
    flops, read, written = [], [], []
    for part in parts:
        count = float(batch) if part.is_last else tokens
        pairs = part.pair_flops[phase.name == "decode"] * tokens_seen(phase, part.window)
        flops.append(count * (part.flops + pairs))
        written.append(count * part.width * (LOGIT_BYTES if part.is_last else ACTIVATION_BYTES))
        kept = part.cache_values * tokens_cached(phase, part.window) * value_bytes + 2 * part.state_bytes
        read.append(_weights_read(part, phase, tokens) + batch * kept)
    last = parts[-1].path
    edges = [(source, part.path) for part in parts for source in part.inputs]
    output = free_name(_OUTPUT, {part.path for part in parts})
    graph = OpGraph.from_edges(
        [*(part.path for part in parts), output], [*edges, (last, output)], name=model.name,
        op_types=[*(part.op_type for part in parts), "Result"], output_bytes=[*written, 0.0],
    )  # fmt: skip
    graph = graph.replace(op_flops=np.array([*flops, 0.0]), op_weight_bytes=np.array([*read, 0.0]))
    index = graph.op_index
    shared = tuple((num_bytes, tuple(index[path] for path in paths)) for num_bytes, _, paths in model.shared)
    return ModelStep(graph, parts, shared, len(model.front))


def _weights_read(part: Part, phase: Phase, tokens: float) -> float:
    """Return the bytes of weights that a step of `tokens` tokens reads."""
    if part.is_tower:
        return part.weight_bytes if phase.name == "prefill" else 0.0
    if part.is_lookup:
        return tokens * part.width * part.weight_bytes / max(part.parameters, 1)
    least = part.parameters * LEAST_BITS / 8 if part.weight_bytes * 8 > part.parameters else 0.0
    return max(part.weight_bytes, least) * part.share_met(tokens)
