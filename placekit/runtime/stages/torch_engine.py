"""PyTorch as an engine."""

from __future__ import annotations

from typing import Any

from placekit.model.graph import OpGraph
from placekit.model.placement import Placement
from placekit.model.platform import Platform
from placekit.model.problem import Problem
from placekit.pytorch.module import random_inputs
from placekit.pytorch.source import TorchSource
from placekit.runtime.stages.stage_plan import PlacedStage, ReadyPlan, StagePlan
from placekit.runtime.stages.torch_stages import ReadyTorchPlan, plan_torch_stages
from placekit.runtime.timing.baselines import torch_baselines
from placekit.runtime.timing.contenders import Contender, Executor


class TorchEngine:
    """See :class:`~placekit.runtime.stages.plans.Engine`."""

    shares_inputs = False  # an op may write to them

    def plan(self, source: TorchSource, placement: Placement, platform: Platform) -> StagePlan:
        """Cut the program."""
        return plan_torch_stages(source, placement, platform)

    def ready(self, plan: StagePlan) -> ReadyPlan:
        """Build a module for every stage and member."""
        return ReadyTorchPlan(plan)

    def ops_of(self, stage: PlacedStage, graph: OpGraph) -> list[int]:  # noqa: ARG002
        """Return the ops of the part."""
        return list(stage.model.ops)

    def random_inputs(self, plan: StagePlan, seed: int) -> list[Any]:
        """Return tensors of torch."""
        return random_inputs(plan.model.lowered.program, seed)

    def baselines(
        self, source: TorchSource, problem: Problem, executor: Executor, queue_size: int
    ) -> tuple[Contender, ...]:
        """Return the whole program on all cores, and plain splits of it."""
        return torch_baselines(source, problem, executor, queue_size)
