"""What every objective says of itself, and every violation of a placement, word by word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from forged import small
from records import thawed

import placekit as pk
import placekit.objectives
from placekit.model.contiguity import Contiguity
from placekit.model.errors import InvalidProblemError, UnknownNameError
from placekit.objectives import OBJECTIVES, Loads, Objective, OffloadLatency, get_objective, register_objective
from placekit.objectives.base import fastest_class_s
from placekit.objectives.makespan.instance import instance_of
from placekit.objectives.makespan.ranks import downward_rank, mean_time_s, mean_transfer_s, mean_upward_rank
from placekit.objectives.throughput import largest_teams, samples_per_turn

MIXED = small(pk.Throughput(), [[1, 2], [2, 2]], "ab", counts=(2, 1), host="q", is_backward=[False, True])


@pytest.mark.parametrize(
    ("objective", "rules", "constants", "contiguity"),
    [
        (pk.Throughput(), ("teams off",), (), "acyclic"),
        (pk.Throughput(teams="equal"), ("teams equal",), None, "acyclic"),
        (pk.Throughput(teams="any"), (), None, "acyclic"),
        (pk.SerialLatency(0.5), (), (0.5,), "none"),
        (pk.OffloadLatency(), ("at most 1 call of each accelerator",), (), "none"),
        (pk.OffloadLatency(2), ("at most 2 calls of each accelerator",), (), "none"),
        (pk.Makespan(), (), (), "none"),
    ],
)
def test_rules_and_constants(
    objective: Objective, rules: tuple[str, ...], constants: tuple[float, ...] | None, contiguity: str
) -> None:
    """Rules in words, constants in seconds, and the contiguity that a problem has by default."""
    assert objective.rules == rules
    assert objective.constants_s() == constants
    assert objective.default_contiguity is Contiguity(contiguity)
    assert objective.team_rule == getattr(objective, "teams", "off")
    assert type(objective)(**objective.to_dict()) == objective


def test_names_in_hashes() -> None:
    """The default of teams came later, and is left out; everything else stays."""
    assert pk.Throughput().identity() == {"overlap": False, "schedule": "1f1b"}
    assert pk.Throughput(teams="any").identity() == {"overlap": False, "schedule": "1f1b", "teams": "any"}
    assert pk.SerialLatency(0.5).identity() == {"subgraph_cost_s": 0.5}


def test_what_is_relaxed() -> None:
    """Queues are dropped where there are any, and so are rules of the order."""
    assert pk.Makespan("upward-rank", contention=True).without_queues() == pk.Makespan("upward-rank")
    assert pk.Throughput(overlap=True).without_queues() == pk.Throughput(overlap=True)
    assert pk.Makespan("upward-rank", steps="none").free_order == pk.Makespan("upward-rank")
    assert pk.Throughput(overlap=True).free_order == pk.Throughput(overlap=True)


def test_what_loads_make() -> None:
    """The largest or the sum; passes only where there is a backward op and a schedule with two."""
    assert pk.Throughput().loads(MIXED) == Loads()
    assert pk.Throughput(overlap=True).loads(MIXED) == Loads(has_overlap=True)
    gpipe = pk.Throughput(schedule="gpipe")
    assert gpipe.loads(MIXED) == Loads(has_passes=True)
    assert gpipe.loads(small(gpipe, [[1.0]], counts=(1,))) == Loads()
    assert pk.SerialLatency(0.5).loads(MIXED) == Loads(is_total=True, subgraph_cost_s=0.5)
    assert pk.Makespan().loads(MIXED) is None
    assert OffloadLatency().batch_score(MIXED) is None


def test_busy_devices() -> None:
    """A host runs any number of ops at a time in calls; elsewhere every device runs one."""
    busy = {
        variant.name: None if (found := variant.busy_devices(MIXED.platform)) is None else found.tolist()
        for variant in (pk.Throughput(), pk.SerialLatency(), pk.OffloadLatency(), pk.Makespan())
    }
    every = [True, True, True]
    assert busy == {
        "throughput": every,
        "serial-latency": None,
        "offload-latency": [True, True, False],
        "makespan": every,
    }


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: pk.Throughput(schedule="2f2b"), "schedule is '2f2b'; it must be one of"),  # type: ignore[arg-type]
        (lambda: pk.Throughput(teams="all"), "teams is 'all'; it must be one of"),  # type: ignore[arg-type]
        (lambda: pk.Throughput(schedule="gpipe", teams="any"), "teams 'any' has no schedule 'gpipe'"),
        (lambda: pk.SerialLatency(-1.0), "subgraph_cost_s is -1.0; it must be finite and >= 0"),
        (lambda: pk.SerialLatency(float("inf")), "subgraph_cost_s is inf"),
        (lambda: pk.SerialLatency(float("nan")), "subgraph_cost_s is nan"),
        (lambda: pk.OffloadLatency(0), "calls_per_device is 0; it must be a whole number >= 1"),
        (lambda: pk.OffloadLatency(True), "calls_per_device is True"),
        (lambda: pk.OffloadLatency(1.5), "calls_per_device is 1.5"),  # type: ignore[arg-type]
        (lambda: pk.Makespan("lifo"), "order is 'lifo'; it must be one of fifo, upward-rank"),  # type: ignore[arg-type]
        (lambda: get_objective("throughput", {"calls_per_device": 2}), "'calls_per_device', which offload-latency has"),
        (lambda: get_objective("throughput", {"speed": 2}), "has no parameter 'speed'; its parameters are overlap"),
    ],
)
def test_variants_out_of_range(make: object, words: str) -> None:
    """The value and the bound."""
    assert callable(make)
    with pytest.raises(InvalidProblemError) as told:
        make()
    assert words in str(told.value)


def test_names_of_objectives() -> None:
    """By name, in a variant; an unknown one is told those that there are."""
    assert get_objective("serial-latency", {"subgraph_cost_s": 0.5}) == pk.SerialLatency(0.5)
    assert get_objective("makespan") == pk.Makespan()
    with pytest.raises(UnknownNameError, match="no objective 'energy'; objectives are throughput, offload-latency"):
        get_objective("energy")


VIOLATED = small(
    pk.OffloadLatency(), [[1, 1], [1, None], [1, 1]], "ab bc", counts=(2, 1), host="q", size=2.0, memory={"p": 3.0}
).replace(pinned=np.array([1, -1, -1]), colocation=np.array([0, 1, 0]))


def test_violations_in_words() -> None:
    """Each names the op or the device, and by how much."""
    found = pk.evaluate(VIOLATED, pk.Placement.of(VIOLATED, [0, 2, 0]))
    assert {
        (each.constraint, each.message, each.op, each.device, each.amount, each.unit) for each in found.violations
    } >= {
        ("support", "op 'b' (Op) is not supported on device 'q.0'", "b", "q.0", 1.0, "ops"),
        ("memory", "device 'p.0' needs 4 bytes, it has 3 bytes", None, "p.0", 1.0, "bytes"),
        ("pin", "op 'a' is pinned to 'p.1' but placed on 'p.0'", "a", "p.0", 1.0, "ops"),
    }
    assert found.objective is None
    apart = pk.evaluate(VIOLATED, pk.Placement.of(VIOLATED, [1, 0, 2]))
    (violation,) = apart.violations
    assert violation.message == "op 'c' on 'q.0' must share a device with 'a' on 'p.1'"
    assert (violation.constraint, violation.op, violation.device) == ("colocation", "c", "q.0")


def test_violations_of_calls_and_contiguity_in_words() -> None:
    """How often a device is called and may be, who waits, and where a path comes back."""
    chain = small(pk.OffloadLatency(), [[1, 1], [1, 1], [1, 1]], "ab bc", host="q")
    (stuck,) = pk.evaluate(chain, pk.Placement.of(chain, [0, 1, 0])).violations
    assert stuck.message == "the calls of 'p.0' cannot start: it waits for its own output"
    assert (stuck.constraint, stuck.device, stuck.amount, stuck.unit) == ("order", "p.0", 1.0, "devices")
    (called,) = pk.evaluate(chain, pk.Placement.of(chain, [0, 1, 0], [0, 0, 1])).violations
    assert called.message == "device 'p.0' is called 2 times per sample, it may be called 1"
    assert (called.constraint, called.device, called.amount, called.unit) == ("calls", "p.0", 1.0, "calls")
    convex = chain.replace(objective=pk.Throughput(), contiguity="convex")
    (left,) = pk.evaluate(convex, pk.Placement.of(convex, [0, 1, 0])).violations
    assert left.message == "device 'p.0' is not convex: a path leaves it and returns through op 'b'"
    acyclic = chain.replace(objective=pk.Throughput(), contiguity="acyclic")
    (cycle,) = pk.evaluate(acyclic, pk.Placement.of(acyclic, [0, 1, 0])).violations
    assert cycle.message == "devices 'p.0', 'q.0' wait for each other: their graph has a cycle"
    steps = chain.replace(objective=pk.Makespan())
    (order,) = pk.evaluate(steps, pk.Placement.of(steps, [0, 0, 0], [2, 1, 0])).violations
    assert "on device 'p.0' waits for itself: the steps of the devices and the graph form a cycle" in order.message


def test_ranks_and_teams_by_hand() -> None:
    """Means over kinds that support an op, and over pairs of devices; the largest teams; the fastest kinds."""
    problem = small(pk.Makespan(), [[1, 3], [4, None], [2, 2]], "ab ac", counts=(2, 1), move_s=[0.5, 2])
    instance = instance_of(problem)
    assert mean_time_s(instance).tolist() == [2, 4, 2]
    assert mean_transfer_s(instance).tolist() == [2]  # twice the mean of 0.5, 0.5 and 2
    assert mean_upward_rank(instance).tolist() == [8, 4, 2]
    assert downward_rank(instance, mean_time_s(instance), mean_transfer_s(instance)).tolist() == [0, 4, 4]
    assert fastest_class_s(problem).tolist() == [1, 4, 2]
    assert largest_teams(problem).tolist() == [1, 1]
    assert largest_teams(problem.replace(objective=pk.Throughput(teams="any"))).tolist() == [2, 1]
    assert samples_per_turn(np.array([2.0, 4.0, 0.0]), np.array([0, 0, 2])).tolist() == [1.5, 3.0, 1.0]
    assert samples_per_turn(np.array([0.0, 4.0]), np.array([0, 0])).tolist() == [1.0, np.inf]


@dataclass(frozen=True)
class Nameless(pk.Throughput):
    """An objective without a name of its own."""

    name: ClassVar[Any] = None


@dataclass
class Thawed(pk.Objective):
    """An objective that can be changed."""

    name: ClassVar[str] = "thawed"
    summary: ClassVar[str] = "an objective"

    def score(self, *_: Any) -> Any:
        """Score nothing."""


@dataclass(frozen=True)
class Demanding(pk.Objective):
    """An objective with a parameter that has no default."""

    name: ClassVar[str] = "demanding"
    summary: ClassVar[str] = "an objective"
    needed: int

    def score(self, *_: Any) -> Any:
        """Score nothing."""


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (pk.Throughput(), "is no class derived from placekit.Objective"),
        (int, "is no class derived from placekit.Objective"),
        (Nameless, "Nameless has no class attribute 'name' of type str"),
        (Thawed, "Thawed is no frozen dataclass"),
        (Demanding, "Demanding cannot be made without arguments"),
    ],
)
def test_what_cannot_be_an_objective(given: Any, words: str) -> None:
    """It is refused with what it lacks, and not registered."""
    with pytest.raises(InvalidProblemError, match=words):
        register_objective(given)
    assert not {"thawed", "demanding"} & set(OBJECTIVES)


def test_records_cannot_be_changed() -> None:
    """Objectives, scores and what they are made of are kept with problems, and hashed."""
    assert thawed(placekit.objectives) == []


def test_no_teams_by_default() -> None:
    """An objective that knows no teams scores none."""
    with pytest.raises(NotImplementedError, match="objective 'makespan' has no teams"):
        pk.Makespan().team_score(MIXED, np.zeros(2, dtype=np.int64), np.zeros(3, dtype=np.int64))
