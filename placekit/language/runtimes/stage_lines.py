"""Lines of runtimes whose stages are ranks with an accelerator each, read back: servers and trainers.

References
----------
vLLM: ``get_pp_indices`` of ``vllm/distributed/utils.py``; without a list every stage has as many blocks, and what is
left over goes one by one to the last stages but the very last. SGLang has the same function.
TensorRT-LLM: ``pp_layers`` of ``tensorrt_llm/mapping.py``; without a list the first stages have one block more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from placekit.exports.blocks import block_placement
from placekit.language.runtimes.device_names import numbers_seen
from placekit.language.runtimes.record import Launch, Placed, Runtime, Start
from placekit.language.runtimes.values import whole_number
from placekit.model.blocks.block_paths import BEFORE, BEHIND
from placekit.model.errors import InvalidProblemError, UnsupportedProblemError
from placekit.model.placement import Placement
from placekit.model.platform import Platform
from placekit.model.problem import Problem


def degree_of(runtime: Runtime, launch: Launch) -> int:
    """Return the tensor-parallel degree of a launch."""
    return _number(runtime, launch, "degree")


def _number(runtime: Runtime, launch: Launch, name: str) -> int:
    option = runtime.options.get(name, "")
    found = whole_number(option, launch.values.get(option, "1"))
    if not found:
        raise InvalidProblemError(f"{option} 0: it is from 1 on")
    return found


def ranks_of(launch: Launch, platform: Platform) -> list[str]:
    """Return the accelerator of every rank.

    Raises `InvalidProblemError`: a number that is none, or a card or machine that is not there.
    """
    cards = [(name, card.node) for card in platform.devices if not card.is_host for name in card.member_names]
    nodes = list(dict.fromkeys(node for _, node in cards))
    if len(launch.starts) > len(nodes):
        told = ", ".join(str(node) for node in nodes if node is not None) or "one"
        raise InvalidProblemError(f"the line is for {len(launch.starts)} machines; machines are {told}")
    machines = [(start.node, {**launch.environment, **start.environment}, start) for start in launch.starts]
    if len(launch.starts) < 2:
        start = launch.starts[0] if launch.starts else Start()
        seen = numbers_seen({**launch.environment, **start.environment}, len(cards))
        found = [cards[number][0] for number in seen]
        return found[: _count(start) or len(found)]
    named = all(node in nodes for node, _, _ in machines)
    ranks = []
    for at, (node, environment, start) in enumerate(machines):
        own = [name for name, there in cards if there == (node if named else nodes[at])]
        seen_there = [own[number] for number in numbers_seen(environment, len(own))]
        ranks += seen_there[: _count(start) or len(seen_there)]
    return ranks


def _count(start: Start) -> int:
    """Return the number of ranks that a machine is told; 0 for all of its cards."""
    told = dict(zip(start.arguments, start.arguments[1:], strict=False))
    value = told.get("--nproc-per-node") or told.get("--num-gpus") or ""
    return int(value) if value.isdecimal() else 0


def read_stages(
    runtime: Runtime, launch: Launch, problem: Problem[Any], counts: Sequence[int], *,
    replicas: int = 1, by_stage: bool = False,
) -> Placed:  # fmt: skip
    """Return the plan of stages with so many blocks each, on the ranks of a launch.

    Ranks fill a whole pipeline first, or the replicas of a stage if `by_stage`; those of a team follow one another.
    Raises `InvalidProblemError`: more ranks than devices, blocks that are not the model's, or ranks of a team that are
    none of the platform.
    """
    graph, platform = problem.graph, problem.platform
    blocks, degree, stages = block_placement(graph), degree_of(runtime, launch), len(counts)
    if sum(counts) != blocks.num_blocks:
        raise InvalidProblemError(
            f"{runtime.name}: stages of {', '.join(map(str, counts))} blocks are {sum(counts)}; the model has "
            f"{blocks.num_blocks}"
        )
    ranks = ranks_of(launch, platform)
    if stages * degree * replicas > len(ranks):
        raise InvalidProblemError(
            f"the line has {stages * degree * replicas} ranks on {', '.join(ranks)}; there are {len(ranks)}"
        )
    team_of = {name: at for at, device in enumerate(platform.devices) for name in device.member_names}
    homes = np.zeros((stages, replicas), dtype=np.int64)
    for stage, replica in np.ndindex(stages, replicas):
        first = degree * (stage * replicas + replica if by_stage else replica * stages + stage)
        members = ranks[first : first + degree]
        homes[stage, replica] = team_of[members[0]]
        if set(platform.devices[team_of[members[0]]].member_names) != set(members):
            raise InvalidProblemError(f"ranks {', '.join(members)} compute together; no team of the platform has them")
    number, first_of = blocks.block_of_op, homes[:, 0]
    of_block = np.repeat(first_of, counts)
    place = np.where(
        number == BEFORE, first_of[0], np.where(number == BEHIND, first_of[-1], of_block[np.maximum(number, 0)])
    )
    teams = np.arange(platform.num_devices)
    for row in homes:
        teams[row] = row[0]
    placement = Placement(graph.op_names, platform.device_names, place, team_of_device=teams if replicas > 1 else None)
    return Placed(graph, platform, placement, runtime.served_by(launch))


def read_server(runtime: Runtime, launch: Launch, problem: Problem[Any]) -> Placed:
    """Return the stages of vLLM or SGLang.

    Raises `InvalidProblemError`: as `read_stages`, a list of blocks that does not add up, or a number that is none.
    """
    stages, replicas = _number(runtime, launch, "stages"), _number(runtime, launch, "replicas")
    told, num_blocks = launch.environment.get(runtime.variable), block_placement(problem.graph).num_blocks
    if told is None:
        counts, left = [num_blocks // stages] * stages, num_blocks % stages
        for at in range(left):
            counts[-min(at + 2, stages)] += 1
    elif not re.fullmatch(r"\d+(,\d+)*", told) or len(told.split(",")) != stages:
        raise InvalidProblemError(f"{runtime.variable}={told}: it has the blocks of {stages} stages")
    else:
        counts = [int(each) for each in told.split(",")]
        if sum(counts) != num_blocks:
            raise InvalidProblemError(f"{runtime.variable}={told}: {sum(counts)} blocks; the model has {num_blocks}")
    return read_stages(runtime, launch, problem, counts, replicas=replicas)


def read_tensorrt_llm(runtime: Runtime, launch: Launch, problem: Problem[Any]) -> Placed:
    """Return the stages of TensorRT-LLM, whose settings file counts where options are silent.

    Raises `InvalidProblemError`: as `read_stages`, or a list that is none of whole numbers.
    """
    options, config = runtime.options, dict(launch.config)
    known = {"stages": "pipeline_parallel_size", "degree": "tensor_parallel_size", "sequences": "max_batch_size",
             "context": "max_seq_len", "chunk": "max_num_tokens"}  # fmt: skip
    more = [
        word for name, key in known.items() if key in config and options[name] not in launch.values
        for word in (options[name], str(config[key]))
    ]  # fmt: skip
    told = Launch(runtime, launch.environment, (*launch.arguments, *more), starts=launch.starts)
    stages, num_blocks = _number(runtime, told, "stages"), block_placement(problem.graph).num_blocks
    each, left = divmod(num_blocks, stages)
    counts = config.get("pp_partition") or [each + (at < left) for at in range(stages)]
    if not isinstance(counts, list) or not all(type(count) is int for count in counts) or len(counts) != stages:
        raise InvalidProblemError(f"pp_partition: {counts}: it has the blocks of {stages} stages")
    return read_stages(runtime, told, problem, counts)


def read_megatron(runtime: Runtime, launch: Launch, problem: Problem[Any]) -> Placed:
    """Return the stages of Megatron; ranks beyond one pipeline are replicas.

    Raises `InvalidProblemError`: as `read_stages`, or a layout that is none.
    """
    stages, num_blocks = _number(runtime, launch, "stages"), block_placement(problem.graph).num_blocks
    layout = launch.values.get(runtime.options["layout"])
    if layout is None:
        if num_blocks % stages:
            raise InvalidProblemError(
                f"{num_blocks} blocks are no multiple of {stages} stages: give {runtime.options['layout']}"
            )
        counts = [num_blocks // stages] * stages
    else:
        unrolled = re.sub(r"\(([^()]*)\)\*(\d+)", lambda found: found[1] * int(found[2]), layout.replace(",", ""))
        unrolled = re.sub(r"([EtmL|])\*(\d+)", lambda found: found[1] * int(found[2]), unrolled)
        parts = unrolled.split("|")
        if not re.fullmatch(r"E[t|]*m*L", unrolled) or len(parts) != stages:
            raise InvalidProblemError(
                f"{runtime.options['layout']} {layout}: it has E, blocks as t, m and L in {stages} stages"
            )
        counts = [len(part.strip("EL")) for part in parts]
    pipeline = stages * degree_of(runtime, launch)
    replicas = max(len(ranks_of(launch, problem.platform)) // pipeline, 1) if launch.starts else 1
    return read_stages(runtime, launch, problem, counts, replicas=replicas, by_stage=True)


def read_torchtitan(runtime: Runtime, launch: Launch, problem: Problem[Any]) -> Placed:
    """Return the stages of torchtitan, by the modules of its settings file.

    Raises
    ------
    InvalidProblemError
        As `read_stages`, or modules that are no run of blocks per stage.
    UnsupportedProblemError
        A line without the modules of every stage.
    """
    parts = launch.config.get("parallelism", {}).get("module_fqns_per_model_part")
    stages = _number(runtime, launch, "stages")
    if parts is None and stages > 1:
        raise UnsupportedProblemError("torchtitan without module_fqns_per_model_part chooses stages by itself")
    num_blocks = block_placement(problem.graph).num_blocks
    found = [[int(name[7:]) for name in part if re.fullmatch(r"layers\.\d+", name)] for part in parts or []]
    if parts is not None and [number for part in found for number in part] != list(range(num_blocks)):
        raise InvalidProblemError(
            f"module_fqns_per_model_part has blocks {[number for part in found for number in part]}; the model has "
            f"0 to {num_blocks - 1}, once each"
        )
    if parts is not None and len(parts) != stages:
        raise InvalidProblemError(f"module_fqns_per_model_part has {len(parts)} stages; the line has {stages}")
    counts = [len(part) for part in found] or [num_blocks]
    replicas = _number(runtime, launch, "replicas")
    return read_stages(runtime, launch, problem, counts, replicas=replicas, by_stage=True)
