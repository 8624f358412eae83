"""How far the shipped policy is from the optimum before and after a minute of training on the graph itself.

The policy was trained on generated graphs only (:mod:`placekit.learned.pretrain`). ``python -m
placekit.benchmarks.fine_tuning`` applies it to HSDAG's three models on a CPU and an accelerator, then goes on training
it there by ``gdp``, over five seeds; from scratch for the same time with ``--scratch``. Rows are appended to
``benchmarks/rows/fine_tuning.jsonl``; cases that have a row there are not run again. A quarter of an hour on a quiet
machine. The same for one model: ``placekit learn MODEL -m gdp --policy pretrained --objective serial-latency
--time-limit 60``.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from placekit.benchmarks.ablation import percent_cell
from placekit.benchmarks.circumstances import ROOT, circumstances
from placekit.benchmarks.markdown import markdown_line
from placekit.benchmarks.rows import append_row, read_cases
from placekit.benchmarks.two_kinds import MODEL_PARAMETERS, two_kind_problem
from placekit.objectives import SerialLatency
from placekit.problem import Problem
from placekit.solve import solve
from placekit.stop import MaxRuntime

__all__ = ["TuningCase", "cases", "main", "markdown_table", "read_rows", "run_case"]

Row = dict[str, Any]

ROWS = ROOT / "benchmarks" / "rows" / "fine_tuning.jsonl"
SEEDS = range(5)
TIME_LIMIT_S = 60.0
MODELS = tuple(MODEL_PARAMETERS)


@dataclass(frozen=True, slots=True)
class TuningCase:
    """One training: model, whether it begins with the shipped policy, seconds, seed."""

    model: str
    is_pretrained: bool
    time_limit_s: float
    seed: int


def cases(*, is_pretrained: bool, time_limit_s: float = TIME_LIMIT_S) -> list[TuningCase]:
    """Return a case per seed and model."""
    return [TuningCase(model, is_pretrained, time_limit_s, seed) for seed, model in itertools.product(SEEDS, MODELS)]


def run_case(case: TuningCase, problem: Problem) -> Row:
    """Return the row of a case: optimum, answer without training, answer with it."""
    from placekit.learned.gdp.method import Gdp, GdpParams
    from placekit.learned.method import Session
    from placekit.learned.policy import PRETRAINED

    optimum = solve(problem, "mincut")
    before = solve(problem, "policy:pretrained", seed=case.seed) if case.is_pretrained else None
    # without an end of its own: the clock decides
    method = Gdp(GdpParams(updates=10**9, patience=0), Session(policy=PRETRAINED if case.is_pretrained else None))
    result = solve(problem, method, stop=MaxRuntime(case.time_limit_s), seed=case.seed)
    return {
        "benchmark": "fine-tuning",
        **asdict(case),
        "optimum_s": optimum.objective,
        "zero_shot_s": None if before is None else before.objective,
        "zero_shot_runtime_s": None if before is None else before.runtime_s,
        "objective_s": result.objective,
        "runtime_s": result.runtime_s,
        "updates": result.info["updates"],
        "evaluations": result.evaluations,
    } | circumstances()


def read_rows(path: Path) -> dict[TuningCase, Row]:
    """Return the rows of a file by case, the latest of each.

    Raises
    ------
    InvalidFileError
        A line that is no row of this benchmark.
    """
    return read_cases(path, "fine-tuning", TuningCase)


def markdown_table(rows: Mapping[TuningCase, Row]) -> str:
    """Return percent above the optimum, mean and interval over the seeds, per way and model."""
    lines = [markdown_line(["", *MODELS]), markdown_line(["---"] * (1 + len(MODELS)))]
    for is_pretrained, limit_s in dict.fromkeys((case.is_pretrained, case.time_limit_s) for case in rows):
        found = {
            model: [
                row
                for case, row in rows.items()
                if (case.model, case.is_pretrained, case.time_limit_s) == (model, is_pretrained, limit_s)
            ]
            for model in MODELS
        }
        if is_pretrained:
            cells = (_cell(found[model], "zero_shot_s") for model in MODELS)
            lines.append(markdown_line(["`policy:pretrained`, no training", *cells]))
        begin = "`policy:pretrained`" if is_pretrained else "scratch"
        cells = (_cell(found[model], "objective_s") for model in MODELS)
        lines.append(markdown_line([f"`gdp` from {begin}, {limit_s:g} s", *cells]))
    return "\n".join(lines)


def _cell(rows: Iterable[Row], name: str) -> str:
    return percent_cell([100 * (row[name] / row["optimum_s"] - 1) for row in rows])


def main(arguments: Sequence[str] | None = None) -> None:
    """Train what has no row yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, default=ROWS, help="file that rows are appended to")
    parser.add_argument("--models", type=Path, help="folder where model files are kept; else they are built each time")
    parser.add_argument("--time-limit", type=float, default=TIME_LIMIT_S, metavar="SECONDS", help="of every training")
    parser.add_argument("--scratch", action="store_true", help="begin with fresh weights")
    parser.add_argument("--table", action="store_true", help="only print the table of the rows that are there")
    options = parser.parse_args(arguments)
    known = read_rows(options.rows)
    all_cases = cases(is_pretrained=not options.scratch, time_limit_s=options.time_limit)
    wanted = [] if options.table else [case for case in all_cases if case not in known]
    problems: dict[str, Problem] = {}
    for number, case in enumerate(wanted, 1):
        if case.model not in problems:
            problems[case.model] = two_kind_problem(case.model, SerialLatency(), directory=options.models)
        row = run_case(case, problems[case.model])
        append_row(options.rows, row)
        known[case] = row
        above = row["objective_s"] / row["optimum_s"] - 1
        print(f"[{number}/{len(wanted)}] {case.model}, seed {case.seed}: {above:.2%} above the optimum", flush=True)
    if known:
        print(f"\n{markdown_table(known)}\n")


if __name__ == "__main__":
    main()
