"""The way from a placement to stages that are ready to run, whichever framework runs the model."""

from __future__ import annotations

from placekit.io.model import ModelSource
from placekit.model.placement import Placement
from placekit.model.platform import Platform
from placekit.pytorch.source import TorchSource
from placekit.runtime.openvino_stages import compile_openvino_plan, plan_openvino_stages
from placekit.runtime.stages import ReadyPlan, StagePlan
from placekit.runtime.torch_stages import ReadyTorchPlan, TorchModel, plan_torch_stages


def plan_stages(source: ModelSource, placement: Placement, platform: Platform) -> StagePlan:
    """Cut the model of `source` into stages, as `placement` says.

    Any placement can be cut; a device that others interrupt gets several stages. An op that is placed on a device which
    cannot run it is found when the stage is compiled. Refused are state on a team or between devices, ops that need the
    same memory in different stages, and outputs that no op computes.
    """
    if isinstance(source, TorchSource):
        return plan_torch_stages(source, placement, platform)
    return plan_openvino_stages(source, placement, platform)


def compile_plan(plan: StagePlan) -> ReadyPlan:
    """Make every stage ready to run on each member of its team."""
    if isinstance(plan.model, TorchModel):
        return ReadyTorchPlan(plan)
    return compile_openvino_plan(plan)
