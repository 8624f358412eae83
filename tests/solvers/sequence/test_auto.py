"""The sequence of methods that placekit chooses by itself."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from oracle import brute_force
from planted import planted
from strategies import ALL, draws, examples, problems

import placekit as pk
from placekit.benchmarks.generators.families import generate
from placekit.model.errors import ProgramTooLargeError, SolverUnavailableError
from placekit.objectives import OBJECTIVES
from placekit.solve.lifting.relaxed import why_not
from placekit.solve.method import Run
from placekit.solve.registry import METHODS, get_method
from placekit.solvers.generic.enumeration.method import Enumerate
from placekit.solvers.sequence import auto as auto_module
from placekit.solvers.sequence import turns as turns_module
from placekit.solvers.sequence.auto import plan
from placekit.solvers.sequence.turns import Turn, run_stages


@examples(60)
@given(problems())
def test_auto_finds_the_optimum_of_small_problems(problem: pk.Problem) -> None:
    """Whatever the objective and the contiguity, a small problem is solved, or said to be infeasible."""
    if plan(problem) == ():
        return
    best = brute_force(problem)
    result = pk.solve(problem, "auto", stop=pk.MaxRuntime(20))
    if best is None:
        assert result.status is pk.Status.INFEASIBLE
    else:
        assert result.objective == pytest.approx(best, rel=2e-6, abs=1e-12)
        assert result.lower_bound is not None
        assert result.lower_bound <= best * (1 + 1e-9)


def test_every_planned_method_exists_and_works_on_its_stage(diamond: pk.Problem) -> None:
    """No plan names a method that is not registered or does not support what it is planned for."""
    for name, objective in OBJECTIVES.items():
        for contiguity in pk.Contiguity:
            problem = diamond.replace(objective=objective(), contiguity=contiguity)
            for stage in plan(problem):
                assert stage.method in METHODS, name
                assert stage.why
                at = problem.replace(contiguity=stage.contiguity or contiguity)
                assert why_not(get_method(stage.method, stage.params), at) is None, (name, stage)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_auto_is_never_worse_than_what_needs_no_search(
    objective: str, diamond: pk.Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the stages find little or nothing, the best of single devices, greedy and random is the answer."""
    monkeypatch.setattr(Enumerate, "supports", lambda *_: "left out here")
    problem = diamond.replace(objective=OBJECTIVES[objective](), contiguity="none")
    tight = problem.platform.replace(devices=tuple(d.replace(memory_bytes=2.0) for d in problem.platform.devices))
    costly = problem.costs.replace(transfer_time_s=problem.costs.transfer_time_s * 100)
    for each in (problem.replace(costs=costly), problem.replace(platform=tight)):
        for stages in [(Turn("round-robin", "a poor start"),), (Turn("single", "nothing fits"),)]:
            monkeypatch.setattr(auto_module, "plan", lambda _, stages=stages: stages)
            simple = [pk.solve(each, method).objective for method in ("single", "greedy", "random")]
            found = pk.solve(each, "auto").objective
            assert found is not None
            assert found == min(value for value in simple if value is not None)


TIGHT = [
    (objective, contiguity)
    for objective in (pk.Throughput(), pk.Throughput(teams="equal"), pk.SerialLatency(), pk.OffloadLatency())
    for contiguity in pk.Contiguity
] + [(pk.Makespan(), pk.Contiguity.NONE)]


@pytest.mark.parametrize("seed", range(52) if ALL else (0, 3))
def test_auto_places_what_is_tight_and_is_no_worse_than_simple_methods(seed: int) -> None:
    """8 to 40 ops and memory for one random placement, or a hair more: auto has an answer, and the best one."""
    objective, contiguity = TIGHT[seed % len(TIGHT)]
    num_ops = int(np.random.default_rng(seed).integers(8, 41))
    problem = planted(seed, objective, contiguity, num_ops=num_ops, num_devices=2 + seed % 3, spare=0.01 * (seed % 2))
    found = pk.solve(problem, "auto", stop=pk.MaxRuntime(4), seed=seed)
    assert found.objective is not None
    for method in ("single", "greedy", "random:1000"):
        simple = pk.solve(problem, method, seed=seed).objective
        assert simple is None or found.objective <= simple * (1 + 1e-9), method


