"""Proofs of infeasibility before any method runs: device support, pins, and memory of classes of ops."""

from __future__ import annotations

import numpy as np

from placekit.model.memory import MEMORY_TOLERANCE
from placekit.model.pins import homes_of_pins, pins_against_class, pins_against_order
from placekit.model.placement import Violation
from placekit.model.sizes import format_bytes
from placekit.solve.certificates import NoDevice, Prices
from placekit.solve.run import Run
from placekit.solve.stop import StopReason


def find_infeasibility(run: Run) -> StopReason | None:
    """Prove that a class of ops fits no device, that pins contradict each other, or that all memory is too little.

    The run then holds the violation and its certificate; None if nothing of this is the case. O(ops * devices).
    """
    problem = run.problem
    costs, platform, names = problem.costs, problem.platform, problem.graph.op_names
    kinds = platform.kind_of_device
    can_run = np.ones((problem.num_classes, platform.num_devices), dtype=bool)
    np.logical_and.at(can_run, problem.op_class, costs.supported[:, kinds])
    can_run &= homes_of_pins(problem, can_run)
    # what a class needs for its queues may be less if others join it
    use = problem.stage_memory.use(problem.op_class, problem.num_classes)
    own_bytes, class_bytes = np.bincount(problem.op_class, weights=costs.op_memory_bytes), use.weights + use.activations
    limits = np.array([np.inf if d.memory_bytes is None else d.memory_bytes for d in platform.devices])
    # in one step for all classes: there can be 100,000 of them
    roomiest = np.where(can_run, limits, -np.inf).max(axis=1)
    leaders = np.unique(problem.op_class, return_index=True)[1]
    for c in np.flatnonzero(~can_run.any(axis=1) | (class_bytes > roomiest * (1 + MEMORY_TOLERANCE))).tolist():
        leader = int(leaders[c])
        size = int((problem.op_class == c).sum()) if not can_run[c].any() else 1
        others = "the op that shares" if size == 2 else f"the {size - 1} ops that share"
        with_others, them = (f" and {others} its device", "them all") if size > 1 else ("", "it")
        if not can_run[c].any():
            told = pins_against_class(problem, np.flatnonzero(problem.op_class == c))
            message = told or f"op {names[leader]!r}{with_others}: no device supports {them} and respects the pins"
            return run.prove_infeasible(Violation("support", message, names[leader]), certificate=NoDevice(leader))
        most = float(limits[can_run[c]].max())
        if class_bytes[c] > most * (1 + MEMORY_TOLERANCE):
            message = (
                f"op {names[leader]!r} and the ops that share its device need "
                f"{format_bytes(class_bytes[c])}, {format_bytes(class_bytes[c] - most)} more than the "
                f"largest device that can run them has: {format_bytes(most)}"
            )
            over = float(class_bytes[c] - most)
            violation = Violation("memory", message, names[leader], None, over, "bytes")
            return run.prove_infeasible(violation, certificate=NoDevice(leader))
    against_order = pins_against_order(problem)
    if against_order is not None:
        return run.prove_infeasible(against_order)
    most = platform.most_bytes
    over = float(own_bytes.sum() - most)
    if over > 2 * MEMORY_TOLERANCE * float(own_bytes.sum()):  # twice: sums are rounded
        message = (
            f"the ops need {format_bytes(float(own_bytes.sum()))}, {format_bytes(over)} more "
            "than all devices have together"
        )
        num_passes = 2 if problem.objective.to_dict().get("schedule") == "gpipe" else 1
        nothing = ((0.0,) * num_passes,)
        every_byte = Prices((0,) * platform.num_devices, nothing, nothing, (1.0,))
        return run.prove_infeasible(Violation("memory", message, None, None, over, "bytes"), certificate=every_byte)
    return None
