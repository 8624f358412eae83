r"""Steepest descent and ejection chains under the lexicographic order of load profiles.

The profile of a placement is its vector of loads, sorted with the largest first (of two passes: the two sorted vectors
added). A move is taken iff the profile falls lexicographically, so that plateaus of equal largest load are left where
a second load can fall, and no cycle is possible. When no single move helps, an *ejection chain* takes a class off a
fullest device whatever that does to the device that receives it, then relieves that device in turn, and so on; the
shortest prefix that lowers the profile is kept, else all is undone (Glover 1996).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.compiled import njit, part
from placekit.solvers.assignment.flat import FlatProblem
from placekit.solvers.throughput.local_search.draws import below, shuffled
from placekit.solvers.throughput.local_search.sorting import sort
from placekit.solvers.throughput.local_search.state import State, is_acyclic_after, move, transfer_change

__all__ = ["descend", "eject", "is_below", "profile_of"]

TOLERANCE = 1e-12
"""Relative difference below which two loads count as equal: they are kept up to date by additions."""
SAMPLE = 64
"""Classes of a device that a link of a chain looks at, at random, where there are more."""


@part
def profile_of(work_s: NDArray[np.float64], moved_s: NDArray[np.float64], has_overlap: bool) -> NDArray[np.float64]:
    """``[D]`` load profile of ``[D, P]`` seconds of work and of transfers."""
    num_devices = len(work_s)
    profile, load = np.zeros(num_devices), np.empty(num_devices)
    for p in range(work_s.shape[1]):
        for d in range(num_devices):
            work, moved = work_s[d, p], moved_s[d, p]
            load[d] = max(work, moved) if has_overlap else work + moved
        sort(load, 0, num_devices)
        for d in range(num_devices):
            profile[d] += load[num_devices - 1 - d]
    return profile


@part
def is_below(a: NDArray[np.float64], b: NDArray[np.float64]) -> bool:
    """Return True if profile `a` is lexicographically below `b`, by more than rounding."""
    tolerance = TOLERANCE * max(b[0], a[0])
    for i in range(len(a)):
        if a[i] < b[i] - tolerance:
            return True
        if a[i] > b[i] + tolerance:
            return False
    return False


@part
def _profile_after(
    flat: FlatProblem, state: State, c: int, target: int, out_s: NDArray[np.float64], in_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the profile once `c` moved to `target`; fills `out_s` and `in_s` as `transfer_change` does."""
    source = state.device[c]
    transfer_change(flat, state, c, target, out_s, in_s)
    work_s, moved_s = state.work_s.copy(), state.moved_s.copy()
    for p in range(len(out_s)):
        work_s[source, p] -= flat.time_s[c, flat.kind[source], p]
        work_s[target, p] += flat.time_s[c, flat.kind[target], p]
        moved_s[source, p] += out_s[p]
        moved_s[target, p] += in_s[p]
    return profile_of(work_s, moved_s, flat.has_overlap)


@part
def _can_move(flat: FlatProblem, state: State, c: int, target: int) -> bool:
    if state.device[c] == target or not flat.allowed[c, target]:
        return False
    if state.used_bytes[target] + flat.memory_bytes[c] > flat.limit_bytes[target]:
        return False
    return not flat.is_ordered or is_acyclic_after(flat, state, c, target)


@njit(cache=True, nogil=True)
def descend(flat: FlatProblem, state: State, seed: int) -> bool:
    """Visit every class once, in random order, and make its best move if that lowers the profile.

    Returns
    -------
    bool
        True if some class moved.

    Notes
    -----
    O(devices * (pins + classes * devices log devices)).
    """
    np.random.seed(seed)  # noqa: NPY002  # numba's own generator
    num_devices, num_passes = state.work_s.shape
    out_s, in_s = np.zeros(num_passes), np.zeros(num_passes)
    current = profile_of(state.work_s, state.moved_s, flat.has_overlap)
    improved = False
    for c in shuffled(len(state.device)):
        best, chosen = current, -1
        for target in range(num_devices):
            if state.device[c] == target or not flat.allowed[c, target]:
                continue
            after = _profile_after(flat, state, c, target, out_s, in_s)
            if is_below(after, best) and _can_move(flat, state, c, target):
                best, chosen = after, target
        if chosen >= 0:
            transfer_change(flat, state, c, chosen, out_s, in_s)
            move(flat, state, c, chosen, out_s, in_s)
            current = best
            improved = True
    return improved


@part
def _fullest(flat: FlatProblem, state: State) -> int:
    best, chosen = -1.0, 0
    for d in range(len(state.work_s)):
        load = 0.0
        for p in range(state.work_s.shape[1]):
            work, moved = state.work_s[d, p], state.moved_s[d, p]
            load += max(work, moved) if flat.has_overlap else work + moved
        if load > best:
            best, chosen = load, d
    return chosen


@njit(cache=True, nogil=True)
def eject(flat: FlatProblem, state: State, depth: int, num_chains: int, seed: int) -> int:
    """Try ejection chains that start at a fullest device.

    Parameters
    ----------
    flat, state
        The problem and a placement of it that keeps every constraint; it still does afterwards.
    depth
        Most moves in a chain.
    num_chains
        Number of attempts.
    seed
        Seed of the choices.

    Returns
    -------
    int
        Number of chains that lowered the profile.

    Notes
    -----
    O(depth * SAMPLE * devices) looks per attempt.
    """
    np.random.seed(seed)  # noqa: NPY002  # numba's own generator
    num_devices, num_passes = state.work_s.shape
    num_classes = len(state.device)
    out_s, in_s = np.zeros(num_passes), np.zeros(num_passes)
    best_out, best_in = np.zeros(num_passes), np.zeros(num_passes)
    start = profile_of(state.work_s, state.moved_s, flat.has_overlap)
    trail = np.empty(depth, dtype=np.int64)
    origin = np.empty(depth, dtype=np.int64)
    used = np.full(num_classes, -1, dtype=np.int64)
    members = np.empty(num_classes, dtype=np.int64)
    successes = 0
    for chain in range(num_chains):
        device = _fullest(flat, state)
        length = 0
        kept = False
        while length < depth:
            num_members = 0
            for c in range(num_classes):
                if state.device[c] == device and used[c] != chain:
                    members[num_members] = c
                    num_members += 1
            best = np.full(num_devices, np.inf)
            chosen, to = -1, -1
            # the first link is drawn at random, or every chain would be the same
            looks = min(num_members, SAMPLE if length > 0 else max(1, SAMPLE // 8))
            for i in range(looks):
                j = i + below(num_members - i)
                members[i], members[j] = members[j], members[i]
                c = members[i]
                for target in range(num_devices):
                    if state.device[c] == target or not flat.allowed[c, target]:
                        continue
                    after = _profile_after(flat, state, c, target, out_s, in_s)
                    if (chosen < 0 or is_below(after, best)) and _can_move(flat, state, c, target):
                        best, chosen, to = after, c, target
                        best_out[:] = out_s
                        best_in[:] = in_s
            if chosen < 0:
                break
            trail[length], origin[length] = chosen, state.device[chosen]
            used[chosen] = chain
            move(flat, state, chosen, to, best_out, best_in)
            length += 1
            if is_below(best, start):
                start = best
                successes += 1
                kept = True
                break
            device = to
        if not kept:
            for i in range(length - 1, -1, -1):
                transfer_change(flat, state, trail[i], origin[i], out_s, in_s)
                move(flat, state, trail[i], origin[i], out_s, in_s)
    return successes
