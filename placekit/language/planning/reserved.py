"""Room for compute buffers in plans for llama.cpp, and the buffer of every device under a placement."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from placekit.language.gguf.buffers import MASK_BYTES, STATE_BYTES, Buffers
from placekit.language.graph import LOGIT_BYTES
from placekit.language.task import LanguageTask, less_memory
from placekit.model.blocks.block_paths import BEFORE, block_numbers
from placekit.model.placement import Placement


def buffers_of(task: LanguageTask) -> Buffers | None:
    """Return the parts of the compute buffers of a task; None for a model that is not described."""
    model, serving = task.description, task.serving
    if model is None:
        return None
    phase = serving.phases[0]
    tokens = min(serving.chunk or phase.tokens * serving.batch, serving.context * serving.sequences)
    state = float(tokens * model.hidden * STATE_BYTES)
    # live tensors of the step were counted in 16 bits, the hidden state among them
    live = 2 * task.activation_bytes / (phase.tokens * serving.batch) * tokens
    mixing = [part for block in model.blocks for part in block.parts if part.parameters and part.width == model.hidden]
    inner = max(
        (part.parameters / part.experts * part.experts_per_token / model.hidden for part in mixing), default=0.0
    )
    active = max((part.experts_per_token for part in mixing if part.experts > 1), default=0)
    return Buffers(
        max(live - state, 3 * inner * tokens * STATE_BYTES, 2 * active * state), state,
        float(tokens * serving.context * MASK_BYTES), float(tokens * model.vocab * LOGIT_BYTES),
        max(float(tokens * part.cache_values * STATE_BYTES) for part in model.parts),
    )  # fmt: skip


def with_buffers(task: LanguageTask) -> LanguageTask:
    """Return the task with room for compute buffers, in place of that for activations; see `buffers_of`."""
    buffers = buffers_of(task)
    if buffers is None or task.description is None:
        return task
    cards = sum(not device.is_host for device in task.platform.devices)
    reserved = buffers.reserved(cards)
    costs, heads = task.problem.costs, [at for at, part in enumerate(task.description.parts) if part.is_last]
    memory = costs.op_memory_bytes.copy()
    memory[heads[-1:]] += buffers.output_bytes
    problem = task.problem.replace(
        platform=less_memory(task.platform, reserved), costs=costs.replace(op_memory_bytes=memory)
    )
    return replace(task, problem=problem, activation_bytes=reserved, buffers=buffers)


def buffer_bytes(task: LanguageTask, placement: Placement) -> dict[str, float]:
    """Return the compute buffer of every device with ops under a placement, by its name."""
    buffers, devices = task.buffers, task.problem.platform.devices
    assert buffers is not None
    blocks = block_numbers(task.problem.graph)
    at = placement.device_of_op
    rank = np.where(blocks == BEFORE, -1, np.where(blocks < 0, blocks.max() + 1, blocks))
    is_host = np.array([device.is_host for device in devices])
    with_blocks = dict.fromkeys(int(at[op]) for op in np.argsort(rank, kind="stable") if rank[op] >= 0)
    cards = [device for device in with_blocks if not is_host[device]]
    has_hosted = bool(task.hosted_blocks or task.host_cache_bytes)
    is_pipelined = len(cards) > 1 and len(cards) == len(with_blocks) and not has_hosted
    output = int(at[rank.argmax()])
    of_block = task.serving.sequences * task.host_cache_of_block
    found = {}
    for device in np.unique(at).tolist():
        has_output = device == output
        if is_host[device]:
            has_work = device in with_blocks or bool(task.hosted_blocks)
            size = buffers.of_host(has_work=has_work, has_output=has_output, is_pipelined=is_pipelined)
        else:
            is_first = device == next(iter(with_blocks), device)
            size = (
                buffers.of_card_without_cache(of_block, is_first=is_first, has_output=has_output)
                if task.host_cache_bytes
                else buffers.of_card(is_first=is_first, has_output=has_output, is_pipelined=is_pipelined)
            )
        found[devices[device].name] = size
    return found
