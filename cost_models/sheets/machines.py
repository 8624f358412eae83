"""Machines in a line: cards and host memory by trade name, as a platform with the specs that its costs need."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

from placekit.cost_models.sheets.cards import (
    GENERAL,
    UNKNOWN_PROCESSOR,
    Card,
    Kernels,
    Processor,
    Ram,
    get_card,
    get_processor,
    parse_ram,
)
from placekit.cost_models.sheets.device_table import DeviceSpec, card_spec, processor_spec
from placekit.io.link_classes import get_link, is_between_cards
from placekit.model.errors import InvalidProblemError
from placekit.model.memory import Pool
from placekit.model.platform import Device, DirectLink, Platform

HOST = "CPU"
"""Name and kind of the host of a machine in a line."""
POOL = "ram"
"""Name of the memory that the host shares with cards without their own."""
METAL_SHARE = 0.75
"""Share of the memory that macOS lets a GPU use (``recommendedMaxWorkingSetSize``), where no one raised it."""
_HOST_FIELDS = (
    "dense_flops_per_s", "depthwise_flops_per_s", "other_flops_per_s", "memory_bandwidth_bytes_per_s", "op_overhead_s",
)  # fmt: skip


@dataclass(frozen=True)
class Machine:
    """Cards and a host, by their trade names."""

    cards: tuple[Card, ...]
    ram: Ram | None = None
    processor: Processor = UNKNOWN_PROCESSOR

    def __post_init__(self) -> None:
        if not self.cards and self.ram is None:
            raise InvalidProblemError("a machine needs a card or host memory")

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kind of every card: its name with dashes."""
        return tuple(card.spec_name for card in self.cards)

    def specs(self, kernels: Kernels = GENERAL) -> dict[str, DeviceSpec]:
        """Return what kernels sustain, by kind of device."""
        found = {kind: card_spec(card, kernels) for kind, card in zip(self.kinds, self.cards, strict=True)}
        return found if self.ram is None else {HOST: processor_spec(self.processor, self.ram, kernels), **found}

    def platform(self) -> Platform:
        """Return the devices with the memory of their data sheets; links are those of the specs that costs take.

        Cards that work in the host's memory share it with the host, as a pool.
        """
        numbers, counts, devices = Counter[str](), Counter(self.kinds), []
        if self.ram is not None:
            devices.append(Device(HOST, HOST, memory_bytes=self.ram.memory_bytes, is_host=True))
        shared = [HOST] if self.ram is not None else []
        size = None if self.ram is None else self.ram.memory_bytes
        for kind, card in zip(self.kinds, self.cards, strict=True):
            name = kind if counts[kind] == 1 else f"{kind}.{numbers[kind]}"
            numbers[kind] += 1
            most = card.memory_bytes
            if card.bus_bytes_per_s is None:
                shared.append(name)
                size = size or most
                most = size * (METAL_SHARE if card.architecture == "apple" else 1.0)
            devices.append(Device(name, kind, memory_bytes=most))
        named, own = {kind: kind for kind in self.kinds}, {}
        if self.ram is not None:
            spec = processor_spec(self.processor, self.ram)
            named[HOST] = spec.name
            own[spec.name] = {key: getattr(spec, key) for key in _HOST_FIELDS}
        pools = (Pool(POOL, size, tuple(shared)),) if len(shared) > 1 and size is not None else ()
        return Platform(tuple(devices), spec_of_kind=named, specs=own, pools=pools)


def machine_of(cards: str | Sequence[str], ram: str | None = None, processor: str | None = None) -> Machine:
    """Return the machine of cards such as ``"RTX 4090, 2x RTX 3060"`` and host memory such as ``"96 GB DDR5-5600 x2"``.

    A chip whose GPU works in the memory of the host (``M4 Max``, ``Strix Halo``, ``GB10``) is a card and a host.

    Raises `UnknownNameError`: a card or processor that the tables do not have, with the nearest names.

    Examples
    --------
    >>> machine = machine_of("RTX 4090, 2x RTX 3060", "96 GB DDR5-5600 x2")
    >>> machine.platform().device_names
    ('CPU', 'rtx-4090', 'rtx-3060-12-gb.0', 'rtx-3060-12-gb.1')
    """
    named = [each.strip() for each in cards.split(",")] if isinstance(cards, str) else list(cards)
    found: list[Card] = []
    for name in filter(None, named):
        several = re.fullmatch(r"(\d{1,2})\s*[x*]\s+(.*)", name)
        found += [get_card(several[2])] * int(several[1]) if several else [get_card(name)]
    cpu = UNKNOWN_PROCESSOR if processor is None else get_processor(processor)
    memory = None if ram is None else parse_ram(ram, cpu.channels)
    unified = next((card for card in found if card.bus_bytes_per_s is None), None)
    if memory is None and unified is not None:  # its memory is the host's
        lanes = 4 * 8  # channels of 64 bits; only their product with the speed counts
        memory = Ram(unified.memory_bytes, unified.bandwidth_bytes_per_s / lanes, 4)
    return Machine(tuple(found), memory, cpu)


def with_links(machine: Machine, links: str) -> Platform:
    """Return the platform of a machine whose cards have links by name: one for all cards, or one for each.

    NVLink joins the cards with each other; all other links join a card with its host.

    Raises
    ------
    UnknownNameError
        No link is called so.
    InvalidProblemError
        Another number of links than of cards, or two links of equal cards.
    """
    names = [each.strip() for each in links.split(",")]
    platform = machine.platform()
    if len(names) == 1 and is_between_cards(names[0]):
        link, kinds = get_link(names[0]), dict.fromkeys(machine.kinds)
        pairs = list(combinations_with_replacement(kinds, 2))
        direct = tuple(DirectLink(link.latency_s, link.bandwidth_bytes_per_s, pair) for pair in pairs)
        return platform.replace(direct_links=direct)
    names = names * len(machine.cards) if len(names) == 1 else names
    if len(names) != len(machine.cards):
        raise InvalidProblemError(f"{len(names)} links for {len(machine.cards)} cards; give one, or one for each")
    link_of_kind: dict[str, str] = {}
    for kind, name in zip(machine.kinds, names, strict=True):
        if is_between_cards(name):
            raise InvalidProblemError(f"link {name!r} joins cards with each other; give it alone")
        if (other := link_of_kind.setdefault(kind, name)) != name:
            raise InvalidProblemError(f"cards {kind!r} have links {other!r} and {name!r}; use a platform file")
    return platform.replace(links={kind: get_link(name) for kind, name in link_of_kind.items()})
