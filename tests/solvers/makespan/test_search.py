"""Makespan search: incremental schedules against the judge's, moves and their undoing, quality, anytime behaviour."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from interpreted import interpreted
from limits import SOON_S, Stopwatch
from numpy.typing import NDArray
from oracle import is_feasible
from random_orders import random_order
from strategies import ALL, examples, problems

import placekit as pk
from placekit.model.contiguity import Contiguity
from placekit.model.errors import UnsupportedProblemError
from placekit.objectives import Makespan
from placekit.objectives.makespan.simulate import simulate_steps
from placekit.solvers.generic.draws import Cooling
from placekit.solvers.makespan.schedule import sequence as sequences
from placekit.solvers.makespan.schedule.sequence import SequenceProblem, empty_timeline, sequence_problem
from placekit.solvers.makespan.search import trial as trials
from placekit.solvers.makespan.search import walk as walks
from placekit.solvers.makespan.search.anneal import anneal, sort_by_start
from placekit.solvers.makespan.search.clusters import clustered
from placekit.solvers.makespan.search.incumbent import HOT
from placekit.solvers.makespan.search.local_search import MILD
from placekit.solvers.makespan.search.proposals import propose
from placekit.solvers.makespan.search.starts import list_schedule
from placekit.solvers.makespan.search.trial import keeps, restore

MAKESPAN = st.builds(Makespan, order=st.sampled_from(["fifo", "upward-rank"]), contention=st.booleans())
FREE = st.just(Contiguity.NONE)


def flat_of(problem: pk.Problem) -> SequenceProblem:
    """Return the search's arrays of a problem."""
    assert isinstance(problem.objective, Makespan)
    return sequence_problem(problem, has_contention=problem.objective.contention)


