"""The same question with one thing changed: another precision of weights, or another card."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from placekit.cost_models.sheets.cards import get_card
from placekit.model.errors import InvalidProblemError, did_you_mean
from placekit.model.platform import Platform


@dataclass(frozen=True)
class Variant:
    """Delivery of the best plan of a changed question; None where the model does not fit, or is not described."""

    what: str  # the precision, or ``"DEVICE = CARD"``
    fits: bool
    weight_bytes: float
    bits_per_weight: float | None
    longest_context: int | None
    prompt_tokens_per_s: float | None
    generated_tokens_per_s: float | None
    tokens_per_s: float | None  # of whole requests
    launch: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self) | {"launch": list(self.launch)}


def with_cards(platform: Platform, instead: Mapping[str, str]) -> dict[str, Platform]:
    """Return the platform with one card exchanged, for every exchange by its words.

    The new card has the memory of its data sheet and the link of the old one. Raises `PlacekitError`: no such device, a
    host, or no such card.
    """
    found = {}
    for name, told in instead.items():
        cards = [device.name for device in platform.devices if not device.is_host]
        numbered = re.fullmatch(r"(?:gpu|cuda)(\d{1,3})", name, re.IGNORECASE)
        if name not in cards and numbered and int(numbered[1]) < len(cards):
            name = cards[int(numbered[1])]  # noqa: PLW2901  # by its number, as runtimes call it
        if name not in cards:
            near = did_you_mean(name, cards)
            raise InvalidProblemError(f"no card {name!r} to exchange; cards are {', '.join(cards)}{near}")
        card = get_card(told)
        old = platform.devices[platform.index(name)]
        devices = [
            device.replace(kind=card.spec_name, memory_bytes=card.memory_bytes) if device is old else device
            for device in platform.devices
        ]
        kinds = {device.kind for device in devices}
        links = {kind: link for kind, link in platform.links.items() if kind in kinds}
        if old.kind in platform.links:
            links.setdefault(card.spec_name, platform.links[old.kind])
        specs = {kind: spec for kind, spec in platform.spec_of_kind.items() if kind in kinds}
        found[f"{name} = {card.name}"] = platform.replace(
            devices=tuple(devices), links=links, spec_of_kind=specs | {card.spec_name: card.spec_name}
        )
    return found
