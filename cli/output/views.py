"""Views of `show` for every kind of file: a JSON object, and text for people."""

from __future__ import annotations

import pkgutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import RenderableType

from placekit.cli.output.facts import cost_facts, median_spread, model_facts, problem_facts
from placekit.cli.output.render import (
    choice_lines,
    fact_lines,
    paragraphs,
    plain_table,
    platform_table,
    result_lines,
)
from placekit.cli.output.units import format_count, format_ms
from placekit.io.files.costs_json import costs_from_model, costs_to_dict
from placekit.io.files.detect import kind_of_file, problem_of_file
from placekit.io.files.npz_arrays import unpack_arrays
from placekit.io.files.placement_json import read_placement
from placekit.io.files.platform_toml import read_platform
from placekit.io.files.problem_json import problem_to_dict
from placekit.io.files.result_json import read_result
from placekit.io.files.schemas import CostsModel
from placekit.io.models.read_model import read_model
from placekit.io.reading import read_json, validated
from placekit.model.costs import CostTable
from placekit.model.device_groups import JOINT
from placekit.model.problem import Problem
from placekit.model.sizes import format_bytes, format_share
from placekit.plotting.plot_result import plot_result
from placekit.solve.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class View:
    """Contents of a file as JSON values and as renderables, and the result of a result file."""

    document: Mapping[str, Any]
    parts: list[RenderableType]
    result: Result | None = None

    @property
    def has_answer(self) -> bool:
        """True if there are loads and a schedule to draw."""
        return self.result is not None

    def timed(self, schedule: str) -> Result:  # noqa: ARG002  # views of a product may have several
        """Return the result whose schedule is drawn."""
        assert self.result is not None
        return self.result

    def plot(self) -> Figure:
        """Draw loads and progress."""
        assert self.result is not None
        return plot_result(self.result)


_TRAINING = "placekit.training.commands.shown"
VIEWED = {"training-plan": f"{_TRAINING}:view_plan", "training-problem": f"{_TRAINING}:view_training"}
"""Makers of views of files of a product, by their kind."""


def view_file(path: Path) -> View:
    """Return the view of a file of any kind; files of a product have views there."""
    views: Mapping[str, Callable[[Path], View]] = {
        "result": _view_result,
        "placement": _view_placement,
        "costs": _view_costs,
        "platform": _view_platform,
        "model": _view_model,
    }
    kind = kind_of_file(path)
    if kind in VIEWED:
        found: View = pkgutil.resolve_name(VIEWED[kind])(path)
        return found
    problem = problem_of_file(path, kind)
    return views[kind](path) if problem is None else _view_problem(problem)


def _view_result(path: Path) -> View:
    result = read_result(path)
    compared = choice_lines(result) if "compared" in result.info else None
    parts = paragraphs(fact_lines({"model": result.problem_name}), result_lines(result), compared)
    return View(result.to_dict(), list(parts), result)


def _view_placement(path: Path) -> View:
    file = read_placement(path)
    placed = Counter(file.ops.values())
    in_teams = {member for name in placed if name not in file.devices for member in name.split(JOINT)}
    names = [device for device in file.devices if device not in in_teams]
    counts = {name: placed[name] for name in dict.fromkeys([*names, *placed])}
    table = plain_table("device", "ops", "share")
    for device, count in counts.items():
        table.add_row(device, str(count), f"{count / max(len(file.ops), 1):.1%}")
    facts = {"model": file.model_name or "(not said)", "ops": str(len(file.ops))}
    if file.default_device is not None:
        facts["all other ops"] = file.default_device
    document = {
        "model": {"name": file.model_name, "hash": file.model_hash},
        "devices": list(file.devices),
        "default_device": file.default_device,
        "num_ops": counts,
        "ops": dict(file.ops),
    }
    return View(document, [fact_lines(facts), "", table])


def _view_problem(problem: Problem) -> View:
    facts = fact_lines(problem_facts(problem) | cost_facts(problem.costs))
    return View(
        problem_to_dict(problem), list(paragraphs(facts, platform_table(problem.platform), _kind_table(problem)))
    )


def _kind_table(problem: Problem) -> RenderableType:
    costs = problem.costs
    table = plain_table("kind", "devices", "ops it runs", "all of them ms", "all transfers ms")
    for kind, name in enumerate(problem.platform.kinds):
        supported = costs.supported[:, kind]
        table.add_row(
            name,
            str(len(problem.platform.devices_of_kind(kind))),
            f"{int(supported.sum())} of {problem.graph.num_ops}",
            format_ms(float(costs.op_time_s[supported, kind].sum())),
            format_ms(float(costs.transfer_time_s[:, kind].sum())),
        )
    return table


