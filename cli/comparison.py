"""What every single device would need: the baseline that a placement has to beat."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from placekit.cli.render import plain_table
from placekit.cli.units import format_ms
from placekit.evaluate import Evaluation, evaluate
from placekit.placement import Placement

if TYPE_CHECKING:
    from rich.table import Table

    from placekit.problem import Problem
    from placekit.result import Result

__all__ = ["single_device_evaluations", "single_device_table"]


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


def single_device_table(problem: Problem, result: Result) -> Table:
    """Return what each single device needs, and how much faster the result is; or what a single device breaks."""
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
