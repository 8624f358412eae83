"""The suite ``training``: training plans of generated problems, and of Piper's public files where a folder has them.

One row per (instance, devices, memory, method) in a file of JSON lines; rows that exist are not made again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from placekit.benchmarks.circumstances import circumstances, peak_bytes
from placekit.benchmarks.rows import read_lines
from placekit.errors import InvalidFileError
from placekit.result import Incumbent
from placekit.solvers.training_plan.solve import PLAN_METHODS, solve_plan
from placekit.stop import MaxRuntime
from placekit.training.generate import chain_problem, recurrent_problem
from placekit.training.piper_json import read_piper
from placekit.training.problem import TrainingProblem

__all__ = ["TrainingCase", "markdown_table", "read_training_rows", "run_case", "training_cases"]

SCHEMA = "placekit/training-row/1"
GIB = 2.0**30
PIPER_FILES = {
    "bert32a100.json": ((80, (8, 32, 64, 128, 512, 2048)), (8, (8, 32, 64, 128, 512)), (2, (8, 32, 64, 128, 512)),
                        (1, (8, 32, 64, 128, 512))),
    "resnet.json": ((16, (8, 16, 32, 64)), (8, (8, 16, 32, 64, 128)), (4, (8, 16, 32, 64, 128)), (2, (16, 32, 64, 128)),
                    (1.5, (32, 64, 128)), (1, (128,))),
}  # fmt: skip
"""Memory in GiB and numbers of devices, as in the paper's code, by file."""
RECURRENT = ((2, 8), (3, 10), (4, 20))
"""Rows and steps of generated lattices: 45, 286 and 10,626 ideals."""


@dataclass(frozen=True, order=True)
class TrainingCase:
    """One solve.

    Parameters
    ----------
    instance
        Name of a file, or ``chain-N`` or ``recurrent-RxS`` of the generator.
    devices, memory_gib
        The machine.
    method
        Of :data:`placekit.solvers.training_plan.solve.PLAN_METHODS`.
    time_limit_s
        Of the solve.
    """

    instance: str
    devices: int
    memory_gib: float
    method: str
    time_limit_s: float = 60.0

    def problem(self, folder: Path | None) -> TrainingProblem:
        """Return the problem; `folder` has the files."""
        machine: dict[str, Any] = {"num_devices": self.devices, "memory_bytes": self.memory_gib * GIB}
        kind, _, shape = self.instance.partition("-")
        if kind == "chain":
            return chain_problem(int(shape), **machine)
        if kind == "recurrent":
            rows, _, steps = shape.partition("x")
            return recurrent_problem(int(rows), int(steps), **machine)
        assert folder is not None
        return read_piper(folder / self.instance, bandwidth_bytes_per_s=25 * GIB, **machine)


def training_cases(folder: Path | None = None) -> Iterator[TrainingCase]:
    """Yield every case: generated instances, then the files that `folder` has."""
    shapes: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = [("chain-24", (8, 2), (8, 32))]
    shapes += [(f"recurrent-{rows}x{steps}", (80, 8), (2, 4, 8, 16, 32, 64)) for rows, steps in RECURRENT]
    for instance, memories, devices in shapes:
        for memory in memories:
            for count in devices:
                yield from (TrainingCase(instance, count, memory, method) for method in PLAN_METHODS)
    for name, table in PIPER_FILES.items():
        if folder is not None and (folder / name).is_file():
            for memory_gib, counts in table:
                for count in counts:
                    yield from (TrainingCase(name, count, memory_gib, method) for method in PLAN_METHODS)


def run_case(
    case: TrainingCase, folder: Path | None, on_progress: Callable[[Incumbent], None] | None = None
) -> dict[str, Any]:
    """Solve one case; return its row."""
    problem = case.problem(folder)
    before = os.times()
    result = solve_plan(problem, case.method, stop=MaxRuntime(case.time_limit_s), on_progress=on_progress)
    after = os.times()
    return {
        "schema": SCHEMA,
        **asdict(case),
        "objective_s": result.objective,
        "bound_s": result.lower_bound,
        "proven_gap": result.gap,
        "status": str(result.status),
        "num_stages": None if result.plan is None else len(result.plan.stages),
        "runtime_s": result.runtime_s,
        "compile_s": result.compile_s,
        "cpu_s": after.user + after.system - before.user - before.system,
        "peak_bytes": peak_bytes(),
        "info": {name: value for name, value in result.info.items() if isinstance(value, int | float | str)},
        **circumstances(),
    }


def read_training_rows(path: Path) -> dict[TrainingCase, dict[str, Any]]:
    """Return the latest row of every case in `path`; none if there is no such file.

    Raises
    ------
    InvalidFileError
        A line that is no row of this suite.
    """
    found: dict[TrainingCase, dict[str, Any]] = {}
    for number, row in read_lines(path):
        if row.get("schema") != SCHEMA:
            raise InvalidFileError(f"{path}, line {number}: no row of the suite 'training'")
        try:
            case = TrainingCase(*(row[name] for name in TrainingCase.__dataclass_fields__))
        except KeyError as error:
            raise InvalidFileError(f"{path}, line {number}: {error} is missing") from None
        found[case] = row
    return found


def markdown_table(rows: dict[TrainingCase, dict[str, Any]]) -> str:
    """Return a table: the proven objective, its stages and seconds, and every other method's objective over it."""
    methods = [method for method in PLAN_METHODS if method != "dp"]
    lines = [
        "| instance | devices | memory GiB | dp | bound | stages | s | " + " | ".join(methods) + " |",
        "|---|---:|---:|---:|---:|---:|---:|" + "---:|" * len(methods),
    ]
    by_problem: dict[tuple[str, int, float], dict[str, dict[str, Any]]] = {}
    for case, row in rows.items():
        by_problem.setdefault((case.instance, case.devices, case.memory_gib), {})[case.method] = row
    for (instance, devices, memory), found in by_problem.items():
        dp = found.get("dp")
        best = None if dp is None else dp["objective_s"]
        cells = [instance, str(devices), f"{memory:g}"]
        if dp is None:
            cells += ["-"] * 4
        elif best is None:
            cells += [
                "nothing fits" if dp["status"] == "infeasible" else dp["status"],
                "-",
                "-",
                f"{dp['runtime_s']:.2f}",
            ]
        else:
            proven = "proven" if dp["status"] == "optimal" else f"gap {dp['proven_gap']:.2%}"
            cells += [f"{best:.6g}", proven, str(dp["num_stages"]), f"{dp['runtime_s']:.2f}"]
        for method in methods:
            other = found.get(method)
            if other is None:
                cells.append("-")
            elif other["objective_s"] is None:
                cells.append("no plan")
            else:
                cells.append(f"{other['objective_s'] / best:.3f}" if best else f"{other['objective_s']:.6g}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
