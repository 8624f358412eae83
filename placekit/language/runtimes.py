"""Runtimes that serve language models: which devices they take, in what order, and what they reserve.

References
----------
vLLM: ``gpu_memory_utilization`` is 0.9 and ``max_num_batched_tokens`` 2,048; stages are ranks with a GPU each.
SGLang: ``mem_fraction_static`` is about 0.88, ``chunked_prefill_size`` 2,048 on cards below 35 GB.
TensorRT-LLM: ``free_gpu_memory_fraction`` is 0.9, ``max_num_tokens`` 8,192.
llama.cpp: ``--ubatch-size`` is 512; layers that are not offloaded are the first ones, and the token embedding is always
in host memory. Steps of 32 tokens and more are computed on the first card (``op_offload_min_batch_size``), and chunks
of a prompt overlap on several cards if no layer is on the host (``pipeline_parallel`` of ``llama_context``).
accelerate: modules on ``cpu`` are kept there, and copied to the first card whenever they run; `infer_auto_device_map`
fills cards first, and transformers leaves 10 % of them free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from placekit.model.errors import InvalidProblemError, UnknownNameError
from placekit.model.platform import Device, Platform


@dataclass(frozen=True)
class ServingRuntime:
    """Rules of a runtime."""

    name: str
    # what the CPU may hold: ``"none"``; ``"first"``, a run of the first blocks, and the embedding in any case;
    # ``"last"``, a run of the last blocks, computed on the first card; ``"any"`` run
    host: Literal["none", "first", "last", "any"] = "none"
    headroom: float = 0.10  # share of every device's memory that the runtime leaves free
    chunk: int | None = None  # prompt tokens that a step of prefill computes; None for whole prompts
    # what its way to serve makes fast: the tokens of one batch (``"latency"``), or of all requests (``"throughput"``)
    goal: Literal["latency", "throughput"] = "throughput"
    is_parallel: bool = True  # True if it has tensor parallelism, one degree for all stages
    has_phases_apart: bool = False  # True if prefill and decode may be servers of their own
    kernels: str = "general"  # name of the shares of peaks that its kernels sustain, in `placekit.cost_models.cards`
    # tokens of a step from which on the first card computes what the host holds, weights copied to it; None for never
    offload_tokens: int | None = None
    overlaps_prompt: bool = False  # True if cards compute the chunks of one prompt at the same time

    is_distributed: bool = False  # True if one plan may run on several machines

    @property
    def space(self) -> str:
        """Words for the plans that are compared: a proof is about these, and a runtime may know others."""
        where = {
            "none": "a stage of whole blocks per accelerator",
            "first": "a run of whole blocks per device, the first ones or experts of whole blocks on the CPU",
            "last": "a run of whole blocks per card, the last ones kept by the CPU",
            "any": "a run of whole blocks per device",
        }
        return f"{where[self.host]}, devices in any order"

    def refuse_nodes(self, devices: Iterable[Device]) -> None:
        """Refuse devices of several machines, unless the runtime has lines for them."""
        remote = [device.name for device in devices if device.name.upper().startswith("RPC")]
        nodes = list(dict.fromkeys(device.node for device in devices))
        if self.is_distributed or not (len(nodes) > 1 or (remote and self.name == "llama.cpp")):
            return
        where = (
            f"{', '.join(remote)} is on another machine" if remote else f"devices are on {', '.join(map(str, nodes))}"
        )
        how = " (an rpc-server on each, --rpc HOST:PORT)" if self.name == "llama.cpp" else ""
        others = ", ".join(each.name for each in RUNTIMES.values() if each.is_distributed)
        raise InvalidProblemError(
            f"{self.name}: {where}, and lines for several machines{how} are not written yet: plan for the devices of "
            f"one machine, without --for, or for one of {others}"
        )

    def devices(self, platform: Platform) -> Platform:
        """Return the devices that the runtime can use.

        Raises `InvalidProblemError` if there is none.
        """
        hosts = [device for device in platform.devices if device.is_host]
        left_out = hosts if self.host == "none" else hosts[1:] if self.host in ("first", "last") else []
        kept = [device for device in platform.devices if device not in left_out]
        if not kept:
            raise InvalidProblemError(
                f"{self.name} runs on accelerators only; the platform has {', '.join(platform.device_names)}"
            )
        self.refuse_nodes(kept)
        return platform.with_devices(kept)


RUNTIMES: Mapping[str, ServingRuntime] = {
    each.name: each
    for each in (
        ServingRuntime("vllm", chunk=2048, has_phases_apart=True, kernels="servers", is_distributed=True),
        ServingRuntime(
            "sglang", headroom=0.12, chunk=2048, has_phases_apart=True, kernels="servers", is_distributed=True
        ),
        ServingRuntime("tensorrt-llm", chunk=8192, has_phases_apart=True, kernels="servers", is_distributed=True),
        ServingRuntime(
            "llama.cpp",
            "first",
            chunk=512,
            goal="latency",
            is_parallel=False,
            kernels="llama.cpp",
            offload_tokens=32,
            overlaps_prompt=True,
        ),
        ServingRuntime("accelerate", "last", goal="latency", is_parallel=False),
        ServingRuntime("megatron", is_distributed=True),
        ServingRuntime("torchtitan", is_distributed=True),
        ServingRuntime("openvino", "any", chunk=256, goal="latency", is_parallel=False),
        ServingRuntime("placekit", "any", chunk=2048, is_parallel=False),
    )
}
"""Runtimes by name."""


def get_runtime(name: str) -> ServingRuntime:
    """Return the runtime called `name`.

    Raises `UnknownNameError` if there is none.
    """
    if name not in RUNTIMES:
        raise UnknownNameError(f"no runtime {name!r}; it is one of {', '.join(RUNTIMES)}")
    return RUNTIMES[name]
