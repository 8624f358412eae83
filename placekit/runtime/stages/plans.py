"""The way from a placement to stages that are ready to run, by the engine that the source of the model names."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from typing import Any, Protocol

from placekit.io.models.model import ModelSource
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement
from placekit.model.platform import Platform
from placekit.model.problem import Problem
from placekit.runtime.stages.stage_plan import PlacedStage, ReadyPlan, StagePlan
from placekit.runtime.timing.contenders import Contender, Executor


class Engine(Protocol):
    """A framework that runs models of its own sources; `ModelSource.engine` names the class.

    Attributes
    ----------
    shares_inputs
        Whether stages only read the inputs of a sample, so that all samples may share them.
    """

    shares_inputs: bool

    def plan(self, source: Any, placement: Placement, platform: Platform) -> StagePlan:
        """Cut a model into stages; see `plan_stages`."""

    def ready(self, plan: StagePlan) -> ReadyPlan:
        """Make every stage ready to run on each member of its team."""

    def ops_of(self, stage: PlacedStage, graph: OpGraph) -> list[int]:
        """Return the ops that the part of a stage computes: what it has, not what it should have."""

    def random_inputs(self, plan: StagePlan, seed: int) -> list[Any]:
        """Return seeded inputs of one sample."""

    def baselines(self, source: Any, problem: Problem, executor: Executor, queue_size: int) -> tuple[Contender, ...]:
        """Return the ways of running the model that need no plan."""


def engine_named(name: str) -> Engine:
    """Return the engine of a source or of a plan, which is imported."""
    engine: Engine = pkgutil.resolve_name(name)()
    return engine


def plan_stages(source: ModelSource, placement: Placement, platform: Platform) -> StagePlan:
    """Cut the model of `source` into stages, as `placement` says.

    Any placement can be cut; a device that others interrupt gets several stages. An op that is placed on a device which
    cannot run it is found when the stage is compiled. Refused are state on a team or between devices, ops that need the
    same memory in different stages, and outputs that no op computes.
    """
    return engine_named(source.engine).plan(source, placement, platform)


def ops_of_stages(plan: StagePlan, graph: OpGraph) -> Iterator[tuple[int, str]]:
    """Yield the ops that the parts of a plan compute, with their teams."""
    engine = engine_named(plan.engine)
    for stage in plan.stages:
        yield from ((op, stage.team_name) for op in engine.ops_of(stage, graph))


def compile_plan(plan: StagePlan) -> ReadyPlan:
    """Make every stage ready to run on each member of its team."""
    return engine_named(plan.engine).ready(plan)
