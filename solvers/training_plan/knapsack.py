"""Kernel that picks the choices of one stage: a multiple-choice knapsack."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import by_reference, njit

FITS, TOO_MUCH, GAVE_UP = 1, 0, -1
_OPEN = 2
"""Neither a fit nor a proof yet."""
GREEDY = -1
"""Value of `max_nodes` that trades seconds for bytes greedily, without a proof."""
_MAX_PIVOTS = 64
"""Largest number of multipliers; the dual has few break points, and each multiplier halves them."""


class ChoiceRows(NamedTuple):
    """Choices of all layers, in the order of :class:`placekit.solvers.training_plan.tables.Tables`."""

    choice_offsets: NDArray[np.int64]
    time_s: NDArray[np.float64]
    gradient_bytes: NDArray[np.float64]
    memory_a: NDArray[np.float64]
    memory_b: NDArray[np.float64]
    extra_offsets: NDArray[np.int64]
    extra_other: NDArray[np.int64]
    extra_s: NDArray[np.float64]
    kind: NDArray[np.int64]


class Span(NamedTuple):
    """Layers of a stage: those of ideal `upto` that ideal `before` lacks, by one tensor degree."""

    before: int
    upto: int
    ti: int  # index of the tensor degree


class Budget(NamedTuple):
    """Limits of one replica of a stage."""

    in_flight: int  # microbatches
    gradient_s: float  # seconds per byte of gradients
    seconds: float  # for the choices of all layers
    memory_bytes: float


class Scratch(NamedTuple):
    """Room for a knapsack of up to L items, the layers of the stage, and R rows, their choices."""

    layer: NDArray[np.int64]  # ``[L]`` of every item
    first: NDArray[np.int64]  # ``[L + 1]`` first row of every item
    free: NDArray[np.int64]  # ``[L]`` items that are searched
    chosen: NDArray[np.int64]  # ``[L]`` row of every item
    cost: NDArray[np.float64]  # ``[R]`` seconds
    held: NDArray[np.float64]  # ``[R]`` bytes
    original: NDArray[np.int64]  # ``[R]`` global index of the choice
    regret: NDArray[np.float64]  # ``[R]`` what the row costs beyond the best of its item, under the multiplier
    # ``[5, L + 1]`` of free items: 0, 1: least seconds and bytes from each on; 2 to 4: seconds, bytes and regret before
    sums: NDArray[np.float64]
    picked: NDArray[np.int64]  # ``[L]`` output: global index of the choice of every layer of the stage

    @classmethod
    def of(cls, offsets: NDArray[np.int64], num_layers: int) -> Scratch:
        """Return room for every stage of `num_layers` layers whose choices have these offsets."""
        rows = int(np.diff(offsets).max()) * num_layers
        items = [np.zeros(num_layers + more, dtype=np.int64) for more in (0, 1, 0, 0)]
        return cls(
            *(items[0], items[1], items[2], items[3], np.zeros(rows), np.zeros(rows), np.zeros(rows, dtype=np.int64)),
            *(np.zeros(rows), np.zeros((5, num_layers + 1)), np.zeros(num_layers, dtype=np.int64)),
        )


class Extremes(NamedTuple):
    """Seconds and bytes of two sets of choices: too much memory on the left, too much time on the right."""

    left_s: float
    left_bytes: float
    right_s: float
    right_bytes: float


@njit(inner=True)
def holds(bits: NDArray[np.uint64], ideal: int, v: int) -> bool:
    """Return whether an ideal holds layer `v`."""
    word: np.uint64 = bits[ideal, v >> 6] >> np.uint64(v & 63)
    return bool(word & np.uint64(1))


@njit
def choose(choices: Any, bits: NDArray[np.uint64], span: Span, budget: Budget, max_nodes: int, scratch: Any) -> int:
    """Find one choice per layer of a stage within budgets of time and memory; write them to ``scratch.picked``.

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
    scratch = by_reference(scratch)
    return int(choose_by_reference(by_reference(choices), bits, span, budget, max_nodes, scratch))


