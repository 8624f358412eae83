"""``placekit warm-up``: what it compiles is there afterwards."""

from __future__ import annotations

import pytest

from placekit.cli.warm_up import METHODS, OBJECTIVES, _problems
from placekit.solvers.registry import get_method


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_has_problems_and_methods(objective: str) -> None:
    """The small problems are of that objective, and `auto` and another method solve them."""
    for problem in _problems(objective):
        assert problem.objective.name == objective
        able = [name for name in METHODS if get_method(name, {}).supports(problem) is None]
        assert "auto" in able
        assert len(able) >= 2
