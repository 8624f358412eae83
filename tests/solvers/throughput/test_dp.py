"""The dynamic programs: published optima, brute force, plain twins of the kernels, and what happens at the limits."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from limits import SOON_S
from oracle import brute_force, team_brute_force
from strategies import examples, problems, teamed_problems

import placekit as pk
from placekit.benchmarks.generators import families
from placekit.model.errors import InvalidProblemError, UnsupportedProblemError
from placekit.solve.result import OPTIMALITY_TOLERANCE
from placekit.solve.run import Run
from placekit.solvers.generic.coarsen import Contraction, contract
from placekit.solvers.throughput.dp import linear
from placekit.solvers.throughput.dp.ideals import IdealSet, merge_windows
from placekit.solvers.throughput.dp.instance import Instance, pack, unpack
from placekit.solvers.throughput.dp.linear import choose_prefixes, offer_chains
from placekit.solvers.throughput.dp.orders import named_orders

OPTIMA_MS = {
    "layer_bert24_inference": 17.78990625,
    "layer_bert24_training": 41.7458125,
    "layer_resnet50_inference": 33.774666015625,
    "layer_resnet50_training": 78.6318125,
    "layer_inceptionv3_inference": 51.5518635864,
    "layer_inceptionv3_training": 122.761616211,
    "operator_bert_l-3_inference": 27.9185676799,
    "operator_bert_l-6_inference": 29.5795058065,
    "operator_bert_l-12_inference": 147.477984449,
    "operator_bert_l-3_training": 65.3031491221,
    "operator_bert_l-6_training": 72.8649663224,
    "operator_bert_l-12_training": 437.997637858,
}
"""Contiguous optima, proven by the reference implementation of Tarnawski et al."""


def acyclic_throughput(*, max_ops: int = 8, max_devices: int = 5) -> st.SearchStrategy[pk.Problem]:
    """Random problems for the dynamic programs, every variant of the objective."""
    variants = st.builds(pk.Throughput, overlap=st.booleans(), schedule=st.sampled_from(["1f1b", "gpipe"]))
    acyclic = st.just(pk.Contiguity.ACYCLIC)
    return problems(max_ops=max_ops, max_devices=max_devices, objective=variants, contiguity=acyclic)


def ideals_of(contraction: Contraction, order: np.ndarray) -> set[frozenset[int]]:
    """Return every down-set, as sets of ranks in `order`, by trying all subsets."""
    rank = np.argsort(order)
    edges = [(int(rank[u]), int(rank[v])) for u, v in zip(contraction.senders, contraction.receivers, strict=True)]
    subsets = (
        frozenset(c for c in range(contraction.num_classes) if subset >> c & 1)
        for subset in range(1 << contraction.num_classes)
    )
    return {subset for subset in subsets if all(u in subset for u, v in edges if v in subset)}


@pytest.mark.parametrize("name", OPTIMA_MS)
def test_public_workload_is_proven(workloads: Path, name: str) -> None:
    """The optimum of every public workload, with its proof; the linear program comes within 1 %."""
    problem = pk.read_workload(workloads / "throughput" / f"{name}.json")
    result = pk.solve(problem, method="dp")
    assert result.status is pk.Status.OPTIMAL
    assert result.objective == pytest.approx(OPTIMA_MS[name] / 1e3, rel=1e-9)
    linear = pk.solve(problem, method="dpl")
    assert linear.objective is not None
    assert linear.objective <= OPTIMA_MS[name] / 1e3 * 1.01


@examples(1200)
@given(acyclic_throughput(max_ops=7, max_devices=4))
def test_dp_matches_brute_force(problem: pk.Problem) -> None:
    """Same optimum within what counts as proven, or the same verdict that there is none; `dpl` is never below it."""
    best = brute_force(problem)
    result = pk.solve(problem, method="dp")
    linear = pk.solve(problem, method="dpl")
    if best is None:
        assert result.status is pk.Status.INFEASIBLE
        assert linear.placement is None
        return
    assert result.objective == pytest.approx(best, rel=1.01 * OPTIMALITY_TOLERANCE, abs=1e-300)
    assert result.status is pk.Status.OPTIMAL
    assert linear.objective is None or linear.objective >= best * (1 - 1e-12)


def check_against_partitions(problem: pk.Problem, methods: list[str]) -> None:
    """Exact methods have the optimum over all partitions and assignments, or the verdict that there is none."""
    best = team_brute_force(problem)
    for method in methods:
        result = pk.solve(problem, method=method)
        if best is None:
            assert result.status is pk.Status.INFEASIBLE
            continue
        assert result.objective == pytest.approx(best, rel=1.01 * OPTIMALITY_TOLERANCE, abs=1e-300)
        assert result.status is pk.Status.OPTIMAL


@pytest.mark.parametrize("name", OPTIMA_MS)
def test_public_workload_is_proven_with_teams(workloads: Path, name: str) -> None:
    """With its proof, and below the optimum of single devices, which is one of its placements."""
    problem = pk.read_workload(workloads / "throughput" / f"{name}.json")
    result = pk.solve(problem.replace(objective=pk.Throughput(teams="equal")), method="dp")
    assert result.status is pk.Status.OPTIMAL
    assert result.objective is not None
    assert result.objective < OPTIMA_MS[name] / 1e3


@pytest.mark.parametrize("num_devices", [16, 64])
def test_many_equal_devices_are_proven(num_devices: int) -> None:
    """A chain of 200 layers, of which a device holds a few: seconds."""
    rng = np.random.default_rng(0)
    names = [f"layer{at}" for at in range(200)]
    graph = pk.OpGraph.from_edges(names, list(itertools.pairwise(names)))
    memory = rng.uniform(0.9, 1.1, 200)
    costs = pk.CostTable(("acc",), rng.uniform(0.9, 1.1, (200, 1)), np.full((199, 1), 0.05), memory)
    platform = pk.Platform.of(acc=num_devices, memory_bytes={"acc": 2.6 * float(memory.sum()) / num_devices})
    result = pk.solve(pk.Problem(graph, platform, costs, pk.Throughput(teams="equal")), "dp")
    assert result.status is pk.Status.OPTIMAL


@examples(80)
@given(teamed_problems(max_ops=4, max_devices=4, contiguity=st.just(pk.Contiguity.ACYCLIC)))
def test_dp_with_teams_matches_brute_force(problem: pk.Problem) -> None:
    """Limits, pins, colours, unequal kinds, overlap, backward ops: over all partitions of the devices."""
    check_against_partitions(problem, ["dp"])


@pytest.mark.slow
@pytest.mark.timeout(7200)  # all partitions and assignments of each, in plain Python
@examples(3000)
@given(teamed_problems(max_ops=6, max_devices=4, contiguity=st.just(pk.Contiguity.ACYCLIC)))
def test_dp_with_teams_matches_brute_force_at_length(problem: pk.Problem) -> None:
    """The same on thousands of problems."""
    check_against_partitions(problem, ["dp", "enumerate"])


@examples(300)
@given(acyclic_throughput(max_ops=7, max_devices=3), st.lists(st.sampled_from([0.0, 0.0, 1e-9, 0.3, 1.0]), min_size=7))
def test_dp_matches_brute_force_with_light_leaves(problem: pk.Problem, scale: list[float]) -> None:
    """Ops that take no or little time but need memory: the relaxation that joins them never proves too much."""
    factor = np.array(scale)[: problem.graph.num_ops, None]
    problem = problem.replace(costs=problem.costs.replace(op_time_s=problem.costs.op_time_s * factor))
    best, result = brute_force(problem), pk.solve(problem, method="dp")
    if best is None:
        assert result.status is pk.Status.INFEASIBLE
        return
    assert result.objective == pytest.approx(best, rel=1.01 * OPTIMALITY_TOLERANCE, abs=1e-300)
    assert result.status is pk.Status.OPTIMAL
    assert result.lower_bound is not None
    assert result.lower_bound <= best * (1 + 1e-12)


def lattice_with_constants(num_layers: int, num_steps: int, *, shared: bool) -> pk.Problem:
    """Return a recurrent lattice whose ops read constants that take no time but memory, one each or one a layer."""
    names, edges = [], []
    for layer in range(num_layers):
        for step in range(num_steps):
            name = f"cell{layer}.{step}"
            constant = f"constant{layer}" + ("" if shared else f".{step}")
            names += [name] if constant in names else [constant, name]
            edges.append((constant, name))
            edges += [(f"cell{layer - 1}.{step}", name)] if layer else []
            edges += [(f"cell{layer}.{step - 1}", name)] if step else []
    graph = pk.OpGraph.from_edges(names, edges, name="lattice")
    rng = np.random.default_rng(0)
    is_cell = np.array([name.startswith("cell") for name in names])
    times = np.where(is_cell, rng.uniform(0.8, 1.2, len(names)), 0.0)[:, None]
    costs = pk.CostTable(("acc",), times, np.full((graph.num_tensors, 1), 0.2), np.ones(len(names)))
    return pk.Problem(graph, pk.Platform.of(acc=3, memory_bytes={"acc": float(len(names)) / 2}), costs)


@pytest.mark.parametrize("shared", [False, True])
def test_constants_do_not_multiply_the_ideals(shared: bool) -> None:
    """A lattice of 4 x 8 ops has 495 ideals; a constant with memory at each would double them 32 times."""
    result = pk.solve(lattice_with_constants(4, 8, shared=shared), method="dp", stop=pk.MaxRuntime(60))
    assert result.status is pk.Status.OPTIMAL
    assert int(str(result.info["ideals"])) <= 495


def test_constants_are_enumerated_where_their_memory_binds() -> None:
    """Where joining a constant breaks the memory limit, the proof comes from the problem with all its classes."""
    # a and b take 1 s; the constant of a is large and must leave a's device: 1 s each, and 0.1 s for the transfer
    graph = pk.OpGraph.from_edges(["constant", "a", "b"], [("constant", "a"), ("a", "b")])
    costs = pk.CostTable(("acc",), np.array([[0.0], [1.0], [1.0]]), np.array([[0.1], [0.0]]), np.array([5.0, 5.0, 1.0]))
    problem = pk.Problem(graph, pk.Platform.of(acc=2, memory_bytes={"acc": 6.0}), costs)
    result = pk.solve(problem, method="dp")
    assert result.status is pk.Status.OPTIMAL
    assert result.objective == pytest.approx(brute_force(problem))
    assert result.objective == pytest.approx(2.1)


@examples(100)
@given(acyclic_throughput())
def test_ideals_are_enumerated_and_described(problem: pk.Problem) -> None:
    """Every down-set in the windows once; sums, cut nets and pins inside equal those counted one by one."""
    contraction = contract(problem)
    for _, order in named_orders(contraction):
        instance = Instance(contraction, order, np.inf)
        found = IdealSet.all_within(instance, 10_000, 10**7)
        assert found is not None
        sets = [frozenset(np.flatnonzero(unpack(row, instance.num_classes)).tolist()) for row in found.bits]
        assert len(set(sets)) == len(sets)
        windows = [instance.window(state) for state in instance.states()]
        for ideal in ideals_of(contraction, order):
            work = float(instance.work[list(ideal)].sum())
            if any(low * (1 + 1e-9) <= work <= high * (1 - 1e-9) for low, high in windows):
                assert ideal in sets
        assert set(sets) <= ideals_of(contraction, order)
        for i, ideal in enumerate(sets):
            inside = np.isin(np.arange(instance.num_classes), list(ideal))
            assert found.work[i] == pytest.approx(instance.work[inside].sum())
            assert found.times[..., i] == pytest.approx(instance.times[..., inside].sum(axis=-1))
            counts = {
                n: sum(int(pin) in ideal for pin in pins)
                for n, pins in enumerate(np.split(instance.net_pins, instance.net_offsets[1:-1]))
            }
            cut = {n: count for n, count in counts.items() if 0 < count < np.diff(instance.net_offsets)[n]}
            span = slice(found.cut_offsets[i], found.cut_offsets[i + 1])
            assert dict(zip(found.cut_nets[span].tolist(), found.cut_counts[span].tolist(), strict=True)) == cut


@examples(100)
@given(acyclic_throughput(), st.data())
def test_prefixes_are_described_like_any_ideals(problem: pk.Problem, data: st.DataObject) -> None:
    """The kernel that walks along the order gives the sums and cuts of the one that looks at bits."""
    contraction = contract(problem)
    order = next(order for _, order in named_orders(contraction))
    instance = Instance(contraction, order, np.inf)
    size = instance.num_classes
    inner = data.draw(st.sets(st.integers(0, size)))
    ends = np.array(sorted({0, size, *inner}))
    quick = IdealSet.prefixes(instance, ends)
    bits = pack(np.arange(size)[None, :] < ends[:, None])
    assert np.array_equal(quick.bits, bits)
    slow = IdealSet._described(instance, bits)
    same = [np.flatnonzero((slow.bits == row).all(axis=1))[0] for row in bits]
    for i, j in enumerate(same):
        assert quick.times[..., i] == pytest.approx(slow.times[..., j], abs=1e-15)
        assert (quick.work[i], quick.memory[i]) == pytest.approx((slow.work[j], slow.memory[j]))
        assert np.array_equal(quick.closed[:, i], slow.closed[:, j])
        assert quick.cut_times[..., i] == pytest.approx(slow.cut_times[..., j])
        a, b = (slice(s.cut_offsets[k], s.cut_offsets[k + 1]) for s, k in ((quick, i), (slow, j)))
        assert np.array_equal(quick.cut_nets[a], slow.cut_nets[b])
        assert np.array_equal(quick.cut_counts[a], slow.cut_counts[b])


@examples(300)
@given(acyclic_throughput(max_devices=3), st.integers(0, 2**32 - 1))
def test_windows_never_exclude_a_good_chain(problem: pk.Problem, seed: int) -> None:
    """Every ideal of a random chain is a candidate of its state, for a limit just above the chain's objective."""
    contraction = contract(problem)
    rng = np.random.default_rng(seed)
    order = next(order for _, order in named_orders(contraction))
    instance = Instance(contraction, order, np.inf)
    devices = rng.permutation(problem.platform.num_devices).tolist()
    ends = np.sort(rng.integers(0, instance.num_classes + 1, len(devices)))
    ends[-1] = instance.num_classes
    device = np.zeros(instance.num_classes, dtype=np.int64)
    device[order] = np.array(devices)[np.searchsorted(ends, np.arange(instance.num_classes), side="right")]
    evaluation = pk.evaluate(problem, pk.Placement.of(problem, contraction.expand(device)))
    if not evaluation.is_feasible or evaluation.objective is None:
        return
    tight = Instance(contraction, order, evaluation.objective * (1 + 1e-12))
    ideals = IdealSet.all_within(tight, 10_000, 10**7)
    assert ideals is not None
    state = [0] * len(tight.groups)
    for d, end in zip(devices, ends.tolist(), strict=True):
        state[next(g for g, group in enumerate(tight.groups) if d in group)] += 1
        row = pack(np.arange(tight.num_classes) < end)
        at = np.flatnonzero((ideals.bits == row).all(axis=1))
        assert at.size == 1
        assert at[0] in ideals.candidates(tuple(state))


