"""Costs of a step on llama.cpp's RPC servers beside its ops: messages, and bytes over the network.

For every step the program sends a server the hidden state, positions, the mask and the places of new keys and values,
tells it to compute the graph that it has (``GRAPH_RECOMPUTE``), and fetches the result. Each is a message of its own:

1. Only the fetch has a reply, so a step takes the latency of the link twice per server, as two tensors between devices
   do anyway.
2. A message passes a thread of the program, three calls of its socket, and the server's thread: `MESSAGE_S`.
3. Hidden states are in 32 bits, the mask has 16 bits for every token of the step and place of the cache, and a message
   has a head of `HEAD_BYTES`. What passes from one server to the next goes through the program: twice over the network.
4. The server with the output sends the logits back.

A graph is sent as a whole only where its shape changes: for a chunk of a prompt, and every 256 generated tokens. That
is 20 kB per block, little beside the hidden states of a chunk.

References
----------
llama.cpp, build 11434: ``ggml/src/ggml-rpc/ggml-rpc.cpp`` (``rpc_tensor``, ``serialize_set_tensor``,
``rpc_dispatcher``, ``ggml_backend_rpc_graph_compute``), and ``ggml_backend_sched_compute_splits``. A server with
``GGML_RPC_DEBUG=1`` prints its messages: 10 per generated token for the first one, 8 for each other. `MESSAGE_S`: one
to three servers with a model of 2.8 MB, all on one core, took 0.25 ms more per token for each further server.
"""

from __future__ import annotations

import numpy as np

from placekit.language.gguf.buffers import MASK_BYTES, STATE_BYTES, padded
from placekit.language.graph import ACTIVATION_BYTES, LOGIT_BYTES
from placekit.language.runtimes.device_names import ADDRESS
from placekit.language.serving import Phase
from placekit.language.task import LanguageTask
from placekit.model.costs import CostTable
from placekit.model.platform import Link

INPUTS = 6
"""Tensors that a server is sent for a step."""
MESSAGES = INPUTS + 2
"""These, the command to compute, and the fetch of the result."""
MESSAGE_S = 31e-6
"""Seconds of a message beside the network."""
HEAD_BYTES = 322
"""A tensor's description of 296 bytes, the command, sizes and offset."""
_PLACE_BYTES = 20
"""Bytes of a token's position, and of its places in the cache."""


def with_server_steps(task: LanguageTask) -> LanguageTask:
    """Return the task with what every step takes on servers of other machines.

    A server has one run of blocks, so the hidden state comes in and goes out: each way has half of the costs, the
    output having the half of the way out on the last server. Without such devices, or without a description, the task
    is returned as it is.
    """
    platform = task.problem.platform
    kinds = dict.fromkeys(device.kind for device in platform.devices if ADDRESS in device.properties)
    if not kinds or task.description is None:
        return task
    tables = dict(task.costs_of_phase)
    for phase in task.serving.phases:
        for kind in kinds:
            tables[phase.name] = _with_steps(task, phase, tables[phase.name], kind, platform.links[kind])
    return task.with_costs(tables)


def _with_steps(task: LanguageTask, phase: Phase, table: CostTable, kind: str, link: Link) -> CostTable:
    """Return the costs of one step of a phase with what servers of a kind take beside their ops."""
    model, batch = task.description, task.serving.batch
    assert model is not None
    tokens = batch * phase.tokens
    mask_bytes = tokens * padded(round(phase.past + phase.tokens)) * MASK_BYTES
    sent = MESSAGES * HEAD_BYTES + mask_bytes + tokens * _PLACE_BYTES
    half_s = (MESSAGES * MESSAGE_S + sent / link.bandwidth_bytes_per_s) / 2
    wider_s = tokens * model.hidden * (STATE_BYTES - ACTIVATION_BYTES) / link.bandwidth_bytes_per_s
    at = table.kinds.index(kind)
    moved, time = table.transfer_time_s.copy(), table.op_time_s.copy()
    moved[:, at] += half_s + wider_s
    head = [number for number, part in enumerate(model.parts) if part.is_last][-1:]
    time[head, at] += half_s + link.latency_s + batch * model.vocab * LOGIT_BYTES / link.bandwidth_bytes_per_s
    return table.replace(op_time_s=time, transfer_time_s=np.ascontiguousarray(moved))
