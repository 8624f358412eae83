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
    """The first solve of a process whose cache of kernels is empty: compiling comes before the clock starts."""
    problem = generate("layered", 300, seed=1, num_devices=4, equal=False, objective=objective)
    pk.write_problem(problem, tmp_path / "p.json")
    late = []
    for number, method in enumerate(methods(problem)):
        took_s = solve_in_a_process(tmp_path / "p.json", method, LIMIT_S, tmp_path / f"cache{number}")["took_s"]
        logger.info("%6.2f s %s %s", took_s, objective.name, method)
        if took_s > allowed_s(LIMIT_S):
            late.append(f"{took_s:.2f} s: {method}")
    assert late == []
