"""Requests to a language model as which a problem is served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self


@dataclass(frozen=True)
class Served:
    """Load of a plan for a language model at a time: what launch lines say beside the places of blocks.

    What is None is not known, and left to the runtime.
    """

    runtime: str | None = None  # whose rules the plan follows
    context: int | None = None  # tokens of a sequence that the cache has room for
    sequences: int | None = None  # in flight
    batch: int | None = None  # sequences that take a step together
    chunk: int | None = None  # prompt tokens of a step
    cache_precision: str | None = None  # a name of `placekit.language.decoder.BITS`
    headroom: float | None = None  # share of a card's memory that stays free
    predicting_blocks: int = 0  # blocks of multi-token prediction that are placed with the others
    further_blocks: int = 0  # such blocks of the file that are not placed
    hosted_blocks: int = 0  # first blocks whose experts the host computes
    hosts_dense: bool = False  # True if it computes their dense feed-forward layers instead
    hosts_cache: bool = False  # True if the host has the cache, and computes attention
    tied: bool = False  # True if the head is the embedding
    cards: tuple[str, ...] = ()  # all accelerators, in the order in which their machines number them
    nodes: tuple[str, ...] = ()  # the machine of each of these; empty for one machine

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return what `to_dict` gave; keys of other versions are left out."""
        known = {each.name for each in fields(cls)}
        told = {name: value for name, value in data.items() if name in known and value is not None}
        return cls(**told | {name: tuple(told.get(name, ())) for name in ("cards", "nodes")})

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values, without those that say nothing."""
        told = asdict(self) | {"cards": list(self.cards), "nodes": list(self.nodes)}
        return {each.name: told[each.name] for each in fields(self) if getattr(self, each.name) != each.default}
