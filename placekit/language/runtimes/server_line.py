"""What lines of servers mean whose stages are ranks with a GPU each: vLLM and SGLang.

References
----------
vLLM: ``get_pp_indices`` of ``vllm/distributed/utils.py``; without a list every stage has as many blocks, and what is
left over goes one by one to the last stages but the very last. SGLang has the same function.
"""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np

from placekit.exports.blocks import block_placement
from placekit.language.runtimes.record import Launch, Placed, Runtime
from placekit.language.runtimes.typed import whole_number
from placekit.model.blocks.block_paths import BEFORE, BEHIND
from placekit.model.errors import InvalidProblemError, UnsupportedProblemError
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement
from placekit.model.platform import Platform
from placekit.model.served import Served


def read_server(runtime: Runtime, launch: Launch, graph: OpGraph, platform: Platform) -> Placed:
    """Return the stages of a server; ranks are the accelerators of the platform in order, teams each as many.

    Raises
    ------
    InvalidProblemError
        More ranks than devices, a list of blocks that does not add up, or a number that is none.
    UnsupportedProblemError
        Replicas.
    """
    values, options = dict(pairwise(launch.arguments)), runtime.options
    stages, degree, replicas = (
        whole_number(options[name], values.get(options[name], "1")) for name in ("stages", "degree", "replicas")
    )
    if replicas > 1:
        raise UnsupportedProblemError(f"{options['replicas']} {replicas}: lines with replicas are not read")
    blocks = block_placement(graph)
    counts = _counts(runtime, launch.environment.get(runtime.variable), blocks.num_blocks, stages)
    cards = [at for at, device in enumerate(platform.devices) if not device.is_host]
    flat = [(at, name) for at in cards for name in platform.devices[at].member_names]
    visible = next((told for name, told in launch.environment.items() if name.endswith("_VISIBLE_DEVICES")), None)
    ranks = (
        [whole_number("visible devices", each) for each in visible.split(",")] if visible else list(range(len(flat)))
    )
    if stages * degree > len(ranks) or max(ranks, default=0) >= len(flat):
        raise InvalidProblemError(
            f"the line has {stages * degree} ranks on devices {','.join(map(str, ranks))}; there are {len(flat)}"
        )
    homes = [flat[ranks[stage * degree]][0] for stage in range(stages)]
    of_block = np.repeat(homes, counts)
    number = blocks.block_of_op
    place = np.where(number == BEFORE, homes[0], np.where(number == BEHIND, homes[-1], of_block[np.maximum(number, 0)]))
    served = {name: values.get(options[name]) for name in ("context", "sequences", "chunk")}
    return Placed(
        graph,
        platform,
        Placement(graph.op_names, platform.device_names, place),
        Served(
            runtime=runtime.name,
            **{name: whole_number(options[name], told) for name, told in served.items() if told is not None},  # type: ignore[arg-type]
        ),
    )


def _counts(runtime: Runtime, told: str | None, num_blocks: int, stages: int) -> list[int]:
    """Return the blocks of every stage."""
    if told is None:
        counts, left = [num_blocks // stages] * stages, num_blocks % stages
        for at in range(left):
            counts[-min(at + 2, stages)] += 1
        return counts
    if not re.fullmatch(r"\d+(,\d+)*", told) or len(told.split(",")) != stages:
        raise InvalidProblemError(f"{runtime.variable}={told}: it has the blocks of {stages} stages")
    counts = [int(each) for each in told.split(",")]
    if sum(counts) != num_blocks:
        raise InvalidProblemError(f"{runtime.variable}={told}: {sum(counts)} blocks; the model has {num_blocks}")
    return counts
