"""``placekit profile``: measure the costs of every op on every kind of device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from placekit.cli.console import check_writable, tell
from placekit.cli.facts import cost_facts, describe_platform, model_facts
from placekit.cli.options import JsonOption, ModelArgument, SeedOption, ShapeOption, output_option
from placekit.cli.parameters import option
from placekit.cli.platforms import PlatformChoice
from placekit.cli.progress import StepBar
from placekit.cli.render import fact_lines, paragraphs
from placekit.cli.task import read_source
from placekit.cli.time import CacheOption
from placekit.cli.views import kind_lines, slowest_table
from placekit.cost_models.cache import ProfileCache
from placekit.cost_models.profiled import Profiled
from placekit.io.costs_json import write_costs
from placekit.io.model import ModelSource
from placekit.model.costs import CostTable
from placekit.model.platform import Platform


@dataclass(frozen=True)
class ProfileOptions:
    """Devices to measure on, and how."""

    shape: ShapeOption = None
    platform: PlatformChoice = field(default_factory=PlatformChoice)
    repetitions: int = option(15, "Smallest number of measured inferences.", "N")
    cache: CacheOption = True
    seed: SeedOption = 0


def profile(
    model: ModelArgument,
    *,
    asked: ProfileOptions,
    output: Path | None = output_option("Costs file (default STEM.costs.json); - for stdout."),
    as_json: JsonOption = False,
) -> None:
    """Measure the ops of a model on the devices of this machine, and write the costs."""
    target = check_writable(output or Path(f"{model.stem}.costs.json"))
    source = read_source(model, asked.shape)
    devices = asked.platform.resolve(source)
    measure = Profiled(repetitions=asked.repetitions, seed=asked.seed, cache=ProfileCache() if asked.cache else None)
    with StepBar() as bar:
        costs = measure.cost_table(source, devices, progress=bar)
    write_costs(costs, source.graph, target)
    tell(as_json, _document(costs) | {"files": {"costs": str(target)}}, _report(source, devices, costs, target))


def _document(costs: CostTable) -> dict[str, Any]:
    sums = costs.op_time_s.sum(axis=0).tolist()
    return {
        "op_time_sum_s": dict(zip(costs.kinds, sums, strict=True)),
        "memory_bytes": float(costs.op_memory_bytes.sum()),
        "provenance": dict(costs.provenance),
    }


def _report(source: ModelSource, platform: Platform, costs: CostTable, target: Path) -> Iterator[RenderableType]:
    yield from paragraphs(
        fact_lines(model_facts(source) | {"platform": describe_platform(platform)} | cost_facts(costs)),
        kind_lines(costs),
        slowest_table(costs, source.graph.op_names),
        fact_lines({"wrote costs": str(target)}),
    )
