"""Makespan on generated families: list schedulers, searches and exact methods, each against the best proven bound.

Run by ``make makespan``. Rows are appended to ``benchmarks/rows/makespan.jsonl``; cases that have a row there are not
run again, so a long run can be stopped at any time and continued. At the end the tables are printed as Markdown.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from placekit.benchmarks.circumstances import ROOT
from placekit.benchmarks.families import generate
from placekit.benchmarks.markdown import markdown_line
from placekit.benchmarks.measure import measured_solve
from placekit.benchmarks.rows import append_row, read_lines
from placekit.errors import InvalidFileError
from placekit.objectives import Makespan
from placekit.problem import Problem
from placekit.stop import relative_gap

__all__ = [
    "Instance",
    "MakespanCase",
    "held_out_cases",
    "held_out_instances",
    "large_cases",
    "main",
    "markdown_table",
    "read_rows",
    "small_cases",
    "spread_cases",
    "spread_instances",
]

Row = dict[str, Any]

ROWS = ROOT / "benchmarks" / "rows" / "makespan.jsonl"
CLOSE = 0.01
"""Gap at which an exact method may stop."""
SMALL_FAMILIES = ("transformer", "feed-forward-shards", "inception", "chained-matmuls", "layered")
SMALL_SETTINGS = (
    # ops, devices, equal, transfer ratio: every family meets few and many devices, cheap and dear transfers
    (60, 2, True, 0.1),
    (120, 4, False, 1.0),
    (200, 8, True, 1.0),
    (250, 4, False, 10.0),
)
SPREAD_PER_FAMILY = 8
SPREAD_DEVICES = (2, 2, 3, 4, 5, 6, 7, 8)
HELD_OUT_SEED = 4
"""Of the levels; the graphs have seeds from a hundred times that on."""
LARGE_FAMILIES = ("transformer", "layered")
LARGE_SIZES = (1_000, 10_000)
SMALL_METHODS = (
    ("heft", 60.0, None),
    ("m-etf", 60.0, None),
    ("m-sct", 60.0, None),
    ("local-search", 20.0, None),
    ("lns", 20.0, CLOSE),
    ("cpsat", 120.0, CLOSE),
    ("auto", 120.0, CLOSE),
)
SPREAD_METHODS = (("heft", 60.0, None), ("m-etf", 60.0, None), ("auto", 120.0, CLOSE))
LARGE_METHODS = (
    ("heft", 60.0, None),
    ("m-etf", 60.0, None),
    ("m-sct", 60.0, None),
    ("auto", 300.0, CLOSE),
)
"""Method, time limit in seconds, gap at which to stop."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A generated problem; the arguments of `placekit.benchmarks.families.generate`."""

    family: str
    size: int
    num_devices: int
    equal: bool
    transfer_ratio: float
    graph_seed: int = 0

    def problem(self) -> Problem:
        """Return the problem."""
        return generate(
            self.family,
            self.size,
            self.graph_seed,
            num_devices=self.num_devices,
            equal=self.equal,
            transfer_ratio=self.transfer_ratio,
            objective=Makespan(),
        )

    def __str__(self) -> str:
        devices = f"{self.num_devices} {'equal' if self.equal else 'unequal'}"
        seed = f", seed {self.graph_seed}" if self.graph_seed else ""
        return f"{self.family} {self.size}, {devices}, {self.transfer_ratio:g}{seed}"


@dataclass(frozen=True, slots=True)
class MakespanCase:
    """One solve: instance, method, time limit in seconds, gap at which to stop, seed."""

    instance: Instance
    method: str
    time_limit_s: float
    gap: float | None = None
    seed: int = 0


def small_cases() -> list[MakespanCase]:
    """Return the cases of up to 250 ops, method by method, the quick ones first."""
    instances = [Instance(family, *how) for how, family in itertools.product(SMALL_SETTINGS, SMALL_FAMILIES)]
    return [MakespanCase(instance, *how) for how, instance in itertools.product(SMALL_METHODS, instances)]


