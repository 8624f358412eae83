"""Plain twins of the judge, written from the definitions with dictionaries and networkx, and brute force over them.

Nothing here shares code with the package: a bug would have to be made twice.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import networkx as nx

from placekit.model.contiguity import Contiguity
from placekit.model.platform import Device
from placekit.model.problem import Problem
from placekit.objectives import Makespan, OffloadLatency, SerialLatency, Throughput


@dataclass(frozen=True, eq=False)
class Plain:
    """What of a problem the formulas ask for at every placement, looked up once.

    Parameters
    ----------
    tensors
        (tensor, producer, consumers).
    edges
        The (producer op, consumer op) pairs.
    classes
        The sets of ops that share a device: colocation labels and fused groups, chained together.
    order
        Forward edges, and reversed backward edges that touch a class without forward ops.
    inputs
        The producers that each op reads, ops in a topological order.
    kind
        Index of the kind of each device.
    time_s, transfer_s, num_bytes, supported, pinned, backward
        The arrays of the problem.
    limits
        Numbers of the devices that share a memory, and its bytes: a device alone, if it has a limit, or a pool.
    direct
        Row of the direct link between two devices in the table of costs; None if they have none.
    """

    tensors: list[tuple[int, int, list[int]]]
    edges: set[tuple[int, int]]
    classes: list[set[int]]
    order: nx.DiGraph[int]
    inputs: dict[int, list[int]]
    kind: list[int]
    time_s: list[list[float]]
    transfer_s: list[list[float]]
    num_bytes: list[float]
    supported: list[list[bool]]
    pinned: list[int]
    backward: list[bool]
    limits: list[tuple[set[int], float]]
    direct: list[list[int | None]]

    @cached_property
    def before(self) -> list[set[int]]:
        """The ops that each op depends on in `order`."""
        return [nx.ancestors(self.order, op) for op in range(len(self.time_s))]

    @cached_property
    def behind(self) -> list[set[int]]:
        """The ops that depend on each op in `order`."""
        return [nx.descendants(self.order, op) for op in range(len(self.time_s))]


def _plain(problem: Problem) -> Plain:
    graph, platform, costs = problem.graph, problem.platform, problem.costs
    ops = range(graph.num_ops)
    tensors = [(t, int(u), graph.consumers_of(t).tolist()) for t, u in enumerate(graph.tensor_producer)]
    edges = {(u, v) for _, u, readers in tensors for v in readers}
    together: nx.Graph[int] = nx.Graph()
    together.add_nodes_from(ops)
    for labels in (problem.colocation, costs.op_group):
        first: dict[int, int] = {}
        for op, label in enumerate(labels.tolist()):
            together.add_edge(first.setdefault(label, op), op)
    classes = [set(c) for c in nx.connected_components(together)]
    backward = [bool(each) for each in graph.is_backward]
    orphans = {op for c in classes if all(backward[o] for o in c) for op in c}
    order: nx.DiGraph[int] = nx.DiGraph()
    order.add_nodes_from(ops)
    for u, v in edges:
        if not backward[u] and not backward[v]:
            order.add_edge(u, v)
        elif backward[u] and backward[v] and (u in orphans or v in orphans):
            order.add_edge(v, u)
    whole: nx.DiGraph[int] = nx.DiGraph(list(edges))
    whole.add_nodes_from(ops)
    return Plain(
        tensors=tensors,
        edges=edges,
        classes=classes,
        order=order,
        inputs={op: list(whole.predecessors(op)) for op in nx.topological_sort(whole)},
        kind=[platform.kinds.index(d.kind) for d in platform.devices],
        time_s=costs.op_time_s.tolist(),
        transfer_s=costs.transfer_time_s.tolist(),
        num_bytes=costs.op_memory_bytes.tolist(),
        supported=costs.supported.tolist(),
        pinned=problem.pinned.tolist(),
        backward=backward,
        limits=[
            *(({d}, own.memory_bytes) for d, own in enumerate(platform.devices) if own.memory_bytes is not None),
            *(({platform.device_names.index(d) for d in pool.devices}, pool.memory_bytes) for pool in platform.pools),
        ],
        direct=[[_direct_link(problem, a, b) for b in platform.devices] for a in platform.devices],
    )


def _direct_link(problem: Problem, a: Device, b: Device) -> int | None:
    found = [
        (link.kinds is not None, at)
        for at, link in enumerate(problem.platform.direct_links)
        if link.between_nodes == (a.node != b.node) and link.kinds in (None, tuple(sorted((a.kind, b.kind))))
    ]
    return max(found)[1] if found else None


_latest: list[tuple[Problem, Plain]] = []


def plain(problem: Problem) -> Plain:
    """Return the problem in plain lists; those of the latest problems are kept."""
    for known, it in _latest:
        if known is problem:
            return it
    _latest[3:] = []
    _latest.insert(0, (problem, _plain(problem)))
    return _latest[0][1]


def tensors(problem: Problem) -> list[tuple[int, int, list[int]]]:
    """Return (tensor, producer, consumers) of every tensor."""
    return plain(problem).tensors


def edges(problem: Problem) -> set[tuple[int, int]]:
    """Return the (producer op, consumer op) pairs."""
    return plain(problem).edges


def classes(problem: Problem) -> list[set[int]]:
    """Return the sets of ops that share a device."""
    return plain(problem).classes


def objective(problem: Problem, device: tuple[int, ...]) -> float:
    """Score a supported placement, term by term from the definitions."""
    if isinstance(problem.objective, OffloadLatency):
        return offload_latency(problem, device)
    if isinstance(problem.objective, Makespan):
        return max(finish for _, finish in makespan_times(problem, device))
    it = plain(problem)
    kind, time_s, backward = it.kind, it.time_s, it.backward
    work: dict[tuple[int, bool], float] = defaultdict(float)
    moved: dict[tuple[int, bool], float] = defaultdict(float)
    for op, d in enumerate(device):
        work[d, backward[op]] += time_s[op][kind[d]]
    for t, producer, readers in it.tensors:
        source, by_host = device[producer], set[int]()
        for d in {device[r] for r in readers} - {source}:
            direct = direct_time_s(problem, t, source, d)
            if direct is None:
                by_host |= {source, d}
                continue
            moved[d, backward[producer]] += direct
            if isinstance(problem.objective, Throughput):
                moved[source, backward[producer]] += direct
        for d in by_host:
            moved[d, backward[producer]] += it.transfer_s[t][kind[d]]
    devices = range(len(kind))
    if isinstance(problem.objective, SerialLatency):
        total = sum(work.values()) + sum(moved.values())
        level: dict[int, int] = {}
        for op, producers in it.inputs.items():
            level[op] = max((level[u] + (device[u] != device[op]) for u in producers), default=0)
        return total + problem.objective.subgraph_cost_s * len({(level[op], device[op]) for op in level})
    variant = problem.objective
    assert isinstance(variant, Throughput)

    def load(d: int, passes: tuple[bool, ...]) -> float:
        w, m = sum(work[d, p] for p in passes), sum(moved[d, p] for p in passes)
        return max(w, m) if variant.overlap else w + m

    if variant.schedule == "gpipe":
        return max(load(d, (False,)) for d in devices) + max(load(d, (True,)) for d in devices)
    return max(load(d, (False, True)) for d in devices)


def direct_time_s(problem: Problem, t: int, source: int, target: int) -> float | None:
    """Return the seconds of a tensor over the direct link of two devices; None if they have none."""
    at = plain(problem).direct[source][target]
    return None if at is None else float(problem.costs.direct_time_s[t, at])


def offload_latency(problem: Problem, device: tuple[int, ...], step: tuple[int, ...] | None = None) -> float:
    """Return the time when the last call or host op ends; infinity if calls wait for each other or are too many."""
    assert isinstance(problem.objective, OffloadLatency)
    platform, it = problem.platform, plain(problem)
    kind, ops = it.kind, range(problem.graph.num_ops)
    unit: list[tuple[int, ...]] = [
        (d, -1, op) if platform.devices[d].is_host else (d, step[op] if step else 0) for op, d in enumerate(device)
    ]
    calls = {u for u in unit if len(u) == 2}
    if any(len([c for c in calls if c[0] == d]) > problem.objective.calls_per_device for d in set(device)):
        return math.inf
    ends: dict[tuple[int, ...], float] = {}
    busy: set[tuple[int, ...]] = set()

    def end(u: tuple[int, ...]) -> float:
        if u in ends:
            return ends[u]
        if u in busy:
            return math.inf  # a cycle
        busy.add(u)
        inputs = {(t, unit[p]) for t, p, readers in it.tensors if any(unit[r] == u for r in readers)}
        inputs = {(t, source) for t, source in inputs if source != u}
        outputs = {t for t, p, readers in it.tensors if unit[p] == u and any(unit[r] != u for r in readers)}
        earlier = {c for c in calls if len(u) == 2 and c[0] == u[0] and c[1] < u[1]}
        start = max((end(other) for other in {source for _, source in inputs} | earlier), default=0.0)
        work = sum(it.time_s[op][kind[u[0]]] for op in ops if unit[op] == u)
        moved = [t for t, _ in inputs] + list(outputs) if len(u) == 2 else []
        ends[u] = start + work + sum(it.transfer_s[t][kind[u[0]]] for t in moved)
        return ends[u]

    return max(end(u) for u in unit)


def move_s(problem: Problem, t: int, source: int, target: int) -> float:
    """Return the seconds of a tensor from one device to another one: over their direct link, or out and in."""
    direct = direct_time_s(problem, t, source, target)
    if direct is not None:
        return direct
    it = plain(problem)
    return it.transfer_s[t][it.kind[source]] + it.transfer_s[t][it.kind[target]]


def mean_move_s(problem: Problem, t: int) -> float:
    """Return the mean seconds of a tensor over the ordered pairs of devices, added up by kinds and nodes."""
    platform = problem.platform
    if platform.num_devices == 1:
        return 0.0
    if not platform.direct_links:
        own = [float(problem.costs.transfer_time_s[t, platform.kinds.index(d.kind)]) for d in platform.devices]
        return 2 * sum(own) / len(own)
    count: dict[tuple[object, ...], int] = {}
    way: dict[tuple[object, ...], float] = {}
    for a, one in enumerate(platform.devices):
        for b, other in enumerate(platform.devices):
            key = (one.kind, one.node, other.kind, other.node)
            count[key] = count.get(key, 0) + (a != b)
            if a != b:
                way[key] = move_s(problem, t, a, b)
    groups = list(dict.fromkeys((device.kind, device.node) for device in platform.devices))
    total = 0.0
    for pair in itertools.product(groups, repeat=2):
        key = (*pair[0], *pair[1])
        total += count[key] * way.get(key, 0.0)
    return total / (platform.num_devices * (platform.num_devices - 1))


def upward_ranks(problem: Problem) -> list[float]:
    """Return the upward rank of every op: mean times over kinds, mean transfers over pairs of distinct devices."""
    platform, costs = problem.platform, problem.costs
    ranks = [0.0] * problem.graph.num_ops
    outputs: dict[int, list[tuple[int, list[int]]]] = defaultdict(list)
    for t, producer, readers in tensors(problem):
        outputs[producer].append((t, readers))
    for op in reversed(problem.graph.order.tolist()):
        times = [costs.op_time_s[op, k] for k in range(len(platform.kinds)) if costs.supported[op, k]]
        longest = 0.0
        for t, readers in outputs[op]:
            mean = mean_move_s(problem, t)
            longest = max([longest, *(mean + ranks[r] for r in readers)])
        ranks[op] = float(sum(times) / max(len(times), 1) + longest)
    return ranks


def makespan_times(
    problem: Problem,
    device: tuple[int, ...],
    step: tuple[int, ...] | None = None,
    priority: list[float] | None = None,
) -> list[tuple[float, float]]:
    """Return start and finish of every op by simulating moment after moment; empty if the devices get stuck.

    Given steps are kept strictly; otherwise a free device starts a ready op, by `priority` or as the objective says.
    """
    variant, it = problem.objective, plain(problem)
    assert isinstance(variant, Makespan)
    kind = it.kind
    ops = range(problem.graph.num_ops)
    position = {op: i for i, op in enumerate(problem.graph.order.tolist())}
    ranks = upward_ranks(problem) if variant.contention or variant.order == "upward-rank" else []
    if priority is None and variant.order == "upward-rank":
        priority = [-rank for rank in ranks]
    needs = {op: {t for t, _, readers in tensors(problem) if op in readers} for op in ops}
    turns = {d: sorted((op for op in ops if device[op] == d), key=lambda op: position[op]) for d in set(device)}
    if step is not None:
        for mine in turns.values():
            mine.sort(key=lambda op: step[op])  # stable: topological positions break ties
    arrivals: dict[tuple[int, int], float] = {}  # of (tensor, device)
    bus_free = dict.fromkeys(range(len(kind)), 0.0)
    start: dict[int, float] = {}
    finish: dict[int, float] = {}
    ended: set[int] = set()
    now = 0.0
    while True:
        for op in sorted((op for op in start if op not in ended and finish[op] == now), key=lambda op: device[op]):
            ended.add(op)
            for t, producer, readers in tensors(problem):
                if producer != op:
                    continue
                due = {r: (-ranks[r] if variant.contention else 0.0, position[r]) for r in readers}
                for to in dict.fromkeys(device[r] for r in sorted(readers, key=due.__getitem__)):
                    arrivals[t, to] = now
                    if to != device[op]:
                        leaves = max(now, bus_free[device[op]]) if variant.contention else now
                        arrivals[t, to] = leaves + move_s(problem, t, device[op], to)
                        bus_free[device[op]] = arrivals[t, to]
        busy = {device[op] for op in start if op not in ended}
        began = []
        for d in sorted(turns):
            waiting = [op for op in turns[d] if op not in start]
            if d in busy or not waiting:
                continue
            since = {}
            for op in waiting:
                if all((t, d) in arrivals for t in needs[op]):
                    since[op] = max((arrivals[t, d] for t in needs[op]), default=0.0)
            ready = [op for op in waiting if op in since and since[op] <= now]
            if step is not None:
                ready = [op for op in ready if op == waiting[0]]
            if not ready:
                continue
            key = {op: since[op] if priority is None else priority[op] for op in ready}
            op = min(ready, key=lambda op: (key[op], position[op]))
            start[op], finish[op] = now, now + it.time_s[op][kind[d]]
            began.append(op)
        if any(finish[op] == now for op in began):
            continue  # an op of no time: a second round of this moment
        later = [finish[op] for op in start if op not in ended] + [at for at in arrivals.values() if at > now]
        if not later:
            return [(start[op], finish[op]) for op in ops] if len(ended) == len(ops) else []
        now = min(later)


def held_bytes(problem: Problem, held: set[int]) -> float:
    """Return the bytes that a device needs for the ops `held`: their own, weights, queues, and live tensors."""
    graph, costs = problem.graph, problem.costs
    total = math.fsum(plain(problem).num_bytes[op] for op in held)
    if costs.blocks is None:
        return total
    in_order = all(producer < reader for producer, reader in plain(problem).edges)
    turn = {int(op): at for at, op in enumerate(range(graph.num_ops) if in_order else graph.order)}
    live: dict[int, list[float]] = {}
    for b, size in enumerate(costs.blocks.num_bytes):
        users = set(costs.blocks.ops[costs.blocks.offsets[b] : costs.blocks.offsets[b + 1]].tolist())
        turns = [turn[op] for op in users & held]
        if turns and costs.blocks.is_weight[b]:
            total += size
        elif turns:
            for at in range(min(turns), max(turns) + 1):
                live.setdefault(at, []).append(float(size))
    if problem.objective.name == "throughput":
        for tensor, producer, readers in tensors(problem):
            users = {producer, *readers}
            if users & held and users - held:
                total += costs.blocks.queue_slots * float(graph.tensor_bytes[tensor])
    return total + max(map(math.fsum, live.values()), default=0.0)


def fits(problem: Problem, held: list[set[int]]) -> bool:
    """Check the memory of every device, and that which devices share, for the ops that each of them holds."""
    limits = plain(problem).limits
    used = [held_bytes(problem, ops) for ops in held] if limits else []
    return all(math.fsum(used[d] for d in sharing) <= limit * (1 + 1e-12) for sharing, limit in limits)


def is_feasible(problem: Problem, device: tuple[int, ...]) -> bool:
    """Check every constraint from its definition."""
    it = plain(problem)
    if not all(it.supported[op][it.kind[d]] for op, d in enumerate(device)):
        return False
    if any(it.pinned[op] not in (-1, d) for op, d in enumerate(device)):
        return False
    if not fits(problem, [{op for op, own in enumerate(device) if own == d} for d in range(len(it.kind))]):
        return False
    if isinstance(problem.objective, OffloadLatency) and math.isinf(offload_latency(problem, device)):
        return False
    return keeps_together(problem, device)


def keeps_together(problem: Problem, device: tuple[int, ...]) -> bool:
    """Check colocation and contiguity, which are about sets of ops, whoever runs them."""
    it = plain(problem)
    if any(len({device[op] for op in c}) > 1 for c in it.classes):
        return False
    if problem.contiguity is Contiguity.ACYCLIC:
        quotient = nx.DiGraph((device[u], device[v]) for u, v in it.order.edges if device[u] != device[v])
        return nx.is_directed_acyclic_graph(quotient)
    if problem.contiguity is Contiguity.CONVEX:
        ops = set(range(problem.graph.num_ops))
        for d in set(device):
            inside = {op for op in ops if device[op] == d}
            for op in ops - inside:
                if it.before[op] & inside and it.behind[op] & inside:
                    return False
    return True


def team_objective(problem: Problem, device: tuple[int, ...], team: tuple[int, ...]) -> float:
    """Score a supported throughput placement with teams: `device` and `team` name first members."""
    variant, it = problem.objective, plain(problem)
    assert isinstance(variant, Throughput)
    kind, backward = it.kind, it.backward
    total = 0.0
    for passes in ((False,), (True,)) if variant.schedule == "gpipe" else ((False, True),):
        slowest = 0.0
        for first in set(team):
            alone = []
            for member in (d for d, own in enumerate(team) if own == first):
                w = sum(
                    it.time_s[op][kind[member]]
                    for op, own in enumerate(device)
                    if own == first and backward[op] in passes
                )
                m = sum(
                    it.transfer_s[t][kind[member]]
                    for t, producer, readers in it.tensors
                    if backward[producer] in passes
                    and first in (ends := {device[producer], *(device[r] for r in readers)})
                    and len(ends) > 1
                )
                alone.append(max(w, m) if variant.overlap else w + m)
            slowest = max(slowest, 0.0 if 0 in alone else 1 / sum(1 / load for load in alone))
        total += slowest
    return total


def team_is_feasible(problem: Problem, device: tuple[int, ...], team: tuple[int, ...]) -> bool:
    """Check every constraint of a placement with teams, as `is_feasible` does for single devices."""
    assert isinstance(problem.objective, Throughput)
    it = plain(problem)
    kind = it.kind
    held = [{op for op, own in enumerate(device) if own == first} for first in team]
    if not all(it.supported[op][kind[member]] for member, ops in enumerate(held) for op in ops):
        return False
    if not fits(problem, held):
        return False
    if any(it.pinned[op] != -1 and team[it.pinned[op]] != d for op, d in enumerate(device)):
        return False
    rule = problem.objective.teams
    for first in set(device):
        members = {d for d, own in enumerate(team) if own == first}
        if (rule == "off" and len(members) > 1) or (rule == "equal" and len({kind[d] for d in members}) > 1):
            return False
    return keeps_together(problem, device)


def set_partitions(num_devices: int) -> Iterator[tuple[int, ...]]:
    """Yield the first member of the team of every device, for every way to divide the devices into teams."""

    def extend(team: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(team) == num_devices:
            yield team
            return
        for first in sorted({*team, len(team)}):
            yield from extend((*team, first))

    return extend(())


def team_brute_force(problem: Problem) -> float | None:
    """Return the optimum over all partitions of the devices into teams and all placements; None if none is feasible."""
    groups = classes(problem)
    best: float | None = None
    for team in set_partitions(problem.platform.num_devices):
        for choice in itertools.product(sorted(set(team)), repeat=len(groups)):
            device = [0] * problem.graph.num_ops
            for group, d in zip(groups, choice, strict=True):
                for op in group:
                    device[op] = d
            if not team_is_feasible(problem, tuple(device), team):
                continue
            value = team_objective(problem, tuple(device), team)
            best = value if best is None else min(best, value)
    return best


def brute_force(problem: Problem) -> float | None:
    """Return the optimum over all placements; None if none is feasible."""
    it = plain(problem)
    groups = it.classes
    choices = [[d for d, kind in enumerate(it.kind) if all(it.supported[op][kind] for op in group)] for group in groups]
    best: float | None = None
    for choice in itertools.product(*choices):
        device = [0] * problem.graph.num_ops
        for group, d in zip(groups, choice, strict=True):
            for op in group:
                device[op] = d
        value = objective(problem, tuple(device))
        if (best is None or value < best) and is_feasible(problem, tuple(device)):
            best = value
    return best
