r"""Exact value of segments in series, a lower bound of the makespan.

Let the ops :math:`k_1, k_2, \ldots` be **cuts**: each leads to the next. **Segment** i holds the ops between
:math:`k_i` and :math:`k_{i+1}`, both included. The first begins with what leads to :math:`k_1`, and the last ends with
what the last cut leads to. Let :math:`M_i(a, b)` be the least makespan of segment i alone if its cuts run on devices of
the kinds a and b.

1. In a schedule the ops of segment i run between the start of :math:`k_i` and the end of :math:`k_{i+1}`.
2. With their devices and their relative times they are a schedule of the segment. What is left out (memory, ops that no
   segment holds, transfers that wait for one another) only makes schedules longer.
3. So :math:`end(k_{i+1}) \ge end(k_i) - t(k_i, a) + M_i(a, b)`, where t is the time of the cut.
4. So a shortest path over the kinds of the cuts is a lower bound.

A certificate names the cuts, and seconds that no :math:`M_i(a, b)` is below. Each is proven like a small problem: by
its longest path and by enumeration. Cases that the certificate does not name count with their longest path.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import networkx
import numpy as np

from placekit.model.contiguity import Contiguity
from placekit.model.costs import CostTable
from placekit.model.errors import InvalidCertificateError
from placekit.model.graph import OpGraph
from placekit.model.platform import Platform
from placekit.model.problem import Problem
from placekit.objectives import Makespan
from placekit.solve.certificates import Series
from placekit.verification.exact import ExactProblem
from placekit.verification.exhaustive import enumerate_all
from placekit.verification.heads import longest_path
from placekit.verification.prices import NOTHING_FEASIBLE, Bound

ROUNDING = Fraction(1, 10**12)
"""Relative; seconds in a certificate are sums of floats, and may exceed the exact sums by so much."""


class OpenCertificateError(Exception):
    """A certificate claims what takes more steps to check than there are."""


def series_value(exact: ExactProblem, certificate: Series, max_steps: int) -> Bound:
    """Return the seconds that segments in series prove; `max_steps` are for each segment.

    Raises `InvalidCertificateError`: the cuts do not lead to one another, a case is not of this problem, or its seconds
    are too many. Raises `OpenCertificateError`: a segment is too large to enumerate.
    """
    if not isinstance(exact.problem.objective, Makespan):
        raise InvalidCertificateError("segments in series bound the makespan only")
    segments = list(_segments(exact, certificate.cuts))
    claimed: dict[tuple[int, int | None, int | None], Fraction] = {}
    for at, first, last, seconds in certificate.cases:
        is_known = all(d is None or 0 <= d < exact.num_devices for d in (first, last))
        if not is_known or not 0 <= at < len(segments) or not math.isfinite(seconds):
            raise InvalidCertificateError(f"certificate: segment {at} on devices {first}, {last} has no {seconds} s")
        a, b = (None if d is None else exact.kind[d] for d in (first, last))
        claimed[at, a, b] = Fraction(seconds) * (1 - ROUNDING)
    ahead: dict[int | None, Bound] = {None: Fraction(0)}  # least end of the cut before, by the kind of its device
    cuts = [None, *certificate.cuts, None]
    for at, ops in enumerate(segments):
        first, last = cuts[at], cuts[at + 1]
        behind: dict[int | None, Bound] = {}
        for b in {None} if last is None else {exact.kind[d] for d in exact.allowed[exact.group_of[last]]}:
            ways: list[Bound] = []
            for a, before in ahead.items():
                part = _part(exact, ops, {op: k for op, k in ((first, a), (last, b)) if op is not None})
                least = _least(part, claimed.get((at, a, b), Fraction(0)), max_steps)
                done = 0 if first is None or a is None else exact.seconds(exact.time[first][a] or 0)
                ways.append(before + least - done)
            behind[b] = min(ways)
        ahead = behind
    return min(ahead.values())


def _segments(exact: ExactProblem, cuts: tuple[int, ...]) -> Iterator[list[int]]:
    """Yield the ops of every segment, its cuts among them."""
    graph = networkx.DiGraph(exact.edges)
    graph.add_nodes_from(range(exact.num_ops))
    behind = set(range(exact.num_ops))  # the cut before, and all that it leads to
    for at, cut in enumerate(cuts):
        if cut not in behind or cut in cuts[:at]:
            raise InvalidCertificateError(f"certificate: nothing leads to cut {cut} from the one before")
        ancestors: set[int] = networkx.ancestors(graph, cut)
        yield sorted(behind & {cut, *ancestors})
        behind = {cut, *networkx.descendants(graph, cut)}
    yield sorted(behind)


def _least(part: ExactProblem, claimed: Fraction, max_steps: int) -> Bound:
    """Return seconds that no makespan of a segment is below, at least `claimed` if it is true."""
    if any(not devices for devices in part.allowed):
        return NOTHING_FEASIBLE
    path = part.seconds(longest_path(part))
    if path >= claimed:
        return path
    found = enumerate_all(part, claimed, max_steps)
    if found.device is not None:
        raise InvalidCertificateError(f"a segment of {part.num_ops} ops takes less than {float(claimed)!r} s")
    if not found.is_complete:
        raise OpenCertificateError(f"a segment of {part.num_ops} ops is open")
    return claimed


def _part(exact: ExactProblem, ops: list[int], kind_of: dict[int, int | None]) -> ExactProblem:
    """Return the problem of some ops and the edges between them; the ops in `kind_of` run on these kinds only."""
    problem, place = exact.problem, {op: at for at, op in enumerate(ops)}
    readers = [[place[op] for op in row if op in place] for row in exact.readers]
    tensors = [t for t, u in enumerate(exact.producer) if u in place and readers[t]]
    assert isinstance(problem.objective, Makespan)  # `series_value` looked
    part = Problem(  # without tensors, which are put in below
        OpGraph.from_edges([problem.graph.op_names[op] for op in ops], []),
        Platform(tuple(device.replace(memory_bytes=None, node=None) for device in problem.platform.devices)),
        CostTable(
            problem.costs.kinds,
            problem.costs.op_time_s[ops],
            np.zeros((0, len(problem.costs.kinds))),
            np.zeros(len(ops)),
            op_group=problem.costs.op_group[ops],
        ),
        replace(problem.objective, contention=False),
        Contiguity.NONE,
        problem.colocation[ops],
    )
    return replace(
        ExactProblem.of(part),
        tick=exact.tick,
        time=[[ticks if kind_of.get(op, k) == k else None for k, ticks in enumerate(exact.time[op])] for op in ops],
        transfer=[exact.transfer[t] for t in tensors],
        tensor_size=[0] * len(tensors),
        producer=[place[exact.producer[t]] for t in tensors],
        readers=[readers[t] for t in tensors],
        pinned=[exact.pinned[op] for op in ops],
    )
