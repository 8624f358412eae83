"""Precisions of weights: numbers of one type, mixes of GGUF files, or bits.

A mix of a GGUF file stores the head, or an embedding that is the head, in more bits than the blocks, and within blocks
some matrices too. Its bits are those that a file of Llama 3.1 8B has in all: what the head leaves is that of the rest.

References
----------
llama.cpp, ``tools/quantize/README.md`` (bits per weight of Llama 3.1 8B; Q3_K_M: size of its file) and
``src/llama-quant.cpp`` (types of the head; experts in MXFP4 and all else in Q8_0).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from placekit.language.decoder import BITS
from placekit.model.errors import InvalidProblemError, UnknownNameError, did_you_mean

_LLAMA_PARAMETERS, _LLAMA_HEAD = 8_030_261_248, 525_336_576
_Q5_K, _Q6_K, _Q8_0 = 5.5, 6.5625, 8.5
_WHOLE: Mapping[str, float] = {
    "iq1_s": 2.0042, "iq1_m": 2.1460, "iq2_xxs": 2.3824, "iq2_xs": 2.5882, "iq2_s": 2.7403, "iq2_m": 2.9294,
    "iq3_xxs": 3.2548, "iq3_xs": 3.4977, "iq3_s": 3.6606, "iq3_m": 3.7628, "iq4_xs": 4.4597, "iq4_nl": 4.6818,
    "q2_k_s": 2.9697, "q2_k": 3.1593, "q3_k_s": 3.6429, "q3_k_m": 4.00, "q3_k_l": 4.2979, "q4_k_s": 4.6672,
    "q4_k_m": 4.8944, "q5_k_s": 5.5704, "q5_k_m": 5.7036, "q6_k": 6.5633,
}  # fmt: skip
"""Bits per weight of Llama 3.1 8B in a mix."""
_SMALL_HEAD = frozenset(("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq2_m", "iq3_xxs"))
"""Mixes whose head is Q5_K; that of others is Q6_K."""
_BLOCKS: Mapping[str, float] = {"q4_0": 4.5, "q4_1": 5.0, "q5_0": 5.5, "q5_1": 6.0}
"""Bits of types of blocks of 32 numbers, whose head is Q6_K."""
LEAST_BITS, MOST_BITS = 1.0, 32.0
"""Least and most bits of a precision that is given by them."""


@dataclass(frozen=True)
class Precision:
    """Bits of a weight by where it is."""

    name: str
    bits: float  # of matrices
    head: float  # of the head, or of an embedding that is the head
    outside: float | None = None  # of matrices that are no experts; None for `bits`

    def bytes_each(self, *, is_head: bool = False, is_expert: bool = False) -> float:
        """Return the bytes of a weight."""
        if is_head:
            return self.head / 8
        return (self.bits if is_expert or self.outside is None else self.outside) / 8


def _mix(name: str) -> Precision:
    head = _Q5_K if name in _SMALL_HEAD else _Q6_K
    rest = (_WHOLE[name] * _LLAMA_PARAMETERS - head * _LLAMA_HEAD) / (_LLAMA_PARAMETERS - _LLAMA_HEAD)
    return Precision(name, rest, head)


PRECISIONS: Mapping[str, Precision] = {
    **{name: Precision(name, bits, bits) for name, bits in BITS.items()},
    **{name: _mix(name) for name in _WHOLE},
    **{name: Precision(name, bits, _Q6_K) for name, bits in _BLOCKS.items()},
    "q8_0": Precision("q8_0", _Q8_0, _Q8_0),
    "mxfp4": Precision("mxfp4", 4.25, _Q8_0, _Q8_0),
    "nvfp4": Precision("nvfp4", 4.5, 4.5),
}
"""Every precision by its name."""


def precision_of(told: str) -> Precision:
    """Return the precision of a name in any case, or of bits.

    Raises `UnknownNameError`: no such precision; `InvalidProblemError`: bits out of range.

    Examples
    --------
    >>> precision_of("Q4_K_M").head, precision_of("4.9").bits, round(precision_of("q4_k_m").bits, 3)
    (6.5625, 4.9, 4.778)
    """
    name = told.strip().lower().replace("-", "_")
    if re.fullmatch(r"\d{1,3}(\.\d{1,6})?", name):
        bits = float(name)
        if not LEAST_BITS <= bits <= MOST_BITS:
            raise InvalidProblemError(
                f"precision is {told!r}; bits of a weight are from {LEAST_BITS:g} to {MOST_BITS:g}"
            )
        return Precision(f"{name} bits", bits, bits)
    if name not in PRECISIONS:
        near = did_you_mean(name, PRECISIONS)
        raise UnknownNameError(f"precision is {told!r}; it must be one of {', '.join(PRECISIONS)}, or bits (4.9){near}")
    return PRECISIONS[name]


def split_precisions(told: str | None) -> list[str | None]:
    """Return the precisions in a text with commas; None alone for none.

    Raises `InvalidProblemError`: an empty one, or one that is there twice.
    """
    if told is None:
        return [None]
    names = [each.strip() for each in told.split(",")]
    if not all(names) or len({each.lower() for each in names}) < len(names):
        raise InvalidProblemError(f"precision is {told!r}; with commas between, each stands there once: q4_k_m,q8_0")
    return list(names)
