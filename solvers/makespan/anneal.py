r"""Simulated annealing of placement and order together, guided by the critical path.

Every proposal is judged by the exact makespan. The threshold that it must meet is drawn before it is tried, so most
trials end early (:mod:`placekit.solvers.makespan.trial`).

The makespan alone is flat nearly everywhere. A proposal that lets the ops end later on average pays
:math:`w` times that delay beside its makespan; one that lets them end earlier gains nothing for it, so that the
threshold stays sharp.

Proposals: along an arc of the critical path the two ops are brought together if a transfer lies between them, and
reordered or separated if only the device makes one wait for the other; elsewhere classes move to the device of a
neighbour or a random one, move in connected groups, and ops shift inside their windows. Two classes change places if
they run at about the same time; of a few that could, those that leave the devices most nearly as busy as they were,
since where work binds every device is critical.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from placekit.compiled import kernel
from placekit.solvers.makespan.moves import (
    exchange,
    move_class,
    move_group,
    place_in_time,
    pull,
    push,
    shift,
    window,
)
from placekit.solvers.makespan.sequence import SequenceProblem
from placekit.solvers.makespan.trial import dearer, keeps, restore
from placekit.solvers.makespan.walk import (
    NOTHING,
    PATH_LENGTH,
    TRANSFER,
    Walk,
    forget,
    settle,
    touched,
    trace,
    undo,
)

__all__ = ["anneal"]

CRITICAL_SHARE = 0.6
"""Share of the proposals that are about an arc of the critical path."""
NEIGHBOUR_SHARE = 0.6
"""Share of the moves whose target is the device of a producer or reader."""
LARGEST_GROUP = 5
"""Groups are of at most ``2 ** LARGEST_GROUP`` ops."""
SEND, GROUP, PULL, PUSH, SHIFT, EXCHANGE = range(6)
"""Actions: send a class, or a connected group, to a device; move an op forward or backward; swap two classes."""
ANYWHERE = NOTHING + 1
"""What a proposal is about if not an arc of the critical path, of which `NOTHING` is the last kind."""
SHARES = (
    # send, group, pull, push, shift, exchange
    (0.40, 0.05, 0.00, 0.00, 0.00, 0.55),  # SAME_DEVICE
    (0.75, 0.05, 0.00, 0.00, 0.00, 0.20),  # TRANSFER
    (0.20, 0.03, 0.15, 0.10, 0.00, 0.52),  # MACHINE
    (0.40, 0.05, 0.00, 0.00, 0.00, 0.55),  # NOTHING
    (0.30, 0.02, 0.00, 0.00, 0.10, 0.58),  # ANYWHERE
)
"""Share of each action by what the proposal is about."""
NEARBY = 16
"""Positions within which two classes change places."""
PARTNERS = 4
"""Ops that are looked at before one is chosen to change places."""
SORT_EVERY = 64
"""Accepted proposals between two sortings of the sequence by start time, which changes no schedule."""


@kernel
def _below(count: int) -> int:
    """Return a random index below `count`."""
    return min(int(np.random.random() * count), count - 1)  # noqa: NPY002  # numba has only the old generators


@kernel
def _neighbour(flat: SequenceProblem, v: int) -> int:
    """Return a random producer or reader of op `v`, or `v` itself if it has none."""
    num_in = flat.instance.in_offsets[v + 1] - flat.instance.in_offsets[v]
    num_out = flat.instance.out_offsets[v + 1] - flat.instance.out_offsets[v]
    if num_in + num_out == 0:
        return v
    j = _below(num_in + num_out)
    if j < num_in:
        return int(flat.instance.producer[flat.instance.in_tensors[flat.instance.in_offsets[v] + j]])
    t = flat.instance.out_tensors[flat.instance.out_offsets[v] + j - num_in]
    num_readers = flat.instance.reader_offsets[t + 1] - flat.instance.reader_offsets[t]
    return int(flat.instance.readers[flat.instance.reader_offsets[t] + _below(num_readers)]) if num_readers else v


@kernel
def _target(flat: SequenceProblem, walk: Walk, v: int) -> int:
    """Return the device of a neighbour of op `v`, or any other."""
    if np.random.random() < NEIGHBOUR_SHARE:  # noqa: NPY002
        d = walk.device[_neighbour(flat, v)]
        if d != walk.device[v]:
            return int(d)
    return _below(len(walk.used_bytes))


@kernel
def _partner(flat: SequenceProblem, walk: Walk, v: int) -> int:
    """Return the op near op `v` that costs least to change places with: of a few at random; `v` if none can."""
    a, partner, least_s = walk.device[v], v, math.inf
    for _ in range(PARTNERS):
        i = walk.position[v] + _below(2 * NEARBY + 1) - NEARBY
        w = walk.sequence[min(max(i, 0), len(walk.sequence) - 1)]
        b = walk.device[w]
        if a == b or not flat.allowed[flat.instance.class_of_op[v], b]:
            continue
        if not flat.allowed[flat.instance.class_of_op[w], a]:
            continue
        longer_s = max(flat.time_s[w, a] - flat.time_s[v, a], flat.time_s[v, b] - flat.time_s[w, b])
        cost_s = longer_s + flat.price_s[v, b] - flat.price_s[v, a] + flat.price_s[w, a] - flat.price_s[w, b]
        if cost_s < least_s:
            least_s, partner = cost_s, w
    return int(partner)


@kernel
def _choose(walk: Walk) -> tuple[int, int, int]:
    """Return the two ends of a random arc of the critical path, the later one first, or one op twice; and what it is.

    Anywhere, and at the beginning of the path, it is one op.
    """
    length = walk.counters[PATH_LENGTH]
    if length == 0 or np.random.random() >= CRITICAL_SHARE:  # noqa: NPY002
        v = _below(len(walk.sequence))
        return v, v, ANYWHERE
    k = _below(length)
    v, why = walk.path[k], walk.why[k]
    return int(v), int(v if why == NOTHING else walk.path[k + 1]), int(why)


@kernel
def _draw(why: int) -> int:
    """Return a random action."""
    left = np.random.random()  # noqa: NPY002
    for action in range(EXCHANGE):
        left -= SHARES[why][action]
        if left < 0.0:
            return action
    return EXCHANGE


@kernel
def propose(flat: SequenceProblem, walk: Walk) -> int:
    """Change something at random; return the first position touched, or -1 (something may be logged all the same)."""
    v, u, why = _choose(walk)
    action = _draw(why)
    if action == PULL:
        while np.random.random() < 0.3 and walk.timeline.before[u] >= 0:  # noqa: NPY002
            u = walk.timeline.before[u]
        return pull(flat, walk, v, u)
    if action == PUSH:
        return push(flat, walk, u, v)
    if action == SHIFT:
        low, high = window(flat, walk, v)
        return shift(walk, v, low + _below(high - low + 1))
    if np.random.random() < 0.5:  # noqa: NPY002
        v, u = u, v
    if action == EXCHANGE:
        return exchange(flat, walk, flat.instance.class_of_op[v], flat.instance.class_of_op[_partner(flat, walk, v)])
    target = walk.device[u] if why == TRANSFER else _target(flat, walk, v)
    if action == GROUP:
        return move_group(flat, walk, v, target, 2 << _below(LARGEST_GROUP))
    first = move_class(flat, walk, flat.instance.class_of_op[v], target)
    if first >= 0 and np.random.random() < 0.5:  # noqa: NPY002
        shifted = place_in_time(flat, walk, v)
        if shifted >= 0:
            first = min(first, shifted)
    return first


@kernel
def sort_by_start(walk: Walk) -> None:
    """Sort the sequence by start time; ties keep their order, so no op changes its time."""
    start_s = walk.timeline.start_s
    for i in range(1, len(walk.sequence)):  # it is nearly sorted
        v = walk.sequence[i]
        k = i
        while k > 0 and start_s[walk.sequence[k - 1]] > start_s[v]:
            walk.sequence[k] = walk.sequence[k - 1]
            walk.position[walk.sequence[k]] = k
            k -= 1
        walk.sequence[k] = v
        walk.position[v] = k


@kernel
def anneal(
    flat: SequenceProblem,
    walk: Walk,
    best_device: NDArray[np.int64],
    best_sequence: NDArray[np.int64],
    best_s: float,
    weight: float,
    hot_s: float,
    cold_s: float,
    num_steps: int,
    seed: int,
) -> float:
    """Anneal from `walk`, and keep the best schedule on the way.

    Parameters
    ----------
    flat
        The problem.
    walk
        Where to start; where the walk ended, afterwards.
    best_device, best_sequence
        ``[V]`` overwritten with the best placement and order if they are better than `best_s`.
    best_s
        Makespan to beat, in seconds.
    weight
        Weight of the mean finish time in the cost.
    hot_s, cold_s
        First and last temperature in seconds; it falls geometrically.
    num_steps
        Number of proposals.
    seed
        Seed of the walk.

    Returns
    -------
    float
        The makespan of the best if it changed, else `best_s`.

    Notes
    -----
    O(ops + edges) per proposal, at worst.
    """
    np.random.seed(seed)  # noqa: NPY002  # numba's own generator
    value = settle(flat, walk, 0, len(walk.sequence))
    trace(flat, walk)
    if value < best_s:
        best_s = value
        _copy(walk, best_device, best_sequence)
    temperature = hot_s
    cooling = (cold_s / hot_s) ** (1.0 / num_steps) if hot_s > 0.0 else 0.0
    num_accepted = 0
    for _ in range(num_steps):
        temperature *= cooling
        forget(walk)
        first = propose(flat, walk)
        if first < 0:
            undo(flat, walk)
            continue
        slack = -temperature * math.log(max(np.random.random(), 1e-300))  # noqa: NPY002
        limit_s = value + slack - dearer(flat, walk)
        end = touched(flat, walk, first)
        is_kept, tried = keeps(flat, walk, first, end, limit_s, value, weight)
        if not is_kept:
            restore(flat, walk, first, tried)
            undo(flat, walk)
            continue
        value = settle(flat, walk, first, end)
        num_accepted += 1
        if num_accepted % SORT_EVERY == 0:
            sort_by_start(walk)
            settle(flat, walk, 0, len(walk.sequence))
        trace(flat, walk)
        if value < best_s:
            best_s = value
            _copy(walk, best_device, best_sequence)
    return best_s


@kernel
def _copy(walk: Walk, device: NDArray[np.int64], sequence: NDArray[np.int64]) -> None:
    for i in range(len(device)):
        device[i], sequence[i] = walk.device[i], walk.sequence[i]
