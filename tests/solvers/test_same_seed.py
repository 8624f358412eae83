"""Same seed, same answer: for every baseline and heuristic that ends by itself or by a limit in iterations."""

from __future__ import annotations

from itertools import product

import pytest

import placekit as pk
from placekit.benchmarks.generators.families import generate
from placekit.model.errors import SolverUnavailableError
from placekit.objectives import OBJECTIVES
from placekit.solve.lifting.relaxed import why_not
from placekit.solve.registry import METHODS, get_method

NAMES = [name for name, entry in METHODS.items() if entry.family in ("baseline", "heuristic") and not entry.argument]
SHORT: dict[str, dict[str, float]] = {"local-search": {"patience": 2, "steps": 50}}
"""Parameters with which methods that do not count iterations end soon."""


@pytest.mark.parametrize("name", NAMES)
def test_a_limit_in_iterations_gives_the_same_answer_twice(name: str) -> None:
    """40 ops are too many for a proof at once; no limit is in wall time."""
    params, compared = SHORT.get(name), 0
    for objective, contiguity in product(OBJECTIVES.values(), ("none", "acyclic")):
        problem = generate("layered", 40, num_devices=3, equal=False, objective=objective()).replace(
            contiguity=contiguity
        )
        if contiguity == "acyclic" and compared:
            continue
        try:
            if why_not(get_method(name, params, problem.objective.name), problem) is not None:
                continue
        except SolverUnavailableError as error:
            pytest.skip(str(error))
        found = [pk.solve(problem, name, stop=pk.MaxIterations(300), seed=7, params=params) for _ in range(2)]
        assert found[0].placement is not None, problem.objective.name
        assert found[0].placement == found[1].placement, problem.objective.name
        compared += 1
    assert compared
