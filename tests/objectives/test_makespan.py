"""The makespan judge against its definition, and its kernels against a plain event simulation."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Any

import numpy as np
import oracle
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from limits import SOON_S, Stopwatch
from strategies import examples, linked, problems

import placekit as pk
from placekit.model.errors import InvalidProblemError
from placekit.model.platform import Link
from placekit.objectives import get_objective
from placekit.objectives.makespan.arrays import MakespanInstance
from placekit.objectives.makespan.instance import instance_of, make_instance
from placekit.objectives.makespan.memory import memory_use
from placekit.objectives.makespan.ranks import downward_rank, mean_time_s, mean_transfer_s, upward_rank
from placekit.objectives.makespan.simulate import Timeline, simulate, simulate_fifo, simulate_steps, transfers_of

VARIANTS = st.builds(pk.Makespan, order=st.sampled_from(["fifo", "upward-rank"]), contention=st.booleans())
NO_CONTIGUITY = st.just(pk.Contiguity.NONE)


def makespan_problems(**options: Any) -> st.SearchStrategy[pk.Problem]:
    """Random problems under every variant of the objective, half of them with direct links between devices."""
    some = problems(objective=VARIANTS, contiguity=NO_CONTIGUITY, **options)
    return some | linked(some)


def supported_devices(data: st.DataObject, problem: pk.Problem) -> tuple[int, ...]:
    """Draw a placement in which every op is supported by its device."""
    kinds = problem.platform.kind_of_device
    choices = [np.flatnonzero(problem.costs.supported[op, kinds]).tolist() for op in range(problem.graph.num_ops)]
    return tuple(data.draw(st.sampled_from(choice)) for choice in choices)


def times(run: Timeline | int) -> list[tuple[float, float]]:
    """Return start and finish of every op; empty if the devices got stuck."""
    return [] if isinstance(run, int) else list(zip(run.start_s.tolist(), run.finish_s.tolist(), strict=True))


def has_contention(problem: pk.Problem) -> bool:
    """Return the variant of the problem's objective."""
    assert isinstance(problem.objective, pk.Makespan)
    return problem.objective.contention


@pytest.fixture
def makespan(diamond: pk.Problem) -> pk.Problem:
    """Return the diamond with a clock: 1 s per op on an accelerator, 4 s between two accelerators."""
    return diamond.replace(objective=pk.Makespan(), contiguity="none")


def test_diamond_by_hand(makespan: pk.Problem) -> None:
    """Accelerators: a 0-1, b 1-2 beside it; c waits for 2 + 2 s of transfer, runs 5-6, its tensor is back at 10."""
    evaluation = pk.evaluate(makespan, pk.Placement.of(makespan, [1, 1, 2, 1]))
    assert evaluation.objective == 11.0
    assert evaluation.score is not None
    assert evaluation.score.compute_s.tolist() == [0.0, 3.0, 1.0]
    assert evaluation.score.load_s.tolist() == [0.0, 3.0, 1.0]
    assert evaluation.score.transfer_s.tolist() == [0.0, 4.0, 4.0]
    schedule = evaluation.score.schedule
    assert schedule is not None
    names = [makespan.graph.op_names[op] for op in schedule.op]
    rows = zip(names, schedule.device, schedule.start_s, schedule.finish_s, schedule.peer, strict=True)
    assert [(name, int(d), float(a), float(b), int(peer)) for name, d, a, b, peer in rows] == [
        ("a", 1, 0, 1, -1),
        ("b", 1, 1, 2, -1),
        ("c", 2, 5, 6, -1),
        ("d", 1, 10, 11, -1),
        ("a", 1, 1, 5, 2),
        ("c", 2, 6, 10, 1),
    ]
    assert schedule.is_transfer.tolist() == [False] * 4 + [True] * 2
    # 3 ops of 1 byte; from 5 s on the tensors of b (4 bytes) and of c (4 bytes) wait for d; that of a is gone at 5 s
    assert schedule.peak_memory_bytes is not None
    assert schedule.peak_memory_bytes.tolist() == [0.0, 11.0, 9.0]


