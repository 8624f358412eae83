"""Warm starts, both ways: what a proven placement does for a learner, and a learned placement for a search.

Part ``evaluations``: HSDAG on the three models of its paper, serial latency. How many placements does it have to score
until one of its own is within 2 % of the optimum: cold, with a bias towards the optimum (``clone=0``), and with the
optimum cloned? Counted in evaluations, so that the load of the machine does not matter. (The warm start itself does not
count: it is not the learner's.)

Part ``onwards``: HSDAG and GDP on two of them, makespan. How far do they get within so many placements: cold, and from
what ``heft`` found, with a bias or cloned?

Part ``time``: ``local-search`` and ``lns`` on throughput without contiguity and on makespan. How long until they are
within 1 % of the best placement that any run found: cold, from what HSDAG found in `LEARN_S` seconds, and, for ``lns``,
with neighbourhoods drawn by the policy's uncertainty, too? Wall seconds: run it on a machine with nothing else to do.

Run by ``python -m placekit.benchmarks.warm_starts``. Rows are appended to ``benchmarks/rows/warm_starts.jsonl``; cases
that have a row there are not run again. At the end the tables are printed as Markdown.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from placekit.benchmarks.circumstances import ROOT, circumstances
from placekit.benchmarks.makespan import Instance
from placekit.benchmarks.rows import append_row, read_cases
from placekit.benchmarks.two_kinds import MODEL_PARAMETERS, two_kind_problem
from placekit.benchmarks.warm_starts_case import LEARNER, Row, WarmCase, run_learner, run_search
from placekit.benchmarks.warm_starts_table import evaluations_table, onwards_table, time_table
from placekit.contiguity import Contiguity
from placekit.errors import PlacekitError
from placekit.io.workload_json import read_workload
from placekit.objectives import Makespan, SerialLatency, Throughput
from placekit.problem import Problem
from placekit.solve import solve
from placekit.stop import MaxRuntime

__all__ = ["main", "read_rows", "warm_cases"]

ROWS = ROOT / "benchmarks" / "rows" / "warm_starts.jsonl"
WORKLOADS = ROOT.parent / "shared" / "workloads" / "msr" / "throughput"
NUM_SEEDS = 5
MAX_EVALUATIONS = 60_000
"""Placements after which a learner gives up."""
ONWARDS = (("hsdag", 20_000), ("gdp", 2_000))
"""Learners, and placements after which they end: an update of GDP scores fewer, and takes longer."""
LEARN_S = 10.0
"""Seconds of a learner that another method starts from."""
SEARCH_S = 8.0
"""Seconds of a search."""
STARTS = ("cold", "biased", "cloned")
SEARCHES = (
    ("local-search", "cold"),
    ("local-search", "learned"),
    ("lns", "cold"),
    ("lns", "learned"),
    ("lns", "learned, uncertainty"),
)
"""Methods and what they begin with."""
GENERATED = (
    Instance("layered", 120, 4, False, 1.0),
    Instance("feed-forward-shards", 250, 4, False, 10.0),
    Instance("chained-matmuls", 250, 4, False, 10.0),
)
"""Makespan problems that ``cpsat`` leaves open after two minutes."""
OPEN_WORKLOADS = ("operator_bert_l-6_inference", "operator_bert_l-6_training", "operator_bert_l-12_inference")
"""Throughput problems that are open after a minute."""


def warm_cases(workloads: Path | None) -> list[WarmCase]:
    """Return all cases; those of the part ``time`` seed by seed, the learner first.

    Parameters
    ----------
    workloads
        Folder of the public throughput workloads; None to leave them out.
    """
    learning = [
        WarmCase("evaluations", model, LEARNER, start, seed)
        for model, seed, start in itertools.product(MODEL_PARAMETERS, range(NUM_SEEDS), STARTS)
    ]
    onwards = [
        WarmCase("onwards", model, method, start, seed)
        for model, (method, _), seed, start in itertools.product(
            ("inception_v3", "bert_base"), ONWARDS, range(NUM_SEEDS), STARTS
        )
    ]
    instances = [*map(str, GENERATED), *(OPEN_WORKLOADS if workloads is not None else ())]
    searching = [
        WarmCase("time", instance, method, start, seed)
        for seed, instance in itertools.product(range(NUM_SEEDS), instances)
        for method, start in ((LEARNER, "cold"), *SEARCHES)
    ]
    return learning + onwards + searching


def time_problem(instance: str, workloads: Path | None) -> Problem:
    """Return the problem of the part ``time`` with that name."""
    for generated in GENERATED:
        if str(generated) == instance:
            return generated.problem()
    if workloads is None:
        raise PlacekitError(f"workload {instance!r}: no folder was given")
    return read_workload(workloads / f"{instance}.json").replace(objective=Throughput(), contiguity=Contiguity.NONE)


def warm_up() -> None:
    """Load and compile on a small problem what is timed later."""
    problem = Instance("layered", 30, 2, False, 1.0).problem()
    for each in (problem, problem.replace(objective=Throughput(), contiguity=Contiguity.NONE)):
        for method in (LEARNER, "local-search", "lns"):
            solve(each, method, stop=MaxRuntime(2))


def read_rows(path: Path) -> dict[WarmCase, Row]:
    """Return the rows of a file by case, the latest of each.

    Raises
    ------
    InvalidFileError
        A line that is no row of this benchmark.
    """
    return read_cases(path, "warm_starts", WarmCase)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what has no row yet, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, default=ROWS, help="file that rows are appended to")
    parser.add_argument("--only", choices=("evaluations", "onwards", "time"), help="one of the parts")
    parser.add_argument("--workloads", type=Path, default=WORKLOADS, help="folder of public throughput workloads")
    parser.add_argument(
        "--models", type=Path, help="folder where the zoo's models are, or are kept; built anew if none"
    )
    parser.add_argument("--table", action="store_true", help="only print the tables of the rows that are there")
    options = parser.parse_args(arguments)
    workloads = options.workloads if options.workloads.is_dir() else None
    if workloads is None:
        print(f"{options.workloads}: no such folder; the throughput problems are left out")
    cases = warm_cases(workloads)
    known = read_rows(options.rows)
    wanted = [case for case in cases if case not in known and options.only in (None, case.part)]
    problems: dict[tuple[str, str], Problem] = {}
    if not options.table and any(case.part == "time" for case in wanted):
        warm_up()
    for number, case in enumerate([] if options.table else wanted, 1):
        key = case.part, case.instance
        if key not in problems:
            problems[key] = _problem(case, options.models, workloads)
        row = _run(problems[key], case, known)
        append_row(options.rows, row)
        known[case] = row
        print(f"[{number}/{len(wanted)}] {case.instance}: {case.method} {case.start}, {_told(row)}", flush=True)
    present = {case: known[case] for case in cases if case in known}
    for part, table in (("evaluations", evaluations_table), ("onwards", onwards_table), ("time", time_table)):
        rows = {case: row for case, row in present.items() if case.part == part}
        if rows:
            print(f"\n{table(rows)}")


def _problem(case: WarmCase, models: Path | None, workloads: Path | None) -> Problem:
    if case.part == "time":
        return time_problem(case.instance, workloads)
    objective = SerialLatency() if case.part == "evaluations" else Makespan()
    return two_kind_problem(case.instance, objective, directory=models)


def _run(problem: Problem, case: WarmCase, known: dict[WarmCase, Row]) -> Row:
    if case.part == "evaluations":
        found = run_learner(problem, case, MAX_EVALUATIONS)
    elif case.part == "onwards":
        found = run_learner(problem, case, dict(ONWARDS)[case.method])
    else:
        learned = known.get(WarmCase("time", case.instance, LEARNER, "cold", case.seed))
        found = run_search(problem, case, learned, LEARN_S if case.method == LEARNER else SEARCH_S)
    size = {"num_ops": problem.graph.num_ops, "num_devices": problem.platform.num_devices}
    return {"benchmark": "warm_starts", **asdict(case), **size, **found, **circumstances()}


def _told(row: Row) -> str:
    if row["part"] == "evaluations":
        after = row["reached_after"]
        return f"not near after {row['evaluations']}" if after is None else f"near after {after} evaluations"
    return f"{row['objective_s']:.6g} s"


if __name__ == "__main__":
    main()
