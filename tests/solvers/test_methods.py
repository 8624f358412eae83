"""Every method of the registry keeps the same promises."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from strategies import ALL

import placekit as pk
from placekit.model.errors import InvalidProblemError, SolverUnavailableError, UnknownNameError, UnsupportedProblemError
from placekit.solve import registry
from placekit.solve.lifting.relaxed import why_not
from placekit.solve.method_table import MethodEntry
from placekit.solve.registry import METHODS, get_method
from placekit.solvers.assignment.ilp.solve import AssignmentIlp


def runnable() -> list[Any]:
    """Return the methods as parameters; those that need a file or a package that is not there are skipped."""
    marked = []
    for name, entry in METHODS.items():
        why = f"needs an argument: {name}:{entry.argument}" if entry.argument else ""
        if any(find_spec(package) is None for package in entry.requires):
            why = f"needs {', '.join(entry.requires)}"
        marked.append(pytest.param(name, marks=pytest.mark.skipif(bool(why), reason=why)))
    return marked


def variants(problem: pk.Problem, method: str) -> list[pk.Problem]:
    """Return the problem under the objectives and contiguities that the method supports, or a third if it learns."""
    objectives = [
        pk.Throughput(),
        pk.Throughput(overlap=True),
        pk.SerialLatency(),
        pk.SerialLatency(0.5),
        pk.OffloadLatency(),
        pk.OffloadLatency(calls_per_device=2),
        pk.Makespan(),
        pk.Makespan("upward-rank", contention=True),
    ]
    if method == "chain":  # which knows no branches
        problem = problem.replace(colocation=np.array([0, 1, 1, 2]))
    every = [
        problem.replace(objective=objective, contiguity=contiguity)
        for objective in objectives
        for contiguity in pk.Contiguity
    ]
    supported = [variant for variant in every if why_not(get_method(method), variant) is None]
    assert supported
    if METHODS[method].family != "learned":
        return supported
    # a policy sees what is to be minimised through the judge alone
    return supported[:: 3 if ALL else 12]


@pytest.mark.parametrize("method", runnable())
def test_methods_keep_their_promises(method: str, diamond: pk.Problem) -> None:
    """Feasible, scored by the judge, not below the bound, the same answer for the same seed, JSON and back."""
    params = {"patience": 3} if method == "local-search" else {}  # or it searches on for as long as it may
    stop = pk.MaxRuntime(20) | pk.MaxIterations(200 if ALL else 40)
    for problem in variants(diamond, method):
        result = pk.solve(problem, method=method, seed=3, stop=stop, params=params)
        assert result.placement is not None
        evaluation = pk.evaluate(problem, result.placement)
        assert evaluation.is_feasible
        assert evaluation.objective == result.objective
        assert result.objective is not None
        assert result.lower_bound is None or result.lower_bound <= result.objective
        assert pk.solve(problem, method=method, seed=3, stop=stop, params=params).placement == result.placement
        assert pk.Result.from_dict(result.to_dict()) == result
        assert result.method == method
        if result.status is pk.Status.OPTIMAL:
            assert result.gap is not None
            assert result.gap <= result.tolerance


@pytest.mark.parametrize("method", runnable())
def test_methods_never_lose_a_warm_start(method: str, diamond: pk.Problem) -> None:
    """The answer is at least as good as the placement that was handed in, even with no time left."""
    start = pk.Placement.of(diamond, [1, 1, 1, 1])
    problem = variants(diamond, method)[0]
    result = pk.solve(problem, method=method, stop=pk.MaxRuntime(0), warm_start=start)
    assert result.objective is not None
    assert result.objective <= 4.0


@pytest.mark.parametrize("method", runnable())
def test_methods_say_when_nothing_is_feasible(method: str, diamond: pk.Problem) -> None:
    """An op that no kind supports is infeasible for every method."""
    supported = diamond.costs.supported.copy()
    supported[0] = False
    problem = variants(diamond, method)[0]
    result = pk.solve(problem.replace(costs=diamond.costs.replace(supported=supported)), method=method)
    assert (result.status, result.placement, result.objective) == (pk.Status.INFEASIBLE, None, None)
    assert "op 'a': no device supports" in str(result.violations[0])
    assert pk.Result.from_dict(result.to_dict()) == result


def test_single_device_can_be_named(diamond: pk.Problem) -> None:
    """By name, or the best of them; an unknown one lists the devices."""
    assert pk.solve(diamond, method="single:cpu.0").objective == 16.0
    best = pk.solve(diamond, method="single")
    assert (best.objective, best.status, best.lower_bound) == (4.0, pk.Status.FEASIBLE, None)
    with pytest.raises(UnknownNameError, match=r"no device 'gpu'.*devices are cpu\.0, acc\.0, acc\.1"):
        pk.solve(diamond, method="single:gpu")


def test_infeasible_heuristic_answer_says_what_is_broken(diamond: pk.Problem) -> None:
    """A single device that lacks the memory is no answer, and its violation is shown."""
    platform = pk.Platform.of(cpu=1, acc=2, host="cpu", memory_bytes={"acc": 3.0})
    result = pk.solve(diamond.replace(platform=platform), method="single:acc.0")
    assert (result.status, result.placement) == (pk.Status.UNKNOWN, None)
    assert str(result.violations[0]) == "device 'acc.0' needs 4 bytes, it has 3 bytes"


def test_random_search_follows_seed_and_budget(diamond: pk.Problem) -> None:
    """The budget is the number of evaluations; more of them are never worse."""
    few = pk.solve(diamond, method="random:5", seed=1)
    assert few.evaluations == 5
    many = pk.solve(diamond, method="random", params={"samples": 300}, seed=1)
    assert many.evaluations == 300
    assert many.objective is not None
    assert few.objective is not None
    assert many.objective <= few.objective
    limited = pk.solve(diamond, method="random", stop=pk.MaxIterations(7), seed=1)
    assert (limited.evaluations, limited.stop_reason) == (7, pk.StopReason.ITERATIONS)


@pytest.mark.parametrize("objective", [pk.Throughput(), pk.SerialLatency(), pk.OffloadLatency(), pk.Makespan()])
def test_local_search_ends_after_so_many_cycles(objective: pk.Objective, diamond: pk.Problem) -> None:
    """The limit in cycles is one whatever patience allows."""
    params = {"max_cycles": 2, "patience": 10**9}
    problem = diamond.replace(objective=objective, contiguity="none")
    result = pk.solve(problem, "local-search", params=params, stop=pk.MaxRuntime(60))
    assert result.stop_reason in (pk.StopReason.FINISHED, pk.StopReason.PROVED)


def test_random_and_round_robin_respect_contiguity_pins_and_support(diamond: pk.Problem) -> None:
    """Random chains are acyclic; round robin steps over what a device may not take."""
    assert pk.solve(diamond, method="random:50").evaluations == 50
    pinned = diamond.pin({"d": "cpu.0"}).replace(contiguity="none")
    placement = pk.solve(pinned, method="round-robin").placement
    assert placement is not None
    assert placement["d"] == "cpu.0"


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("nosuch", UnknownNameError, "no method 'nosuch'; methods are .*single, round-robin, random, .*ilp"),
        ("random:many", InvalidProblemError, "samples is 'many'"),
        ("round-robin:3", InvalidProblemError, "no parameters"),
    ],
)
def test_wrong_names_are_explained(name: str, error: type[Exception], message: str) -> None:
    """Unknown methods list the known ones; wrong arguments say what they should be."""
    with pytest.raises(error, match=message):
        get_method(name)


def test_missing_package_gives_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """An optional package that is not there is named with the extra that brings it."""
    entry = MethodEntry("nowhere:Nothing", "learned", "none", ("no_such_package_",), "learned")
    monkeypatch.setattr(registry, "METHODS", {"x": entry})
    with pytest.raises(SolverUnavailableError, match=r"pip install 'placekit\[learned\]'"):
        get_method("x")


def test_unsupported_problem_says_why(diamond: pk.Problem) -> None:
    """A method that cannot work on a problem refuses with its reason."""

    class Picky(AssignmentIlp):
        """A method that refuses everything."""

        def supports(self, problem: pk.Problem) -> str | None:  # noqa: ARG002
            """Refuse."""
            return "it is too small"

    with pytest.raises(UnsupportedProblemError, match=r"method 'ilp' cannot solve .*diamond.*: it is too small"):
        pk.solve(diamond, method=Picky())
