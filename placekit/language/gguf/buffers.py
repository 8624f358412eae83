"""Compute buffers of llama.cpp: what a device holds of a micro-batch beside weights and cache.

A graph is reserved for the largest micro-batch, u tokens with all their logits, in numbers of 32 bits. With E bytes for
a hidden state of u tokens, X for the widest part of a block (gate, up and their product), M for a mask of u tokens by
the context in 16 bits and V for logits where the output is, a device takes

=============================  =======================================================
card with the first block      max(X, V) + 4 E + M
card behind others, or a host  max(X + 2 E + M, V + E)
pipelined: the first card      max(X, V) + 16 E + 4 M
pipelined: further cards       max(X + 11 E, V + 9 E) + 4 M
host with blocks or experts    max(X, V) + 5 E + M
host with the embedding alone  4 E + M, pipelined 10 E + 4 M
cache on the host: first card  max(X + 4 E + 4 K + 2 M, C + M + 5 E)
cache on the host: others      max(X + E + 6 K, C + M + 4 E)
with the output, if larger     max(V + 4 E, 1.5 C + M + 3 E), behind others V + 2 E
=============================  =======================================================

with K bytes for the keys and values that u tokens make in a block, and C for the whole cache of a block, which prompts
copy to the card.

Chunks of a prompt overlap (pipelined) if every block is on one of several cards, and no rule moves a tensor; then there
are four copies of what passes from device to device.

References
----------
Sizes that ``llama-fit-params --fit-print`` of build 11434 prints for models of 8 to 70 billion parameters, dense and
with experts, of contexts from 512 to 32,768 and micro-batches of 128 and 512: within 5 % or 32 MiB (``tests/llama``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

STATE_BYTES, MASK_BYTES = 4, 2
"""Bytes of a number in a hidden state, and in a mask."""
COPIES = 4
"""Copies of the inputs of a pipelined part (``GGML_SCHED_MAX_COPIES``)."""
CONTEXT_STEP = 256
"""Tokens to whose multiples llama.cpp rounds the context of a sequence up."""


@dataclass(frozen=True)
class Buffers:
    """Bytes of the parts of a compute buffer; see the module."""

    block_bytes: float
    state_bytes: float
    mask_bytes: float
    logit_bytes: float
    key_value_bytes: float = 0.0  # keys and values that u tokens make in one block

    def reserved(self, num_cards: int) -> float:
        """Return the most that a card without the output takes."""
        states, masks = (4, 1) if num_cards < 2 else (16, COPIES)
        return self.block_bytes + states * self.state_bytes + masks * self.mask_bytes

    @property
    def output_bytes(self) -> float:
        """Bytes that the output adds where it is."""
        return max(self.logit_bytes - self.block_bytes, 0.0)

    def of_card(self, *, is_first: bool, has_output: bool, is_pipelined: bool) -> float:
        """Return the buffer of a card, which has the first block if it `is_first`."""
        logits = self.logit_bytes if has_output else 0.0
        if not is_pipelined:
            whole = self.block_bytes + 4 * self.state_bytes + self.mask_bytes
            return max(
                whole, logits + 4 * self.state_bytes + self.mask_bytes if is_first else logits + self.state_bytes
            )
        states = (16, 16) if is_first else (11, 9)
        widest = max(self.block_bytes + states[0] * self.state_bytes, logits + states[1] * self.state_bytes)
        return widest + COPIES * self.mask_bytes

    def of_card_without_cache(self, block_cache_bytes: float, *, is_first: bool, has_output: bool) -> float:
        """Return the buffer of a card where the host has the cache, of which prompts copy that of a block to it."""
        state, mask, made = self.state_bytes, self.mask_bytes, self.key_value_bytes
        states = 4 if is_first else 2  # that live beside the logits
        if is_first:
            size = max(self.block_bytes + 4 * state + 4 * made + 2 * mask, block_cache_bytes + mask + 5 * state)
        else:
            size = max(self.block_bytes + state + 6 * made, block_cache_bytes + mask + 4 * state)
        of_output = max(self.logit_bytes + states * state, 1.5 * block_cache_bytes + mask + 3 * state)
        return max(size, of_output) if has_output else size

    def of_host(self, *, has_work: bool, has_output: bool, is_pipelined: bool) -> float:
        """Return the buffer of the host, which has blocks or experts if it `has_work`."""
        logits = self.logit_bytes if has_output else 0.0
        if has_work:
            return max(self.block_bytes, logits) + 5 * self.state_bytes + self.mask_bytes
        states, masks = (10, COPIES) if is_pipelined else (4, 1)
        return states * self.state_bytes + masks * self.mask_bytes


def padded(context: int) -> int:
    """Return the context that llama.cpp makes of one.

    Examples
    --------
    >>> padded(640), padded(8192)
    (768, 8192)
    """
    return CONTEXT_STEP * math.ceil(context / CONTEXT_STEP)
