"""Runtimes that serve language models: which devices they take, in what order, and what they reserve.

References
----------
vLLM: ``gpu_memory_utilization`` is 0.9 and ``max_num_batched_tokens`` 2,048; stages are ranks with a GPU each. Beside
what is counted, a card holds the context and NCCL (0.7 GiB), CUDA graphs (0.5 GiB), and logits, probabilities and
sorted copies of 256 sequences in the sampler: issue 34076 publishes 3.18 GiB for the cache where all else leaves 4.73.
SGLang: ``mem_fraction_static`` is about 0.88, ``chunked_prefill_size`` 2,048 on cards below 35 GB.
TensorRT-LLM: ``free_gpu_memory_fraction`` is 0.9, ``max_num_tokens`` 8,192.
llama.cpp: ``--ubatch-size`` is 512; layers that are not offloaded are the first ones, and the token embedding is always
in host memory. Steps of 32 tokens and more are computed on the first card (``op_offload_min_batch_size``), and chunks
of a prompt overlap on several cards if no layer is on the host (``pipeline_parallel`` of ``llama_context``). Driver and
context take 0.65 GiB of a card (of 8 GiB 7.6 are usable), and the compute buffer has the logits of a micro-batch: the
splits of six models whose fate is published fit, or do not, as published.
accelerate: modules on ``cpu`` are kept there, and copied to the first card whenever they run; `infer_auto_device_map`
fills cards first, and transformers leaves 10 % of them free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from placekit.language.description import ModelDescription
from placekit.language.graph import LOGIT_BYTES
from placekit.model.errors import InvalidProblemError, UnknownNameError
from placekit.model.platform import Device, Platform
from placekit.model.sizes import format_bytes

_GIB = 2.0**30
DEFAULT_HEADROOM = 0.10
"""Share that stays free of host memory, of a card too small to be one, and of every device without a runtime."""
LEAST_CARD_BYTES = 2 * _GIB
"""Memory of the smallest card that runtimes are measured on: what they take themselves is known from there on."""


@dataclass(frozen=True)
class ServingRuntime:
    """Rules of a runtime."""

    name: str
    # what the CPU may hold: ``"none"``; ``"first"``, a run of the first blocks, and the embedding in any case;
    # ``"last"``, a run of the last blocks, computed on the first card; ``"any"`` run
    host: Literal["none", "first", "last", "any"] = "none"
    headroom: float = 0.10  # share of a card's memory that the runtime leaves free
    # reserved_bytes, logit_rows: beside weights, cache and activations a card holds the driver and its context, and
    # logits of as many tokens, 4 bytes each
    reserved_bytes: float = 0.0
    logit_rows: int = 0
    chunk: int | None = None  # prompt tokens that a step of prefill computes; None for whole prompts
    # what its way to serve makes fast: the tokens of one batch (``"latency"``), or of all requests (``"throughput"``)
    goal: Literal["latency", "throughput"] = "throughput"
    is_parallel: bool = True  # True if it has tensor parallelism, one degree for all stages
    has_phases_apart: bool = False  # True if prefill and decode may be servers of their own
    kernels: str = (
        "general"  # name of the shares of peaks that its kernels sustain, in `placekit.cost_models.sheets.cards`
    )
    # tokens of a step from which on the first card computes what the host holds, weights copied to it; None for never
    offload_tokens: int | None = None
    overlaps_prompt: bool = False  # True if cards compute the chunks of one prompt at the same time

    is_distributed: bool = False  # True if one plan may run on several machines
    has_rpc: bool = False  # True if its own servers lend it the devices of other machines

    @property
    def space(self) -> str:
        """Words for the plans that are compared: a proof is about these, and a runtime may know others."""
        where = {
            "none": "a stage of whole blocks per accelerator",
            "first": "a run of whole blocks per device, the first ones or experts of whole blocks on the CPU",
            "last": "a run of whole blocks per card, the last ones kept by the CPU",
            "any": "a run of whole blocks per device",
        }
        alike = "; their chunks of a prompt one after the other" if self.overlaps_prompt else ""
        return f"{where[self.host]}, devices in any order{alike}"

    def card_bytes(self, model: ModelDescription | None) -> float:
        """Return what a card holds beside weights, cache and activations, and beside the headroom.

        Where the host has blocks or experts, a card also has room for the weights of one block that is copied to it.
        """
        if model is None:
            return self.reserved_bytes
        copied = 0.0 if self.offload_tokens is None else max(block.weight_bytes for block in model.blocks)
        return self.reserved_bytes + self.logit_rows * model.vocab * LOGIT_BYTES + copied

    def usable(self, machine: Platform, model: ModelDescription | None) -> tuple[Platform, str]:
        """Return the memory that a plan may fill, and words for what stays free.

        Raises `InvalidProblemError`: a card that has less than the runtime itself takes.
        """
        reserved, devices = self.card_bytes(model), []
        for device in machine.devices:
            limit = device.memory_bytes
            is_small = device.is_host or (limit is not None and limit < LEAST_CARD_BYTES)
            share, size = (DEFAULT_HEADROOM, 0.0) if is_small else (self.headroom, reserved)
            if limit is not None and limit * (1 - share) <= size:
                raise InvalidProblemError(
                    f"device {device.name!r} has {format_bytes(limit)}; {self.name} itself takes {format_bytes(size)}"
                )
            devices.append(device if limit is None else device.replace(memory_bytes=limit * (1 - share) - size))
        told = [f"{self.headroom:.0%} of every card"] if self.headroom else []
        told += [f"{format_bytes(reserved)} of every card for {self.name} itself"] if reserved else []
        return machine.replace(devices=tuple(devices)), " and ".join(told)

    def refuse_nodes(self, devices: Iterable[Device]) -> None:
        """Refuse devices of several machines, unless the runtime has lines for them."""
        nodes = list(dict.fromkeys(device.node for device in devices))
        if self.is_distributed or len(nodes) < 2:
            return
        others = ", ".join(each.name for each in RUNTIMES.values() if each.is_distributed or each.has_rpc)
        raise InvalidProblemError(
            f"{self.name}: devices are on {', '.join(map(str, nodes))}, and "
            + ("its servers there need a plan that knows them: plan again with placekit llm --for llama.cpp"
               if self.has_rpc
               else "it has no lines for several machines: plan for the devices of one machine, without --for, or for "
               f"one of {others}")
        )  # fmt: skip

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
        ServingRuntime(
            "vllm",
            chunk=2048,
            has_phases_apart=True,
            kernels="servers",
            is_distributed=True,
            reserved_bytes=1.2 * _GIB,
            logit_rows=900,
        ),
        ServingRuntime(
            "sglang", headroom=0.12, chunk=2048, has_phases_apart=True, kernels="servers", is_distributed=True
        ),
        ServingRuntime("tensorrt-llm", chunk=8192, has_phases_apart=True, kernels="servers", is_distributed=True),
        ServingRuntime(
            "llama.cpp",
            "first",
            headroom=0.0,
            reserved_bytes=0.65 * _GIB,
            logit_rows=512,
            chunk=512,
            goal="latency",
            is_parallel=False,
            kernels="llama.cpp",
            offload_tokens=32,
            overlaps_prompt=True,
            has_rpc=True,
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
