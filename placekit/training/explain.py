"""Explanation of a training plan in sentences: its bottleneck, and what would make it better."""

from __future__ import annotations

from collections.abc import Callable

from placekit.training.problem import TrainingProblem
from placekit.training.result import PlanResult

TIGHT = 0.98
"""Share of the memory limit above which a stage is called full."""


def explain_plan(
    problem: TrainingProblem, result: PlanResult, solve_plan: Callable[[TrainingProblem], PlanResult] | None = None
) -> list[str]:
    """Return sentences about a plan: slowest stage, memory, idle devices, and the gain from more resources.

    Without `solve_plan`, which plans a changed problem, questions about changes are skipped.
    """
    if result.plan is None or result.objective is None:
        return [f"there is no plan: {violation}" for violation in result.violations] or ["no plan was found"]
    loads = result.stages
    slowest = max(range(len(loads)), key=lambda s: loads[s].load_s)
    load = loads[slowest]
    parts = ", ".join(
        f"{seconds / load.load_s:.0%} {what}"
        for what, seconds in (("compute", load.compute_s), ("transfers", load.transfer_s), ("gradients", load.sync_s))
    )
    told = [
        f"stage {slowest} is the slowest: {load.load_s * 1e3:.5g} ms per microbatch ({parts}), {load.num_layers} "
        f"layers on {load.data_degree} x {load.tensor_degree} devices"
    ]
    near = [s for s in range(len(loads)) if s != slowest and loads[s].load_s >= 0.98 * load.load_s]
    if near:
        told.append(f"within 2 % of it: stage {', '.join(map(str, near))}")
    used = result.plan.num_devices
    device_s = sum(stage.load_s * stage.data_degree * stage.tensor_degree for stage in loads)
    told.append(
        f"{used} of {problem.num_devices} devices are used; on average they are busy "
        f"{device_s / (load.load_s * used):.1%} of the time"
    )
    full = [s for s in range(len(loads)) if loads[s].memory_bytes >= TIGHT * problem.memory_bytes]
    again = sum("recomp" in name.lower() for name in result.choice_names)
    told.append(
        (f"memory is full (98 %) in stage {', '.join(map(str, full))}" if full else "no stage fills its memory")
        + f"; {again} of {problem.num_layers} layers compute their activations again"
    )
    if result.lower_bound is not None and result.gap is not None:
        told.append(f"no plan is below {result.lower_bound * 1e3:.5g} ms ({result.bound_name}); gap {result.gap:.2g}")
    if solve_plan is not None:
        for what, changed in (
            ("twice the memory", problem.replace(memory_bytes=2 * problem.memory_bytes)),
            ("twice the bandwidth", problem.replace(bandwidth_bytes_per_s=2 * problem.bandwidth_bytes_per_s)),
            ("one device more", problem.replace(num_devices=problem.num_devices + 1)),
        ):
            better = solve_plan(changed).objective
            if better is not None:
                told.append(f"{what}: {better * 1e3:.5g} ms, {1 - better / result.objective:.1%} less")
    return told
