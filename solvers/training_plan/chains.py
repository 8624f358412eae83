"""Kernel that searches training plans: chains of stages below a target.

It is apart from :mod:`placekit.solvers.chain`, where a stage takes what its devices and its blocks say: here its memory
also depends on how many stages follow it, and each stage is a knapsack of ways to compute its layers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import by_reference, njit
from placekit.solvers.training_plan.knapsack import (
    FITS,
    GAVE_UP,
    Budget,
    ChoiceRows,
    Scratch,
    Span,
    choose_by_reference,
    holds,
)
from placekit.solvers.training_plan.relaxation import Relaxation
from placekit.solvers.training_plan.tables import Ideals

UNREACHED = 1 << 30
NEXT, NUM_LABELS, NUM_ALIVE, NUM_GIVEN_UP, NUM_PAIRS = range(5)
"""Counters of a search: next ideal, labels so far, ideals with labels, knapsacks given up, pairs visited."""


class EdgeRows(NamedTuple):
    """Edges of a graph, and those that leave every ideal."""

    source: NDArray[np.int64]  # ``[E]``
    target: NDArray[np.int64]  # ``[E]``
    # in_s, out_s: ``[T, E]`` seconds at both ends
    in_s: NDArray[np.float64]
    out_s: NDArray[np.float64]
    cut_ends: NDArray[np.uint64]  # ``[I, W]`` ends of the edges that leave an ideal
    # cut_in_s, cut_out_s: ``[T, I]`` sums of their seconds at both ends
    cut_in_s: NDArray[np.float64]
    cut_out_s: NDArray[np.float64]


class Degrees(NamedTuple):
    """Degrees of parallelism."""

    tensor: NDArray[np.int64]
    data: NDArray[np.int64]
    first: NDArray[np.int64]  # index of the first data degree that is at least n


class Targets(NamedTuple):
    """Limits of stages and of plans."""

    seconds: float  # per stage
    # slack, rounding_s: relative and absolute rounding of seconds
    slack: float
    rounding_s: float
    memory_bytes: float
    rounding_bytes: float
    gradient_s: float  # seconds of gradients per byte
    num_devices: int
    max_replicas: int
    is_uniform: bool  # choices of a layer differ in time and memory only
    gave_up_fits: int  # what a knapsack that gave up counts as
    max_nodes: int  # largest number of nodes of a knapsack


class Labels(NamedTuple):
    """Labels so far, and what is known of the ideal that is extended."""

    counts: NDArray[np.int64]  # ``[5]`` see :data:`NEXT`
    # ``[capacity, 6]``: replicas, devices, label of the rest, index of the data degree, of the tensor degree, ideal
    rows: NDArray[np.int32]
    front: NDArray[np.int64]  # ``[I, 2]`` labels of every ideal
    # alive, reach: ideals with labels, and ``work + devices * target`` of their best
    alive: NDArray[np.int64]
    reach: NDArray[np.float64]
    best: NDArray[np.int64]  # ``[4, replicas + 1]`` fewest devices, and origin of the label
    # ``[replicas + 1]`` largest number of devices of a label that leaves enough for the other layers
    caps: NDArray[np.int64]


class StageSearch(NamedTuple):
    """Everything that the kernel reads and writes."""

    ideals: Ideals
    edges: EdgeRows
    choices: ChoiceRows
    relaxed: Relaxation
    degrees: Degrees
    targets: Targets
    labels: Labels
    scratch: Scratch


@njit
def stage_edges_s(ideals: Ideals, edges: EdgeRows, before: int, upto: int, ti: int, most_s: float) -> float:
    """Return the seconds per microbatch of the edges between the stage ``upto - before`` and others.

    A sum above `most_s` may be incomplete.
    """
    return float(_edges_s(by_reference(ideals), by_reference(edges), before, upto, ti, most_s))


@njit(inner=True, allocates=False)
def _edges_s(ideals: Any, edges: Any, before: Any, upto: Any, ti: Any, most_s: Any) -> Any:
    offsets, flat, bits = ideals.cut_offsets, ideals.cut_edges, ideals.bits
    total = 0.0
    for at in range(offsets[before], offsets[before + 1]):
        if holds(bits, upto, edges.target[flat[at]]):
            total += edges.in_s[ti, flat[at]]
            if total > most_s:
                return total
    for at in range(offsets[upto], offsets[upto + 1]):
        if not holds(bits, before, edges.source[flat[at]]):
            total += edges.out_s[ti, flat[at]]
            if total > most_s:
                return total
    return total


@njit(inner=True, allocates=False)
def _is_refuted(relaxed: Any, span: Any, in_flight: Any, spare_s: Any, memory_bytes: Any) -> Any:
    """Return True if a Lagrange multiplier proves that no choices fit; constant time, by sums over ideals.

    For every price of a second, the least sum of bytes and price times seconds must be within the budget.
    """
    before, upto, ti = span
    row = relaxed.row_of[min(in_flight, len(relaxed.row_of) - 1)]
    for q in range(relaxed.prices.shape[2]):
        price = relaxed.prices[ti, row, q]
        least = relaxed.totals[ti, row, upto, q] - relaxed.totals[ti, row, before, q]
        if least > (memory_bytes + price * spare_s) * (1 + 1e-11) + relaxed.rounding[ti, row, q]:
            return True
    return False


@njit
def extend_stages(search: StageSearch, max_pairs: int) -> None:
    """Prepend stages to chains, from the end of the pipeline to its start, for targets of time and memory.

    A label of an ideal is a chain of stages with all layers outside the ideal, as (sum of data degrees, devices). A
    label is dropped if another label of the ideal has no more of both: every stage that fits before the first fits
    before the second.

    Notes
    -----
    Returns after `max_pairs` pairs of ideals, or when the labels may be too many for the next ideal; call again to
    continue. O(pairs * degrees * labels) and a knapsack where memory binds.
    """
    _extend(by_reference(search), max_pairs)


@njit(inner=True, allocates=False)
def _extend(search: Any, max_pairs: Any) -> Any:
    bits, work_s, targets, labels = search.ideals.bits, search.ideals.work_s, search.targets, search.labels
    counts, alive, alive_reach, front = labels.counts, labels.alive, labels.reach, labels.front
    target_s, max_replicas, full = targets.seconds, targets.max_replicas, len(work_s) - 1
    stop_at = counts[NUM_PAIRS] + max_pairs
    while counts[NEXT] >= 0 and counts[NUM_PAIRS] < stop_at:
        if counts[NUM_LABELS] + max_replicas + 1 > len(labels.rows):
            return
        i = counts[NEXT]
        counts[NEXT] -= 1
        front[i, 0], front[i, 1] = counts[NUM_LABELS], counts[NUM_LABELS]
        most = _limit_devices(search, i)
        cap = labels.caps[min(1, max_replicas)]
        if int(np.ceil((work_s[full] - work_s[i]) / target_s * (1 - 1e-9))) > cap:
            continue
        labels.best[0, : max_replicas + 1] = UNREACHED
        reach = work_s[i] + cap * target_s
        reach += 1e-9 * (abs(reach) + work_s[full])
        counts[NUM_PAIRS] += counts[NUM_ALIVE]
        for a in range(counts[NUM_ALIVE]):
            if alive_reach[a] > reach:
                continue
            upto = alive[a]
            is_nested = True
            for word in range(bits.shape[1]):
                if bits[i, word] & ~bits[upto, word] != np.uint64(0):
                    is_nested = False
                    break
            if is_nested:
                _prepend(search, i, upto, most)
        _keep_best(labels, i, most, work_s[i], target_s)


@njit(inner=True, allocates=False)
def _limit_devices(search: Any, i: Any) -> Any:
    """Write the limits of devices for the labels of ideal `i`; return the largest number of replicas."""
    ideals, relaxed, targets = search.ideals, search.relaxed, search.targets
    row_of, num_devices, max_replicas = relaxed.row_of, targets.num_devices, targets.max_replicas
    memory_bytes, target_s, is_first = targets.memory_bytes, targets.seconds, ideals.size[i] == 0
    cap, most = num_devices, max_replicas
    if not is_first:
        needed = max(search.degrees.tensor[0], int(np.ceil(ideals.work_s[i] / target_s * (1 - 1e-9))))
        cap -= max(needed, int(np.ceil(ideals.least_bytes[i] / memory_bytes * (1 - 1e-9))))
        most -= 1
    row = -1
    for replicas in range(max_replicas + 1):
        if not is_first and row_of[min(replicas + 1, len(row_of) - 1)] != row:
            row = row_of[min(replicas + 1, len(row_of) - 1)]
            for q in range(relaxed.prices.shape[2]):
                share = relaxed.shared[row, i, q] / (memory_bytes + relaxed.prices[0, row, q] * target_s)
                cap = min(cap, num_devices - int(np.ceil(share * (1 - 1e-9))))
        search.labels.caps[replicas] = cap
    return most


@njit(inner=True, allocates=False)
def _prepend(search: Any, i: Any, upto: Any, most: Any) -> Any:
    """Prepend the stage ``upto - i`` by all degrees to the labels of `upto`."""
    ideals, edges, degrees, targets = search.ideals, search.edges, search.degrees, search.targets
    rows, caps, target_s, relaxed = search.labels.rows, search.labels.caps, targets.seconds, search.relaxed
    lightest, rounding, row_of = relaxed.lightest, relaxed.rounding, relaxed.row_of
    room = (targets.memory_bytes + targets.rounding_bytes) * (1 + 1e-11)
    begin, end = search.labels.front[upto, 0], search.labels.front[upto, 1]
    fewest_devices, fewest_replicas = rows[end - 1, 1], rows[begin, 0]
    spanning = np.uint64(0)
    for word in range(ideals.bits.shape[1]):
        spanning |= edges.cut_ends[i, word] & ~ideals.bits[upto, word]
    lightest_row = row_of[min(2 if fewest_replicas > 0 else 1, len(row_of) - 1)]  # of the largest degree
    for ti in range(len(degrees.tensor)):
        t, row = degrees.tensor[ti], lightest_row
        if lightest[ti, row, upto] - lightest[ti, row, i] > room + rounding[ti, row, 0]:
            continue
        seconds = ideals.time_s[ti, upto] - ideals.time_s[ti, i]
        gradients = targets.gradient_s * (ideals.gradient_bytes[ti, upto] - ideals.gradient_bytes[ti, i])
        least_degree = int(np.ceil((seconds - targets.rounding_s) / target_s * (1 - 1e-9)))
        if least_degree >= len(degrees.first):
            continue
        first_degree, span = degrees.first[max(least_degree, 0)], Span(i, upto, ti)
        # if no edge skips the stage, two sums give the seconds of all edges
        least_moved_s = edges.cut_in_s[ti, i] + edges.cut_out_s[ti, upto]
        moved_s = least_moved_s
        if spanning != np.uint64(0):
            moved_s = -1.0
            least_moved_s = _least_moved_s(search, span, degrees.data[first_degree], seconds, gradients)
        for di in range(first_degree, len(degrees.data)):
            d = degrees.data[di]
            if fewest_replicas + d > most or fewest_devices + d * t > caps[fewest_replicas + d]:
                break
            budget_s = target_s * d * (1 + targets.slack) + targets.rounding_s
            floor_s = seconds + (d - 1) * gradients
            if floor_s + least_moved_s > budget_s:
                continue
            row = row_of[min(1 - (-fewest_replicas // d), len(row_of) - 1)]
            if lightest[ti, row, upto] - lightest[ti, row, i] > room + rounding[ti, row, 0]:
                continue
            first, last = _improving(search.labels, begin, end, d, t, most)
            if first < 0:
                continue
            if moved_s < 0:
                largest = (caps[fewest_replicas + d] - fewest_devices) // t
                most_s = target_s * largest * (1 + targets.slack) + targets.rounding_s - seconds
                moved_s = _edges_s(ideals, edges, i, upto, ti, most_s)
            if floor_s + moved_s > budget_s:
                continue
            low, high = 1 - (-rows[first, 0] // d), 1 - (-rows[last, 0] // d)
            fitting = _most_in_flight(search, span, d, moved_s, low, high)
            for j in range(first, last + 1 if fitting >= low else first):
                if rows[j, 0] > d * (fitting - 1):
                    break
                _offer(search.labels, j, di, ti, d, d * t, most)


@njit(inner=True, allocates=False)
def _least_moved_s(search: Any, span: Any, d: Any, seconds: Any, gradients: Any) -> Any:
    """Return a lower bound of the seconds of a stage's edges, some of which skip it."""
    edges, ideals, target_s = search.edges, search.ideals, search.targets.seconds
    before, upto, ti = span
    least_s = edges.cut_in_s[ti, before] + edges.cut_out_s[ti, upto]
    if seconds + (d - 1) * gradients + least_s <= target_s * d and gradients <= target_s:
        return 0.0  # no degree is refuted
    least_s -= 1e-12 * least_s  # far above the rounding of the differences
    for at in range(ideals.cut_offsets[before], ideals.cut_offsets[before + 1]):
        edge = ideals.cut_edges[at]
        if not holds(ideals.bits, upto, edges.target[edge]):
            least_s -= edges.in_s[ti, edge] + edges.out_s[ti, edge]
    return least_s


