"""Placements that cut a model into blocks of given shares of its work, for calibration and comparison."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placekit.arrays import sum_by, topological_order
from placekit.model.errors import InvalidProblemError
from placekit.model.placement import Placement
from placekit.model.problem import Problem


def split_placement(problem: Problem, pattern: Sequence[int], shares: Sequence[float]) -> Placement:
    """Give blocks of ops that follow each other to devices.

    Parameters
    ----------
    problem
        The problem. Its classes (fused groups, colocation) are never cut, so shares are met as far as they allow.
    pattern
        ``[num_blocks]`` device index of every block; a device may come up several times.
    shares
        ``[num_blocks]`` part of the work that every block gets, as weights. Work is the mean of the op times over the
        kinds that can run an op.

    Raises
    ------
    InvalidProblemError
        Shares that are negative or all 0, of another number than the pattern, or a device that does not exist.

    Examples
    --------
    >>> placement = split_placement(problem, [0, 1, 0], [0.25, 0.5, 0.25])  # doctest: +SKIP
    """
    weights = np.asarray(shares, dtype=np.float64)
    if len(weights) != len(pattern) or not (weights >= 0).all() or not 0 < weights.sum() < np.inf:
        raise InvalidProblemError(
            f"split: shares {list(shares)} for pattern {list(pattern)}; one weight >= 0 per block is needed, not all 0"
        )
    if not set(pattern) <= set(range(problem.platform.num_devices)):
        raise InvalidProblemError(
            f"split: pattern {list(pattern)} names a device that is none of the {problem.platform.num_devices}"
        )
    costs = problem.costs
    times = np.where(costs.supported, costs.op_time_s, 0.0).sum(axis=1) / np.maximum(costs.supported.sum(axis=1), 1)
    senders, receivers = (problem.op_class[ends] for ends in problem.order_edges)
    crossing = senders != receivers
    # classes that wait for each other in a circle, which colocation can bring about, come last
    order = np.concatenate(topological_order(problem.num_classes, senders[crossing], receivers[crossing]))
    work = sum_by(problem.op_class, times, problem.num_classes)[order]
    middle = np.cumsum(work) - work / 2
    ends = np.cumsum(weights) / weights.sum() * work.sum()
    block = np.minimum(np.searchsorted(ends, middle, side="right"), len(pattern) - 1)
    device_of_class = np.empty(problem.num_classes, dtype=np.int64)
    device_of_class[order] = np.asarray(pattern, dtype=np.int64)[block]
    return Placement.of(problem, device_of_class[problem.op_class])


def calibration_splits(problem: Problem) -> dict[str, Placement]:
    """Return a handful of placements by name: every device alone, and cuts between each device and the next.

    Between two devices: one cut at 30, 50 and 70 % of the work, there and back (ABA), and six blocks, twice (ABABAB,
    BABABA): what a stage costs shows in many stages only, and has to be known where one such split is held out. What
    a device cannot run is left out, and so is what is the same placement again.
    """
    num_devices = problem.platform.num_devices
    wanted: list[tuple[str, list[int], list[float]]] = [
        (f"all on {device.name}", [index], [1.0]) for index, device in enumerate(problem.platform.devices)
    ]
    for first in range(num_devices - 1):
        pair = [first, first + 1]
        name = "-".join(problem.platform.devices[each].name for each in pair)
        wanted += [(f"{name} cut at {share:.0%}", pair, [share, 1 - share]) for share in (0.3, 0.5, 0.7)]
        wanted.append((f"{name} ABA", [*pair, first], [0.25, 0.5, 0.25]))
        wanted.append((f"{name} ABABAB", pair * 3, [1.0] * 6))
        wanted.append((f"{name} BABABA", pair[::-1] * 3, [1.0] * 6))
    ops = np.arange(problem.graph.num_ops)
    found: dict[str, Placement] = {}
    for name, pattern, shares in wanted:
        placement = split_placement(problem, pattern, shares)
        kinds = problem.platform.kind_of_device[placement.device_of_op]
        if problem.costs.supported[ops, kinds].all() and placement not in found.values():
            found[name] = placement
    return found
