"""Shapes of decoders, and what they cost: parameters, floating-point operations, bytes of the cache.

A block has a query and an output projection of ``hidden x query_width``, key and value projections of
``hidden x kv_width``, and feed-forward matrices of ``hidden x ffn``: three in a gated one, two else. A token takes two
operations per parameter that it meets, and in attention four per query channel and token that it sees.

References
----------
D. Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021.
N. Shazeer et al., "Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer", ICLR 2017.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from placekit.model.blocks.transformers import (
    MAX_BLOCKS,
    MAX_SIZE,
    attention_parameters,
    feed_forward_parameters,
)
from placekit.model.errors import InvalidProblemError, UnknownNameError

BITS: Mapping[str, float] = {"f32": 32, "bf16": 16, "f16": 16, "fp8": 8, "int8": 8.5, "int4": 4.5}
"""Bits of a number by precision; integers come in blocks of 32 with a scale of 16 bits (llama.cpp's Q8_0 and Q4_0)."""


def bits_of(precision: str, what: str = "precision") -> float:
    """Return the bits of a number in `precision`.

    Raises `UnknownNameError`: another name than those of `BITS`.
    """
    if precision not in BITS:
        raise UnknownNameError(f"{what} is {precision!r}; it must be one of {', '.join(BITS)}")
    return BITS[precision]


@dataclass(frozen=True)
class Decoder:
    """The shape of a decoder, Llama-like by default: grouped heads, a gated feed-forward part, an untied head.

    Parameters
    ----------
    layers, hidden, ffn, vocab
        Blocks, size of the hidden state, width of the feed-forward part (of one expert), tokens known.
    heads
        Query heads; ``hidden / head_dim`` if None.
    kv_heads
        Heads of keys and values; `heads` if None.
    head_dim
        Channels of a head; ``hidden / heads``, or 128 without `heads`, if None.
    experts, experts_per_token
        Experts of every feed-forward part, and how many a token meets; one of each for a dense model.
    gated
        True for three feed-forward matrices (SwiGLU), False for two.
    tied
        True if the head uses the weights of the embedding.
    positions
        Rows of a table of learned positions; 0 for none.
    family
        How transformers calls the modules: ``"llama"`` or ``"gpt2"``.

    Raises
    ------
    InvalidProblemError
        A number out of range, or heads that do not divide.

    Examples
    --------
    >>> model = Decoder(layers=32, hidden=4096, kv_heads=8, ffn=14336, vocab=128256)
    >>> model.heads, model.head_dim, round(model.num_parameters / 1e9, 2), model.cache_values_per_token
    (32, 128, 8.03, 2048)
    """

    layers: int
    hidden: int
    ffn: int
    vocab: int
    heads: int = None  # type: ignore[assignment]  # None = from head_dim, filled below
    kv_heads: int = None  # type: ignore[assignment]  # None = heads
    head_dim: int = None  # type: ignore[assignment]  # None = from heads
    experts: int = 1
    experts_per_token: int = 1
    gated: bool = True
    tied: bool = False
    positions: int = 0
    family: str = "llama"

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "ffn", "vocab"):
            self._check(name)
        if self.heads is None:
            object.__setattr__(self, "head_dim", min(128, self.hidden) if self.head_dim is None else self.head_dim)
            self._check("head_dim")
            self._divides("head_dim", self.head_dim, "hidden", self.hidden)
            object.__setattr__(self, "heads", self.hidden // self.head_dim)
        self._check("heads")
        if self.head_dim is None:
            self._divides("heads", self.heads, "hidden", self.hidden)
            object.__setattr__(self, "head_dim", self.hidden // self.heads)
        object.__setattr__(self, "kv_heads", self.heads if self.kv_heads is None else self.kv_heads)
        for name in ("kv_heads", "head_dim", "experts", "experts_per_token"):
            self._check(name)
        self._divides("kv_heads", self.kv_heads, "heads", self.heads)
        if self.experts_per_token > self.experts:
            raise InvalidProblemError(
                f"decoder: experts_per_token is {self.experts_per_token}; it must be at most experts, "
                f"which is {self.experts}"
            )

    def _check(self, name: str) -> None:
        value, most = getattr(self, name), MAX_BLOCKS if name == "layers" else MAX_SIZE
        if not 1 <= value <= most:
            raise InvalidProblemError(f"decoder: {name} is {value}; it must be at least 1 and at most {most}")

    def _divides(self, name: str, value: int, of: str, whole: int) -> None:
        if whole % value:
            raise InvalidProblemError(f"decoder: {name} is {value}; it must divide {of}, which is {whole}")

    @property
    def query_width(self) -> int:
        """Channels of all query heads."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Channels of all keys (or all values) of a token."""
        return self.kv_heads * self.head_dim

    @property
    def cache_values_per_token(self) -> int:
        """Numbers that one block keeps of one token: its key and its value."""
        return 2 * self.kv_width

    @property
    def expert_parameters(self) -> int:
        """Parameters of one expert, or of the one feed-forward part."""
        return feed_forward_parameters(self.hidden, self.ffn, gated=self.gated)

    @property
    def block_parameters(self) -> int:
        """Parameters of a block with its two norms, and the router if there are experts."""
        router = self.hidden * self.experts if self.experts > 1 else 0
        attention = attention_parameters(self.hidden, self.query_width, self.kv_width)
        return attention + self.experts * self.expert_parameters + router + 2 * self.hidden

    @property
    def num_parameters(self) -> int:
        """Parameters of blocks, embedding, last norm and head; a tied head has none of its own."""
        tables = (1 if self.tied else 2) * self.vocab + self.positions
        return self.layers * self.block_parameters + self.hidden * (tables + 1)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed; heads are derived anew where the change leaves them open."""
        if "hidden" in changes:
            changes = {"heads": None, "head_dim": None} | changes
        if changes.get("heads", 1) is None or "heads" in changes:
            changes = {"kv_heads": None, "head_dim": None} | changes
        return replace(self, **changes)


DECODERS: Mapping[str, Decoder] = {
    "llama3-8b": Decoder(32, 4096, 14336, 128256, heads=32, kv_heads=8),
    "llama3-70b": Decoder(80, 8192, 28672, 128256, heads=64, kv_heads=8),
    "mistral-7b": Decoder(32, 4096, 14336, 32000, heads=32, kv_heads=8),
    "mixtral-8x7b": Decoder(32, 4096, 14336, 32000, heads=32, kv_heads=8, experts=8, experts_per_token=2),
    "gpt2": Decoder(12, 768, 3072, 50257, heads=12, gated=False, tied=True, positions=1024, family="gpt2"),
}
"""Shapes of public models, from the configurations that are published with them."""


def get_decoder(name: str | None, given: Mapping[str, Any]) -> Decoder:
    """Return a named shape with the numbers that are given in the place of its own; or the shape of the numbers alone.

    Raises `UnknownNameError`: no shape has that name; `InvalidProblemError`: a number that is missing or out of range.
    """
    values = {key: value for key, value in given.items() if value is not None}
    if name is not None:
        if name not in DECODERS:
            raise UnknownNameError(f"no decoder {name!r}; there are {', '.join(DECODERS)}; or give its numbers")
        return DECODERS[name].replace(**values)
    needed = [field.name for field in fields(Decoder)][:4]
    missing = [key for key in needed if key not in values]
    if missing:
        raise InvalidProblemError(
            f"decoder: {missing[0]} is missing; give {', '.join(needed)}, or a name: {', '.join(DECODERS)}"
        )
    return Decoder(**values)
