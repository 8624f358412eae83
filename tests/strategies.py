"""Random problems and their parts, for property tests: small enough for exhaustive search, rich in constraints."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from placekit.model.contiguity import Contiguity
from placekit.model.costs import CostTable
from placekit.model.graph import DYNAMIC, OpGraph
from placekit.model.memory import MemoryBlocks
from placekit.model.placement import Placement
from placekit.model.platform import Device, DirectLink, Link, Platform
from placekit.model.problem import UNPINNED, Problem
from placekit.objectives import Makespan, Objective, SerialLatency, Throughput

ALL = os.environ.get("PLACEKIT_EXAMPLES") == "all"
"""True if every example is tried, as in ``make test-slow``."""


def draws(count: int) -> int:
    """Return how many of `count` examples are tried: a fortieth, at least 3, unless all are asked for."""
    return count if ALL else max(min(count, 3), count // 40)


def examples(count: int) -> settings:
    """Return settings for `draws(count)` examples, however long each takes; the same ones every time."""
    count = draws(count)
    return settings(max_examples=count, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


MAKESPANS = [
    Makespan(),
    Makespan("upward-rank"),
    Makespan(contention=True),
    Makespan("upward-rank", contention=True),
]
"""Every way to order the ops of a makespan that the judge has."""

TIMES_S = st.one_of(
    st.integers(0, 20).map(float),
    st.floats(0, 1e3, allow_subnormal=False),
    st.sampled_from([0.0, 1e-9, 0.1, 1 / 3]),
)
"""Seconds: whole numbers (ties!), any float, and awkward values."""

NUM_BYTES = st.one_of(st.integers(0, 8).map(float), st.integers(0, 2**40).map(float))
"""Bytes: few (so that limits of a few bytes bind), or many."""

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
"""Names of any characters but halves of surrogate pairs, which no file can hold."""


@st.composite
def graphs(
    draw: st.DrawFn, *, max_ops: int = 8, with_backward: bool = True, with_multiple_outputs: bool = True
) -> OpGraph:
    """Random DAGs: every op reads outputs of ops before it, in a shuffled order of names."""
    num_ops = draw(st.integers(1, max_ops))
    rank = draw(st.permutations(range(num_ops)))  # rank[op]: edges go from low to high rank
    by_rank = sorted(range(num_ops), key=lambda op: rank[op])
    tensors: list[tuple[int, list[int]]] = []
    for at, producer in enumerate(by_rank):
        later = by_rank[at + 1 :]
        for _ in range(draw(st.integers(0, 2 if with_multiple_outputs else 1))):
            readers = draw(st.lists(st.sampled_from(later), unique=True, max_size=3)) if later else []
            if readers:
                tensors.append((producer, readers))
    backward = draw(st.lists(st.booleans(), min_size=num_ops, max_size=num_ops)) if with_backward else [False] * num_ops
    if any(backward):  # a backward op never feeds a forward op: the tail of the order is backward
        first = draw(st.integers(0, num_ops))
        backward = [rank[op] >= first for op in range(num_ops)]
    columns: dict[str, Any] = {
        "op_flops": draw(st.lists(NUM_BYTES, min_size=num_ops, max_size=num_ops)),
        "op_weight_bytes": draw(st.lists(NUM_BYTES, min_size=num_ops, max_size=num_ops)),
        "is_backward": np.array(backward, dtype=bool),
    }
    shape = st.lists(st.sampled_from([DYNAMIC, 0, 1, 3]), max_size=3).map(tuple)
    return OpGraph(
        name=draw(NAMES),
        op_names=tuple(draw(st.lists(st.just("") | NAMES, min_size=num_ops, max_size=num_ops, unique=True))),
        op_types=tuple(
            draw(st.lists(st.sampled_from(["MatMul", "Add", "Relu", "Op"]), min_size=num_ops, max_size=num_ops))
        ),
        tensor_producer=np.array([producer for producer, _ in tensors], dtype=np.int64),
        consumer_offsets=np.cumsum([0, *(len(readers) for _, readers in tensors)], dtype=np.int64),
        consumers=np.array([op for _, readers in tensors for op in readers], dtype=np.int64),
        tensor_bytes=np.array([draw(NUM_BYTES) for _ in tensors]),
        tensor_shapes=tuple(draw(shape) for _ in tensors),
        **columns,
    )


TEAM_NAMES = NAMES.filter(lambda name: "+" not in name)
"""Names of devices that can be in a team."""


@st.composite
def platforms(
    draw: st.DrawFn,
    *,
    max_kinds: int = 4,
    max_devices: int = 5,
    with_memory: bool = True,
    names: st.SearchStrategy[str] = NAMES,
) -> Platform:
    """Random platforms of 1 to `max_kinds` kinds, some with limits, links and properties."""
    kinds = draw(st.lists(names, min_size=1, max_size=max_kinds, unique=True))
    counts = [1] * len(kinds)
    for _ in range(draw(st.integers(0, max(0, max_devices - len(kinds))))):
        counts[draw(st.integers(0, len(kinds) - 1))] += 1
    devices, links = [], {}
    for kind, count in zip(kinds, counts, strict=True):
        memory = draw(st.none() | st.floats(1, 2**40)) if with_memory else None
        is_host = draw(st.booleans())
        if draw(st.booleans()):
            links[kind] = Link(draw(TIMES_S), draw(st.just(float("inf")) | st.floats(1e-3, 1e12)))
        devices += [
            Device(
                f"{kind}.{number}",
                kind,
                memory_bytes=memory,
                is_host=is_host,
                openvino=draw(st.none() | st.just("CPU")),
                cores=tuple(draw(st.lists(st.integers(0, 63), max_size=2))),
                properties=draw(st.dictionaries(NAMES, st.text(max_size=4), max_size=2)),
            )
            for number in range(count)
        ]
    return Platform(tuple(draw(st.permutations(devices))), links)


@st.composite
def linked_platforms(draw: st.DrawFn, some: st.SearchStrategy[Platform]) -> Platform:
    """Platforms with direct links between devices, of one node or of several."""
    platform = draw(some)
    devices, kinds = platform.devices, platform.kinds
    has_nodes = draw(st.booleans())
    if has_nodes:
        devices = tuple(device.replace(node=draw(st.sampled_from("xyz"))) for device in devices)
    pair = st.lists(st.sampled_from(kinds), min_size=2, max_size=2).map(lambda two: tuple(sorted(two)))
    links = [
        DirectLink(draw(TIMES_S), draw(st.just(float("inf")) | st.floats(1e-3, 1e12)), of, is_between)
        for is_between in ((False, True) if has_nodes else (False,))
        for of in (
            *draw(st.lists(pair, unique=True, max_size=3)),
            *((None,) if is_between or draw(st.booleans()) else ()),
        )
    ]
    links = links or [DirectLink(draw(TIMES_S), 1.0)]
    return platform.replace(devices=devices, direct_links=tuple(draw(st.permutations(links))))


@st.composite
def cost_tables(
    draw: st.DrawFn, graph: OpGraph, kinds: tuple[str, ...], *, with_unsupported: bool = True, with_groups: bool = True
) -> CostTable:
    """Random costs of `graph` on `kinds`; every op is supported by at least one kind."""
    num_ops, num_tensors, num_kinds = graph.num_ops, graph.num_tensors, len(kinds)

    def matrix(values: st.SearchStrategy[Any], rows: int) -> Any:
        row = st.lists(values, min_size=num_kinds, max_size=num_kinds)
        return draw(st.lists(row, min_size=rows, max_size=rows))

    supported = np.ones((num_ops, num_kinds), dtype=bool)
    if with_unsupported and draw(st.booleans()):
        supported = np.array(matrix(st.booleans(), num_ops), dtype=bool)
        supported[np.arange(num_ops), [draw(st.integers(0, num_kinds - 1)) for _ in range(num_ops)]] = True
    groups = None
    if with_groups and draw(st.booleans()):
        groups = np.array(draw(st.lists(st.integers(0, num_ops), min_size=num_ops, max_size=num_ops)))
    spread = None
    if draw(st.booleans()):
        spread = np.array(matrix(st.just(float("nan")) | st.floats(0, 2), num_ops), dtype=np.float64)
    return CostTable(
        kinds=kinds,
        op_time_s=np.array(matrix(TIMES_S, num_ops), dtype=np.float64),
        transfer_time_s=np.array(matrix(TIMES_S, num_tensors), dtype=np.float64).reshape(num_tensors, num_kinds),
        op_memory_bytes=np.array(draw(st.lists(NUM_BYTES, min_size=num_ops, max_size=num_ops))),
        supported=supported,
        op_group=groups,  # type: ignore[arg-type]  # None = every op on its own
        op_time_spread=spread,
        provenance=draw(st.dictionaries(NAMES, st.none() | st.integers() | st.lists(st.booleans()), max_size=2)),
    )


def objectives() -> st.SearchStrategy[Objective]:
    """Every variant of the objectives."""
    return st.one_of(
        st.builds(Throughput, overlap=st.booleans(), schedule=st.sampled_from(["1f1b", "gpipe"])),
        st.builds(SerialLatency, subgraph_cost_s=TIMES_S),
    )


@st.composite
def problems(
    draw: st.DrawFn,
    *,
    max_ops: int = 8,
    max_kinds: int = 4,
    max_devices: int = 5,
    objective: st.SearchStrategy[Objective] | None = None,
    contiguity: st.SearchStrategy[Contiguity] | None = None,
    with_memory: bool = True,
    with_backward: bool = True,
    with_unsupported: bool = True,
    with_groups: bool = True,
    with_colocation: bool = True,
    with_pins: bool = True,
    with_multiple_outputs: bool = True,
    names: st.SearchStrategy[str] = NAMES,
) -> Problem:
    """Random problems with memory limits, colours, fused groups, backward ops, pins and unsupported ops.

    Feasibility is not promised: a limit can be too small, and a pin or a colour can clash with support.
    """
    graph = draw(graphs(max_ops=max_ops, with_backward=with_backward, with_multiple_outputs=with_multiple_outputs))
    platform = draw(platforms(max_kinds=max_kinds, max_devices=max_devices, with_memory=with_memory, names=names))
    costs = draw(cost_tables(graph, platform.kinds, with_unsupported=with_unsupported, with_groups=with_groups))
    num_ops = graph.num_ops
    labels = pinned = None
    if with_colocation and draw(st.booleans()):
        labels = np.array(draw(st.lists(st.integers(-2, num_ops), min_size=num_ops, max_size=num_ops)))
    if with_pins and draw(st.booleans()):
        device = st.integers(UNPINNED, platform.num_devices - 1)
        pinned = np.array(draw(st.lists(device, min_size=num_ops, max_size=num_ops)))
    return Problem(
        graph,
        platform,
        costs,
        draw(objectives() if objective is None else objective),
        draw(st.sampled_from(list(Contiguity)) if contiguity is None else contiguity),
        labels,  # type: ignore[arg-type]  # None = every op on its own
        pinned,  # type: ignore[arg-type]  # None = nothing pinned
    )


@st.composite
def blocked(draw: st.DrawFn, some: st.SearchStrategy[Problem]) -> Problem:
    """Problems with memory that ops share, and limits that mostly bind."""
    problem = draw(some)
    graph, few = problem.graph, st.integers(0, 8).map(float)
    graph = graph.replace(tensor_bytes=np.array([draw(few) for _ in range(graph.num_tensors)]))
    rows = [
        (float(graph.tensor_bytes[t]), False, [int(graph.tensor_producer[t]), *graph.consumers_of(t).tolist()])
        for t in range(graph.num_tensors)
    ]
    for _ in range(draw(st.integers(0, 2))):
        users = draw(st.lists(st.integers(0, graph.num_ops - 1), min_size=1, max_size=3, unique=True))
        rows.append((draw(few), draw(st.booleans()), users))
    blocks = MemoryBlocks(
        np.array([row[0] for row in rows]),
        np.array([row[1] for row in rows], dtype=bool),
        np.cumsum([0, *(len(row[2]) for row in rows)]),
        np.array([op for row in rows for op in row[2]], dtype=np.int64),
        draw(st.integers(0, 2)),
    )
    own = np.array([draw(few) for _ in range(graph.num_ops)])
    total = float(own.sum() + blocks.num_bytes.sum())
    share = {kind: draw(st.none() | st.floats(0.2, 0.9)) for kind in problem.platform.kinds}
    devices = tuple(
        device.replace(
            memory_bytes=None if (part := share[device.kind]) is None else max(1.0, float(round(part * total)))
        )
        for device in problem.platform.devices
    )
    return problem.replace(
        graph=graph,
        platform=problem.platform.replace(devices=devices),
        costs=problem.costs.replace(op_memory_bytes=own, blocks=blocks),
    )


@st.composite
def linked(draw: st.DrawFn, some: st.SearchStrategy[Problem]) -> Problem:
    """Problems whose devices have direct links, of one node or of several, with times of any kind."""
    problem = draw(some)
    platform = draw(linked_platforms(st.just(problem.platform)))
    row = st.lists(TIMES_S, min_size=len(platform.direct_links), max_size=len(platform.direct_links))
    shape = problem.graph.num_tensors, len(platform.direct_links)
    times = np.array([draw(row) for _ in range(shape[0])]).reshape(shape)
    costs = problem.costs.replace(direct_links=platform.direct_link_names, direct_time_s=times)
    return problem.replace(platform=platform, costs=costs)


def with_teams() -> st.SearchStrategy[Throughput]:
    """Every variant of the throughput that has teams."""
    return st.one_of(
        st.builds(
            Throughput, overlap=st.booleans(), schedule=st.sampled_from(["1f1b", "gpipe"]), teams=st.just("equal")
        ),
        st.builds(Throughput, overlap=st.booleans(), teams=st.just("any")),
    )


def teamed_problems(
    *, max_ops: int = 6, max_devices: int = 4, contiguity: st.SearchStrategy[Contiguity] | None = None
) -> st.SearchStrategy[Problem]:
    """Random problems whose devices may form teams."""
    return problems(
        max_ops=max_ops,
        max_kinds=3,
        max_devices=max_devices,
        objective=with_teams(),
        contiguity=contiguity,
        names=TEAM_NAMES,
    )


@st.composite
def workload_problems(draw: st.DrawFn, *, max_ops: int = 8, max_devices: int = 4) -> Problem:
    """Random problems that the workload format can say: accelerators with a limit, and CPUs."""
    graph = draw(graphs(max_ops=max_ops, with_multiple_outputs=False))
    num_accelerators, num_cpus = draw(
        st.tuples(st.integers(0, max_devices), st.integers(0, 2)).filter(lambda counts: sum(counts) > 0)
    )
    limit = draw(st.none() | st.floats(1, 2**40))
    platform = Platform(
        (
            *(Device(f"ACC.{d}", "accelerator", memory_bytes=limit) for d in range(num_accelerators)),
            *(Device(f"CPU.{d}", "cpu", is_host=True) for d in range(num_cpus)),
        )
    )
    costs = draw(cost_tables(graph, ("accelerator", "cpu"), with_groups=False))
    transfer, supported = costs.transfer_time_s.copy(), costs.supported.copy()
    transfer[:, 1], supported[:, 1] = 0, True
    costs = costs.replace(transfer_time_s=transfer, supported=supported).for_kinds(platform.kinds)
    num_ops = graph.num_ops
    labels = draw(st.none() | st.lists(st.integers(-2, num_ops), min_size=num_ops, max_size=num_ops))
    return Problem(graph, platform, costs, colocation=labels)  # type: ignore[arg-type]  # None, and lists are converted


@st.composite
def placements(draw: st.DrawFn, problem: Problem) -> Placement:
    """Any placement of the problem's ops, feasible or not."""
    num_ops = problem.graph.num_ops
    device = st.integers(0, problem.platform.num_devices - 1)
    return Placement.of(problem, np.array(draw(st.lists(device, min_size=num_ops, max_size=num_ops))))


@st.composite
def teamed_placements(draw: st.DrawFn, problem: Problem) -> Placement:
    """Any placement of the problem's ops on any teams, feasible or not."""
    placement = draw(placements(problem))
    num_devices = problem.platform.num_devices
    labels = draw(st.lists(st.integers(0, num_devices - 1), min_size=num_devices, max_size=num_devices))
    return Placement.of(problem, placement.device_of_op, None, [labels.index(label) for label in labels])
