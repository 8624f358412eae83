"""Op offload: large steps of blocks and experts in host memory are computed on a card, to which weights are copied.

llama.cpp does so from 32 tokens of a step on (``op_offload_min_batch_size``; ``ggml_backend_offload_op``), on the first
card: for prompts the bus decides, not the processor.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from placekit.language.task import LanguageTask
from placekit.model.costs import CostTable


def is_offloaded(task: LanguageTask, phase: str) -> bool:
    """Return whether the steps of a phase have so many tokens that a card computes what the host holds."""
    tokens = next((each.tokens for each in task.serving.phases if each.name == phase), 0)
    return task.offload_tokens is not None and tokens * task.serving.batch >= task.offload_tokens


def copied_s(task: LanguageTask, kind: str, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """``[num_ops]`` seconds in which bytes of weights go over the bus of a kind of card."""
    link = task.problem.platform.links.get(kind)
    if link is None:
        return np.zeros(len(weights))
    return weights / link.bandwidth_bytes_per_s


def streamed(task: LanguageTask, kind: str, table: CostTable, *, has_lookups: bool = True) -> CostTable:
    """Return the costs of a step in which a card of `kind` computes what hosts hold, weights copied to it.

    Without `has_lookups` hosts look up embeddings themselves.
    """
    platform = task.problem.platform
    table = table.for_kinds(platform.kinds)
    card = platform.kinds.index(kind)
    hosts = [platform.kinds.index(name) for name in {device.kind for device in platform.devices if device.is_host}]
    time, moved, supported = table.op_time_s.copy(), table.transfer_time_s.copy(), table.supported.copy()
    copied = copied_s(task, kind, task.weight_bytes)
    is_copied = has_lookups | (np.array(task.problem.graph.op_types) != "Gather")
    for host in hosts:
        time[:, host] = np.where(is_copied, time[:, card] + copied, time[:, host])
        supported[:, host] = np.where(is_copied, supported[:, card], supported[:, host])
        moved[:, host] = moved[:, card]
    return table.replace(op_time_s=time, transfer_time_s=moved, supported=supported)


def with_offload(task: LanguageTask, kind: str, min_tokens: int | None) -> LanguageTask:
    """Return the task with steps of at least `min_tokens` tokens computed on a card of `kind` throughout."""
    task = replace(task, offload_tokens=min_tokens)
    return task.with_costs(
        {
            phase: streamed(task, kind, table, has_lookups=False) if is_offloaded(task, phase) else table
            for phase, table in task.costs_of_phase.items()
        }
    )
