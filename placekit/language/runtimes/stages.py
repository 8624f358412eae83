"""Stages of whole blocks on accelerators, as servers and trainers take them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from placekit.exports.blocks import BlockStage, block_placement, block_stages
from placekit.exports.kept import require_kept
from placekit.language.runtimes.record import Placed
from placekit.model.blocks.block_paths import BEFORE, BEHIND
from placekit.model.errors import UnsupportedProblemError
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement


class EvenStages(NamedTuple):
    """Stages of whole blocks on accelerators, all with as many replicas of one tensor-parallel degree."""

    stages: list[BlockStage]
    replicas: int
    degree: int
    names: Mapping[str, tuple[str, ...]]

    @property
    def counts(self) -> list[int]:
        """Blocks of every stage."""
        return [len(stage.blocks) for stage in self.stages]

    def by_replica(self) -> tuple[str, ...]:
        """Devices in the order of ranks that fill a whole pipeline first."""
        return self._flat(stage.members[r] for r in range(self.replicas) for stage in self.stages)

    def by_stage(self) -> tuple[str, ...]:
        """Devices in the order of ranks that fill the replicas of a stage first."""
        return self._flat(stage.members[r] for stage in self.stages for r in range(self.replicas))

    def _flat(self, devices: Iterable[str]) -> tuple[str, ...]:
        return tuple(name for device in devices for name in self.names[device])

    def degrees(self, option: str) -> list[str]:
        """Return the arguments that set the tensor-parallel degree; none for 1, which runtimes have."""
        return [option, str(self.degree)] if self.degree > 1 else []


def pipeline(runtime: str, placed: Placed) -> EvenStages:
    """Return the stages of a placement for `runtime`.

    Raises `UnsupportedProblemError`: other stages than `EvenStages` describes.
    """
    graph, platform, placement = placed.graph, placed.platform, placed.placement
    stages = block_stages(graph, placement, runtime)
    hosts = {device.name for device in platform.devices if device.is_host}
    for stage in stages:
        if hosts.intersection(stage.members):
            what = f"blocks {stage.blocks[0]} to {stage.blocks[-1]}" if stage.blocks else "an end of the model"
            raise UnsupportedProblemError(
                f"{runtime} has stages on accelerators only, but {stage.team!r} holds {what}; place with --for "
                f"{runtime}"
            )
    sizes = {len(stage.members) for stage in stages}
    if len(sizes) > 1:
        told = ", ".join(f"{stage.team!r}" for stage in stages if len(stage.members) == max(sizes))
        raise UnsupportedProblemError(
            f"{runtime} has as many replicas of every stage; here teams ({told}) are larger than others: place with "
            "--teams off"
        )
    _require_kept(runtime, graph, placement, stages)
    names = {device.name: device.member_names for device in platform.devices}
    degrees = {len(names[stage.members[0]]) for stage in stages}
    if len(degrees) > 1:
        raise UnsupportedProblemError(
            f"{runtime} has one tensor-parallel degree for all stages, not {' and '.join(map(str, sorted(degrees)))}; "
            f"place with --for {runtime}"
        )
    return EvenStages(stages, sizes.pop(), degrees.pop(), names)


def _require_kept(runtime: str, graph: OpGraph, placement: Placement, stages: Sequence[BlockStage]) -> None:
    """Refuse stages that have ops elsewhere than the placement; the ends of a model go with the first and last one."""
    blocks = block_placement(graph)
    team_of = {number: stage.team for stage in stages for number in stage.blocks}
    team_of |= {BEFORE: stages[0].team, BEHIND: stages[-1].team}
    places = [(op, team_of[number]) for op, number in enumerate(blocks.block_of_op.tolist())]
    require_kept(runtime, graph, placement, places, blocks.is_work)
