"""Search for a feasible placement by annealing the excess, if greedy starts find none.

The *excess* of a placement is its distance from feasible: the bytes above the memory limits, in mean classes, plus one
for each break of the contiguity. `find_feasible` anneals the excess down to 0 by moves and exchanges of classes, and
starts again from another random placement if a walk ends above 0. If there are few placements they are enumerated after
some walks, which may prove that none is feasible.

Shapes
------
``O`` ops, ``C`` classes, ``D`` devices, ``E`` edges between ops.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import csr_lists, topological_order
from placekit.kernels import njit
from placekit.model.contiguity import Contiguity, edges_along_order
from placekit.model.problem import Problem
from placekit.solve.lifting.relaxed import work
from placekit.solve.method import Method, Run, no_shared_memory
from placekit.solve.stop import StopReason
from placekit.solvers.generic.baselines import offer_single_devices
from placekit.solvers.generic.class_order import needs_chain
from placekit.solvers.generic.coarsen import Contraction, contract
from placekit.solvers.generic.draws import below
from placekit.solvers.generic.enumeration.method import enumerate_first, is_first
from placekit.solvers.generic.greedy import Greedy
from placekit.solvers.generic.repair import move_to_allowed

FREE, CONVEX, ACYCLIC = 0, 1, 2
CONTIGUITIES = {Contiguity.NONE: FREE, Contiguity.CONVEX: CONVEX, Contiguity.ACYCLIC: ACYCLIC}
"""Contiguities as the kernels name them."""
HOTTEST, COLDEST = 1.0, 0.01
"""Temperatures of a walk, in units of the excess."""
FIRST_STEPS, MOST_STEPS = 200, 20_000
"""Proposals per class in the first walk, doubled from walk to walk, and in the longest ones."""
BLOCK = 2_000_000
"""Proposals times ops between two looks at whether to stop, about."""
WALKS = 10
"""Walks in vain after which the search ends, unless there is a time limit."""
SHORT_WALKS = 3
"""The same once a limit on evaluations is reached."""
SWAP_SHARE, NEAR_SHARE = 0.4, 0.5
"""Share of proposals that exchange two classes, and of moves that go to the device of a neighbour in the graph."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Room(NamedTuple):
    """Limits of the placements of a contracted problem, as flat arrays."""

    num_bytes: Floats  # ``[C]`` memory of each class, in mean classes
    limit_bytes: Floats  # ``[D]`` memory limits in the same unit; infinity for none
    allowed: NDArray[np.bool_]  # ``[C, D]`` devices on which each class is allowed
    class_of_op: Ints  # ``[O]``
    # near_offsets, near_classes: CSR lists of the classes next to each class
    near_offsets: Ints
    near_classes: Ints
    contiguity: int  # `FREE`, `CONVEX` or `ACYCLIC`
    # order_senders, order_receivers: ``[E]`` edges between ops that matter to the contiguity, in topological order of
    # the ops
    order_senders: Ints
    order_receivers: Ints


def room_of(contraction: Contraction) -> Room:
    """Return the arrays of a contracted problem."""
    problem = contraction.problem
    limit_bytes, num_bytes = problem.platform.memory_limits_bytes, contraction.memory_bytes
    unit = float(num_bytes.mean()) or 1.0
    ends = np.concatenate([contraction.senders, contraction.receivers])
    others = np.concatenate([contraction.receivers, contraction.senders])
    near_offsets, near_classes = csr_lists(ends, others, contraction.num_classes)
    senders, receivers = edges_along_order(problem.graph.num_ops, *problem.order_edges)
    return Room(
        num_bytes=num_bytes / unit,
        limit_bytes=limit_bytes / unit,
        allowed=contraction.allowed & (num_bytes[:, None] <= limit_bytes),
        class_of_op=contraction.class_of_op,
        near_offsets=near_offsets,
        near_classes=near_classes,
        contiguity=CONTIGUITIES[problem.contiguity],
        order_senders=senders,
        order_receivers=receivers,
    )


@njit(inner=True)
def _returns(node_of_op: Ints, device: Ints, senders: Ints, receivers: Ints, num_devices: int) -> int:
    """Return the number of ops at which a path returns to a device that it has left. O((ops + edges) * devices)."""
    count = 0
    left = np.zeros((len(node_of_op), num_devices), np.bool_)
    for e in range(len(senders)):
        u, v = senders[e], receivers[e]
        source, target = device[node_of_op[u]], device[node_of_op[v]]
        for d in range(num_devices):
            left[v, d] = left[v, d] or left[u, d]
        if source != target:
            left[v, source] = True
    for v in range(len(node_of_op)):
        if left[v, device[node_of_op[v]]]:
            count += 1
    return count