def spread_instances(seed: int = 0) -> list[Instance]:
    """Return instances spread over all that the families are made of: a Latin hypercube for each family.

    Sizes from 50 to 250 ops, 2 to 8 devices, half of the platforms equal, transfers from 0.1 to 10 mean op times
    (evenly in the logarithm): every level once, combined at random.
    """
    rng = np.random.default_rng(seed)
    instances = []
    for family in SMALL_FAMILIES:
        sizes = rng.permutation(np.linspace(50, 250, SPREAD_PER_FAMILY).round().astype(int))
        devices = rng.permutation(SPREAD_DEVICES)
        equal = rng.permutation([True, False] * (SPREAD_PER_FAMILY // 2))
        ratios = rng.permutation(np.round(10.0 ** np.linspace(-1, 1, SPREAD_PER_FAMILY), 2))
        levels = zip(sizes.tolist(), devices.tolist(), equal.tolist(), ratios.tolist(), strict=True)
        instances += [Instance(family, *level) for level in levels]
    return instances


def spread_cases() -> list[MakespanCase]:
    """Return the cases of the spread instances."""
    return [MakespanCase(instance, *how) for how, instance in itertools.product(SPREAD_METHODS, spread_instances())]


def held_out_instances(seed: int = HELD_OUT_SEED) -> list[Instance]:
    """Return instances on which nothing was developed: as `spread_instances`, each with a graph seed of its own.

    So heads, shards, tiles and widths are drawn anew for each; with one graph seed, a family has the same in all.
    """
    return [replace(instance, graph_seed=100 * seed + number) for number, instance in enumerate(spread_instances(seed))]


def held_out_cases() -> list[MakespanCase]:
    """Return the cases of the instances that were held out."""
    return [MakespanCase(instance, *how) for how, instance in itertools.product(SPREAD_METHODS, held_out_instances())]


def large_cases() -> list[MakespanCase]:
    """Return the cases of 1,000 and 10,000 ops."""
    instances = [Instance(family, size, 4, False, 1.0) for size in LARGE_SIZES for family in LARGE_FAMILIES]
    return [MakespanCase(instance, *how) for how, instance in itertools.product(LARGE_METHODS, instances)]


def run_case(case: MakespanCase) -> Row:
    """Return the row of a case."""
    row = measured_solve(case.instance.problem(), case.method, case.time_limit_s, case.gap, case.seed)
    return {"benchmark": "makespan", **asdict(case), **row}


def read_rows(path: Path) -> dict[MakespanCase, Row]:
    """Return the rows of a file by case, the latest of each.

    Raises
    ------
    InvalidFileError
        A line that is no row of this benchmark.
    """
    rows: dict[MakespanCase, Row] = {}
    for number, row in read_lines(path):
        try:
            instance = Instance(**row["instance"])
            rows[MakespanCase(instance, row["method"], row["time_limit_s"], row["gap"], row["seed"])] = row
        except (KeyError, TypeError) as error:
            raise InvalidFileError(f"{path}, line {number}: no row of this benchmark: {error!r}") from None
    return rows


def best_bound(rows: Iterable[Row]) -> float:
    """Return the largest bound that any method proved, in seconds; 0 if none did."""
    return max((row["bound_s"] for row in rows if row["bound_s"] is not None), default=0.0)


def markdown_table(rows: Mapping[MakespanCase, Row]) -> str:
    """Return a table: a line per instance, the gap of every method to the best bound, and the shares within 1 %."""
    methods = list(dict.fromkeys(case.method for case in rows))
    by_instance: dict[Instance, dict[str, Row]] = {}
    for case, row in rows.items():
        by_instance.setdefault(case.instance, {})[case.method] = row
    proven = [found for found in by_instance.values() if best_bound(found.values())]
    lines = [markdown_line(["instance", "bound (ms)", *methods]), markdown_line(["---"] * (len(methods) + 2))]
    closed = dict.fromkeys(methods, 0)
    for instance, found in by_instance.items():
        bound = best_bound(found.values())
        cells = []
        for method in methods:
            if method not in found:
                cells.append("-")
                continue
            gap = relative_gap(found[method]["objective_s"], bound) if bound else None
            closed[method] += gap is not None and gap <= CLOSE
            cells.append("none" if gap is None else f"{gap:.2%}; {found[method]['runtime_s']:.3g} s")
        lines.append(markdown_line([str(instance), f"{bound * 1e3:.4g}" if bound else "-", *cells]))
    shares = (f"{closed[method]} of {sum(method in found for found in proven)}" for method in methods)
    lines.append(markdown_line([f"within {CLOSE:.0%}", "", *shares]))
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what has no row yet, and print the tables."""
    tables = {
        "small": small_cases(),
        "spread": spread_cases(),
        "held-out": held_out_cases(),
        "large": large_cases(),
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, default=ROWS, help="file that rows are appended to")
    parser.add_argument("--only", choices=tuple(tables), help="one of the tables")
    parser.add_argument("--method", help="one method")
    parser.add_argument("--table", action="store_true", help="only print the tables of the rows that are there")
    options = parser.parse_args(arguments)
    known = read_rows(options.rows)
    for name, cases in tables.items():
        if options.only not in (None, name):
            continue
        wanted = [case for case in cases if case not in known and options.method in (None, case.method)]
        for number, case in enumerate([] if options.table else wanted, 1):
            row = run_case(case)
            append_row(options.rows, row)
            known[case] = row
            gap = "no proof" if row["proven_gap"] is None else f"proven gap {row['proven_gap']:.2%}"
            print(
                f"[{number}/{len(wanted)}] {case.instance}: {case.method}, {gap}, {row['runtime_s']:.3g} s", flush=True
            )
        present = {case: known[case] for case in cases if case in known}
        if present:
            print(f"\n{markdown_table(present)}\n")


if __name__ == "__main__":
    main()
