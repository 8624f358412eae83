r"""Segments in series: parts of the graph between ops that every other op comes before or after.

An op k is a **cut** if every other op is an ancestor or a descendant of k. Let :math:`k_1, k_2, \ldots` be cuts in
topological order. **Segment** i holds the ops from :math:`k_i` to :math:`k_{i+1}`, both included; the first segment
begins with the ancestors of the first cut, and the last one ends with the descendants of the last cut. Why their least
makespans for the kinds of their cuts add up to a lower bound: :mod:`placekit.verification.series`.

A segment ignores edges that jump over a cut, memory limits, contention, and ops outside that share a device with its
own. All of these only make schedules longer, and without them the bound is exact: equal devices can be renamed so that
the schedules of two neighbours agree about their cut. Lower bounds of segments give a lower bound just the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import number_by_first
from placekit.model.costs import CostTable
from placekit.model.graph import OpGraph
from placekit.model.platform import Platform
from placekit.model.problem import Problem
from placekit.objectives import Makespan
from placekit.solvers.makespan.schedule.tasks import Tasks

LARGE = 60
"""Ops from which a segment is divided at cuts over which edges jump, though its bound is no longer exact then."""
LARGEST = 0.5
"""Share of all ops in the largest segment up to which the division is of use."""


@dataclass(frozen=True, eq=False)
class Segment:
    """The ops between two cuts."""

    # first, last: positions of the cuts, in the order of the tasks; None where the graph begins, and where it ends
    first: int | None
    last: int | None
    ops: NDArray[np.int64]  # ``[N]`` positions of the ops, rising; the cuts are the first and the last of them


def cut_segments(problem: Problem[Makespan], tasks: Tasks) -> list[Segment]:
    """Return the segments in order; none where the largest of them is nearly the whole graph. O(ops + edges)."""
    if problem.has_direct_links:  # a segment can ask for a kind, but not for a kind on a node
        return []
    cuts = _cuts(tasks)
    starts, ends = [0, *cuts], [*cuts, tasks.num_ops - 1]
    ops = [np.arange(low, high + 1) for low, high in zip(starts, ends, strict=True)]
    if not cuts or max(map(len, ops)) > LARGEST * tasks.num_ops:
        return []
    return [Segment(*each) for each in zip([None, *cuts], [*cuts, None], ops, strict=True)]


def _cuts(tasks: Tasks) -> list[int]:
    """Return positions of cuts: those over which no edge jumps, and all cuts in the large segments between them.

    In a topological order k is a cut if every op before k has a successor up to k, and every op after k a predecessor
    from k on.
    """
    num_ops = tasks.num_ops
    next_op, last_op = np.full(num_ops, num_ops), np.full(num_ops, -1)
    np.minimum.at(next_op, tasks.senders, tasks.receivers)
    np.maximum.at(last_op, tasks.receivers, tasks.senders)
    latest = np.concatenate([[-1], np.maximum.accumulate(next_op)[:-1]])
    earliest = np.concatenate([np.minimum.accumulate(last_op[::-1])[::-1][1:], [num_ops]])
    is_cut = (latest <= np.arange(num_ops)) & (earliest >= np.arange(num_ops))
    jumps = np.zeros(num_ops + 1, dtype=np.int64)
    np.add.at(jumps, tasks.senders + 1, 1)
    np.add.at(jumps, tasks.receivers, -1)
    chosen = np.flatnonzero(is_cut & (np.cumsum(jumps)[:-1] == 0)).tolist()
    for low, high in pairwise([-1, *chosen, num_ops]):
        if high - low > LARGE:
            chosen += (low + 1 + np.flatnonzero(is_cut[low + 1 : high])).tolist()
    return sorted(chosen)


def segment_problem(
    problem: Problem[Makespan],
    tasks: Tasks,
    segment: Segment,
    # first_kind, last_kind: kind of the device of each cut; None without a cut
    first_kind: int | None,
    last_kind: int | None,
) -> Problem[Makespan]:
    """Return a segment as a problem: its ops and the edges between them. O(ops + edges).

    Names and sizes are left out, so that segments with equal times are equal problems.
    """
    graph, costs = problem.graph, problem.costs
    ops = tasks.op[segment.ops]
    index = np.full(graph.num_ops, -1)
    index[ops] = np.arange(len(ops))
    readers = index[graph.consumers]
    is_inside = (readers >= 0) & (index[graph.tensor_producer[graph.consumed_tensor]] >= 0)
    tensors, num_readers = np.unique(graph.consumed_tensor[is_inside], return_counts=True)
    supported = costs.supported[ops]
    for op, kind in ((0, first_kind), (-1, last_kind)):
        if kind is not None:
            supported[op] &= np.arange(supported.shape[1]) == kind
    return Problem(
        OpGraph(
            name="segment",
            op_names=tuple(map(str, range(len(ops)))),
            op_types=("Op",) * len(ops),
            tensor_producer=index[graph.tensor_producer[tensors]],
            consumer_offsets=np.concatenate([[0], np.cumsum(num_readers)]),
            consumers=readers[is_inside],
            tensor_bytes=np.zeros(len(tensors)),
        ),
        Platform(tuple(device.replace(memory_bytes=None) for device in problem.platform.devices)),
        CostTable(
            costs.kinds, costs.op_time_s[ops], costs.transfer_time_s[tensors], np.zeros(len(ops)), supported=supported
        ),
        replace(problem.objective, contention=False),
        problem.contiguity,
        number_by_first(problem.op_class[ops]),
        problem.pinned[ops],
    )
