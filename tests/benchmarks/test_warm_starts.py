"""The benchmark of warm starts: its cases, its rows, what it counts, its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import placekit as pk
from placekit.benchmarks import warm_starts
from placekit.benchmarks.makespan import Instance
from placekit.benchmarks.rows import append_row
from placekit.benchmarks.warm_starts import read_rows, warm_cases
from placekit.benchmarks.warm_starts_case import CountingReward, WarmCase, run_learner, run_search
from placekit.benchmarks.warm_starts_table import evaluations_table, onwards_table, time_table
from placekit.errors import InvalidFileError, PlacekitError

TINY = Instance("layered", 20, 2, False, 1.0)


def learner_row(reached_after: int | None, evaluations: int) -> dict[str, Any]:
    """Return what the first table reads of a row."""
    spent = {"reached_after": reached_after, "evaluations": evaluations}
    return spent | {"first_mean_s": 3.0, "start_s": 2.0}


def search_row(*trace: tuple[float, float]) -> dict[str, Any]:
    """Return what the second table reads of a row that ends after 8 s."""
    return {"objective_s": trace[-1][1], "runtime_s": 8.0, "trace": [[*line, None] for line in trace]}


def test_every_seed_of_every_start_is_there_once() -> None:
    """Learners come before the searches that start from them; without workloads there are only generated problems."""
    cases = warm_cases(Path())
    assert len(set(cases)) == len(cases) == 3 * 5 * 3 + 4 * 5 * 3 + 6 * 5 * 6
    assert len(warm_cases(None)) == 3 * 5 * 3 + 4 * 5 * 3 + 3 * 5 * 6
    for at, case in enumerate(cases):
        if case.start.startswith("learned"):
            assert WarmCase("time", case.instance, "hsdag", "cold", case.seed) in cases[:at]


def test_placements_are_counted_until_the_first_good_one(diamond: pk.Problem) -> None:
    """Over batches; the objectives are the judge's."""
    problem = diamond.replace(objective=pk.SerialLatency())
    rows = np.zeros((3, 4), dtype=np.int64)
    single = pk.evaluate(problem, pk.Placement.of(problem, rows[0])).objective
    assert single is not None
    never, at_once = CountingReward(problem, single * 0.1), CountingReward(problem, single)
    for reward in (never, at_once):
        assert reward(rows) == pytest.approx([single] * 3)
        reward(rows)
    assert (never.count, never.reached_after) == (6, None)
    assert (at_once.count, at_once.reached_after) == (6, 1)


def test_a_cloned_optimum_is_found_again_at_once() -> None:
    """From the optimum, a learner needs a few evaluations; without it, many more."""
    rng = np.random.default_rng(0)
    names = [f"o{i}" for i in range(60)]
    graph = pk.OpGraph.from_edges(names, [(names[rng.integers(i)], names[i]) for i in range(1, 60)])
    costs = pk.CostTable(("cpu", "gpu"), rng.lognormal(size=(60, 2)), rng.random((graph.num_tensors, 2)), np.zeros(60))
    problem = pk.Problem(graph, pk.Platform.of(cpu=1, gpu=1, host="cpu"), costs, pk.SerialLatency())
    found = {
        start: run_learner(problem, WarmCase("evaluations", "m", "hsdag", start, 0), max_evaluations=1500)
        for start in ("cold", "biased", "cloned")
    }
    assert found["cold"]["cloning_updates"] == found["biased"]["cloning_updates"] == 0
    assert found["cloned"]["cloning_updates"] > 0
    for start in ("biased", "cloned"):
        assert 0 < found[start]["reached_after"] < 300
        assert found[start]["first_mean_s"] < found["cold"]["first_mean_s"]
    assert found["cold"]["reached_after"] is None or found["cold"]["reached_after"] > 300


