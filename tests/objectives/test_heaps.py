"""Heaps of pairs give back the smallest first, whatever was pushed and popped before."""

from __future__ import annotations

import heapq

import numpy as np
from interpreted import interpreted

from placekit.objectives.makespan import heaps, kernels


def test_heaps_agree_with_those_of_python() -> None:
    """Ties of keys go by place; what lies before the heap in the same array is left alone."""
    rng = np.random.default_rng(63)
    base, keys, places = 3, np.full(60, -1.0), np.full(60, -1)
    known: list[tuple[float, int]] = []
    with interpreted(heaps):
        for place in rng.permutation(400).tolist():
            if len(known) == 40 or (known and rng.random() < 0.45):
                heapq.heappop(known)
                heaps.pop(keys, places, base, len(known))
            else:
                key = float(rng.integers(4))
                heaps.push(keys, places, base, len(known), key, place)
                heapq.heappush(known, (key, place))
            if known:
                assert (keys[base], places[base]) == known[0]
            held = zip(keys[base:].tolist(), places[base:].tolist(), strict=True)
            assert sorted(pair for pair, _ in zip(held, known, strict=False)) == sorted(known)
    assert known
    assert (keys[:base] == -1).all()
    assert (places[:base] == -1).all()


def test_events_come_in_the_order_of_their_times() -> None:
    """Each with its own code, of many that are pushed while others are taken."""
    rng = np.random.default_rng(64)
    times, codes = np.full(42, np.inf), np.full(42, -1)
    known: list[float] = []
    time_of: dict[int, float] = {}
    with interpreted(kernels):
        for code in range(600):
            if len(known) == 40 or (known and rng.random() < 0.45):
                time = heapq.heappop(known)
                assert (times[0], time_of.pop(int(codes[0]))) == (time, time)
                size = kernels._pop_event(times, codes, len(known) + 1)
            else:
                time_of[code] = float(rng.integers(100))
                heapq.heappush(known, time_of[code])
                size = kernels._push_event(times, codes, len(known) - 1, time_of[code], code)
            assert size == len(known) == len(time_of)
            assert np.isinf(times[max(size, 1) :]).all()
    assert known
