"""Neighbourhoods of a placement: which classes may move, to which devices, and the small problem that this makes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placekit.solvers.assignment.flat import FlatProblem
from placekit.solvers.lns.operators import Operator
from placekit.solvers.throughput.local_search.anneal import score
from placekit.solvers.throughput.local_search.clusters import coarsen
from placekit.solvers.throughput.local_search.state import State

__all__ = ["FIRST_SIZE", "OPERATORS", "SMALLEST_SIZE", "Neighbourhood", "Position", "draw", "reduce_problem"]

FIRST_SIZE = 40
"""Free classes of the first neighbourhoods; more once CP-SAT is quick with them, fewer when it is not."""
SMALLEST_SIZE = 8
OPERATORS = ("pair", "triple", "region", "window", "border")
"""Ways to draw a neighbourhood around a fullest device: it and one or two others, a region that grows along nets, a
window of the topological order, what lies at its border."""


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """Classes and devices that may change.

    Parameters
    ----------
    free
        ``[C]`` True for the classes that may move.
    devices
        ``[D]`` True for the devices that they may move to; all of them stand there already. No load of another
        device can change.
    """

    free: NDArray[np.bool_]
    devices: NDArray[np.bool_]

    @property
    def is_everything(self) -> bool:
        """True if nothing is fixed: the optimum of the neighbourhood is that of the problem."""
        return bool(self.free.all() and self.devices.all())


@dataclass(slots=True)
class Position:
    """A placement in its problem.

    Parameters
    ----------
    flat
        The problem.
    state
        Scratch memory of its kernels.
    rank
        ``[C]`` place of each class in a topological order.
    device
        ``[C]`` the placement.
    rng
        Where chance comes from.
    """

    flat: FlatProblem
    state: State
    rank: NDArray[np.int64]
    device: NDArray[np.int64]
    rng: np.random.Generator


def _fullest(it: Position) -> int:
    """Return a fullest device of the current placement, any of those within a thousandth."""
    score(it.flat, it.state, it.device)
    loads = np.maximum(it.state.work_s, it.state.moved_s) if it.flat.has_overlap else it.state.work_s + it.state.moved_s
    # a pass at random: a schedule with two is limited by both
    load = loads[:, int(it.rng.integers(loads.shape[1]))]
    return int(it.rng.choice(np.flatnonzero(load >= load.max() * (1 - 1e-3))))


def draw(it: Position, operator: Operator) -> Neighbourhood:
    """Return a random neighbourhood of the operator's kind and size around a fullest device."""
    rng, num_classes, num_devices = it.rng, len(it.device), len(it.flat.kind)
    size = min(int(operator.size), num_classes)
    fullest = _fullest(it)
    devices = np.ones(num_devices, dtype=np.bool_)
    if operator.name in ("pair", "triple"):
        others = rng.permutation(np.delete(np.arange(num_devices), fullest))
        devices[:] = False
        devices[[fullest, *others[: 1 if operator.name == "pair" else 2]]] = True
    among = devices[it.device]
    members = np.flatnonzero(it.device == fullest)
    seed = int(rng.choice(members)) if members.size else int(rng.integers(num_classes))
    if size >= among.sum():
        return Neighbourhood(among, devices)
    if operator.name == "window":
        first = int(np.clip(it.rank[seed] - rng.integers(size), 0, num_classes - size))
        free = (it.rank >= first) & (it.rank < first + size)
    elif operator.name == "border":
        free = _border(it, fullest, size)
    else:
        free = _region(it, [seed], among, size)
    return Neighbourhood(free & among, devices)


def _region(it: Position, seeds: list[int], among: NDArray[np.bool_], size: int) -> NDArray[np.bool_]:
    """Return `size` classes `among` those given, reached along nets from the seeds, nearest first."""
    flat, rng = it.flat, it.rng
    found = np.zeros(len(it.device), dtype=np.bool_)
    found[seeds] = True
    queue, count = list(seeds), len(seeds)
    at = 0
    while count < size:
        if at == len(queue):  # the component is used up: another seed
            rest = np.flatnonzero(among & ~found)
            if not rest.size:
                break
            queue.append(int(rng.choice(rest)))
            found[queue[-1]] = True
            count += 1
            continue
        c = queue[at]
        at += 1
        nets = flat.class_nets[flat.class_offsets[c] : flat.class_offsets[c + 1]]
        for n in rng.permutation(nets).tolist():
            for e in flat.net_pins[flat.net_offsets[n] : flat.net_offsets[n + 1]].tolist():
                if not found[e] and among[e] and count < size:
                    found[e] = True
                    queue.append(e)
                    count += 1
    return found


def _border(it: Position, fullest: int, size: int) -> NDArray[np.bool_]:
    """Return `size` classes near nets that the fullest device pays for."""
    flat, rng = it.flat, it.rng
    pins = np.diff(flat.net_offsets)
    on = it.state.pins_on[:, fullest]
    pays = flat.net_time_s[:, flat.kind[fullest]].any(axis=1) & (on > 0) & (on < pins)
    nets = rng.permutation(np.flatnonzero(pays))
    seeds: dict[int, None] = {}
    for n in nets.tolist():
        pinned = flat.net_pins[flat.net_offsets[n] : flat.net_offsets[n + 1]].tolist()
        if seeds and len(seeds) + len(pinned) > size // 2:
            break
        seeds |= dict.fromkeys(pinned[:size])
    chosen = list(seeds) or [int(rng.integers(len(it.device)))]
    return _region(it, chosen, np.ones(len(it.device), dtype=np.bool_), size)


def reduce_problem(
    flat: FlatProblem, device: NDArray[np.int64], neighbourhood: Neighbourhood
) -> tuple[FlatProblem, NDArray[np.int64]]:
    """Return the problem of a neighbourhood, and its class of every class of `flat`.

    The fixed classes of a device become one class that may only stay. Devices outside the neighbourhood cost nothing:
    their loads cannot change (a net that meets a device and leaves it keeps doing both while its pins move between
    other devices), and what cannot be changed must not hide what can.

    Parameters
    ----------
    flat
        The problem.
    device
        ``[C]`` current placement.
    neighbourhood
        What may change.
    """
    num_devices, num_kinds = len(flat.kind), flat.time_s.shape[1]
    free = neighbourhood.free
    label = np.where(free, num_devices + np.arange(len(device)), device)
    kept, cluster = np.unique(label, return_inverse=True)
    reduced = coarsen(flat, cluster, len(kept))
    allowed = reduced.allowed & neighbourhood.devices
    for c, d in enumerate(kept.tolist()):
        if d < num_devices:
            allowed[c] = np.arange(num_devices) == d
    padding = ((0, 0), (0, 1), (0, 0))
    return reduced._replace(
        allowed=allowed,
        time_s=np.pad(reduced.time_s, padding),
        net_time_s=np.pad(reduced.net_time_s, padding),
        kind=np.where(neighbourhood.devices, flat.kind, num_kinds),
    ), cluster
