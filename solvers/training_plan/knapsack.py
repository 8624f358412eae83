"""Kernel that picks the choices of one stage: a multiple-choice knapsack.

Arrays come in tuples, in the order of :mod:`placekit.solvers.training_plan.tables`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import njit

FITS, TOO_MUCH, GAVE_UP = 1, 0, -1
GREEDY = -1
"""Value of `max_nodes` that trades seconds for bytes greedily, without a proof."""
_MAX_PIVOTS = 64
"""Largest number of multipliers; the dual has few break points, and each multiplier halves them."""


@njit(inner=True)
def holds(bits: NDArray[np.uint64], ideal: int, v: int) -> bool:
    """Return whether an ideal holds layer `v`."""
    word: np.uint64 = bits[ideal, v >> 6] >> np.uint64(v & 63)
    return bool(word & np.uint64(1))


@njit
def choose(
    choices: Any,
    bits: NDArray[np.uint64],
    before: int,
    upto: int,
    ti: int,
    in_flight: int,
    gradient_s: float,  # seconds per byte of gradients, in the unit of the budget
    budget_s: float,  # seconds for the choices of all layers, of one replica
    memory_bytes: float,
    max_nodes: int,
    scratch: Any,
    picked: NDArray[np.int64],  # ``[L]`` output: global index of the choice of every layer of the stage
) -> int:
    """Find one choice per layer of a stage within budgets of time and memory.

    1. The fastest choices, or those with the least memory, decide most stages.
    2. A Lagrange multiplier for time, by secants on the dual, finds choices that fit or proves that there are none.
    3. Otherwise a search visits the choices whose regret under the multiplier is within the slack of the dual. Equal
       layers take their choices in one order.

    Returns
    -------
    int
        `FITS`, `TOO_MUCH`, or `GAVE_UP` after `max_nodes` nodes. If `max_nodes` is `GREEDY`, the fastest choices are
        traded for those that save the most bytes per second, and the answer is `FITS` if that ends within the budget.
    """
    offsets, time_s, gradient_bytes, memory_a, memory_b, extra_offsets, extra_other, extra_s, kind = choices
    item_layer, item_first, free, chosen, cost, held, original, regret, sums = scratch
    num_layers = len(item_layer)
    n, num_rows = 0, 0
    t_left, m_left, t_right, m_right = 0.0, 0.0, 0.0, 0.0
    for v in range(num_layers):
        if not holds(bits, upto, v) or holds(bits, before, v):
            continue
        item_layer[n], item_first[n] = v, num_rows
        fast, light = -1, -1
        for c in range(offsets[ti * num_layers + v], offsets[ti * num_layers + v + 1]):
            seconds = time_s[c] + gradient_s * gradient_bytes[c]
            for x in range(extra_offsets[c], extra_offsets[c + 1]):
                other = extra_other[x]
                if not holds(bits, upto, other) or holds(bits, before, other):
                    seconds += extra_s[x]
            cost[num_rows], held[num_rows], original[num_rows] = seconds, memory_a[c] * in_flight + memory_b[c], c
            r = num_rows
            if fast < 0 or cost[r] < cost[fast] or (cost[r] == cost[fast] and held[r] < held[fast]):
                fast = r
            if light < 0 or held[r] < held[light] or (held[r] == held[light] and cost[r] < cost[light]):
                light = r
            num_rows += 1
        t_left += cost[fast]
        m_left += held[fast]
        t_right += cost[light]
        m_right += held[light]
        picked[v] = original[fast]
        chosen[n] = light
        n += 1
    item_first[n] = num_rows
    if t_left > budget_s or m_right > memory_bytes:
        return TOO_MUCH
    if m_left <= memory_bytes:
        return FITS
    if max_nodes == GREEDY:
        # picked has the fastest choices: trade for the most bytes per second until the stage fits
        while m_left > memory_bytes:
            best_trade, best_item, best_row = -1.0, -1, -1
            for i in range(n):
                now = item_first[i]
                while original[now] != picked[item_layer[i]]:
                    now += 1
                for r in range(item_first[i], item_first[i + 1]):
                    if held[r] < held[now]:
                        trade = (held[now] - held[r]) / max(cost[r] - cost[now], 1e-300)
                        if trade > best_trade:
                            best_trade, best_item, best_row = trade, i, r
            now = item_first[best_item]
            while original[now] != picked[item_layer[best_item]]:
                now += 1
            picked[item_layer[best_item]] = original[best_row]
            t_left += cost[best_row] - cost[now]
            m_left += held[best_row] - held[now]
        return FITS if t_left <= budget_s else TOO_MUCH
    if t_right <= budget_s:
        for i in range(n):
            picked[item_layer[i]] = original[chosen[i]]
        return FITS
    price, floor = 0.0, 0.0
    for _ in range(_MAX_PIVOTS):
        price = (m_left - m_right) / (t_right - t_left)
        seconds, num_bytes = 0.0, 0.0
        for i in range(n):
            r = item_first[i]
            for other in range(r + 1, item_first[i + 1]):
                if held[other] + price * cost[other] < held[r] + price * cost[r]:
                    r = other
            chosen[i] = r
            seconds += cost[r]
            num_bytes += held[r]
        floor = num_bytes + price * seconds
        if seconds <= budget_s and num_bytes <= memory_bytes:
            for i in range(n):
                picked[item_layer[i]] = original[chosen[i]]
            return FITS
        if floor > (memory_bytes + price * budget_s) * (1 + 1e-12):
            return TOO_MUCH
        if floor >= (m_left + price * t_left) * (1 - 1e-13):
            break
        if seconds <= budget_s:
            t_left, m_left = seconds, num_bytes
        else:
            t_right, m_right = seconds, num_bytes
    slack = memory_bytes + price * budget_s - floor
    slack += 1e-12 * (memory_bytes + price * budget_s)
    # choices of every item by regret, up to the slack; items with one choice are fixed at once
    num_free = 0
    seconds, num_bytes = 0.0, 0.0
    for i in range(n):
        first, last = item_first[i], item_first[i + 1]
        least = held[first] + price * cost[first]
        for r in range(first + 1, last):
            least = min(least, held[r] + price * cost[r])
        for r in range(first, last):
            regret[r] = held[r] + price * cost[r] - least
        for r in range(first + 1, last):
            at = r
            while at > first and regret[at] < regret[at - 1]:
                regret[at], regret[at - 1] = regret[at - 1], regret[at]
                cost[at], cost[at - 1] = cost[at - 1], cost[at]
                held[at], held[at - 1] = held[at - 1], held[at]
                original[at], original[at - 1] = original[at - 1], original[at]
                at -= 1
        picked[item_layer[i]] = original[first]
        if last - first > 1 and regret[first + 1] <= slack:
            at = num_free
            while at > 0:
                previous = free[at - 1]
                ahead = regret[item_first[previous] + 1] - regret[first + 1]
                order = kind[ti * num_layers + item_layer[previous]] - kind[ti * num_layers + item_layer[i]]
                if ahead > 0 or (ahead == 0 and order <= 0):
                    break
                free[at] = previous
                at -= 1
            free[at] = i
            num_free += 1
        else:
            seconds += cost[first]
            num_bytes += held[first]
    if num_free == 0:
        return FITS if seconds <= budget_s and num_bytes <= memory_bytes else TOO_MUCH
    # sums[0, f], sums[1, f]: least seconds and bytes of the free items from f on; [2:5, f]: sums before f
    sums[0, num_free], sums[1, num_free] = 0.0, 0.0
    for f in range(num_free - 1, -1, -1):
        first, last = item_first[free[f]], item_first[free[f] + 1]
        least_s, least_b = cost[first], held[first]
        for r in range(first + 1, last):
            if regret[r] <= slack:
                least_s, least_b = min(least_s, cost[r]), min(least_b, held[r])
        sums[0, f], sums[1, f] = sums[0, f + 1] + least_s, sums[1, f + 1] + least_b
    sums[2, 0], sums[3, 0], sums[4, 0] = seconds, num_bytes, 0.0
    f, nodes = 0, 0
    chosen[0] = item_first[free[0]] - 1
    while f >= 0:
        i = free[f]
        chosen[f] += 1
        r = chosen[f]
        if r >= item_first[i + 1] or sums[4, f] + regret[r] > slack:
            f -= 1
            continue
        nodes += 1
        if nodes > max_nodes:
            return GAVE_UP
        seconds, num_bytes = sums[2, f] + cost[r], sums[3, f] + held[r]
        if seconds + sums[0, f + 1] > budget_s or num_bytes + sums[1, f + 1] > memory_bytes:
            continue
        if f == num_free - 1:
            for g in range(num_free):
                picked[item_layer[free[g]]] = original[chosen[g]]
            return FITS
        sums[2, f + 1], sums[3, f + 1], sums[4, f + 1] = seconds, num_bytes, sums[4, f] + regret[r]
        after = free[f + 1]
        is_equal = kind[ti * num_layers + item_layer[after]] == kind[ti * num_layers + item_layer[i]]
        chosen[f + 1] = item_first[after] - 1 + (r - item_first[i] if is_equal else 0)
        f += 1
    return TOO_MUCH
