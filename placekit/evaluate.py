"""The one judge: what a placement costs, and which constraints it breaks.

Every method's answer is rescored here before anyone sees it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from placekit.contiguity import Contiguity, escaping_op, quotient_cycle
from placekit.errors import InvalidProblemError
from placekit.graph import sum_by, topological_order
from placekit.objectives.base import Score
from placekit.placement import Placement, Violation

if TYPE_CHECKING:
    from placekit.problem import Problem
from placekit.sizes import format_bytes_exactly

__all__ = ["DeviceLoad", "Evaluation", "evaluate"]

MEMORY_TOLERANCE = 1e-12
"""Relative slack on memory limits: sums of byte counts above 2**53 are rounded."""


@dataclass(frozen=True, slots=True)
class DeviceLoad:
    """What one device does per sample.

    Parameters
    ----------
    device, kind
        Names.
    load_s, compute_s, transfer_s
        Seconds per sample: combined as the objective says, of ops, and of transfers.
    memory_bytes, memory_limit_bytes
        Bytes occupied, and the limit (None for no limit).
    num_ops
        Number of ops.
    """

    device: str
    kind: str
    load_s: float
    compute_s: float
    transfer_s: float
    memory_bytes: float
    memory_limit_bytes: float | None
    num_ops: int


@dataclass(frozen=True)
class Evaluation:
    """The judge's word on a placement.

    Parameters
    ----------
    objective
        Value to minimise, in seconds; None if some op is not supported where it stands, or if the placement cannot be
        executed under the objective's model.
    device_loads
        One entry per device of the platform.
    violations
        Every broken constraint; empty means feasible.
    score
        The objective's own account (schedule, arrays); None with `objective`.
    """

    objective: float | None
    device_loads: tuple[DeviceLoad, ...]
    violations: tuple[Violation, ...]
    score: Score | None = None

    @property
    def is_feasible(self) -> bool:
        """True if no constraint is broken."""
        return not self.violations


def evaluate(problem: Problem, placement: Placement) -> Evaluation:
    """Score `placement` under `problem`'s objective, from the original edges, and check every constraint.

    Parameters
    ----------
    problem
        The problem.
    placement
        A device for each of its ops.

    Raises
    ------
    InvalidProblemError
        The placement is of other ops or other devices than the problem's.

    Notes
    -----
    O(ops + edges log edges); convexity takes O(devices * edges).
    """
    graph, platform, costs = problem.graph, problem.platform, problem.costs
    if placement.device_names != platform.device_names or placement.op_names != graph.op_names:
        raise InvalidProblemError(
            f"the placement is of {len(placement)} ops on {', '.join(placement.device_names)}; problem "
            f"{problem.name!r} has {graph.num_ops} ops on {', '.join(platform.device_names)}, "
            "and names and order must agree (Placement.from_mapping does that)"
        )
    device = placement.device_of_op
    kind = platform.kind_of_device[device]
    unsupported = np.flatnonzero(~costs.supported[np.arange(graph.num_ops), kind])
    memory = sum_by(device, costs.op_memory_bytes, platform.num_devices)
    counts = np.bincount(device, minlength=platform.num_devices)
    violations = [
        Violation(
            "support",
            f"op {graph.op_names[op]!r} ({graph.op_types[op]}) is not supported on device "
            f"{platform.device_names[device[op]]!r}",
            graph.op_names[op],
            platform.device_names[device[op]],
        )
        for op in unsupported
    ]
    violations += _memory_violations(problem, memory)
    violations += _binding_violations(problem, device)
    violations += _contiguity_violations(problem, device)
    score = None if unsupported.size else problem.objective.score(problem, device, placement.step_of_op)
    if score is not None and score.violations:
        violations += score.violations
        score = None
    unknown = np.zeros(platform.num_devices)
    load_s, compute_s, transfer_s = (score.load_s, score.compute_s, score.transfer_s) if score else (unknown,) * 3
    loads = tuple(
        DeviceLoad(
            target.name,
            target.kind,
            load_s=float(load_s[d]),
            compute_s=float(compute_s[d]),
            transfer_s=float(transfer_s[d]),
            memory_bytes=float(memory[d]),
            memory_limit_bytes=target.memory_bytes,
            num_ops=int(counts[d]),
        )
        for d, target in enumerate(platform.devices)
    )
    return Evaluation(None if score is None else score.objective_s, loads, tuple(violations), score)


def _memory_violations(problem: Problem, used: NDArray[np.float64]) -> list[Violation]:
    found = []
    for target, num_bytes in zip(problem.platform.devices, used.tolist(), strict=True):
        limit = target.memory_bytes
        if limit is not None and num_bytes > limit * (1 + MEMORY_TOLERANCE):
            message = (
                f"device {target.name!r} needs {format_bytes_exactly(num_bytes)}, it has {format_bytes_exactly(limit)}"
            )
            found.append(Violation("memory", message, None, target.name, num_bytes - limit, "bytes"))
    return found


def _binding_violations(problem: Problem, device: NDArray[np.int64]) -> list[Violation]:
    graph, names = problem.graph, problem.platform.device_names
    found = []
    for op in np.flatnonzero((problem.pinned >= 0) & (problem.pinned != device)):
        message = (
            f"op {graph.op_names[op]!r} is pinned to {names[problem.pinned[op]]!r} but placed on {names[device[op]]!r}"
        )
        found.append(Violation("pin", message, graph.op_names[op], names[device[op]]))
    leader = np.unique(problem.op_class, return_index=True)[1][problem.op_class]
    for op in np.flatnonzero(device != device[leader]):
        message = (
            f"op {graph.op_names[op]!r} on {names[device[op]]!r} must share a device with "
            f"{graph.op_names[leader[op]]!r} on {names[device[leader[op]]]!r}"
        )
        found.append(Violation("colocation", message, graph.op_names[op], names[device[op]]))
    return found


def _contiguity_violations(problem: Problem, device: NDArray[np.int64]) -> list[Violation]:
    names, num_devices = problem.platform.device_names, problem.platform.num_devices
    if problem.contiguity is Contiguity.NONE:
        return []
    senders, receivers = problem.order_edges
    if problem.contiguity is Contiguity.ACYCLIC:
        stuck = quotient_cycle(senders, receivers, device, num_devices)
        if not stuck:
            return []
        cycle = ", ".join(repr(names[d]) for d in stuck)
        return [Violation("contiguity", f"devices {cycle} wait for each other: their graph has a cycle")]
    # forward edges and mirrored backward edges never meet in one op, so the order graph is acyclic like its two halves
    order, _ = topological_order(problem.graph.num_ops, senders, receivers)
    found = []
    for d in np.unique(device).tolist():
        op = escaping_op(senders, receivers, order, device == d)
        if op is not None:
            name = problem.graph.op_names[op]
            message = f"device {names[d]!r} is not convex: a path leaves it and returns through op {name!r}"
            found.append(Violation("contiguity", message, name, names[d]))
    return found
