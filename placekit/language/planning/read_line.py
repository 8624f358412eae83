"""A launch line that somebody has: where it puts a model, whether it loads, how fast it is, and the best instead."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from placekit.language.decoder import Decoder
from placekit.language.description import ModelDescription
from placekit.language.planning.answer import Answer
from placekit.language.planning.experts import with_hosted_cache
from placekit.language.planning.offload import streamed
from placekit.language.planning.plan import as_computed, first_card
from placekit.language.planning.planner import Planner
from placekit.language.planning.question import GivenModel, Search, Wishes
from placekit.language.report import DeviceMemory, ServingReport, serving_report
from placekit.language.runtimes import loadable, refuse_nodes
from placekit.language.runtimes.record import Launch, Placed, Runtime
from placekit.language.runtimes.stage_lines import degree_of, ranks_of
from placekit.language.runtimes.typed import parse_line
from placekit.language.serving import Serving
from placekit.language.task import LanguageTask, TaskForm
from placekit.model.blocks.block_paths import block_numbers
from placekit.model.errors import InvalidProblemError
from placekit.model.placement import Placement
from placekit.model.platform import Platform
from placekit.objectives import SerialLatency, Throughput


@dataclass(frozen=True)
class ReadLine:
    """Result of a launch line, beside the best plan of the same requests."""

    launch: Launch  # runtime and options as read
    task: LanguageTask
    placement: Placement
    report: ServingReport
    best: Answer

    @property
    def too_full(self) -> tuple[DeviceMemory, ...]:
        """Devices that would hold more than they have."""
        return tuple(
            each for each in self.report.memory
            if each.limit_bytes is not None
            and each.weight_bytes + each.cache_bytes + each.activation_bytes > each.limit_bytes
        )  # fmt: skip

    @property
    def loads(self) -> bool:
        """True if every device has the memory that the line asks of it."""
        return not self.too_full

    @property
    def gain(self) -> float | None:
        """Ratio of tokens per second of the best plan to those of the line; None if there is none."""
        best = self.best.report
        return (
            None if best is None or self.best.result.placement is None else best.tokens_per_s / self.report.tokens_per_s
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what the line does as JSON values."""
        return {
            "runtime": self.launch.runtime.name,
            "arguments": list(self.launch.arguments),
            "loads": self.loads,
            "too_full": [each.device for each in self.too_full],
            "serving": self.report.to_dict(),
            "best_gain": self.gain,
        }


def read_line(
    line: str,
    model: str | Path | Decoder | ModelDescription | GivenModel | None,
    platform: Platform,
    *,
    precision: str | None = None,
    wishes: Wishes | None = None,
    search: Search | None = None,
    runtime: str | None = None,
) -> ReadLine:
    """Return what a launch line does on a platform, beside the best plan.

    Parameters
    ----------
    line
        The line, environment variables before the program included; the lines of several machines or of a settings
        file below one another; or a map from modules to devices as Python or JSON.
    model
        As of `plan_serving`; None for the file that the line names.
    platform, precision, wishes, search
        As of `plan_serving`. Context, sequences, step of prefill and precision of the cache are those of the line.
    runtime
        Name of the runtime that is meant where several have such lines: maps of modules, and options of torchrun.

    Raises
    ------
    PlacekitError
        A program or an option that is not known, a split that does not add up, a device that is not there, or what
        `plan_serving` raises.

    Examples
    --------
    >>> import placekit as pk
    >>> cards = pk.Platform.of(cpu=1, rtx4090=1, host="cpu", memory_bytes={"rtx4090": 24e9},
    ...                        links={"rtx4090": pk.Link(2e-5, 2e10)})
    >>> cards = cards.replace(spec_of_kind={"cpu": "cpu-8core-bf16"})
    >>> read = pk.read_line("llama-server -m x.gguf -ngl 17 -c 4096", "llama3-8b", cards, precision="int4")
    >>> read.loads, read.gain > 1
    (True, True)
    """
    launch, named = parse_line(line, loadable(), runtime)
    if model is None and named is None:
        raise InvalidProblemError("neither the line nor the question names a model")
    record = launch.runtime
    asked = wishes or Wishes()
    told, degree = record.served_by(launch), degree_of(record, launch)
    if told.headroom is not None:
        record = replace(record, headroom=told.headroom)
    given = GivenModel.of(named if model is None else model, precision)  # type: ignore[arg-type]  # one is there
    serving = asked.served(record)
    sequences = told.sequences or serving.sequences
    trained = given.description.trained_tokens if record.takes_gguf and given.description is not None else None
    whole = None if trained is None else max(trained // sequences, serving.prompt + serving.generated)
    serving = Serving(
        serving.prompt, serving.generated, told.context or whole or serving.context, sequences,
        min(asked.batch or sequences, sequences), told.chunk or serving.chunk,
    )  # fmt: skip
    asked = replace(
        asked,
        serving=serving,
        cache_precision=told.cache_precision or asked.cache_precision,
        degrees=tuple(sorted({*asked.degrees, degree})),  # the best is sought where the line is, too
    )
    planner = Planner.of(given, platform, record, asked, search or Search())
    task = _task(planner, launch, serving, degree)
    assert record.read is not None
    placed = record.read(record, launch, task.problem)
    task = _with_rules(task, record, placed)
    report = serving_report(task, placed.placement)
    return ReadLine(launch, task, placed.placement, report, planner.answer())


def _task(planner: Planner, launch: Launch, serving: Serving, degree: int) -> LanguageTask:
    """Return the task of a line, whose devices are the teams of the line."""
    runtime = launch.runtime
    devices = runtime.devices(planner.usable)
    teams: list[tuple[int, ...]] = []
    if degree > 1:
        ranks = [devices.index(name) for name in ranks_of(launch, devices)]
        teams = [tuple(ranks[at : at + degree]) for at in range(0, len(ranks) - degree + 1, degree)]
    refuse_nodes(runtime, devices.devices)
    form = TaskForm(SerialLatency(), cache_precision=planner.wishes.cache_precision, tensor_teams=tuple(teams))
    return planner.made(runtime, serving, devices, form=form)


def _with_rules(task: LanguageTask, runtime: Runtime, placed: Placed) -> LanguageTask:
    """Return the task with the costs that a runtime's rules give it under a placement."""
    if placed.placement.teams and max(map(len, placed.placement.teams)) > 1:
        return replace(task, problem=task.problem.replace(objective=Throughput(teams="equal")))
    kind = first_card(task, placed.placement)
    if runtime.host == "last" and kind is not None:
        tables = {name: streamed(task, kind, table) for name, table in task.costs_of_phase.items()}
        return task.with_costs(tables)
    if runtime.host != "first":
        return task
    task = replace(task, overlaps_prompt=runtime.overlaps_prompt)
    if placed.served.hosts_cache:
        cached = with_hosted_cache(task, runtime.offload_tokens)
        if cached is None:
            raise InvalidProblemError(
                f"{runtime.options['host_cache']}: the host lacks memory for the cache, or there is none"
            )
        task = cached
    num_blocks = min(placed.served.hosted_blocks, int(block_numbers(task.problem.graph).max()) + 1)
    return as_computed(task, placed.placement, runtime.offload_tokens, num_blocks)
