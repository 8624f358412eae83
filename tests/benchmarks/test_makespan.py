"""The makespan benchmark: its cases, its rows and its table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from placekit.benchmarks.makespan import (
    Instance,
    MakespanCase,
    held_out_cases,
    held_out_instances,
    large_cases,
    markdown_table,
    read_rows,
    run_case,
    small_cases,
    spread_cases,
    spread_instances,
)
from placekit.benchmarks.rows import append_row
from placekit.errors import InvalidFileError

TINY = Instance("layered", 20, 2, True, 1.0)


def row(objective_s: float | None, bound_s: float | None) -> dict[str, Any]:
    """Return what the table reads of a row."""
    return {"objective_s": objective_s, "bound_s": bound_s, "runtime_s": 2.0}


def test_table_measures_every_method_against_the_best_bound() -> None:
    """The bound of one method judges the others; an answer within 1 % counts, one without an answer does not."""
    rows = {
        MakespanCase(TINY, "heft", 1.0): row(2e-3, None),
        MakespanCase(TINY, "lns", 1.0): row(1.005e-3, 0.5e-3),
        MakespanCase(TINY, "cpsat", 1.0): row(None, 1e-3),
    }
    lines = markdown_table(rows).splitlines()
    assert lines[2] == "| layered 20, 2 equal, 1 | 1 | 50.00%; 2 s | 0.50%; 2 s | none |"
    assert lines[3] == "| within 1% |  | 0 of 1 | 1 of 1 | 0 of 1 |"


def test_rows_survive_the_file(tmp_path: Path) -> None:
    """A solved case is found again under the same case, with a proof for a tiny instance."""
    case = MakespanCase(TINY, "cpsat", 300.0, 0.01)
    path = tmp_path / "rows.jsonl"
    append_row(path, run_case(case))
    found = read_rows(path)
    assert set(found) == {case}
    assert found[case]["proven_gap"] <= 0.01


def test_foreign_rows_are_named(tmp_path: Path) -> None:
    """A row of another benchmark is an error that names the line."""
    path = tmp_path / "rows.jsonl"
    append_row(path, {"benchmark": "other"})
    with pytest.raises(InvalidFileError, match="line 1: no row of this benchmark"):
        read_rows(path)


def test_cases_are_what_the_tables_promise() -> None:
    """Twenty, forty and forty instances of at most 250 ops and four large ones, each with every method once."""
    for cases, count in ((small_cases(), 20), (spread_cases(), 40), (held_out_cases(), 40), (large_cases(), 4)):
        assert len(set(cases)) == len(cases)
        instances = {case.instance for case in cases}
        assert len(instances) == count
        assert all(instance.problem().graph.num_ops <= instance.size for instance in instances)


def test_spread_instances_meet_every_level_once() -> None:
    """Eight sizes, eight ratios, both kinds of platforms in each family; another seed combines them otherwise."""
    instances = spread_instances()
    assert instances == spread_instances(0) != spread_instances(1)
    for family in {instance.family for instance in instances}:
        own = [instance for instance in instances if instance.family == family]
        assert sorted(instance.size for instance in own) == [50, 79, 107, 136, 164, 193, 221, 250]
        assert sorted(instance.num_devices for instance in own) == [2, 2, 3, 4, 5, 6, 7, 8]
        assert sum(instance.equal for instance in own) == 4
        ratios = sorted(instance.transfer_ratio for instance in own)
        assert (ratios[0], ratios[-1], len(set(ratios))) == (0.1, 10.0, 8)


def test_what_was_held_out_has_graphs_of_its_own() -> None:
    """The same levels, combined otherwise; every graph has a seed of its own, and the printed instance says which."""
    held_out, spread = held_out_instances(), spread_instances()
    assert len({instance.graph_seed for instance in held_out}) == len(held_out)
    assert not {instance.graph_seed for instance in held_out} & {instance.graph_seed for instance in spread}
    assert sorted(instance.size for instance in held_out) == sorted(instance.size for instance in spread)
    assert all(str(instance).endswith(f", seed {instance.graph_seed}") for instance in held_out)
    assert not any("seed" in str(instance) for instance in spread)
