"""Language-model runtimes that are told by arguments where layers go.

References
----------
vLLM: environment variable ``VLLM_PP_LAYER_PARTITION``, layers per stage separated by commas (`get_pp_indices`).
SGLang: environment variable ``SGLANG_PP_LAYER_PARTITION``, the same list.
TensorRT-LLM: ``pp_partition: [9, 11]`` in the file of ``--extra_llm_api_options``.
Megatron-LM: ``--pipeline-model-parallel-layout``, ``E`` embedding, ``t`` block, ``m`` block of multi-token prediction,
``L`` head and loss, ``x*n`` for n times x, ``|`` between stages (`PipelineParallelLayerLayout.parse_str_to_list`).
torchtitan: ``parallelism.module_fqns_per_model_part``, a list of module paths per stage.
llama.cpp: :mod:`placekit.exports.llama_cpp`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from placekit.exports.blocks import BlockStage, block_placement, block_stages
from placekit.exports.kept import require_kept
from placekit.exports.llama_cpp import llama_cpp_arguments
from placekit.exports.runtime_arguments import RuntimeArguments, visible_devices
from placekit.model.blocks.block_paths import BEFORE, BEHIND
from placekit.model.errors import UnsupportedProblemError
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement
from placekit.model.platform import Platform


def runtime_arguments(
    runtime: str, graph: OpGraph, platform: Platform, placement: Placement, served: Mapping[str, Any] | None = None
) -> RuntimeArguments:
    """Return what `runtime`, one of `ARGUMENT_RUNTIMES`, is started with to follow a placement.

    What was planned to be `served` is as in the provenance of the costs of a served model: ``context``, ``sequences``,
    ``chunk``, ``cache_precision``, ``headroom``, ``cards``, ``predicting_blocks``, ``hosted_blocks``, ``tied`` (the
    head is the embedding) and ``further_blocks``, those of multi-token prediction that the file has and the graph has
    not. What is not there is left to the runtime. Raises `UnsupportedProblemError`: a placement that the runtime cannot
    be told; the message says what it takes.

    Examples
    --------
    >>> names = ("embed", "layers.0.mlp", "layers.1.mlp", "layers.2.mlp", "head")
    >>> graph = OpGraph.from_edges(names, list(zip(names, names[1:]))).replace(op_flops=[1.0] * 5)
    >>> platform = Platform.of(gpu=2)
    >>> placement = Placement(names, platform.device_names, [0, 0, 1, 1, 1])
    >>> for name in ARGUMENT_RUNTIMES:
    ...     print(runtime_arguments(name, graph, platform, placement).command)
    VLLM_PP_LAYER_PARTITION=1,2 --pipeline-parallel-size 2
    SGLANG_PP_LAYER_PARTITION=1,2 --pp-size 2
    --pp_size 2
    --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et|t*2L'
    --parallelism.pipeline_parallel_degree 2
    --n-gpu-layers 4 --split-mode layer --fit off --device CUDA0,CUDA1 --tensor-split 1,3
    """
    if served and served.get("predicting_blocks") and runtime != "megatron":
        raise UnsupportedProblemError(
            f"the plan has blocks of multi-token prediction, as megatron trains them: plan again with --for {runtime}"
        )
    return ARGUMENT_RUNTIMES[runtime](graph, platform, placement, served or {})


class _Pipeline(NamedTuple):
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


def _pipeline(runtime: str, graph: OpGraph, platform: Platform, placement: Placement) -> _Pipeline:
    """Return the stages of a placement."""
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
    return _Pipeline(stages, sizes.pop(), degrees.pop(), names)


def _require_kept(runtime: str, graph: OpGraph, placement: Placement, stages: Sequence[BlockStage]) -> None:
    """Refuse stages that have ops elsewhere than the placement; the ends of a model go with the first and last one."""
    blocks = block_placement(graph)
    team_of = {number: stage.team for stage in stages for number in stage.blocks}
    team_of |= {BEFORE: stages[0].team, BEHIND: stages[-1].team}
    places = ((op, team_of[number]) for op, number in enumerate(blocks.block_of_op.tolist()))
    require_kept(runtime, graph, placement, places, blocks.is_work)


def _options(told: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    """Return the options whose values are known."""
    return [part for key, option in names.items() if told.get(key) is not None for part in (option, str(told[key]))]


def _used_share(served: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was planned, with the share of memory that a runtime may fill."""
    headroom = served.get("headroom")
    return {**served, "used": None if headroom is None else f"{1 - headroom:.3g}"}


