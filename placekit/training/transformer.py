"""Training problems of transformers on named accelerators, for users without profiles.

Costs of a block of hidden size h, with s tokens and b sequences in a microbatch: ``24 b s h^2 + 4 b s^2 h``
floating-point operations forward, twice as many backward; ``12 h^2`` parameters; activations of ``s b h (10 + 24 / t)``
bytes with t-fold tensor parallelism and attention that keeps no scores, ``2 s b h`` with recomputation.

References
----------
D. Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021.
V. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", MLSys 2023.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placekit.model.blocks.transformers import (
    MAX_BLOCKS,
    MAX_SIZE,
    attention_flops,
    attention_parameters,
    feed_forward_parameters,
)
from placekit.model.errors import InvalidProblemError, UnknownNameError
from placekit.training.problem import Choice, Layer, LayerEdge, TrainingProblem

PREFIX = "transformer:"
EFFICIENCY = 0.5
"""Share of peak performance that matrix products reach."""
STATE_BYTES = 16
"""Bytes per parameter: weights and gradients in 16 bits; weights and two moments of Adam in 32 bits."""
NODE = 8
"""Number of accelerators of a node: the largest tensor-parallel degree."""


@dataclass(frozen=True)
class Accelerator:
    """Data-sheet numbers of an accelerator."""

    memory_bytes: float  # memory of the device
    flops: float  # dense 16-bit floating-point operations per second
    # inside_bytes_per_s, between_bytes_per_s: bandwidth within a node, in each direction, and between nodes
    inside_bytes_per_s: float
    between_bytes_per_s: float
    source: str  # source of the numbers


ACCELERATORS: Mapping[str, Accelerator] = {
    "v100-32gb": Accelerator(
        32e9, 125e12, 150e9, 6.25e9, "NVIDIA V100 data sheet (2020): 32 GB, 125 TFLOPS, NVLink 300 GB/s; DGX-1: "
        "4 x 100 Gb/s for 8 GPUs",
    ),
    "a100-40gb": Accelerator(
        40e9, 312e12, 300e9, 25e9, "NVIDIA A100 data sheet (2021): 40 GB, 312 TFLOPS, NVLink 600 GB/s; DGX A100: "
        "200 Gb/s per GPU",
    ),
    "a100-80gb": Accelerator(
        80e9, 312e12, 300e9, 25e9, "NVIDIA A100 data sheet (2021): 80 GB, 312 TFLOPS, NVLink 600 GB/s; DGX A100: "
        "200 Gb/s per GPU",
    ),
    "h100-80gb": Accelerator(
        80e9, 989e12, 450e9, 50e9, "NVIDIA H100 SXM data sheet (2023): 80 GB, 989 TFLOPS dense, NVLink 900 GB/s; "
        "DGX H100: 400 Gb/s per GPU",
    ),
}  # fmt: skip
"""Named accelerators."""


@dataclass(frozen=True)
class Transformer:
    """Shape of a decoder and its microbatch."""

    hidden: int
    blocks: int
    heads: int
    vocabulary: int
    # tokens, sequences: tokens of a sequence, and sequences of a microbatch
    tokens: int
    sequences: int = 1

    def __post_init__(self) -> None:
        for name in ("hidden", "blocks", "heads", "vocabulary", "tokens", "sequences"):
            most = MAX_BLOCKS if name == "blocks" else MAX_SIZE
            if not 1 <= getattr(self, name) <= most:
                raise InvalidProblemError(
                    f"transformer: {name} is {getattr(self, name)}; it must be at least 1 and at most {most}"
                )

    @property
    def block_parameters(self) -> int:
        """Number of parameters of a block with full attention and two feed-forward matrices of width 4 h."""
        wide = feed_forward_parameters(self.hidden, 4 * self.hidden, gated=False)
        return attention_parameters(self.hidden, self.hidden, self.hidden) + wide

    @property
    def num_parameters(self) -> int:
        """Number of parameters of blocks, embedding and head."""
        return self.block_parameters * self.blocks + 2 * self.hidden * self.vocabulary


TRANSFORMERS: Mapping[str, Transformer] = {
    "1.5b": Transformer(1600, 48, 25, 50257, 1024),
    "7b": Transformer(4096, 32, 32, 32000, 4096),
    "13b": Transformer(5120, 40, 40, 32000, 4096),
    "70b": Transformer(8192, 80, 64, 32000, 4096),
    "175b": Transformer(12288, 96, 96, 50257, 2048),
}
"""Shapes of GPT-2 XL, Llama 2 (7, 13 and 70 billion parameters) and GPT-3, with blocks of 12 h^2 parameters."""


def is_transformer(text: str) -> bool:
    """Return True if `text` names a transformer: ``7b``, or ``transformer:hidden=4096,blocks=32,...``."""
    return text.lower() in TRANSFORMERS or text.startswith(PREFIX)


def transformer_problem(
    text: str,  # a name of `TRANSFORMERS`, or ``transformer:`` with fields of `Transformer`
    accelerator: str = "a100-80gb",  # a name of `ACCELERATORS`
    changes: Mapping[str, Any] | None = None,  # fields of the problem that replace assumed ones
) -> tuple[TrainingProblem, list[str]]:
    """Return the training problem of a named transformer, and a sentence for every assumption.

    Raises `UnknownNameError`: no accelerator or transformer has that name; `InvalidProblemError`: a field is no number.

    Examples
    --------
    >>> problem, told = transformer_problem("7b", "a100-80gb", {"num_devices": 32})
    >>> problem.num_layers, problem.tensor_degrees, told[0]
    (34, (1, 2, 4, 8), '7b: 6.7 billion parameters: 32 blocks, hidden size 4096, 32 heads, vocabulary 32000')
    """
    if accelerator not in ACCELERATORS:
        raise UnknownNameError(f"no accelerator {accelerator!r}; there are {', '.join(ACCELERATORS)}")
    shape, device = _shape(text), ACCELERATORS[accelerator]
    degrees = [t for t in (1, 2, 4, 8) if shape.heads % t == 0 and t <= NODE]
    h, b, s = shape.hidden, shape.sequences, shape.tokens
    passed = float(2 * b * s * h)  # 16-bit activations between layers
    rate = device.flops * EFFICIENCY
    block_s = (2 * b * s * shape.block_parameters + attention_flops(b * s, s, h)) / rate
    head_s = 2 * b * s * h * shape.vocabulary / rate
    last = shape.blocks + 1
    names = ["embedding", *(f"block{v}" for v in range(shape.blocks)), "head"]
    layers = []
    for v, name in enumerate(names):
        is_block = 0 < v < last
        forward_s = block_s if is_block else (head_s if v == last else 0.0)
        parameters = float(shape.block_parameters if is_block else h * shape.vocabulary)
        choices: dict[int, tuple[Choice, ...]] = {}
        for t in degrees:
            # two all-reduces forward and two backward in a block, and one each way in embedding and head
            reduced_s = (2 if is_block else 1) * 2 * (t - 1) / t * passed / device.inside_bytes_per_s
            kept = (
                s * b * h * (10 + 24 / t) if is_block else passed + (4.0 * b * s * shape.vocabulary / t) * (v == last)
            )
            state, gradients = STATE_BYTES * parameters / t, 2 * parameters / t
            ins = {v - 1: 0.0} if v else {}
            outs = {v + 1: 0.0} if v < last else {}
            plain = Choice("plain", 3 * forward_s / t + 2 * reduced_s, gradients, kept, state, ins, outs)
            again = Choice(
                "recomputation", 4 * forward_s / t + 3 * reduced_s, gradients, passed, state + kept, ins, outs
            )
            choices[t] = (plain, again) if is_block else (plain,)
        layers.append(Layer(name, choices))
    edges = tuple(LayerEdge(v, v + 1, passed) for v in range(last))
    fields: dict[str, Any] = {
        "num_devices": NODE,
        "memory_bytes": device.memory_bytes,
        "bandwidth_bytes_per_s": device.between_bytes_per_s,
        "num_microbatches": 1024,
    } | dict(changes or {})
    name = text.replace(":", "-").replace(",", "-").replace("=", "")
    problem = TrainingProblem(f"{name}-on-{accelerator}", tuple(layers), edges, **fields)
    return problem, _assumptions(text, shape, accelerator, device, degrees, problem)


def _shape(text: str) -> Transformer:
    if text.lower() in TRANSFORMERS:
        return TRANSFORMERS[text.lower()]
    if not text.startswith(PREFIX):
        raise UnknownNameError(f"no transformer {text!r}; there are {', '.join(TRANSFORMERS)}, and {PREFIX}hidden=...")
    values: dict[str, int] = {"vocabulary": 32000, "tokens": 2048}
    known = Transformer.__dataclass_fields__
    for part in text.removeprefix(PREFIX).split(","):
        key, _, value = part.partition("=")
        if key not in known or not value.isdecimal() or len(value) > 18:
            raise InvalidProblemError(f"{text}: {part!r} should be one of {', '.join(known)}, '=' and a whole number")
        values[key] = int(value)
    for key in ("hidden", "blocks", "heads"):
        if key not in values:
            raise InvalidProblemError(f"{text}: {key} is missing")
    return Transformer(**values)


def _assumptions(
    text: str, shape: Transformer, accelerator: str, device: Accelerator, degrees: list[int], problem: TrainingProblem
) -> list[str]:
    batch = problem.num_microbatches * shape.sequences
    return [
        f"{text}: {shape.num_parameters / 1e9:.1f} billion parameters: {shape.blocks} blocks, "
        f"hidden size {shape.hidden}, {shape.heads} heads, vocabulary {shape.vocabulary}",
        f"microbatch of {shape.sequences} x {shape.tokens} tokens; batch of {batch} sequences, "
        f"{batch * shape.tokens / 1e6:.2f} million tokens",
        f"{accelerator}: {device.source}",
        f"matrix products reach {EFFICIENCY:.0%} of {device.flops / 1e12:.0f} TFLOP/s; the backward pass takes two "
        "forward passes, recomputation one more",
        f"tensor parallelism of {', '.join(map(str, degrees))} inside a node of {NODE}: two all-reduces per "
        f"block and pass at {device.inside_bytes_per_s / 1e9:.0f} GB/s each way",
        f"stages and replicas exchange data at {problem.bandwidth_bytes_per_s / 1e9:g} GB/s per device, "
        "as between nodes",
        f"{STATE_BYTES} bytes per parameter (16-bit weights and gradients, 32-bit weights and two moments of Adam), "
        "not sharded over replicas; gradients are exchanged in 16 bits",
        "activations of s b h (10 + 24 / t) bytes per block (attention keeps no scores), 2 s b h with recomputation",
        f"memory limit {problem.memory_bytes / 1e9:g} GB per device; nothing is set aside for buffers or fragmentation",
    ]
