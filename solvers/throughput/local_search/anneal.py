r"""Simulated annealing of single moves and swaps, under a smooth potential of the load vector.

The largest load alone is a plateau nearly everywhere: most moves do not touch the fullest device. The potential

.. math:: \Phi = \sum_p \frac{T_p}{\sum T} \sum_d \Bigl(\frac{load_p(d)}{T_p}\Bigr)^q + \lambda \cdot overflow

(:math:`T_p`: largest load of pass p in the best placement known) sees all devices, the fuller the more; as :math:`q`
grows, comparing potentials becomes comparing sorted load vectors lexicographically. Where a device computes and
transfers at the same time, its work and its transfers count as two loads.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import by_reference, njit
from placekit.solvers.assignment.flat import FlatProblem
from placekit.solvers.generic.draws import Cooling, below
from placekit.solvers.throughput.local_search.state import (
    State,
    is_acyclic_after,
    load_state,
    move,
    objective,
    overflow,
    transfer_change,
)

OVERFLOW_WEIGHT = 10.0
"""Potential of one limit's worth of bytes above a limit: more than a few times a device's whole load at par."""
SWAP_SHARE = 0.1
"""Share of proposals that swap two classes instead of moving one."""
NEIGHBOUR_SHARE = 0.7
"""Share of moves whose target is the device of a class that shares a net."""


@njit(inline=True, allocates=False)
def _penalty(work: float, moved: float, scale: float, squarings: int, has_overlap: bool) -> float:
    """Return ``(load / scale) ** (2 ** squarings)``; of work and transfers apart if they overlap."""
    x = work / scale if has_overlap else (work + moved) / scale
    y = moved / scale if has_overlap else 0.0
    for _ in range(squarings):
        x *= x
        y *= y
    return x + y


@njit(inline=True, allocates=False)
def _potential_of(flat: FlatProblem, state: State, d: int, scale: NDArray[np.float64], squarings: int) -> float:
    total = value = 0.0
    for p in range(len(scale)):
        total += scale[p]
    for p in range(len(scale)):
        part = _penalty(state.work_s[d, p], state.moved_s[d, p], scale[p], squarings, flat.has_overlap)
        value += scale[p] / total * part
    over = state.used_bytes[d] - flat.limit_bytes[d]
    if over > 0:
        value += OVERFLOW_WEIGHT * over / max(flat.limit_bytes[d], 1.0)
    return value


@njit(inline=True, allocates=False)
def _potential_after(
    flat: FlatProblem,
    state: State,
    d: int,
    c: int,
    sign: float,
    change_s: NDArray[np.float64],
    scale: NDArray[np.float64],
    squarings: int,
) -> float:
    """Return the potential of device `d` once class `c` came (`sign` 1) or left (`sign` -1)."""
    total = value = 0.0
    for p in range(len(scale)):
        total += scale[p]
    for p in range(len(scale)):
        work = state.work_s[d, p] + sign * flat.time_s[c, flat.kind[d], p]
        moved = state.moved_s[d, p] + change_s[p]
        value += scale[p] / total * _penalty(work, moved, scale[p], squarings, flat.has_overlap)
    over = state.used_bytes[d] + sign * flat.memory_bytes[c] - flat.limit_bytes[d]
    if over > 0:
        value += OVERFLOW_WEIGHT * over / max(flat.limit_bytes[d], 1.0)
    return value


@njit(inline=True, allocates=False)
def _neighbour(flat: FlatProblem, c: int) -> int:
    """Return a random class that shares a random net with `c`, possibly `c` itself."""
    num_nets = flat.class_offsets[c + 1] - flat.class_offsets[c]
    if num_nets == 0:
        return c
    n = flat.class_nets[flat.class_offsets[c] + below(num_nets)]
    return int(flat.net_pins[flat.net_offsets[n] + below(flat.net_offsets[n + 1] - flat.net_offsets[n])])


@njit
def anneal(
    flat: FlatProblem,
    state: State,  # where to start; where the walk ended, afterwards
    # ``[C]`` overwritten with the best feasible placement if it is better than `best_s`
    best_device: NDArray[np.int64],
    best_s: float,  # objective to beat, in seconds; infinity if any feasible placement is welcome
    scale: NDArray[np.float64],  # ``[P]`` the loads that count 1 in the potential, in seconds
    squarings: int,  # the exponent q is ``2 ** squarings``
    cooling: Cooling,  # temperatures in units of the potential
) -> float:
    """Anneal from `state`, and keep the best feasible placement on the way.

    Returns
    -------
    float
        The objective of `best_device` if it changed, else `best_s`.

    Notes
    -----
    O(nets of the class) per proposal.
    """
    num_classes, num_devices = flat.allowed.shape
    proposals = Proposals(
        scale, squarings, np.zeros(num_devices), np.zeros(len(scale)), np.zeros(len(scale)),
        np.empty(num_classes, dtype=np.int64),
    )  # fmt: skip
    return float(_walk(by_reference(flat), by_reference(state), by_reference(proposals), best_device, best_s, cooling))


class Proposals(NamedTuple):
    """Potential of every device, and scratch of a proposal."""

    scale: NDArray[np.float64]
    squarings: int
    potential: NDArray[np.float64]  # ``[D]``
    # out_s, in_s: ``[P]`` change of the transfers of the device that a class leaves, and of the one where it goes
    out_s: NDArray[np.float64]
    in_s: NDArray[np.float64]
    # ``[C]`` classes that moved since the best placement was stored: storing costs as much as moving did
    moved: NDArray[np.int64]


@njit(inner=True, allocates=False)
def _walk(flat: Any, state: Any, proposals: Any, best_device: Any, best_s: Any, cooling: Any) -> Any:
    """Anneal; as `anneal`."""
    hot, cold, num_steps, seed = cooling
    np.random.seed(seed)  # noqa: NPY002  # numba's own generator
    num_classes, num_devices, moved = len(state.device), len(flat.kind), proposals.moved
    for d in range(num_devices):
        proposals.potential[d] = _potential_of(flat, state, d, proposals.scale, proposals.squarings)
    num_moved = num_classes + 1
    if overflow(flat, state) == 0 and objective(flat, state) < best_s:
        best_s = objective(flat, state)
        for m in range(num_classes):
            best_device[m] = state.device[m]
        num_moved = 0
    temperature, factor = hot, (cold / hot) ** (1.0 / max(1, num_steps // 64))
    for step in range(num_steps):
        if step % 64 == 63:
            temperature *= factor
        c = below(num_classes)
        e = -1
        is_near = np.random.random() < NEIGHBOUR_SHARE  # noqa: NPY002
        b = state.device[_neighbour(flat, c)] if is_near else below(num_devices)
        if np.random.random() < SWAP_SHARE:  # noqa: NPY002
            e = below(num_classes)
            b = state.device[e]
            if not flat.allowed[e, state.device[c]]:
                continue
        if state.device[c] == b or not flat.allowed[c, b]:
            continue
        limit = -temperature * math.log(max(np.random.random(), 1e-300))  # noqa: NPY002
        if not _try(flat, state, proposals, c, b, e, limit):
            continue
        for m in (c, e):
            if m >= 0:
                if num_moved < num_classes:
                    moved[num_moved] = m
                num_moved += 1
        value = objective(flat, state)
        if value < best_s and overflow(flat, state) == 0:
            best_s = value
            if num_moved <= num_classes:
                for i in range(num_moved):
                    best_device[moved[i]] = state.device[moved[i]]
            else:
                for m in range(num_classes):
                    best_device[m] = state.device[m]
            num_moved = 0
    return best_s


@njit(inline=True, allocates=False)
def _try(flat: FlatProblem, state: State, proposals: Proposals, c: int, b: int, e: int, limit: float) -> bool:
    """Move class `c` to device `b`, and class `e` from there to where `c` was; undo it above `limit` or in a cycle."""
    scale, squarings, potential = proposals.scale, proposals.squarings, proposals.potential
    out_s, in_s = proposals.out_s, proposals.in_s
    a = state.device[c]
    before = potential[a] + potential[b]
    transfer_change(flat, state, c, b, out_s, in_s)
    if e < 0:
        at_a = _potential_after(flat, state, a, c, -1.0, out_s, scale, squarings)
        at_b = _potential_after(flat, state, b, c, 1.0, in_s, scale, squarings)
        if at_a + at_b - before > limit or (flat.is_ordered and not is_acyclic_after(flat, state, c, b)):
            return False
        move(flat, state, c, b, out_s, in_s)
    else:
        move(flat, state, c, b, out_s, in_s)
        transfer_change(flat, state, e, a, out_s, in_s)
        at_b = _potential_after(flat, state, b, e, -1.0, out_s, scale, squarings)
        at_a = _potential_after(flat, state, a, e, 1.0, in_s, scale, squarings)
        # the quotient between the two moves may be cyclic; only the second answer counts
        if at_a + at_b - before > limit or (flat.is_ordered and not is_acyclic_after(flat, state, e, a)):
            transfer_change(flat, state, c, a, out_s, in_s)
            move(flat, state, c, a, out_s, in_s)
            return False
        move(flat, state, e, a, out_s, in_s)
    potential[a], potential[b] = at_a, at_b
    return True


@njit
def score(flat: FlatProblem, state: State, device: NDArray[np.int64]) -> tuple[float, float]:
    """Load a placement into `state`; return its objective in seconds and its overflow in bytes."""
    load_state(flat, state, device)
    return objective(flat, state), overflow(flat, state)
