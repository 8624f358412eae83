"""Compute buffers with the cache on the host, beside what llama-fit-params of build 11434 prints."""

from __future__ import annotations

import pytest

from placekit.language.gguf.buffers import Buffers

MIB = 2.0**20
SIZES = {
    "8b": (84.0, 8.0, 250.5, 2.0),
    "70b": (168.0, 16.0, 250.5, 2.0),
}
"""MiB of a block, a hidden state, the logits and the keys and values of 512 tokens."""


@pytest.mark.parametrize(
    ("model", "context", "is_first", "printed"),
    [
        ("8b", 8192, True, 282), ("8b", 8192, False, 258), ("8b", 32768, True, 282), ("8b", 32768, False, 266),
        ("70b", 8192, True, 314), ("70b", 8192, False, 266), ("70b", 32768, True, 314), ("70b", 32768, False, 282),
    ],
)  # fmt: skip
def test_the_card_with_the_output_holds_what_the_program_prints(
    model: str, context: int, is_first: bool, printed: int
) -> None:
    """Never less, and at most 32 MiB more: a card behind another one keeps fewer states beside the logits."""
    block, state, logits, made = SIZES[model]
    mask, cache = context * 512 * 2 / MIB, context * 1024 * 2 * 2 / MIB
    sizes = Buffers(*(MIB * each for each in (block, state, mask, logits, made)))
    found = sizes.of_card_without_cache(cache * MIB, is_first=is_first, has_output=True) / MIB
    assert printed <= found <= printed + 32
