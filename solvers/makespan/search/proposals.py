"""Random proposals of the annealing of placement and order.

- On an arc of the critical path with a transfer the two ops are brought together. If only the device makes one op wait
  for the other, the ops are reordered or separated.
- Elsewhere classes move to the device of a neighbour or to a random one, alone or in connected groups, and ops shift
  inside their windows.
- If work binds, every device is critical, and a move needs a move back. Two classes that run at about the same time
  exchange their devices; of a few candidates the pair that changes the loads least. A long op is traded for several
  short ones.
"""

from __future__ import annotations

import math

import numpy as np

from placekit.kernels import njit
from placekit.solvers.makespan.schedule.sequence import SequenceProblem
from placekit.solvers.makespan.search.moves import (
    exchange,
    move_class,
    move_group,
    place_in_time,
    pull,
    push,
    shift,
    window,
)
from placekit.solvers.makespan.search.walk import NOTHING, PATH_LENGTH, STAMP, TRANSFER, Walk

CRITICAL_SHARE = 0.6
"""Share of the proposals that are about an arc of the critical path."""
NEIGHBOUR_SHARE = 0.6
"""Share of the moves whose target is the device of a producer or reader."""
SEND, GROUP, PULL, PUSH, SHIFT, TRADE, EXCHANGE = range(7)
"""Actions: send a class, or a connected group, to a device; move an op forward or backward, or anywhere; let one class
change places with several, or with one."""
ANYWHERE = NOTHING + 1
"""What a proposal is about if not an arc of the critical path, of which `NOTHING` is the last kind."""
SHARES = (
    # send, group, pull, push, shift, trade, exchange
    (0.40, 0.05, 0.00, 0.00, 0.00, 0.17, 0.38),  # SAME_DEVICE
    (0.75, 0.05, 0.00, 0.00, 0.00, 0.06, 0.14),  # TRANSFER
    (0.20, 0.03, 0.15, 0.10, 0.00, 0.16, 0.36),  # MACHINE
    (0.40, 0.05, 0.00, 0.00, 0.00, 0.17, 0.38),  # NOTHING
    (0.30, 0.02, 0.00, 0.00, 0.10, 0.17, 0.41),  # ANYWHERE
)
"""Share of each action by what the proposal is about."""
LARGEST_GROUP = 5
"""Groups are of at most ``2 ** LARGEST_GROUP`` ops."""
NEARBY = 16
"""Positions within which two classes change places."""
PARTNERS = 4
"""Ops that are looked at before one is chosen to change places."""
LARGEST_OF = 6
"""Ops of which the longest changes places with several."""
NEARER = 8
"""Positions within which these several are."""
SEVERAL = 4
"""How many they are at most."""
UNEVEN = 0.3
"""Time that may be left over after such a trade, as a share of the time of the long op."""


@njit(inline=True, allocates=False)
def _below(count: int) -> int:
    """Return a random index below `count`."""
    return min(int(np.random.random() * count), count - 1)  # noqa: NPY002  # numba has only the old generators


@njit(inline=True, allocates=False)
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


@njit(inline=True, allocates=False)
def _target(flat: SequenceProblem, walk: Walk, v: int) -> int:
    """Return the device of a neighbour of op `v`, or any other."""
    if np.random.random() < NEIGHBOUR_SHARE:  # noqa: NPY002
        d = walk.device[_neighbour(flat, v)]
        if d != walk.device[v]:
            return int(d)
    return _below(len(walk.used_bytes))


@njit(inline=True, allocates=False)
def _near(walk: Walk, v: int, reach: int) -> int:
    """Return a random op at most `reach` positions from op `v`."""
    i = walk.position[v] + _below(2 * reach + 1) - reach
    return int(walk.sequence[min(max(i, 0), len(walk.sequence) - 1)])