@examples(200)
@given(acyclic_throughput())
def test_orders_are_topological(problem: pk.Problem) -> None:
    """Every order is a permutation in which every edge goes forward."""
    contraction = contract(problem)
    for _, order in named_orders(contraction):
        assert sorted(order.tolist()) == list(range(contraction.num_classes))
        rank = np.argsort(order)
        assert (rank[contraction.senders] < rank[contraction.receivers]).all()


def wide_problem(num_branches: int, length: int) -> pk.Problem:
    """Return parallel chains between a source and a sink: (length + 1) ** branches ideals, more than fit anywhere."""
    rng = np.random.default_rng(1)
    names = ["source", *(f"b{b}.{i}" for b in range(num_branches) for i in range(length)), "sink"]
    edges = []
    for b in range(num_branches):
        chain = ["source", *(f"b{b}.{i}" for i in range(length)), "sink"]
        edges += list(nx.utils.pairwise(chain))
    graph = pk.OpGraph.from_edges(names, edges, name="wide")
    times = rng.uniform(1, 2, (len(names), 1)) * 1e-3
    transfers = rng.uniform(0, 0.3, (graph.num_tensors, 1)) * 1e-3
    costs = pk.CostTable(("acc",), times, transfers, np.zeros(len(names)))
    return pk.Problem(graph, pk.Platform.of(acc=3), costs)


