"""Local search for `OffloadLatency`: annealing with restarts, every proposal scored by the whole formula."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
from numpy.typing import NDArray

from placekit.coarsen import Contraction, contract
from placekit.contiguity import Contiguity
from placekit.evaluate import MEMORY_TOLERANCE
from placekit.graph import topological_order
from placekit.method import Run
from placekit.objectives import OffloadLatency
from placekit.placement import Placement
from placekit.problem import Problem
from placekit.solvers.offload_latency.anneal import Places, anneal, excess, latency
from placekit.solvers.params import LocalSearchParams
from placekit.stop import StopReason

__all__ = ["places_from", "places_of", "search_offload", "to_placement"]

FIRST_STEPS = 20
"""Proposals per node in the first round; doubled from round to round up to the parameter."""
BLOCK = 2_000_000
"""Proposals times ops between two looks at whether to stop, about."""
WORKERS = 2
"""Walks side by side."""
HOTTEST = 0.02
COLDEST = 1e-6
"""Temperatures as shares of the latency."""


def places_of(problem: Problem[OffloadLatency]) -> tuple[Contraction, Places]:
    """Return the contracted problem and its arrays; a node is a class of ops, which stays in one call."""
    objective = problem.objective
    contraction = contract(problem.replace(contiguity=Contiguity.NONE))
    graph, platform, costs = problem.graph, problem.platform, problem.costs
    accelerators = [d for d, device in enumerate(platform.devices) if not device.is_host]
    hosts = [d for d, device in enumerate(platform.devices) if device.is_host]
    slots = np.repeat(np.array(accelerators, dtype=np.int64), objective.calls_per_device)
    device = np.concatenate([slots, np.array(hosts, dtype=np.int64)])
    limits = [platform.devices[d].memory_bytes for d in device.tolist()]
    limit_bytes = np.array([np.inf if limit is None else limit for limit in limits]) * (1 + MEMORY_TOLERANCE)
    kinds = platform.kind_of_device[device]
    move_s = costs.transfer_time_s[:, kinds].copy()
    move_s[:, len(slots) :] = 0.0
    node = contraction.class_of_op
    crossing = node[graph.senders] != node[graph.receivers]
    senders, receivers = node[graph.senders][crossing], node[graph.receivers][crossing]
    num_nodes = contraction.num_classes
    host_time = contraction.time_s.sum(axis=2)[:, kinds[len(slots) :]]
    host_time = np.where(contraction.allowed[:, hosts], host_time, np.inf)
    best = np.argmin(host_time, axis=1) if hosts else np.zeros(num_nodes, dtype=np.int64)
    has_host = np.isfinite(host_time).any(axis=1)
    tensor_ops = np.insert(graph.consumers, graph.consumer_offsets[:-1], graph.tensor_producer)
    places = Places(
        num_slots=len(slots),
        calls_per_device=objective.calls_per_device,
        node_of_op=node,
        **_lists("node", node, np.arange(graph.num_ops), num_nodes, "ops"),
        time_s=np.ascontiguousarray(costs.op_time_s[:, kinds]),
        allowed=np.ascontiguousarray(contraction.allowed[:, device]),
        num_bytes=contraction.memory_bytes,
        limit_bytes=limit_bytes,
        device=device,
        tensor_offsets=graph.consumer_offsets + np.arange(graph.num_tensors + 1),
        tensor_ops=tensor_ops,
        move_s=np.ascontiguousarray(move_s),
        **_lists("out", graph.tensor_producer, np.arange(graph.num_tensors), graph.num_ops, "tensors"),
        in_count=np.bincount(graph.consumers, minlength=graph.num_ops),
        **_lists("near", np.append(senders, receivers), np.append(receivers, senders), num_nodes, "nodes"),
        **_lists("behind", senders, receivers, num_nodes, "nodes"),
        **_lists("before", receivers, senders, num_nodes, "nodes"),
        host_place=np.where(has_host, len(slots) + best, -1),
    )
    return contraction, places


def _lists(
    name: str, keys: NDArray[np.int64], values: NDArray[np.int64], num_keys: int, what: str
) -> dict[str, NDArray[np.int64]]:
    """Return CSR lists of the values by key, as the two fields of `Places`."""
    by_key = np.argsort(keys, kind="stable")
    offsets = np.searchsorted(keys[by_key], np.arange(num_keys + 1)).astype(np.int64)
    return {f"{name}_offsets": offsets, f"{name}_{what}": values[by_key]}


def places_from(contraction: Contraction, places: Places, placement: Placement) -> NDArray[np.int64] | None:
    """``[N]`` places of a placement; None if it splits a node, or puts one where it may not be."""
    device = placement.device_of_op
    slot_of: dict[int, int] = {}
    for at, d in enumerate(places.device.tolist()):
        slot_of.setdefault(d, at)
    place = np.array([slot_of[d] for d in device.tolist()], dtype=np.int64)
    if placement.step_of_op is not None and places.calls_per_device > 1:
        for d in np.unique(device).tolist():
            if slot_of[d] < places.num_slots:
                on = device == d
                rank = np.unique(placement.step_of_op[on], return_inverse=True)[1]
                if rank.max() >= places.calls_per_device:
                    return None
                place[on] += rank
    of_node = contraction.restrict(place)
    is_whole = np.array_equal(contraction.expand(of_node), place)
    is_allowed = bool(places.allowed[np.arange(len(of_node)), of_node].all())
    return of_node if is_whole and is_allowed else None


def to_placement(contraction: Contraction, places: Places, place: NDArray[np.int64]) -> Placement:
    """Return the placement with these places."""
    of_op = contraction.expand(place)
    steps = None
    if places.calls_per_device > 1:
        steps = np.where(of_op < places.num_slots, of_op % places.calls_per_device, 0)
    return Placement.of(contraction.problem, places.device[of_op], steps)


def search_offload(run: Run[OffloadLatency], params: LocalSearchParams) -> StopReason:
    """Anneal from the best placement that `run` holds, again and again, at temperatures drawn at random.

    A proposal moves a node, or nodes that hang together, to the place of a neighbour or to a random one, empties a
    call, or exchanges two. Excess of memory can only shrink. Every round is `WORKERS` walks side by side, of which the
    best counts, so the answer depends on the seed alone, unless time runs out.

    Notes
    -----
    O(ops + edges) per proposal.
    """
    contraction, places = places_of(run.problem)
    if not places.allowed.any(axis=1).all():
        return StopReason.FINISHED
    num_nodes = contraction.num_classes
    start = _start(run, contraction, places)
    best = (excess(places, start), latency(places, start))
    if not np.isfinite(best[1]):
        return StopReason.FINISHED
    _offer(run, contraction, places, start, best)
    stale, number = 0, 0
    with ThreadPoolExecutor(WORKERS) as pool:
        while (reason := run.should_stop()) is None:
            if stale >= params.patience:
                return StopReason.FINISHED
            steps = num_nodes * min(params.steps, FIRST_STEPS * 2 ** min(number, 20))
            heat = HOTTEST * run.rng.choice([1.0, 0.1, 0.01], WORKERS)
            walks = [
                pool.submit(_walk, run, places, start.copy(), steps, hot, rng)
                for hot, rng in zip(heat.tolist(), run.rng.spawn(WORKERS), strict=True)
            ]
            while wait(walks, timeout=0.05).not_done:
                pass  # in short steps, so that this thread keeps seeing signals
            value, found = min((walk.result() for walk in walks), key=lambda result: result[0])
            number, stale = number + 1, stale + 1
            if value[0] < best[0] or (value[0] == best[0] and value[1] < best[1] * (1 - 1e-9)):
                start, best, stale = found, value, 0
                _offer(run, contraction, places, start, best)
    return reason


def _walk(
    run: Run, places: Places, place: NDArray[np.int64], steps: int, hot: float, rng: np.random.Generator
) -> tuple[tuple[float, float], NDArray[np.int64]]:
    """Anneal `place`, cooling from `hot`; return the excess and latency of the best places, and these.

    In blocks, so that it can be stopped.
    """
    size = max(1000, BLOCK // (len(places.node_of_op) + 1))
    num_blocks = -(-steps // size)
    best, found = (np.inf, np.inf), place
    for at in range(num_blocks):
        low, high = (hot * (COLDEST / hot) ** (x / num_blocks) for x in (at + 1, at))
        seen, over, seconds = anneal(places, place, size if num_blocks > 1 else steps, high, low, rng)
        if (over, seconds) < best:
            best, found = (over, seconds), seen
        if run.should_stop() is not None:
            break
    return best, found


def _offer(
    run: Run, contraction: Contraction, places: Places, place: NDArray[np.int64], value: tuple[float, float]
) -> None:
    run.offer(to_placement(contraction, places, place), at_most=value[1])


def _start(run: Run, contraction: Contraction, places: Places) -> NDArray[np.int64]:
    """Return the best places known; without any, hosts and chains of calls along a topological order."""
    for placement in (run.placement, run.warm_start):
        if placement is not None:
            place = places_from(contraction, places, placement)
            if place is not None and np.isfinite(latency(places, place)):
                return place
    place = places.host_place.copy()
    nodes = np.repeat(np.arange(contraction.num_classes), np.diff(places.behind_offsets))
    order, stuck = topological_order(contraction.num_classes, nodes, places.behind_nodes)
    slots = list(range(places.num_slots))
    used = np.zeros(len(places.device))
    at = 0
    for v in np.concatenate([order, stuck]).tolist():
        if place[v] < 0:
            able = [s for s in slots if places.allowed[v, s]] or [int(np.argmax(places.allowed[v]))]
            later = [s for s in able if s >= at] or able
            roomy = [s for s in later if used[s] + places.num_bytes[v] <= places.limit_bytes[s]] or later
            place[v] = roomy[0]
            at = max(at, roomy[0])
            used[roomy[0]] += places.num_bytes[v]
    return place