def test_one_device_runs_ops_one_after_another(makespan: pk.Problem) -> None:
    """On one device the makespan is the sum of the times, and nothing moves."""
    evaluation = pk.evaluate(makespan, pk.Placement.of(makespan, [0, 0, 0, 0]))
    assert evaluation.objective == 16.0
    assert evaluation.score is not None
    assert evaluation.score.schedule is not None
    assert not evaluation.score.schedule.is_transfer.any()


def test_contention_sends_one_after_another() -> None:
    """A tensor for two devices takes 2 s each: both arrive at 3 s without contention, at 3 and 5 s with it."""
    graph = pk.OpGraph.from_edges(["a", "b", "c"], [("a", "b"), ("a", "c")], output_bytes=[4, 0, 0])
    platform = pk.Platform.of(acc=3, links={"acc": Link(1.0, np.inf)})
    problem = pk.Problem(
        graph, platform, pk.CostTable(("acc",), np.ones((3, 1)), np.ones((1, 1)), np.zeros(3)), pk.Makespan()
    )
    placement = pk.Placement.of(problem, [0, 1, 2])
    assert pk.evaluate(problem, placement).objective == 4.0
    contended = problem.replace(objective=pk.Makespan(contention=True))
    assert pk.evaluate(contended, placement).objective == 6.0


def test_steps_decide_the_order_on_a_device(makespan: pk.Problem) -> None:
    """Without steps b is first (topological position); steps let c go before it."""
    orders = {}
    for steps in (None, [0, 9, 5, 0]):
        evaluation = pk.evaluate(makespan, pk.Placement.of(makespan, [1, 1, 1, 2], steps))
        assert evaluation.objective == 8.0  # the last of b and c ends at 3, its tensor arrives at 7
        assert evaluation.score is not None
        assert evaluation.score.schedule is not None
        orders[steps is None] = "".join(makespan.graph.op_names[op] for op in evaluation.score.schedule.op[:4])
    assert orders == {True: "abcd", False: "acbd"}


def test_steps_that_wait_for_each_other_are_a_violation(makespan: pk.Problem) -> None:
    """A device that wants d before b waits for itself; the message names an op of the cycle."""
    evaluation = pk.evaluate(makespan, pk.Placement.of(makespan, [1, 1, 2, 1], [0, 3, 1, 2]))
    assert (evaluation.objective, evaluation.score) == (None, None)
    (violation,) = evaluation.violations
    assert (violation.constraint, violation.device) == ("order", "acc.0")
    assert violation.op in ("b", "d")
    assert "waits for itself" in violation.message


def test_unknown_order_is_refused() -> None:
    """A dispatch rule that does not exist names the value and those that do."""
    with pytest.raises(InvalidProblemError, match=r"order is 'lifo'; it must be one of fifo, upward-rank"):
        get_objective("makespan", {"order": "lifo"})


def test_variants_survive_files() -> None:
    """The variant goes to JSON values and back."""
    variant = pk.Makespan("upward-rank", contention=True)
    assert get_objective("makespan", variant.to_dict()) == variant


@given(makespan_problems(), st.data())
@examples(40)
def test_judge_is_the_plain_simulation_bit_by_bit(problem: pk.Problem, data: st.DataObject) -> None:
    """Every start and finish of every variant equals that of the event simulation written from the definition."""
    device = supported_devices(data, problem)
    expected = oracle.makespan_times(problem, device)
    evaluation = pk.evaluate(problem, pk.Placement.of(problem, device))
    assert evaluation.objective == max(finish for _, finish in expected) == oracle.objective(problem, device)
    assert evaluation.score is not None
    schedule = evaluation.score.schedule
    assert schedule is not None
    ops = ~schedule.is_transfer
    found = dict(zip(schedule.op[ops], zip(schedule.start_s[ops], schedule.finish_s[ops], strict=True), strict=True))
    assert [found[op] for op in range(len(device))] == expected