def test_too_many_ideals_end_with_incumbent_and_bound() -> None:
    """No wall: with 7 ** 12 ideals the search returns a placement, and a bound above the trivial one."""
    problem = wide_problem(12, 6)
    result = pk.solve(problem, method="dp", params={"max_memory_bytes": 2_000_000}, stop=pk.MaxRuntime(60))
    assert result.status is pk.Status.FEASIBLE
    assert result.lower_bound is not None
    assert result.objective is not None
    assert problem.costs.op_time_s.max() < result.lower_bound < result.objective


def test_bound_with_too_many_ideals_is_below_the_optimum() -> None:
    """On a graph that the full search closes, the search without memory proves a bound below that optimum."""
    problem = wide_problem(4, 4)
    optimum = pk.solve(problem, method="dp")
    assert optimum.status is pk.Status.OPTIMAL
    short = pk.solve(problem, method="dp", params={"max_memory_bytes": 1_000_000})
    assert short.lower_bound is not None
    assert optimum.objective is not None
    assert short.lower_bound <= optimum.objective


def test_time_limit_is_kept() -> None:
    """Half a second on a problem that takes minutes: both ends of the gap come back."""
    result = pk.solve(wide_problem(8, 6), method="dp", stop=pk.MaxRuntime(0.5))
    assert result.objective is not None
    assert result.lower_bound is not None
    assert result.runtime_s < SOON_S