def some_start(
    problem: pk.Problem, flat: SequenceProblem, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Return a random feasible placement and a random topological order; None if none was found."""
    if not flat.allowed.any(axis=1).all():
        return None
    start = list_schedule(flat, 0.5, rng)
    return None if start is None else (start[0], random_order(problem, rng))


def layered(num_ops: int, *, seed: int = 0, num_devices: int = 4, transfer: float = 1.0) -> pk.Problem:
    """Return a random graph whose edges reach at most 20 ops back, on equal accelerators."""
    rng = np.random.default_rng(seed)
    names = [f"o{i}" for i in range(num_ops)]
    edges = [(names[rng.integers(max(0, i - 20), i)], names[i]) for i in range(1, num_ops) for _ in range(2)]
    graph = pk.OpGraph.from_edges(names, edges, name="layered")
    costs = pk.CostTable(
        ("acc",), 0.5 + rng.random((num_ops, 1)), rng.random((graph.num_tensors, 1)) * transfer, np.ones(num_ops)
    )
    return pk.Problem(graph, pk.Platform.of(acc=num_devices), costs, Makespan())


def optimum(problem: pk.Problem) -> float | None:
    """Return the best makespan over all placements and all topological orders, each run strictly by the judge."""
    graph, flat = problem.graph, flat_of(problem)
    edges = set(zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True))
    orders = [
        order
        for order in itertools.permutations(range(graph.num_ops))
        if all(order.index(u) < order.index(v) for u, v in edges)
    ]
    best: float | None = None
    for device in itertools.product(range(problem.platform.num_devices), repeat=graph.num_ops):
        if not is_feasible(problem, device):
            continue
        # orders that agree on every device make the same schedule
        for order in {tuple(sorted(order, key=device.__getitem__)): order for order in orders}.values():
            run = simulate_steps(flat.instance, device, np.argsort(order), has_contention=flat.has_contention)
            assert not isinstance(run, int)
            best = run.makespan_s if best is None else min(best, run.makespan_s)
    return best


@examples(150)
@given(problems(objective=MAKESPAN, contiguity=FREE), st.integers(0, 2**31))
def test_sequence_is_scheduled_as_the_judge_runs_its_steps(problem: pk.Problem, seed: int) -> None:
    """Start and finish of every op equal the strict run with the positions as steps, bit by bit; also in parts."""
    flat, rng = flat_of(problem), np.random.default_rng(seed)
    start = some_start(problem, flat, rng)
    if start is None:
        return
    device, sequence = start
    timeline = empty_timeline(flat)
    with interpreted(sequences):
        value = sequences.decode(flat, device, sequence, timeline, 0)
    judged = simulate_steps(flat.instance, device, np.argsort(sequence), has_contention=flat.has_contention)
    assert not isinstance(judged, int)
    assert value == judged.makespan_s
    np.testing.assert_array_equal(timeline.start_s, judged.start_s)
    np.testing.assert_array_equal(timeline.finish_s, judged.finish_s)
    with interpreted(sequences):
        assert sequences.decode(flat, device, sequence, timeline, int(rng.integers(len(sequence)))) == value
    assert pk.evaluate(problem, pk.Placement.of(problem, device, np.argsort(sequence))).objective == value


@pytest.mark.slow
@examples(150)
@given(problems(objective=MAKESPAN, contiguity=FREE), st.integers(0, 2**31))
def test_moves_keep_every_constraint_and_can_be_taken_back(problem: pk.Problem, seed: int) -> None:
    """Proposals keep topological order, classes, pins, support and memory; trials are exact; undo restores all."""
    flat, rng = flat_of(problem), np.random.default_rng(seed)
    start = some_start(problem, flat, rng)
    if start is None:
        return
    walk = walks.empty_walk(flat)
    value = walks.load(flat, walk, *start)
    reference = walks.empty_walk(flat)
    seed_numba(seed)
    for number in range(40):
        walks.trace(flat, walk)
        before = [array.copy() for array in (walk.device, walk.sequence, walk.position, walk.used_bytes)]
        ran = runs(walk)
        walks.forget(walk)
        first = propose(flat, walk)
        if first >= 0:
            assert is_feasible(problem, tuple(walk.device.tolist()))
            moved = walk.changed[: walk.counters[walks.NUM_CHANGED]]
            assert len(set(moved.tolist())) == len(moved)
            place = walk.position
            np.testing.assert_array_equal(walk.sequence[place], np.arange(len(place)))
            assert (place[problem.graph.senders] < place[problem.graph.receivers]).all()
            np.testing.assert_array_equal(walk.sequence[:first], before[1][:first])
            exact = walks.load(flat, reference, walk.device, walk.sequence)
            end = walks.touched(flat, walk, first)
            np.testing.assert_array_equal(walk.sequence[end:], before[1][end:])
            np.testing.assert_array_equal(walk.device[walk.sequence[end:]], before[0][walk.sequence[end:]])
            has_effect = runs(walk) != ran
            for weight in (0.0, 1.0):
                delay = max(float((reference.finish_s - walk.finish_s).mean()), 0.0)
                cost = exact + weight * delay
                for limit, expected in ((cost * (1 + 1e-9), True), (cost * (1 - 1e-9) - 1e-12, False)):
                    kept, tried = keeps(flat, walk, first, end, limit, value, weight)
                    assert kept == (expected and has_effect)
                    restore(flat, walk, first, tried)
            if number % 3 == 0:
                value = walks.settle(flat, walk, first, end)
                assert value == exact
                np.testing.assert_array_equal(walk.finish_s, reference.finish_s)
                np.testing.assert_array_equal(walk.to_end_s, reference.to_end_s)
                sort_by_start(walk)
                assert walks.settle(flat, walk, 0, len(place)) == value
                continue
        walks.undo(flat, walk)
        for array, old in zip((walk.device, walk.sequence, walk.position, walk.used_bytes), before, strict=True):
            np.testing.assert_array_equal(array, old)
        assert walks.settle(flat, walk, 0, len(walk.sequence)) == value


def runs(walk: walks.Walk) -> dict[int, list[int]]:
    """Return what each device runs, in order."""
    order: dict[int, list[int]] = {}
    for v in walk.sequence.tolist():
        order.setdefault(int(walk.device[v]), []).append(v)
    return order


def seed_numba(seed: int) -> None:
    """Seed the generator that the kernels use, by annealing two ops elsewhere."""
    flat = flat_of(layered(2))
    walk = walks.empty_walk(flat)
    anneal(flat, walk, walk.device.copy(), np.arange(2), np.inf, 1.0, Cooling(1.0, 0.5, 1, seed))


@examples(100)
@given(problems(objective=MAKESPAN, contiguity=FREE), st.integers(0, 2**31))
def test_a_trial_above_its_limit_is_given_up_early(problem: pk.Problem, seed: int) -> None:
    """What must follow the ops shows below the makespan that not all of them need to be scheduled."""
    flat, rng = flat_of(problem), np.random.default_rng(seed)
    start = some_start(problem, flat, rng)
    if start is None:
        return
    walk = walks.empty_walk(flat)
    value = walks.load(flat, walk, *start)
    num_ops = flat.instance.num_ops
    with interpreted(trials, sequences):
        kept, tried = trials.keeps(flat, walk, 0, num_ops, value * 0.99 - 1e-9, value, 1.0)
    assert not kept
    assert tried < num_ops


@examples(100)
@given(problems(objective=MAKESPAN, contiguity=FREE), st.integers(0, 2**31))
def test_list_schedules_respect_what_they_must(problem: pk.Problem, seed: int) -> None:
    """With any noise they are feasible schedules."""
    flat, rng = flat_of(problem), np.random.default_rng(seed)
    if not flat.allowed.any(axis=1).all():
        return
    start = list_schedule(flat, rng.choice([0.0, 0.3, 2.0]), rng)
    if start is not None:
        device, sequence = start
        assert is_feasible(problem, tuple(device.tolist()))
        place = np.argsort(sequence)
        assert (place[problem.graph.senders] < place[problem.graph.receivers]).all()


SMALL: dict[str, Any] = {"patience": 3, "steps": 20}
"""Parameters of a quick run."""


@examples(40)
@given(problems(max_ops=6, objective=MAKESPAN, contiguity=FREE), st.integers(0, 2**31))
def test_answers_are_feasible_and_never_worse_than_the_start(problem: pk.Problem, seed: int) -> None:
    """With a random warm start, feasible or not; the same seed gives the same answer."""
    rng = np.random.default_rng(seed)
    warm = pk.Placement.of(problem, rng.integers(0, problem.platform.num_devices, problem.graph.num_ops))
    first, again = (pk.solve(problem, "local-search", params=SMALL, seed=seed, warm_start=warm) for _ in range(2))
    assert first.placement == again.placement
    judged = pk.evaluate(problem, warm)
    if first.placement is not None:
        assert is_feasible(problem, tuple(first.placement.device_of_op.tolist()))
    if judged.is_feasible and judged.objective is not None:
        assert first.objective is not None
        assert first.objective <= judged.objective


def tiny(seed: int) -> pk.Problem:
    """Return a random problem of five ops on two or three devices; contention on every second one."""
    rng = np.random.default_rng(seed)
    names = list("abcde")
    edges = [(names[u], names[v]) for u in range(5) for v in range(u + 1, 5) if rng.random() < 0.4]
    graph = pk.OpGraph.from_edges(names, edges, name=f"tiny{seed}")
    platform = pk.Platform.of(cpu=1, acc=1 + seed % 2, memory_bytes={"acc": float(rng.integers(3, 8))})
    costs = pk.CostTable(
        ("cpu", "acc"),
        rng.integers(0, 9, (5, 2)).astype(np.float64),
        rng.integers(0, 5, (graph.num_tensors, 2)).astype(np.float64),
        rng.integers(0, 3, 5).astype(np.float64),
    )
    return pk.Problem(graph, platform, costs, Makespan(contention=seed % 4 < 2))


@pytest.fixture(scope="module")
def optima() -> list[float | None]:
    """Return the optima of the first tiny problems."""
    return [optimum(tiny(seed)) for seed in range(30 if ALL else 10)]


def test_search_finds_the_optimum_of_tiny_problems(optima: list[float | None]) -> None:
    """On all random problems but one the answer is the best over all placements and orders."""
    found = 0
    for seed, best in enumerate(optima):
        problem = tiny(seed)
        result = pk.solve(problem, "local-search:20", seed=seed)
        assert (result.objective is None) == (best is None)
        if best is not None:
            assert result.objective is not None
            assert result.objective >= best - 1e-9
            found += result.objective <= best + 1e-9
        else:
            found += 1
    assert found >= len(optima) - 1


@pytest.mark.parametrize("contention", [False, True])
def test_search_beats_list_scheduling(contention: bool) -> None:
    """Where transfers cost more than ops, annealing gains at least a tenth on the list schedule it starts from."""
    problem = layered(120, transfer=4.0).replace(objective=Makespan(contention=contention))
    flat = flat_of(problem)
    start = list_schedule(flat, 0.0, np.random.default_rng(0))
    assert start is not None
    listed = walks.load(flat, walks.empty_walk(flat), *start)
    result = pk.solve(problem, "local-search", params={"max_cycles": 6}, seed=0)
    assert result.objective is not None
    assert result.objective <= 0.9 * listed


def test_mild_cycles_stay_near_where_they_start() -> None:
    """A walk from below `MILD` ends with far more ops where they were than one from above."""
    flat = flat_of(layered(120, transfer=0.5))
    start = list_schedule(flat, 0.0, np.random.default_rng(0))
    assert start is not None
    walk, device, sequence = walks.empty_walk(flat), start[0].copy(), start[1].copy()
    num_steps = 300 * len(device)
    listed_s = walks.load(flat, walk, device, sequence)
    cooling = Cooling(0.03 * listed_s, 1e-4 * listed_s, num_steps, 0)
    best_s = anneal(flat, walk, device, sequence, listed_s, 0.2, cooling)
    stays = []
    for hot in HOT:
        walks.load(flat, walk, device, sequence)
        cooling = Cooling(hot * best_s, 1e-4 * best_s, num_steps, 1)
        anneal(flat, walk, device.copy(), sequence.copy(), best_s, 0.2, cooling)
        stays.append(float(np.mean(walk.device == device)))
    mild = [stay for hot, stay in zip(HOT, stays, strict=True) if hot < MILD]
    assert min(mild) > 1.5 * max(stays[len(mild) :])


def test_search_stops_in_time() -> None:
    """Long before a cycle of 3,000 ops is done, the clock is heard."""
    problem = layered(3000)
    pk.solve(problem, "local-search", stop=pk.MaxRuntime(0.1))  # compiled by now
    watch = Stopwatch()
    result = pk.solve(problem, "local-search", stop=pk.MaxRuntime(1.0))
    assert watch.seconds() < SOON_S / 3
    assert result.stop_reason is pk.StopReason.TIME
    assert result.placement is not None
    assert result.placement.step_of_op is not None


@pytest.mark.parametrize("contention", [False, True])
def test_searches_start_from_the_list_schedules(contention: bool) -> None:
    """Even without time to search, the answer is no worse than those of HEFT and m-ETF."""
    problem = layered(300, transfer=3.0).replace(objective=Makespan(contention=contention))
    found = pk.solve(problem, "local-search", params={"max_cycles": 1, "steps": 1}).objective
    assert found is not None
    for listed in ("heft", "m-etf"):
        value = pk.solve(problem, listed).objective
        assert value is not None
        assert found <= value


def test_search_goes_on_from_steps() -> None:
    """A warm start with steps is kept in its order: the answer is no worse even if the devices' own order is."""
    problem = layered(30, transfer=2.0)
    good = pk.solve(problem, "local-search", params={"max_cycles": 4}, seed=1)
    assert good.objective is not None
    again = pk.solve(problem, "local-search", params={"max_cycles": 1, "steps": 1}, seed=2, warm_start=good)
    assert again.objective is not None
    assert again.objective <= good.objective


def test_contiguous_parts_are_refused(diamond: pk.Problem) -> None:
    """The searches do not keep quotients acyclic, and say so."""
    problem = diamond.replace(objective=Makespan(), contiguity="acyclic")
    with pytest.raises(UnsupportedProblemError, match="it does not keep parts acyclic"):
        pk.solve(problem, "local-search")


def test_without_room_there_is_no_answer() -> None:
    """Where the classes cannot be packed the search ends with nothing, and does not loop."""
    platform = pk.Platform.of(acc=2, memory_bytes={"acc": 2.0})
    graph = pk.OpGraph.from_edges(list("abc"), [("a", "b"), ("b", "c")])
    costs = pk.CostTable(("acc",), np.ones((3, 1)), np.ones((2, 1)), np.array([1.3, 1.3, 1.3]))
    result = pk.solve(pk.Problem(graph, platform, costs, Makespan()), "local-search", params=SMALL)
    assert (result.status, result.stop_reason) == (pk.Status.UNKNOWN, pk.StopReason.FINISHED)


def tiled_products(num_layers: int) -> pk.Problem:
    """Return products of 2 x 2 tiles, layer after layer, on four equal devices; a transfer costs four products.

    Every tile of a layer is the sum of two products, each of a tile before it and of a tile of weights.
    """
    times, edges = {f"x{i}{j}": 0.001 for i in (0, 1) for j in (0, 1)}, []
    for layer, i, j in itertools.product(range(num_layers), (0, 1), (0, 1)):
        tile = f"sum{layer}{i}{j}"
        for k in (0, 1):
            weight, product = f"w{layer}{k}{j}", f"product{layer}{i}{j}{k}"
            times |= {weight: 0.001, product: 4.0, tile: 0.001}
            source = f"x{i}{k}" if layer == 0 else f"sum{layer - 1}{i}{k}"
            edges += [(source, product), (weight, product), (product, tile)]
    graph = pk.OpGraph.from_edges(list(times), edges)
    time_s = np.array([[times[name]] for name in graph.op_names])
    costs = pk.CostTable(("gpu",), time_s, 2.0 * time_s[graph.tensor_producer], np.zeros(len(times)))
    return pk.Problem(graph, pk.Platform.of(gpu=4), costs, pk.Makespan())


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_groups_of_ops_move_together(seed: int) -> None:
    """Two rows of tiles on two devices take 8 s a layer; single moves end in schedules that take 8 s more."""
    search = {"max_cycles": 12, "steps": 300}
    result = pk.solve(tiled_products(4), "local-search", params=search, seed=seed)
    assert result.objective is not None
    assert result.objective < 32.1


def test_clusters_end_where_transfers_are_dear() -> None:
    """Ops that a long transfer joins share a device, and no clusters of a clustered problem join."""
    problem = tiled_products(4)
    flat = flat_of(problem)
    coarse = clustered(problem, flat, np.random.default_rng(0))
    assert coarse is not None
    assert coarse.num_classes <= problem.num_classes // 2
    assert clustered(coarse, flat_of(coarse), np.random.default_rng(1)) is None


@examples(60)
@given(problems(objective=MAKESPAN, contiguity=FREE), st.integers(0, 2**31))
def test_every_cluster_has_a_device(problem: pk.Problem, seed: int) -> None:
    """Classes stay whole, and some device allows all ops of each cluster and has room for them."""
    flat = flat_of(problem)
    if not flat.allowed.any(axis=1).all():
        return
    coarse = clustered(problem, flat, np.random.default_rng(seed))
    if coarse is not None:
        assert coarse.num_classes < problem.num_classes
        assert len({*zip(problem.op_class.tolist(), coarse.op_class.tolist(), strict=True)}) == problem.num_classes
        assert flat_of(coarse).allowed.any(axis=1).all()


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_clusters_find_what_single_moves_miss(seed: int) -> None:
    """Six layers of tiles take 8 s each; 14 cycles, of which the tenth is preceded by clusters, are enough."""
    search = {"max_cycles": 14, "steps": 400}
    result = pk.solve(tiled_products(6), "local-search", params=search, seed=seed)
    assert result.objective is not None
    assert result.objective < 48.1