def test_a_search_goes_on_from_the_learner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a short run are all there, a second run has nothing to do, and warm starts are no worse."""
    monkeypatch.setattr(warm_starts, "GENERATED", (TINY,))
    monkeypatch.setattr(warm_starts, "LEARN_S", 1.0)
    monkeypatch.setattr(warm_starts, "SEARCH_S", 0.5)
    monkeypatch.setattr(warm_starts, "NUM_SEEDS", 1)
    monkeypatch.setattr(warm_starts, "warm_up", lambda: None)
    path = tmp_path / "rows.jsonl"
    arguments = ["--rows", str(path), "--only", "time", "--workloads", str(tmp_path / "none")]
    warm_starts.main(arguments)
    rows = read_rows(path)
    assert len(rows) == 6
    learned = rows[WarmCase("time", str(TINY), "hsdag", "cold", 0)]
    assert len(learned["device_of_op"]) == len(learned["uncertainty"]) == 20
    for case, row in rows.items():
        if case.start != "cold":
            assert row["objective_s"] <= learned["objective_s"] * (1 + 1e-9)
            assert row["trace"][0][1] == pytest.approx(learned["objective_s"])
    content = path.read_bytes()
    warm_starts.main(arguments)
    assert path.read_bytes() == content


def test_a_search_without_its_learner_is_an_error() -> None:
    """It says which case."""
    case = WarmCase("time", str(TINY), "lns", "learned", 0)
    with pytest.raises(PlacekitError, match=r"'lns', start='learned', seed=0\): the learner has no row"):
        run_search(TINY.problem(), case, None, 1.0)


def test_the_first_table_counts_what_was_spent() -> None:
    """A learner that gave up counts with all its evaluations; ratios are of medians."""
    runs = (("cold", 0, None, 6000), ("cold", 1, 4000, 4100), ("cloned", 0, 5, 10), ("cloned", 1, 5, 10))
    rows = {
        WarmCase("evaluations", "m", "hsdag", start, seed): learner_row(reached, spent)
        for start, seed, reached, spent in runs
    }
    lines = evaluations_table(rows).splitlines()
    assert lines[2] == "| model | cold | cloned | cold / cloned |"
    assert lines[4].startswith("| m | 5,000 (1 of 2); 50% | 5 (2 of 2); 50% | 1,000 (800 to 1,200) |")


def test_the_table_of_ends_is_relative_to_the_start() -> None:
    """Every learner has a line; the ratio is of warm over cold."""
    rows = {
        WarmCase("onwards", "m", "gdp", start, seed): {"objective_s": objective_s, "start_s": 2.0}
        for start, seed, objective_s in (("cold", 0, 3.0), ("cold", 1, 3.0), ("cloned", 0, 1.5), ("cloned", 1, 1.5))
    }
    assert onwards_table(rows).splitlines()[2:] == [
        "| learner, model | cold | cloned | cloned / cold |",
        "| --- | --- | --- | --- |",
        "| gdp, m | +50.0% | -25.0% | 0.5 (0.5 to 0.5) |",
    ]


def test_the_second_table_counts_the_learner_apart() -> None:
    """Time to 1 % of the best that any run found, with and without the learner's 8 s; late runs count whole."""
    rows = {
        WarmCase("time", "p", "hsdag", "cold", 0): search_row((1.0, 5.0)),
        WarmCase("time", "p", "lns", "cold", 0): search_row((1.0, 5.0), (4.0, 2.01), (5.0, 2.0)),
        WarmCase("time", "p", "lns", "learned", 0): search_row((0.0, 5.0), (2.0, 2.0)),
        WarmCase("time", "p", "local-search", "cold", 0): search_row((1.0, 4.0)),
    }
    parts = time_table(rows).split("\n\n")
    assert parts[1].splitlines()[2:] == [
        "| p | 4 s (1 of 1); 0.0% | 2 s (1 of 1); 0.0% | 2 | 0.4 | 1 |",
        "| all |  |  | 2 | 0.4 | 1 |",
    ]
    assert parts[3].splitlines()[2:] == ["| p | 8 s (0 of 1); 100.0% |", "| all |  |"]


def test_foreign_rows_are_named(tmp_path: Path) -> None:
    """A row of another benchmark is an error that names the line."""
    path = tmp_path / "rows.jsonl"
    append_row(path, {"benchmark": "other"})
    with pytest.raises(InvalidFileError, match="line 1: no row of this benchmark"):
        read_rows(path)
