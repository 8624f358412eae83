"""The ablation of the makespan's mechanisms: the suite's cases, effects from pairs, and the table."""

from __future__ import annotations

import json
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from placekit.benchmarks.ablation_makespan import effects, main, proof_s, read_rows
from placekit.benchmarks.suite import read_suite
from placekit.errors import InvalidFileError
from placekit.solvers.makespan.mechanisms import Mechanisms


def row(
    without: str, model: str, seed: int, proven_at_s: float | None, method: str = "auto", **changed: Any
) -> dict[str, Any]:
    """Return a row that has a schedule of 1 s at once, and then its proof, or a bound of 0.9 s."""
    bound_s = 0.9 if proven_at_s is None else 0.995
    return {
        "suite": "ablation-makespan",
        "case": f"{method}-{without}-{model}-{seed}",
        "error": None,
        "method": method,
        "params": {"without": without} if without else {},
        "model": model,
        "seed": seed,
        "time_limit_s": 10.0,
        "gap": 0.01,
        "objective_s": 1.0,
        "bound_s": bound_s,
        "trace": [[0.1, 1.0, 0.5], [proven_at_s or 5.0, 1.0, bound_s]],
        **changed,
    }


AUTO = ("auto", 10.0)


def test_the_suite_leaves_out_every_mechanism() -> None:
    """Each method with all, and without each that it has; five seeds, instances of seeds that nothing else uses."""
    content = read_suite("ablation-makespan").content
    left_out: dict[str, list[Any]] = {}
    for entry in content.method:
        left_out.setdefault(entry.name, []).append(entry.params.get("without"))
    assert left_out["auto"] == [None, *Mechanisms.names()]
    assert left_out["local-search"][0] is left_out["bound"][0] is None
    assert {*left_out["local-search"][1:], *left_out["bound"][1:]} == set(Mechanisms.names()) - {"rising-limits"}
    assert len(content.seeds) >= 5
    drawn = [seed for model in content.model for seed in model.seeds]
    assert len(set(drawn)) == len(drawn) >= 10
    assert min(drawn) > 7000
    names = [model.name or "" for model in content.model]
    assert all(any(fnmatch(name, each) for name in names) for entry in content.method for each in entry.models or ())


def test_the_short_version_takes_less_than_half_an_hour() -> None:
    """Search and bounds on the core instances, 8 s each, on two cores."""
    content = read_suite("ablation-makespan").content
    core = [model.name for model in content.model if model.name is not None and "core" in model.name]
    solves = [
        model
        for entry in content.method
        if entry.name in ("local-search", "bound")
        for model in core
        if entry.models is None or any(fnmatch(model, each) for each in entry.models)
    ]
    assert len(solves) * len(content.seeds) * 8 / 2 <= 1800


def test_effects_are_of_pairs() -> None:
    """Twice as slow on both instances; runs without a partner do not count; without a proof it is the limit."""
    rows = [row("", model, seed, 2.0) for model in "ab" for seed in range(5)]
    rows += [row("x", model, seed, 4.0) for model in "ab" for seed in range(5)]
    rows += [row("x", "c", 0, 100.0), row("y", "a", 0, None), row("z", "a", 0, 1.0, "bound")]
    found = effects(rows)
    assert set(found[AUTO]) == {"x", "y"}
    assert not found["bound", 10.0]
    one, other = found[AUTO]["x"], found[AUTO]["y"]
    assert (one.num_pairs, one.wider.value, one.verdict) == (10, 0.0, "shows")
    assert (one.slower.value, one.slower.low, one.slower.high) == pytest.approx((1.0, 1.0, 1.0))
    assert (other.slower.value, other.wider.value) == pytest.approx((4.0, 0.095))
    assert (other.proofs_with, other.proofs_without) == (1, 0)
    assert other.verdict == "within noise"  # of one pair there is no interval


def test_noise_does_not_show() -> None:
    """As often faster as slower: the interval has zero in it; always faster without is harm."""
    rows = [row("", model, seed, 2.0) for model in "abcd" for seed in range(6)]
    rows += [row("x", model, seed, 1.0 if seed % 2 else 4.0) for model in "abcd" for seed in range(6)]
    rows += [row("y", model, seed, 1.0) for model in "abcd" for seed in range(6)]
    found = effects(rows)[AUTO]
    assert found["x"].verdict == "within noise"
    assert found["y"].verdict == "harms"


def test_a_search_is_measured_by_the_best_bound_and_a_bound_by_the_best_schedule() -> None:
    """What a method does not look for is that of the best run on the instance."""
    rows = [row("", "a", seed, 2.0) for seed in range(2)]
    for seed in range(2):
        for name, makespan_s in (("", 1.1), ("x", 1.2)):
            trace = [[1.0, makespan_s, 0.1]]
            rows.append(row(name, "a", seed, None, "local-search", objective_s=makespan_s, bound_s=0.1, trace=trace))
        for name, bound_s in (("", 0.98), ("y", 0.9)):
            trace = [[1.0, 3.0, bound_s]]
            rows.append(row(name, "a", seed, None, "bound", objective_s=3.0, bound_s=bound_s, trace=trace))
    found = effects(rows)
    assert found["local-search", 10.0]["x"].wider.value == pytest.approx((1 - 0.995 / 1.2) - (1 - 0.995 / 1.1))
    assert found["bound", 10.0]["y"].wider.value == pytest.approx(0.08)


def test_the_table_is_made_from_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The latest row of a case counts, and limits are kept apart."""
    rows = [row("", "a", seed, 2.0) for seed in range(3)] + [row("x", "a", seed, 9.0) for seed in range(3)]
    rows += [row("x", "a", seed, 4.0) for seed in range(3)]
    rows.append(row("x", "a", 0, 0.2, case="other", time_limit_s=1.0))
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    assert {proof_s(each) for each in read_rows(path)} == {2.0, 4.0, 0.2}
    main([str(path)])
    printed = capsys.readouterr().out
    assert "| auto, 10 s, without | pairs |" in printed
    assert "| x | 3 | 3 | 3 | +100% (+100% to +100%) | +0.00% (+0.00% to +0.00%) | shows |" in printed


def test_other_rows_are_refused(tmp_path: Path) -> None:
    """A file of another suite, or none."""
    path = tmp_path / "rows.jsonl"
    with pytest.raises(InvalidFileError, match="there is no file"):
        read_rows(path)
    path.write_text(json.dumps({"suite": "quick", "case": "x"}) + "\n")
    with pytest.raises(InvalidFileError, match="line 1: no row of the suite ablation-makespan"):
        read_rows(path)