def test_long_orders_are_cut_where_it_is_cheap() -> None:
    """Of 5,001 prefixes at most 100 are chosen, both ends among them, each the cheapest of its share of the work."""
    rng = np.random.default_rng(0)
    names = [f"o{i}" for i in range(5000)]
    graph = pk.OpGraph.from_edges(names, list(nx.utils.pairwise(names)))
    transfers = rng.uniform(0, 1, (graph.num_tensors, 1))
    costs = pk.CostTable(("acc",), np.ones((5000, 1)), transfers, np.zeros(5000))
    problem = pk.Problem(graph, pk.Platform.of(acc=2), costs)
    instance = Instance(contract(problem), np.arange(5000), np.inf)
    chosen = choose_prefixes(instance, 100)
    assert (chosen[0], chosen[-1]) == (0, 5000)
    assert 90 <= len(chosen) <= 100
    inner = chosen[1:-1]
    assert transfers[inner - 1].mean() < 0.1
    result = pk.solve(problem, method="dpl", params={"max_prefixes": 100})
    assert result.objective == pytest.approx(2500, rel=0.02)


def test_windows_are_merged() -> None:
    """Overlapping windows become one, empty ones vanish."""
    assert merge_windows([(3, 4), (0, 1), (1, 2), (9, 8)]).tolist() == [[0, 2], [3, 4]]


