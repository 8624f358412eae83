"""Rivals of a plan: the runtime's own choice, the fastest card alone, one card less."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from placekit.cost_models.sheets.device_table import DeviceSpec
from placekit.language.compared.own_choice import evenly_split, fitted
from placekit.language.planning.plan import ServingPlan
from placekit.language.report import ServingReport
from placekit.language.runtimes.record import Runtime
from placekit.language.task import LanguageTask
from placekit.model.errors import PlacekitError
from placekit.model.platform import Device, Platform


@dataclass(frozen=True)
class Rival:
    """Another way to serve the same requests."""

    kind: Literal["own choice", "fastest card alone", "one card less"]
    how: str  # ``"--fit"`` or ``"even split"``, the card that is alone, or the card that is left out
    report: ServingReport | None  # None where it does not fit

    def gain(self, plan: ServingPlan) -> float | None:
        """Return how many times as many tokens per second `plan` delivers; None where this one does not fit."""
        return None if self.report is None else plan.tokens_per_s / self.report.tokens_per_s

    def to_dict(self, plan: ServingPlan) -> dict[str, Any]:
        """Return it as JSON values, beside `plan`."""
        report = self.report
        return {
            "kind": self.kind,
            "how": self.how,
            "tokens_per_s": None if report is None else report.tokens_per_s,
            "prompt_tokens_per_s": None if report is None else report.prompt_tokens_per_s,
            "generated_tokens_per_s": None if report is None else report.generated_tokens_per_s,
            "gain": self.gain(plan),
        }


def own_choice(plan: ServingPlan, make: Callable[[Platform], LanguageTask], devices: Platform) -> Iterator[Rival]:
    """Yield what the runtime of a plan does by itself on `devices`, if there is a choice.

    `make` gives the task without rules.
    """
    runtime: Runtime | None = plan.runtime
    if runtime is not None and "fit" in runtime.options and runtime.read is not None:
        yield Rival("own choice", runtime.options["fit"], fitted(make, devices, runtime))
    elif sum(not device.is_host for device in plan.task.problem.platform.devices) > 1:
        yield Rival("own choice", "even split", evenly_split(plan.task))


def is_no_worse(one: Device, other: Device, platform: Platform, specs: Mapping[str, DeviceSpec]) -> bool:
    """Return whether a card has no less memory than another, no slower arithmetic, memory and link, and its node."""
    mine, theirs = specs[one.kind], specs[other.kind]
    link, far = platform.links.get(one.kind), platform.links.get(other.kind)
    return (
        (math.inf if one.memory_bytes is None else one.memory_bytes)
        >= (math.inf if other.memory_bytes is None else other.memory_bytes)
        and all(getattr(mine, rate) >= getattr(theirs, rate) for rate in _RATES)
        and mine.op_overhead_s <= theirs.op_overhead_s
        and mine.unsupported_op_types == theirs.unsupported_op_types
        and (one.node, one.properties) == (other.node, other.properties)
        and link is not None
        and far is not None
        and link.bandwidth_bytes_per_s >= far.bandwidth_bytes_per_s
        and link.latency_s <= far.latency_s
        and not (platform.pools or platform.direct_links)
    )


_RATES = (
    "dense_flops_per_s", "depthwise_flops_per_s", "other_flops_per_s", "memory_bandwidth_bytes_per_s", "int8_speed",
    "f32_speed",
)  # fmt: skip


def fewer_cards(
    plan: ServingPlan,
    usable: Platform,
    plan_on: Callable[[Platform], ServingPlan],
    beats: Callable[[Device, Device], bool] = lambda one, other: False,  # noqa: ARG005
) -> Iterator[Rival]:
    """Yield the best plans for one card alone, and without one of the cards that a plan uses.

    Cards that another one `beats` are not tried alone, and those that beat another one are not left out.
    """
    devices = [
        device for device in usable.devices if plan.runtime is None or plan.runtime.host != "none" or not device.is_host
    ]
    cards = [device for device in devices if not device.is_host]
    if len(cards) < 2 or plan.report is None:
        return
    known: dict[tuple[str, ...], ServingReport | None] = {}

    def best_of(kept: list[Device]) -> ServingReport | None:
        names = tuple(sorted(device.kind for device in kept))
        if names not in known:
            known[names] = None
            with suppress(PlacekitError):
                known[names] = plan_on(usable.with_devices(kept)).report
        return known[names]

    def rate(report: ServingReport | None) -> float:
        return 0.0 if report is None else report.tokens_per_s

    held = {each.device for each in plan.report.memory}
    used = [card for card in cards if held.intersection(card.member_names)]
    if len(used) == 1:  # the plan is the best on all cards, so that it is the best on its own one
        yield Rival("fastest card alone", used[0].name, plan.report)
        return
    kinds = list({card.kind: card for card in cards}.values())
    one_of_kind = [card for card in kinds if not any(beats(each, card) for each in kinds if each.kind != card.kind)]
    alone = {
        card.name: best_of([device for device in devices if device.is_host or device is card]) for card in one_of_kind
    }
    fastest = max(alone, key=lambda name: rate(alone[name]))
    yield Rival("fastest card alone", fastest, alone[fastest])
    if len(cards) == 2:  # the other card is alone then
        return
    idle = next((card for card in cards if card not in used), None)
    if idle is not None:
        yield Rival("one card less", idle.name, plan.report)
        return
    spare = [card for card in kinds if not any(beats(card, each) for each in kinds if each.kind != card.kind)]
    less = {card.name: best_of([device for device in devices if device is not card]) for card in spare}
    spared = max(less, key=lambda name: rate(less[name]))
    yield Rival("one card less", spared, less[spared])
