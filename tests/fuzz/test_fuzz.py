"""Fuzzing: every method on small random problems, against enumeration by the judge."""

from __future__ import annotations

import itertools
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from oracle import brute_force, team_brute_force
from strategies import draws

import placekit as pk
from fuzz.__main__ import main
from fuzz.apart import Died, messages
from fuzz.chains import best_cut, random_chain_problem
from fuzz.checks import Asked, Rivals, check, check_result, check_verified
from fuzz.minimise import minimise
from fuzz.optimum import enumerated_optimum
from fuzz.problems import OBJECTIVE_NAMES, random_problem
from fuzz.rounds import EXACT, LEARNED, SEARCHES, Mode, Options, solves
from fuzz.tight import tight
from fuzz.twists import HAIRS
from placekit.solve.registry import METHODS
from placekit.solve.result import Status
from placekit.solve.stop import StopReason
from placekit.solvers.generic.enumeration import method as enumeration
from placekit.solvers.makespan.bounds import quick
from placekit.solvers.makespan.bounds import shared_work as sharing
from placekit.solvers.sequence import auto


@pytest.fixture
def options(tmp_path: Path) -> Options:
    """Return options that leave the CPU limit of this process as it is."""
    return Options(seed=7, time_s=20.0, out=tmp_path, is_apart=False)


def findings(options: Options, cases: range) -> list[str]:
    """Return what is wrong with all solves of some problems."""
    found = []
    for case in cases:
        for each in solves(options, case):
            wrong = each.check()
            found += [] if wrong is None else [f"problem {case}, {each.method}: {wrong.what}: {wrong.detail}"]
    return found


@pytest.mark.parametrize(
    ("mode", "cases"),
    [
        (Mode.SMALL, 4),
        (Mode.CHAINS, 1),
        (Mode.PLANS, 1),
        *(pytest.param(mode, 150, marks=pytest.mark.slow) for mode in Mode),
    ],
)
def test_no_method_claims_what_is_not_true(mode: Mode, cases: int, options: Options) -> None:
    """Exact methods and some searches on a few problems of every mode; `make fuzz` goes on from there."""
    assert findings(replace(options, mode=mode), range(100_000, 100_000 + cases)) == []


def _some_sizes() -> tuple[int, ...]:
    shared = [vars(module)["MAX_OPS_SHARED"] for module in (sharing, quick)]
    return auto.PROGRAM_UP_TO, enumeration.ENUMERATE_FIRST_UP_TO, *shared


def test_sizes_are_drawn_and_put_back() -> None:
    """By a seed and a number, in every module that holds one, and never larger but for shares."""
    before = _some_sizes()
    seen = set()
    for case in range(20):
        with tight(1, case) as sizes, tight(1, case) as again:
            assert sizes == again
            assert enumeration.ENUMERATE_FIRST_UP_TO == 0
            _, _, here, there = _some_sizes()
            assert 1 <= here == there <= before[2]
            seen.add(here)
    assert len(sizes) > 20
    assert len(seen) > 5
    assert before == _some_sizes()


def test_rivals_contradict_a_bound() -> None:
    """A bound above another method's answer is a finding, in whichever order they come."""
    good = pk.solve(chain(), "dp")
    too_high = replace(good, placement=None, objective=None, lower_bound=4.0, status=Status.UNKNOWN)
    for first, second in ((good, too_high), (too_high, good)):
        rivals = Rivals()
        assert rivals.compare(first) is None
        found = rivals.compare(second)
        assert found is not None
        assert found.what == "bound above an answer"


def test_problems_come_again_by_their_number() -> None:
    """A finding is made again by its seed and number; other numbers are other problems."""
    assert random_problem(3, 14) == random_problem(3, 14)
    assert len({repr(random_problem(3, case)) for case in range(30)}) > 15


