r"""What segments in series prove of a makespan.

Let the ops :math:`k_1, k_2, \ldots` be **cuts**: each leads to the next. In a schedule everything that leads to
:math:`k_i` has ended when it starts, and everything behind it starts when it has ended. **Segment** i are the ops
between :math:`k_i` and :math:`k_{i+1}`, both included; the first begins with whatever leads to :math:`k_1`, the last
ends with whatever is behind the last cut. A schedule of all ops holds one of each segment, from the start of its first
cut to the end of its last op. So with the least makespan :math:`M_i(a, b)` of segment i whose cuts run on devices of
the kinds a and b,

.. math:: end(k_{i+1}) \ge end(k_i) - t(k_i, a) + M_i(a, b),

and a shortest path over the kinds of the cuts is a lower bound. What is left out (ops that no segment holds, memory,
classes over several segments, one transfer at a time) only makes schedules shorter.

A certificate says the cuts, and seconds that no :math:`M_i(a, b)` is below. These are proven here like any small
problem: by its longest path, its largest op, and by enumeration. A segment that is too large for that is an
`OpenCertificateError`: nothing is wrong, but not everything was checked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np

from placekit.contiguity import Contiguity
from placekit.costs import CostTable
from placekit.errors import InvalidCertificateError
from placekit.graph import OpGraph
from placekit.objectives import Makespan
from placekit.platform import Platform
from placekit.problem import Problem
from placekit.verification.certificates import Series
from placekit.verification.exact import ExactProblem
from placekit.verification.exhaustive import enumerate_all
from placekit.verification.paths import longest_path
from placekit.verification.prices import NOTHING_FEASIBLE, Bound

__all__ = ["OpenCertificateError", "series_value"]

ROUNDING = Fraction(1, 10**12)
"""Relative; seconds in a certificate are sums of floats, and may exceed the exact sums by so much."""

_Kind = int | None
"""Kind of a cut's device; None where there is no cut."""


class OpenCertificateError(Exception):
    """A certificate claims what takes more steps to check than there are."""


def series_value(exact: ExactProblem, certificate: Series, max_steps: int) -> Bound:
    """Return what segments in series prove, in seconds; see the module docstring.

    Parameters
    ----------
    exact
        A makespan problem.
    certificate
        Cuts, and least times of segments.
    max_steps
        Steps of all enumerations together.

    Raises
    ------
    InvalidCertificateError
        The cuts do not lead to one another, a case is not of this problem, or its seconds are too many.
    OpenCertificateError
        A segment is too large to enumerate.
    """
    if not isinstance(exact.problem.objective, Makespan):
        raise InvalidCertificateError("segments in series bound the makespan only")
    segments = list(_segments(exact, certificate.cuts))
    claimed: dict[tuple[int, _Kind, _Kind], Fraction] = {}
    for at, first, last, seconds in certificate.cases:
        is_known = all(d is None or 0 <= d < exact.num_devices for d in (first, last))
        if not is_known or not 0 <= at < len(segments) or not math.isfinite(seconds):
            raise InvalidCertificateError(f"certificate: segment {at} on devices {first}, {last} has no {seconds} s")
        a, b = (None if d is None else exact.kind[d] for d in (first, last))
        if (at, a, b) in claimed:
            raise InvalidCertificateError(f"certificate: segment {at} on devices {first}, {last} is there twice")
        claimed[at, a, b] = Fraction(seconds) * (1 - ROUNDING)
    ahead: dict[_Kind, Bound] = {None: Fraction(0)}  # least end of the cut before, by the kind of its device
    cuts: list[int | None] = [None, *certificate.cuts, None]
    for at, ops in enumerate(segments):
        first, last = cuts[at], cuts[at + 1]
        behind: dict[_Kind, Bound] = {}
        for b in _kinds(exact, last):
            ways: list[Bound] = []
            for a, before in ahead.items():
                part = _part(
                    exact, ops, {op: k for op, k in ((first, a), (last, b)) if op is not None and k is not None}
                )
                least, steps = _least(part, claimed.get((at, a, b), Fraction(0)), max_steps)
                max_steps -= steps
                done = 0 if first is None or a is None else exact.seconds(exact.time[first][a] or 0)
                ways.append(before + least - done)
            behind[b] = min(ways)
        ahead = behind
    return min(ahead.values())


