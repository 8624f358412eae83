"""Number of stages of a placement, and a note on placements with more stages than devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from placekit.cli.answers import AT_ONCE_UP_TO

if TYPE_CHECKING:
    from placekit.model.problem import Problem
    from placekit.solve.result import Result

__all__ = ["NUM_STAGES", "many_stages_note", "with_num_stages"]

NUM_STAGES = "num_stages"
"""Key in `Result.info` for the stages that the placement has where it runs stage by stage."""


def many_stages_note(num_stages: int, num_devices: int, objective: str | None = None) -> Iterator[str]:
    """Yield one line if a placement has more stages than devices, or teams, that run them.

    Parameters
    ----------
    num_stages, num_devices
        How many there are.
    objective
        Name of the objective of the solve, if it is known.
    """
    if num_stages <= num_devices:
        return
    # the makespan has no contiguity
    mend = "--objective throughput " * (objective == "makespan") + "--contiguity acyclic"
    yield (
        f"note: {num_stages} stages for {num_devices} devices: a sample is handed over {num_stages - 1} times, and "
        f"each stage is started by itself; `placekit solve {mend}` makes one stage per device"
    )


def with_num_stages(result: Result, problem: Problem) -> Result:
    """Return `result` with the number of stages of its placement in ``info``, if it runs in stages.

    A training graph does not: there every device has its turn in both passes. Neither do graphs of more than
    `AT_ONCE_UP_TO` ops.
    """
    if result.placement is None or problem.graph.is_backward.any() or problem.graph.num_ops > AT_ONCE_UP_TO:
        return result
    from placekit.cost_models.openvino.few_stages import NO_STAGE, few_stages

    num_stages = int(few_stages(problem.graph, result.placement.device_of_op).max(initial=NO_STAGE)) + 1
    return replace(result, info={**result.info, NUM_STAGES: num_stages})
