"""Teams in placements and judges: names, normal forms, loads by hand, an independent formula, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import team_is_feasible, team_objective
from strategies import examples, teamed_placements, teamed_problems

import placekit as pk
from placekit.model.errors import InvalidProblemError, UnknownNameError
from placekit.solve.result import Result


@pytest.fixture
def teamed(diamond: pk.Problem) -> pk.Problem:
    """Return the diamond with teams of equal devices: its accelerators may share the samples."""
    return diamond.replace(objective=pk.Throughput(teams="equal"))


def test_a_team_of_equals_takes_half_as_long(teamed: pk.Problem) -> None:
    """All four ops on both accelerators: each takes every second sample, 4 s of work each time, and holds 4 bytes."""
    placement = pk.Placement.from_mapping(teamed, {}, default="acc.0+acc.1")
    judged = pk.evaluate(teamed, placement)
    assert judged.objective == 2.0
    cpu, first, second = judged.device_loads
    assert (cpu.load_s, cpu.team, cpu.num_ops) == (0.0, None, 0)
    assert (first.load_s, first.compute_s, first.memory_bytes, first.num_ops) == (2.0, 2.0, 4.0, 4)
    assert first.team == second.team == "acc.0+acc.1"


def test_transfers_of_a_team_are_shared_like_its_work(teamed: pk.Problem) -> None:
    """With a on the CPU (4 s), the team works 3 s a sample and reads a's tensor (2 s), on every second sample."""
    placement = pk.Placement.from_mapping(teamed, {"a": "cpu.0"}, default="acc.1+acc.0")
    cpu, first, _ = pk.evaluate(teamed, placement).device_loads
    assert (cpu.load_s, first.compute_s, first.transfer_s, first.load_s) == (4.0, 1.5, 1.0, 2.5)


def test_unequal_members_take_samples_in_proportion_to_their_speed(diamond: pk.Problem) -> None:
    """The CPU needs 16 s for a sample, an accelerator 4: together 1 / (1/16 + 1/4 + 1/4) = 16/9 s."""
    problem = diamond.replace(objective=pk.Throughput(teams="any"))
    judged = pk.evaluate(problem, pk.Placement.from_mapping(problem, {}, default="cpu.0+acc.0+acc.1"))
    assert judged.objective == pytest.approx(16 / 9, rel=1e-15)
    assert [load.load_s for load in judged.device_loads] == pytest.approx([16 / 9] * 3, rel=1e-15)
    assert judged.score is not None
    assert judged.score.share is not None
    assert judged.score.share.tolist() == pytest.approx([1 / 9, 4 / 9, 4 / 9], rel=1e-15)


def test_every_member_holds_everything(teamed: pk.Problem) -> None:
    """Accelerators with room for three of the four bytes: the team breaks both limits."""
    devices = tuple(d.replace(memory_bytes=3.0) if d.kind == "acc" else d for d in teamed.platform.devices)
    problem = teamed.replace(platform=teamed.platform.replace(devices=devices))
    placement = pk.Placement.from_mapping(problem, {}, default="acc.0+acc.1")
    violations = pk.evaluate(problem, placement).violations
    assert [(each.constraint, each.device) for each in violations] == [("memory", "acc.0"), ("memory", "acc.1")]


def test_a_pin_is_kept_by_a_team_that_has_its_device(teamed: pk.Problem) -> None:
    """Pinned to acc.1: kept by acc.0+acc.1, broken by acc.0 alone; two pins of one class are kept by the team too."""
    problem = teamed.pin({"a": "acc.1"})
    team, alone = (pk.Placement.from_mapping(problem, {}, default=name) for name in ("acc.0+acc.1", "acc.0"))
    assert not pk.evaluate(problem, team).violations
    (violation,) = pk.evaluate(problem, alone).violations
    assert violation.message == "op 'a' is pinned to 'acc.1' but placed on 'acc.0'"
    both = problem.pin({"b": "acc.0"}).colocate(["a", "b"])
    assert not pk.evaluate(both, team).violations
    assert pk.solve(both, "enumerate").objective == 2.0
    assert pk.solve(both, "dp").objective == 2.0


@examples(100)
@given(st.data())
def test_the_judge_agrees_with_the_definition(data: st.DataObject) -> None:
    """Objective and feasibility by a plain formula, on any teams that the rule allows."""
    problem = data.draw(teamed_problems(max_ops=8, max_devices=5))
    placement = data.draw(teamed_placements(problem))
    judged = pk.evaluate(problem, placement)
    device = tuple(placement.device_of_op.tolist())
    team = tuple(np.arange(problem.platform.num_devices).tolist())
    team = team if placement.team_of_device is None else tuple(placement.team_of_device.tolist())
    assert judged.is_feasible == team_is_feasible(problem, device, team)
    if judged.is_feasible:
        assert judged.objective == pytest.approx(team_objective(problem, device, team), rel=1e-12, abs=1e-300)
        loads = {load.team or load.device: load for load in judged.device_loads}
        for load in judged.device_loads:  # members are busy for the same time
            of_team = loads[load.team or load.device]
            assert load.load_s == pytest.approx(of_team.load_s, rel=1e-12, abs=1e-300)
            assert load.num_ops == of_team.num_ops


def test_names_of_teams_are_in_the_order_of_the_platform(teamed: pk.Problem) -> None:
    """Members come in any order and go out in that of the platform; a device is found by its team's name or its own."""
    placement = pk.Placement.from_mapping(teamed, {"a": "cpu.0"}, default="acc.1+acc.0")
    assert placement["b"] == "acc.0+acc.1"
    assert dict(placement) == {"a": "cpu.0", "b": "acc.0+acc.1", "c": "acc.0+acc.1", "d": "acc.0+acc.1"}
    assert placement.teams == ((0,), (1, 2))
    assert [placement.team_name(d) for d in range(3)] == ["cpu.0", "acc.0+acc.1", "acc.0+acc.1"]
    assert placement.ops_on("acc.1") == ["b", "c", "d"]
    assert repr(placement) == "Placement(4 ops; cpu.0: 1, acc.0+acc.1: 3)"