def test_the_program_of_all_orders_is_left_out_where_little_is_open() -> None:
    """100 ops on eight unequal devices: it has its turn at a gap of 6 %, not at one of 1 %; on equal ones always."""
    makespan = pk.Makespan()
    equal = generate("layered", 100, num_devices=8, objective=makespan).replace(contiguity="none")
    assert next(stage for stage in plan(equal) if stage.method == "cpsat").only_if is None
    problem = generate("layered", 100, num_devices=8, equal=False, objective=makespan).replace(contiguity="none")
    program = next(stage for stage in plan(problem) if stage.method == "cpsat")
    assert program.only_if is not None
    placement = pk.solve(problem, "heft").placement
    assert placement is not None
    wanted = []
    for gap in (0.06, 0.01):
        run = Run(problem, pk.MaxRuntime(10))
        run.offer(placement)
        assert run.objective is not None
        run.raise_bound(run.objective / (1 + gap), "for the test")
        wanted.append(program.only_if(run))
    assert wanted == [True, False]


def test_the_account_tells_what_each_stage_brought(workloads: Path) -> None:
    """Non-contiguous BERT-3: the acyclic start, then the program that closes; one trace, never rising."""
    problem = pk.read_workload(workloads / "throughput" / "operator_bert_l-3_inference.json")
    result = pk.solve(problem.replace(contiguity="none"), "auto", stop=pk.MaxRuntime(60))
    assert result.status is pk.Status.OPTIMAL
    assert [stage["method"] for stage in result.info["stages"]] == ["single", "greedy", "random", "dp", "ilp"]
    *_, start, program = result.info["stages"]
    assert start["objective_s"] == pytest.approx(27.9185676799e-3)
    assert start["bound_s"] is None or start["bound_s"] <= 21.91e-3  # the acyclic proof does not count
    assert program["objective_s"] == pytest.approx(21.9083761057e-3)
    values = [line.objective for line in result.trace if line.objective is not None]
    assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_stage_says_what_it_brought(name: str) -> None:
    """A better objective or bound is told with its share, and a stage that brought neither improved nothing."""
    turns, kinds = ("round-robin", "single", "greedy", "greedy"), set()
    for seed in range(draws(80)):
        problem = generate("layered", 200, seed=seed, num_devices=3, equal=False, objective=OBJECTIVES[name]())
        run = Run(problem, pk.MaxRuntime(10))
        run_stages(run, [Turn(method, "why") for method in turns])
        lines = [line for line in run.info["stages"] if "skipped" not in line]
        for before, line in pairwise(lines):
            brought = line["why"].split("; ")[-1]
            for value, first in (("objective", "first placement"), ("bound", "first bound")):
                was, now = before[f"{value}_s"], line[f"{value}_s"]
                assert (first in brought) == (was is None and now is not None)
                assert (f"{value} " in brought) == (was is not None and now != was)
            is_same = (line["objective_s"], line["bound_s"]) == (before["objective_s"], before["bound_s"])
            assert ("nothing" in brought) == is_same
            kinds.add(brought.split()[0])
    assert {"objective", "improved"} <= kinds


def test_a_stage_that_improved_nothing_says_so(diamond: pk.Problem) -> None:
    """The second of two equal stages brings nothing; the first one the placement."""
    run = Run(diamond, pk.MaxRuntime(10))
    run_stages(run, [Turn("greedy", "a start"), Turn("greedy", "again")])
    assert [line["why"] for line in run.info["stages"]] == [
        "a start; first placement",
        "again; improved nothing",
    ]


