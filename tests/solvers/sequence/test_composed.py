"""Methods in a row: names, parameters, what goes on from one to the next."""

from __future__ import annotations

import pytest
from hypothesis import given
from limits import SOON_S
from strategies import examples, problems

import placekit as pk
from placekit.benchmarks.generators.families import generate
from placekit.model.errors import InvalidProblemError, UnknownNameError, UnsupportedProblemError
from placekit.solve.registry import METHODS, get_method, split_name


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("dp", ("dp",)),
        ("dpl+local-search", ("dpl", "local-search")),
        ("random:5+local-search:3+cpsat", ("random:5", "local-search:3", "cpsat")),
        ("file:a+b.json+cpsat", ("file:a+b.json", "cpsat")),
        ("ilp+nonsense", ("ilp+nonsense",)),
    ],
)
def test_names_are_divided_where_a_method_follows(name: str, parts: tuple[str, ...]) -> None:
    """A plus sign in an argument stays there."""
    assert split_name(name, METHODS) == parts


def test_second_method_goes_on_from_the_first() -> None:
    """The row is no worse than its first method, and its account says what each brought."""
    problem = generate("layered", 60, seed=3).replace(contiguity="none")
    result = pk.solve(problem, "greedy+local-search", seed=1, params={"local-search.max_cycles": 2})
    first = pk.solve(problem, "greedy", seed=1)
    assert result.method == "greedy+local-search"
    assert result.objective is not None
    assert first.objective is not None
    assert result.objective < first.objective
    assert [line["method"] for line in result.info["stages"]] == ["greedy", "local-search"]
    assert result.info["stages"][0]["objective_s"] == first.objective


@examples(60)
@given(problems(max_ops=6, max_devices=3))
def test_an_exact_method_at_the_end_proves_the_whole(problem: pk.Problem) -> None:
    """Whatever a heuristic put before it, the answer is the optimum, or the problem is said to be infeasible."""
    row, alone = (pk.solve(problem, method) for method in ("greedy+ilp", "ilp"))
    assert row.status is alone.status
    if alone.objective is not None:
        assert row.objective == pytest.approx(alone.objective, rel=5e-6)


def test_time_is_shared() -> None:
    """The second method gets its turn although the first one would use all of the time."""
    problem = generate("layered", 200, seed=1).replace(contiguity="none")
    params = {"local-search.patience": 10**6}
    result = pk.solve(problem, "local-search+cpsat", stop=pk.MaxRuntime(2), params=params)
    assert [line["method"] for line in result.info["stages"]] == ["local-search", "cpsat"]
    assert result.info["stages"][0]["time_s"] > 0.5
    assert result.runtime_s < SOON_S


def test_what_is_wrong_is_said_at_once(diamond: pk.Problem) -> None:
    """Parameters without a method, of no method, an unknown part, a part that cannot work on the problem."""
    with pytest.raises(InvalidProblemError, match=r"has no parameter 'patience'.*'local-search.patience'"):
        get_method("greedy+local-search", {"patience": 3})
    with pytest.raises(InvalidProblemError, match="nonsense"):
        get_method("greedy+local-search", {"local-search.nonsense": 3})
    with pytest.raises(UnknownNameError, match="no method"):
        get_method("nonsense+cpsat")
    with pytest.raises(UnsupportedProblemError, match="mincut"):
        pk.solve(diamond, "greedy+mincut")
