"""A placement of a model of equal blocks as a chain of stages: what runtimes that split by whole blocks ask for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placekit.model.blocks.block_paths import BEFORE, BEHIND, BLOCK, block_numbers, block_stacks
from placekit.model.errors import UnsupportedProblemError
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement
from placekit.model.platform import Platform


@dataclass(frozen=True)
class BlockPlacement:
    """Device of every block of a placement."""

    block_of_op: NDArray[np.int64]  # ``[num_ops]`` number of the block, `BEFORE` or `BEHIND`
    rest_of_op: tuple[str, ...]  # ``[num_ops]`` path inside the block; the whole name outside of blocks
    num_blocks: int  # blocks are numbered from 0
    is_work: NDArray[np.bool_]  # ``[num_ops]`` True for ops that compute or hold something
    stack: str  # beginning of the paths of blocks, up to their numbers


@dataclass(frozen=True)
class BlockStage:
    """A stage of whole blocks."""

    team: str  # name of the device, or of the team
    members: tuple[str, ...]  # devices of the team
    blocks: range  # numbers of its blocks, rising by one
    # has_front, has_back: True if it holds what is before the first block, and what is behind the last one
    has_front: bool
    has_back: bool


def block_placement(graph: OpGraph) -> BlockPlacement:
    """Return the blocks of a model, which are known by the first number in the paths of their ops.

    Raises `UnsupportedProblemError`: no blocks, several stacks of blocks, or blocks that are not numbered from 0
    without a gap.

    Examples
    --------
    >>> names = ("embed", "h.0", "h.1", "head")
    >>> block_placement(OpGraph.from_edges(names, [*zip(names, names[1:])])).num_blocks
    2
    """
    stacks = block_stacks(graph)
    if len(stacks) != 1:
        told = (
            f"several stacks of blocks: {', '.join(stacks)}" if stacks else "no blocks (h.0, layers.1, ...) in its ops"
        )
        raise UnsupportedProblemError(f"{graph.name!r} has {told}; a runtime that splits by blocks takes one stack")
    matches = [BLOCK.match(name) for name in graph.op_names]
    found = [match if match and match["stack"] == stacks[0] else None for match in matches]
    numbers = sorted({int(match["number"]) for match in found if match})
    if numbers != list(range(len(numbers))):
        raise UnsupportedProblemError(
            f"{graph.name!r}: its blocks are numbered {numbers[0]} to {numbers[-1]} with gaps; they must run from 0"
        )
    block = block_numbers(graph)
    rest = tuple((match and match["rest"]) or name for match, name in zip(found, graph.op_names, strict=True))
    return BlockPlacement(block, rest, len(numbers), (graph.op_flops > 0) | (graph.op_weight_bytes > 0), stacks[0])


def refuse_teams(runtime: str, platform: Platform, placement: Placement) -> None:
    """Refuse a placement on teams, for a runtime without replicas of stages and without tensor parallelism.

    Raises `UnsupportedProblemError` with the first team.
    """
    for team in placement.teams:
        used = np.isin(team[0], placement.device_of_op)
        if len(team) > 1:
            raise UnsupportedProblemError(
                f"{runtime} has no replicas, as {placement.team_name(team[0])!r} is; place with --teams off"
            )
        if used and platform.devices[team[0]].members:
            raise UnsupportedProblemError(
                f"{runtime} has no tensor parallelism, as on {placement.team_name(team[0])!r}; place without "
                "--tensor-parallel"
            )


def block_stages(graph: OpGraph, placement: Placement, runtime: str) -> list[BlockStage]:
    """Return the stages of a placement, first to last.

    Messages name `runtime`, which takes only stages of whole blocks. Raises `UnsupportedProblemError`: a block on two
    devices, or devices whose blocks are no run; as `block_placement`.
    """
    blocks = block_placement(graph)
    device, work = placement.device_of_op, blocks.is_work

    def only(number: int, what: str) -> int | None:
        at = np.unique(device[(blocks.block_of_op == number) & work]).tolist()
        if len(at) > 1:
            names = " and ".join(repr(placement.team_name(d)) for d in at[:2])
            raise UnsupportedProblemError(
                f"{runtime} takes whole blocks, but {what} of {graph.name!r} is on {names}; place with --granularity "
                "layer"
            )
        return at[0] if at else None

    homes = [only(number, f"block {number}") for number in range(blocks.num_blocks)]
    chain: list[int] = []
    for number, home in enumerate(homes):
        assert home is not None
        if chain and chain[-1] == home:
            continue
        if home in chain:
            raise UnsupportedProblemError(
                f"{runtime} takes a run of blocks per stage, but {placement.team_name(home)!r} has block {number} and "
                f"blocks before {placement.team_name(chain[-1])!r}"
            )
        chain.append(home)
    front, back = only(BEFORE, "what is before the blocks"), only(BEHIND, "what is behind the blocks")
    for end, at, what in ((front, 0, "before the blocks"), (back, -1, "behind the blocks")):
        if end is not None and end != chain[at]:
            if end in chain:
                raise UnsupportedProblemError(
                    f"{runtime} has a chain of stages, but {placement.team_name(end)!r} holds what is {what} and "
                    "blocks from the other end"
                )
            chain.insert(0 if at == 0 else len(chain), end)
    members = {team[0]: team for team in placement.teams}
    stages: list[BlockStage] = []
    begin = 0
    for home in chain:
        count = homes.count(home)
        stages.append(
            BlockStage(
                placement.team_name(home), tuple(placement.device_names[d] for d in members[home]),
                range(begin, begin + count), front in (home, None) and not stages, back == home,
            )
        )  # fmt: skip
        begin += count
    return stages