@njit(inner=True)
def _cyclic_edges(node_of_op: Ints, device: Ints, senders: Ints, receivers: Ints, num_devices: int) -> int:
    """Return the number of edges between devices that lie on cycles or between them. O(edges + devices^3)."""
    edges = np.zeros((num_devices, num_devices), dtype=np.int64)
    for e in range(len(senders)):
        source, target = device[node_of_op[senders[e]]], device[node_of_op[receivers[e]]]
        if source != target:
            edges[source, target] += 1
    is_open = np.ones(num_devices, np.bool_)
    removed = True
    while removed:
        removed = False
        for d in range(num_devices):
            into, out = 0, 0
            for other in range(num_devices):
                if is_open[other]:
                    into += edges[other, d]
                    out += edges[d, other]
            if is_open[d] and (into == 0 or out == 0):
                is_open[d], removed = False, True
    count = 0
    for d in range(num_devices):
        for other in range(num_devices):
            if is_open[d] and is_open[other]:
                count += edges[d, other]
    return count


@njit(inner=True)
def num_breaks(
    contiguity: int,  # `FREE`, `CONVEX` or `ACYCLIC`
    node_of_op: Ints,  # ``[O]`` node of each op; the ops of a node share a device
    device: Ints,  # device of each node
    # senders, receivers: ``[E]`` edges between ops, along a topological order of the ops
    senders: Ints,
    receivers: Ints,
    num_devices: int,
) -> int:
    """Return the number of breaks of the contiguity."""
    if contiguity == CONVEX:
        returns: int = _returns(node_of_op, device, senders, receivers, num_devices)
        return returns
    if contiguity == ACYCLIC:
        edges: int = _cyclic_edges(node_of_op, device, senders, receivers, num_devices)
        return edges
    return 0


@njit(inner=True)
def _over(r: Room, used: Floats) -> float:
    over = 0.0
    for d in range(len(used)):
        over += max(0.0, used[d] - r.limit_bytes[d])
    return over


@njit
def reduce_excess(
    r: Room,
    device: Ints,  # ``[C]`` start; afterwards the end of the walk
    steps: int,  # number of proposals
    # hot, cold: first and last temperature
    hot: float,
    cold: float,
    seed: int,  # seed of the walk
) -> float:
    """Anneal the excess of a placement; return the remaining excess, 0 as soon as the placement is feasible.

    O(devices) per proposal, and as `num_breaks` under a contiguity for those that save enough memory.
    """
    np.random.seed(seed)  # noqa: NPY002  # numba's own generator
    num_classes, num_devices = r.allowed.shape
    used = np.zeros(num_devices)
    for c in range(num_classes):
        used[device[c]] += r.num_bytes[c]
    breaks = num_breaks(r.contiguity, r.class_of_op, device, r.order_senders, r.order_receivers, num_devices)
    over = _over(r, used)
    temperature = hot
    cooling = (cold / hot) ** (1.0 / max(1, steps))
    for _ in range(steps):
        if over <= 0.0 and breaks == 0:
            return 0.0
        temperature *= cooling
        c = below(num_classes)
        other = below(num_classes)
        is_swap = np.random.random() < SWAP_SHARE  # noqa: NPY002
        if not is_swap:
            near = r.near_offsets[c + 1] - r.near_offsets[c]
            if near and np.random.random() < NEAR_SHARE:  # noqa: NPY002
                other = r.near_classes[r.near_offsets[c] + below(near)]
        a, b = device[c], device[other]
        if not is_swap and a == b:
            b = below(num_devices)
        if a == b or not r.allowed[c, b] or (is_swap and not r.allowed[other, a]):
            continue
        moved = r.num_bytes[c] - (r.num_bytes[other] if is_swap else 0.0)
        change = max(0.0, used[a] - moved - r.limit_bytes[a]) - max(0.0, used[a] - r.limit_bytes[a])
        change += max(0.0, used[b] + moved - r.limit_bytes[b]) - max(0.0, used[b] - r.limit_bytes[b])
        most = -temperature * math.log(max(np.random.random(), 1e-300))  # noqa: NPY002
        if change - breaks > most:
            continue
        device[c] = b
        if is_swap:
            device[other] = a
        after = num_breaks(r.contiguity, r.class_of_op, device, r.order_senders, r.order_receivers, num_devices)
        if change + after - breaks > most:
            device[c] = a
            if is_swap:
                device[other] = b
            continue
        used[a] -= moved
        used[b] += moved
        breaks = after
        over = _over(r, used)
    total: float = over + breaks
    return total