@njit(inner=True, allocates=False)
def _improving(labels: Any, begin: Any, end: Any, d: Any, t: Any, most: Any) -> Any:
    """Return the first and last label that a stage of degrees `d` and `t` makes better than the best so far."""
    rows, caps, best = labels.rows, labels.caps, labels.best
    first, last = -1, -1
    for j in range(begin, end):
        at = rows[j, 0] + d
        if at > most:
            break
        if rows[j, 1] + d * t <= caps[at] and rows[j, 1] + d * t < best[0, at]:
            if first < 0:
                first = j
            last = j
    return first, last


@njit(inner=True, allocates=False)
def _most_in_flight(search: Any, span: Any, d: Any, moved_s: Any, low: Any, high: Any) -> Any:
    """Return the most microbatches in flight, from `low` to `high`, for which a stage fits; ``low - 1`` if none."""
    ideals, targets, relaxed = search.ideals, search.targets, search.relaxed
    before, upto, ti = span
    seconds = ideals.time_s[ti, upto] - ideals.time_s[ti, before]
    gradients = targets.gradient_s * (ideals.gradient_bytes[ti, upto] - ideals.gradient_bytes[ti, before])
    exact_s, gradient_s = targets.seconds * d * (1 + targets.slack), (d - 1) * targets.gradient_s
    # differences of sums are too inexact here, so layers are added one by one
    if seconds + (d - 1) * gradients + moved_s > exact_s - targets.rounding_s:
        budget = Budget(1, gradient_s, exact_s - moved_s, np.inf)
        if choose_by_reference(search.choices, ideals.bits, span, budget, targets.max_nodes, search.scratch) != FITS:
            return low - 1
    fitting = low - 1
    if targets.is_uniform:
        sure_room = targets.memory_bytes - targets.rounding_bytes
        a_fast = ideals.memory_a[ti, upto] - ideals.memory_a[ti, before]
        b_fast = ideals.memory_b[ti, upto] - ideals.memory_b[ti, before]
        if a_fast * high + b_fast <= sure_room:
            return high
        if a_fast * low + b_fast <= sure_room:
            fitting = min(max(int((sure_room - b_fast) / a_fast), low), high)
            if fitting == high:
                return high
    room = targets.memory_bytes + targets.rounding_bytes
    spare_s, above = exact_s + targets.rounding_s - moved_s - (d - 1) * gradients, high + 1
    if _is_refuted(relaxed, span, fitting + 1, spare_s, room):
        return fitting
    if _is_refuted(relaxed, span, high, spare_s, room):
        sure, above = fitting + 1, high
        while above - sure > 1:
            middle = (sure + above) // 2
            if _is_refuted(relaxed, span, middle, spare_s, room):
                above = middle
            else:
                sure = middle
    high = above - 1
    probe = fitting + 1 if fitting < low else high  # usually nothing fits, or everything
    while above - fitting > 1:
        budget = Budget(probe, gradient_s, exact_s - moved_s, targets.memory_bytes)
        found = choose_by_reference(search.choices, ideals.bits, span, budget, targets.max_nodes, search.scratch)
        if found == GAVE_UP:
            search.labels.counts[NUM_GIVEN_UP] += 1
            found = targets.gave_up_fits
        if found == FITS:
            fitting, probe = probe, high if probe == low and above == high + 1 else (probe + above) // 2
        else:
            above = probe
            probe = (fitting + above) // 2
    return fitting


