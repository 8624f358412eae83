"""Scores of beginnings: a value that no placement with this beginning is below, and that is its own at the end.

One function per objective, on all beginnings at once, from the definitions in :mod:`placekit.objectives`. Work,
transfers and waits of the items that have places only ever grow when the others get theirs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from placekit.objectives import Makespan, OffloadLatency, SerialLatency, Throughput
from placekit.solvers.generic.enumeration.items import Beginnings, Items

Score = Callable[[Beginnings], NDArray[np.float64]]
"""``[B]`` seconds from ``[B, k]`` places; infinity where the beginning cannot be executed."""
ROWS = 4096
"""Beginnings whose longest paths are looked for together."""


def score_for(items: Items) -> Score | None:
    """Return the score of the problem's objective; None if there is none."""
    objective = items.problem.objective
    if isinstance(objective, Throughput):
        return lambda beginnings: _throughput(items, objective, beginnings)
    if isinstance(objective, SerialLatency):
        return lambda beginnings: _serial_latency(items, objective, beginnings)
    if isinstance(objective, OffloadLatency):
        return lambda beginnings: _offload_latency(items, beginnings)
    if isinstance(objective, Makespan):
        return lambda beginnings: _makespan(items, beginnings)
    return None


def _work(items: Items, device: NDArray[np.int64], ops: NDArray[np.bool_]) -> NDArray[np.float64]:
    """``[B, D]`` seconds of the ops among those of the first k items."""
    problem, num_known = items.problem, device.shape[1]
    kinds = problem.platform.kind_of_device
    total = np.zeros((num_known, len(problem.platform.kinds)))
    chosen = ops & (items.item_of_op < num_known)
    np.add.at(total, items.item_of_op[chosen], problem.costs.op_time_s[chosen])
    return np.stack([(device == d) @ total[:, kinds[d]] for d in range(len(kinds))], axis=1)


def _moved(items: Items, device: NDArray[np.int64], ops: NDArray[np.bool_]) -> NDArray[np.float64]:
    """``[B, D]`` seconds of the tensors that the chosen ops produce and that touch a device and leave it."""
    problem, num_known = items.problem, device.shape[1]
    graph, kinds = problem.graph, problem.platform.kind_of_device
    moved = np.zeros((len(device), len(kinds)))
    for t, producer in enumerate(graph.tensor_producer.tolist()):
        if not ops[producer]:
            continue
        pins = np.unique(items.item_of_op[[producer, *graph.consumers_of(t).tolist()]])
        at = device[:, pins[pins < num_known]]
        if at.shape[1] < 2:
            continue
        if problem.has_direct_links:
            _move_over_links(items, device, t, producer, moved)
            continue
        is_cut = (at != at[:, :1]).any(axis=1)
        for d, time_s in enumerate(problem.costs.transfer_time_s[t, kinds].tolist()):
            if time_s:
                moved[:, d] += time_s * (is_cut & (at == d).any(axis=1))
    return moved


def _move_over_links(
    items: Items, device: NDArray[np.int64], tensor: int, producer: int, moved: NDArray[np.float64]
) -> None:
    """Add what every device pays for a tensor, once its producer has a place: receivers only ever join."""
    problem, num_known = items.problem, device.shape[1]
    platform, costs = problem.platform, problem.costs
    if items.item_of_op[producer] >= num_known:
        return
    source, rows = device[:, items.item_of_op[producer]], np.arange(len(device))
    readers = np.unique(items.item_of_op[problem.graph.consumers_of(tensor)])
    at = device[:, readers[readers < num_known]]
    leaves = np.zeros(len(device), dtype=bool)
    for d, kind in enumerate(platform.kind_of_device.tolist()):
        link = platform.direct_link(source, d)
        enters = (at == d).any(axis=1) & (source != d)
        leaves |= enters & (link < 0)
        direct_s = np.where(enters & (link >= 0), costs.direct_time_s[tensor, link], 0.0)
        moved[:, d] += np.where(enters & (link < 0), costs.transfer_time_s[tensor, kind], direct_s)
        if problem.objective.direct_ends == 2:
            moved[rows, source] += direct_s
    moved[rows, source] += np.where(leaves, costs.transfer_time_s[tensor, platform.kind_of_device[source]], 0.0)