def test_a_stage_without_its_package_is_passed_over(diamond: pk.Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """The account says what is missing, and the next stage goes on."""

    def without_cpsat(name: str, params: dict[str, object], objective: str) -> object:
        if name == "cpsat":
            raise SolverUnavailableError("method 'cpsat' needs the package 'ortools'")
        return get_method(name, params, objective)

    monkeypatch.setattr(turns_module, "get_method", without_cpsat)
    run = Run(diamond.replace(contiguity="none"), pk.MaxRuntime(10))
    run_stages(run, [Turn("cpsat", "missing"), Turn("ilp", "there")])
    assert [("skipped" in line, line["method"]) for line in run.info["stages"]] == [(True, "cpsat"), (False, "ilp")]
    assert run.objective is not None


@pytest.mark.parametrize(
    ("lacks_memory", "share", "expected_s"), [(False, 0.25, [25, 100]), (True, 0.25, [25]), (False, 1.0, [100])]
)
def test_a_program_too_large_for_its_share_is_tried_again_with_all_that_is_left(
    diamond: pk.Problem, monkeypatch: pytest.MonkeyPatch, lacks_memory: bool, share: float, expected_s: list[float]
) -> None:
    """Once, and after the others; not one that lacks memory, and not one that had all the time."""
    seen: list[float] = []

    class TooLarge:
        name = "too-large"

        def supports(self, problem: pk.Problem) -> str | None:  # noqa: ARG002
            return None

        def run(self, run: Run) -> pk.StopReason:
            assert run.remaining_s is not None
            seen.append(run.remaining_s)
            raise ProgramTooLargeError("takes 30 s to build", lacks_memory=lacks_memory)

    monkeypatch.setattr(
        turns_module, "get_method", lambda *given: TooLarge() if given[0] == "large" else get_method(*given)
    )
    run = Run(diamond, pk.MaxRuntime(100))
    run_stages(run, [Turn("large", "a program", share), Turn("greedy", "a start")])
    assert seen == pytest.approx(expected_s, rel=0.1)
    assert [line["method"] for line in run.info["stages"]] == ["large", "greedy", "large"][: 1 + len(expected_s)]
    assert run.objective is not None


def test_only_the_class_of_the_objective_is_imported() -> None:
    """Makespan's program needs no package of the others', which take a second of a short limit."""
    code = (
        "import sys; from placekit.solve.registry import get_method; get_method('cpsat', {}, 'makespan');"
        "print([name for name in ('placekit.solvers.throughput.programs', 'highspy') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_stages_share_the_time(diamond: pk.Problem) -> None:
    """A stage sees its share of what is left, and the time comes back after it."""
    run = Run(diamond, pk.MaxRuntime(100))
    with run.limited_to(10):
        assert run.remaining_s == pytest.approx(10, abs=0.5)
        with run.limited_to(50):
            assert run.remaining_s == pytest.approx(10, abs=0.5)
        with run.limited_to(0):
            assert run.should_stop() is pk.StopReason.TIME
    assert run.remaining_s == pytest.approx(100, abs=0.5)
    assert run.should_stop() is None


def test_what_is_found_beside_counts(diamond: pk.Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """A method that proves and finds nothing, a search beside it; then one beside it that breaks."""

    class Idle:
        name = "idle"

        def supports(self, problem: pk.Problem) -> str | None:  # noqa: ARG002
            return None

        def run(self, run: Run) -> pk.StopReason:  # noqa: ARG002
            return pk.StopReason.FINISHED

    class Breaks:
        name = "breaks"

        def supports(self, problem: pk.Problem) -> str | None:  # noqa: ARG002
            return None

        def run(self, run: Run) -> pk.StopReason:  # noqa: ARG002
            raise RuntimeError("beside")

    def method_of(name: str, params: dict[str, object], objective: str) -> object:
        return {"idle": Idle, "breaks": Breaks}.get(name, lambda: get_method(name, params, objective))()

    monkeypatch.setattr(turns_module, "get_method", method_of)
    problem = diamond.replace(objective=pk.Makespan(), contiguity="none")
    search = Turn("local-search", "finds", params={"max_cycles": 3})
    run = Run(problem, pk.MaxRuntime(20))
    assert run_stages(run, [Turn("idle", "nothing", beside=search)]) is not None
    assert run.objective == pytest.approx(brute_force(problem))
    assert run.info["stages"][0]["beside"] == "local-search"
    with pytest.raises(RuntimeError, match="beside"):
        run_stages(Run(problem, pk.MaxRuntime(20)), [Turn("idle", "nothing", beside=Turn("breaks", "breaks"))])


def test_a_stage_that_is_not_wanted_is_left_out(diamond: pk.Problem) -> None:
    """It is asked when it is its turn, and leaves no line in the account."""
    run = Run(diamond, pk.MaxRuntime(10))
    seen: list[float | None] = []

    def is_wanted(run: Run) -> bool:
        seen.append(run.objective)
        return False

    run_stages(run, [Turn("greedy", "a start"), Turn("dp", "not wanted", only_if=is_wanted)])
    assert [line["method"] for line in run.info["stages"]] == ["greedy"]
    assert seen == [run.objective]
    assert run.objective is not None


@pytest.mark.parametrize(
    ("objective", "contiguity"),
    [
        (pk.Throughput(), "acyclic"),
        (pk.Throughput(), "none"),
        (pk.Makespan(), pk.Contiguity.NONE),
        (pk.OffloadLatency(), "none"),
    ],
    ids=lambda each: getattr(each, "name", each),
)
def test_an_early_end_reports_a_bound_that_says_something(objective: pk.objectives.Objective, contiguity: str) -> None:
    """Stopped when the first placement is there, with 1,190 ops: the bound is far better than the largest op."""
    problem = generate("transformer", 1190, objective=objective).replace(contiguity=contiguity)
    stop = pk.MaxRuntime(60) | pk.MaxIterations(1)
    result = pk.solve(problem, "auto", stop=stop)
    largest = objective.quick_bound(problem)
    assert largest is not None
    assert result.lower_bound is not None
    assert result.lower_bound > 2 * largest[0]


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_no_limit_is_too_short_for_an_answer(name: str) -> None:
    """Where everything fits on one device, that is the least there is to say."""
    problem = generate("transformer", 300, objective=OBJECTIVES[name]())
    assert pk.solve(problem, "auto", stop=pk.MaxRuntime(1e-9)).placement is not None


def test_a_search_takes_the_time_that_the_stages_leave(diamond: pk.Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a time limit only: without one the answer depends on the seed alone."""
    monkeypatch.setattr(auto_module, "plan", lambda _: (Turn("greedy", "a start that ends at once"),))
    monkeypatch.setattr(auto_module, "with_starts", lambda _, stages: ((), stages))
    problem = diamond.replace(objective=pk.SerialLatency(subgraph_cost_s=1.0), contiguity="none")
    limited = pk.solve(problem, "auto", stop=pk.MaxRuntime(60) | pk.MaxIterations(500))
    assert limited.stop_reason is pk.StopReason.ITERATIONS
    assert [line["method"] for line in limited.info["stages"]] == ["greedy", "local-search"]
    unlimited = pk.solve(problem, "auto")
    assert unlimited.stop_reason is pk.StopReason.FINISHED
    assert [line["method"] for line in unlimited.info["stages"]] == ["greedy"]


@pytest.mark.parametrize(("contiguity", "best_s"), [(pk.Contiguity.ACYCLIC, 90.0), (pk.Contiguity.CONVEX, 64.0)])
def test_offload_latency_under_a_contiguity_is_searched_and_proven(contiguity: pk.Contiguity, best_s: float) -> None:
    """Tight memory, colocation and several calls: no first placement of `dp` is feasible."""
    graph = pk.OpGraph.from_edges(list("abcdefg"), [("a", "e"), ("f", "g")])
    times = np.array([[0.0], [40], [40], [0], [10], [20], [20]])
    costs = pk.CostTable(("x",), times, np.full((2, 1), 2.0), np.array([3.0, 1, 3, 4, 2, 3, 4]))
    platform = pk.Platform.of(x=4, memory_bytes={"x": 16.0})
    problem = pk.Problem(graph, platform, costs, pk.OffloadLatency(calls_per_device=3), contiguity=contiguity)
    result = pk.solve(problem.colocate("abg", "cd", "ef"), "auto")
    assert (result.status, result.objective) == (pk.Status.OPTIMAL, best_s)
