r"""The series program: an exact dynamic program over calls that contain a spine vertex, and a bound for the others.

A call is convex: whatever lies between two of its nodes waits for the one and is waited for by the other. So a call
that contains spine vertices contains an interval of them with all nodes between, and is the difference
:math:`I \setminus J` of two ideals of different gaps (:mod:`placekit.solvers.offload_latency.series.spine`). All nodes
of J end
before it starts and all other nodes outside start after it ends, because each is joined to the spine vertex by a path.
The latency is therefore a sum along the spine, of calls, of spine vertices on the host, and of what runs between:

.. math::

   done(I) &= \min_{J \text{ in an earlier gap}} ready(J) + call(I \setminus J), \quad
   done(I_q) \le ready(I_q \setminus a_q) + t^{host}(a_q) \\
   ready(J) &= \min_{I \subseteq J \text{ in the same gap}} done(I) + between(J \setminus I)

with the number of calls made so far as an index of both. If no call lies within a gap, *between* is the longest path on
the host, and the program is exact. For calls within a gap there are two variants. For a lower bound, *between* becomes
a bound along paths: each node runs on the host, or in a call of which only its own work, that of one path, and the
tensors that must move are counted, and at least one call is used up. One call is bounded by the gap's chains, too
(:mod:`placekit.solvers.offload_latency.series.gap_chains`), and a few calls by what the whole gap takes with as many of
them (:mod:`placekit.solvers.offload_latency.series.gap_calls`), of which placements are known. For a placement, a call
within a gap is the difference of two ideals as well, and waits for all of the smaller one. If both variants have the
same value, the placement is optimal.

What is left out can only make it a better placement: contiguity, memory over several calls of one device, host memory,
pins among equal devices, colocation over several calls. If there are too many combinations of groups of accelerators,
they are replaced by one that has the best of each, with as many calls as one likes if those are too many, too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from placekit.machine import num_usable_cpus
from placekit.solve.stop import in_this_solve
from placekit.solvers.offload_latency.flat import OffloadProblem
from placekit.solvers.offload_latency.series.gap_calls import Inside, Waits
from placekit.solvers.offload_latency.series.gap_chains import MAX_CHAINS, chains_of
from placekit.solvers.offload_latency.series.series_arrays import (
    fewer_calls,
    gap_of,
    host_paths,
    inputs_of,
    last_nodes_of,
    merged_groups,
    out_times,
    sums_of,
)
from placekit.solvers.offload_latency.series.series_kernels import Sums, Table, relax_gap, relax_spine_calls
from placekit.solvers.offload_latency.series.spine import Series

CHUNK = 64
"""Ideals between two looks at whether to stop."""


@dataclass(frozen=True, slots=True)
class SeriesPlan:
    """Solution of the program."""

    latency_s: float  # its optimum in seconds, not rounded
    calls: tuple[tuple[NDArray[np.int64], int], ...]  # nodes and group of every call, in their order
    # False if there are calls that the bound alone counts and `calls` lack: then `latency_s` is only a lower bound
    is_placement: bool


def solve_series(
    flat: OffloadProblem,
    series: Series,
    *,
    is_bound: bool,  # True for a lower bound, False for a placement
    # what is known of the calls inside gaps, by the number of the gap
    insides: Mapping[int, Inside] = MappingProxyType({}),
    most_s: float = math.inf,  # latency that is known to be possible, in seconds: what is above is cut off
    should_stop: Callable[[], bool] = lambda: False,  # asked often
) -> SeriesPlan | None:
    """Return the optimum of the series program; None if stopped, or if nothing is at most `most_s`.

    O(pairs of ideals that fit into one call * (open nets + states)).
    """
    time_s, net_time_s, limits, less = merged_groups(flat)
    sums = sums_of(flat, series, time_s, net_time_s, limits)
    shape = (series.num_ideals, less.shape[1])
    fewer, choices = fewer_calls(less)
    table = Table(
        less,
        fewer,
        np.array([len(groups) for groups in choices], dtype=np.int64),
        done_s=np.full(shape, np.inf),
        done_from=np.full(shape, -1, dtype=np.int64),
        done_group=np.full(shape, -1, dtype=np.int64),
        ready_s=np.full(shape, np.inf),
        ready_from=np.full(shape, -1, dtype=np.int64),
        ready_group=np.full(shape, -1, dtype=np.int64),
    )
    table.done_s[0] = 0.0
    most_s = most_s * (1 + 1e-9) + flat.rounding_s
    most = len(choices[-1]) if choices else 0  # calls inside a gap that are told apart
    uses_chains, receivers_of = is_bound and most > 1, Waits(flat).receivers_of if insides else []
    last_nodes = last_nodes_of(series)
    inputs, out_s = inputs_of(flat, series, net_time_s), out_times(flat, net_time_s, series.dropped)
    call_s, largest = time_s.min(axis=1, initial=np.inf), float(limits.max(initial=0.0))
    for number in range(series.num_gaps):
        chains = chains_of(
            series, number, inputs, flat.host_time_s, call_s, out_s, most=MAX_CHAINS if uses_chains else 0
        )
        gap = gap_of(flat, series, number, last_nodes, inputs, call_s, out_s, largest, chains)
        if number in insides and most:
            before_s, behind_s = host_paths(flat, series, number, receivers_of)
            gap = gap._replace(inside_s=insides[number].up_to(most), before_s=before_s, behind_s=behind_s)
        if number > 0:
            table.done_s[gap.begin] = table.ready_s[gap.begin - 1] + flat.host_time_s[series.spine[number - 1]]
        for first, until in _with_spine_calls(number, series.ideal_offsets, sums, table, most_s, should_stop):
            if should_stop():
                break
            relax_gap(first, until, gap, is_bound, sums, table, most_s)
        if should_stop():
            return None
    latency_s = table.ready_s[-1, -1]
    if latency_s > most_s or not np.isfinite(latency_s):
        return None
    return _trace(series, table, insides, choices)


def _with_spine_calls(
    gap: int,
    ideal_offsets: NDArray[np.int64],
    sums: Sums,
    table: Table,
    most_s: float,
    should_stop: Callable[[], bool],
) -> Iterator[tuple[int, int]]:
    """Yield the ideals of a gap in chunks, whose calls that start in earlier gaps are known; fewer if told to stop.

    All of these start where everything is known already, so the chunks are looked at in threads.
    """
    begin, end = ideal_offsets[gap : gap + 2].tolist()
    chunks = [(first, min(first + CHUNK, end)) for first in range(begin, end, CHUNK)]

    def relax(chunk: tuple[int, int]) -> tuple[int, int] | None:
        if should_stop():
            return None
        if gap > 0:
            relax_spine_calls(*chunk, gap, ideal_offsets, sums, table, most_s)
        return chunk

    if len(chunks) == 1:
        yield from filter(None, map(relax, chunks))
        return
    with ThreadPoolExecutor(num_usable_cpus()) as pool:
        yield from itertools.takewhile(bool, pool.map(in_this_solve(relax), chunks))


def _trace(series: Series, table: Table, insides: Mapping[int, Inside], choices: list[tuple[int, ...]]) -> SeriesPlan:
    """Walk back through the choices."""
    gap_of_ideal = series.gap_of_ideal()
    at, state = table.ready_s.shape[0] - 1, table.ready_s.shape[1] - 1
    latency_s = float(table.ready_s[at, state])
    calls: list[tuple[NDArray[np.int64], int]] = []
    is_placement = True
    while True:
        source, inner = int(table.ready_from[at, state]), int(table.ready_group[at, state])
        if inner >= 0:
            parts = _calls_inside(series, insides, source, at, len(choices[inner]))
            calls += zip(parts or (), choices[inner], strict=False)
            is_placement &= parts is not None
            state = int(table.fewer[inner, state])
        at = source
        start, group = int(table.done_from[at, state]), int(table.done_group[at, state])
        if start >= 0:
            calls.append((_nodes_between(series, start, at), group))
            at, state = start, int(table.less[group, state])
        elif gap_of_ideal[at] > 0:
            at -= 1  # the spine vertex ran on the host, after all of the gap before it
        else:
            return SeriesPlan(latency_s, tuple(calls[::-1]), is_placement)


def _calls_inside(
    series: Series, insides: Mapping[int, Inside], low: int, high: int, count: int
) -> tuple[NDArray[np.int64], ...] | None:
    """Return the best calls inside a whole gap, so many; None for a part of a gap, or if none are known."""
    number = int(np.searchsorted(series.ideal_offsets, low, side="right")) - 1
    if number not in insides or [low, high + 1] != series.ideal_offsets[number : number + 2].tolist():
        return None
    calls = insides[number].calls
    return calls[min(count, len(calls)) - 1]


def _nodes_between(series: Series, low: int, high: int) -> NDArray[np.int64]:
    """Return the nodes of the ideal `high` that are not in the ideal `low`."""
    first, last = (np.searchsorted(series.ideal_offsets, [low, high], side="right") - 1).tolist()
    found: list[int] = []
    for gap in range(first, last + 1):
        if gap > first:
            found.append(int(series.spine[gap - 1]))
        mask = int(series.mask[high]) if gap == last else -1
        mask &= ~int(series.mask[low]) if gap == first else -1
        found += [v for i, v in enumerate(series.nodes_of_gap(gap).tolist()) if mask >> i & 1]
    return np.array(found, dtype=np.int64)
