r"""A relaxation without light leaves, for the proof: constants that weigh little must not double the ideals each.

A leaf of the order graph that all its nets share with one neighbour *u* (conditions 2 to 4 of
:mod:`placekit.solvers.generic.coarsen`) but that takes time or memory cannot join *u* without loss. In a relaxation
it can: take any placement and move the leaf *v* to the device of *u*. Where the two were apart, the device of *u* paid
for the nets between just the two, :math:`w_{uv}`, and no longer does; so its load does not rise if *v* takes at most
:math:`\min(t_v, w_{uv})` there and no bytes. The optimum of the problem in which every such leaf has joined its
neighbour at that price is a lower bound, and it is the optimum if its placement costs as much in truth: where memory
does not bind, that is what happens.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from placekit.objectives import Throughput
from placekit.solvers.generic.coarsen import Contraction, join_classes, merge_leaves

LIGHT = 0.01
"""Of the objective: seconds that the relaxation may forget of one leaf. More would leave a gap worth looking into."""


def relax_light_leaves(
    contraction: Contraction[Throughput],
    objective_s: float,  # an objective that is known to be reached; what is light is measured by it
) -> tuple[Contraction, Contraction] | None:
    """Return a contracted throughput problem with light leaves joined, relaxed and at full cost; None without any.

    The placements of both are those of the problem in which leaves stay with their neighbours.
    """
    objective = contraction.problem.objective
    follows = merge_leaves(contraction, contraction.time_s.sum(axis=2).max(axis=1) <= LIGHT * objective_s)
    leaves = np.flatnonzero(follows != np.arange(contraction.num_classes))
    if not len(leaves):
        return None
    charged = np.zeros((len(leaves), *contraction.time_s.shape[1:]))
    if not objective.overlap:  # else a device may have paid for the net behind the back of its ops
        charged = np.minimum(contraction.time_s[leaves], _private_nets(contraction, follows)[leaves])
    joined = join_classes(contraction, follows)
    time_s, leader = np.zeros_like(joined.time_s), joined.class_of_op[contraction.leader]
    own = np.flatnonzero(follows == np.arange(contraction.num_classes))
    np.add.at(time_s, leader[own], contraction.time_s[own])
    np.add.at(time_s, leader[leaves], charged)
    memory_bytes = np.zeros(joined.num_classes)
    np.add.at(memory_bytes, leader[own], contraction.memory_bytes[own])
    return replace(joined, time_s=time_s, memory_bytes=memory_bytes), joined


def _private_nets(contraction: Contraction, follows: NDArray[np.int64]) -> NDArray[np.float64]:
    """``[num_classes, num_kinds, 2]`` seconds of the nets between each leaf and its neighbour alone.

    Of a leaf that follows another leaf these are the nets to their common root: any net is credited once.
    """
    seconds = np.zeros_like(contraction.time_s)
    nets = np.flatnonzero(np.diff(contraction.net_offsets) == 2)
    first = contraction.net_offsets[nets]
    ends = contraction.net_pins[first], contraction.net_pins[first + 1]
    for leaf, other in (ends, ends[::-1]):
        mine = follows[leaf] == other
        np.add.at(seconds, leaf[mine], contraction.net_time_s[nets[mine]])
    return seconds