class _Flags(NamedTuple):
    """Options of a server that takes the number of blocks of every stage from an environment variable."""

    stages: str
    replicas: str
    degree: str
    planned: Mapping[str, str]
    variable: str


_FLAGS: Mapping[str, _Flags] = {
    "vllm": _Flags(
        "--pipeline-parallel-size",
        "--data-parallel-size",
        "--tensor-parallel-size",
        {
            "context": "--max-model-len",
            "sequences": "--max-num-seqs",
            "chunk": "--max-num-batched-tokens",
            "used": "--gpu-memory-utilization",
        },
        "VLLM_PP_LAYER_PARTITION",
    ),
    "sglang": _Flags(
        "--pp-size",
        "--dp-size",
        "--tp-size",
        {
            "context": "--context-length",
            "sequences": "--max-running-requests",
            "chunk": "--chunked-prefill-size",
            "used": "--mem-fraction-static",
        },
        "SGLANG_PP_LAYER_PARTITION",
    ),
}


def _by_flags(
    runtime: str, graph: OpGraph, platform: Platform, placement: Placement, served: Mapping[str, Any]
) -> RuntimeArguments:
    flags = _FLAGS[runtime]
    pipeline = _pipeline(runtime, graph, platform, placement)
    arguments = [flags.stages, str(len(pipeline.stages)), *pipeline.degrees(flags.degree)]
    arguments += [flags.replicas, str(pipeline.replicas)] if pipeline.replicas > 1 else []
    arguments += _options(_used_share(served), flags.planned)
    devices = pipeline.by_replica()
    counts = ",".join(map(str, pipeline.counts))
    environment = {**visible_devices(platform, devices, served.get("cards")), flags.variable: counts}
    return RuntimeArguments(runtime, environment, tuple(arguments), devices)


def _tensorrt_llm(
    graph: OpGraph, platform: Platform, placement: Placement, served: Mapping[str, Any]
) -> RuntimeArguments:
    pipeline = _pipeline("tensorrt-llm", graph, platform, placement)
    if pipeline.replicas > 1:
        raise UnsupportedProblemError("tensorrt-llm starts replicas one by one; place with --teams off")
    arguments = ["--pp_size", str(len(pipeline.stages)), *pipeline.degrees("--tp_size")]
    arguments += _options(
        _used_share(served),
        {
            "context": "--max_seq_len",
            "sequences": "--max_batch_size",
            "chunk": "--max_num_tokens",
            "used": "--kv_cache_free_gpu_memory_fraction",
        },
    )
    devices = pipeline.by_replica()
    config: dict[str, Any] = {"pipeline_parallel_size": len(pipeline.stages), "pp_partition": pipeline.counts}
    config |= {"tensor_parallel_size": pipeline.degree} if pipeline.degree > 1 else {}
    environment = visible_devices(platform, devices, served.get("cards"))
    return RuntimeArguments("tensorrt-llm", environment, tuple(arguments), devices, config)


def _megatron(graph: OpGraph, platform: Platform, placement: Placement, served: Mapping[str, Any]) -> RuntimeArguments:
    pipeline = _pipeline("megatron", graph, platform, placement)  # it derives replicas from the number of ranks
    stages = pipeline.stages
    predicting = int(served.get("predicting_blocks", 0))
    if predicting > len(stages[-1].blocks):
        raise UnsupportedProblemError(
            f"megatron has all {predicting} blocks of multi-token prediction on the last stage"
        )

    def letters(letter: str, count: int) -> str:
        return f"{letter}*{count}" if count > 1 else letter * count

    layout = []
    for at, stage in enumerate(stages):
        is_last = at == len(stages) - 1
        more = predicting if is_last else 0  # blocks of multi-token prediction are the last ones, beside the head
        layout.append("E" * (at == 0) + letters("t", len(stage.blocks) - more) + letters("m", more) + "L" * is_last)
    # a stage with nothing would shift the ranks; the ends always have embedding and head
    arguments = (
        *(["--mtp-num-layers", str(predicting)] if predicting else []),
        "--pipeline-model-parallel-size", str(len(stages)),
        "--pipeline-model-parallel-layout", "|".join(layout), *pipeline.degrees("--tensor-model-parallel-size"),
    )  # fmt: skip
    devices = pipeline.by_stage()
    return RuntimeArguments("megatron", visible_devices(platform, devices, served.get("cards")), arguments, devices)


