"""The ablation of the HSDAG paper (arXiv 2405.14185, table 3) with intervals: which features the answer depends on.

The paper leaves out the output shape, the node id or the structural features (fractal dimension and degrees) of one
training each. Here there are five seeds, the same number of placements for all, the proven optimum beside them, and a
row without any feature but the op's type. Run by ``python -m placekit.benchmarks.ablation``; rows are appended to
``benchmarks/rows/ablation.jsonl``, and cases that have a row there are not run again. No clock ends a run: the load of
the machine changes nothing but how long it takes.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time
from types import MappingProxyType
from typing import Any

from placekit.benchmarks.circumstances import ROOT, circumstances
from placekit.benchmarks.markdown import markdown_line
from placekit.benchmarks.rows import append_row, read_cases
from placekit.benchmarks.statistics import bootstrap_interval
from placekit.benchmarks.two_kinds import MODEL_PARAMETERS, two_kind_problem
from placekit.objectives import Makespan, Objective, SerialLatency
from placekit.problem import Problem
from placekit.solve import solve
from placekit.stop import MaxIterations, MaxRuntime

__all__ = ["VARIANTS", "AblationCase", "cases", "main", "markdown_table", "percent_cell", "read_rows", "run_case"]

Row = dict[str, Any]

ROWS = ROOT / "benchmarks" / "rows" / "ablation.jsonl"
SEEDS = range(5)
VARIANTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "all features": (),
        "without output shape": ("shape",),
        "without node id": ("order",),
        "without structural features": ("degree", "fractal"),
        "op types only": ("degree", "fractal", "shape", "bytes", "flops", "times", "order"),
    }
)
"""Groups of features that are left out, by the paper's names; the last variant is not the paper's."""

BUDGETS: Mapping[tuple[str, str], int] = MappingProxyType(
    {
        # as many as the released code takes, 25 episodes of 20 steps
        ("paper", "serial-latency"): 500,
        ("placekit", "serial-latency"): 40_000,
        ("placekit", "makespan"): 40_000,
    }
)
"""Placements that a training scores, by fidelity and objective."""

_OBJECTIVES: Mapping[str, type[Objective]] = MappingProxyType({"serial-latency": SerialLatency, "makespan": Makespan})
_BEYOND_THE_PAPER = ("bytes", "flops", "times")
_BOUND_S = 10.0


@dataclass(frozen=True, slots=True)
class AblationCase:
    """One training: model, objective, form of HSDAG, variant, placements to score, seed."""

    model: str
    objective: str
    fidelity: str
    variant: str
    evaluations: int
    seed: int

    @property
    def without(self) -> str:
        """The feature groups that are left out; the paper's form never has those that the paper does not know."""
        left_out = VARIANTS[self.variant] + (_BEYOND_THE_PAPER if self.fidelity == "paper" else ())
        return ",".join(dict.fromkeys(left_out))


def cases() -> list[AblationCase]:
    """Return all cases, one table after the other."""
    return [
        AblationCase(model, objective, fidelity, variant, evaluations, seed)
        for (fidelity, objective), evaluations in BUDGETS.items()
        for seed, model, variant in itertools.product(SEEDS, MODEL_PARAMETERS, VARIANTS)
    ]


def run_case(case: AblationCase, problem: Problem, reference_s: float) -> Row:
    """Return the row of a case.

    Parameters
    ----------
    case
        What to train.
    problem
        Its problem.
    reference_s
        What the objective is compared with.
    """
    begun_s = process_time()
    result = solve(
        problem,
        "hsdag",
        stop=MaxIterations(case.evaluations),
        seed=case.seed,
        # without an end of its own
        params={"fidelity": case.fidelity, "without": case.without, "updates": 10**9, "patience": 0},
    )
    return {
        "benchmark": "ablation",
        **asdict(case),
        "without": case.without,
        "objective_s": result.objective,
        "reference_s": reference_s,
        "scored": result.evaluations,
        "updates": result.info["updates"],
        "cpu_s": process_time() - begun_s,
        "runtime_s": result.runtime_s,
    } | circumstances()


