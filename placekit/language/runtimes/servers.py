"""Servers whose stages are ranks with a GPU each: vLLM, SGLang and TensorRT-LLM.

References
----------
vLLM: ``gpu_memory_utilization`` is 0.9 and ``max_num_batched_tokens`` 2,048. ``VLLM_PP_LAYER_PARTITION`` has the layers
of every stage, separated by commas (`get_pp_indices`). Beside what is counted, a card holds the context and NCCL (0.7
GiB), CUDA graphs (0.5 GiB), and logits, probabilities and sorted copies of 256 sequences in the sampler: issue 34076
publishes 3.18 GiB for the cache where all else leaves 4.73.
SGLang: ``mem_fraction_static`` is about 0.88, ``chunked_prefill_size`` 2,048 on cards below 35 GB.
``SGLANG_PP_LAYER_PARTITION`` is the same list.
TensorRT-LLM: ``free_gpu_memory_fraction`` is 0.9, ``max_num_tokens`` 8,192, and ``pp_partition: [9, 11]`` stands in the
file of ``--extra_llm_api_options``.
"""

from __future__ import annotations

from typing import Any

from placekit.language.runtimes.device_names import visible_devices
from placekit.language.runtimes.machines import node_starts, ray_starts
from placekit.language.runtimes.record import Launch, PhaseArguments, Placed, Runtime, Start, Typed
from placekit.language.runtimes.stage_lines import read_server, read_tensorrt_llm
from placekit.language.runtimes.stages import pipeline
from placekit.language.runtimes.values import names
from placekit.model.errors import UnsupportedProblemError

_CACHES = {"auto": "f16", "bfloat16": "bf16", "fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8"}
"""Precision of the cache by the name of vLLM and SGLang."""
_BOTH = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'


def write_server(runtime: Runtime, placed: Placed) -> Launch:
    """Return the launch of a server that takes the number of blocks of every stage from an environment variable."""
    stages, options = pipeline(runtime.name, placed), runtime.options
    arguments = [options["stages"], str(len(stages.stages)), *stages.degrees(options["degree"])]
    arguments += [options["replicas"], str(stages.replicas)] if stages.replicas > 1 else []
    arguments += runtime.planned(placed.served)
    devices, served = stages.by_replica(), placed.served
    starts: tuple[Start, ...]
    if runtime.starter:
        starts = ray_starts(runtime.name, placed, devices)
        arguments += [options["backend"], "ray"] if starts else []
    else:
        starts = node_starts(runtime.name, placed, devices, len(stages.stages))
    if starts and stages.replicas > 1:
        raise UnsupportedProblemError(f"{runtime.name}: replicas on several machines are started one by one; plan "
                                      "each machine by itself, or place with --teams off")  # fmt: skip
    environment = visible_devices(placed.platform, devices, served.cards, served.nodes)
    environment[runtime.variable] = ",".join(map(str, stages.counts))
    return Launch(runtime, environment, tuple(arguments), devices, starts=starts)


def write_tensorrt_llm(runtime: Runtime, placed: Placed) -> Launch:
    """Return the launch of a server that takes the number of blocks of every stage from its settings file."""
    stages, options = pipeline(runtime.name, placed), runtime.options
    if stages.replicas > 1:
        raise UnsupportedProblemError(f"{runtime.name} starts replicas one by one; place with --teams off")
    arguments = [options["stages"], str(len(stages.stages)), *stages.degrees(options["degree"])]
    arguments += runtime.planned(placed.served)
    devices = stages.by_replica()
    config: dict[str, Any] = {"pipeline_parallel_size": len(stages.stages), "pp_partition": stages.counts}
    config |= {"tensor_parallel_size": stages.degree} if stages.degree > 1 else {}
    environment = visible_devices(placed.platform, devices, placed.served.cards, placed.served.nodes)
    return Launch(runtime, environment, tuple(arguments), devices, config)


