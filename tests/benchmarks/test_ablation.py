"""The ablations: the suites leave out every mechanism, effects are of pairs, and the table is made from rows."""

from __future__ import annotations

import json
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from placekit.benchmarks.ablation import effects, main, markdown_table, proof_s, read_rows
from placekit.benchmarks.draws import drawn_models
from placekit.benchmarks.suite import read_suite
from placekit.errors import InvalidFileError
from placekit.solvers.makespan import mechanisms as makespan
from placekit.solvers.offload_latency import mechanisms as offload_latency
from placekit.solvers.serial_latency import mechanisms as serial_latency
from placekit.solvers.switches import Switches
from placekit.solvers.throughput import mechanisms as throughput
from placekit.solvers.training_plan import mechanisms as training_plan


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


@pytest.mark.parametrize(
    ("suite", "tables"),
    [
        ("makespan", [makespan.Mechanisms]),
        ("throughput", [throughput.Mechanisms]),
        ("latency", [offload_latency.Mechanisms, serial_latency.Mechanisms, training_plan.Mechanisms]),
    ],
)
def test_the_suite_leaves_out_every_mechanism(suite: str, tables: list[type[Switches]]) -> None:
    """Each is the last of what some run does without, and that run has its partner; no problem is drawn twice."""
    content = read_suite(f"ablation-{suite}").content
    left_out = {(entry.name, str(entry.params.get("without", ""))) for entry in content.method}
    assert {without.rpartition(",")[2] for _, without in left_out} - {""} == {
        name for table in tables for name in table.names()
    }
    assert all((name, without.rpartition(",")[0]) in left_out for name, without in left_out)
    models = [*content.model, *(model for draw in content.draw for model in drawn_models(draw))]
    drawn = [seed for model in models if model.family and not model.machines for seed in model.seeds]
    assert len(set(drawn)) == len(drawn) >= 10
    assert len(content.seeds) >= 5 or len(drawn) >= 20
    assert all(min(model.seeds) > 7000 for model in content.model if model.family and not model.machines)
    names = [model.name or "" for model in models]
    for entry in content.method:
        assert any(fnmatch(name, each) for name in names for each in entry.models or ("*",)), entry.label


def test_effects_are_of_pairs() -> None:
    """Twice as slow on both problems; runs without a partner do not count; without a proof it is the limit."""
    rows = [row("", model, seed, 2.0) for model in "ab" for seed in range(5)]
    rows += [row("x", model, seed, 4.0) for model in "ab" for seed in range(5)]
    rows += [row("x", "c", 0, 100.0), row("y", "a", 0, None), row("z", "a", 0, 1.0, "bound")]
    other, one = effects(rows)
    assert (one.method, one.without, one.num_pairs, one.better, one.worse) == ("auto", "x", 10, 0, 0)
    assert (one.gain.value, one.verdict) == (0.0, "shows")
    assert one.slower is not None
    assert (one.slower.value, one.slower.low, one.slower.high) == pytest.approx((1.0, 1.0, 1.0))
    assert other.slower is not None
    assert (other.slower.value, other.gain.value) == pytest.approx((4.0, 0.095))
    assert other.better == 1
    assert other.verdict == "within noise"  # of one pair there is no interval


def test_a_run_is_compared_with_the_nearest_that_lacks_less() -> None:
    """Without its last mechanism, or the last ones where no run is nearer."""
    rows = [row("", model, 0, None, "bound", bound_s=0.8) for model in "abc"]
    rows += [row("x", model, 0, None, "bound", bound_s=0.6) for model in "abc"]
    rows += [row("x,y", model, 0, None, "bound", bound_s=0.6) for model in "abc"]
    rows += [row("z,x", model, 0, None, "bound", bound_s=0.4) for model in "abc"]
    found = {effect.without: (effect.gain.value, effect.verdict) for effect in effects(rows)}
    assert found == {
        "x": (pytest.approx(0.25), "shows"),
        "x,y": (0.0, "within noise"),
        "z,x": (pytest.approx(0.5), "shows"),
    }


def test_noise_does_not_show() -> None:
    """As often faster as slower: the interval has zero in it; always faster without is harm."""
    rows = [row("", model, seed, 2.0) for model in "abcd" for seed in range(6)]
    rows += [row("x", model, seed, 1.0 if seed % 2 else 4.0) for model in "abcd" for seed in range(6)]
    rows += [row("y", model, seed, 1.0) for model in "abcd" for seed in range(6)]
    assert {effect.without: effect.verdict for effect in effects(rows)} == {"x": "within noise", "y": "harms"}


def test_searches_are_measured_by_objectives_and_proofs_by_what_is_known() -> None:
    """What a method does not look for is that of the best run on the problem; rows may say nothing of times."""
    rows = [row("", "a", seed, 2.0) for seed in range(2)]
    for seed in range(2):
        for name, makespan_s in (("", 1.1), ("x", 1.21)):
            rows.append(
                row(name, "a", seed, None, "local-search", objective_s=makespan_s, trace=[[1, makespan_s, 0.1]])
            )
        for name, bound_s in (("", 0.98), ("y", 0.9)):
            rows.append(
                row(name, "a", seed, None, "bound", objective_s=3.0, bound_s=bound_s, trace=[[1, 3.0, bound_s]])
            )
    bound, search = effects(rows)
    assert search.gain.value == pytest.approx(0.1)
    assert search.slower is None
    assert bound.gain.value == pytest.approx(1 - 0.9 / 0.98)
    assert proof_s(row("", "a", 0, 3.0, "bound", gap=0.01), 1.0, 0.995) == 3.0
    assert proof_s(row("", "a", 0, 3.0, "bound", gap=0.001), 1.0, 0.995) is None
    no_times = [{key: value for key, value in each.items() if key != "trace"} for each in rows]
    assert all(effect.slower is None for effect in effects(no_times))


def test_the_table_is_made_from_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The latest row of a case counts, failed ones do not, and limits are kept apart."""
    rows = [row("", "a", seed, 2.0) for seed in range(3)] + [row("x", "a", seed, 9.0) for seed in range(3)]
    rows += [row("x", "a", seed, 4.0) for seed in range(3)]
    rows += [row("", "a", 0, 0.1, case="short", time_limit_s=1.0), row("x", "a", 0, 0.2, case="too", time_limit_s=1.0)]
    rows.append(row("y", "a", 0, 0.2, case="dead", error="killed"))
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    assert {proof_s(each, 1.0, 0.995) for each in read_rows(path, "ablation-makespan")} == {2.0, 4.0, 0.1, 0.2}
    main(["makespan", str(path)])
    printed = capsys.readouterr().out
    assert "| auto, 10 s | x | 3 | 0 | 0 | +0.00% (+0.00% to +0.00%) | +100% (+100% to +100%) | shows |" in printed
    assert "| auto, 1 s | x | 1 | 0 | 0 | +0.00% | +100% | within noise |" in printed
    assert " y " not in printed
    assert markdown_table([]).count("\n") == 1


def test_other_rows_are_refused(tmp_path: Path) -> None:
    """A file of another suite, or none."""
    path = tmp_path / "rows.jsonl"
    with pytest.raises(InvalidFileError, match="there is no file"):
        read_rows(path, "ablation-makespan")
    path.write_text(json.dumps({"suite": "quick", "case": "x"}) + "\n")
    with pytest.raises(InvalidFileError, match="line 1: no row of the suite ablation-makespan"):
        read_rows(path, "ablation-makespan")