def _segments(exact: ExactProblem, cuts: tuple[int, ...]) -> Iterator[list[int]]:
    """Yield the ops of every segment, its cuts among them."""
    after: list[list[int]] = [[] for _ in range(exact.num_ops)]
    before: list[list[int]] = [[] for _ in range(exact.num_ops)]
    for u, v in exact.edges:
        after[u].append(v)
        before[v].append(u)
    behind = set(range(exact.num_ops))  # the cut before, and all that it leads to
    for at, cut in enumerate(cuts):
        if cut not in behind or cut in cuts[:at]:
            raise InvalidCertificateError(f"certificate: nothing leads to cut {cut} from the one before")
        yield sorted(behind & _reached(cut, before))
        behind = _reached(cut, after)
    yield sorted(behind)


def _reached(op: int, following: list[list[int]]) -> set[int]:
    """Return an op and all that it leads to."""
    found, queue = {op}, [op]
    for each in queue:
        for other in following[each]:
            if other not in found:
                found.add(other)
                queue.append(other)
    return found


def _kinds(exact: ExactProblem, cut: int | None) -> list[_Kind]:
    """Return the kinds of the devices that a cut may run on."""
    if cut is None:
        return [None]
    return [*sorted({exact.kind[d] for d in exact.allowed[exact.group_of[cut]]})]


def _least(part: ExactProblem, claimed: Fraction, max_steps: int) -> tuple[Bound, int]:
    """Return seconds that no makespan of a segment is below, at least `claimed` if it is true, and the steps taken."""
    if any(not devices for devices in part.allowed):
        return NOTHING_FEASIBLE, 0
    path = part.seconds(longest_path(part))
    if path >= claimed:
        return path, 0
    found = enumerate_all(part, claimed, max_steps)
    if found.device is not None:
        raise InvalidCertificateError(f"a segment of {part.num_ops} ops takes less than {float(claimed)!r} s")
    if not found.is_complete:
        raise OpenCertificateError(f"a segment of {part.num_ops} ops takes too many steps")
    return claimed, found.steps


def _part(exact: ExactProblem, ops: list[int], kind_of: dict[int, int]) -> ExactProblem:
    """Return the problem of some ops and the edges between them; the ops in `kind_of` run on these kinds only."""
    problem, place = exact.problem, {op: at for at, op in enumerate(ops)}
    inside = [[place[op] for op in readers if op in place] for readers in exact.readers]
    tensors = [t for t, u in enumerate(exact.producer) if u in place and inside[t]]
    graph, costs, variant = problem.graph, problem.costs, problem.objective
    assert isinstance(variant, Makespan)  # `series_value` looked
    part = Problem(
        OpGraph(
            name=graph.name,
            op_names=tuple(graph.op_names[op] for op in ops),
            op_types=tuple(graph.op_types[op] for op in ops),
            tensor_producer=np.array([place[exact.producer[t]] for t in tensors], dtype=np.int64),
            consumer_offsets=np.cumsum([0, *(len(inside[t]) for t in tensors)], dtype=np.int64),
            consumers=np.array([op for t in tensors for op in inside[t]], dtype=np.int64),
            tensor_bytes=np.zeros(len(tensors)),
        ),
        Platform(tuple(device.replace(memory_bytes=None, node=None) for device in problem.platform.devices)),
        CostTable(
            costs.kinds,
            costs.op_time_s[ops],
            costs.transfer_time_s[tensors],
            np.zeros(len(ops)),
            costs.supported[ops],
            costs.op_group[ops],
        ),
        replace(variant, contention=False),
        Contiguity.NONE,
        problem.colocation[ops],
        problem.pinned[ops],
    )
    return replace(
        ExactProblem.of(part),
        tick=exact.tick,
        time=[[ticks if kind_of.get(op, k) == k else None for k, ticks in enumerate(exact.time[op])] for op in ops],
        transfer=[exact.transfer[t] for t in tensors],
    )