VLLM = Runtime(
    name="vllm",
    kernel_times="vllm",
    version="0.31.0",
    pages=(
        "vllm/engine/arg_utils.py",
        "vllm/entrypoints/openai/cli_args.py",
        "vllm/envs.py",
        "https://docs.vllm.ai/en/v0.31.0/cli/",
        "https://docs.vllm.ai/en/v0.12.0/features/nixl_connector_usage/",
    ),
    host="none",
    headroom=0.10,
    reserved_bytes=1.2 * 2.0**30,
    logit_rows=900,
    chunk=2048,
    goal="throughput",
    kernels="servers",
    is_parallel=True,
    nodes="a Ray cluster",
    program="vllm serve {model}",
    starter="ray start",
    options={
        "stages": "--pipeline-parallel-size",
        "replicas": "--data-parallel-size",
        "degree": "--tensor-parallel-size",
        "context": "--max-model-len",
        "sequences": "--max-num-seqs",
        "chunk": "--max-num-batched-tokens",
        "used": "--gpu-memory-utilization",
        "backend": "--distributed-executor-backend",
    },
    variable="VLLM_PP_LAYER_PARTITION",
    write=write_server,
    read=read_server,
    typed=Typed(
        programs=(
            "vllm serve",
            "python -m vllm.entrypoints.openai.api_server",
            "python3 -m vllm.entrypoints.openai.api_server",
        ),
        also={
            "-pp": "--pipeline-parallel-size",
            "-tp": "--tensor-parallel-size",
            "-dp": "--data-parallel-size",
            "--model": "",
        },
        flags=dict.fromkeys(
            names("""
            --enforce-eager --trust-remote-code --enable-prefix-caching --no-enable-prefix-caching
            --enable-chunked-prefill --enable-auto-tool-choice --disable-log-requests --disable-log-stats
            --async-scheduling --enable-log-requests --enable-sleep-mode --disable-custom-all-reduce
            """)
        ),
        ignored=names(
            """
            --host --port --dtype --quantization -q --served-model-name --tokenizer --tokenizer-mode --seed --api-key
            --kv-transfer-config --load-format --revision --tool-call-parser --reasoning-parser --chat-template
            --config-format --limit-mm-per-prompt --swap-space --block-size --download-dir --generation-config
            --uvicorn-log-level --compilation-config -O --runner --task --hf-overrides --root-path --max-log-len
            """
        ),
        refused=names(
            """
            --cpu-offload-gb --enable-expert-parallel --data-parallel-size-local --nnodes --node-rank --enable-lora
            --speculative-config --decode-context-parallel-size -dcp
            """
        ),
        cache=("--kv-cache-dtype", _CACHES),
    ),
    phases={
        "prefill": PhaseArguments(
            ("--port", "8100", "--kv-transfer-config", _BOTH), {"VLLM_NIXL_SIDE_CHANNEL_PORT": "5600"}
        ),
        "decode": PhaseArguments(
            ("--port", "8200", "--kv-transfer-config", _BOTH), {"VLLM_NIXL_SIDE_CHANNEL_PORT": "5700"}
        ),
    },
    not_searched=(
        "expert parallelism",
        "attention by data parallel for mixtures of experts",
        "weights on the host (--cpu-offload-gb)",
        "a share of memory for each card of its own",
    ),
)