@given(makespan_problems(), st.data())
@examples(120)
def test_priorities_and_steps_are_the_plain_simulation_bit_by_bit(problem: pk.Problem, data: st.DataObject) -> None:
    """Any float priority, and any steps, stuck ones included."""
    device = supported_devices(data, problem)
    num_ops, contention = len(device), has_contention(problem)
    instance = make_instance(problem)
    key = st.sampled_from([-1.5, 0.0, 1.0]) | st.floats(-9, 9)
    priority = data.draw(st.lists(key, min_size=num_ops, max_size=num_ops))
    run = simulate(instance, device, priority, has_contention=contention)
    assert times(run) == oracle.makespan_times(problem, device, priority=priority)
    step = tuple(data.draw(st.lists(st.integers(-2, num_ops), min_size=num_ops, max_size=num_ops)))
    strict = simulate_steps(instance, device, step, has_contention=contention)
    assert times(strict) == oracle.makespan_times(problem, device, step=step)


@given(makespan_problems(), st.data())
@examples(40)
def test_steps_of_a_run_give_the_run_again(problem: pk.Problem, data: st.DataObject) -> None:
    """A free run, written down as steps and run strictly, has the same times bit by bit."""
    device, contention = supported_devices(data, problem), has_contention(problem)
    run = simulate_fifo(make_instance(problem), device, has_contention=contention)
    again = simulate_steps(make_instance(problem), device, run.step_of_op, has_contention=contention)
    assert times(again) == times(run)


@given(makespan_problems(), st.data())
@examples(50)
def test_stuck_op_lies_on_a_cycle(problem: pk.Problem, data: st.DataObject) -> None:
    """The op that is named reaches itself over graph edges and the orders of the devices."""
    device, num_ops = supported_devices(data, problem), problem.graph.num_ops
    step = data.draw(st.permutations(range(num_ops)))
    stuck = simulate_steps(make_instance(problem), device, step)
    assume(isinstance(stuck, int))
    after: dict[int, set[int]] = {op: set() for op in range(num_ops)}
    for u, v in oracle.edges(problem):
        after[u].add(v)
    for u in range(num_ops):
        after[u] |= {v for v in range(num_ops) if device[v] == device[u] and step[v] > step[u]}
    seen: set[int] = set()
    front = [stuck]
    while front:
        for v in after[front.pop()] - seen:  # type: ignore[index]  # an int, assumed above
            seen.add(v)
            front.append(v)
    assert stuck in seen


@given(makespan_problems(max_ops=6), st.data())
@examples(100)
def test_memory_and_transfers_are_those_of_the_definition(problem: pk.Problem, data: st.DataObject) -> None:
    """Peak bytes equal those of a look at every moment; a busy link never carries two tensors at once."""
    device = supported_devices(data, problem)
    evaluation = pk.evaluate(problem, pk.Placement.of(problem, device))
    assert evaluation.score is not None
    schedule = evaluation.score.schedule
    assert schedule is not None
    instance, contention = instance_of(problem), has_contention(problem)
    run = simulate_steps(instance, device, schedule_steps(schedule), has_contention=contention)
    assert not isinstance(run, int)
    moves = transfers_of(instance, device, run, has_contention=contention)
    alive: list[tuple[int, float, float, float]] = []  # device, begin, end, bytes
    for t, producer, readers in oracle.tensors(problem):
        sent = [i for i in range(len(moves.tensor)) if moves.tensor[i] == t]
        assert {int(moves.target[i]) for i in sent} == {device[r] for r in readers} - {device[producer]}
        here = [run.finish_s[r] for r in readers if device[r] == device[producer]]
        end = max([run.finish_s[producer], *here, *(moves.finish_s[i] for i in sent)])
        alive.append((device[producer], run.start_s[producer], end, float(problem.graph.tensor_bytes[t])))
        for i in sent:
            there = [run.finish_s[r] for r in readers if device[r] == moves.target[i]]
            row = (int(moves.target[i]), moves.start_s[i], max(there), float(problem.graph.tensor_bytes[t]))
            alive.append(row)
    assert schedule.peak_memory_bytes is not None
    for d, peak in enumerate(schedule.peak_memory_bytes.tolist()):
        own = sum(float(problem.costs.op_memory_bytes[op]) for op in range(len(device)) if device[op] == d)
        mine = [row for row in alive if row[0] == d]
        looks = [own]
        for moment in {row[1] for row in mine}:
            # half open, but for tensors that are alive at this moment only
            during = [n for _, a, b, n in mine if (a <= moment < b) or a == moment]
            looks.append(own + sum(during))
        assert peak == pytest.approx(max(looks), rel=1e-12)
    if contention:
        sender = [device[int(p)] for p in problem.graph.tensor_producer[moves.tensor]]
        for d in set(sender):
            busy = [(moves.start_s[i], moves.finish_s[i]) for i in range(len(sender)) if sender[i] == d]
            assert all(a[1] <= b[0] for a, b in pairwise(busy))


