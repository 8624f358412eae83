"""The ablation: its cases, its rows and its tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import placekit as pk
from placekit.benchmarks.ablation import (
    VARIANTS,
    AblationCase,
    cases,
    markdown_table,
    read_rows,
    reference_of,
    run_case,
)
from placekit.benchmarks.families import generate
from placekit.benchmarks.rows import append_row
from placekit.errors import InvalidFileError
from placekit.learned.features import FEATURE_GROUPS
from placekit.objectives import SerialLatency

CASE = AblationCase("resnet50", "serial-latency", "paper", "without node id", 40, 0)


@pytest.fixture
def problem() -> pk.Problem:
    """Return a small problem."""
    return generate("layered", 20, num_devices=2, objective=SerialLatency())


def test_variants_leave_out_what_they_say() -> None:
    """By groups that exist; the paper's form never has what the paper does not know."""
    assert {group for groups in VARIANTS.values() for group in groups} | {"type"} == set(FEATURE_GROUPS)
    assert CASE.without == "order,bytes,flops,times"
    assert replace(CASE, fidelity="placekit").without == "order"
    assert replace(CASE, variant="all features", fidelity="placekit").without == ""


def test_every_variant_gets_the_same_placements_models_and_seeds() -> None:
    """Five seeds of three models, for every form and objective."""
    found = cases()
    assert len(found) == len(set(found)) == 3 * 5 * 3 * len(VARIANTS)
    budgets = {(case.fidelity, case.objective, case.evaluations) for case in found}
    assert len(budgets) == 3


def test_rows_survive_the_file_and_seeds_repeat(problem: pk.Problem, tmp_path: Path) -> None:
    """Evaluations end the training, not the clock: the same case gives the same objective."""
    reference_s = reference_of(problem)
    path = tmp_path / "rows.jsonl"
    row = run_case(CASE, problem, reference_s)
    append_row(path, row)
    assert list(read_rows(path)) == [CASE]
    assert 0 < reference_s <= row["objective_s"]
    assert 40 <= row["scored"] < 40 + 20 + 5  # an episode, the single devices and the answer of the policy
    assert run_case(CASE, problem, reference_s)["objective_s"] == row["objective_s"]


def test_table_gives_mean_and_interval_above_the_bound() -> None:
    """Two seeds, 10 % and 20 % above; one seed has no interval; what is missing is a dash."""
    rows = {
        replace(CASE, seed=seed): {"objective_s": seconds, "reference_s": 1.0}
        for seed, seconds in enumerate((1.1, 1.2))
    }
    rows[replace(CASE, model="bert_base")] = {"objective_s": 2.0, "reference_s": 1.0}
    lines = markdown_table(rows).splitlines()
    assert lines[0] == "| paper, serial-latency, 40 placements | resnet50 | inception_v3 | bert_base |"
    assert lines[4] == "| without node id | 15.0 (10.0 to 20.0) | - | 100.0 |"


def test_foreign_rows_are_named(tmp_path: Path) -> None:
    """A row of another benchmark is an error that names the line."""
    append_row(tmp_path / "rows.jsonl", {"benchmark": "other"})
    with pytest.raises(InvalidFileError, match="line 1: no row of this benchmark"):
        read_rows(tmp_path / "rows.jsonl")