@njit(inner=True, allocates=False)
def choose_by_reference(choices: Any, bits: Any, span: Any, budget: Any, max_nodes: Any, scratch: Any) -> Any:
    """As `choose`, for kernels that have references."""
    n, ends = _gather(choices, bits, span, budget, scratch)
    if ends.left_s > budget.seconds or ends.right_bytes > budget.memory_bytes:
        return TOO_MUCH
    if ends.left_bytes <= budget.memory_bytes:
        return FITS
    if max_nodes == GREEDY:
        return _trade(n, ends, budget, scratch)
    if ends.right_s <= budget.seconds:
        _pick_chosen(n, scratch)
        return FITS
    answer, price, slack = _pivot(n, ends, budget, scratch)
    if answer != _OPEN:
        return answer
    kinds = choices.kind[span.ti * len(scratch.layer) :]
    num_free, seconds, num_bytes = _free_items(n, kinds, price, slack, scratch)
    if num_free == 0:
        return FITS if seconds <= budget.seconds and num_bytes <= budget.memory_bytes else TOO_MUCH
    scratch.sums[2, 0], scratch.sums[3, 0], scratch.sums[4, 0] = seconds, num_bytes, 0.0
    return _search(num_free, kinds, slack, budget, max_nodes, scratch)


@njit(inner=True, allocates=False)
def _gather(choices: Any, bits: Any, span: Any, budget: Any, scratch: Any) -> Any:
    """Write items and rows, with the fastest choices picked and the lightest chosen; return how many, and the ends."""
    offsets, extra_offsets = choices.choice_offsets, choices.extra_offsets
    cost, held = scratch.cost, scratch.held
    num_layers = len(scratch.layer)
    n, num_rows = 0, 0
    left_s, left_bytes, right_s, right_bytes = 0.0, 0.0, 0.0, 0.0
    for v in range(num_layers):
        if not holds(bits, span.upto, v) or holds(bits, span.before, v):
            continue
        scratch.layer[n], scratch.first[n] = v, num_rows
        fast, light = -1, -1
        for c in range(offsets[span.ti * num_layers + v], offsets[span.ti * num_layers + v + 1]):
            seconds = choices.time_s[c] + budget.gradient_s * choices.gradient_bytes[c]
            for x in range(extra_offsets[c], extra_offsets[c + 1]):
                other = choices.extra_other[x]
                if not holds(bits, span.upto, other) or holds(bits, span.before, other):
                    seconds += choices.extra_s[x]
            r = num_rows
            cost[r], held[r] = seconds, choices.memory_a[c] * budget.in_flight + choices.memory_b[c]
            scratch.original[r] = c
            if fast < 0 or cost[r] < cost[fast] or (cost[r] == cost[fast] and held[r] < held[fast]):
                fast = r
            if light < 0 or held[r] < held[light] or (held[r] == held[light] and cost[r] < cost[light]):
                light = r
            num_rows += 1
        left_s += cost[fast]
        left_bytes += held[fast]
        right_s += cost[light]
        right_bytes += held[light]
        scratch.picked[v] = scratch.original[fast]
        scratch.chosen[n] = light
        n += 1
    scratch.first[n] = num_rows
    return n, Extremes(left_s, left_bytes, right_s, right_bytes)


@njit(inner=True, allocates=False)
def _pick_chosen(n: Any, scratch: Any) -> Any:
    """Pick the row that is chosen of every item."""
    for i in range(n):
        scratch.picked[scratch.layer[i]] = scratch.original[scratch.chosen[i]]


@njit(inner=True, allocates=False)
def _row_picked(i: Any, scratch: Any) -> Any:
    """Return the row of item `i` that is picked."""
    row = scratch.first[i]
    while scratch.original[row] != scratch.picked[scratch.layer[i]]:
        row += 1
    return row


@njit(inner=True, allocates=False)
def _trade(n: Any, ends: Any, budget: Any, scratch: Any) -> Any:
    """Trade the fastest choices for the most bytes per second until the stage fits."""
    first, cost, held = scratch.first, scratch.cost, scratch.held
    seconds, num_bytes = ends.left_s, ends.left_bytes
    while num_bytes > budget.memory_bytes:
        best_trade, best_item, best_row = -1.0, -1, -1
        for i in range(n):
            now = _row_picked(i, scratch)
            for r in range(first[i], first[i + 1]):
                if held[r] < held[now]:
                    trade = (held[now] - held[r]) / max(cost[r] - cost[now], 1e-300)
                    if trade > best_trade:
                        best_trade, best_item, best_row = trade, i, r
        now = _row_picked(best_item, scratch)
        scratch.picked[scratch.layer[best_item]] = scratch.original[best_row]
        seconds += cost[best_row] - cost[now]
        num_bytes += held[best_row] - held[now]
    return FITS if seconds <= budget.seconds else TOO_MUCH


