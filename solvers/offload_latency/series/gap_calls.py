r"""Calls inside a gap, counted: what one gap takes with one call inside, with two, and so on.

The series program's bound of calls inside a gap looks at one path at a time. Branches beside each other may then all be
in calls, while the program counts one call; where accelerators can make few calls, that is where the bound is lost. How
many it takes is a small problem of its own: the nodes of the gap, what they read from before it and what is read behind
it being in host memory, with so many accelerators that are as good as the best of each group. A constraint program says
within a moment that no placement of the whole gap takes less than :math:`L_c` with c calls.

Of a part of the gap, :math:`J \setminus I`, it says this: run I before it and the rest of the gap behind it on the
host, and the whole gap is done. So the part takes no less than :math:`L_c` less the longest paths of these two on the
host.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placekit.model.costs import CostTable
from placekit.model.errors import ProgramTooLargeError
from placekit.model.graph import OpGraph
from placekit.model.platform import Device, Platform
from placekit.model.problem import UNPINNED, Problem
from placekit.objectives import OffloadLatency
from placekit.solve.lifting.lift import Within
from placekit.solve.method import Run
from placekit.solvers.offload_latency.bounds import CRITICAL_PATH, critical_path, rounded_down
from placekit.solvers.offload_latency.flat import OffloadProblem, flatten_calls

SHARE = 0.25
"""Share of the time left that all gaps together may take."""
DEFAULT_S = 60.0
"""Seconds of which it is a share where there is no time limit."""
LARGEST = 0.5
"""Share of all nodes up to which a gap is a smaller problem than the whole."""
MOST = 4
"""Calls inside one gap that are counted: each more takes longer to rule out, and is rarely worth it."""
CLOSE = 1e-9
"""Relative: more calls are not tried where those that there are come so near to what no number of calls is below."""


@dataclass(frozen=True, eq=False)
class Inside:
    """Lower bounds and best placements of the calls inside a gap."""

    # ``[C]`` seconds that no placement of the gap with one call, with two, ... is below; the last: with so many or
    # more.
    least_s: NDArray[np.float64]
    # for each of them the nodes of the calls of the best placement that is known; None for none
    calls: tuple[tuple[NDArray[np.int64], ...] | None, ...]

    def up_to(self, count: int) -> NDArray[np.float64]:
        """Return `least_s` for two calls and more; the last entry also holds for larger numbers."""
        least_s = np.append(self.least_s, self.least_s[-1:] if len(self.least_s) == 1 else [])[:count]
        least_s[-1] = self.least_s[-1]
        return least_s


class Waits:
    """Nets and successors of every node of a flat problem, from which the problems of all gaps are made.

    Attributes
    ----------
    nets
        Producer, readers that wait for it, and least seconds of every net.
    nets_of
        The nets that each node makes or waits for.
    receivers_of
        The nodes that wait for each node.
    """

    def __init__(self, flat: OffloadProblem) -> None:
        edges = set(zip(flat.senders.tolist(), flat.receivers.tolist(), strict=True))
        self.receivers_of: list[list[int]] = [[] for _ in range(flat.num_nodes)]
        for u, v in sorted(edges):
            self.receivers_of[u].append(v)
        self.nets_of: list[list[int]] = [[] for _ in range(flat.num_nodes)]
        self.nets: list[tuple[int, list[int], float]] = []
        for n, seconds in enumerate(flat.net_time_s.min(axis=1, initial=np.inf).tolist()):
            producer, *others = flat.nodes_of_net(n).tolist()
            readers = [v for v in others if (producer, v) in edges]
            self.nets.append((producer, readers, seconds))
            for v in (producer, *readers):
                self.nets_of[v].append(n)


def gap_problem(
    flat: OffloadProblem, waits: Waits, nodes: NDArray[np.int64], num_calls: int
) -> Problem[OffloadLatency]:
    """Return the problem of the nodes of one gap, as ops 1, 2, ..., with so many calls.

    Op 0 stands for everything before the gap, the last op for everything behind it; both take no time on the host. Nets
    of which no reader waits for the producer are left out, as in the series program. O(pins of
    the nodes' nets).
    """
    place = {v: at for at, v in enumerate(nodes.tolist(), 1)}
    last = len(place) + 1
    tensors: list[tuple[int, list[int], float]] = []
    for n in sorted({n for v in place for n in waits.nets_of[v]}):
        producer, readers, seconds = waits.nets[n]
        inside = sorted(place[v] for v in readers if v in place)
        outside = [last] if producer in place and len(inside) < len(readers) else []
        tensors.append((place.get(producer, 0), inside + outside, seconds))
    # edges without a net move nothing
    moved = {(producer, v) for producer, readers, _ in tensors for v in readers}
    edges = {(place[u], place[v]) for u in place for v in waits.receivers_of[u] if v in place}
    tensors += [(u, [v], 0.0) for u, v in sorted(edges - moved)]
    tensors = [tensor for tensor in tensors if tensor[1]]
    counts = [len(readers) for _, readers, _ in tensors]
    graph = OpGraph(
        name="gap",
        op_names=tuple(str(at) for at in range(last + 1)),
        op_types=("Op",) * (last + 1),
        tensor_producer=np.array([producer for producer, _, _ in tensors], dtype=np.int64),
        consumer_offsets=np.cumsum([0, *counts], dtype=np.int64),
        consumers=np.array([v for _, readers, _ in tensors for v in readers], dtype=np.int64),
        tensor_bytes=np.zeros(len(tensors)),
        is_backward=np.zeros(last + 1, dtype=bool),
    )
    times = np.stack([flat.time_s[nodes].min(axis=1, initial=np.inf), flat.host_time_s[nodes]], axis=1)
    times = np.concatenate([np.zeros((1, 2)), times, np.zeros((1, 2))])
    largest = float(flat.limit_bytes.max(initial=0.0))
    limit = largest if 0 < largest < np.inf else None
    calls = [Device(f"call.{c}", "call", memory_bytes=limit) for c in range(num_calls)]
    pinned = np.full(last + 1, UNPINNED)
    pinned[[0, last]] = num_calls
    return Problem(
        graph,
        Platform((*calls, Device("host", "host", is_host=True))),
        CostTable(
            ("call", "host"),
            np.where(np.isfinite(times), times, 0.0),
            np.array([[move, 0.0] for _, _, move in tensors]).reshape(-1, 2),
            np.concatenate([[0.0], flat.memory_bytes[nodes], [0.0]]),
            np.isfinite(times),
        ),
        OffloadLatency(),
        pinned=pinned,
    )


def look_inside(
    run: Run,  # the run of the whole problem. It keeps the runs of the gaps.
    flat: OffloadProblem,
    gaps: Sequence[NDArray[np.int64]],  # the nodes of every gap, in topological order
) -> dict[int, Inside]:
    """Return the results on calls inside each gap, by the number of the gap.

    First one call inside every gap is tried, then two in gaps where more calls may help, and so on. Without enough time
    the bounds are weaker.
    """
    until_s = run.elapsed_s + SHARE * (DEFAULT_S if run.remaining_s is None else run.remaining_s)
    most = min(sum(map(len, flat.groups)) * flat.calls_per_device, flat.num_nodes)
    waits, looks = Waits(flat), dict[int, _Looks]()
    for q, nodes in enumerate(gaps if most else ()):  # without an accelerator there are no calls
        if run.should_stop() is not None or run.elapsed_s >= until_s:
            break
        if 0 < len(nodes) <= LARGEST * flat.num_nodes:
            looks[q] = _Looks(flat, waits, nodes)
    for count in range(1, min(most, MOST) + 1):
        left = [q for q, looked in looks.items() if len(looked.parts) == count - 1 and not looked.is_closed]
        for at, q in enumerate(left):
            seconds = (until_s - run.elapsed_s) / (len(left) - at)
            if seconds <= 0 or run.should_stop() is not None:
                break
            part = run.parts.setdefault(
                (q, count), Run(gap_problem(flat, waits, gaps[q], count), Within(run), run.seed)
            )
            with part.limited_to(seconds):
                looks[q].look(part)
    return {q: looked.inside(most) for q, looked in looks.items() if looked.parts}


class _Looks:
    """A gap with one call inside, with two, and so on."""

    def __init__(self, flat: OffloadProblem, waits: Waits, nodes: NDArray[np.int64]) -> None:
        self.nodes = nodes
        one = flatten_calls(gap_problem(flat, waits, nodes, 1))
        self.lowest_s = rounded_down(one, critical_path(one))
        self.parts: list[Run] = []

    @property
    def is_closed(self) -> bool:
        """True if further calls cannot help."""
        return bool(self.parts) and _least_s(self.parts[-1]) <= self.lowest_s * (1 + CLOSE)

    def look(self, part: Run) -> None:
        """Solve the gap with one more call."""
        from placekit.solvers.assignment.cpsat.method import num_workers
        from placekit.solvers.offload_latency.cp_method import solve_offload_program

        self.parts.append(part)
        if part.infeasible_because is not None or part.should_stop() is not None:
            return
        part.raise_bound(self.lowest_s, CRITICAL_PATH)
        part.offer(np.full(part.problem.graph.num_ops, part.problem.platform.num_devices - 1))
        if part.should_stop() is None:
            with suppress(ProgramTooLargeError):
                solve_offload_program(part, num_workers)

    def inside(self, most: int) -> Inside:
        """Return the present results for up to `most` calls, and for more."""
        least_s = [_least_s(part) for part in self.parts]
        calls: list[tuple[NDArray[np.int64], ...] | None] = [_calls_of(part, self.nodes) for part in self.parts]
        if len(self.parts) < most and self.is_closed:
            least_s[-1] = min(least_s[-1], self.lowest_s)  # it has to hold for more calls, too
        elif len(self.parts) < most:
            least_s.append(self.lowest_s)
            calls.append(None)
        return Inside(np.array(least_s), tuple(calls))


def _least_s(part: Run) -> float:
    return np.inf if part.infeasible_because is not None else part.bound or 0.0


def _calls_of(part: Run, nodes: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...] | None:
    """Return the nodes of every call of the best placement of a gap."""
    if part.placement is None:
        return None
    device = part.placement.device_of_op[1:-1]
    return tuple(
        nodes[device == call] for call in range(part.problem.platform.num_devices - 1) if (device == call).any()
    )