def test_every_kind_of_problem_is_drawn() -> None:
    """Teams by each rule, memory by each model, training graphs with and without teams, pins that contradict."""
    drawn = [random_problem(0, case) for case in range(400)]
    teams = {problem.objective.team_rule for problem in drawn if problem.objective.name == "throughput"}
    assert teams == {"off", "equal", "any"}
    in_blocks = [problem for problem in drawn if problem.costs.blocks is not None]
    assert len(in_blocks) > 20
    assert any(problem.has_tight_blocks for problem in in_blocks)
    assert any(problem.graph.op_weight_bytes.any() and problem.costs.blocks is None for problem in drawn)  # sums
    linked = [problem for problem in drawn if problem.has_direct_links]
    assert {problem.objective.name for problem in linked} == {
        problem.objective.name for problem in drawn if problem.objective.direct_ends
    }
    assert any(len({device.node for device in problem.platform.devices}) > 1 for problem in linked)
    assert any((problem.platform.kind_of_device == 0).sum() > 1 for problem in linked)
    training = [problem for problem in drawn if problem.graph.is_backward.any()]
    assert {problem.objective.name for problem in training} == set(OBJECTIVE_NAMES)
    assert any(problem.objective.team_rule != "off" for problem in training)
    assert any(
        len({int(pin) for pin in problem.pinned[problem.op_class == c] if pin >= 0}) > 1
        for problem in drawn
        for c in range(problem.num_classes)
    )


def test_what_tells_equal_devices_apart_is_drawn() -> None:
    """Queues of one tensor, room for one op, pins with teams, nodes; and language models, some of which fit nowhere."""
    drawn = [random_problem(0, case) for case in range(1500)]
    equal = [problem for problem in drawn if problem.graph.name == "fan-out"]
    queues = [problem for problem in equal if getattr(problem.objective, "contention", False)]
    for limit in (None, 1.0):
        assert any(
            problem.platform.num_devices == num_devices
            and {device.memory_bytes for device in problem.platform.devices} == {limit}
            and len(problem.platform.kinds) == 1
            for problem in queues
            for num_devices in (3, 4)
        )
    assert all(np.diff(problem.graph.consumer_offsets).max() > 1 for problem in queues)
    for name in OBJECTIVE_NAMES:
        assert any((problem.pinned >= 0).any() for problem in equal if problem.objective.name == name)
    pinned = [problem for problem in equal if (problem.pinned >= 0).any()]
    assert {problem.objective.team_rule for problem in pinned} == {"off", "equal", "any"}
    assert any(len({device.node for device in problem.platform.devices}) > 1 for problem in equal)
    chains = [random_chain_problem(0, case) for case in range(60)]
    assert {problem.objective.team_rule for problem in chains} == {"off", "equal"}
    assert any(problem.has_direct_links for problem in chains)
    assert any((problem.pinned >= 0).any() for problem in chains)
    best = [best_cut(problem) for problem in chains]
    assert any(value is None for value in best)
    assert sum(value is not None for value in best) > 30


@pytest.mark.slow
def test_problems_are_twisted() -> None:
    """Memory by a hair, calls with contiguity, parts with colocation, no edges, no times, times that differ by 1e5."""
    drawn = [random_problem(0, case) for case in range(2000)]

    def share(problem: pk.Problem) -> float:
        """Return the limit of the first kind as a multiple of what all ops take."""
        limit = problem.platform.devices[0].memory_bytes
        return 0.0 if limit is None else limit / problem.stage_memory.of(np.ones(problem.graph.num_ops, dtype=bool))

    assert {hair for hair in HAIRS if any(share(problem) == pytest.approx(hair, rel=1e-14) for problem in drawn)} > {
        1.0, 1 - 1.1e-12, 1 - 1e-9,
    }  # fmt: skip
    offload = [problem for problem in drawn if isinstance(problem.objective, pk.OffloadLatency)]
    kept = {str(problem.contiguity) for problem in offload if problem.objective.calls_per_device > 1}
    assert kept == {"none", "convex", "acyclic"}
    without = [problem for problem in drawn if problem.graph.num_ops > 2 and not problem.graph.num_tensors]
    assert any(problem.num_classes < problem.graph.num_ops for problem in without)
    assert any(not problem.costs.op_time_s.any() for problem in drawn)


