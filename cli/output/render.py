"""Values in, renderables out: the tables and bars that the commands print, made for 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from placekit.cli.output.units import format_count, format_ms, format_time
from placekit.model.placement import Placement, Violation
from placekit.model.platform import Link, Platform
from placekit.model.problem import Problem
from placekit.model.sizes import format_bytes, format_share
from placekit.objectives.evaluate import DeviceLoad, Evaluation, evaluate
from placekit.solve.result import BaseResult, Result, Status

NUM_STAGES = "num_stages"
"""Key in `Result.info` for the stages that the placement has where it runs stage by stage."""
BAR_WIDTH = 10
_LEFT_OUT = ("", "limit", "queues", "activations", "weights")
"""Columns of loads in the order in which a narrow console goes without them; bars have no name."""
_OF_MEMORY = ("weights", "activations", "queues", "memory", "limit")
_NAME_WIDTH = 16
"""Names of devices fold beyond this before a column is left out."""
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_STATUS_STYLE = {Status.OPTIMAL: "green", Status.FEASIBLE: "yellow", Status.INFEASIBLE: "red", Status.UNKNOWN: "red"}
_MAX_VIOLATIONS = 5
_NOTES = {"skipped": "skipped", "note": "no_better"}
"""Name of a fact, and the key of `Result.info` that has it."""


def plain_table(*columns: str, left: int = 1) -> Table:
    """Return an empty table; the first `left` columns hold text, the others numbers."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for at, column in enumerate(columns):
        if at < left:
            table.add_column(column, overflow="fold")
        else:
            table.add_column(column, justify="right", no_wrap=True)
    return table


def paragraphs(*parts: RenderableType | Iterable[RenderableType] | None) -> Iterator[RenderableType]:
    """Yield parts with an empty line between them; an iterable is one part, and without an item it is none."""
    is_first = True
    for part in parts:
        if part is None:
            continue
        lines: list[RenderableType] = [part] if isinstance(part, str) or not isinstance(part, Iterable) else list(part)
        if lines:
            yield from lines if is_first else ["", *lines]
            is_first = False


