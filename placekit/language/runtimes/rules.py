"""Rules of a runtime that a plan obeys: devices it takes, in what order, and what it reserves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from placekit.cost_models.sheets.cards import KERNELS, WITHOUT_KERNELS, get_card, is_card
from placekit.language.description import ModelDescription
from placekit.language.graph import LOGIT_BYTES
from placekit.model.errors import InvalidProblemError
from placekit.model.platform import Platform
from placekit.model.sizes import format_bytes

DEFAULT_HEADROOM = 0.10
"""Share that stays free of host memory, of a card too small to be one, and of every device without a runtime."""
LEAST_CARD_BYTES = 2 * 2.0**30
"""Memory of the smallest card that runtimes are measured on: what they take themselves is known from there on."""
HOSTS = {
    "none": ("a stage of whole blocks per accelerator", "stages of whole blocks on accelerators"),
    "first": (
        "a run of whole blocks per device, the first ones or feed-forward layers of first blocks on the CPU",
        "whole blocks; the CPU has the first ones, and the embedding",
    ),
    "last": (
        "a run of whole blocks per card, the last ones kept by the CPU",
        "whole blocks; the CPU keeps the last ones, and the first card computes them",
    ),
    "any": ("a run of whole blocks per device", "whole blocks on any device"),
}
"""Words for what the CPU may hold: of the plans that are compared, and of the rule."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Rules of a runtime."""

    name: str
    # what the CPU may hold: ``"none"``; ``"first"``, a run of the first blocks, and the embedding in any case;
    # ``"last"``, a run of the last blocks, computed on the first card; ``"any"`` run
    host: Literal["none", "first", "last", "any"]
    headroom: float  # share of a card's memory that the runtime leaves free
    chunk: int | None  # prompt tokens that a step of prefill computes; None for whole prompts
    larger_chunks: tuple[int, ...] = ()  # larger steps that longer prompts may have instead
    # what its way to serve makes fast: the tokens of one batch (``"latency"``), or of all requests (``"throughput"``)
    goal: Literal["latency", "throughput"]
    kernels: str  # name of the shares of peaks that its kernels sustain, in `placekit.cost_models.sheets.cards`
    # reserved_bytes, logit_rows: beside weights, cache and activations a card holds the driver and its context, and
    # logits of as many tokens, 4 bytes each
    reserved_bytes: float = 0.0
    logit_rows: int = 0
    is_parallel: bool = False  # True if it has tensor parallelism, one degree for all stages
    # tokens of a step from which on the first card computes what the host holds, weights copied to it; None for never
    offload_tokens: int | None = None
    overlaps_prompt: bool = False  # True if cards compute the chunks of one prompt at the same time
    trains_prediction: bool = False  # True if blocks of multi-token prediction are placed with the others
    nodes: str | None = None  # words for how ranks start on several machines; None if one plan is for one machine
    has_buffers: bool = False  # True if it takes compute buffers by the rule of `placekit.language.gguf.buffers`
    has_rpc: bool = False  # True if its own servers lend it the devices of other machines
    has_any_type: bool = False  # True if it computes all types of weights and caches on every card
    bench: str | None = None  # program whose published measurements predictions were compared with

    def __post_init__(self) -> None:
        for part, value, known in (
            ("host", self.host, tuple(HOSTS)),
            ("goal", self.goal, ("latency", "throughput")),
            ("kernels", self.kernels, tuple(KERNELS)),
        ):
            if value not in known:
                raise InvalidProblemError(
                    f"runtime {self.name!r}: {part} is {value!r}; it is one of {', '.join(known)}"
                )
        for part, number, least, most in (
            ("headroom", self.headroom, 0.0, 0.99),
            ("chunk", 1 if self.chunk is None else self.chunk, 1, 2**31),
        ):
            if not least <= number <= most:
                raise InvalidProblemError(f"runtime {self.name!r}: {part} is {number}; it is from {least} to {most}")

    @property
    def space(self) -> str:
        """Words for the plans that are compared: a proof is about these, and a runtime may know others."""
        alike = "; their chunks of a prompt one after the other" if self.overlaps_prompt else ""
        return f"{HOSTS[self.host][0]}, devices in any order{alike}"

    def card_bytes(self, model: ModelDescription | None) -> float:
        """Return what a card holds beside weights, cache and activations, and beside the headroom.

        Where the host has blocks or experts, a card also has room for the weights of one block that is copied to it.
        """
        if model is None:
            return self.reserved_bytes
        copied = 0.0 if self.offload_tokens is None else max(block.weight_bytes for block in model.blocks)
        return self.reserved_bytes + self.logit_rows * model.vocab * LOGIT_BYTES + copied

    def usable(self, machine: Platform, model: ModelDescription | None) -> tuple[Platform, str]:
        """Return the memory that a plan may fill, and words for what stays free.

        Raises `InvalidProblemError`: a card that has less than the runtime itself takes.
        """
        reserved, devices = self.card_bytes(model), []
        of_runtime: dict[str, float] = {}
        for device in machine.devices:
            limit = device.memory_bytes
            is_small = device.is_host or (limit is not None and limit < LEAST_CARD_BYTES)
            share, size = (DEFAULT_HEADROOM, 0.0) if is_small else (self.headroom, reserved)
            if limit is not None and limit * (1 - share) <= size:
                raise InvalidProblemError(
                    f"device {device.name!r} has {format_bytes(limit)}; {self.name} itself takes {format_bytes(size)}"
                )
            of_runtime[device.name] = size
            devices.append(device if limit is None else device.replace(memory_bytes=limit * (1 - share) - size))
        told = [f"{self.headroom:.0%} of every card"] if self.headroom else []
        told += [f"{format_bytes(reserved)} of every card for {self.name} itself"] if reserved else []
        pools = []
        for pool in machine.pools:
            left = pool.memory_bytes * (1 - DEFAULT_HEADROOM) - sum(of_runtime[name] for name in pool.devices)
            pools.append(replace(pool, memory_bytes=left))
        return machine.replace(devices=tuple(devices), pools=tuple(pools)), " and ".join(told)

    def lacking(self, machine: Platform, types: Iterable[str]) -> dict[str, list[str]]:
        """Return the cards that have no kernels for some types, by type; empty if the runtime computes any."""
        named = {device: machine.spec_of_kind.get(device.kind, device.kind) for device in machine.devices}
        return {
            each: found for each in types
            if not self.has_any_type and each in WITHOUT_KERNELS
            and (found := [device.name for device, name in named.items() if not device.is_host and is_card(name)
                           and get_card(name).architecture in WITHOUT_KERNELS[each]])
        }  # fmt: skip

    def devices(self, platform: Platform) -> Platform:
        """Return the devices that the runtime can use.

        Raises `InvalidProblemError` if there is none.
        """
        hosts = [device for device in platform.devices if device.is_host]
        left_out = hosts if self.host == "none" else hosts[1:] if self.host in ("first", "last") else []
        kept = [device for device in platform.devices if device not in left_out]
        if not kept:
            raise InvalidProblemError(
                f"{self.name} runs on accelerators only; the platform has {', '.join(platform.device_names)}"
            )
        return platform.with_devices(kept)
