r"""Method ``greedy``: fill one device after another in topological order, up to the average load.

Steps:

1. The *average load* is the time of all work if it could be divided freely over all devices: :math:`1 / \sum_d 1 / W_d`
   with the time :math:`W_d` of device d for all work. So a device that is ten times slower gets a tenth of the work.
2. Classes are taken in topological order. The open device takes a class unless its work would exceed the average by
   more than half of the class, or its bytes the memory; then the next device is opened. The last device takes the rest.
3. A class that the open device does not support opens the next device that does. If there is none, the class goes to an
   earlier device with room (the judge then says whether the contiguity allows that).
4. If the memory of the last device does not suffice, the average is raised by a tenth and the pass repeated, until
   everything fits or the average is as much as the slowest device takes for everything.

The steps run with the fastest devices first, with the slowest first (CPUs at the end or at the start of the pipeline),
and without the slow kinds; the judge keeps the best. Transfers are ignored.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from placekit.model.problem import Problem
from placekit.solve.method import Method, Run, no_shared_memory
from placekit.solve.stop import StopReason
from placekit.solvers.generic.class_order import class_order, device_work_s, main_group, total_time_s
from placekit.solvers.generic.coarsen import Contraction, contract
from placekit.solvers.generic.teams.fixed import on_partitions

GROWTH = 1.1
"""The average load is raised by this factor when memory does not suffice."""


class Greedy(Method):
    """Fill devices in topological order up to the average load; see the module docstring."""

    name = "greedy"

    def supports(self, problem: Problem) -> str | None:
        """Return None without memory that ops share; it looks at no transfers."""
        return no_shared_memory(problem)

    @on_partitions
    def run(self, run: Run) -> StopReason:
        """Offer one placement per sequence of devices."""
        return offer_filled(run, contract(run.problem))


def offer_filled(run: Run, contraction: Contraction) -> StopReason:
    """Offer one placement per sequence of devices, of the classes of `contraction`."""
    order = class_order(contraction)
    work = device_work_s(contraction)
    fastest_first = np.argsort(work, kind="stable").tolist()
    sequences = [fastest_first, fastest_first[::-1], main_group(run.problem, contraction)]
    for number, sequence in enumerate(dict.fromkeys(map(tuple, sequences))):
        if number and (reason := run.should_stop()) is not None:
            return reason
        run.offer(contraction.expand(fill(contraction, order, list(sequence), work)))
    return StopReason.FINISHED


def fill(
    contraction: Contraction,
    order: NDArray[np.int64],  # ``[num_classes]`` order of the classes
    sequence: list[int],  # devices in the order in which they are opened
    work_s: NDArray[np.float64],  # ``[num_devices]`` seconds that each device would take for everything
) -> NDArray[np.int64]:
    """``[num_classes]`` devices by the rule of the module docstring; the last pass may break a memory limit.

    O(classes * devices) per pass, at most log(devices) / log(1.1) + 1 passes.
    """
    rates = np.array([1.0 / work_s[d] if 0 < work_s[d] < math.inf else 0.0 for d in sequence])
    average = 1.0 / float(rates.sum()) if rates.any() else 0.0
    most = float(max((work_s[d] for d in sequence if math.isfinite(work_s[d])), default=0.0))
    while True:
        device, fits = _pass(contraction, order, sequence, average)
        if fits or not 0.0 < average < most:
            return device
        average *= GROWTH


def _pass(
    contraction: Contraction, order: NDArray[np.int64], sequence: list[int], average_s: float
) -> tuple[NDArray[np.int64], bool]:
    """Return the devices, and True if all memory limits hold."""
    platform = contraction.problem.platform
    time, allowed = total_time_s(contraction)[:, platform.kind_of_device].tolist(), contraction.allowed.tolist()
    size = contraction.memory_bytes.tolist()
    room = platform.memory_limits_bytes.tolist()
    device = np.zeros(contraction.num_classes, dtype=np.int64)
    at, filled_s, fits = 0, 0.0, True
    for c in order.tolist():
        wanted = next(
            (
                i
                for i in range(at, len(sequence))
                if allowed[c][sequence[i]]
                and size[c] <= room[sequence[i]]
                and (i > at or i == len(sequence) - 1 or filled_s + time[c][sequence[i]] / 2 <= average_s)
            ),
            None,
        )
        if wanted is None:  # no later device: the open one above the average, an earlier one, any device at all
            able = [i for i, d in enumerate(sequence) if allowed[c][d]]
            anywhere = able[::-1] or list(range(len(sequence)))
            wanted = next((i for i in anywhere if size[c] <= room[sequence[i]]), None)
            if wanted is None or not able:
                others = np.flatnonzero(contraction.allowed[c]).tolist()
                d = next((d for d in others if size[c] <= room[d]), None)
                fits = fits and d is not None
                d = d if d is not None else (others[0] if others else sequence[anywhere[0]])
                device[c] = d
                room[d] -= size[c]
                continue
        if wanted > at:
            at, filled_s = wanted, 0.0
        d = sequence[wanted]
        device[c] = d
        room[d] -= size[c]
        if wanted == at:
            filled_s += time[c][d]
    return device, fits
