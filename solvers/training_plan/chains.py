"""Kernel that searches training plans: chains of stages below a target.

It is apart from :mod:`placekit.solvers.chain`, where a stage takes what its devices and its blocks say: here its memory
also depends on how many stages follow it, and each stage is a knapsack of ways to compute its layers.

Arrays come in tuples, in the order of :mod:`placekit.solvers.training_plan.tables`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import njit
from placekit.solvers.training_plan.knapsack import FITS, GAVE_UP, choose, holds

UNREACHED = 1 << 30


@njit
def stage_edges_s(
    cuts: Any, edges: Any, bits: NDArray[np.uint64], before: int, upto: int, ti: int, most_s: float
) -> float:
    """Return the seconds per microbatch of the edges between the stage ``upto - before`` and others.

    A sum above `most_s` may be incomplete.
    """
    offsets, flat, _, _, _ = cuts
    source, target, in_s, out_s = edges
    total = 0.0
    for at in range(offsets[before], offsets[before + 1]):
        if holds(bits, upto, target[flat[at]]):
            total += in_s[ti, flat[at]]
            if total > most_s:
                return float(total)
    for at in range(offsets[upto], offsets[upto + 1]):
        if not holds(bits, before, source[flat[at]]):
            total += out_s[ti, flat[at]]
            if total > most_s:
                return float(total)
    return total


@njit(inner=True)
def _is_refuted(
    relaxed: Any, before: int, upto: int, ti: int, in_flight: int, spare_s: float, memory_bytes: float
) -> bool:
    """Return True if a Lagrange multiplier proves that no choices fit; constant time, by sums over ideals.

    For every price of a second, the least sum of bytes and price times seconds must be within the budget.
    """
    row_of, prices, totals, rounding, _, _ = relaxed
    row = row_of[min(in_flight, len(row_of) - 1)]
    for q in range(prices.shape[2]):
        price = prices[ti, row, q]
        least = totals[ti, row, upto, q] - totals[ti, row, before, q]
        if least > (memory_bytes + price * spare_s) * (1 + 1e-11) + rounding[ti, row, q]:
            return True
    return False


@njit
def extend_stages(
    ideals: Any,
    # cuts, edges: of the edges that leave every ideal: offsets and indices, ends, and seconds at both ends. Of every
    # edge: ends and seconds.
    cuts: Any,
    edges: Any,
    choices: Any,
    relaxed: Any,  # as :data:`placekit.solvers.training_plan.relaxation.Relaxation`
    degrees: Any,  # tensor degrees, data degrees, and the index of the first data degree that is at least n
    # target in seconds, relative and absolute rounding of seconds, bytes, absolute rounding of bytes, seconds of
    # gradients per byte
    limits: Any,
    # number of devices, largest number of replicas, whether choices are uniform, whether giving up counts as fitting,
    # largest number of nodes
    flags: Any,
    state: NDArray[np.int64],  # next ideal, labels so far, number of ideals alive, knapsacks given up, pairs visited
    # ``[capacity, 6]``: replicas, devices, label of the rest, index of the data degree, of the tensor degree, ideal
    labels: NDArray[np.int32],
    front: NDArray[np.int64],  # ``[I, 2]`` labels of every ideal
    alive: Any,  # ideals with labels, and ``work + devices * target`` of their best
    best: NDArray[np.int64],  # ``[4, replicas + 1]`` for one ideal: fewest devices, and origin of the label
    # ``[replicas + 1]`` for one ideal: largest number of devices of a label that leaves enough for the other layers
    caps: NDArray[np.int64],
    scratch: Any,
    picked: NDArray[np.int64],
    max_pairs: int,
) -> None:
    """Prepend stages to chains, from the end of the pipeline to its start, for targets of time and memory.

    A label of an ideal is a chain of stages with all layers outside the ideal, as (sum of data degrees, devices). A
    label is dropped if another label of the ideal has no more of both: every stage that fits before the first fits
    before the second.

    Notes
    -----
    Returns after `max_pairs` pairs of ideals, or when `labels` may be too small for the next ideal; call again to
    continue. O(pairs * degrees * labels) and a knapsack where memory binds.
    """
    bits, size, time_sum, gradient_sum, a_sum, b_sum, work_s, least_bytes = ideals
    tensor_degrees, data_degrees, first_degree = degrees
    target_s, slack_s, rounding_s, memory_bytes, rounding_bytes, gradient_s = limits
    num_devices, max_replicas, is_uniform, is_optimistic, max_nodes = flags
    alive_ideal, alive_reach = alive
    row_of, prices, _, rounding, shared_totals, lightest = relaxed
    cut_offsets, cut_edges, cut_ends, cut_in_s, cut_out_s = cuts
    _, edge_target, edge_in_s, edge_out_s = edges
    num_words = bits.shape[1]
    num_degrees = len(data_degrees)
    full = len(size) - 1
    room, sure_room = memory_bytes + rounding_bytes, memory_bytes - rounding_bytes
    lightest_room = room * (1 + 1e-11)
    stop_at = state[4] + max_pairs
    while state[0] >= 0 and state[4] < stop_at:
        if state[1] + max_replicas + 1 > len(labels):
            return
        i = state[0]
        state[0] -= 1
        front[i, 0], front[i, 1] = state[1], state[1]
        cap, most = num_devices, max_replicas
        if size[i] > 0:
            needed = max(tensor_degrees[0], int(np.ceil(work_s[i] / target_s * (1 - 1e-9))))
            needed = max(needed, int(np.ceil(least_bytes[i] / memory_bytes * (1 - 1e-9))))
            cap -= needed
            most -= 1
        row = -1
        for replicas in range(max_replicas + 1):
            if size[i] > 0 and row_of[min(replicas + 1, len(row_of) - 1)] != row:
                row = row_of[min(replicas + 1, len(row_of) - 1)]
                for q in range(prices.shape[2]):
                    share = shared_totals[row, i, q] / (memory_bytes + prices[0, row, q] * target_s)
                    cap = min(cap, num_devices - int(np.ceil(share * (1 - 1e-9))))
            caps[replicas] = cap
        cap = caps[min(1, max_replicas)]
        if int(np.ceil((work_s[full] - work_s[i]) / target_s * (1 - 1e-9))) > cap:
            continue
        best[0, : max_replicas + 1] = UNREACHED
        reach = work_s[i] + cap * target_s
        reach += 1e-9 * (abs(reach) + work_s[full])
        state[4] += state[2]
        for a in range(state[2]):
            if alive_reach[a] > reach:
                continue
            upto = alive_ideal[a]
            is_nested = True
            for word in range(num_words):
                if bits[i, word] & ~bits[upto, word] != np.uint64(0):
                    is_nested = False
                    break
            if not is_nested:
                continue
            begin, end = front[upto, 0], front[upto, 1]
            fewest_devices, fewest_replicas = labels[end - 1, 1], labels[begin, 0]
            spanning = np.uint64(0)
            for word in range(num_words):
                spanning |= cut_ends[i, word] & ~bits[upto, word]
            lightest_row = row_of[min(2 if fewest_replicas > 0 else 1, len(row_of) - 1)]
            for ti in range(len(tensor_degrees)):
                t = tensor_degrees[ti]
                row = lightest_row  # of the largest degree
                if lightest[ti, row, upto] - lightest[ti, row, i] > lightest_room + rounding[ti, row, 0]:
                    continue
                seconds = time_sum[ti, upto] - time_sum[ti, i]
                gradients = gradient_s * (gradient_sum[ti, upto] - gradient_sum[ti, i])
                least_degree = int(np.ceil((seconds - rounding_s) / target_s * (1 - 1e-9)))
                if least_degree >= len(first_degree):
                    continue
                # if no edge skips the stage, two sums give the seconds of all edges
                least_moved_s = cut_in_s[ti, i] + cut_out_s[ti, upto]
                moved_s = least_moved_s
                if spanning != np.uint64(0):
                    moved_s = -1.0
                    d = data_degrees[first_degree[max(least_degree, 0)]]
                    if seconds + (d - 1) * gradients + least_moved_s <= target_s * d and gradients <= target_s:
                        least_moved_s = 0.0  # with edges that skip the stage no degree is refuted
                    else:
                        least_moved_s -= 1e-12 * least_moved_s  # far above the rounding of the differences
                        for at in range(cut_offsets[i], cut_offsets[i + 1]):
                            edge = cut_edges[at]
                            if not holds(bits, upto, edge_target[edge]):
                                least_moved_s -= edge_in_s[ti, edge] + edge_out_s[ti, edge]
                for di in range(first_degree[max(least_degree, 0)], num_degrees):
                    d = data_degrees[di]
                    if fewest_replicas + d > most or fewest_devices + d * t > caps[fewest_replicas + d]:
                        break
                    exact_s = target_s * d * (1 + slack_s)
                    budget_s = exact_s + rounding_s
                    floor_s = seconds + (d - 1) * gradients
                    if floor_s + least_moved_s > budget_s:
                        continue
                    row = row_of[min(1 - (-fewest_replicas // d), len(row_of) - 1)]
                    if lightest[ti, row, upto] - lightest[ti, row, i] > lightest_room + rounding[ti, row, 0]:
                        continue
                    first, last = -1, -1
                    for j in range(begin, end):
                        at = labels[j, 0] + d
                        if at > most:
                            break
                        if labels[j, 1] + d * t <= caps[at] and labels[j, 1] + d * t < best[0, at]:
                            if first < 0:
                                first = j
                            last = j
                    if first < 0:
                        continue
                    if moved_s < 0:
                        largest = (caps[fewest_replicas + d] - fewest_devices) // t
                        most_s = target_s * largest * (1 + slack_s) + rounding_s - seconds
                        moved_s = stage_edges_s(cuts, edges, bits, i, upto, ti, most_s)
                    if floor_s + moved_s > budget_s:
                        continue
                    # differences of sums are too inexact here, so layers are added one by one
                    if floor_s + moved_s > exact_s - rounding_s:
                        found = choose(
                            choices, bits, i, upto, ti, 1, (d - 1) * gradient_s, exact_s - moved_s, np.inf,
                            max_nodes, scratch, picked,
                        )  # fmt: skip
                        if found != FITS:
                            continue
                    low, high = 1 - (-labels[first, 0] // d), 1 - (-labels[last, 0] // d)
                    a_fast, b_fast = a_sum[ti, upto] - a_sum[ti, i], b_sum[ti, upto] - b_sum[ti, i]
                    fitting = low - 1
                    if is_uniform:
                        if a_fast * high + b_fast <= sure_room:
                            fitting = high
                        elif a_fast * low + b_fast <= sure_room:
                            fitting = min(max(int((sure_room - b_fast) / a_fast), low), high)
                    if fitting < high:
                        spare_s, above = budget_s - moved_s - (d - 1) * gradients, high + 1
                        if _is_refuted(relaxed, i, upto, ti, fitting + 1, spare_s, room):
                            above = fitting + 1
                        else:
                            if _is_refuted(relaxed, i, upto, ti, high, spare_s, room):
                                sure, above = fitting + 1, high
                                while above - sure > 1:
                                    middle = (sure + above) // 2
                                    if _is_refuted(relaxed, i, upto, ti, middle, spare_s, room):
                                        above = middle
                                    else:
                                        sure = middle
                            high = above - 1
                        probe = fitting + 1 if fitting < low else high  # usually nothing fits, or everything
                        while above - fitting > 1:
                            found = choose(
                                choices, bits, i, upto, ti, probe, (d - 1) * gradient_s, exact_s - moved_s,
                                memory_bytes, max_nodes, scratch, picked,
                            )  # fmt: skip
                            if found == GAVE_UP:
                                state[3] += 1
                                found = is_optimistic
                            if found == FITS:
                                if probe == low and above == high + 1:
                                    fitting, probe = probe, high
                                else:
                                    fitting, probe = probe, (probe + above) // 2
                            else:
                                above = probe
                                probe = (fitting + above) // 2
                    if fitting < low:
                        continue
                    for j in range(first, last + 1):
                        if labels[j, 0] > d * (fitting - 1):
                            break
                        devices = labels[j, 1] + d * t
                        at = labels[j, 0] + d
                        if devices > caps[at]:
                            continue
                        while at <= most and best[0, at] > devices:
                            best[0, at], best[1, at], best[2, at], best[3, at] = devices, j, di, ti
                            at += 1
        fewest = UNREACHED
        for replicas in range(most + 1):
            if best[0, replicas] < fewest:
                fewest = best[0, replicas]
                at = state[1]
                labels[at, 0], labels[at, 1], labels[at, 2] = replicas, fewest, best[1, replicas]
                labels[at, 3], labels[at, 4], labels[at, 5] = best[2, replicas], best[3, replicas], i
                state[1] += 1
        front[i, 1] = state[1]
        if front[i, 1] > front[i, 0]:
            alive_ideal[state[2]] = i
            alive_reach[state[2]] = work_s[i] + fewest * target_s
            state[2] += 1
