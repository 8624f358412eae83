"""OpenVINO as an engine."""

from __future__ import annotations

from typing import Any

from placekit.cost_models.openvino.inputs import random_inputs
from placekit.io.models.model import ModelSource
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement
from placekit.model.platform import Platform
from placekit.model.problem import Problem
from placekit.runtime.stages.openvino_stages import compile_openvino_plan, plan_openvino_stages
from placekit.runtime.stages.stage_plan import PlacedStage, ReadyPlan, StagePlan
from placekit.runtime.timing.baselines import openvino_baselines
from placekit.runtime.timing.contenders import Contender, Executor


class OpenVinoEngine:
    """See :class:`~placekit.runtime.stages.plans.Engine`."""

    shares_inputs = True

    def plan(self, source: ModelSource, placement: Placement, platform: Platform) -> StagePlan:
        """Cut the model; no weight is copied."""
        return plan_openvino_stages(source, placement, platform)

    def ready(self, plan: StagePlan) -> ReadyPlan:
        """Compile every stage."""
        return compile_openvino_plan(plan)

    def ops_of(self, stage: PlacedStage, graph: OpGraph) -> list[int]:
        """Look for the nodes of the part in the graph."""
        names = [op.get_friendly_name() for op in stage.model.get_ops() if op.get_type_name() != "Constant"]
        return [graph.op_index[name] for name in names if name in graph.op_index]

    def random_inputs(self, plan: StagePlan, seed: int) -> list[Any]:
        """Return tensors of OpenVINO."""
        return list(random_inputs(plan.model, seed))

    def baselines(
        self,
        source: ModelSource,
        problem: Problem,
        executor: Executor,  # noqa: ARG002
        queue_size: int,  # noqa: ARG002
    ) -> tuple[Contender, ...]:
        """Return what OpenVINO offers for the whole model."""
        return openvino_baselines(source.graph, problem.platform)