def test_words_round_trip() -> None:
    """Packing and unpacking membership across word borders."""
    inside = np.random.default_rng(0).random((3, 130)) < 0.5
    assert [unpack(row, 130).tolist() for row in pack(inside)] == inside.tolist()


def test_other_problems_are_refused_with_the_reason(diamond: pk.Problem) -> None:
    """Contiguity that allows more, or another objective."""
    with pytest.raises(UnsupportedProblemError, match=r"its placements are acyclic; .* contiguity none"):
        pk.solve(diamond.replace(contiguity="none"), method="dp")
    with pytest.raises(UnsupportedProblemError, match="dpl serves throughput, not serial-latency"):
        pk.solve(diamond.replace(objective=pk.SerialLatency()), method="dpl")
    with pytest.raises(InvalidProblemError, match="max_memory_bytes is 3; it must be >= 1000000"):
        pk.solve(diamond, method="dp", params={"max_memory_bytes": 3})


def test_bug_sizing_the_search_does_not_exceed_its_memory() -> None:
    """To tell how many ideals fit, dp once laid out all prefixes of the order: gigabytes for a long one."""
    import tracemalloc

    from placekit.benchmarks.generators.families import generate
    from placekit.solvers.params import DpParams
    from placekit.solvers.throughput.dp.exact import ThroughputDp

    contraction = contract(generate("chains", 20_000, 1))
    instance = Instance(contraction, dict(named_orders(contraction))["narrow"], np.inf)
    limit = 100_000_000
    tracemalloc.start()
    try:
        count = ThroughputDp(DpParams(max_memory_bytes=limit))._max_ideals(instance)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count >= 1000
    assert peak < limit


@pytest.mark.parametrize(("asks", "steps"), [(0, []), (1, ["instance"]), (2, ["instance", "prefixes"])])
def test_the_end_is_asked_for_before_each_step(asks: int, steps: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """No step follows the end: of 50,000 ops an instance and its prefixes take a tenth of a second each."""
    run = Run(families.generate("layered", 20, seed=1, num_devices=2, objective=pk.Throughput()))
    asked: list[int] = []
    taken: list[str] = []

    def says_stop() -> pk.StopReason | None:
        asked.append(1)
        return pk.StopReason.TIME if len(asked) > asks else None

    def noted(name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        def step_noted(*args: Any) -> Any:
            taken.append(name)
            return step(*args)

        return step_noted

    monkeypatch.setattr(run, "should_stop", says_stop)
    monkeypatch.setattr(linear, "Instance", noted("instance", Instance))
    monkeypatch.setattr(IdealSet, "prefixes", noted("prefixes", IdealSet.prefixes))
    assert offer_chains(run, contract(run.problem)) is pk.StopReason.TIME
    assert taken == steps
    assert run.placement is None
