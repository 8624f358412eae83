"""Options of measurements on real devices, and notes on the numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

import typer
from rich.console import RenderableType

from placekit.cli.options import CostsOption, SeedOption, ShapeOption
from placekit.cli.parameters import option
from placekit.cli.platforms import PlatformChoice
from placekit.cli.task import read_source
from placekit.io.model import ModelSource
from placekit.model.platform import Platform
from placekit.runtime.series import Timings
from placekit.runtime.timing import TimingSettings

__all__ = ["CacheOption", "MachineOptions", "TimingOptions", "flag_lines"]

CacheOption = Annotated[bool, typer.Option("--cache/--no-cache", help="Reuse cached measurements, and cache new ones.")]


@dataclass(frozen=True)
class MachineOptions:
    """Costs and shapes of a model, and the devices that run it."""

    costs: CostsOption = None
    shape: ShapeOption = None
    platform: PlatformChoice = field(default_factory=PlatformChoice)

    def resolve(self, model: Path, placement: Path | None = None) -> tuple[ModelSource, Platform]:
        """Return the model and its devices; the devices of the `placement` if the number of groups is open."""
        source = read_source(model, self.shape)
        choice = self.platform if placement is None else self.platform.of_answer(placement)
        return source, choice.resolve(source)


@dataclass(frozen=True)
class TimingOptions:
    """Options of a measurement."""

    panel: ClassVar[str] = "Measuring"

    executor: str = option("threads", "How stages run: as a pipeline (threads), or one after another (serial).", "NAME")
    burst: float = option(0.6, "Time for which each contender streams in a round.", "SECONDS")
    time_limit: float = option(90.0, "Time after which no new round begins.", "SECONDS")
    seed: SeedOption = 0

    def settings(self, rounds: int, *, latency_s: float, throughput_s: float) -> TimingSettings:
        """Return the settings: up to as many rounds again where other load disturbs, and half a burst to warm up."""
        return TimingSettings(
            rounds=rounds,
            max_rounds=2 * rounds,
            warm_up_s=self.burst / 2,
            latency_s=latency_s,
            throughput_s=throughput_s,
            time_limit_s=self.time_limit,
            seed=self.seed,
        )


def flag_lines(timings: Timings) -> Iterator[RenderableType]:
    """Return reasons to doubt the numbers; only the other load, if there was any."""
    flags = timings.flags()
    if timings.is_noisy:
        yield f"NOISY: {flags[0]}"
    else:
        yield from (f"note: {flag}" for flag in flags)
