"""Local search for `OffloadLatency`: annealing with restarts, every proposal scored by the whole formula."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import csr_lists, topological_order
from placekit.model.contiguity import edges_along_order
from placekit.model.placement import Placement
from placekit.objectives import OffloadLatency
from placekit.solve.method import Run
from placekit.solve.stop import StopReason, in_this_solve
from placekit.solvers.generic.excess import CONTIGUITIES, find_feasible
from placekit.solvers.offload_latency.anneal import Places, anneal, burden
from placekit.solvers.offload_latency.flat import OffloadProblem, flatten_calls
from placekit.solvers.offload_latency.plans import host_of_node, node_places, placement_at
from placekit.solvers.params import PATIENCE, LocalSearchParams

FIRST_STEPS = 20
"""Proposals per node in the first round; doubled from round to round up to the parameter."""
BLOCK = 2_000_000
"""Proposals times ops between two looks at whether to stop, about."""
WORKERS = 2
"""Walks side by side."""
HOTTEST = 0.02
COLDEST = 1e-6
"""Temperatures as shares of the latency."""


def places_of(flat: OffloadProblem) -> Places:
    """Return the kernel arrays of a problem whose nodes are whole classes."""
    contraction, device = flat.contraction, flat.device_of_place
    problem = contraction.problem
    graph, platform, costs = problem.graph, problem.platform, problem.costs
    num_slots, num_nodes = len(device) - len(flat.hosts), flat.num_nodes
    limit_bytes = platform.memory_limits_bytes[device]
    kinds = platform.kind_of_device[device]
    move_s = costs.transfer_time_s[:, kinds].copy()
    move_s[:, num_slots:] = 0.0
    node = contraction.class_of_op
    crossing = node[graph.senders] != node[graph.receivers]
    senders, receivers = node[graph.senders][crossing], node[graph.receivers][crossing]
    first_places = np.zeros(platform.num_devices, dtype=np.int64)
    first_places[device[::-1]] = np.arange(len(device))[::-1]
    host = host_of_node(flat)
    order_senders, order_receivers = edges_along_order(graph.num_ops, *problem.order_edges)
    return Places(
        num_slots=num_slots,
        calls_per_device=flat.calls_per_device,
        node_of_op=node,
        **_lists("node", node, np.arange(graph.num_ops), num_nodes, "ops"),
        time_s=np.ascontiguousarray(costs.op_time_s[:, kinds]),
        allowed=np.ascontiguousarray(contraction.allowed[:, device]),
        num_bytes=contraction.memory_bytes,
        limit_bytes=limit_bytes,
        device=device,
        tensor_offsets=graph.consumer_offsets + np.arange(graph.num_tensors + 1),
        tensor_ops=np.insert(graph.consumers, graph.consumer_offsets[:-1], graph.tensor_producer),
        move_s=np.ascontiguousarray(move_s),
        **_lists("out", graph.tensor_producer, np.arange(graph.num_tensors), graph.num_ops, "tensors"),
        **_lists("near", np.append(senders, receivers), np.append(receivers, senders), num_nodes, "nodes"),
        **_lists("behind", senders, receivers, num_nodes, "nodes"),
        **_lists("before", receivers, senders, num_nodes, "nodes"),
        host_place=np.where(host >= 0, first_places[host], -1),
        contiguity=CONTIGUITIES[problem.contiguity],
        order_senders=order_senders,
        order_receivers=order_receivers,
    )


def _lists(
    name: str, keys: NDArray[np.int64], values: NDArray[np.int64], num_keys: int, what: str
) -> dict[str, NDArray[np.int64]]:
    """Return CSR lists of the values by key, as the two fields of `Places`."""
    return dict(zip((f"{name}_offsets", f"{name}_{what}"), csr_lists(keys, values, num_keys), strict=True))


def search_offload(run: Run[OffloadLatency], params: LocalSearchParams) -> StopReason:
    """Anneal again and again from the best placement of `run`, at random temperatures.

    If no feasible placement is known, the excess is annealed first (:mod:`placekit.solvers.generic.excess`).

    A proposal moves a node, or connected nodes, to the place of a neighbour or to a random place, empties a call, or
    exchanges two calls. The excess over constraints never grows. Every round has `WORKERS` parallel walks, of which the
    best counts. So the answer depends on the seed alone, unless time runs out. O(ops + edges) per proposal.
    """
    flat = flatten_calls(run.problem, whole_classes=True)
    places = places_of(flat)
    if not places.allowed.any(axis=1).all():
        return StopReason.FINISHED
    start = _start(run, flat, places)
    best = burden(places, start, np.inf)
    if best[0] > 0 and find_feasible(run):
        start = _start(run, flat, places)
        best = burden(places, start, np.inf)
    run.offer(placement_at(flat, start), at_most=None if best[0] else best[1])
    can_move = (places.allowed.sum(axis=1) > 1).any()
    stale, number, patience = 0, 0, run.tries(params.patience, PATIENCE)
    with ThreadPoolExecutor(WORKERS) as pool:
        while (reason := run.should_stop()) is None:
            if stale >= patience or number == params.max_cycles or not can_move:
                return StopReason.FINISHED
            steps = flat.num_nodes * min(params.steps, FIRST_STEPS * 2 ** min(number, 20))
            heat = HOTTEST * run.rng.choice([1.0, 0.1, 0.01], WORKERS)
            walks = [
                pool.submit(in_this_solve(_walk), run, places, start.copy(), steps, hot, rng)
                for hot, rng in zip(heat.tolist(), run.rng.spawn(WORKERS), strict=True)
            ]
            while wait(walks, timeout=0.05).not_done:
                pass  # in short steps, so that this thread keeps seeing signals
            value, found = min((walk.result() for walk in walks), key=lambda result: result[0])
            number, stale = number + 1, stale + 1
            if value[0] < best[0] or (value[0] == best[0] and value[1] < best[1] * (1 - 1e-9)):
                start, best, stale = found, value, 0
                run.offer(placement_at(flat, start), at_most=None if best[0] else best[1])
    return reason


def _walk(
    run: Run, places: Places, place: NDArray[np.int64], steps: int, hot: float, rng: np.random.Generator
) -> tuple[tuple[float, float], NDArray[np.int64]]:
    """Anneal `place`, cooling from `hot`; return the burden of the best places, and the places.

    It works in blocks, so that it can be stopped.
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


def places_from(flat: OffloadProblem, places: Places, placement: Placement) -> NDArray[np.int64] | None:
    """Return the places ``[N]`` of a placement; None if it has none, or if a node is not allowed there."""
    place = node_places(flat, placement)
    return None if place is None or not places.allowed[np.arange(len(place)), place].all() else place


def _start(run: Run, flat: OffloadProblem, places: Places) -> NDArray[np.int64]:
    """Return the best known places; without any, hosts and chains of calls along a topological order."""
    for placement in (run.placement, run.warm_start):
        if placement is not None:
            place = places_from(flat, places, placement)
            if place is not None:
                return place
    place = places.host_place.copy()
    nodes = np.repeat(np.arange(flat.num_nodes), np.diff(places.behind_offsets))
    order, stuck = topological_order(flat.num_nodes, nodes, places.behind_nodes)
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