def fact_lines(facts: Mapping[str, str | Text]) -> Table:
    """Return one line per fact: name and value."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for name, value in facts.items():
        grid.add_row(name, value)
    return grid


@dataclass(frozen=True)
class LoadBar:
    """A bar of `width` characters, filled to `share` (0 to 1): to an eighth of one, unless only ASCII is shown."""

    share: float
    width: int = BAR_WIDTH

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[RenderableType]:
        eighths = round(min(max(self.share, 0.0), 1.0) * self.width * 8)
        full, rest = divmod(eighths, 8)
        filled = "#" * round(eighths / 8) if options.ascii_only else "█" * full + (_EIGHTHS[rest] if rest else "")
        yield Text(filled, style="cyan")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(self.width, self.width)


def load_table(loads: Sequence[DeviceLoad], *, with_memory: bool = True) -> RenderableType:
    """Return the load of every device; bars are relative to the largest load. Members of a team stand together.

    A narrow console leaves out bars, then limits, then what memory is made of.
    """
    without = () if with_memory else _OF_MEMORY
    tables = (_load_table(loads, frozenset((*without, *_LEFT_OUT[:count]))) for count in range(len(_LEFT_OUT) + 1))
    folded = max((len(load.device) for load in loads), default=0) - _NAME_WIDTH
    return _WidestThatFits(tuple(tables), max(folded, 0))


@dataclass(frozen=True)
class _WidestThatFits:
    """The first table that is no wider than the console, or else the last; names may fold by some characters."""

    tables: tuple[Table, ...]
    folded: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[RenderableType]:
        wide = options.update(width=10_000)
        limit = options.max_width + self.folded
        fitting = (each for each in self.tables if each.__rich_measure__(console, wide).maximum <= limit)
        yield next(fitting, self.tables[-1])


def _load_table(loads: Sequence[DeviceLoad], left_out: frozenset[str]) -> Table:
    """Return the table without the columns `left_out`."""
    has_queues = any(load.queue_bytes for load in loads)
    has_parts = bool(loads) and all(load.weight_bytes is not None for load in loads)
    has_teams = any(load.team for load in loads)
    largest = max((load.load_s for load in loads), default=0.0)
    place = {load.team or load.device: at for at, load in reversed(list(enumerate(loads)))}
    columns: dict[str, list[str | LoadBar]] = {}

    def add(name: str, values: Iterable[str], when: bool = True) -> None:
        if when and name not in left_out:
            columns[name] = list(values)

    loads = sorted(loads, key=lambda each: place[each.team or each.device])
    add("device", (load.device for load in loads))
    add("ops", (str(load.num_ops) for load in loads))
    add("load ms", (format_ms(load.load_s) for load in loads))
    add("compute", (format_ms(load.compute_s) for load in loads))
    add("transfer", (format_ms(load.transfer_s) for load in loads))
    add("weights", (format_bytes(load.weight_bytes) for load in loads), has_parts)
    add("activations", (format_bytes(load.activation_bytes) for load in loads), has_parts)
    add("queues", (format_bytes(load.queue_bytes) for load in loads), has_parts and has_queues)
    add("memory", (format_bytes(load.memory_bytes) for load in loads))
    add("limit", (format_bytes(load.memory_limit_bytes) for load in loads))
    table = plain_table(*columns)
    if has_teams:  # no room for a bar beside it, and the members of a team have the same load
        table.add_column("team", overflow="fold")
        columns["team"] = [load.team or "" for load in loads]
    elif "" not in left_out:
        table.add_column("", width=BAR_WIDTH, no_wrap=True)
        columns[""] = [LoadBar(load.load_s / largest if largest > 0 else 0.0) for load in loads]
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    return table


def platform_table(platform: Platform) -> Table:
    """Return a table of the devices with the link of their kind; below are memories they share, and direct links."""
    has_nodes = any(device.node is not None for device in platform.devices)
    table = plain_table("device", "kind", "OpenVINO", "memory", "link", *["node"] * has_nodes, left=3)
    for device in platform.devices:
        link = platform.links.get(device.kind)
        told = "-" if link is None else _told(link)
        node = [device.node or "-"] if has_nodes else []
        table.add_row(device.name, device.kind, device.openvino or "-", format_bytes(device.memory_bytes), told, *node)
    lines = [
        f"pool {pool.name}: {format_bytes(pool.memory_bytes)} for {', '.join(pool.devices)}" for pool in platform.pools
    ]
    lines += [f"direct link {each.name}: {_told(each)}" for each in platform.direct_links]
    if lines:
        table.caption, table.caption_justify = "\n".join(lines), "left"
    return table


def _told(link: Link) -> str:
    return f"{format_time(link.latency_s)} + {link.bandwidth_bytes_per_s / 1e9:.3g} GB/s"


def violation_lines(violations: Sequence[Violation]) -> list[RenderableType]:
    """Return one line per broken constraint, the first few of them."""
    lines: list[RenderableType] = [Text(f"- {violation}") for violation in violations[:_MAX_VIOLATIONS]]
    if len(violations) > _MAX_VIOLATIONS:
        lines.append(Text(f"- and {len(violations) - _MAX_VIOLATIONS} more"))
    return lines


def stage_table(stages: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of the methods in a row: time, objective and bound afterwards, and reason."""
    table = plain_table("stage", "time", "best", "bound")
    table.add_column("why", overflow="fold")
    for stage in stages:
        if "skipped" in stage:
            table.add_row(stage["method"], "-", "-", "-", f"skipped: {stage['skipped']}")
            continue
        known = (format_time(stage[name]) for name in ("objective_s", "bound_s"))
        table.add_row(stage["method"], format_time(round(stage["time_s"], 3)), *known, stage["why"])
    return table


def evidence_facts(
    result: BaseResult, objective_name: str, answer: str, space: str | None = None
) -> dict[str, str | Text]:
    """Return what is known of a result, whose method scored answers of this name: objective, bound, gap, status.

    `space` are words for the answers that a proof is about, where there are others.
    """
    is_best = space is not None and result.status is Status.OPTIMAL
    status = Text(f"best of: {space}" if is_best else f"{result.status}", style=_STATUS_STYLE[result.status])
    status.append(f" (stopped: {result.stop_reason})", style="default")
    return {
        "method": f"{result.method}, objective {objective_name}",
        "objective": format_time(result.objective),
        "bound": format_time(result.lower_bound) + (f" ({result.bound_name})" if result.bound_name else ""),
        "gap": format_share(result.gap),
        "status": status,
        "time": f"{format_time(round(result.runtime_s, 3))}, {format_count(result.evaluations, answer)} scored",
    }