def test_the_enumerated_optimum_is_that_of_the_oracle() -> None:
    """Two enumerations that share no code."""
    for case in range(draws(1200)):
        problem = random_problem(4, case)
        if isinstance(problem.objective, pk.Makespan):
            continue
        if isinstance(problem.objective, pk.OffloadLatency):
            problem = problem.replace(objective=pk.OffloadLatency())
        by_hand = brute_force if problem.objective.team_rule == "off" else team_brute_force
        found, expected = enumerated_optimum(problem), by_hand(problem)
        assert (found is None) == (expected is None)
        assert found is None or found == pytest.approx(expected, rel=1e-12, abs=0)


def chain() -> pk.Problem:
    """Return three ops of 3, 2 and 1 s on two equal devices; the optimum is 3.5 s."""
    graph = pk.OpGraph.from_edges(["a", "b", "c"], [("a", "b"), ("b", "c")])
    costs = pk.CostTable(("k",), np.array([[3.0], [2.0], [1.0]]), np.full((2, 1), 0.5), np.zeros(3))
    return pk.Problem(graph, pk.Platform.of(k=2), costs)


def test_wrong_claims_are_found() -> None:
    """A bound above the optimum, an optimum that is none, a proof of nothing, an objective that the judge denies."""
    problem = chain()
    right = pk.solve(problem, "dp")
    assert right.objective == 3.5
    assert check_result(problem, 3.5, right, must_prove=True) is None
    worse = pk.solve(problem, "single")

    def what(result: pk.Result, optimum_s: float | None = 3.5, *, must_prove: bool = False) -> str | None:
        found = check_result(problem, optimum_s, result, must_prove=must_prove)
        return None if found is None else found.what

    assert what(replace(worse, lower_bound=3.6)) == "bound above the optimum"
    assert what(replace(worse, status=pk.Status.OPTIMAL)) == "called optimal, is not"
    unsure = replace(right, lower_bound=3.4)
    assert what(unsure, 3.5 * (1 - 5e-7)) == "called optimal, is not"
    assert what(replace(unsure, tolerance=1e-6), 3.5 * (1 - 5e-7)) is None
    assert what(replace(right, objective=3.6)) == "judge says otherwise"
    assert what(worse, must_prove=True) == "not proven"
    assert what(right, None) == "infeasible answer"
    nothing = replace(worse, placement=None, objective=None, status=pk.Status.INFEASIBLE)
    assert what(nothing) == "feasible called infeasible"


def test_a_finding_is_made_smaller() -> None:
    """What fails because of one op keeps that op, and little else."""
    problem = random_problem(8, 1, "throughput")
    assert problem.graph.num_ops > 2

    def still_fails(smaller: pk.Problem) -> bool:
        return "o1" in smaller.graph.op_names

    small = minimise(problem, still_fails, lambda: True)
    assert small.graph.op_names == ("o1",)
    assert small.platform.num_devices == 1
    assert not small.costs.op_time_s.any()


def test_links_that_do_not_matter_are_left_out() -> None:
    """A finding keeps the link that it is about, on one node if nodes do not matter."""
    drawn = (random_problem(0, case) for case in range(2000))
    problem = next(each for each in drawn if len(each.platform.direct_links) > 1 and each.platform.devices[0].node)
    kept = problem.platform.direct_link_names[0]
    small = minimise(problem, lambda smaller: kept in smaller.platform.direct_link_names, lambda: True)
    assert small.platform.direct_link_names == (kept,)
    assert len({device.node for device in small.platform.devices}) == 1
    assert not small.costs.direct_time_s.any()


