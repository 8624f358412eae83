"""Verdicts: every number is the judge's, the simplest way within the error wins, and one test for each sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import brute_force, team_brute_force
from strategies import examples, problems, teamed_problems

import placekit as pk
from placekit.advice.alternatives import alternatives_of, form_of
from placekit.advice.decision import LEAST_GAIN, Accuracy, Evidence, decide
from placekit.advice.verdict import ELSEWHERE, HERE, serial_latency_s, verdict
from placekit.model.costs import CostTable
from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.objectives import Makespan, SerialLatency, Throughput
from placekit.objectives.evaluate import evaluate
from placekit.runtime.timing.compare import PlacementTiming
from placekit.solve.split_verdict import NOT_KNOWN, Alternative

MS = 1e-3


def chain(
    op_time_s: list[list[float]], counts: dict[str, int], memory: dict[str, float] | None = None, **fields: object
) -> Problem:
    """Return a chain of ops with times by kind, a byte each, whose tensors take no time."""
    names = [f"op{i}" for i in range(len(op_time_s))]
    graph = pk.OpGraph.from_edges(names, list(pairwise(names)), name="chain")
    platform = pk.Platform.of(memory_bytes=memory or {}, **counts)  # type: ignore[arg-type]  # counts by kind
    costs = pk.CostTable(
        tuple(counts), np.array(op_time_s), np.zeros((graph.num_tensors, len(counts))), np.ones(len(names))
    )
    return Problem(graph, platform, costs, **fields)  # type: ignore[arg-type]  # fields by name


TWO = chain([[4 * MS, 20 * MS], [10 * MS, 2 * MS]], {"cpu": 1, "gpu": 1})
"""Two ops: 14 ms on the CPU, 22 ms on the GPU, 8.56 ms per sample as copies; split as CPU, GPU: 4 and 2 ms."""
EQUAL = chain([[3 * MS], [3 * MS]], {"cpu": 2}, objective=Throughput(teams="equal"))
"""Two equal ops on two equal devices: a split and copies both take 3 ms per sample."""


def all_cores(problem: Problem, seconds: float) -> Problem:
    """Return the problem on one device that takes `seconds` for everything."""
    num_ops, num_tensors = problem.graph.num_ops, problem.graph.num_tensors
    costs = pk.CostTable(
        ("whole",), np.full((num_ops, 1), seconds / num_ops), np.zeros((num_tensors, 1)), np.ones(num_ops)
    )
    return Problem(problem.graph, pk.Platform.of(whole=1), costs)


def with_error(problem: Problem, error: float) -> Problem:
    """Return the problem with costs whose error is known."""
    return problem.replace(costs=problem.costs.replace(provenance={"error": error}))


def test_split_says_gain_and_latency() -> None:
    """4 ms against 14 ms of the CPU, and against 8.56 ms of copies; a sample takes 4 + 2 ms."""
    told = verdict(TWO, Placement.of(TWO, [0, 1]))
    assert (told.choice, told.use, told.split) == ("split", "cpu.0, gpu.0", True)
    assert (told.best_single, told.best_single_objective, told.gain) == ("cpu.0", 14 * MS, 3.5)
    assert not told.within_error
    assert told.latency == pytest.approx(6 * MS)
    assert told.sentence == (
        "Split: 3.5x over cpu.0 alone (14 -> 4 ms per sample), 2.1x over a copy on each of cpu.0, gpu.0; latency of "
        "one sample 6 ms."
    )


def test_a_known_error_is_told_with_a_split() -> None:
    """A gain above the error is a gain, and the reader sees both."""
    told = verdict(with_error(TWO, 0.08), Placement.of(TWO, [0, 1]))
    assert told.split
    assert told.sentence.endswith("; the error of these costs is 8 %.")


def test_split_because_nothing_else_fits() -> None:
    """The message names what each device lacks."""
    problem = chain([[4 * MS, 4 * MS]] * 3, {"cpu": 1, "gpu": 1}, {"cpu": 2, "gpu": 1})
    told = verdict(problem, Placement.of(problem, [0, 0, 1]))
    assert (told.split, told.best_single, told.gain) == (True, None, None)
    assert told.sentence == (
        "Split: no device alone can run the model (cpu.0 lacks 1 B, gpu.0 lacks 2 B); 8 ms per sample; latency of one "
        "sample 12 ms."
    )


def test_pinned_ops_make_no_split() -> None:
    """What a pin puts elsewhere is no advice to split: the rest of the model is on one device."""
    pinned = TWO.replace(objective=SerialLatency(), contiguity=None, pinned=np.array([0, -1]))
    told = verdict(pinned, Placement.of(pinned, [0, 1]))
    assert (told.choice, told.use, told.split) == ("device", "gpu.0 with pinned ops elsewhere", False)
    assert told.sentence == "Do not split: gpu.0 with pinned ops elsewhere takes 6 ms for one sample."


def test_a_large_error_asks_for_another_measurement() -> None:
    """Half of the time and more is no basis for a decision."""
    told = verdict(with_error(TWO, 0.6), Placement.of(TWO, [0, 1])).sentence
    assert told.endswith("; so large an error: measure again on a quiet machine.")
    assert "quiet" not in verdict(with_error(TWO, 0.4), Placement.of(TWO, [0, 1])).sentence


def test_copies_keep_pins() -> None:
    """An op that must stay on a device is not advised to run on all of them."""
    pinned = TWO.replace(pinned=np.array([0, -1]))
    told = verdict(pinned, Placement.of(pinned, [0, 1]))
    assert told.objective == 4 * MS
    assert [each.form for each in told.alternatives] == ["device", "device"]


def test_modelled_costs_are_named() -> None:
    """A reader sees that no number was measured."""
    problem = TWO.replace(costs=TWO.costs.replace(provenance={"source": "analytic"}))
    assert verdict(problem, Placement.of(problem, [0, 1])).sentence.endswith("; costs are modelled, not measured.")


def test_a_gain_below_the_error_of_the_costs_is_not_known() -> None:
    """105 against 100 ms: a gain, but less than the error of 8 %; 116 against 100 ms is one."""
    problem = chain([[98 * MS, 200 * MS], [7 * MS, 2 * MS]], {"cpu": 1, "gpu": 1}, objective=SerialLatency())
    split = Placement.of(problem, [0, 1])
    assert verdict(problem, split).split
    told = verdict(with_error(problem, 0.08), split)
    assert (told.choice, told.use, told.split, told.within_error, told.error) == (NOT_KNOWN, None, False, True, 0.08)
    assert told.chosen is None
    assert told.sentence == (
        "Not known: the difference is less than the error of these costs (8 %): 105 ms by cpu.0 alone, 100 ms by the "
        f"split, for one sample; {HERE}."
    )
    assert verdict(with_error(problem, 0.04), split).choice == "split"
    measured_twice = CostTable.replace(problem.costs, op_time_spread=np.full((2, 2), 0.16))
    told = verdict(problem.replace(costs=measured_twice), split)
    assert "(8 % between repetitions)" in told.sentence


def test_the_error_of_modelled_devices_asks_for_the_devices() -> None:
    """Nobody here can time a device that is elsewhere."""
    problem = chain([[98 * MS, 200 * MS], [7 * MS, 2 * MS]], {"cpu": 1, "gpu": 1}, objective=SerialLatency())
    kinds = {"cpu": {"source": "measured", "error": 0.01}, "gpu": {"source": "described", "error": 0.5}}
    problem = problem.replace(costs=problem.costs.replace(provenance={"source": "profiled", "kinds": kinds}))
    told = verdict(problem, Placement.of(problem, [0, 1]))
    assert told.choice == NOT_KNOWN
    assert "the error of these costs (50 % of modelled devices)" in told.sentence
    assert told.sentence.endswith(f"{ELSEWHERE}.")


def test_copies_that_may_be_no_faster_are_not_known() -> None:
    """3.3 ms on all cores against 3 ms of copies: what the cores do at once is known to 17 %; a split of 6 is out."""
    problem = chain([[3 * MS], [3 * MS]], {"cpu": 2}, objective=Throughput(teams="equal"))
    for placement in (Placement.of(problem, [0, 1]), Placement.of(problem, [0, 0])):
        told = verdict(problem, placement, all_cores(problem, 3.3 * MS))
        assert told.choice == NOT_KNOWN
        assert "a copy on each of cpu.0, cpu.1" in told.sentence
    assert verdict(problem, Placement.of(problem, [0, 1]), all_cores(problem, 2.9 * MS)).choice == "all cores"
    assert verdict(problem, Placement.of(problem, [0, 1]), all_cores(problem, 3.6 * MS)).choice == "copies"


@pytest.mark.parametrize("error", [None, 0.005, 0.02, 0.2])
@examples(40)
@given(st.data())
def test_not_known_is_said_exactly_where_the_error_hides_a_gain(error: float | None, data: st.DataObject) -> None:
    """A split is advised for a gain above the error, and is not known to pay for one below it."""
    single = Alternative("CPU", "device", 1.0)
    split = Alternative("CPU, GPU", "split", data.draw(st.floats(0.5, 1.5)))
    told = decide(split, [single], Evidence(Accuracy(error)))
    assert told.gain is not None
    if told.gain > 1 + max(error or 0.0, LEAST_GAIN):
        assert told.choice == "split"
    elif told.gain > 1 + 1e-9 and error is not None and error >= LEAST_GAIN:
        assert (told.choice, told.sentence.split(":")[0]) == (NOT_KNOWN, "Not known")
    else:
        assert told.choice == "device"


def test_no_split_for_a_gain_that_is_too_small() -> None:
    """Without a known error nothing is said of one."""
    problem = chain([[98 * MS, 200 * MS], [2.5 * MS, 2 * MS]], {"cpu": 1, "gpu": 1}, objective=SerialLatency())
    told = verdict(problem, Placement.of(problem, [0, 1]))
    assert told.gain is not None
    assert 1 < told.gain < 1 + LEAST_GAIN
    assert told.sentence == (
        "Do not split: cpu.0 alone is within 0.5 %, 100 ms for one sample against 100 ms of the split; the gain is too "
        "small to be worth it."
    )


def test_no_split_that_is_slower() -> None:
    """A bad placement is told so."""
    told = verdict(TWO.replace(objective=SerialLatency()), Placement.of(TWO, [1, 0]))
    assert told.sentence == (
        "Do not split: cpu.0 alone is 2.1x faster, 14 ms for one sample against 30 ms of the split."
    )


def test_no_split_where_the_best_placement_is_one_device() -> None:
    """A proof says that no split helps; without one, how much it could."""
    problem = chain([[4 * MS, 2 * MS], [4 * MS, 2 * MS]], {"cpu": 1, "gpu": 1}, objective=SerialLatency())
    result = pk.solve(problem, "enumerate")
    told = verdict(problem, result)
    assert told.sentence == "Do not split: gpu.0 alone takes 4 ms for one sample; no placement is faster (proven)."
    bounded = replace(result, lower_bound=2 * MS, status=pk.Status.FEASIBLE)
    assert verdict(problem, bounded).sentence == (
        "Do not split: gpu.0 alone takes 4 ms for one sample; no faster placement was found, and none is more than 2x "
        "as fast (proven)."
    )


def test_copies() -> None:
    """Copies are simpler than a split that is as fast."""
    copies = Placement.of(EQUAL, [0, 0], None, [0, 0])
    told = verdict(EQUAL, copies)
    assert told.sentence == (
        "Use copies: a copy on each of cpu.0, cpu.1 is 2x over cpu.0 alone (6 -> 3 ms per sample); latency of one "
        "sample 6 ms."
    )
    assert verdict(EQUAL, Placement.of(EQUAL, [0, 1])).sentence == (
        "Use copies: a copy on each of cpu.0, cpu.1 is as fast, 3 ms per sample against 3 ms of the split."
    )


@pytest.mark.parametrize(
    ("own_error", "said"),
    [(0.08, "costs of cores that were measured apart (17 %)"), (0.2, "these costs (20 %)")],
)
def test_all_cores_as_one_device(own_error: float, said: str) -> None:
    """39.3 ms on all cores against 38.1 of copies is within the error of what shares caches and memory."""
    problem = with_error(chain([[38.1 * MS], [38.1 * MS]], {"cpu": 2}, objective=Throughput(teams="equal")), own_error)
    copies = Placement.of(problem, [0, 0], None, [0, 0])
    told = verdict(problem, copies, all_cores(problem, 39.3 * MS))
    assert (told.choice, told.best_single, told.within_error) == (NOT_KNOWN, "all cores", True)
    assert told.sentence == (
        f"Not known: the difference is less than the error of {said}: 39.3 ms by all cores as one device, 38.1 ms by a "
        f"copy on each of cpu.0, cpu.1, per sample; {HERE}."
    )
    told = verdict(problem, copies, all_cores(problem, 37 * MS))
    assert (told.choice, told.best_single, told.within_error) == ("all cores", "all cores", True)
    assert told.sentence == (
        f"Use all cores as one device: it is as fast, within the error of {said}, 37 ms per sample against 38.1 ms of "
        "a copy on each of cpu.0, cpu.1."
    )


def test_each_comparison_has_its_own_error() -> None:
    """What all cores were measured with says nothing of one group of cores; both errors are named as what they are."""
    problem = with_error(chain([[40 * MS], [40 * MS]], {"cpu": 2}, objective=Throughput(teams="equal")), 0.02)
    whole = with_error(all_cores(problem, 50 * MS), 0.5)
    told = verdict(problem, Placement.of(problem, [0, 0], None, [0, 0]), whole)
    assert "the error of the costs of all cores as one device (50 % between repetitions)" in told.sentence
    again = verdict(problem, replace(pk.solve(problem, "enumerate"), verdict=told))
    assert again.sentence == told.sentence, "a result remembers the error of all cores"
    slow = verdict(problem, Placement.of(problem, [0, 0]), with_error(all_cores(problem, 400 * MS), 0.5))
    assert (slow.best_single, slow.error) == ("cpu.0", 0.02)


def test_no_placement() -> None:
    """A proof that nothing is feasible names the constraint."""
    problem = chain([[4 * MS]] * 3, {"cpu": 2}, {"cpu": 1})
    told = verdict(problem, pk.solve(problem, "enumerate"))
    assert (told.choice, told.gain, told.split) == (None, None, False)
    assert told.sentence.startswith("No placement satisfies the constraints: ")


def test_the_runtime_by_itself() -> None:
    """What the runtime does without a plan is simpler than copies and splits."""
    others = [Alternative("CPU", "device", 9 * MS), Alternative("MULTI:CPU", "runtime", 3 * MS)]
    mine = Alternative("A, B", "split", 3 * MS)
    told = decide(mine, others, Evidence(Accuracy(0.05, "the error of this measurement")))
    assert (told.choice, told.use) == ("runtime", "MULTI:CPU")
    assert told.sentence.startswith("Let the runtime do it (MULTI:CPU): it is as fast, 3 ms per sample")


@pytest.mark.parametrize("form", ["device", "copies"])
def test_forms(form: str) -> None:
    """A placement on one team is copies, on one device none."""
    teams = {"device": None, "copies": [0, 0]}[form]
    assert form_of(Placement.of(EQUAL, [0, 0], None, teams)) == form


def test_verdicts_stand_in_result_files() -> None:
    """What is read is what was written, but for the placements of the alternatives."""
    result = pk.solve(TWO, "enumerate")
    result = replace(result, verdict=verdict(TWO, result, all_cores(TWO, 5 * MS)))
    told = json.loads(json.dumps(result.to_dict()))["verdict"]
    again = pk.Result.from_dict(json.loads(json.dumps(result.to_dict())))
    assert again.verdict == result.verdict
    assert {"split", "best_single", "gain", "within_error", "sentence"} <= told.keys()
    assert any(each.form == "all cores" for each in verdict(TWO, again).alternatives), "it is not forgotten"


def test_throughput_of_a_latency_placement() -> None:
    """The most loaded device of a stream."""
    problem = TWO.replace(objective=Makespan())
    told = verdict(problem, Placement.of(problem, [0, 1]))
    assert told.per_sample == pytest.approx(4 * MS)
    assert told.sentence.endswith("; in a stream 4 ms per sample.")


def test_latency_of_a_team_is_that_of_its_slowest_member() -> None:
    """The copy on the GPU takes 22 ms."""
    problem = TWO.replace(objective=Throughput(teams="any"))
    assert serial_latency_s(problem, Placement.of(problem, [0, 0], None, [0, 0])) == pytest.approx(22 * MS)


@examples(60)
@given(st.data())
def test_alternatives_are_judged_and_never_beat_the_optimum(data: st.DataObject) -> None:
    """Brute force over all placements: a device alone is one of them, and so are copies where teams are allowed."""
    with_teams = data.draw(st.booleans())
    problem = data.draw(teamed_problems() if with_teams else problems())
    best = team_brute_force(problem) if with_teams else brute_force(problem)
    told = alternatives_of(problem)
    for each in told:
        assert (each.objective_s is None) == (each.why_not is not None)
        if each.form == "device":
            assert each.placement is not None
            judged = evaluate(problem, each.placement)
            assert each.objective_s == (judged.objective if judged.is_feasible else None)
            assert each.objective_s is None or (best is not None and best <= each.objective_s * (1 + 1e-9))


@examples(60)
@given(problems())
def test_the_choice_is_the_simplest_within_the_error(problem: Problem) -> None:
    """Without measured errors none is better than the choice by a hundredth, and none that is as good is simpler.

    With errors it is as simple or simpler, or not known.
    """
    rng = np.random.default_rng(0)
    placement = Placement.of(problem, rng.integers(problem.platform.num_devices, size=problem.graph.num_ops))
    measured = verdict(problem, placement)
    problem = problem.replace(costs=problem.costs.replace(op_time_spread=None))
    told = verdict(problem, placement)
    simplest = ("device", "all cores", "runtime", "copies", "split")
    if measured.choice == "not known":
        assert measured.use is None
    elif told.choice is not None:
        assert measured.choice is not None
        assert simplest.index(measured.choice) <= simplest.index(told.choice)
    known = {each.name: each.objective_s for each in told.alternatives if each.objective_s is not None}
    if told.objective is not None:
        known.setdefault(str(told.use), told.objective)
    if not known:
        assert told.choice is None
        return
    chosen = known[str(told.use)]
    assert chosen <= min(known.values()) * (1 + LEAST_GAIN) * (1 + 1e-12)
    singles = [each.objective_s for each in told.alternatives if each.form == "device" and each.objective_s is not None]
    if told.choice in ("copies", "split"):
        assert all(each > min(known.values()) * (1 + LEAST_GAIN) for each in singles)


def test_a_simpler_placement_that_is_as_good_is_the_answer() -> None:
    """A split that gains nothing over one device gives way to the device."""
    from placekit.advice.verdict import with_verdict

    problem = chain([[2 * MS], [3 * MS]], {"cpu": 2}, objective=SerialLatency())
    split = replace(pk.solve(problem, "enumerate"), placement=Placement.of(problem, [0, 1]))
    found = with_verdict(split, problem)
    assert found.placement == Placement.of(problem, [0, 0])
    assert found.objective == split.objective
    assert found.verdict is not None
    assert found.verdict.choice == "device"


def test_a_simpler_placement_that_meets_the_bound_is_optimal() -> None:
    """What takes the place of an answer that was not proven has the words that its own gap deserves."""
    from placekit.advice.verdict import with_verdict

    problem = chain([[2 * MS], [2 * MS]], {"cpu": 2}, objective=pk.Throughput(teams="equal"))
    proven = pk.solve(problem, "auto")
    split = Placement.of(problem, [0, 1])
    apart = replace(
        proven, placement=split, status=pk.Status.FEASIBLE, stop_reason=pk.StopReason.TIME, objective=2.1 * MS
    )
    found = with_verdict(apart, problem)
    assert found.objective == pytest.approx(2 * MS)
    assert (found.status, found.stop_reason) == (pk.Status.OPTIMAL, pk.StopReason.PROVED)


def measured(rates: dict[str, list[float]]) -> pk.Verdict:
    """Return the verdict on the split of `TWO` that a timing with these samples per second gives."""
    return timed(rates).verdict


def timed(rates: dict[str, list[float]]) -> PlacementTiming:
    """Return a timing of the split of `TWO` with these samples per second."""
    from placekit.cost_models.measured.stage_costs import predict, stage_costs
    from placekit.runtime.timing.measurements import Measurements, Timings

    def series(name: str, values: list[float]) -> Measurements:
        rounds = np.arange(len(values))
        return Measurements(
            name, np.full(3, 6 * MS), np.arange(3), np.array(values), rounds, np.zeros(len(values)),
            error=None if values else "it broke",
        )  # fmt: skip

    split = Placement.of(TWO, [0, 1])
    return PlacementTiming(
        timings=Timings(tuple(series(*each) for each in rates.items()), 0.1, 1.0),
        executor="threads",
        singles={"cpu.0": "single cpu.0", "gpu.0": "single gpu.0"},
        runtime=tuple(each for each in rates if each.startswith(("MULTI", "AUTO", "all cores"))),
        stages=stage_costs(TWO, split),
        prediction=predict(TWO, split, is_serial=False),
        team_names=(("cpu.0",), ("gpu.0",)),
        placement=split,
    )


def test_measured_verdicts() -> None:
    """The spread of the ratio to the best other way is the error; what the runtime does by itself counts."""
    slow = {"single cpu.0": [70.0, 71.0, 72.0, 71.0], "single gpu.0": [45.0, 45.0, 45.0, 45.0]}
    told = measured({"placement": [250.0, 252.0, 248.0, 250.0], **slow})
    assert (told.choice, told.best_single) == ("split", "cpu.0")
    assert told.sentence.startswith(
        "Split: 3.5x over cpu.0 alone (14.1 -> 4 ms per sample); latency of one sample 6 ms"
    )
    assert "; the error of this measurement is " in told.sentence
    told = measured({"placement": [250.0, 252.0, 248.0, 250.0], **slow, "MULTI:CPU": [249.0, 251.0, 247.0, 252.0]})
    assert (told.choice, told.use) == ("runtime", "MULTI:CPU")
    told = measured({"placement": [250.0] * 4, **slow, "all cores": [400.0] * 4, "AUTO:CPU": []})
    assert (told.choice, told.best_single) == ("all cores", "all cores")
    assert told.sentence.startswith("Use all cores as one device: it is 1.6x faster, 2.5 ms per sample against 4 ms")
    assert [each.why_not for each in told.alternatives if each.form == "runtime"] == ["it broke"]


@examples(60)
@given(st.lists(st.tuples(*[st.floats(10, 1000)] * 4), min_size=3, max_size=9))
def test_a_timing_has_one_speedup(rounds: list[tuple[float, ...]]) -> None:
    """However much the rounds differ: the speedup, the column, the verdict and the samples per second agree."""
    names = ("placement", "single cpu.0", "single gpu.0", "MULTI:CPU")
    told = timed(dict(zip(names, map(list, zip(*rounds, strict=True)), strict=True))).to_dict()
    rate = {each["name"]: each["throughput_per_s"] for each in told["contenders"]}
    speedup = {each["name"]: each["speedup_of_placement"] for each in told["contenders"]}
    advised, best = told["verdict"], f"single {told['best_single_device']}"
    assert advised["best_single"] == told["best_single_device"]
    for figure in (advised["gain"], speedup[best], advised["best_single_objective"] / advised["objective"]):
        assert figure == pytest.approx(told["speedup"])
    for name in names[1:]:
        assert speedup[name] == pytest.approx(rate["placement"] / rate[name])
    assert advised["latency"] == told["latency_s"]
