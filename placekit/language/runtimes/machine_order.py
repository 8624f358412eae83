"""Orders of machines that a runtime can start: stages of a plan moved, machine by machine, into one of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, permutations
from typing import Any

import numpy as np

from placekit.exports.blocks import BlockStage, block_placement, block_stages
from placekit.language.planning.apart import are_apart
from placekit.language.runtimes.launch import servers
from placekit.language.runtimes.record import Runtime
from placekit.model.blocks.block_paths import BEFORE, BEHIND
from placekit.model.errors import UnsupportedProblemError
from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.objectives.evaluate import evaluate

MOST_MACHINES = 6
"""Machines whose orders are all tried."""


def startable(runtime: Runtime, problem: Problem[Any], placement: Placement) -> Placement:
    """Return a placement that the runtime can start: the same one, or the best whose stages stand in another order.

    A runtime numbers ranks machine by machine, and perhaps machines by their cards; a stage keeps its blocks' number.
    Raises `UnsupportedProblemError` with the runtime's own reason: there is no such order, or none that fits.
    """
    best: tuple[float, Placement] | None = None
    reason: UnsupportedProblemError | None = None
    is_movable = runtime.nodes is not None and not are_apart(problem)
    for each in chain([placement], _orders(runtime.name, problem, placement) if is_movable else ()):
        try:
            servers(runtime.name, problem, each)
        except UnsupportedProblemError as error:
            reason = error
            continue
        if each is placement:
            return placement
        judged = evaluate(problem, each)
        if judged.is_feasible and judged.objective is not None and (best is None or judged.objective < best[0]):
            best = judged.objective, each
    if best is None:
        assert reason is not None  # the placement itself cannot be started
        raise reason
    return best[1]


def _orders(runtime: str, problem: Problem[Any], placement: Placement) -> Iterator[Placement]:
    """Yield the placement with its stages in every order of machines; cards of one as they were, and by number."""
    stages = block_stages(problem.graph, placement, runtime)
    devices = {device.name: device for device in problem.platform.devices}
    node_of = [devices[stage.members[0]].node or "" for stage in stages]
    number = [problem.platform.index(stage.members[0]) for stage in stages]
    by_node = {node: [at for at, there in enumerate(node_of) if there == node] for node in dict.fromkeys(node_of)}
    if len(by_node) > MOST_MACHINES:
        return
    for nodes in permutations(by_node):
        yield _reordered(problem, placement, [stages[at] for node in nodes for at in by_node[node]])
        numbered = [sorted(by_node[node], key=number.__getitem__) for node in nodes]
        yield _reordered(problem, placement, [stages[at] for own in numbered for at in own])


def _reordered(problem: Problem[Any], placement: Placement, stages: list[BlockStage]) -> Placement:
    blocks = block_placement(problem.graph)
    homes = [problem.platform.index(stage.members[0]) for stage in stages]
    of_block = np.repeat(homes, [len(stage.blocks) for stage in stages])
    number = blocks.block_of_op
    place = np.where(number == BEFORE, homes[0], np.where(number == BEHIND, homes[-1], of_block[np.maximum(number, 0)]))
    return Placement(placement.op_names, placement.device_names, place, team_of_device=placement.team_of_device)
