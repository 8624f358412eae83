"""The ablation of the throughput's mechanisms: the suite's cases, effects from pairs, and the table."""

from __future__ import annotations

from typing import Any

import pytest

from placekit.benchmarks.ablation_throughput import effects, markdown_table
from placekit.benchmarks.suite import read_suite
from placekit.solvers.throughput.mechanisms import Mechanisms


def row(method: str, without: str, seed: int, *, objective_s: float = 1.0, bound_s: float = 0.5) -> dict[str, Any]:
    """Return a row of a run that ended well."""
    params = {"without": without} if without else {}
    result = {"objective_s": objective_s, "bound_s": bound_s, "error": None}
    return {"method": method, "params": params, "model": f"m{seed % 2}", "seed": seed, **result}


def test_the_suite_leaves_out_every_mechanism() -> None:
    """Each is the last of what some run does without, and that run has its partner."""
    content = read_suite("ablation-throughput").content
    left_out = {(entry.name, str(entry.params.get("without", ""))) for entry in content.method}
    assert {without.rpartition(",")[2] for _, without in left_out} - {""} == set(Mechanisms.names())
    assert all((name, without.rpartition(",")[0]) in left_out for name, without in left_out)


def test_effects_compare_with_the_run_that_has_the_last_mechanism() -> None:
    """Objectives of searches, bounds of bounds; a failed run, or one without a partner, does not count."""
    rows = [row("local-search", "", seed) for seed in range(4)]
    rows += [row("local-search", "clusters", seed, objective_s=1.1 + seed / 100) for seed in range(5)]
    rows += [row("bound", "bottleneck", seed) for seed in range(4)]
    rows += [row("bound", "bottleneck,forced-cuts", seed, bound_s=0.5) for seed in range(4)]
    rows.append(row("local-search", "clusters", 0, objective_s=9.0) | {"error": "killed"})
    cuts, clusters = effects(rows)
    assert (clusters.without, clusters.num_pairs, clusters.better, clusters.worse) == ("clusters", 4, 4, 0)
    assert clusters.gain.value == pytest.approx(0.115)
    assert (cuts.without, cuts.gain.value, cuts.verdict) == ("bottleneck,forced-cuts", 0.0, "within noise")
    assert clusters.verdict == "shows"
    assert "| local-search | clusters | 4 | 4 | 0 | +11.50%" in markdown_table([clusters])