@njit(inner=True, allocates=False)
def _offer(labels: Any, j: Any, di: Any, ti: Any, replicas: Any, devices: Any, most: Any) -> Any:
    """Note a stage of so many replicas and devices before label `j` where nothing better is known."""
    best = labels.best
    at, sum_devices = labels.rows[j, 0] + replicas, labels.rows[j, 1] + devices
    if sum_devices > labels.caps[at]:
        return
    while at <= most and best[0, at] > sum_devices:
        best[0, at], best[1, at], best[2, at], best[3, at] = sum_devices, j, di, ti
        at += 1


@njit(inner=True, allocates=False)
def _keep_best(labels: Any, i: Any, most: Any, work_s: Any, target_s: Any) -> Any:
    """Write the undominated labels of ideal `i`."""
    counts, rows, best = labels.counts, labels.rows, labels.best
    fewest = UNREACHED
    for replicas in range(most + 1):
        if best[0, replicas] < fewest:
            fewest = best[0, replicas]
            at = counts[NUM_LABELS]
            rows[at, 0], rows[at, 1], rows[at, 2] = replicas, fewest, best[1, replicas]
            rows[at, 3], rows[at, 4], rows[at, 5] = best[2, replicas], best[3, replicas], i
            counts[NUM_LABELS] += 1
    labels.front[i, 1] = counts[NUM_LABELS]
    if labels.front[i, 1] > labels.front[i, 0]:
        labels.alive[counts[NUM_ALIVE]] = i
        labels.reach[counts[NUM_ALIVE]] = work_s + fewest * target_s
        counts[NUM_ALIVE] += 1
