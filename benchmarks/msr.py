"""The public workloads of Tarnawski et al. (NeurIPS 2020): every method on every graph, one JSON row per solve.

Run by ``placekit bench msr FOLDER``. The folder holds workload files under ``throughput/`` and ``latency/``, and
expert splits under ``experts/`` (``LAYER_expert.json``). Rows carry the case, what came out, and the circumstances;
rows that a file already has can be skipped, so that a long run may be stopped at any time and continued.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from placekit.benchmarks.measure import measured_solve
from placekit.benchmarks.rows import read_lines
from placekit.errors import InvalidFileError, SolverUnavailableError
from placekit.io.workload_json import read_workload
from placekit.problem import Problem
from placekit.result import Incumbent
from placekit.solvers.registry import get_method

__all__ = ["MsrCase", "Row", "msr_cases", "read_rows", "run_cases"]

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class MsrCase:
    """One solve.

    Parameters
    ----------
    workload
        Path of the file below the folder, such as ``throughput/layer_bert24_inference.json``.
    objective, contiguity, method
        Names.
    time_limit_s
        Wall seconds.
    gap
        Relative gap at which to stop; None to go on.
    seed
        The seed.
    """

    workload: str
    objective: str
    contiguity: str
    method: str
    time_limit_s: float
    gap: float | None = None
    seed: int = 0


_THROUGHPUT = (
    ("acyclic", "dpl", 60.0, None),
    ("acyclic", "dp", 60.0, None),
    ("acyclic", "cpsat", 120.0, None),
    ("acyclic", "ilp", 300.0, 1e-3),
    ("acyclic", "greedy", 60.0, None),
    ("acyclic", "pipedream", 60.0, None),
    ("acyclic", "metis", 60.0, None),
    ("none", "scotch", 60.0, None),
    ("none", "single", 60.0, None),
    ("none", "file", 60.0, None),
    ("none", "local-search", 60.0, None),
    ("none", "auto", 60.0, None),
    ("none", "auto", 600.0, 0.05),
)
_LATENCY = (
    ("none", "single", 60.0, None),
    ("none", "greedy", 60.0, None),
    ("none", "dp", 60.0, None),
    ("none", "local-search", 60.0, None),
    ("none", "cpsat", 60.0, None),
    ("none", "auto", 60.0, None),
    ("none", "auto", 600.0, 0.05),
)
"""Contiguity, method, time limit, gap of what is run on every workload."""


def msr_cases(folder: Path) -> list[MsrCase]:
    """Return the cases of a folder, the quick ones of each workload first.

    Raises
    ------
    InvalidFileError
        The folder has no workloads.
    """
    found = [
        MsrCase(f"{kind}/{path.name}", objective, *how)
        for kind, objective, table in (
            ("throughput", "throughput", _THROUGHPUT),
            ("latency", "offload-latency", _LATENCY),
        )
        for path in sorted((folder / kind).glob("*.json"))
        for how in table
        if how[1] != "file" or _expert(folder, path.stem).is_file()
    ]
    if not found:
        raise InvalidFileError(f"{folder}: no workloads; there should be files throughput/*.json or latency/*.json")
    return sorted(found, key=lambda case: (case.objective != "throughput", case.time_limit_s))


def run_cases(
    folder: Path, cases: Sequence[MsrCase], on_progress: Callable[[Incumbent], None] | None = None
) -> Iterator[Row]:
    """Run the cases one after the other, and yield their rows; methods that are not installed are left out.

    Parameters
    ----------
    folder
        Where the workloads are.
    cases
        What to run.
    on_progress
        Called with every new line of a running solve's trace.
    """
    problems: dict[str, Problem] = {}
    for case in cases:
        if case.workload not in problems:
            problems = {case.workload: read_workload(folder / case.workload)}
        problem = problems[case.workload].replace(objective=_objective(case), contiguity=case.contiguity)
        params = _params(folder, case)
        try:
            get_method(case.method, params)
        except SolverUnavailableError:
            continue
        yield _run(problem, case, params, on_progress)


def _run(
    problem: Problem, case: MsrCase, params: Mapping[str, Any], on_progress: Callable[[Incumbent], None] | None
) -> Row:
    row = measured_solve(problem, case.method, case.time_limit_s, case.gap, case.seed, params, on_progress)
    return {"benchmark": "msr", **asdict(case), **row}


def _objective(case: MsrCase) -> Any:
    from placekit.objectives import get_objective

    return get_objective(case.objective)


def _expert(folder: Path, workload: str) -> Path:
    """Return the expert's split of a workload; that of the inference graph does for training, too."""
    name = workload.removeprefix("layer_")
    own = folder / "experts" / f"{name}_expert.json"
    return own if own.is_file() else folder / "experts" / f"{name.replace('_training', '_inference')}_expert.json"


def _params(folder: Path, case: MsrCase) -> dict[str, Any]:
    if case.method != "file":
        return {}
    workload = folder / case.workload
    return {"path": str(_expert(folder, workload.stem)), "workload": str(workload)}


def read_rows(path: Path) -> dict[MsrCase, Row]:
    """Return the rows of a file by case, the latest of each; an empty dictionary if there is no file.

    Raises
    ------
    InvalidFileError
        A line that is no row of this benchmark.
    """
    rows: dict[MsrCase, Row] = {}
    for number, row in read_lines(path):
        try:
            rows[MsrCase(**{name: row[name] for name in MsrCase.__dataclass_fields__})] = row
        except KeyError as error:
            raise InvalidFileError(f"{path}, line {number}: no row of this benchmark: it lacks {error}") from None
    return rows
