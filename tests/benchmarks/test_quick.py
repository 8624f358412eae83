"""The quick benchmark: what its rows say."""

from __future__ import annotations

import pytest

from placekit.benchmarks import quick
from placekit.errors import JudgeDisagreementError


def test_the_judge_is_measured_beside_its_plain_twin() -> None:
    """One row has both rates and their ratio; the batch is far ahead on fifty ops already."""
    row = quick.measure_judge("layered", num_ops=50, num_placements=100, num_plain=3)
    assert row["num_ops"] == 50
    assert row["plain_ratio"] == pytest.approx(row["placements_per_s"] / row["plain_per_s"])
    assert row["plain_ratio"] > 10


def test_a_twin_that_disagrees_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rate of wrong answers is no measurement."""
    monkeypatch.setattr(quick, "_plain_makespan", lambda *_: 1.0)
    with pytest.raises(JudgeDisagreementError, match=r"placement 0 of layered-50-0: .* by the plain twin 1\.0 s"):
        quick.measure_judge("layered", num_ops=50, num_placements=10)