@njit(inner=True, allocates=False)
def _exchange(flat: SequenceProblem, walk: Walk, v: int) -> int:
    """Exchange op `v` with the best of a few random ops near it."""
    classes, a = flat.instance.class_of_op, walk.device[v]
    partner, least_s = v, math.inf
    for _ in range(PARTNERS):
        w = _near(walk, v, NEARBY)
        b = walk.device[w]
        if a == b or not flat.allowed[classes[v], b] or not flat.allowed[classes[w], a]:
            continue
        longer_s = max(flat.time_s[w, a] - flat.time_s[v, a], flat.time_s[v, b] - flat.time_s[w, b])
        if longer_s < least_s:
            least_s, partner = longer_s, w
    walk.kept[0] = partner
    return exchange(flat, walk, v, walk.device[partner], 1)


@njit(inner=True, allocates=False)
def _trade(flat: SequenceProblem, walk: Walk, v: int) -> int:
    """Trade the longest of a few ops near op `v` for several ops on a random device.

    Random ops there are taken as long as each brings the loads of the devices nearer to what they were.
    """
    for _ in range(LARGEST_OF - 1):
        w = _near(walk, v, NEARBY)
        if flat.time_s[w, walk.device[w]] > flat.time_s[v, walk.device[v]]:
            v = w
    classes, a, b = flat.instance.class_of_op, walk.device[v], _below(len(walk.used_bytes))
    if a == b or not flat.allowed[classes[v], b]:
        return -1
    walk.counters[STAMP] += 1
    stamp = walk.counters[STAMP]
    gain_a_s, gain_b_s, num_back = -flat.time_s[v, a], flat.time_s[v, b], 0
    for _ in range(2 * NEARER):
        w = _near(walk, v, NEARER)
        if walk.device[w] != b or walk.mark[w] == stamp or not flat.allowed[classes[w], a]:
            continue
        with_a_s, with_b_s = gain_a_s + flat.time_s[w, a], gain_b_s - flat.time_s[w, b]
        if max(with_a_s, with_b_s) >= max(gain_a_s, gain_b_s):
            continue
        gain_a_s, gain_b_s = with_a_s, with_b_s
        walk.mark[w] = stamp
        walk.kept[num_back] = w
        num_back += 1
        if num_back == SEVERAL:
            break
    if max(gain_a_s, gain_b_s) > UNEVEN * flat.time_s[v, a]:
        return -1
    return exchange(flat, walk, v, b, num_back)


@njit(inline=True, allocates=False)
def _choose(walk: Walk) -> tuple[int, int, int]:
    """Return the ends of a random arc of the critical path (the later first), and the kind of the arc.

    Off the path, and at its beginning, both ends are the same op.
    """
    length = walk.counters[PATH_LENGTH]
    if length == 0 or np.random.random() >= CRITICAL_SHARE:  # noqa: NPY002
        v = _below(len(walk.sequence))
        return v, v, ANYWHERE
    k = _below(length)
    v, why = walk.path[k], walk.why[k]
    return int(v), int(v if why == NOTHING else walk.path[k + 1]), int(why)


@njit(inline=True, allocates=False)
def _draw(why: int) -> int:
    """Return a random action."""
    left = np.random.random()  # noqa: NPY002
    for action in range(EXCHANGE):
        left -= SHARES[why][action]
        if left < 0.0:
            return action
    return EXCHANGE


@njit(inner=True, allocates=False)
def propose(flat: SequenceProblem, walk: Walk) -> int:
    """Make a random proposal; return the first position touched, or -1 (some of it may be logged all the same)."""
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
        return _exchange(flat, walk, v)
    if action == TRADE:
        return _trade(flat, walk, v)
    target = walk.device[u] if why == TRANSFER else _target(flat, walk, v)
    if action == GROUP:
        return move_group(flat, walk, v, target, 2 << _below(LARGEST_GROUP))
    first = move_class(flat, walk, flat.instance.class_of_op[v], target)
    if first >= 0 and np.random.random() < 0.5:  # noqa: NPY002
        shifted = place_in_time(flat, walk, v)
        if shifted >= 0:
            first = min(first, shifted)
    return first
