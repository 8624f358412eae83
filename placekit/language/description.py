"""Description of a language model: parts, blocks of several kinds, and what each holds, reads and keeps.

A *part* is a module with weights, or an operation that keeps something of a sequence; it becomes one op of the graph of
a step. A *block* is the list of parts that a runtime moves as a whole. What a block keeps of a sequence has two sizes:
numbers per token (keys and values, or a latent vector), of at most `Part.window` tokens, and a state of fixed size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

from placekit.model.errors import InvalidProblemError

PREDICTING = "multi-token prediction"
"""Beginning of the kind of blocks that predict further tokens."""

_IN_GGUF: Mapping[str, int] = {
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "deepseek_v4", "kimi_k2", "kimi_k25", "youtu", "glm4_moe_lite",
                     "ernie4_5_moe", "minimax_m2"), 0),
    "mimo_v2_flash": 3,
}  # fmt: skip
"""Blocks of multi-token prediction in GGUF files, by families of transformers whose configurations do not tell it.

Llama.cpp's converter leaves them out, or knows their number.
"""


@dataclass(frozen=True)
class Part:
    """A module of a model."""

    path: str  # module path, for example ``model.layers.3.self_attn.q_proj``
    op_type: str  # type of the op, for example ``"MatMul"``
    inputs: tuple[str, ...] = ()  # paths of the parts whose outputs it reads; empty for inputs of the model
    width: float = 0.0  # numbers that it writes of one token
    # parameters, weight_bytes: its weights, all experts included; weights that it shares with another part too
    parameters: int = 0
    weight_bytes: float = 0.0
    # experts, experts_per_token: experts among which its weights are divided, and the active ones; 1 for a dense part
    experts: int = 1
    experts_per_token: float = 1
    flops: float = 0.0  # floating-point operations of one token, active experts only
    # floating-point operations of one token and one token that it sees: in a prompt, and in a step of decoding
    pair_flops: tuple[float, float] = (0.0, 0.0)
    cache_values: int = 0  # numbers that it keeps of every token of a sequence
    # heads, kv_heads: query heads and key-value heads, among which tensor parallelism divides it; 0 without attention
    heads: int = 0
    kv_heads: int = 0
    window: int | None = None  # number of last tokens that it keeps and sees; None for all
    state_bytes: float = 0.0  # bytes that it keeps of a sequence of any length
    is_lookup: bool = False  # True if a token reads one row of the weights
    is_last: bool = False  # True if only the last token of a sequence passes it
    is_tower: bool = False  # True for a tower of another modality: its weights are held, and read once per prompt
    tensors: tuple[str, ...] = ()  # names of its tensors in the file, or of its parameters

    @property
    def active_share(self) -> float:
        """Share of its weights that one token uses."""
        return self.experts_per_token / self.experts

    def share_met(self, tokens: float) -> float:
        """Return the share of its experts that `tokens` tokens are expected to use, each choosing evenly."""
        missed: float = (1 - self.active_share) ** tokens
        return 1 - missed

    def kept_tokens(self, context: float) -> float:
        """Return the tokens of a sequence of length `context` that its cache holds."""
        return context if self.window is None else min(context, float(self.window))


@dataclass(frozen=True)
class Block:
    """Parts that stay together."""

    path: str  # module path, for example ``model.layers.3``
    kind: str  # words for what it is, for example ``"latent attention + 256 experts, 8 active, 1 shared"``
    parts: tuple[Part, ...]  # its parts in the order in which they run

    @property
    def parameters(self) -> int:
        """Parameters of the block."""
        return sum(part.parameters for part in self.parts)

    @property
    def weight_bytes(self) -> float:
        """Bytes of weights."""
        return sum(part.weight_bytes for part in self.parts)

    @property
    def cache_values(self) -> int:
        """Numbers that the block keeps of one token."""
        return sum(part.cache_values for part in self.parts)

    @property
    def window(self) -> int | None:
        """Number of last tokens that it keeps; None for all, or for a block without a cache."""
        kept = [part.window for part in self.parts if part.cache_values]
        return None if None in kept or not kept else max(window for window in kept if window is not None)

    @property
    def state_bytes(self) -> float:
        """Bytes that it keeps of a sequence of any length."""
        return sum(part.state_bytes for part in self.parts)

    def cache_bytes(self, context: int, value_bytes: float = 2.0) -> float:
        """Return the bytes that the block keeps of a sequence of `context` tokens: its cache and its state."""
        cached = sum(part.cache_values * part.kept_tokens(context) for part in self.parts)
        return cached * value_bytes + self.state_bytes


@dataclass(frozen=True)
class ModelDescription:
    """A language model as blocks.

    Raises `InvalidProblemError`: no blocks.
    """

    name: str  # name of the model or of its file
    family: str  # family, as transformers or the file calls it
    # hidden, vocab: size of the hidden state, vocabulary size
    hidden: int
    vocab: int
    precision: str  # words for how weights are stored
    # front, blocks, back: parts before the blocks (embeddings, towers), blocks in order, and parts behind them (norm,
    # head)
    front: tuple[Part, ...]
    blocks: tuple[Block, ...]
    back: tuple[Part, ...]
    # blocks that predict further tokens (multi-token prediction). Servers load them only for speculation: they are
    # neither counted nor placed, unless `with_speculative` puts them behind the others.
    speculative: tuple[Block, ...] = ()
    # bytes and parameters of weights that several parts use, and the paths of these parts: tied weights
    shared: tuple[tuple[float, int, tuple[str, ...]], ...] = ()
    notes: tuple[str, ...] = ()  # sentences about what is counted in a special way
    trained_tokens: int | None = None  # longest sequence that it was trained for; None if nothing says so

    def __post_init__(self) -> None:
        if not self.blocks:
            raise InvalidProblemError(f"{self.name}: the model has no blocks")

    @property
    def parts(self) -> Iterator[Part]:
        """All parts in the order in which they run."""
        yield from self.front
        for block in self.blocks:
            yield from block.parts
        yield from self.back

    @property
    def further_in_gguf(self) -> int:
        """Number of blocks of multi-token prediction that a GGUF file of the model has: llama.cpp counts them."""
        return _IN_GGUF.get(self.family, len(self.speculative))

    @property
    def is_tied(self) -> bool:
        """True if the head is the embedding."""
        heads = {part.path for part in self.back if part.is_last}
        return any(heads.intersection(paths) for _, _, paths in self.shared)

    @property
    def parameters(self) -> int:
        """Parameters, tied ones once."""
        again = sum(count * (len(paths) - 1) for _, count, paths in self.shared)
        return sum(part.parameters for part in self.parts) - again

    @property
    def active_parameters(self) -> int:
        """Parameters that one token uses: all but those of experts that are not chosen."""
        return round(self.parameters - sum(part.parameters * (1 - part.active_share) for part in self.parts))

    @property
    def lookup_parameters(self) -> int:
        """Parameters of embedding tables that are used for nothing but lookups."""
        tied = {path for _, _, paths in self.shared for path in paths}
        return sum(part.parameters for part in self.parts if part.is_lookup and part.path not in tied)

    @property
    def weight_bytes(self) -> float:
        """Bytes of weights, tied ones once."""
        again = sum(num_bytes * (len(paths) - 1) for num_bytes, _, paths in self.shared)
        return sum(part.weight_bytes for part in self.parts) - again

    @property
    def cache_values(self) -> int:
        """Numbers that all blocks keep of one token, while it is inside every window."""
        return sum(block.cache_values for block in self.blocks)

    @property
    def state_bytes(self) -> float:
        """Bytes that all blocks keep of a sequence of any length."""
        return sum(block.state_bytes for block in self.blocks)

    def cache_bytes(self, context: int, value_bytes: float = 2.0) -> float:
        """Return the bytes that all blocks keep of a sequence of `context` tokens."""
        return sum(block.cache_bytes(context, value_bytes) for block in self.blocks)

    def kinds(self) -> dict[str, int]:
        """Return the number of blocks of every kind, in the order of their first block."""
        return dict(Counter(block.kind for block in self.blocks))

    def with_speculative(self) -> Self:
        """Return the model with the blocks of multi-token prediction behind the others, as runtimes that train do."""
        last = state = self.blocks[-1].parts[-1].path
        blocks = list(self.blocks)
        for block in self.speculative:
            own = {part.path for part in block.parts}
            parts = [replace(part, inputs=tuple(dict.fromkeys(each if each in own else state for each in part.inputs)))
                     for part in block.parts]  # fmt: skip
            blocks.append(replace(block, parts=tuple(parts)))
            state = parts[-1].path
        back = [replace(part, inputs=tuple(state if each == last else each for each in part.inputs))
                for part in self.back]  # fmt: skip
        return self.replace(blocks=tuple(blocks), back=tuple(back), speculative=())

    def scaled_to(self, weight_bytes: float) -> Self:
        """Return the model with weights of so many bytes in all, every part with the same share as before."""
        factor = weight_bytes / self.weight_bytes

        def scaled(parts: Iterable[Part]) -> tuple[Part, ...]:
            return tuple(replace(part, weight_bytes=part.weight_bytes * factor) for part in parts)

        return self.replace(
            front=scaled(self.front),
            blocks=tuple(replace(block, parts=scaled(block.parts)) for block in self.blocks),
            back=scaled(self.back),
            shared=tuple((num_bytes * factor, count, paths) for num_bytes, count, paths in self.shared),
        )

    def replace(self, **changes: object) -> Self:
        """Return a copy with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]  # each is of its field's type