def schedule_steps(schedule: pk.objectives.Schedule) -> list[int]:
    """Return the position of every op among the ops of the schedule, which are listed in the order of their starts."""
    ops = schedule.op[~schedule.is_transfer].tolist()
    return [ops.index(op) for op in range(len(ops))]


@given(makespan_problems(), st.data())
@examples(40)
def test_scaling_all_costs_scales_the_makespan(problem: pk.Problem, data: st.DataObject) -> None:
    """Costs times eight, exact in binary, are a makespan times eight."""
    device = supported_devices(data, problem)
    costs = problem.costs
    scaled = problem.replace(
        costs=costs.replace(
            op_time_s=costs.op_time_s * 8,
            transfer_time_s=costs.transfer_time_s * 8,
            direct_time_s=costs.direct_time_s * 8,
        )
    )
    before = pk.evaluate(problem, pk.Placement.of(problem, device)).objective
    assert before is not None
    assert pk.evaluate(scaled, pk.Placement.of(scaled, device)).objective == before * 8


def test_ranks_by_hand(diamond: pk.Problem) -> None:
    """Mean time 2.5 s (4 and 1); mean transfer over pairs of three devices, twice (0 + 2 + 2) / 3."""
    instance = make_instance(diamond)
    time, transfer = mean_time_s(instance), mean_transfer_s(instance)
    assert time.tolist() == [2.5] * 4
    assert transfer == pytest.approx([8 / 3] * 3)
    assert upward_rank(instance, time, transfer) == pytest.approx([7.5 + 16 / 3, 5 + 8 / 3, 5 + 8 / 3, 2.5])
    assert downward_rank(instance, time, transfer) == pytest.approx([0, 2.5 + 8 / 3, 2.5 + 8 / 3, 5 + 16 / 3])


def test_instance_is_kept_with_the_problem(diamond: pk.Problem) -> None:
    """The arrays are made once per problem, are read-only, and a changed problem has its own."""
    instance: MakespanInstance = instance_of(diamond)
    assert instance_of(diamond) is instance
    assert instance_of(diamond.pin({"a": "acc.0"})) is not instance
    with pytest.raises(ValueError, match="read-only"):
        instance.op_time_s[0, 0] = 1.0


def test_op_that_reads_a_tensor_twice_waits_for_one_arrival() -> None:
    """Two inputs of one op that are the same tensor count once."""
    graph = pk.OpGraph(
        name="twice",
        op_names=("a", "b"),
        op_types=("Op", "Op"),
        tensor_producer=np.array([0]),
        consumer_offsets=np.array([0, 2]),
        consumers=np.array([1, 1]),
        tensor_bytes=np.array([8.0]),
    )
    costs = pk.CostTable(("cpu",), np.ones((2, 1)), np.full((1, 1), 0.5), np.zeros(2))
    problem = pk.Problem(graph, pk.Platform.of(cpu=2), costs, pk.Makespan())
    assert pk.evaluate(problem, pk.Placement.of(problem, [0, 1])).objective == 3.0


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="kernels are interpreted")
def test_thousands_of_placements_a_second() -> None:
    """A batch of 1,000-op graphs is fast enough to learn and search with: generous, for busy machines."""
    rng = np.random.default_rng(0)
    names = [f"op{i}" for i in range(1000)]
    pairs = {(names[max(0, i - int(rng.integers(1, 30)))], names[i]) for i in range(1, 1000) for _ in range(2)}
    graph = pk.OpGraph.from_edges(names, sorted(pairs))
    costs = pk.CostTable(("acc",), rng.random((1000, 1)), rng.random((graph.num_tensors, 1)), np.zeros(1000))
    problem = pk.Problem(graph, pk.Platform.of(acc=4), costs, pk.Makespan())
    score = problem.objective.batch_score(problem)
    assert score is not None
    devices = rng.integers(0, 4, (1000, 1000))
    score(devices[:2])  # compile
    watch = Stopwatch()
    score(devices)  # each in the better of two orders
    assert watch.seconds() < SOON_S / 3


