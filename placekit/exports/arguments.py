"""Language-model runtimes that are told by arguments where layers go: vLLM, Megatron-LM and llama.cpp.

References
----------
vLLM: environment variable ``VLLM_PP_LAYER_PARTITION``, layers per stage separated by commas (`get_pp_indices`).
Megatron-LM: ``--pipeline-model-parallel-layout``, ``E`` embedding, ``t`` block, ``L`` head and loss, ``x*n`` for n
times x, ``|`` between stages (`PipelineParallelLayerLayout.parse_str_to_list`).
llama.cpp: block i of n goes to the first device whose cumulative share of ``--tensor-split`` exceeds
(i - first) / (n + 1 - first), the output being block n; ``--n-gpu-layers`` counts from the end, and
``--override-tensor REGEX=BUFFER`` moves the tensors whose names match.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from placekit.exports.blocks import BACK, FRONT, BlockStage, block_placement, block_stages
from placekit.model.errors import UnsupportedProblemError
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement
from placekit.model.platform import Platform

__all__ = ["ARGUMENT_RUNTIMES", "GGUF_TENSORS", "RuntimeArguments", "runtime_arguments"]

GGUF_TENSORS: Mapping[str, tuple[str, ...]] = {
    "input_layernorm": ("attn_norm",),
    "self_attn.q_proj": ("attn_q",),
    "self_attn.k_proj": ("attn_k",),
    "self_attn.v_proj": ("attn_v",),
    "self_attn.qkv_proj": ("attn_q", "attn_k", "attn_v"),
    "self_attn.o_proj": ("attn_output",),
    "post_attention_layernorm": ("ffn_norm",),
    "mlp.gate": ("ffn_gate_inp",),
    "mlp.gate_proj": ("ffn_gate",),
    "mlp.up_proj": ("ffn_up",),
    "mlp.gate_up_proj": ("ffn_gate", "ffn_up"),
    "mlp.down_proj": ("ffn_down",),
    "mlp.up_proj_exps": ("ffn_up_exps",),
    "mlp.gate_up_proj_exps": ("ffn_gate_exps", "ffn_up_exps"),
    "mlp.down_proj_exps": ("ffn_down_exps",),
}
"""Tensors of a GGUF file by path inside a block."""


_PIN_ATTENTION = " (a block is where its attention is: --pin it in runs; experts may be elsewhere)"


@dataclass(frozen=True)
class RuntimeArguments:
    """What to start a runtime with.

    Parameters
    ----------
    runtime
        Its name.
    environment
        Environment variables.
    arguments
        Arguments of its command.
    devices
        Devices of the stages, first to last: start the ranks, or list the devices, in this order.
    """

    runtime: str
    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """As typed in a shell, without the program."""
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        return " ".join([*variables, *map(shlex.quote, self.arguments)])

    def to_dict(self) -> dict[str, Any]:
        """Return the arguments as JSON values."""
        return {
            "runtime": self.runtime,
            "environment": dict(self.environment),
            "arguments": list(self.arguments),
            "devices": list(self.devices),
        }


def runtime_arguments(runtime: str, graph: OpGraph, platform: Platform, placement: Placement) -> RuntimeArguments:
    """Return what `runtime`, one of `ARGUMENT_RUNTIMES`, is started with to follow a placement.

    Raises
    ------
    UnsupportedProblemError
        A placement that the runtime cannot be told; the message says what it takes.

    Examples
    --------
    >>> names = ("embed", "layers.0.mlp", "layers.1.mlp", "layers.2.mlp", "head")
    >>> graph = OpGraph.from_edges(names, list(zip(names, names[1:]))).replace(op_flops=[1.0] * 5)
    >>> platform = Platform.of(gpu=2)
    >>> placement = Placement(names, platform.device_names, [0, 0, 1, 1, 1])
    >>> for name in ARGUMENT_RUNTIMES:
    ...     print(runtime_arguments(name, graph, platform, placement).command)
    VLLM_PP_LAYER_PARTITION=1,2 --pipeline-parallel-size 2
    --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et|t*2L'
    --n-gpu-layers 4 --split-mode layer --device CUDA0,CUDA1 --tensor-split 1,3
    """
    return ARGUMENT_RUNTIMES[runtime](graph, platform, placement)


def _replicas(stages: list[BlockStage], runtime: str) -> int:
    """Return the size that all teams have."""
    sizes = {len(stage.members) for stage in stages}
    if len(sizes) > 1:
        told = ", ".join(f"{stage.team!r}" for stage in stages if len(stage.members) == max(sizes))
        raise UnsupportedProblemError(
            f"{runtime} has as many replicas of every stage; here teams ({told}) are larger than others: place with "
            "--teams off"
        )
    return sizes.pop()


def _vllm(graph: OpGraph, platform: Platform, placement: Placement) -> RuntimeArguments:  # noqa: ARG001
    stages = block_stages(graph, placement, "vllm")
    replicas = _replicas(stages, "vllm")
    counts = ",".join(str(len(stage.blocks)) for stage in stages)
    arguments = ["--pipeline-parallel-size", str(len(stages))]
    arguments += ["--data-parallel-size", str(replicas)] if replicas > 1 else []
    devices = tuple(stage.members[r] for r in range(replicas) for stage in stages)
    return RuntimeArguments("vllm", {"VLLM_PP_LAYER_PARTITION": counts}, tuple(arguments), devices)


def _megatron(graph: OpGraph, platform: Platform, placement: Placement) -> RuntimeArguments:  # noqa: ARG001
    stages = block_stages(graph, placement, "megatron")
    replicas = _replicas(stages, "megatron")  # it derives their number from that of the ranks

    def letters(count: int) -> str:
        return f"t*{count}" if count > 1 else "t" * count

    layout = [
        "E" * (at == 0) + letters(len(stage.blocks)) + "L" * (at == len(stages) - 1) for at, stage in enumerate(stages)
    ]
    # a stage with nothing would shift the ranks; the ends always have embedding and head
    arguments = (
        "--pipeline-model-parallel-size", str(len(stages)),
        "--pipeline-model-parallel-layout", "|".join(layout),
    )  # fmt: skip
    # of the ranks of a stage, replicas come first
    return RuntimeArguments(
        "megatron", {}, arguments, tuple(stage.members[r] for stage in stages for r in range(replicas))
    )


def _llama_cpp(graph: OpGraph, platform: Platform, placement: Placement) -> RuntimeArguments:
    blocks = block_placement(graph)
    teams = [team for team in placement.teams if len(team) > 1]
    if teams:
        raise UnsupportedProblemError(
            f"llama.cpp has no replicas of a stage, as {placement.team_name(teams[0][0])!r} is; place with --teams off"
        )
    cards = [d for d, device in enumerate(platform.devices) if not device.is_host]
    buffer = {d: f"CUDA{cards.index(d)}" if d in cards else "CPU" for d in range(platform.num_devices)}
    device, work = placement.device_of_op, blocks.is_work
    homes = [_home(graph, placement, blocks.block_of_op == number, work) for number in range(blocks.num_blocks)]
    on_host = [buffer[home] == "CPU" for home in homes]
    first = on_host.index(False) if False in on_host else len(homes)
    if any(on_host[first:]):
        raise UnsupportedProblemError(
            f"llama.cpp keeps the first blocks on the CPU; block {first + on_host[first:].index(True)} is there behind "
            f"blocks on accelerators{_PIN_ATTENTION}"
        )
    chain = list(dict.fromkeys(homes[first:]))
    counts = [homes.count(home) for home in chain]
    if [home for home, count in zip(chain, counts, strict=True) for _ in range(count)] != homes[first:]:
        back = next(
            at for at in range(first + 1, len(homes)) if homes[at] != homes[at - 1] and homes[at] in homes[first:at]
        )
        name, between = placement.device_names[homes[back]], placement.device_names[homes[back - 1]]
        raise UnsupportedProblemError(
            f"llama.cpp takes a run of blocks per device; {name!r} has block {back} and blocks before those of "
            f"{between!r}{_PIN_ATTENTION}"
        )
    if chain:
        counts[-1] += 1  # the output follows the last block
        offloaded = ["--n-gpu-layers", str(len(homes) + 1 - first), "--split-mode", "layer"]
    else:
        offloaded = ["--n-gpu-layers", "0"]
    follows = {FRONT: "CPU", BACK: buffer[chain[-1]] if chain else "CPU"}
    ends: dict[str, str] = {}  # buffer of every tensor outside of the blocks
    moved: list[tuple[str, str]] = []
    blocks_of: dict[tuple[str, tuple[str, ...]], list[int]] = {}  # elsewhere than their blocks: by device and names
    for op in np.flatnonzero((graph.op_weight_bytes > 0) & work).tolist():
        number, target = int(blocks.block_of_op[op]), buffer[int(device[op])]
        home = follows[number] if number < 0 else buffer[homes[number]]
        if number < 0:
            tensor = _end_tensor(graph.op_names[op], number)
            if ends.setdefault(tensor, target) != target:
                raise UnsupportedProblemError(
                    f"llama.cpp has one tensor {tensor}; {graph.op_names[op]!r} is on {target}, and another op that "
                    f"holds it is on {ends[tensor]}: --pin them to one device"
                )
        if target == home:
            continue
        if number < 0:
            moved.append((tensor, target))
        else:
            names = _tensors(graph, number, blocks.rest_of_op[op])
            blocks_of.setdefault((target, names), []).append(number)
    names_of: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for (target, names), numbers in blocks_of.items():
        names_of.setdefault((target, tuple(sorted(set(numbers)))), []).extend(names)
    rules = [(rf"^{tensor}\.weight$", target) for tensor, target in dict.fromkeys(moved)]
    rules += [
        (rf"^blk\.{_any_of(numbers, blocks.num_blocks)}\.{_one_of(names)}\.", target)
        for (target, numbers), names in names_of.items()
    ]
    # llama.cpp knows the cards of --device only: one that rules alone name has no block
    named = sorted({d for d in cards if buffer[d] in {target for _, target in rules}} - set(chain))
    used = [*chain, *named]
    arguments = offloaded
    if used:
        arguments += ["--device", ",".join(buffer[d] for d in used)]
    if chain:
        arguments += ["--tensor-split", ",".join(map(str, [*counts, *(0 for _ in named)]))]
    for pattern, target in rules:
        arguments += ["--override-tensor", f"{pattern}={target}"]
    return RuntimeArguments("llama.cpp", {}, tuple(arguments), tuple(placement.device_names[d] for d in used))


def _home(graph: OpGraph, placement: Placement, inside: np.ndarray[Any, Any], work: np.ndarray[Any, Any]) -> int:
    """Return the device of a block: that of its attention, which keeps the cache; of most of its work without one."""
    attention = inside & np.array([op_type == "ScaledDotProductAttention" for op_type in graph.op_types])
    at = placement.device_of_op[attention if attention.any() else inside & work]
    return int(np.bincount(at).argmax())


def _tensors(graph: OpGraph, number: int, rest: str) -> tuple[str, ...]:
    """Return the names of the tensors of a block that an op holds."""
    path = next((path for path in GGUF_TENSORS if re.fullmatch(rf"{re.escape(path)}(\.[a-z_]+)?(#\d+)?", rest)), None)
    if path is None:
        raise UnsupportedProblemError(
            f"{graph.name!r}: {rest!r} of block {number} is not where its block is, and has no tensor of a known name "
            "in llama.cpp; place with --granularity layer"
        )
    return GGUF_TENSORS[path]


def _end_tensor(name: str, number: int) -> str:
    """Return the tensor that an op outside of the blocks holds, by the op's name."""
    is_norm = re.search(r"norm|(^|[./])ln_?f?\b", name.lower()) is not None
    if number == FRONT:
        return "token_embd_norm" if is_norm else "position_embd" if "pos" in name or "wpe" in name else "token_embd"
    return "output_norm" if is_norm else "output"


def _any_of(numbers: Sequence[int], num_blocks: int) -> str:
    """Return a pattern of the numbers of blocks."""
    return r"\d+" if len(numbers) == num_blocks > 1 else _one_of(list(map(str, numbers)))


def _one_of(names: Sequence[str]) -> str:
    """Return a pattern of these texts."""
    names = list(dict.fromkeys(names))
    return names[0] if len(names) == 1 else f"({'|'.join(names)})"


ARGUMENT_RUNTIMES: Mapping[str, Callable[[OpGraph, Platform, Placement], RuntimeArguments]] = {
    "vllm": _vllm,
    "megatron": _megatron,
    "llama.cpp": _llama_cpp,
}
"""Runtimes that `runtime_arguments` knows."""
