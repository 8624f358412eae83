r"""What the first and the last moments of a schedule lose: a bound by search from both ends.

Weights say what a second of each device is worth, and prices what an op must pay at least
(:func:`~placekit.solvers.makespan.bounds.shared_work.weigh_devices`). The makespan is what all ops pay at least, plus
what
schedules lose: seconds in which devices idle, and ops that pay more than the least. Nothing of that can be negative, so
what is lost at the end is a bound on it; and there a few ops decide, with tensors that all the others wait for. The
same holds at the beginning, of other ops and other seconds, so the two can be added.

Read backwards, an ending is the beginning of a schedule of the reversed graph. Beginnings are enumerated by the A*
algorithm, the op that starts first first: a state is the set of ops that are done, when every device is free, and when
the inputs of the others are known. The least loss of a beginning that has been seen but not extended is a bound at any
moment. It is also what has been lost in all schedules when the horizon is reached.

Most of what is seen loses too much to be extended before the memory is full. So searches follow one another, each with
room for twice as many states as the one before, and keep none that loses much more than that one has proven: an eighth
of the states, for the same bound.

A state is dropped if another one, of the same ops, is no later anywhere, and has lost no more once it has waited for
the first one. Ops on which nothing depends may be missing from the first one. The other one idles while the first one
runs them, so it must have lost less by what they are credited for, at most.

Notes
-----
Memory limits and classes of several ops are left out, and a late op may start before its head; that weakens the bound.
What a state costs is said in :mod:`placekit.solvers.makespan.bounds.both_ends_search`; how many there are grows
exponentially with the loss.

References
----------
Hart, Nilsson, Raphael, "A formal basis for the heuristic determination of minimum cost paths", IEEE Trans. Systems
Science and Cybernetics 4(2), 1968.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from time import perf_counter

import numpy as np

from placekit.solvers.makespan.bounds.both_ends_search import least_loss
from placekit.solvers.makespan.bounds.both_ends_state import Side
from placekit.solvers.makespan.bounds.shared_work import Weights, weigh_devices
from placekit.solvers.makespan.bounds.windows import Windows
from placekit.solvers.makespan.schedule.tasks import Tasks

__all__ = ["MAX_OPS_ENDINGS", "lost_at_ends", "sides_of"]

MAX_OPS_ENDINGS = 1_000
"""Ops up to which the ends are searched: a state takes time and memory for every op."""
FIRST_STATES, MOST_STATES = 8_000, 2_048_000
"""States of a search: twice as many in each, which takes hundredths of a second at first, and some seconds at last."""
DEEPER = 2
"""What a search may prove more than the one before, in units of what that one did: it keeps no states beyond."""
NEARLY = 0.95
"""After the first search, others follow where the bound reaches this share of the limit: ends lose some percent."""
MOST_TIMES = 64_000_000
"""Times that states may remember in all, 8 bytes each."""
ROUNDING = 1e-6
"""Of the limit: more than the searches may be wrong by where they take times for the same."""


def lost_at_ends(
    tasks: Tasks,
    windows: Windows,
    low_s: float,
    limit_s: float,
    time_limit_s: float,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[float]:
    """Yield bounds on the makespan in seconds, each from a longer search than the one before.

    Parameters
    ----------
    tasks, windows
        The tasks with all devices, and their windows under the limit.
    low_s, limit_s
        Known bound and known makespan. No schedule at all may be shorter than the bound: how far the ends reach, and
        which rows hold, depends on it. What is yielded may exceed the limit; it proves no more than the limit then.
    time_limit_s
        Seconds for all searches. One begins only if it can be expected to end by then.
    should_stop
        Asked before every search.
    """
    weights = weigh_devices(windows, low_s, limit_s)
    if weights is None or weights.bound_s >= limit_s:
        return
    sides = sides_of(tasks, windows, weights, low_s, limit_s)
    lost, gained, is_settled = [0.0] * len(sides), [math.inf] * len(sides), [side.horizon <= 0.0 for side in sides]
    started_s, num_states = perf_counter(), FIRST_STATES
    while not all(is_settled) and num_states <= MOST_STATES:
        round_s = perf_counter()
        for i, side in enumerate(sides):
            if is_settled[i]:
                continue
            if should_stop():
                return
            most = 1.0 - weights.bound_s / limit_s - (sum(lost) - lost[i])
            at_most = min(most, lost[i] + DEEPER * gained[i])
            found, is_complete = least_loss(side, at_most, num_states, MOST_TIMES)
            gained[i] = found - lost[i] if found > lost[i] else math.inf
            is_settled[i] = (
                (is_complete and (found < at_most or at_most == most))
                # where twice as many states prove nothing, more of them hardly do
                or (num_states > FIRST_STATES and found <= lost[i])
            )
            lost[i] = max(lost[i], found)
            bound_s = weights.bound_s + (sum(lost) - ROUNDING) * limit_s
            yield bound_s
            if bound_s >= limit_s:
                return
        num_states *= 2
        now_s = perf_counter()
        if bound_s < NEARLY * limit_s or now_s - started_s + 2 * (now_s - round_s) > time_limit_s:
            return


def sides_of(tasks: Tasks, windows: Windows, weights: Weights, low_s: float, limit_s: float) -> list[Side]:
    """Return the graph read from its beginning, and from its end; no op and no second counts for both."""
    num_ops, group = tasks.num_ops, tasks.group
    time_s, head_s, tail_s = (times[:, group] for times in windows.by_group())
    longest_s = float(time_s[np.isfinite(time_s)].max())
    class_of_op = windows.tasks.class_of_op
    is_alone = np.bincount(class_of_op)[class_of_op] == 1
    price_s = weights.price_s[:, group]
    least_s = np.where(
        is_alone[:, None], price_s.min(axis=1, keepdims=True), np.where(np.isfinite(price_s), price_s, 0)
    )
    delay_s = tasks.pair_delay_s()
    key = np.random.default_rng(0).integers(1, 2**63, num_ops).astype(np.uint64)
    sides = []
    for is_backward in (False, True):
        early_s, since_s, until_s = (
            (tail_s, weights.late_s, weights.early_s) if is_backward else (head_s, weights.early_s, weights.late_s)
        )
        # until then all rows hold that begin at this end, and no op counts at both ends
        horizon_s = min(low_s - until_s.max(initial=0.0) - longest_s, (low_s - longest_s) / 2)
        senders, receivers, delay = tasks.senders, tasks.receivers, delay_s
        if is_backward:
            senders, receivers, delay = receivers, senders, delay_s.transpose(0, 2, 1)
        by_receiver, by_sender = np.argsort(receivers, kind="stable"), np.argsort(senders, kind="stable")
        out_offsets = np.searchsorted(senders[by_sender], np.arange(num_ops + 1))
        times = (time_s, least_s, early_s, delay[by_receiver], since_s[group])
        out_edges = np.argsort(by_receiver)[by_sender]  # where an edge is among those by receiver
        time, least, early, in_delay, since = (np.ascontiguousarray(values) / limit_s for values in times)
        side = Side(
            time=time,
            least=least,
            early=early,
            in_offsets=np.searchsorted(receivers[by_receiver], np.arange(num_ops + 1)),
            in_ops=senders[by_receiver],
            in_delay=in_delay,
            out_offsets=out_offsets,
            out_edges=out_edges,
            out_ops=receivers[by_sender],
            rate=weights.rate[group],
            since=since,
            group=group,
            key=np.where(np.diff(out_offsets) > 0, key, np.uint64(0)),
            horizon=float(horizon_s / limit_s),
        )
        sides.append(side)
    return sides
