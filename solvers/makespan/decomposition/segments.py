r"""Series decomposition: where one op separates all that comes before it from all that comes after.

An op k is a **cut** if every other op is an ancestor or a descendant of it. In a schedule everything before k has ended
when k starts, and everything after k starts when k has ended. Let :math:`k_1, k_2, \ldots` be cuts in topological
order, and let :math:`L_i(a, b)` be the least time from the end of :math:`k_i` on a device of kind a to the end of
:math:`k_{i+1}` on a device of kind b, over all schedules of the ops from :math:`k_i` to :math:`k_{i+1}`: a problem of
its own, the **segment**. The ops of a segment keep their relative times and devices in any schedule of the whole, so

.. math:: makespan \ge \min_{a_1, a_2, \ldots} L_0(\cdot, a_1) + L_1(a_1, a_2) + L_2(a_2, a_3) + \ldots,

a shortest path over the kinds of the cuts. What it leaves out: the delay of edges that jump over a cut, memory, and
classes with ops in several segments. Where there are none of these it is exact: a permutation of equal devices fits
the best schedule of a segment to that of the one before. Lower bounds of the L give a lower bound just the same, and
the partial sums are heads_tails for the windows of :mod:`placekit.solvers.makespan.bounds.windows`.

Cuts over which no edge jumps come first; a segment that is still large is also divided at its other cuts.
Transformers and networks of Inception blocks fall into small pieces like this. Finding the cuts takes
O(ops + edges): k is one iff every op before it has a successor at or before it, and every op after it a predecessor
at or after it, in any topological order.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from placekit.costs import CostTable
from placekit.graph import OpGraph
from placekit.platform import Platform
from placekit.problem import Problem
from placekit.solvers.makespan.bounds.windows import HeadsTails
from placekit.solvers.makespan.schedule.tasks import Tasks

__all__ = ["LARGE", "Case", "Segment", "cut_segments", "heads_tails_of", "segment_problem"]

LARGE = 60
"""Ops from which a segment is divided at cuts over which edges jump."""
Case = tuple[int, int | None, int | None]
"""Number of a segment, and the kinds of its first and last op; None where there is no cut."""


@dataclass(frozen=True, eq=False)
class Segment:
    """The ops between two cuts, both included.

    Parameters
    ----------
    first, last
        Positions (in the order of the tasks) of the cuts; None for the first at the beginning of the graph, and for
        the last at its end.
    ops
        ``[N]`` positions of the ops, rising; the cuts are the first and the last of them.
    """

    first: int | None
    last: int | None
    ops: NDArray[np.int64]


def cut_segments(tasks: Tasks) -> list[Segment]:
    """Return the segments of a graph in order, one if it has no cuts. O(ops + edges)."""
    return _between(_cuts(tasks), tasks.num_ops)


def _cuts(tasks: Tasks) -> list[int]:
    num_ops = tasks.num_ops
    places = np.arange(num_ops)
    next_op = np.full(num_ops, num_ops)
    np.minimum.at(next_op, tasks.senders, tasks.receivers)
    last_op = np.full(num_ops, -1)
    np.maximum.at(last_op, tasks.receivers, tasks.senders)
    furthest = np.concatenate([[-1], np.maximum.accumulate(next_op)[:-1]])
    nearest = np.concatenate([np.minimum.accumulate(last_op[::-1])[::-1][1:], [num_ops]])
    is_cut = (furthest <= places) & (nearest >= places)
    jumps = np.zeros(num_ops + 1, dtype=np.int64)
    np.add.at(jumps, tasks.senders + 1, 1)
    np.add.at(jumps, tasks.receivers, -1)
    is_clean = is_cut & (np.cumsum(jumps)[:-1] == 0)
    chosen = np.flatnonzero(is_clean).tolist()
    for low, high in pairwise([0, *chosen, num_ops - 1]):
        if high - low >= LARGE:
            chosen += (low + 1 + np.flatnonzero(is_cut[low + 1 : high])).tolist()
    return sorted(set(chosen))


def _between(cuts: list[int], num_ops: int) -> list[Segment]:
    firsts: list[int | None] = [None, *cuts]
    lasts: list[int | None] = [*cuts, None]
    segments = []
    for first, last in zip(firsts, lasts, strict=True):
        low = 0 if first is None else first
        high = num_ops if last is None else last + 1
        if high - low > 1:
            segments.append(Segment(first, last, np.arange(low, high)))
    return segments or [Segment(None, None, np.arange(num_ops))]


def segment_problem(
    problem: Problem, tasks: Tasks, segment: Segment, first_kind: int | None, last_kind: int | None
) -> Problem:
    """Return the problem of a segment: its ops and the edges between them, without memory limits. O(ops + edges).

    Parameters
    ----------
    problem, tasks
        The whole problem.
    segment
        The segment.
    first_kind, last_kind
        Kind of the device of each cut; None for any.
    """
    graph, costs = problem.graph, problem.costs
    ops = tasks.op[segment.ops]
    index = np.full(graph.num_ops, -1)
    index[ops] = np.arange(len(ops))
    readers = index[graph.consumers]
    is_inside = (readers >= 0) & (index[graph.tensor_producer[graph.consumed_tensor]] >= 0)
    tensors, num_readers = np.unique(graph.consumed_tensor[is_inside], return_counts=True)
    supported = costs.supported[ops]
    for op, kind in ((0, first_kind), (len(ops) - 1, last_kind)):
        if kind is not None:
            supported[op] &= np.arange(supported.shape[1]) == kind
    part = OpGraph(
        name=f"{graph.name}[{segment.ops[0]}:{segment.ops[-1] + 1}]",
        op_names=tuple(graph.op_names[op] for op in ops.tolist()),
        op_types=tuple(graph.op_types[op] for op in ops.tolist()),
        tensor_producer=index[graph.tensor_producer[tensors]],
        consumer_offsets=np.concatenate([[0], np.cumsum(num_readers)]),
        consumers=readers[is_inside],
        tensor_bytes=graph.tensor_bytes[tensors],
    )
    part_costs = CostTable(
        costs.kinds,
        costs.op_time_s[ops],
        costs.transfer_time_s[tensors],
        costs.op_memory_bytes[ops],
        supported=supported,
    )
    platform = Platform(tuple(device.replace(memory_bytes=None) for device in problem.platform.devices))
    return Problem(
        part,
        platform,
        part_costs,
        problem.objective,
        problem.contiguity,
        problem.op_class[ops],
        problem.pinned[ops],
    )


def heads_tails_of(
    tasks: Tasks, segments: list[Segment], least_s: dict[Case, float]
) -> tuple[float, HeadsTails, list[tuple[int | None, int | None]]]:
    """Return the least makespan that the segments prove, their heads_tails, and a best path: the kinds at their ends.

    Parameters
    ----------
    tasks, segments
        The whole problem, and its segments.
    least_s
        By segment and kinds of its first and last op (None where there is no cut): least seconds from the end of the
        first cut, or from the start of the schedule, to the end of the last op. Missing where it is impossible.

    Notes
    -----
    O(segments * kinds**2).
    """
    num_kinds = int(tasks.kind.max()) + 1
    time_s = np.full((tasks.num_ops, num_kinds), np.inf)
    for d, kind in enumerate(tasks.kind.tolist()):
        time_s[:, kind] = np.minimum(time_s[:, kind], tasks.time_s[:, d])

    def kinds_at(cut: int | None) -> list[int | None]:
        return [None] if cut is None else [int(kind) for kind in np.flatnonzero(np.isfinite(time_s[cut]))]

    # least end of a cut, by cut and kind; (None, None) is the start of the schedule, later its end
    opening, end = segments[0].first, segments[-1].last
    ahead: dict[tuple[int | None, int | None], float] = {
        (opening, a): 0.0 if opening is None or a is None else float(time_s[opening, a]) for a in kinds_at(opening)
    }
    origin: dict[tuple[int, int | None], int | None] = {}
    for i, segment in enumerate(segments):
        for b in kinds_at(segment.last):
            ways = [(ahead[segment.first, a] + least_s.get((i, a, b), np.inf), a) for a in kinds_at(segment.first)]
            ahead[segment.last, b], origin[i, b] = min(ways, key=lambda way: way[0])
    behind: dict[tuple[int | None, int | None], float] = {(end, b): 0.0 for b in kinds_at(end)}
    for i, segment in reversed(list(enumerate(segments))):
        for a in kinds_at(segment.first):
            behind[segment.first, a] = min(
                least_s.get((i, a, b), np.inf) + behind[segment.last, b] for b in kinds_at(segment.last)
            )
    head_s, tail_s = np.zeros_like(tasks.time_s), np.zeros_like(tasks.time_s)
    for cut in {cut for segment in segments for cut in (segment.first, segment.last) if cut is not None}:
        for d, kind in enumerate(tasks.kind.tolist()):
            if np.isfinite(tasks.time_s[cut, d]):
                head_s[cut, d] = max(ahead[cut, kind] - time_s[cut, kind], 0.0)
                tail_s[cut, d] = behind[cut, kind]
    last_kind = min(kinds_at(end), key=lambda b: ahead[end, b])
    path: list[tuple[int | None, int | None]] = []
    kind = last_kind
    for i in range(len(segments) - 1, -1, -1):
        path.append((origin[i, kind], kind))
        kind = origin[i, kind]
    return ahead[end, last_kind], HeadsTails(head_s, tail_s), path[::-1]
