"""``placekit profile`` and ``calibrate``: measured ops, and costs that are fitted to measured splits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from rich.console import RenderableType

from placekit.cli.console import check_writable, tell
from placekit.cli.inputs.platforms import PlatformChoice
from placekit.cli.inputs.task import cost_table, read_source
from placekit.cli.options import (
    CostsOption,
    JsonOption,
    ModelArgument,
    SeedOption,
    ShapeOption,
    output_option,
)
from placekit.cli.output.facts import cost_facts, describe_platform, model_facts
from placekit.cli.output.progress import StepBar
from placekit.cli.output.render import fact_lines, paragraphs, plain_table
from placekit.cli.output.views import kind_lines, slowest_table
from placekit.cli.parameters import option, shared
from placekit.cost_models.measured.cache import ProfileCache
from placekit.cost_models.measured.calibration import Calibration
from placekit.cost_models.measured.calibration import calibrate as fit
from placekit.cost_models.measured.splits import calibration_splits
from placekit.cost_models.profiled import Profiled
from placekit.io.files.costs_json import write_costs
from placekit.io.files.platform_toml import write_platform
from placekit.io.models.model import ModelSource
from placekit.model.costs import CostTable
from placekit.model.errors import InvalidProblemError
from placekit.model.platform import Platform
from placekit.runtime.timing.contenders import executor_named
from placekit.runtime.timing.measurements import Timings
from placekit.runtime.timing.splits import measure_splits
from placekit.runtime.timing.timing import Timing, TimingSettings

if TYPE_CHECKING:  # needs the extra cluster
    from placekit.cluster.nodes import Nodes

ClusterOption = Annotated[
    str | None,
    shared("Dask scheduler whose workers are the nodes of the platform, by name.", metavar="ADDRESS"),
]
CacheOption = Annotated[bool, shared("Reuse cached measurements, and cache new ones.")]


@dataclass(frozen=True)
class SourceOptions:
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


@dataclass(frozen=True)
class ProfileOptions:
    """Devices to measure on, and how."""

    costs: CostsOption = None
    shape: ShapeOption = None
    platform: PlatformChoice = field(default_factory=PlatformChoice)
    repetitions: int = option(15, "Smallest number of measured inferences.", "N")
    cache: CacheOption = True
    seed: SeedOption = 0
    cluster: ClusterOption = None


def profile(
    model: ModelArgument,
    *,
    asked: ProfileOptions,
    output: Path | None = output_option("Costs file (default STEM.costs.json); - for stdout."),
    as_json: JsonOption = False,
) -> None:
    """Measure the ops of a model on the devices of this machine, and write the costs; or model them (analytic)."""
    target = check_writable(output or Path(f"{model.stem}.costs.json"))
    source = read_source(model, asked.shape)
    devices = asked.platform.resolve(source)
    files = {"costs": str(target)}
    if asked.costs not in (None, "profiled"):
        if asked.cluster is not None:
            raise InvalidProblemError(f"--cluster measures; --costs {asked.costs} does not")
        costs = cost_table(source, devices, asked.costs)
    else:
        kept = ProfileCache() if asked.cache else None
        measure = Profiled(repetitions=asked.repetitions, seed=asked.seed, cache=kept)
        with StepBar() as bar, connected(asked.cluster) as nodes:
            costs = replace(measure, nodes=nodes).cost_table(source, devices, progress=bar)
        if nodes is not None and nodes.linked:
            beside = target.with_name(f"{model.stem}.platform.toml")
            write_platform(nodes.linked[-1], beside)
            files["platform"] = str(beside)
    write_costs(costs, source.graph, target)
    tell(as_json, _cost_document(costs) | {"files": files}, _profile_report(source, devices, costs, files))


@contextmanager
def connected(address: str | None) -> Iterator[Nodes | None]:
    """Connect with the cluster whose workers measure; None without one."""
    if address is None:
        yield None
        return
    from placekit.cluster.engine import Cluster
    from placekit.cluster.nodes import Nodes

    with Cluster(address) as cluster:
        yield Nodes(cluster)


def _cost_document(costs: CostTable) -> dict[str, Any]:
    sums = costs.op_time_s.sum(axis=0).tolist()
    return {
        "op_time_sum_s": dict(zip(costs.kinds, sums, strict=True)),
        "memory_bytes": float(costs.op_memory_bytes.sum()),
        "provenance": dict(costs.provenance),
    }


def _profile_report(
    source: ModelSource, platform: Platform, costs: CostTable, files: Mapping[str, str]
) -> Iterator[RenderableType]:
    between = costs.provenance.get("links_between_nodes", {})
    links = {
        f"link {pair}": f"{link['bandwidth_bytes_per_s'] / 1e9:.3g} GB/s, {1e6 * link['latency_s']:.0f} us, "
        f"spread {link['spread']:.0%}"
        for pair, link in (between.items() if isinstance(between, Mapping) else ())
    }
    yield from paragraphs(
        fact_lines(model_facts(source) | {"platform": describe_platform(platform)} | cost_facts(costs) | links),
        kind_lines(costs),
        slowest_table(costs, source.graph.op_names),
        fact_lines({f"wrote {what}": path for what, path in files.items()}),
    )


def calibrate(
    model: ModelArgument,
    *,
    asked: SourceOptions,
    timing: TimingOptions,
    rounds: int = option(7, "Number of undisturbed rounds to measure, at least 3.", "N"),
    output: Path | None = output_option("Costs file (default STEM.costs.json); - for stdout."),
    as_json: JsonOption = False,
) -> None:
    """Measure a few splits of a model, fit its costs to them, and say whether predictions become better."""
    how = executor_named(timing.executor)
    target = check_writable(output or Path(f"{model.stem}.costs.json"))
    serial = how == "serial"
    settings = timing.settings(
        rounds, latency_s=timing.burst if serial else 0.0, throughput_s=0.0 if serial else timing.burst
    )
    source, chosen = asked.resolve(model)
    if chosen.num_devices < 2:
        raise InvalidProblemError(
            f"calibrate measures splits between devices, and there is one, {chosen.device_names[0]}; give several "
            "by -d, or --groups 2"
        )
    problem = source.problem(chosen, cost_table(source, chosen, asked.costs))
    with StepBar() as bar:
        measured = measure_splits(
            source, problem, calibration_splits(problem), how, Timing(settings, cache=None), progress=bar
        )
    found = fit(problem.costs, measured.splits, measured.circumstances())
    write_costs(found.apply(problem.costs, source.graph), source.graph, target)
    document = {"model": source.name} | found.to_dict() | {"files": {"costs": str(target)}}
    tell(as_json, document, chain(_calibration_report(found, target), flag_lines(measured.timings)))


def _calibration_report(found: Calibration, target: Path) -> Iterator[RenderableType]:
    table = plain_table("split", "error before", "after, held out")
    for name, before, after in zip(found.names, found.before.tolist(), found.after.tolist(), strict=True):
        table.add_row(name, f"{before:+.1%}", f"{after:+.1%}")
    yield table
    yield ""
    facts = {"mean error": f"{found.error_before:.1%} before, {found.error_after:.1%} after on held-out splits"}
    if found.is_better:
        values, spread = found.parameters, found.spread
        for kind, scale, error in zip(found.kinds, values.op_scale, spread.op_scale, strict=True):
            facts[f"ops, {kind}"] = f"x {scale:.3f} +- {error:.3f}"
        facts["transfers"] = f"x {values.transfer_scale:.3f} +- {spread.transfer_scale:.3f}"
        facts["moving"] = f"+ {values.transfer_s_per_byte * 1e9:.3g} +- {spread.transfer_s_per_byte * 1e9:.2g} s/GB"
        facts["a stage"] = f"+ {values.stage_overhead_s * 1e6:.3g} +- {spread.stage_overhead_s * 1e6:.2g} us"
    else:
        facts["verdict"] = "predictions do not become better, so the costs stay as they were"
    yield fact_lines(facts | {"wrote costs": str(target)})
