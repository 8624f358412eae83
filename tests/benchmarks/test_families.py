"""Generated families: sizes, shapes, costs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from limits import SOON_S, Stopwatch
from strategies import examples

from placekit import PlacekitError, Placement, SerialLatency, evaluate, solve
from placekit.benchmarks.generators.families import FAMILIES, MEAN_OP_S, generate
from placekit.benchmarks.generators.shapes import MIN_OPS
from placekit.model.problem import Problem
from placekit.objectives import Makespan, Objective

families = pytest.mark.parametrize("family", FAMILIES)
EXACT_SIZE = ("chains", "layered")


def accelerators(problem: Problem) -> list[int]:
    """Return the kind of every device that is no host."""
    kinds = problem.platform.kind_of_device.tolist()
    return [kind for kind, device in zip(kinds, problem.platform.devices, strict=True) if not device.is_host]


@families
@examples(40)
@given(num_ops=st.integers(MIN_OPS, 2000), seed=st.integers(0, 2**32))
def test_size_follows_the_stated_rule(family: str, num_ops: int, seed: int) -> None:
    """At least half and at most `num_ops` ops; exactly so many where the docstring promises it."""
    got = generate(family, num_ops, seed).graph.num_ops
    assert num_ops / 2 <= got <= num_ops
    assert family not in EXACT_SIZE or got == num_ops


@families
@examples(15)
@given(num_ops=st.integers(MIN_OPS, 500), seed=st.integers(0, 2**32))
def test_graph_hangs_together(family: str, num_ops: int, seed: int) -> None:
    """Every tensor is read, no reader is listed twice, and all ops are connected."""
    import networkx as nx

    graph = generate(family, num_ops, seed).graph
    assert (np.diff(graph.consumer_offsets) > 0).all()
    for tensor in range(graph.num_tensors):
        readers = graph.consumers_of(tensor).tolist()
        assert len(set(readers)) == len(readers)
    edges = nx.Graph(list(zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True)))
    assert edges.number_of_nodes() == graph.num_ops
    assert nx.is_connected(edges)


@families
def test_same_seed_same_instance(family: str) -> None:
    """Equal arguments make equal problems; another seed makes another."""
    assert generate(family, 200, 7) == generate(family, 200, 7)
    assert generate(family, 200, 7) != generate(family, 200, 8)


@families
@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("transfer_ratio", [0.1, 1.0, 10.0])
def test_costs_are_positive_and_normalised(family: str, equal: bool, transfer_ratio: float) -> None:
    """Mean op time and mean pair transfer time over the accelerators are what the arguments say."""
    problem = generate(family, 300, 3, num_devices=4, equal=equal, transfer_ratio=transfer_ratio)
    kinds = accelerators(problem)
    times = problem.costs.op_time_s[:, kinds]
    assert times.min() > 0
    assert times.mean() == pytest.approx(MEAN_OP_S)
    # independent of the generator: all ordered pairs of devices, both links
    transfer_s = problem.costs.transfer_time_s[:, kinds].mean(axis=0)
    pairs = [transfer_s[a] + transfer_s[b] for a in range(4) for b in range(4) if a != b]
    assert np.mean(pairs) == pytest.approx(transfer_ratio * MEAN_OP_S)
    assert problem.costs.transfer_time_s[:, kinds].min() > 0
    # the links of the platform say the same as the cost table
    for kind in set(kinds):
        link = problem.platform.links[problem.platform.kinds[kind]]
        assert problem.costs.transfer_time_s[:, kind] == pytest.approx(link.time_s(problem.graph.tensor_bytes))


@families
def test_equal_devices_are_one_kind_and_unequal_ones_are_not(family: str) -> None:
    """Unequal kinds differ in speed on average, and not by one factor for all ops."""
    assert len(set(accelerators(generate(family, 100, num_devices=5)))) == 1
    problem = generate(family, 1000, num_devices=5, equal=False)
    assert len(set(accelerators(problem))) == 3
    ratio = problem.costs.op_time_s[:, 1] / problem.costs.op_time_s[:, 0]
    assert 1.3 < np.median(ratio) < 2.5
    assert ratio.std() > 0.1


@pytest.mark.parametrize("objective", [SerialLatency(), Makespan()])
def test_throughput_has_a_host_and_other_objectives_do_not(objective: Objective) -> None:
    """The CPU of the workloads pays no transfer; without `Throughput` there are accelerators only."""
    host = generate("chains", 50, num_devices=3).platform.devices[-1]
    assert host.is_host
    assert generate("chains", 50, num_devices=3).costs.transfer_time_s[:, -1].max() == 0
    problem = generate("chains", 50, num_devices=3, objective=objective)
    assert problem.objective == objective
    assert [device.is_host for device in problem.platform.devices] == [False] * 3


@families
@examples(15)
@given(num_ops=st.integers(MIN_OPS, 300), seed=st.integers(0, 1000), num_devices=st.integers(1, 8))
def test_memory_limit_binds_and_leaves_room(family: str, num_ops: int, seed: int, num_devices: int) -> None:
    """One accelerator cannot hold everything, but filling them in turn never fails: the tightest factor is feasible."""
    problem = generate(family, num_ops, seed, num_devices=num_devices, memory_factor=1.0, objective=SerialLatency())
    limit, sizes = problem.platform.devices[0].memory_bytes, problem.costs.op_memory_bytes
    assert limit is not None
    device = np.minimum((np.cumsum(sizes) - sizes) // (sizes.sum() / num_devices), num_devices - 1).astype(np.int64)
    assert evaluate(problem, Placement.of(problem, device)).is_feasible
    if num_devices >= 3:
        assert limit < sizes.sum()


def test_a_slice_is_one_tensor_with_several_readers() -> None:
    """Scatter makes as many tensors as shards, and each is read by a product per column."""
    graph = generate("feed-forward-shards", 400, 2).graph
    scattered = np.flatnonzero(graph.tensor_producer == 0)
    assert len(scattered) > 1
    assert all(len(graph.consumers_of(tensor)) == len(scattered) for tensor in scattered.tolist())


def test_tiled_product_adds_one_partial_sum_per_inner_tile() -> None:
    """Every tile of a product of t by t tiles needs t tile products and t - 1 additions."""
    graph = generate("chained-matmuls", 500, 1).graph
    products, sums = graph.op_types.count("MatMul"), graph.op_types.count("Add")
    tiles = products // (products - sums)
    assert tiles in (2, 3, 4)
    assert sums * tiles == products * (tiles - 1)


@families
def test_repeated_shape_is_the_same_in_every_size(family: str) -> None:
    """Larger graphs are longer, not of another shape, so that sizes can be compared."""
    small, large = (generate(family, num_ops, 5).graph for num_ops in (1000, 8000))
    per_op = [graph.num_edges / graph.num_ops for graph in (small, large)]
    assert per_op[0] == pytest.approx(per_op[1], rel=0.05)
    counts = [
        {name: graph.op_types.count(name) / graph.num_ops for name in {*graph.op_types}} for graph in (small, large)
    ]
    common = [name for name, share in counts[1].items() if share > 0.05]
    assert all(counts[0][name] == pytest.approx(counts[1][name], rel=0.2) for name in common)


@families
def test_generated_problems_are_solved(family: str) -> None:
    """A generated problem is one that the methods accept, with and without a memory limit."""
    for factor in (None, 1.5):
        result = solve(generate(family, 60, 1, num_devices=3, equal=False, memory_factor=factor), "dpl")
        assert result.objective is not None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_ops": 19}, r"num_ops is 19; it must be >= 20"),
        ({"num_devices": 0}, r"num_devices is 0; it must be >= 1"),
        ({"transfer_ratio": 0.0}, r"transfer_ratio is 0.0; it must be finite and > 0"),
        ({"transfer_ratio": float("inf")}, r"transfer_ratio is inf"),
        ({"memory_factor": -0.5}, r"memory_factor is -0.5; it must be finite and >= 0"),
        ({"memory_factor": 0.5, "objective": SerialLatency()}, r"memory_factor is 0.5; it must be finite and >= 1"),
        ({"family": "rings"}, r"no family 'rings'; families are chains, transformer"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, float], message: str) -> None:
    """The message names the argument, its value and the bound."""
    with pytest.raises(PlacekitError, match=message):
        generate(**({"family": "chains", "num_ops": 50} | arguments))  # type: ignore[arg-type]  # wrong on purpose


def test_a_hundred_thousand_ops_take_seconds() -> None:
    """Generation is linear: no family needs more than a few seconds for 100,000 ops (it takes a fraction of one)."""
    watch = Stopwatch()
    for family in FAMILIES:
        assert generate(family, 100_000, 1).graph.num_ops >= 50_000
    assert watch.seconds() < 3 * SOON_S
