"""The ablation of the makespan's mechanisms: the suite's cases, effects from pairs, and the table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from placekit.benchmarks.ablation_makespan import effects, main, proof_s, read_rows
from placekit.benchmarks.suite import read_suite
from placekit.errors import InvalidFileError
from placekit.solvers.makespan.mechanisms import Mechanisms


def row(label: str, model: str, seed: int, proven_at_s: float | None, bound_s: float = 0.9) -> dict[str, Any]:
    """Return a row that has a schedule of 1 s at once, and its proof then."""
    trace = [[0.1, 1.0, 0.5], [proven_at_s or 5.0, 1.0, bound_s if proven_at_s is None else 0.995]]
    return {
        "suite": "ablation-makespan",
        "case": f"{label}-{model}-{seed}",
        "error": None,
        "label": label,
        "model": model,
        "seed": seed,
        "time_limit_s": 10.0,
        "gap": 0.01,
        "objective_s": 1.0,
        "bound_s": trace[-1][2],
        "trace": trace,
    }


def test_the_suite_leaves_out_every_mechanism_once() -> None:
    """All, and without each; five seeds, instances of seeds that nothing else uses."""
    content = read_suite("ablation-makespan").content
    assert [entry.params for entry in content.method] == [{}, *({"without": name} for name in Mechanisms.names())]
    assert all(entry.name == "auto" for entry in content.method)
    assert len(content.seeds) >= 5
    drawn = [seed for model in content.model for seed in model.seeds]
    assert len(set(drawn)) == len(drawn) >= 10
    assert min(drawn) > 7000


def test_effects_are_of_pairs() -> None:
    """Twice as slow on both instances; runs without a partner do not count; without a proof it is the limit."""
    rows = [row("all", model, seed, 2.0) for model in "ab" for seed in range(5)]
    rows += [row("without x", model, seed, 4.0) for model in "ab" for seed in range(5)]
    rows += [row("without x", "c", 0, 100.0), row("without y", "a", 0, None)]
    found = effects(rows)
    slower = found["without x"].slower
    assert found["without x"].num_pairs == 10
    assert (slower.value, slower.low, slower.high) == pytest.approx((1.0, 1.0, 1.0))
    assert found["without x"].wider.value == 0.0
    assert found["without x"].verdict == "shows"
    assert found["without y"].slower.value == pytest.approx(4.0)
    assert found["without y"].wider.value == pytest.approx(0.095)
    assert (found["without y"].proofs_with, found["without y"].proofs_without) == (1, 0)
    assert found["without y"].verdict == "within noise"  # of one pair there is no interval


def test_noise_does_not_show() -> None:
    """As often faster as slower: the interval has zero in it; always faster without is harm."""
    rows = [row("all", model, seed, 2.0) for model in "abcd" for seed in range(6)]
    rows += [row("without x", model, seed, 1.0 if seed % 2 else 4.0) for model in "abcd" for seed in range(6)]
    rows += [row("without y", model, seed, 1.0) for model in "abcd" for seed in range(6)]
    found = effects(rows)
    assert found["without x"].verdict == "within noise"
    assert found["without y"].verdict == "harms"


def test_the_table_is_made_from_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The latest row of a case, of the limit that most have."""
    rows = [row("all", "a", seed, 2.0) for seed in range(3)] + [row("without x", "a", seed, 9.0) for seed in range(3)]
    rows += [row("without x", "a", seed, 4.0) for seed in range(3)]
    rows.append({**row("all", "a", 0, 0.2), "case": "other", "time_limit_s": 1.0})
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    assert {proof_s(each) for each in read_rows(path)} == {2.0, 4.0}
    assert [proof_s(each) for each in read_rows(path, 1.0)] == [0.2]
    main([str(path)])
    assert "| without x | 3 | 3 | 3 | +100% (+100% to +100%) | +0.00% (+0.00% to +0.00%) | shows |" in (
        capsys.readouterr().out
    )


def test_other_rows_are_refused(tmp_path: Path) -> None:
    """A file of another suite, or none."""
    path = tmp_path / "rows.jsonl"
    with pytest.raises(InvalidFileError, match="there is no file"):
        read_rows(path)
    path.write_text(json.dumps({"suite": "quick", "case": "x"}) + "\n")
    with pytest.raises(InvalidFileError, match="line 1: no row of the suite ablation-makespan"):
        read_rows(path)