def reference_of(problem: Problem) -> float:
    """Return the optimum of a serial latency, the best proven bound of anything else, in seconds."""
    bound = solve(problem, "bound", stop=MaxRuntime(_BOUND_S)).lower_bound
    return 0.0 if bound is None else bound


def read_rows(path: Path) -> dict[AblationCase, Row]:
    """Return the rows of a file by case, the latest of each.

    Raises
    ------
    InvalidFileError
        A line that is no row of this benchmark.
    """
    return read_cases(path, "ablation", AblationCase)


def markdown_table(rows: Mapping[AblationCase, Row]) -> str:
    """Return a table per form and objective: percent above the best bound, mean and interval over the seeds."""
    bounds: dict[tuple[str, str], float] = {}
    for case, row in rows.items():
        key = case.model, case.objective
        bounds[key] = max(bounds.get(key, 0.0), row["reference_s"])
    parts = []
    for fidelity, objective, evaluations in dict.fromkeys((c.fidelity, c.objective, c.evaluations) for c in rows):
        heads = [f"{fidelity}, {objective}, {evaluations:,} placements", *MODEL_PARAMETERS]
        lines = [markdown_line(heads), markdown_line(["---"] * len(heads))]
        for variant in VARIANTS:
            cells = [variant]
            for model in MODEL_PARAMETERS:
                found = [
                    100 * (row["objective_s"] / bounds[model, objective] - 1)
                    for case, row in rows.items()
                    if (case.model, case.objective, case.fidelity, case.variant, case.evaluations)
                    == (model, objective, fidelity, variant, evaluations)
                ]
                cells.append(percent_cell(found))
            lines.append(markdown_line(cells))
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def percent_cell(percent: Sequence[float]) -> str:
    """Return mean and 95 % interval of the runs of a cell; a dash for none."""
    if not percent:
        return "-"
    interval = bootstrap_interval({"": percent}, statistics.fmean)
    if interval.low is None or interval.high is None:
        return f"{interval.value:.1f}"
    return f"{interval.value:.1f} ({interval.low:.1f} to {interval.high:.1f})"


def main(arguments: Sequence[str] | None = None) -> None:
    """Train what has no row yet, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, default=ROWS, help="file that rows are appended to")
    parser.add_argument("--models", type=Path, help="folder where model files are kept; else they are built each time")
    parser.add_argument("--fidelity", choices=("paper", "placekit"), help="one form")
    parser.add_argument("--objective", choices=tuple(_OBJECTIVES), help="one objective")
    parser.add_argument("--again", action="store_true", help="train cases that have a row, too; the latest row counts")
    parser.add_argument("--table", action="store_true", help="only print the tables of the rows that are there")
    options = parser.parse_args(arguments)
    known = read_rows(options.rows)
    wanted = [
        case
        for case in cases()
        if (options.again or case not in known)
        and options.fidelity in (None, case.fidelity)
        and options.objective in (None, case.objective)
    ]
    problems: dict[tuple[str, str], tuple[Problem, float]] = {}
    for number, case in enumerate([] if options.table else wanted, 1):
        key = case.model, case.objective
        if key not in problems:
            problem = two_kind_problem(case.model, _OBJECTIVES[case.objective](), directory=options.models)
            problems[key] = problem, reference_of(problem)
        row = run_case(case, *problems[key])
        append_row(options.rows, row)
        known[case] = row
        above = row["objective_s"] / row["reference_s"] - 1 if row["reference_s"] else float("nan")
        print(
            f"[{number}/{len(wanted)}] {case.fidelity}, {case.objective}, {case.model}, {case.variant}, seed "
            f"{case.seed}: {above:.2%} above the bound, {row['cpu_s']:.0f} s of CPU time",
            flush=True,
        )
    present = {case: known[case] for case in cases() if case in known}
    if present:
        print(f"\n{markdown_table(present)}\n")


if __name__ == "__main__":
    main()