SGLANG = Runtime(
    name="sglang",
    kernel_times="sglang",
    version="0.5.23",
    pages=(
        "python/sglang/srt/server_args.py",
        "python/sglang/srt/arg_groups/fields",
        "python/sglang/srt/distributed/utils.py",
        "https://docs.sglang.io/advanced_features/server_arguments.html",
    ),
    host="none",
    headroom=0.12,
    chunk=2048,
    goal="throughput",
    kernels="servers",
    is_parallel=True,
    nodes="--nnodes, --node-rank",
    program="python -m sglang.launch_server --model-path {model}",
    options={
        "stages": "--pp-size",
        "replicas": "--dp-size",
        "degree": "--tp-size",
        "context": "--context-length",
        "sequences": "--max-running-requests",
        "chunk": "--chunked-prefill-size",
        "used": "--mem-fraction-static",
    },
    variable="SGLANG_PP_LAYER_PARTITION",
    write=write_server,
    read=read_server,
    typed=Typed(
        programs=("python -m sglang.launch_server", "python3 -m sglang.launch_server", "sglang serve"),
        model="--model-path",
        also={
            "--model": "--model-path",
            "--pipeline-parallel-size": "--pp-size",
            "--pp": "--pp-size",
            "--tp": "--tp-size",
            "--tensor-parallel-size": "--tp-size",
            "--dp": "--dp-size",
            "--data-parallel-size": "--dp-size",
        },
        flags=dict.fromkeys(
            names("""
            --trust-remote-code --disable-cuda-graph --enable-torch-compile --enable-metrics --log-requests
            --skip-server-warmup --enable-p2p-check --disable-radix-cache --disable-custom-all-reduce
            """)
        ),
        ignored=names(
            """
            --host --port --dtype --quantization --served-model-name --tokenizer-path --api-key --disaggregation-mode
            --attention-backend --sampling-backend --random-seed --nccl-init-addr --log-level --cuda-graph-max-bs
            --schedule-policy --schedule-conservativeness --watchdog-timeout --tool-call-parser --reasoning-parser
            --chat-template --load-format --revision --stream-interval
            """
        ),
        refused=names("--cpu-offload-gb --ep-size --ep --enable-dp-attention --base-gpu-id --speculative-algorithm"),
        cache=("--kv-cache-dtype", _CACHES),
    ),
    phases={
        "prefill": PhaseArguments(("--port", "30000", "--disaggregation-mode", "prefill")),
        "decode": PhaseArguments(("--port", "30001", "--disaggregation-mode", "decode")),
    },
    not_searched=(
        "expert parallelism",
        "attention by data parallel for mixtures of experts",
        "weights on the host (--cpu-offload-gb)",
    ),
)

TENSORRT_LLM = Runtime(
    name="tensorrt-llm",
    kernel_times="trtllm",
    version="commit 00209af1",
    pages=(
        "tensorrt_llm/commands/serve.py",
        "tensorrt_llm/llmapi/llm_args.py",
        "https://nvidia.github.io/TensorRT-LLM/llm-api/reference/CacheTransceiverConfig.html",
    ),
    host="none",
    headroom=0.10,
    chunk=8192,
    goal="throughput",
    kernels="servers",
    is_parallel=True,
    program="trtllm-serve {model} --extra_llm_api_options {file}",
    options={
        "stages": "--pp_size",
        "degree": "--tp_size",
        "context": "--max_seq_len",
        "sequences": "--max_batch_size",
        "chunk": "--max_num_tokens",
        "used": "--kv_cache_free_gpu_memory_fraction",
    },
    settings="yaml",
    write=write_tensorrt_llm,
    read=read_tensorrt_llm,
    typed=Typed(
        programs=("trtllm-serve", "trtllm-serve serve"),
        also={
            "--pipeline_parallel_size": "--pp_size",
            "--tensor_parallel_size": "--tp_size",
            "--free_gpu_memory_fraction": "--kv_cache_free_gpu_memory_fraction",
            "--config": "--extra_llm_api_options",
        },
        flags={"--trust_remote_code": None},
        ignored=frozenset({"--host", "--port", "--backend", "--tokenizer", "--log_level", "--max_beam_width"}),
        refused=frozenset({"--ep_size", "--cluster_size", "--gpus_per_node"}),
        settings_file="--extra_llm_api_options",
    ),
    phases={
        "prefill": PhaseArguments(
            ("--port", "8001"),
            config={"disable_overlap_scheduler": True, "cache_transceiver_config": {"backend": "DEFAULT"}},
        ),
        "decode": PhaseArguments(("--port", "8002"), config={"cache_transceiver_config": {"backend": "DEFAULT"}}),
    },
    not_searched=(
        "expert parallelism",
        "attention by data parallel for mixtures of experts",
        "replicas",
        "several machines (mpirun)",
    ),
)