def _throughput(items: Items, objective: Throughput, beginnings: Beginnings) -> NDArray[np.float64]:
    device = items.device_of_place[beginnings]
    backward = items.problem.graph.is_backward
    separate = objective.schedule == "gpipe" and bool(backward.any())
    total = np.zeros(len(beginnings))
    for ops in [~backward, backward] if separate else [np.ones_like(backward)]:
        work, moved = _work(items, device, ops), _moved(items, device, ops)
        load = np.maximum(work, moved) if objective.overlap else work + moved
        for first, members in items.teams.items():
            load[:, first] = _team_load(items, objective, device, ops, first, members)
        total += load.max(axis=1)
    return total


def _team_load(
    items: Items,
    objective: Throughput,
    device: NDArray[np.int64],
    ops: NDArray[np.bool_],
    first: int,
    members: tuple[int, ...],
) -> NDArray[np.float64]:
    """``[B]`` seconds per sample of a team: it grows with the load of every member."""
    rate = np.zeros(len(device))
    for d in members:
        there = np.where(device == first, d, device)
        work, moved = _work(items, there, ops)[:, d], _moved(items, there, ops)[:, d]
        with np.errstate(divide="ignore"):  # a member that needs no time
            rate += 1 / (np.maximum(work, moved) if objective.overlap else work + moved)
    return np.asarray(1 / rate, dtype=np.float64)


def _serial_latency(items: Items, objective: SerialLatency, beginnings: Beginnings) -> NDArray[np.float64]:
    problem, num_known = items.problem, beginnings.shape[1]
    device = items.device_of_place[beginnings]
    everything = np.ones(problem.graph.num_ops, dtype=bool)
    total: NDArray[np.float64] = _work(items, device, everything).sum(axis=1)
    total += _moved(items, device, everything).sum(axis=1)
    kinds = problem.platform.kind_of_device[items.device_of_place]
    time_s = np.zeros((items.num_items, len(kinds)))
    np.add.at(time_s, items.item_of_op, problem.costs.op_time_s[:, kinds])
    total += np.where(items.allowed, time_s, np.inf).min(axis=1)[num_known:].sum()
    if objective.subgraph_cost_s:
        total += objective.subgraph_cost_s * _subgraphs(items, device)
    return total


def _subgraphs(items: Items, device: NDArray[np.int64]) -> NDArray[np.int64]:
    """``[B]`` subgraphs of the ops all of whose ancestors have places: their levels are final."""
    senders, receivers = items.edges
    is_known = items.item_of_op < device.shape[1]
    for u, v in zip(senders.tolist(), receivers.tolist(), strict=True):  # along a topological order
        is_known[v] &= is_known[u]
    at = {op: device[:, items.item_of_op[op]] for op in np.flatnonzero(is_known).tolist()}
    level = {op: np.zeros(len(device), dtype=np.int64) for op in at}
    for u, v in zip(senders.tolist(), receivers.tolist(), strict=True):
        if v in level:
            level[v] = np.maximum(level[v], level[u] + (at[u] != at[v]))
    if not at:
        return np.zeros(len(device), dtype=np.int64)
    labels = np.sort(np.stack([level[op] * 256 + at[op] for op in at], axis=1), axis=1)
    counts: NDArray[np.int64] = 1 + (np.diff(labels, axis=1) != 0).sum(axis=1)
    return counts


def _offload_latency(items: Items, beginnings: Beginnings) -> NDArray[np.float64]:
    """Longest path through calls and host ops, by relaxation; a cycle never settles. A few rows at a time: in cache."""
    parts = [_longest_paths(items, beginnings[at : at + ROWS]) for at in range(0, len(beginnings), ROWS)]
    return np.concatenate(parts) if parts else np.zeros(0)


