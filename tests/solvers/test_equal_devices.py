"""Devices of one kind differ by their pins and nodes alone: another numbering of them changes no value and no proof."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import oracle
import pytest
from fuzz.equals import equal_devices_problem, of_one_kind, renamed, renamed_placement
from fuzz.optimum import enumerated_optimum
from fuzz.problems import OBJECTIVE_NAMES, random_problem
from strategies import draws

import placekit as pk
from placekit.advice.alternatives import alternatives_of
from placekit.advice.worth import worth_candidates
from placekit.model.errors import UnsupportedProblemError
from placekit.objectives.evaluate import evaluate
from placekit.verification.exact import ExactProblem
from placekit.verification.judge import objective as second_judge
from placekit.verification.verify import Outcome, verify

METHODS = ("enumerate", "auto", "bound", "cpsat", "ilp", "dp")
"""Methods that prove something by what they know of equal devices."""


def fork(times: tuple[float, float, float], num_devices: int, memory_bytes: float | None) -> pk.Problem:
    """Return one tensor of op s that two others read, where a device sends one transfer at a time."""
    graph = pk.OpGraph.from_edges(["s", "a", "b"], [("s", "a"), ("s", "b")])
    costs = pk.CostTable(("gpu",), np.array(times)[:, None], np.array([[0.5]]), np.ones(3))
    memory = {} if memory_bytes is None else {"gpu": memory_bytes}
    platform = pk.Platform.of(gpu=num_devices, memory_bytes=memory)
    return pk.Problem(graph, platform, costs, pk.Makespan(contention=True))


@pytest.mark.parametrize("times", [(1.0, 1.0, 3.0), (1.0, 3.0, 1.0)])
def test_the_longer_path_receives_a_tensor_first(times: tuple[float, float, float]) -> None:
    """The first op ends at 1, that of 3 s receives its tensor from 1 to 2 and ends at 5, whichever device it is on."""
    problem = fork(times, 3, 1.0)
    for device in itertools.permutations(range(3)):
        placement = pk.Placement.of(problem, np.array(device))
        assert pk.evaluate(problem, placement).objective == 5.0
        assert oracle.objective(problem, device) == 5.0
        assert second_judge(ExactProblem.of(problem), list(device)) == 5
    for method in ("enumerate", "auto"):
        result = pk.solve(problem, method, stop=pk.MaxRuntime(60))
        assert result.objective == 5.0
        assert result.status is pk.Status.OPTIMAL
        assert all(check.outcome is Outcome.CHECKED for check in verify(result, problem).checks)


def test_ties_go_by_topological_position() -> None:
    """Two readers of one rank: the earlier one receives first, on whatever device."""
    problem = fork((1.0, 1.0, 1.0), 3, None)
    for device in ([0, 1, 2], [0, 2, 1], [2, 1, 0]):
        score = pk.evaluate(problem, pk.Placement.of(problem, np.array(device))).score
        assert score is not None
        assert score.schedule is not None
        sent = score.schedule.peer[score.schedule.is_transfer]
        assert sent.tolist() == device[1:]


def drawn(seed: int, case: int, name: str) -> pk.Problem:
    """Return a problem on mostly equal devices, or any."""
    if case % 4:
        return equal_devices_problem(np.random.default_rng([seed, case]), name)
    return random_problem(seed, case, name)


@pytest.mark.parametrize("name", OBJECTIVE_NAMES)
def test_no_placement_changes_its_value_with_the_numbers_of_devices(name: str) -> None:
    """By the judge, by the second judge and for a batch; with steps, teams, pins, nodes and links."""
    for case in range(draws(2000)):
        rng, problem = np.random.default_rng([case, 1]), drawn(91, case, name)
        new = of_one_kind(rng, problem)
        other = renamed(problem, new)
        num_devices, num_ops = problem.platform.num_devices, problem.graph.num_ops
        team, device = None, rng.integers(0, num_devices, num_ops)
        if problem.objective.team_rule != "off":
            team = np.arange(num_devices)
            team[-1] = team[int(rng.integers(0, num_devices))]
            device = team[device]
        step = rng.permutation(num_ops) if name == "makespan" and rng.random() < 0.5 else None
        placement = pk.Placement.of(problem, device, step, team)
        moved = renamed_placement(other, placement, new)
        one, two = evaluate(problem, placement), evaluate(other, moved)
        assert [each.constraint for each in one.violations] == [each.constraint for each in two.violations]
        assert (one.objective is None) == (two.objective is None)
        if one.objective is not None:
            assert two.objective == pytest.approx(one.objective, rel=1e-12, abs=0)
            exact = ExactProblem.of(other)
            teams = [team for team in moved.teams if len(team) > 1]
            steps = None if step is None else step.tolist()
            second = second_judge(exact, moved.device_of_op.tolist(), steps, teams)
            assert second is not None
            assert float(second) == pytest.approx(one.objective, rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("name", OBJECTIVE_NAMES)
def test_no_proof_hangs_on_the_numbers_of_devices(name: str) -> None:
    """Every bound is at most the optimum of all placements; a renamed problem has the same, and its proof holds."""
    answered: Counter[str] = Counter()
    for case in range(draws(120 if name == "offload-latency" else 400)):  # all orders of calls take long
        problem = drawn(92, case, name)
        best = enumerated_optimum(problem)
        other = renamed(problem, of_one_kind(np.random.default_rng([case, 2]), problem))
        for each, method in itertools.product((problem, other), METHODS):
            try:
                result = pk.solve(each, method, stop=pk.MaxRuntime(20))
            except UnsupportedProblemError:
                continue
            answered[method] += 1
            told = f"{name} {case}, {method}: {result}"
            if best is None:
                assert result.objective is None, told
                continue
            assert result.status is not pk.Status.INFEASIBLE, told
            assert result.lower_bound is None or result.lower_bound <= best * (1 + 1e-12), told
            assert result.objective is None or result.objective >= best * (1 - 1e-12), told
            if method in ("enumerate", "auto"):
                assert result.status is pk.Status.OPTIMAL, told
                assert result.objective == pytest.approx(best, rel=2e-6), told
    assert min(answered[method] for method in ("enumerate", "auto", "bound", "cpsat")) > 0


def pinned_chain(pins: dict[str, str], num_devices: int = 3) -> pk.Problem:
    """Return ops a, b and c in a row on equal devices, some of them pinned."""
    graph = pk.OpGraph.from_edges(["a", "b", "c"], [("a", "b"), ("b", "c")])
    costs = pk.CostTable(("gpu",), np.ones((3, 1)), np.array([[0.5], [2.0]]), np.ones(3))
    return pk.Problem(graph, pk.Platform.of(gpu=num_devices), costs, pk.SerialLatency()).pin(pins)


def test_twins_are_of_one_kind_and_node_without_pins() -> None:
    """Of four devices one has a pin; of two nodes the devices are no twins where links know nodes."""
    assert pinned_chain({"a": "gpu.1"}, 4).twin_of_device.tolist() == [0, 1, 0, 0]
    problem = pinned_chain({})
    devices = tuple(each.replace(node="ab"[d % 2]) for d, each in enumerate(problem.platform.devices))
    platform = pk.Platform(devices, direct_links=(pk.DirectLink(0.0, 1e9), pk.DirectLink(0.0, 1e8, between_nodes=True)))
    times = np.array([[0.1, 0.2], [0.1, 0.2]])
    costs = problem.costs.replace(direct_links=platform.direct_link_names, direct_time_s=times)
    assert problem.replace(platform=platform, costs=costs).twin_of_device.tolist() == [0, 1, 0]


@pytest.mark.parametrize("device", ["gpu.0", "gpu.1", "gpu.2"])
def test_one_device_is_the_one_that_ops_are_pinned_to(device: str) -> None:
    """Everything on that device is feasible; on another device of the kind it is not."""
    result = pk.solve(pinned_chain({"b": device}), "single")
    assert result.objective == 3.0
    assert result.placement is not None
    assert set(result.placement.as_dict().values()) == {device}


def test_the_baseline_is_the_best_device_of_a_kind() -> None:
    """With a and c pinned apart, b costs a transfer of 1 s beside c, of 4 s beside a, and both on a third device."""
    for first, last in itertools.permutations(["gpu.0", "gpu.1", "gpu.2"], 2):
        problem = pinned_chain({"a": first, "c": last})
        (told,) = alternatives_of(problem)
        assert told.objective_s == 4.0
        assert told.name.startswith(last)


def test_the_worth_of_a_device_is_that_of_no_other() -> None:
    """A device with pins is needed; its twin without pins is asked for by itself, wherever it stands in the list."""
    for device in ("gpu.0", "gpu.1", "gpu.2"):
        problem = pinned_chain({"a": device})
        everything = pk.Placement.of(problem, np.full(3, problem.platform.index(device)))
        found = {problem.platform.device_names[d]: used for d, used in worth_candidates(problem, everything)}
        assert found.pop(device) is True
        assert list(found.values()) == [False]