@given(makespan_problems(), st.data())
@examples(40)
def test_problem_and_result_survive_their_files(
    tmp_path_factory: pytest.TempPathFactory, problem: pk.Problem, data: st.DataObject
) -> None:
    """The variant, the steps, the schedule and the memory come back exactly, whatever the costs."""
    folder = tmp_path_factory.mktemp("files")
    pk.write_problem(problem, folder / "problem.json")
    assert pk.read_problem(folder / "problem.json") == problem
    result = pk.solve(problem, method=data.draw(st.sampled_from(["heft", "m-etf", "random:3"])))
    pk.write_result(result, folder / "result.json")
    again = pk.read_result(folder / "result.json")
    assert again == result
    if result.schedule is not None:
        assert again.schedule is not None
        assert again.schedule.to_dict() == result.schedule.to_dict()


def test_steps_number_the_starts(makespan: pk.Problem) -> None:
    """From 0 on, in the order in which ops start, whatever chooses among those that are ready."""
    instance, device = instance_of(makespan), [1, 1, 2, 1]
    for run in (simulate(instance, device, [0, 0, 0, 0]), simulate_fifo(instance, device)):
        assert run.step_of_op.tolist() == np.argsort(np.argsort(run.start_s, kind="stable")).tolist()


def test_devices_that_are_allowed(makespan: pk.Problem) -> None:
    """Where the kind supports all ops of a class, and no pin of one of them says otherwise."""
    supported = np.array([[True, True], [True, True], [False, True], [True, True]])
    costs = makespan.costs.replace(supported=supported)
    problem = makespan.replace(costs=costs).pin({"a": "acc.0"}).colocate(["a", "b"]).colocate(["c", "d"])
    alone, others = [False, True, False], [False, True, True]
    assert instance_of(problem).allowed.tolist() == [alone, alone, others, others]


def test_crossings_of_direct_links() -> None:
    """The sender pays for every receiver behind the host; a receiver of a direct link pays for that link."""
    platform = pk.Platform(
        tuple(pk.Device(name, name[0]) for name in ("a0", "a1", "b", "c", "d")),
        {kind: Link(1.0, np.inf) for kind in "abcd"},
        (pk.DirectLink(0.1, np.inf, ("a", "a")), pk.DirectLink(0.2, np.inf, ("a", "b"))),
    )
    graph = pk.OpGraph.from_edges(list("uvwx"), [("u", "v"), ("u", "w"), ("u", "x")])
    costs = pk.CostTable(
        tuple("abcd"), np.ones((4, 4)), np.array([[1.0, 2.0, 3.0, 4.0]]), np.zeros(4),
        direct_links=platform.direct_link_names, direct_time_s=np.array([[0.1, 0.2]]),
    )  # fmt: skip
    problem = pk.Problem(graph, platform, costs, pk.Makespan())
    assert problem.objective.crossing_s(problem, 0, 0, [1, 2]) == {0: 0.0, 1: 0.1, 2: 0.2}
    assert problem.objective.crossing_s(problem, 0, 0, [2, 3, 4]) == {0: 2.0, 2: 0.2, 3: 3.0, 4: 4.0}


