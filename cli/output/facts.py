"""Summary lines about a model, a problem, a platform or a cost table."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from placekit.cli.output.units import format_count, format_time
from placekit.io.models.model import ModelSource
from placekit.io.models.model_inputs import format_shape
from placekit.model.costs import CostTable
from placekit.model.op_patterns import overridden
from placekit.model.platform import Platform
from placekit.model.problem import Problem
from placekit.model.sizes import format_bytes, format_share

SHAPES_OPEN = "where every ? is 1"
"""Words in the facts of a model whose inputs have open dimensions."""


def model_facts(source: ModelSource) -> dict[str, str]:
    """Return name, size and inputs of a model that was read."""
    graph = source.graph
    per = f" {SHAPES_OPEN} (sizes: solve --shape)" if source.dynamic_inputs else ""
    inputs = ", ".join(f"{each.name}{format_shape(each.shape)} {each.dtype}" for each in source.inputs)
    return {
        "model": f"{source.name}: {format_count(graph.num_ops, 'op')}, {format_count(graph.num_edges, 'edge')} "
        f"({source.num_nodes} nodes and {source.num_edges} edges with constants)",
        "inputs": inputs or "none",
        "work": f"{float(graph.op_flops.sum()) / 1e9:.4g} GFLOP{per}, weights {format_bytes(source.weight_bytes)}",
    }


def describe_platform(platform: Platform) -> str:
    """Return the devices by kind on one line."""
    parts = []
    for kind, name in enumerate(platform.kinds):
        devices = platform.devices_of_kind(kind)
        names = [platform.devices[d].name for d in devices]
        shown = ", ".join(names) if len(names) <= 4 else f"{names[0]} ... {names[-1]}"
        limit = platform.devices[devices[0]].memory_bytes
        memory = f", {format_bytes(limit)}{' each' if len(names) > 1 else ''}" if limit is not None else ""
        parts.append(f"{len(names)} x {name} ({shown}{memory})")
    parts += [f"{', '.join(pool.devices)} share {format_bytes(pool.memory_bytes)}" for pool in platform.pools]
    return "; ".join(parts)


def problem_facts(problem: Problem, pins: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return facts of a problem: size, devices, objective, constraints, and `pins` that later ones override."""
    graph = problem.graph
    plain = type(problem.objective)().to_dict()
    told = {name: value for name, value in problem.objective.to_dict().items() if value != plain[name]}
    variant = ", ".join(f"{name} {value}" for name, value in told.items())
    facts = {
        "problem": f"{problem.name}: {format_count(graph.num_ops, 'op')} in "
        f"{problem.num_classes} {'class' if problem.num_classes == 1 else 'classes'}, "
        f"{format_count(graph.num_tensors, 'tensor')}, {format_count(graph.num_edges, 'edge')}",
        "platform": describe_platform(problem.platform),
        "goal": f"{problem.objective.name}{f' ({variant})' if variant else ''}, contiguity {problem.contiguity}",
    }
    if any(len(pool.devices) > 1 for pool in problem.platform.pools) and problem.objective.name != "serial-latency":
        facts["bandwidth"] = "of shared memory: each device counts with its own, also where several compute at once"
    pins = pins or {}
    num_pinned = int((problem.pinned >= 0).sum())
    if num_pinned:
        with_teams = problem.objective.team_rule != "off"
        lines = [format_count(num_pinned, "op") + (", to a team that has the device" if with_teams else "")]
        for earlier, later, ops in overridden(problem.graph, pins):
            lines.append(
                f"'{later}={pins[later]}' overrides '{earlier}={pins[earlier]}' for {format_count(len(ops), 'op')} "
                f"({problem.graph.op_names[ops[0]]}{', ...' if len(ops) > 1 else ''})"
            )
        facts["pinned"] = "; ".join(lines)
    return facts


def cost_facts(costs: CostTable) -> dict[str, str]:
    """Return source, age and error of the costs, and the sum of op times per kind."""
    told = costs.provenance
    source = str(told.get("source", "given"))
    parts = ["analytic (modelled, error unknown)" if source == "analytic" else source]
    kinds = told.get("kinds")
    measured = [each for each in kinds.values() if isinstance(each, Mapping)] if isinstance(kinds, Mapping) else []
    dates = sorted(str(each["date"]) for each in measured if "date" in each)
    if dates and (old := age(dates[0])):
        kept = ", from the cache" if any(each.get("cached") for each in measured) else ""
        parts.append(f"{old} ago{kept}")
    if (error := costs.error) is not None:
        parts.append(" ".join(filter(None, (f"+-{format_share(error)}", costs.error_of))))
    calibration = told.get("calibration")
    if isinstance(calibration, Mapping) and calibration.get("applied"):
        parts.append(f"calibrated for {calibration.get('executor', 'one executor')}")
    facts = {"costs": ", ".join(parts)}
    sums = np.where(costs.supported, costs.op_time_s, 0.0).sum(axis=0)
    origin = {kind: _origin(kinds, kind) for kind in costs.kinds}
    is_mixed = len(set(origin.values())) > 1
    facts["all ops"] = ", ".join(
        f"{kind} {format_time(float(total))}{f' {origin[kind]}' if is_mixed else ''}"
        for kind, total in zip(costs.kinds, sums.tolist(), strict=True)
    )
    if modelled := [kind for kind in costs.kinds if origin[kind] == "modelled"]:
        facts["modelled"] = f"{', '.join(modelled)}: not on this machine, {anchor_words(told, modelled[0])}"
    return facts


def _origin(kinds: object, kind: str) -> str:
    told = kinds.get(kind) if isinstance(kinds, Mapping) else None
    return "modelled" if isinstance(told, Mapping) and told.get("source") == "described" else "measured"


def anchor_words(provenance: Mapping[str, Any], kind: str) -> str:
    """Return how the analytic costs of a kind that is not on the machine were anchored at measured ones."""
    anchor = provenance["kinds"][kind]["anchor"]
    if anchor["spread"] is None:
        return (
            "analytic costs as they are, right to a factor of about two: no measured op of a device with a spec is "
            "long and steady enough to compare"
        )
    ratio, found = anchor["ratio"], anchor.get("found", anchor["ratio"])
    cut = "" if ratio == found else f", cut from {found:.3g}, which no data sheet allows"
    return (
        f"analytic costs x {ratio:.3g}, the ratio measured / analytic of {', '.join(anchor['kinds'])}{cut} "
        f"(single ops: x/ {anchor['spread']:.2g})"
    )


def median_spread(costs: CostTable, kind: int) -> float | None:
    """Return the median relative spread of the measured times of one kind; None if nothing was measured."""
    if costs.op_time_spread is None:
        return None
    spread = costs.op_time_spread[:, kind]
    spread = spread[np.isfinite(spread)]
    return float(np.median(spread)) if spread.size else None


def age(date: str) -> str | None:
    """Return how long ago an ISO 8601 date was, to the nearest unit; None for another text.

    Examples
    --------
    >>> age("2000-01-01T00:00:00+00:00").endswith("days")
    True
    """
    try:
        then = datetime.fromisoformat(date)
    except ValueError:
        return None
    seconds = (datetime.now(UTC) - (then if then.tzinfo else then.replace(tzinfo=UTC))).total_seconds()
    for size, unit in ((86400.0, "day"), (3600.0, "hour"), (60.0, "minute")):
        if seconds >= size:
            return format_count(int(seconds // size), unit)
    return format_count(max(int(seconds), 0), "second")
