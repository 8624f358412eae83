"""Load to serve: prompt, generated tokens, context and sequences in flight."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from placekit.model.errors import InvalidProblemError

MAX_TOKENS = 2**31
"""Of a prompt, an answer, a context, or all sequences in flight."""


@dataclass(frozen=True)
class Phase:
    """Steps of one shape that every request takes."""

    name: str  # ``"prefill"`` or ``"decode"``
    count: int  # steps of a request
    tokens: int  # tokens of a sequence that a step computes
    past: float  # tokens of a sequence that are in the cache before it, on average

    @property
    def context(self) -> float:
        """Tokens that a token of the step sees, on average; itself included."""
        return self.past + (self.tokens + 1) / 2


@dataclass(frozen=True)
class Serving:
    """Use of a language model: a request is `prompt` tokens in one step or in chunks, then steps of one token.

    Parameters
    ----------
    prompt, generated
        Tokens of a request; 0 of one of them leaves that phase out.
    context
        Tokens of a sequence that the cache has room for; ``prompt + generated`` if None.
    sequences
        Sequences in flight, whose cache is held all the time.
    batch
        Sequences that take a step together: they read the weights once.
    chunk
        Prompt tokens, of all sequences of a batch, that one step of prefill computes at most; None for all of them.
    depth
        Tokens that are in the cache before a request begins, as of ``llama-bench -d``.

    Raises
    ------
    InvalidProblemError
        A number out of range, a context that does not hold a request, or a batch larger than what is in flight.

    Examples
    --------
    >>> [(phase.name, phase.count, phase.tokens, phase.context) for phase in Serving(512, 100).phases]
    [('prefill', 1, 512, 256.5), ('decode', 100, 1, 562.5)]
    >>> [(phase.name, phase.count, phase.tokens, phase.context) for phase in Serving(512, 0, chunk=128).phases]
    [('prefill', 4, 128, 256.5)]
    """

    prompt: int = 512
    generated: int = 128
    context: int = None  # type: ignore[assignment]  # None = prompt + generated, filled below
    sequences: int = 1
    batch: int = 1
    chunk: int | None = None
    depth: int = 0
    has_own_context: bool = field(init=False, repr=False, compare=False, default=False)  # True if `context` was given

    def __post_init__(self) -> None:
        least_context = self.prompt + self.generated + self.depth
        for name, least in (("prompt", 0), ("generated", 0), ("sequences", 1), ("batch", 1), ("depth", 0)):
            value = getattr(self, name)
            if not least <= value <= MAX_TOKENS:
                raise InvalidProblemError(f"serving: {name} is {value}; it must be from {least} to {MAX_TOKENS}")
        if self.chunk is not None and not 1 <= self.chunk <= MAX_TOKENS:
            raise InvalidProblemError(f"serving: chunk is {self.chunk}; it must be from 1 to {MAX_TOKENS}")
        object.__setattr__(self, "has_own_context", self.context is not None)
        if self.prompt + self.generated == 0:
            raise InvalidProblemError("serving: prompt and generated are both 0; a request has tokens of one of them")
        if self.context is None:
            object.__setattr__(self, "context", least_context)
        if not least_context <= self.context <= MAX_TOKENS:
            raise InvalidProblemError(
                f"serving: context is {self.context}; it must be from {least_context} (prompt and generated tokens) "
                f"to {MAX_TOKENS}"
            )
        if self.batch > self.sequences:
            raise InvalidProblemError(
                f"serving: batch is {self.batch}; it must be at most sequences, which is {self.sequences}"
            )

    @property
    def filled(self) -> Serving:
        """The same requests with the cache full at their end."""
        return replace(self, depth=self.context - self.prompt - self.generated)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Prefill and decode, as far as there are any; a decode step stands for the mean of all of a request.

        Without a prompt the cache is full at the end: decoding begins at ``context - generated``.
        """
        start = self.depth + self.prompt or self.context - self.generated
        found = []
        if self.prompt:
            steps = 1 if self.chunk is None else min(self.prompt, math.ceil(self.prompt * self.batch / self.chunk))
            tokens = math.ceil(self.prompt / steps)
            found.append(Phase("prefill", steps, tokens, self.depth + (self.prompt - tokens) / 2))
        if self.generated:
            found.append(Phase("decode", self.generated, 1, start + (self.generated - 1) / 2))
        return tuple(found)


def parse_phases(texts: Sequence[str]) -> dict[str, int]:
    """Return the fields of `Serving` that phases such as ``prefill:512`` and ``decode:128`` give; others are 0.

    Raises `InvalidProblemError`: another text, or a phase that is given twice.

    Examples
    --------
    >>> parse_phases(["prefill:512", "decode:128"])
    {'prompt': 512, 'generated': 128}
    """
    fields = {"prefill": "prompt", "decode": "generated"}
    found: dict[str, int] = {}
    for text in texts:
        name, _, count = text.partition(":")
        if name not in fields or not count.isdecimal() or len(count) > 18:
            raise InvalidProblemError(f"phase {text!r}: it should be prefill:TOKENS or decode:TOKENS")
        if fields[name] in found:
            raise InvalidProblemError(f"phase {text!r}: {name} is given twice")
        found[fields[name]] = int(count)
    return {"prompt": 0, "generated": 0} | found if found else {}