def test_mean_transfers_over_direct_links() -> None:
    """Six ordered pairs: two over the direct link of the a's, 0.1 s each, and four of 1 s and 2 s through the host."""
    platform = pk.Platform(
        tuple(pk.Device(name, name[0]) for name in ("a0", "a1", "b")),
        {kind: Link(1.0, np.inf) for kind in "ab"},
        (pk.DirectLink(0.1, np.inf, ("a", "a")),),
    )
    graph = pk.OpGraph.from_edges(["u", "v"], [("u", "v")])
    costs = pk.CostTable(
        ("a", "b"), np.ones((2, 2)), np.array([[1.0, 2.0]]), np.zeros(2),
        direct_links=platform.direct_link_names, direct_time_s=np.array([[0.1]]),
    )  # fmt: skip
    instance = instance_of(pk.Problem(graph, platform, costs, pk.Makespan()))
    assert mean_transfer_s(instance) == pytest.approx([(2 * 0.1 + 4 * 3.0) / 6])


def test_an_op_waits_for_another_that_takes_a_part_of_a_second() -> None:
    """With c ready on its device after 0.25 s, while b runs there until 0.5 s."""
    graph = pk.OpGraph.from_edges(["a", "b", "c"], [("a", "c")])
    costs = pk.CostTable(("cpu",), np.array([[0.25], [0.5], [0.25]]), np.zeros((1, 1)), np.zeros(3))
    problem = pk.Problem(graph, pk.Platform.of(cpu=2), costs, pk.Makespan())
    run = simulate_fifo(instance_of(problem), [0, 1, 1])
    assert times(run) == [(0.0, 0.25), (0.0, 0.5), (0.5, 0.75)]
    assert run.makespan_s == 0.75


def test_an_engine_without_steps_scores_a_single_placement(makespan: pk.Problem) -> None:
    """A batch of one row is scored as the judge does."""
    problem = makespan.replace(objective=pk.Makespan(steps="none"))
    batch = problem.objective.batch_score(problem)
    assert batch is not None
    assert batch(np.array([[1, 1, 2, 1]])).tolist() == [
        pk.evaluate(problem, pk.Placement.of(problem, [1, 1, 2, 1])).objective
    ]


def test_receivers_take_turns_by_their_ranks() -> None:
    """The tensor of a goes to c first, which takes 5 s, and then to b, 2 s each: c ends at 7 s, and b at 5 s."""
    graph = pk.OpGraph.from_edges(["a", "b", "c"], [("a", "b"), ("a", "c")])
    costs = pk.CostTable(("cpu",), np.array([[0.0], [1.0], [5.0]]), np.full((1, 1), 1.0), np.zeros(3))
    problem = pk.Problem(graph, pk.Platform.of(cpu=3), costs, pk.Makespan(contention=True))
    run = simulate_fifo(instance_of(problem), [0, 1, 2], has_contention=True)
    assert times(run) == [(0.0, 0.0), (4.0, 5.0), (2.0, 7.0)]


def test_memory_of_a_moment() -> None:
    """Two ops of no time and one of 1 s: the peak counts both tensors of the moment; the curve has it once."""
    graph = pk.OpGraph.from_edges(["a", "b", "c"], [("a", "b"), ("b", "c")], output_bytes=[7.0, 5.0, 0.0])
    costs = pk.CostTable(("cpu",), np.array([[0.0], [0.0], [1.0]]), np.zeros((2, 1)), np.zeros(3))
    problem = pk.Problem(graph, pk.Platform.of(cpu=1), costs, pk.Makespan())
    instance, device = instance_of(problem), np.zeros(3, dtype=np.int64)
    run = simulate_steps(instance, device, np.arange(3), has_contention=False)
    assert not isinstance(run, int)
    moves = transfers_of(instance, device, run, has_contention=False)
    use = memory_use(instance, graph.tensor_bytes, device, run, moves)
    assert use.peak_bytes.tolist() == [12.0]
    assert list(zip(use.time_s.tolist(), use.num_bytes.tolist(), strict=True)) == [(0.0, 5.0), (1.0, 0.0)]
