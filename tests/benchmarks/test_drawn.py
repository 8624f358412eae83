"""Drawn problems: two splits that share nothing."""

from __future__ import annotations

import re
from typing import Any

import pytest

from placekit.benchmarks.generators.drawn import OBJECTIVES, TEST_FAMILIES, TRAIN_FAMILIES, draw_problem
from placekit.model.errors import InvalidProblemError, UnknownNameError


def test_splits_share_no_family_and_no_problem() -> None:
    """Every test problem is of a family that training never had, by its name; same arguments, same problem."""
    assert not set(TRAIN_FAMILIES) & set(TEST_FAMILIES)
    drawn = {split: [draw_problem(split, 3, number, max_ops=80) for number in range(30)] for split in ("train", "test")}
    for split, families in (("train", TRAIN_FAMILIES), ("test", TEST_FAMILIES)):
        for problem in drawn[split]:
            assert any(problem.name.startswith(family) for family in families)
            assert problem.contiguity == "none"
    assert {problem.objective.name for problem in drawn["train"]} == set(OBJECTIVES)
    assert {problem.platform.num_devices for problem in drawn["test"]} & {8, 9}
    assert not {problem.platform.num_devices for problem in drawn["train"]} & {8, 9}
    assert any(problem.platform.devices[0].memory_bytes is not None for problem in drawn["test"])
    assert draw_problem("train", 3, 7, max_ops=80) == drawn["train"][7]
    assert draw_problem("train", 4, 7, max_ops=80) != drawn["train"][7]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("all", 0, 0), UnknownNameError, "no split 'all'; splits are train, test"),
        (("train", 0, -1), InvalidProblemError, "drawn problems: number is -1; it must be >= 0"),
    ],
)
def test_wrong_draws_are_refused(arguments: Any, error: type[Exception], message: str) -> None:
    """With value and bound."""
    with pytest.raises(error, match=re.escape(message)):
        draw_problem(*arguments)
    with pytest.raises(InvalidProblemError, match="max_ops is 20; it must be >= 40"):
        draw_problem("train", 0, 0, max_ops=20)