def _torchtitan(
    graph: OpGraph, platform: Platform, placement: Placement, served: Mapping[str, Any]
) -> RuntimeArguments:
    pipeline = _pipeline("torchtitan", graph, platform, placement)
    stages, replicas = pipeline.stages, pipeline.replicas
    parts = [
        ["tok_embeddings"] * (at == 0)
        + [f"layers.{block}" for block in stage.blocks]
        + ["norm", "output"] * (at == len(stages) - 1)
        for at, stage in enumerate(stages)
    ]
    arguments = ["--parallelism.pipeline_parallel_degree", str(len(stages))]
    arguments += ["--parallelism.data_parallel_replicate_degree", str(replicas)] if replicas > 1 else []
    arguments += pipeline.degrees("--parallelism.tensor_parallel_degree")
    devices = pipeline.by_stage()  # pp is the outermost dimension, tp the innermost
    return RuntimeArguments(
        "torchtitan", visible_devices(platform, devices, served.get("cards")), tuple(arguments), devices,
        {"parallelism": {"pipeline_parallel_degree": len(stages), "module_fqns_per_model_part": parts}},
    )  # fmt: skip


_OF_PHASE: Mapping[tuple[str, str], RuntimeArguments] = {
    ("vllm", "prefill"): RuntimeArguments(
        "vllm",
        {"VLLM_NIXL_SIDE_CHANNEL_PORT": "5600"},
        ("--port", "8100", "--kv-transfer-config", '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'),
    ),
    ("vllm", "decode"): RuntimeArguments(
        "vllm",
        {"VLLM_NIXL_SIDE_CHANNEL_PORT": "5700"},
        ("--port", "8200", "--kv-transfer-config", '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'),
    ),
    ("sglang", "prefill"): RuntimeArguments("sglang", {}, ("--port", "30000", "--disaggregation-mode", "prefill")),
    ("sglang", "decode"): RuntimeArguments("sglang", {}, ("--port", "30001", "--disaggregation-mode", "decode")),
    ("tensorrt-llm", "prefill"): RuntimeArguments(
        "tensorrt-llm", {}, ("--port", "8001"),
        config={"disable_overlap_scheduler": True, "cache_transceiver_config": {"backend": "DEFAULT"}},
    ),
    ("tensorrt-llm", "decode"): RuntimeArguments(
        "tensorrt-llm", {}, ("--port", "8002"), config={"cache_transceiver_config": {"backend": "DEFAULT"}}
    ),
}  # fmt: skip
"""Arguments that make a server of a runtime serve one phase only."""


def phase_arguments(
    runtime: str, phase: str, graph: OpGraph, platform: Platform, placement: Placement, served: Mapping[str, Any]
) -> RuntimeArguments:
    """Return what the server of ``"prefill"`` or of ``"decode"`` is started with; see `runtime_arguments`."""
    told, more = runtime_arguments(runtime, graph, platform, placement, served), _OF_PHASE[runtime, phase]
    return replace(
        told,
        environment={**told.environment, **more.environment},
        arguments=(*told.arguments, *more.arguments),
        config={**told.config, **more.config},
        file=f"{phase}.yaml",
    )


ARGUMENT_RUNTIMES: Mapping[str, Callable[[OpGraph, Platform, Placement, Mapping[str, Any]], RuntimeArguments]] = {
    **{runtime: partial(_by_flags, runtime) for runtime in _FLAGS},
    "tensorrt-llm": _tensorrt_llm,
    "megatron": _megatron,
    "torchtitan": _torchtitan,
    "llama.cpp": llama_cpp_arguments,
}
"""Runtimes that `runtime_arguments` knows."""