def result_lines(
    result: Result, *, with_memory: bool = True, with_stages: bool = True, space: str | None = None
) -> Iterator[RenderableType]:
    """Return the lines of a result: loads, objective, bound, gap, status; or the reason for no answer."""
    facts = evidence_facts(result, result.objective_name, "placement", space)
    if result.objective and result.objective_name == "throughput":
        facts["objective"] = f"{facts['objective']} per sample, {1 / result.objective:.4g} samples/s"
    facts["time"] = f"{facts['time']}, seed {result.seed}"
    facts |= {name: str(result.info[key]) for name, key in _NOTES.items() if key in result.info}
    num_teams = len({load.team or load.device for load in result.device_loads if load.num_ops})
    yield from paragraphs(
        None if result.placement is None else load_table(result.device_loads, with_memory=with_memory),
        fact_lines(facts),
        many_stages_note(int(result.info.get(NUM_STAGES, 0)), num_teams, result.objective_name),
        stage_table(result.info["stages"]) if with_stages and result.info.get("stages") else None,
    )
    if result.violations:
        reason = "infeasible because" if result.status is Status.INFEASIBLE else "the nearest placement breaks"
        yield Text(f"{reason}:")
        yield from violation_lines(result.violations)


def single_device_evaluations(problem: Problem) -> dict[str, Evaluation]:
    """Return the judge's word on everything on one device, by device; one device for every kind."""
    platform = problem.platform
    first = [platform.devices_of_kind(kind)[0] for kind in range(len(platform.kinds))]
    return {
        platform.device_names[device]: evaluate(
            problem, Placement.of(problem, np.full(problem.graph.num_ops, device, dtype=np.int64))
        )
        for device in first
    }


def choice_lines(result: Result) -> Iterator[RenderableType]:
    """Return the compared ways to cut the CPU, and the speedup of the best."""
    table = plain_table("compared", "ms", "at least", "time")
    table.add_column("", overflow="fold")
    for each in result.info["compared"]:
        table.add_row(
            each["name"],
            format_ms(each["objective_s"]),
            format_ms(each["bound_s"]),
            format_time(round(each["runtime_s"], 3)),
            each["status"],
        )
    yield table
    mine = next((each for each in result.info["compared"] if each["objective_s"] == result.objective), None)
    others = [each for each in result.info["compared"] if each is not mine and each["status"] != "infeasible"]
    if mine is None or not result.objective:
        return
    if not others:
        yield f"best: {mine['name']}, the only one that is feasible"
        return
    known = [each["bound_s"] if each["objective_s"] is None else each["objective_s"] for each in others]
    if None in known:
        yield f"best: {mine['name']}"
        return
    second = int(np.argmin(known))
    at_least = "at least " if others[second]["objective_s"] is None else ""
    yield f"best: {mine['name']}, {at_least}{known[second] / result.objective:.3g}x as fast as {others[second]['name']}"


def single_device_table(problem: Problem, result: Result) -> Table:
    """Return the time of each single device with the speedup of the result, or the constraint that it breaks."""
    table = plain_table("everything on", "ms", "speedup")
    table.add_column("", overflow="fold")
    for device, evaluation in single_device_evaluations(problem).items():
        single, placed = evaluation.objective, result.objective
        speedup = f"{single / placed:.3g}x" if single is not None and placed else "-"
        broken = evaluation.violations
        more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        note = f"not feasible: {broken[0]}{more}" if broken else ""
        table.add_row(device, format_ms(single), speedup, note)
    return table


def many_stages_note(num_stages: int, num_devices: int, objective: str | None = None) -> Iterator[str]:
    """Yield one line if a placement has more stages than devices, or teams, that run them."""
    if num_stages <= num_devices:
        return
    # the makespan has no contiguity
    mend = "--objective throughput " * (objective == "makespan") + "--contiguity acyclic"
    yield (
        f"note: {num_stages} stages for {num_devices} devices: a sample is handed over {num_stages - 1} times, and "
        f"each stage is started by itself; `placekit solve {mend}` makes one stage per device"
    )
