"""The limit of a solve holds, too, where its kernels have to be compiled first."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from limited import LIMIT_S, OBJECTIVES, allowed_s, methods, solve_in_a_process

import placekit as pk
from placekit.benchmarks.generators.families import generate

logger = logging.getLogger(__name__)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda objective: objective.name)
def test_every_method_ends_in_time_without_kernels(objective: pk.Objective, tmp_path: Path) -> None:
    """The first solves of a cache of kernels: compiling comes before the clock starts.

    Method ``auto`` has an empty cache; the others share one, in which each finds what those before it have called.
    """
    problem = generate("layered", 300, seed=1, num_devices=4, equal=False, objective=objective)
    pk.write_problem(problem, tmp_path / "p.json")
    late = []
    for method in methods(problem):
        cache = tmp_path / ("of auto" if method == "auto" else "of others")
        took_s = solve_in_a_process(tmp_path / "p.json", method, LIMIT_S, cache)["took_s"]
        logger.info("%6.2f s %s %s", took_s, objective.name, method)
        if took_s > allowed_s(LIMIT_S):
            late.append(f"{took_s:.2f} s: {method}")
    assert late == []
