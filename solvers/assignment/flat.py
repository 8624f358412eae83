"""Flat arrays of a problem, for compiled kernels.

Shapes
------
``C`` classes (or clusters of classes), ``N`` nets, ``D`` devices, ``K`` kinds, ``P`` passes: two (forward and backward)
if the schedule separates them, else one. Index arrays are int64.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import csr_lists
from placekit.model.contiguity import Contiguity
from placekit.objectives import Loads
from placekit.solvers.generic.coarsen import Contraction


class FlatProblem(NamedTuple):
    """Arrays of a contracted problem, or of a coarser problem made of clusters of its classes."""

    time_s: NDArray[np.float64]  # ``[C, K, P]`` seconds of each class
    memory_bytes: NDArray[np.float64]  # ``[C]`` bytes of each class
    allowed: NDArray[np.bool_]  # ``[C, D]`` True if the class is allowed on the device
    # net_offsets, net_pins: CSR lists of the distinct classes that each net touches, ``[N + 1]`` and ``[pins]``
    net_offsets: NDArray[np.int64]
    net_pins: NDArray[np.int64]
    # ``[N, K, P]`` seconds that a device pays for a net with classes on it and on others
    net_time_s: NDArray[np.float64]
    # class_offsets, class_nets: CSR lists of the nets that touch each class, ``[C + 1]`` and ``[pins]``
    class_offsets: NDArray[np.int64]
    class_nets: NDArray[np.int64]
    # next_offsets, next_classes, previous_offsets, previous_classes: CSR lists of successors and predecessors in the
    # order graph, one entry per edge; empty for `Contiguity.NONE`
    next_offsets: NDArray[np.int64]
    next_classes: NDArray[np.int64]
    previous_offsets: NDArray[np.int64]
    previous_classes: NDArray[np.int64]
    kind: NDArray[np.int64]  # ``[D]`` kind of each device
    limit_bytes: NDArray[np.float64]  # ``[D]`` memory limit, with the judge's tolerance; infinity for none
    has_overlap: bool  # True if a device's load is the larger of work and transfers, not their sum
    is_ordered: bool  # True if the quotient of the order graph must stay acyclic


def invert(
    offsets: NDArray[np.int64], values: NDArray[np.int64], num_values: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the inverse CSR lists: for every value the rows that hold it, in ascending order."""
    return csr_lists(values, np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)), num_values)


def flatten(contraction: Contraction) -> FlatProblem:
    """Return the arrays of a contraction.

    - Without `Loads` of the objective there is one pass, and no overlap.
    - A class is not allowed on devices that are too small for it.
    - For convex parts only placements with an acyclic quotient are searched. Their parts are convex, because a path
      that leaves a part and returns is a cycle of the quotient.
    """
    problem = contraction.problem
    loads, platform = problem.objective.loads(problem) or Loads(), problem.platform
    time_s, net_time_s = contraction.time_s, contraction.net_time_s
    if not loads.has_passes:
        time_s, net_time_s = time_s.sum(axis=2, keepdims=True), net_time_s.sum(axis=2, keepdims=True)
    limit_bytes = platform.memory_limits_bytes
    class_offsets, class_nets = invert(contraction.net_offsets, contraction.net_pins, contraction.num_classes)
    is_ordered = problem.contiguity is not Contiguity.NONE
    nothing = np.zeros(0, dtype=np.int64)
    no_lists = np.zeros(contraction.num_classes + 1, dtype=np.int64)
    flat = FlatProblem(
        time_s=np.ascontiguousarray(time_s),
        memory_bytes=contraction.memory_bytes,
        allowed=contraction.allowed & (contraction.memory_bytes[:, None] <= limit_bytes),
        net_offsets=contraction.net_offsets,
        net_pins=contraction.net_pins,
        net_time_s=np.ascontiguousarray(net_time_s),
        class_offsets=class_offsets,
        class_nets=class_nets,
        next_offsets=no_lists,
        next_classes=nothing,
        previous_offsets=no_lists,
        previous_classes=nothing,
        kind=np.array(platform.kind_of_device),
        limit_bytes=limit_bytes.copy(),  # kernels are compiled for writable arrays
        has_overlap=loads.has_overlap,
        is_ordered=is_ordered,
    )
    return with_order(flat, contraction.senders, contraction.receivers) if is_ordered else flat


def with_order(flat: FlatProblem, senders: NDArray[np.int64], receivers: NDArray[np.int64]) -> FlatProblem:
    """Return the problem with the order graph given by edges between its classes."""
    next_offsets, next_classes = csr_lists(senders, receivers, len(flat.memory_bytes))
    previous_offsets, previous_classes = csr_lists(receivers, senders, len(flat.memory_bytes))
    return flat._replace(
        next_offsets=next_offsets,
        next_classes=next_classes,
        previous_offsets=previous_offsets,
        previous_classes=previous_classes,
    )