def placed(devices: list[int], team: list[int] | None = None) -> pk.Placement:
    """Return a placement of two ops on three devices."""
    teams = None if team is None else np.array(team)
    return pk.Placement(("a", "b"), ("x", "y", "z"), np.array(devices), team_of_device=teams)


def test_normal_form() -> None:
    """Ops are on first members, devices without ops are by themselves, and teams of one are no teams."""
    placement = placed([2, 2], [0, 1, 1])
    assert placement.device_of_op.tolist() == [1, 1]
    assert placement == placed([1, 1], [0, 1, 1])
    assert placement != placed([1, 1])
    assert placement.content_hash != placed([1, 1]).content_hash
    unused = placed([0, 0], [0, 1, 1])
    assert unused.team_of_device is None
    assert unused == placed([0, 0])
    assert placed([0, 0], [0, 1, 2]).team_of_device is None


@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        ({"a": "acc.0+acc.0"}, InvalidProblemError, "team 'acc.0\\+acc.0' names device 'acc.0' twice"),
        ({"a": "acc.0+gpu"}, UnknownNameError, "no device 'gpu' on this platform \\(in team 'acc.0\\+gpu'\\)"),
        (
            {"a": "acc.0+acc.1"},
            InvalidProblemError,
            "'acc.1' is in two teams: 'acc.0\\+acc.1' and",
        ),
        ({"a": "cpu.0+acc.0"}, InvalidProblemError, "team 'cpu.0\\+acc.0' mixes the kinds 'cpu' and 'acc'"),
    ],
)
def test_bad_team_names_are_named(
    teamed: pk.Problem, names: dict[str, str], error: type[Exception], message: str
) -> None:
    """One line with the team and the device."""
    with pytest.raises(error, match=message):
        pk.Placement.from_mapping(teamed, names, default="acc.1")


def test_objectives_without_teams_refuse_them(diamond: pk.Problem, teamed: pk.Problem) -> None:
    """By name where a placement is read, by a violation where one is judged."""
    placement = pk.Placement.from_mapping(teamed, {}, default="acc.0+acc.1")
    for objective in (pk.Throughput(), pk.SerialLatency(), pk.Makespan()):
        problem = diamond.replace(objective=objective, contiguity="none")
        (violation,) = pk.evaluate(problem, placement).violations
        assert violation.constraint == "team"
        assert violation.message == "'acc.0+acc.1' is a team of 2 devices; the objective has teams of one only"
        assert pk.evaluate(problem, placement).objective is None
        with pytest.raises(InvalidProblemError, match="is a team of 2 devices"):
            pk.Placement.from_mapping(problem, {}, default="acc.0+acc.1")


def test_devices_whose_names_have_a_plus(diamond: pk.Problem) -> None:
    """They are devices as ever without teams, and are refused with."""
    devices = tuple(d.replace(name=d.name.replace(".", "+")) for d in diamond.platform.devices)
    problem = diamond.replace(platform=diamond.platform.replace(devices=devices))
    assert pk.Placement.from_mapping(problem, {}, default="acc+1")["a"] == "acc+1"
    with pytest.raises(InvalidProblemError, match="device 'cpu\\+0' cannot be in a team"):
        problem.replace(objective=pk.Throughput(teams="equal"))
    with pytest.raises(InvalidProblemError, match="a team cannot be called 'x\\+y'"):
        pk.Placement(("a",), ("x", "y", "x+y"), np.array([0]), team_of_device=np.array([0, 0, 2]))


@pytest.mark.parametrize("team", [[0, 0], [1, 1, 2], [0, 0, 1], [0, 1, 3]])
def test_broken_teams_are_refused(team: list[int]) -> None:
    """A wrong length, and teams that are not named by their first members."""
    with pytest.raises(InvalidProblemError, match="team"):
        placed([0, 0], team)


def test_bad_rules_are_refused() -> None:
    """An unknown rule, and GPipe with members of different speed."""
    with pytest.raises(InvalidProblemError, match="teams is 'some'"):
        pk.Throughput(teams="some")  # type: ignore[arg-type]
    with pytest.raises(InvalidProblemError, match="teams 'any' has no schedule 'gpipe'"):
        pk.Throughput(teams="any", schedule="gpipe")


def test_the_hash_of_a_problem_without_teams_is_what_it_was(diamond: pk.Problem, teamed: pk.Problem) -> None:
    """Results of older versions are still of their problems."""
    assert diamond.content_hash == "99fb9e043a2ac39d88c6a67df832860e"
    assert teamed.content_hash != diamond.content_hash


def test_results_with_teams_come_back(teamed: pk.Problem) -> None:
    """The teams of a result, its loads and its placement hash."""
    result = pk.solve(teamed, "dp")
    document = result.to_dict()
    assert document["placement"] == dict.fromkeys("abcd", "acc.0+acc.1")
    assert Result.from_dict(document) == result


@examples(30)
@given(teamed_problems(max_ops=5, max_devices=3))
def test_no_bound_is_above_an_optimum_without_teams(problem: pk.Problem) -> None:
    """What single devices reach, teams reach; and the quick bound holds for the large team."""
    off = problem.replace(objective=replace(problem.objective, teams="off"))
    alone, together = pk.solve(off, "enumerate"), pk.solve(problem, "enumerate")
    if alone.objective is not None:
        assert together.objective is not None
        assert together.objective <= alone.objective * (1 + 1e-9)