@njit(inner=True, allocates=False)
def _pivot(n: Any, ends: Any, budget: Any, scratch: Any) -> Any:
    """Return an answer, or `_OPEN`, the best multiplier and the slack of its dual."""
    first, cost, held = scratch.first, scratch.cost, scratch.held
    left_s, left_bytes, right_s, right_bytes = ends.left_s, ends.left_bytes, ends.right_s, ends.right_bytes
    price, floor = 0.0, 0.0
    for _ in range(_MAX_PIVOTS):
        price = (left_bytes - right_bytes) / (right_s - left_s)
        seconds, num_bytes = 0.0, 0.0
        for i in range(n):
            r = first[i]
            for other in range(r + 1, first[i + 1]):
                if held[other] + price * cost[other] < held[r] + price * cost[r]:
                    r = other
            scratch.chosen[i] = r
            seconds += cost[r]
            num_bytes += held[r]
        floor = num_bytes + price * seconds
        if seconds <= budget.seconds and num_bytes <= budget.memory_bytes:
            _pick_chosen(n, scratch)
            return FITS, price, 0.0
        if floor > (budget.memory_bytes + price * budget.seconds) * (1 + 1e-12):
            return TOO_MUCH, price, 0.0
        if floor >= (left_bytes + price * left_s) * (1 - 1e-13):
            break
        if seconds <= budget.seconds:
            left_s, left_bytes = seconds, num_bytes
        else:
            right_s, right_bytes = seconds, num_bytes
    slack = budget.memory_bytes + price * budget.seconds - floor
    return _OPEN, price, slack + 1e-12 * (budget.memory_bytes + price * budget.seconds)


@njit(inner=True, allocates=False)
def _free_items(n: Any, kinds: Any, price: Any, slack: Any, scratch: Any) -> Any:
    """Sort the rows of every item by regret, and the items with several rows within `slack` by their second one.

    Returns how many items are free, and the seconds and bytes of all others, which take their first row.
    """
    cost, held, original, regret, free = scratch.cost, scratch.held, scratch.original, scratch.regret, scratch.free
    num_free, seconds, num_bytes = 0, 0.0, 0.0
    for i in range(n):
        first, last = scratch.first[i], scratch.first[i + 1]
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
        scratch.picked[scratch.layer[i]] = original[first]
        if last - first > 1 and regret[first + 1] <= slack:
            at = num_free
            while at > 0:
                previous = free[at - 1]
                ahead = regret[scratch.first[previous] + 1] - regret[first + 1]
                order = kinds[scratch.layer[previous]] - kinds[scratch.layer[i]]
                if ahead > 0 or (ahead == 0 and order <= 0):
                    break
                free[at] = previous
                at -= 1
            free[at] = i
            num_free += 1
        else:
            seconds += cost[first]
            num_bytes += held[first]
    return num_free, seconds, num_bytes


@njit(inner=True, allocates=False)
def _search(num_free: Any, kinds: Any, slack: Any, budget: Any, max_nodes: Any, scratch: Any) -> Any:
    """Search the rows of free items whose regrets sum to `slack` at the most, depth first."""
    cost, held, regret, sums, free = scratch.cost, scratch.held, scratch.regret, scratch.sums, scratch.free
    chosen, layer = scratch.chosen, scratch.layer
    sums[0, num_free], sums[1, num_free] = 0.0, 0.0
    for f in range(num_free - 1, -1, -1):
        first, last = scratch.first[free[f]], scratch.first[free[f] + 1]
        least_s, least_b = cost[first], held[first]
        for r in range(first + 1, last):
            if regret[r] <= slack:
                least_s, least_b = min(least_s, cost[r]), min(least_b, held[r])
        sums[0, f], sums[1, f] = sums[0, f + 1] + least_s, sums[1, f + 1] + least_b
    f, nodes = 0, 0
    chosen[0] = scratch.first[free[0]] - 1
    while f >= 0:
        i = free[f]
        chosen[f] += 1
        r = chosen[f]
        if r >= scratch.first[i + 1] or sums[4, f] + regret[r] > slack:
            f -= 1
            continue
        nodes += 1
        if nodes > max_nodes:
            return GAVE_UP
        seconds, num_bytes = sums[2, f] + cost[r], sums[3, f] + held[r]
        if seconds + sums[0, f + 1] > budget.seconds or num_bytes + sums[1, f + 1] > budget.memory_bytes:
            continue
        if f == num_free - 1:
            for g in range(num_free):
                scratch.picked[layer[free[g]]] = scratch.original[chosen[g]]
            return FITS
        sums[2, f + 1], sums[3, f + 1], sums[4, f + 1] = seconds, num_bytes, sums[4, f] + regret[r]
        after = free[f + 1]
        is_equal = kinds[layer[after]] == kinds[layer[i]]
        chosen[f + 1] = scratch.first[after] - 1 + (r - scratch.first[i] if is_equal else 0)
        f += 1
    return TOO_MUCH