def excess(room: Room, device: Ints) -> float:
    """Return the excess of ``[C]`` devices that are allowed; 0 if the placement is feasible."""
    over: float = reduce_excess(room, device, 0, HOTTEST, COLDEST, 0)
    return over


def find_feasible(run: Run) -> bool:
    """Search for a feasible placement and offer it; return True if `run` holds one.

    Shared memory and direct links are relaxed first, as for every method that does not know them. A limit on
    evaluations makes the search short, but does not forbid it.
    """
    if run.placement is None and run.should_stop() is None:
        _search_feasible(run, WALKS if is_first(run.problem) else None)
    if run.placement is None and run.should_stop() is StopReason.ITERATIONS:
        with run.uncounted():
            _search_feasible(run, SHORT_WALKS)
    return run.placement is not None


def offer_first_answers(run: Run) -> bool:
    """Offer what needs no search, and search if nothing of that is feasible; return True if `run` holds an answer.

    That are single devices, teams and ``greedy``; a limit on evaluations forbids none of them.
    """
    with run.uncounted():
        offer_single_devices(run)
        if run.should_stop() is None:
            work(Greedy(), run)
    return find_feasible(run)


def _search_feasible(run: Run, num_walks: int | None) -> None:
    work(_Feasible(num_walks), run)
    if run.placement is None and is_first(run.problem):
        enumerate_first(run)


class _Feasible(Method):
    """Annealing walks until one ends in a feasible placement; see the module docstring."""

    name = "feasible"

    def __init__(self, num_walks: int | None) -> None:
        super().__init__()
        self._num_walks = num_walks

    def supports(self, problem: Problem) -> str | None:
        return no_shared_memory(problem)  # direct links forbid nothing

    def run(self, run: Run) -> StopReason:
        contraction = contract(run.problem)
        room = room_of(contraction)
        if not room.allowed.any(axis=1).all() or room.num_bytes.sum() > room.limit_bytes.sum():
            return StopReason.FINISHED
        number, most = 0, run.tries(self._num_walks, WALKS)
        while (reason := run.should_stop()) is None:
            if run.placement is not None or number >= most:
                return StopReason.FINISHED
            device = _random_start(contraction, room, run.rng)
            # acyclic placements are convex, calls without a cycle never deadlock, and more methods can start from
            # them: so every other walk draws chains
            is_narrow = needs_chain(run.problem) and number % 2 == 0
            narrow = room._replace(contiguity=ACYCLIC) if is_narrow else room
            if _walk(run, narrow, device, min(FIRST_STEPS * 2 ** min(number, 20), MOST_STEPS)):
                run.offer(contraction.expand(device))
            number += 1
        return reason


def _walk(run: Run, room: Room, device: Ints, steps_per_class: int) -> bool:
    """Anneal `device`, in blocks so that it can be stopped; return whether it is feasible."""
    size = max(1000, BLOCK // (len(room.class_of_op) + 1))
    num_blocks = -(-steps_per_class * len(device) // size)
    for at in range(num_blocks):
        hot, cold = (HOTTEST * (COLDEST / HOTTEST) ** (x / num_blocks) for x in (at, at + 1))
        steps = size if num_blocks > 1 else steps_per_class * len(device)
        if reduce_excess(room, device, steps, hot, cold, int(run.rng.integers(2**31))) <= 0.0:
            return True
        run.count_evaluations(steps)
        if run.should_stop() is not None:
            break
    return False


def _random_start(contraction: Contraction, room: Room, rng: np.random.Generator) -> Ints:
    """Draw random devices ``[C]``; for chains, blocks of a random topological order as large as the limits.

    Classes that are not allowed there are moved.
    """
    num_classes, num_devices = contraction.allowed.shape
    if not needs_chain(contraction.problem):
        device: NDArray[np.int64] = np.argmax(rng.random(room.allowed.shape) * room.allowed, axis=1)
        return device
    relabel = rng.permutation(num_classes)  # random ties make a random topological order
    order, stuck = topological_order(
        num_classes, relabel[contraction.senders], relabel[contraction.receivers], depth_first=bool(rng.random() < 0.5)
    )
    along = np.argsort(relabel)[np.concatenate([order, stuck])]
    chain = rng.permutation(num_devices)
    total = float(room.num_bytes.sum())
    ends = np.cumsum(np.minimum(room.limit_bytes[chain], total))
    ends *= total / (float(ends[-1]) or 1.0)  # nothing takes memory, or no device has any
    middle = np.cumsum(room.num_bytes[along]) - room.num_bytes[along] / 2
    device = np.empty(num_classes, dtype=np.int64)
    device[along] = chain[np.minimum(np.searchsorted(ends, middle), num_devices - 1)]
    return move_to_allowed(contraction, device)
