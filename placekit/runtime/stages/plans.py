"""The way from a placement to stages that are ready to run, whichever framework runs the model."""

from __future__ import annotations

from collections.abc import Iterator

from placekit.io.models.model import ModelSource
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement
from placekit.model.platform import Platform
from placekit.pytorch.source import TorchSource
from placekit.runtime.stages.openvino_stages import compile_openvino_plan, plan_openvino_stages
from placekit.runtime.stages.stage_plan import ReadyPlan, StagePlan
from placekit.runtime.stages.torch_stages import ReadyTorchPlan, TorchModel, TorchPart, plan_torch_stages


def plan_stages(source: ModelSource, placement: Placement, platform: Platform) -> StagePlan:
    """Cut the model of `source` into stages, as `placement` says.

    Any placement can be cut; a device that others interrupt gets several stages. An op that is placed on a device which
    cannot run it is found when the stage is compiled. Refused are state on a team or between devices, ops that need the
    same memory in different stages, and outputs that no op computes.
    """
    if isinstance(source, TorchSource):
        return plan_torch_stages(source, placement, platform)
    return plan_openvino_stages(source, placement, platform)


def ops_of_stages(plan: StagePlan, graph: OpGraph) -> Iterator[tuple[int, str]]:
    """Yield the ops that the parts of a plan compute, with their teams: what a part has, not what it should have."""
    for stage in plan.stages:
        if isinstance(stage.model, TorchPart):
            ops = list(stage.model.ops)
        else:
            names = [op.get_friendly_name() for op in stage.model.get_ops() if op.get_type_name() != "Constant"]
            ops = [graph.op_index[name] for name in names if name in graph.op_index]
        yield from ((op, stage.team_name) for op in ops)


def compile_plan(plan: StagePlan) -> ReadyPlan:
    """Make every stage ready to run on each member of its team."""
    if isinstance(plan.model, TorchModel):
        return ReadyTorchPlan(plan)
    return compile_openvino_plan(plan)