def _longest_paths(items: Items, beginnings: Beginnings) -> NDArray[np.float64]:
    problem, num_known = items.problem, beginnings.shape[1]
    graph, costs = problem.graph, problem.costs
    is_host = np.array([device.is_host for device in problem.platform.devices])
    # units: the places, of which hosts stay empty, then every op for itself
    num_places, rows = len(items.device_of_place), np.arange(len(beginnings))
    kinds = problem.platform.kind_of_device[items.device_of_place]
    known = np.flatnonzero(items.item_of_op < num_known).tolist()
    unit, takes = {}, np.zeros((num_places + graph.num_ops, len(beginnings)))
    for op in known:
        place = beginnings[:, items.item_of_op[op]].astype(np.int64)
        unit[op] = np.where(is_host[items.device_of_place[place]], num_places + op, place)
        takes[unit[op], rows] += costs.op_time_s[op, kinds[place]]
    calls = [p for p in range(num_places) if not is_host[items.device_of_place[p]]]
    for t, producer in enumerate(graph.tensor_producer.tolist()):
        readers = [op for op in np.unique(graph.consumers_of(t)).tolist() if op in unit]
        if producer not in unit or not readers:
            continue
        leaves = np.zeros(len(beginnings), dtype=bool)
        for op in readers:
            leaves |= unit[op] != unit[producer]
        for p in calls:
            time_s = float(costs.transfer_time_s[t, kinds[p]])
            if time_s:
                enters = np.zeros(len(beginnings), dtype=bool)
                for op in readers:
                    enters |= unit[op] == p
                takes[p] += time_s * ((enters & (unit[producer] != p)) | (leaves & (unit[producer] == p)))
    senders, receivers = items.edges
    waits = []
    for u, v in zip(senders.tolist(), receivers.tolist(), strict=True):
        if u in unit and v in unit:
            apart = np.flatnonzero(unit[u] != unit[v])
            waits.append((unit[u][apart], unit[v][apart], apart))
    start = np.zeros_like(takes)
    for _ in range(len(takes) + 1):
        before = start.copy()
        for source, target, row in waits:
            start[target, row] = np.maximum(start[target, row], start[source, row] + takes[source, row])
        for p in calls:
            if items.slot_of_place[p]:
                np.maximum(start[p], start[p - 1] + takes[p - 1], out=start[p])
        if np.array_equal(before, start):
            break
    latency: NDArray[np.float64] = (start + takes).max(axis=0)
    return np.where((before == start).all(axis=0), latency, np.inf)


def _makespan(items: Items, beginnings: Beginnings) -> NDArray[np.float64]:
    """Work of the fullest device, or the longest path, with transfers between items that have places."""
    problem, num_known = items.problem, beginnings.shape[1]
    graph, costs, kinds = problem.graph, problem.costs, problem.platform.kind_of_device
    device = items.device_of_place[beginnings]
    least: NDArray[np.float64] = _work(items, device, np.ones(graph.num_ops, dtype=bool)).max(axis=1)
    time_s = np.where(items.allowed[items.item_of_op], costs.op_time_s[:, kinds[items.device_of_place]], np.inf)
    fastest = time_s.min(axis=1)
    end: dict[int, NDArray[np.float64]] = {}
    inputs: dict[int, list[int]] = {op: [] for op in range(graph.num_ops)}
    for u, v in zip(*(ends.tolist() for ends in items.edges), strict=True):
        inputs[v].append(u)
    for op in graph.order.tolist():
        is_known = items.item_of_op[op] < num_known
        at = device[:, items.item_of_op[op]] if is_known else None
        start = np.zeros(len(beginnings))
        for u in inputs[op]:
            arrives = end[u]
            if at is not None and items.item_of_op[u] < num_known:
                source = device[:, items.item_of_op[u]]
                arrives = arrives + np.where(source != at, _crossing(items, u, op, source, at), 0.0)
            start = np.maximum(start, arrives)
        end[op] = start + (fastest[op] if at is None else costs.op_time_s[op, kinds[at]])
        least = np.maximum(least, end[op])
    return least


def _crossing(
    items: Items, u: int, v: int, source: NDArray[np.int64], target: NDArray[np.int64]
) -> NDArray[np.float64]:
    """``[B]`` seconds from the end of u to the arrival of the last of its tensors that v reads."""
    problem = items.problem
    kinds, costs = problem.platform.kind_of_device, problem.costs
    link = problem.platform.direct_link(source, target)
    latest = np.zeros(len(source))
    for t in np.flatnonzero(problem.graph.tensor_producer == u).tolist():
        if v in problem.graph.consumers_of(t):
            takes = costs.transfer_time_s[t, kinds[source]] + costs.transfer_time_s[t, kinds[target]]
            if problem.has_direct_links:
                takes = np.where(link < 0, takes, costs.direct_time_s[t, link])
            latest = np.maximum(latest, takes)
    return np.asarray(latest, dtype=np.float64)