def test_larger_problems_are_verified_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole tool: a process of its own, bounds counted as checked or trusted, and a summary."""
    arguments = ["--mode", "larger", "--cases", "3", "--objective", "serial-latency", "--methods", "single"]
    assert main([*arguments, "-o", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    counted = [line.split() for line in lines if line.startswith("serial-latency")]
    assert {line[2] for line in counted} <= {"checked", "trusted"}
    assert lines[-1].startswith("3 solves of 3 problems")
    assert lines[-1].endswith("0 findings, seed 0")


def _goes_on(send: Callable[[str], None]) -> None:
    """Say one word, and never end."""
    send("begun")
    soft = int(time.process_time()) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.getrlimit(resource.RLIMIT_CPU)[1]))
    while True:
        pass


@pytest.mark.slow
def test_a_solve_that_does_not_end_is_found_by_its_cpu_time() -> None:
    """The process is ended by the kernel; what it said before is kept."""
    said = messages(_goes_on)
    assert next(said) == "begun"
    with pytest.raises(Died, match="does not end"):
        next(said)


def test_a_slow_solve_is_found_by_its_second_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run may have compiled; two slow ones are a finding, unless the method takes what it gets."""
    problem = chain()
    right = pk.solve(problem, "dp")
    clock = itertools.count(0.0, 2.5)
    monkeypatch.setattr("fuzz.checks.solve", lambda *_, **__: right)
    monkeypatch.setattr("fuzz.checks.process_time", lambda: next(clock))
    found = check(problem, 3.5, Asked("dp", {}, 0, 10.0))
    assert found is not None
    assert found.what == "slow"
    assert check(problem, 3.5, Asked("dp", {}, 0, 10.0, may_be_slow=True)) is None


@pytest.mark.parametrize(("auto_by", "what"), [(None, "auto has no answer"), ("single", "auto is worse"), ("dp", None)])
def test_auto_is_held_to_what_needs_no_search(
    auto_by: str | None, what: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it proves nothing, it is as good as `single`, `greedy` and `random`."""
    best = pk.solve(chain(), "dp")
    unproven = replace(
        pk.solve(chain(), auto_by or "dp"), status=Status.FEASIBLE, stop_reason=StopReason.FINISHED, lower_bound=None,
        certificate=None, trace=(),
    )  # fmt: skip
    if auto_by is None:
        unproven = replace(unproven, status=Status.UNKNOWN, placement=None, objective=None)
    monkeypatch.setattr("fuzz.checks.solve", lambda _, method, **__: unproven if method == "auto" else best)
    found = check_verified(chain(), Asked("auto", {}, 0, 10.0))
    assert (None if found is None else found.what) == what


def test_answers_that_differ_by_themselves_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same seed twice: a finding where no limit made the difference."""
    right = replace(pk.solve(chain(), "dp"), runtime_s=0.01)
    answers = itertools.cycle([right, replace(pk.solve(chain(), "single"), runtime_s=0.01)])
    monkeypatch.setattr("fuzz.checks.solve", lambda *_, **__: next(answers))
    found = check(chain(), 3.5, Asked("dp", {}, 0, 10.0, is_asked_twice=True))
    assert found is not None
    assert found.what == "two answers by one seed"


def test_a_refused_result_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound that a placement contradicts, of a problem that nobody enumerated."""
    problem = chain()
    wrong = replace(pk.solve(problem, "single"), lower_bound=3.6, certificate=None)
    monkeypatch.setattr("fuzz.checks.solve", lambda *_, **__: wrong)
    found = check_verified(problem, Asked("dp", {}, 0, 1.0))
    assert found is not None
    assert found.what == "verify refuses the bound"


def test_every_method_is_fuzzed() -> None:
    """A new method is named in the suite, or is one that needs an argument."""
    known = {*EXACT, *LEARNED, *SEARCHES}
    assert not {name for name, entry in METHODS.items() if entry.argument is None and name not in known}
