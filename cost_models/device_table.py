"""Device table of the analytic cost model: sustained rates per class of ops, with their source.

The numbers are *sustained* rates of a class of devices, to within a factor of about two: enough to compare placements,
no replacement for measuring (:class:`placekit.cost_models.profiled.Profiled`). Every entry says where it comes from in
`source`; "measured" refers to single-thread OpenVINO runs of convolutional and transformer models on one AVX-512 server
core (ResNet-50: 8.2 GFLOP in 32 ms in f32, 16 ms in bf16), "data sheet" to the published peak of a device class times
the stated efficiency. Give a device its own numbers with ``[spec.NAME]`` in a platform file.

Named accelerators have published peaks times one efficiency for all of them. What an op takes on such a card is
`DENSE` of the peak of its matrix units in 16 bits (sums in 32), `PLAIN` of its plain 32-bit peak or `BANDWIDTH` of its
memory bandwidth, whichever is slowest; a link gives `LINK` of the bus. With equal efficiencies, two cards compare as
their data sheets do; one card against a measured device is right to within a factor of about two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, Self

from placekit.model.errors import InvalidProblemError, UnknownNameError
from placekit.model.platform import Device, Link

_ADDED_CORE = 0.9
_FORK_JOIN_S = 2e-6

SOCKET_BANDWIDTH = 100e9
"""Bytes per second of all cores together: four channels of DDR5-4800 are 154e9 by data sheet, 65 % of it sustained."""


@dataclass(frozen=True)
class DeviceSpec:
    """The sustained rates of one class of devices.

    Parameters
    ----------
    name
        Name of the entry.
    dense_flops_per_s
        Convolutions, matrix products, attention, recurrent cells.
    depthwise_flops_per_s
        Depthwise and grouped convolutions, which reuse little.
    other_flops_per_s
        Everything else: elementwise ops, reductions, normalisation, pooling.
    memory_bandwidth_bytes_per_s
        Between the compute units and the device's own memory.
    op_overhead_s
        Fixed cost of starting one op (or one fused group of ops).
    int8_speed
        Rate of dense products of 8-bit integers over `dense_flops_per_s`, at least 1; 1 for a device without them.
    f32_speed
        Rate of dense products in f32 over `dense_flops_per_s`, at most 1. Below 1 the device computes in 16 bits, and
        floats take 2 bytes there, unless a property says f32.
    link
        Default link to host memory, for platforms that give none; None for a device that works in host memory.
    memory_bytes
        What such a device has; None for a device that works in host memory.
    unsupported_op_types
        Op types that the device cannot run.
    source
        Where the numbers come from.

    Raises
    ------
    InvalidProblemError
        A rate that is not positive and finite, or a negative overhead.
    """

    name: str
    dense_flops_per_s: float
    depthwise_flops_per_s: float
    other_flops_per_s: float
    memory_bandwidth_bytes_per_s: float
    op_overhead_s: float
    int8_speed: float = 1.0
    f32_speed: float = 1.0
    link: Link | None = None
    memory_bytes: float | None = None
    unsupported_op_types: frozenset[str] = frozenset()
    source: str = "given"

    def __post_init__(self) -> None:
        object.__setattr__(self, "unsupported_op_types", frozenset(self.unsupported_op_types))
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.endswith("_per_s") and not (math.isfinite(value) and value > 0):
                raise InvalidProblemError(f"spec {self.name!r}: {field.name} is {value}; it must be finite and > 0")
        if not (math.isfinite(self.op_overhead_s) and self.op_overhead_s >= 0):
            raise InvalidProblemError(
                f"spec {self.name!r}: op_overhead_s is {self.op_overhead_s}; it must be finite and >= 0"
            )
        if not (math.isfinite(self.int8_speed) and self.int8_speed >= 1):
            raise InvalidProblemError(
                f"spec {self.name!r}: int8_speed is {self.int8_speed}; it must be finite and >= 1"
            )
        if not 0 < self.f32_speed <= 1:
            raise InvalidProblemError(f"spec {self.name!r}: f32_speed is {self.f32_speed}; it must be > 0 and <= 1")

    @property
    def float_bits(self) -> int:
        """Bits of the floating-point numbers that the device computes with."""
        return 32 if self.f32_speed == 1 else 16

    def as_set(self, device: Device) -> Self:
        """Return this spec for a device that is set to compute in f32; itself for any other device."""
        if device.properties.get("INFERENCE_PRECISION_HINT") != "f32" or self.f32_speed == 1:
            return self
        return replace(
            self,
            name=f"{self.name} f32",
            dense_flops_per_s=self.dense_flops_per_s * self.f32_speed,
            int8_speed=self.int8_speed / self.f32_speed,
            f32_speed=1.0,
        )

    def on_cores(self, num_cores: int) -> Self:
        """Return this one-core spec for a group of `num_cores` cores.

        Compute grows by 0.9 per added core (fork and join, shared caches), bandwidth until `SOCKET_BANDWIDTH` fills.
        """
        if num_cores == 1:
            return self
        factor = 1 + _ADDED_CORE * (num_cores - 1)
        return replace(
            self,
            name=f"{self.name} x{num_cores}",
            dense_flops_per_s=self.dense_flops_per_s * factor,
            depthwise_flops_per_s=self.depthwise_flops_per_s * factor,
            other_flops_per_s=self.other_flops_per_s * factor,
            memory_bandwidth_bytes_per_s=min(self.memory_bandwidth_bytes_per_s * num_cores, SOCKET_BANDWIDTH),
            op_overhead_s=self.op_overhead_s + _FORK_JOIN_S,
            source=f"{self.source}; {num_cores} cores at {factor:.1f} times one",
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the spec as JSON values, for the provenance of a cost table."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values["unsupported_op_types"] = sorted(self.unsupported_op_types)
        values["link"] = self.link and self.link.to_dict()
        return values


CONTROL_FLOW_TYPES = frozenset({"If", "Loop", "TensorIterator"})
"""Ops with bodies: they need a host that decides what runs next."""

DATA_DEPENDENT_TYPES = frozenset(
    {"NonMaxSuppression", "MulticlassNms", "MatrixNms", "NonZero", "Unique", "ExperimentalDetectronDetectionOutput"}
)
"""Ops whose output shape depends on the values of their inputs."""

STRING_TYPES = frozenset({"StringTensorPack", "StringTensorUnpack", "RegexNormalization", "BPETokenizer"})
"""Ops on strings (tokenizers)."""

_NPU_UNSUPPORTED = CONTROL_FLOW_TYPES | DATA_DEPENDENT_TYPES | STRING_TYPES

_CORE_F32 = DeviceSpec(
    name="cpu-core-f32",
    dense_flops_per_s=230e9,
    depthwise_flops_per_s=70e9,
    other_flops_per_s=30e9,
    memory_bandwidth_bytes_per_s=25e9,
    op_overhead_s=1e-6,
    int8_speed=3.0,  # AVX512_VNNI multiplies four times as many 8-bit as f32 numbers per instruction; 75 % of it
    source="measured: 200-265 GF/s for the median op, 45-100 GF/s for the slowest tenth (depthwise and small ops); "
    "elementwise: half an AVX-512 operation per cycle at 3.5 GHz; bandwidth: one core of a server, most tensors in "
    "cache (memcpy 38-78 GB/s there) but weights not",
)
_CORE_BF16 = replace(
    _CORE_F32,
    name="cpu-core-bf16",
    dense_flops_per_s=460e9,
    depthwise_flops_per_s=100e9,
    int8_speed=1.5,
    f32_speed=0.5,
    source="measured: whole models 1.9-2.0 times as fast as f32 (AVX512_BF16); the rest as cpu-core-f32",
)

DENSE, DEPTHWISE, PLAIN, BANDWIDTH, LINK = 0.4, 0.15, 0.4, 0.7, 0.65
"""Sustained share of the peak: matrix units, plain units with little reuse, plain units, memory, bus."""

PCIE_3, PCIE_4, PCIE_5 = 15.75e9, 31.5e9, 63.0e9
"""Bytes per second of 16 lanes, one way."""


def _card(
    name: str, product: str, matrix_tflops: float, int8_tops: float, plain_tflops: float, memory_gb_per_s: float,
    memory_gib: float, bus_bytes_per_s: float,
) -> DeviceSpec:  # fmt: skip
    bus = "unified memory" if bus_bytes_per_s > PCIE_5 else f"a bus of {bus_bytes_per_s / 1e9:.4g} GB/s"
    return DeviceSpec(
        name=name,
        dense_flops_per_s=DENSE * matrix_tflops * 1e12,
        depthwise_flops_per_s=DEPTHWISE * plain_tflops * 1e12,
        other_flops_per_s=PLAIN * plain_tflops * 1e12,
        memory_bandwidth_bytes_per_s=BANDWIDTH * memory_gb_per_s * 1e9,
        op_overhead_s=6e-6,
        int8_speed=int8_tops / matrix_tflops,
        f32_speed=plain_tflops / matrix_tflops,
        link=Link(15e-6, LINK * bus_bytes_per_s),
        memory_bytes=memory_gib * 2.0**30,
        source=f"data sheet of {product}: {matrix_tflops:g} TFLOP/s in 16 bits without sparsity ({DENSE:.0%} of it "
        f"sustained), {int8_tops:g} TOP/s in int8, {plain_tflops:g} in f32 ({PLAIN:.0%}), {memory_gb_per_s:g} GB/s "
        f"({BANDWIDTH:.0%}), {memory_gib:g} GiB, {bus} ({LINK:.0%}); launch and copy: typical of GPU queues",
    )


# int8 without sparsity: data sheets of the T4 (130), L4, A10, A100, H100; Ampere and Ada architecture papers (284 and
# 661); Arc A770 (275); Apple names none for its GPUs
CARDS = (
    _card("t4", "NVIDIA T4", 65, 130, 8.1, 320, 16, PCIE_3),
    _card("l4", "NVIDIA L4", 121, 242, 30.3, 300, 24, PCIE_4),
    _card("a10", "NVIDIA A10", 125, 250, 31.2, 600, 24, PCIE_4),
    _card("a100-40gb", "NVIDIA A100 40 GB PCIe", 312, 624, 19.5, 1555, 40, PCIE_4),
    _card("a100-80gb", "NVIDIA A100 80 GB SXM", 312, 624, 19.5, 2039, 80, PCIE_4),
    _card("h100", "NVIDIA H100 80 GB SXM", 989, 1979, 67, 3350, 80, PCIE_5),
    _card("rtx3090", "GeForce RTX 3090", 71, 284, 35.6, 936, 24, PCIE_4),
    _card("rtx4090", "GeForce RTX 4090", 165, 661, 82.6, 1008, 24, PCIE_4),
    _card("arc-a770", "Intel Arc A770 16 GB", 137, 275, 19.7, 560, 16, PCIE_4),
    _card("m2-ultra", "Apple M2 Ultra, 76 GPU cores", 27.2, 27.2, 27.2, 800, 192, 400e9),
)
"""Every named card."""

DEVICE_TABLE: Mapping[str, DeviceSpec] = MappingProxyType(
    {
        spec.name: spec
        for spec in (
            _CORE_F32,
            _CORE_BF16,
            replace(_CORE_F32.on_cores(8), name="cpu-8core-f32"),
            replace(_CORE_BF16.on_cores(8), name="cpu-8core-bf16"),
            DeviceSpec(
                name="gpu-integrated",
                dense_flops_per_s=4e12,
                depthwise_flops_per_s=0.8e12,
                other_flops_per_s=1e12,
                memory_bandwidth_bytes_per_s=70e9,
                op_overhead_s=8e-6,
                int8_speed=2.0,
                f32_speed=0.5,
                link=Link(10e-6, 20e9),
                source="data sheet of a laptop GPU with 8 Xe cores (4.6 TFLOP/s f32, twice that in f16, 45 % of it "
                "sustained; 18 TOP/s int8 by DP4A) on LPDDR5x shared with the CPU (120 GB/s, 60 %); launch and copy: "
                "typical of OpenCL queues",
            ),
            DeviceSpec(
                name="gpu-discrete",
                dense_flops_per_s=40e12,
                depthwise_flops_per_s=3e12,
                other_flops_per_s=8e12,
                memory_bandwidth_bytes_per_s=400e9,
                op_overhead_s=6e-6,
                int8_speed=2.0,
                f32_speed=0.2,
                link=Link(15e-6, 20e9),
                memory_bytes=16 * 2.0**30,
                source="data sheet of a mid-range card with matrix units (137 TFLOP/s f16, 30 % sustained; 275 TOP/s "
                "int8; 19.7 TFLOP/s f32, 40 %; 560 GB/s, 70 %) on PCIe 4.0 x16 (31.5 GB/s, 65 %)",
            ),
            # 2024: Intel Core Ultra 200V (NPU 4) 48 TOP/s, AMD Ryzen AI 300 (XDNA 2) 50, Snapdragon X (Hexagon) 45,
            # all in int8 and half of it in f16 (NPU 4: 24 TFLOP/s); 12 vector units of 512 bits at 1.95 GHz, 1.5
            # TFLOP/s f16; LPDDR5x-8533 on 128 bits, 136 GB/s, of which the NPU has about half
            DeviceSpec(
                name="npu",
                dense_flops_per_s=9.6e12,
                depthwise_flops_per_s=1.2e12,
                other_flops_per_s=0.6e12,
                memory_bandwidth_bytes_per_s=60e9,
                op_overhead_s=20e-6,
                int8_speed=2.0,
                f32_speed=0.5,
                link=Link(50e-6, 10e9),
                unsupported_op_types=_NPU_UNSUPPORTED,
                source="data sheets of laptop NPUs of 2024 (45 to 50 TOP/s int8, half in f16, 40 % sustained; vector "
                "units 1.5 TFLOP/s, 40 %) on memory shared with the CPU; launch: a command list per call",
            ),
            # 2023: Intel Core Ultra 100 (NPU 3) 11.5 TOP/s, AMD Ryzen 7040 (XDNA) 10, in int8
            DeviceSpec(
                name="npu-2023",
                dense_flops_per_s=2.3e12,
                depthwise_flops_per_s=0.3e12,
                other_flops_per_s=0.1e12,
                memory_bandwidth_bytes_per_s=40e9,
                op_overhead_s=20e-6,
                int8_speed=2.0,
                f32_speed=0.5,
                link=Link(50e-6, 10e9),
                unsupported_op_types=_NPU_UNSUPPORTED,
                source="data sheets of laptop NPUs of 2023 (10 to 11.5 TOP/s int8, half in f16, 40 % sustained; vector "
                "units two orders below) on memory shared with the CPU; launch: a command list per call",
            ),
            *CARDS,
        )
    }
)
"""Every entry by its name."""


def get_spec(name: str) -> DeviceSpec:
    """Return the entry called `name`.

    Raises
    ------
    UnknownNameError
        No such entry; the message lists them.
    """
    if name not in DEVICE_TABLE:
        raise UnknownNameError(f"no device spec {name!r}; specs are {', '.join(DEVICE_TABLE)}")
    return DEVICE_TABLE[name]


def spec_from_values(name: str, values: Mapping[str, Any]) -> DeviceSpec:
    """Return the spec that a platform file describes.

    Parameters
    ----------
    name
        Its name in the file.
    values
        Some fields of `DeviceSpec`, and `base`: the entry that gives the others (all must be there without it).

    Raises
    ------
    UnknownNameError
        An unknown `base`.
    InvalidProblemError
        An unknown or missing field, or a value out of range.
    """
    given = {key: value for key, value in values.items() if key != "base" and value is not None}
    known = {field.name for field in fields(DeviceSpec)} - {"name", "source", "link", "memory_bytes"}
    if extra := sorted(given.keys() - known):
        raise InvalidProblemError(
            f"spec {name!r} has no field {extra[0]!r}; fields are base, {', '.join(sorted(known))}"
        )
    base = values.get("base")
    if base is not None:
        return replace(get_spec(base), name=name, source=f"platform file, based on {base}", **given)
    needed = [field.name for field in fields(DeviceSpec) if field.name.endswith("_per_s")]
    if missing := [key for key in needed if key not in given]:
        raise InvalidProblemError(f"spec {name!r} lacks {missing[0]}; give it, or a base: {', '.join(DEVICE_TABLE)}")
    return DeviceSpec(name=name, source="platform file", **{"op_overhead_s": 0.0, **given})


def guess_spec(device: Device) -> DeviceSpec:
    """Return the entry for a device that names none: by its OpenVINO string, else by its kind.

    A CPU gets a core per entry of `cores` (or per inference thread), in the precision of its properties; a CPU that
    says neither counts as eight cores. A GPU counts as discrete unless it is called integrated (``igpu``).

    Raises
    ------
    UnknownNameError
        Neither the string nor the kind tells; the message lists the entries.
    """
    if device.kind in DEVICE_TABLE:
        return DEVICE_TABLE[device.kind]
    said = [text.upper() for text in (device.openvino, device.kind) if text]
    for text in said:
        if text.startswith("CPU"):
            precision = device.properties.get("INFERENCE_PRECISION_HINT", "f32")
            core = _CORE_BF16 if precision in {"bf16", "f16"} else _CORE_F32
            threads = device.properties.get("INFERENCE_NUM_THREADS", "")
            num_cores = len(device.cores) or (int(threads) if threads.isdecimal() else 0)
            return core.on_cores(num_cores or 8)
        if text.startswith(("IGPU", "INTEGRATED")):
            return DEVICE_TABLE["gpu-integrated"]
        if text.startswith(("GPU", "DGPU", "CUDA", "ACC")):
            integrated = any(each.startswith("IGPU") for each in said)
            return DEVICE_TABLE["gpu-integrated" if integrated else "gpu-discrete"]
        if text.startswith("NPU"):
            return DEVICE_TABLE["npu"]
    if device.is_host:
        return DEVICE_TABLE["cpu-8core-f32"]
    raise UnknownNameError(
        f"device {device.name!r} of kind {device.kind!r} has no spec and its name does not tell; "
        f"give one of {', '.join(DEVICE_TABLE)}"
    )