def _view_costs(path: Path) -> View:
    model = validated(CostsModel, unpack_arrays(read_json(path), path), path)
    costs = costs_from_model(model.costs, len(model.ops), len(model.tensors.producer), f"{path}: costs")
    facts = {"model": f"{model.model.name}: {format_count(len(model.ops), 'op')}"} | cost_facts(costs)
    facts["memory"] = format_bytes(float(costs.op_memory_bytes.sum()))
    document = {"model": {"name": model.model.name, "hash": model.model.hash}, "ops": model.ops}
    parts = paragraphs(fact_lines(facts), kind_lines(costs), slowest_table(costs, model.ops))
    return View(document | {"costs": costs_to_dict(costs)}, list(parts))


def kind_lines(costs: CostTable) -> Iterator[RenderableType]:
    """Return the lines on the measurement of every kind; none for costs that were not measured."""
    kinds = costs.provenance.get("kinds")
    if costs.provenance.get("source") != "profiled" or not isinstance(kinds, Mapping):
        return
    table = plain_table("kind", "sum of ops ms", "whole ms", "mapped", "spread", "error", "")
    for at, kind in enumerate(costs.kinds):
        told = kinds.get(kind)
        if not isinstance(told, Mapping):
            continue
        is_described = told.get("source") == "described"
        sum_s = float(costs.op_time_s[:, at].sum()) if is_described else _number(told, "sum_of_op_times_s")
        shares = (_number(told, "mapped_share"), median_spread(costs, at))
        measured = (
            ("-",) * 3 if is_described else (format_ms(_number(told, "model_latency_s")), *map(format_share, shares))
        )
        origin = "" if is_described else "measured"
        table.add_row(kind, format_ms(sum_s), *measured, format_share(_number(told, "error")), origin)
    yield table


def _number(told: Mapping[str, Any], key: str) -> float | None:
    value = told.get(key)
    return float(value) if isinstance(value, int | float) else None


def slowest_table(costs: CostTable, op_names: list[str] | tuple[str, ...], count: int = 10) -> RenderableType:
    """Return the `count` slowest ops, or fused groups under the name of the op that carries the time."""
    table = plain_table(f"slowest {count}", *(f"{kind} ms" for kind in costs.kinds), "ops in group")
    sizes = {int(label): int(size) for label, size in zip(*np.unique(costs.op_group, return_counts=True), strict=True)}
    slowest = np.argsort(-costs.op_time_s.max(axis=1), kind="stable")[:count]
    for op in slowest.tolist():
        times = [
            format_ms(float(time)) if can_run else "-"
            for time, can_run in zip(costs.op_time_s[op], costs.supported[op], strict=True)
        ]
        table.add_row(op_names[op], *times, str(sizes[int(costs.op_group[op])]))
    return table


def _view_platform(path: Path) -> View:
    platform = read_platform(path)
    devices = [
        {"name": device.name, "kind": device.kind, "memory_bytes": device.memory_bytes, "openvino": device.openvino}
        for device in platform.devices
    ]
    specs = {kind: f"analytic spec {spec}" for kind, spec in platform.spec_of_kind.items()}
    document = {"devices": devices, "spec_of_kind": dict(platform.spec_of_kind)}
    return View(document, list(paragraphs(platform_table(platform), fact_lines(specs) if specs else None)))


def _view_model(path: Path) -> View:
    source = read_model(path)
    graph = source.graph
    types, counts = np.unique(np.array(graph.op_types), return_counts=True)
    most = sorted(zip(types.tolist(), counts.tolist(), strict=True), key=lambda each: (-each[1], each[0]))
    table = plain_table("op type", "ops")
    for op_type, count in most[:15]:
        table.add_row(op_type, str(count))
    document = {
        "name": source.name,
        "hash": source.content_hash,
        "num_ops": graph.num_ops,
        "num_edges": graph.num_edges,
        "num_nodes": source.num_nodes,
        "num_edges_with_constants": source.num_edges,
        "inputs": [{"name": each.name, "shape": list(each.shape), "dtype": each.dtype} for each in source.inputs],
        "op_types": dict(most),
    }
    return View(document, [fact_lines(model_facts(source)), "", table])
