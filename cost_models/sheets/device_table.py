"""Device table of the analytic cost model: sustained rates per class of ops, with their source.

The numbers are *sustained* rates of a class of devices, to within a factor of about two: enough to compare placements,
no replacement for measuring (:class:`placekit.cost_models.profiled.Profiled`). Every entry says where it comes from in
`source`; "measured" refers to single-thread OpenVINO runs of convolutional and transformer models on one AVX-512 server
core (ResNet-50: 8.2 GFLOP in 32 ms in f32, 16 ms in bf16), "data sheet" to the published peak of a device class times
the stated efficiency. Give a device its own numbers with ``[spec.NAME]`` in a platform file.

Cards by trade name (:mod:`placekit.cost_models.sheets.cards`) have published peaks times the shares that the kernels of
a runtime sustain. With equal shares, two cards compare as their data sheets do.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from types import MappingProxyType
from typing import Any, Self

from placekit.cost_models.sheets.cards import GENERAL, Card, Kernels, Processor, Ram, get_card, is_card
from placekit.model.errors import InvalidProblemError, UnknownNameError, did_you_mean
from placekit.model.platform import Device, Link, Platform

_LOGGER = logging.getLogger(__name__)

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

    def scaled(self, arithmetic: float = 1.0, memory: float = 1.0, overhead: float = 1.0) -> Self:
        """Return this spec with multiples of its rates of arithmetic, of its memory bandwidth and of its overhead."""
        return replace(
            self,
            dense_flops_per_s=self.dense_flops_per_s * arithmetic,
            depthwise_flops_per_s=self.depthwise_flops_per_s * arithmetic,
            other_flops_per_s=self.other_flops_per_s * arithmetic,
            memory_bandwidth_bytes_per_s=self.memory_bandwidth_bytes_per_s * memory,
            op_overhead_s=self.op_overhead_s * overhead,
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

DEPTHWISE, OTHER, HOST_OTHER = 0.15, 0.4, 0.1
"""Sustained share of the plain rate: little reuse on a card, elementwise ops on a card, both on a processor."""


def card_spec(card: Card, kernels: Kernels = GENERAL) -> DeviceSpec:
    """Return what the kernels of a runtime sustain on a card."""
    peak = card.f16_sum16_flops_per_s if kernels.has_sums16 else card.f16_flops_per_s
    by_units = kernels.matrix * peak if card.has_matrix_units else kernels.plain * card.f32_flops_per_s
    bus = card.bus_bytes_per_s or card.bandwidth_bytes_per_s / 2  # a copy reads and writes the one memory
    return DeviceSpec(
        name=card.spec_name,
        dense_flops_per_s=by_units,
        depthwise_flops_per_s=DEPTHWISE * card.f32_flops_per_s,
        other_flops_per_s=OTHER * card.f32_flops_per_s,
        memory_bandwidth_bytes_per_s=kernels.bandwidth[card.memory] * card.bandwidth_bytes_per_s,
        op_overhead_s=kernels.launch_s,
        int8_speed=max(1.0, card.int8_ops_per_s / peak),
        f32_speed=min(1.0, card.f32_flops_per_s / peak) if card.has_matrix_units else 1.0,
        link=Link(kernels.handover_s / 2, kernels.bus * bus),
        memory_bytes=card.memory_bytes,
        source=f"data sheet of {card.name}: {peak / 1e12:.4g} TFLOP/s in 16 bits, {card.f32_flops_per_s / 1e12:.4g} in "
        f"f32, {card.bandwidth_bytes_per_s / 1e9:.4g} GB/s, {card.memory_bytes / 2**30:.4g} GiB; shares of "
        f"{kernels.name} kernels: {kernels.source}",
    )


def processor_spec(processor: Processor, ram: Ram, kernels: Kernels = GENERAL) -> DeviceSpec:
    """Return what kernels sustain on all cores of a processor with some memory."""
    return DeviceSpec(
        name=processor.spec_name,
        dense_flops_per_s=kernels.matrix * processor.f32_flops_per_s,
        depthwise_flops_per_s=HOST_OTHER * processor.f32_flops_per_s,
        other_flops_per_s=HOST_OTHER * processor.f32_flops_per_s,
        memory_bandwidth_bytes_per_s=ram.share * ram.bandwidth_bytes_per_s,
        op_overhead_s=1e-6,
        source=f"data sheet of {processor.name}, and {ram.bandwidth_bytes_per_s / 1e9:.4g} GB/s of memory "
        f"({ram.share:.0%})",
    )


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
        )
    }
)
"""Classes of devices by name; cards and processors by trade name are in :mod:`placekit.cost_models.sheets.cards`."""


def get_spec(name: str, kernels: Kernels = GENERAL, own: Iterable[str] = ()) -> DeviceSpec:
    """Return the class of devices or the card called `name`.

    Parameters
    ----------
    name
        A class of `DEVICE_TABLE`, or the trade name of a card in any spelling.
    kernels
        Shares of its peaks that a card sustains.
    own
        Specs that a platform file describes itself, for the message.

    Raises
    ------
    UnknownNameError
        No such entry; the message has those of the file, the classes, and the nearest cards.
    """
    if name in DEVICE_TABLE:
        return DEVICE_TABLE[name]
    if is_card(name):
        return card_spec(get_card(name), kernels)
    raise UnknownNameError(f"no device spec {name!r}: {_told_specs(name, own)}")


def _told_specs(name: str, own: Iterable[str]) -> str:
    """Return words for the specs that there are, with the nearest to `name`."""
    mine = tuple(own)
    in_file = f"the file has {', '.join(mine)}; " if mine else ""
    return f"{in_file}classes are {', '.join(DEVICE_TABLE)}; {_nearest(name, mine)}"


def _nearest(name: str, own: Sequence[str] = ()) -> str:
    """Return words for the cards nearest to a name that is no card's, and the question for a class or a spec of `own`.

    A first word such as ``gpu-`` is no part of a name.
    """
    bare = re.sub(r"^(i?gpu|dgpu|cuda|acc\w*)[\s_.:-]+", "", name.lower())
    meant = did_you_mean(bare, (*own, *DEVICE_TABLE)) or did_you_mean(name.lower(), (*own, *DEVICE_TABLE))
    try:
        return f"the table has {get_card(bare).name!r}"
    except UnknownNameError as error:
        return f"{error}{meant}"


def memory_of_kind(platform: Platform, kind: str) -> tuple[float | None, str]:
    """Return the memory that a device of a kind has by data sheet, and the entry that says so; None if none does.

    That is the entry called like the kind, else the one that its spec is or is based on.
    """
    spec = platform.spec_of_kind.get(kind, kind)
    base = str(platform.specs.get(spec, {}).get("base"))
    name = next((each for each in (kind, spec, base) if each in DEVICE_TABLE or is_card(each)), None)
    return (None, "") if name is None else (get_spec(name).memory_bytes, name)


def spec_from_values(name: str, values: Mapping[str, Any], kernels: Kernels = GENERAL) -> DeviceSpec:
    """Return the spec that a platform file describes.

    Parameters
    ----------
    name
        Its name in the file.
    values
        Some fields of `DeviceSpec`, and `base`: the entry that gives the others (all must be there without it).
    kernels
        Shares of its peaks that a card sustains, if `base` is one.

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
        if not (base in DEVICE_TABLE or is_card(base)):
            raise UnknownNameError(f"spec {name!r} has base {base!r}: {_told_specs(base, ())}")
        return replace(get_spec(base, kernels), name=name, source=f"platform file, based on {base}", **given)
    needed = [field.name for field in fields(DeviceSpec) if field.name.endswith("_per_s")]
    if missing := [key for key in needed if key not in given]:
        raise InvalidProblemError(f"spec {name!r} lacks {missing[0]}; give it, or a base: {', '.join(DEVICE_TABLE)}")
    return DeviceSpec(name=name, source="platform file", **{"op_overhead_s": 0.0, **given})


_GENERIC = re.compile(r"(I|D)?GPU|GPU[-_ ]?(INTEGRATED|DISCRETE)|INTEGRATED([-_ ]GPU)?|CUDA|ACC(ELERATOR)?|NPU", re.I)
_GENERIC_CPU = re.compile(r"CPU([-_ .:\[\]x]+[\dPEL+,-]*)*( ?(F32|BF16|F16))?", re.I)
"""Kinds that mean a class of devices and no product, without the number of a device behind them."""


def guess_spec(device: Device, kernels: Kernels = GENERAL, own: Iterable[str] = ()) -> DeviceSpec:
    """Return the entry for a device that names none: by its OpenVINO string, else by its kind.

    A CPU gets a core per entry of `cores` (or per inference thread), in the precision of its properties; a CPU that
    says neither counts as eight cores. A GPU counts as discrete unless it is called integrated (``igpu``). A kind that
    means more than a class (``cpu-zen5``) is logged as a warning, and refused for an accelerator that is known by it
    alone (``gpu-rtx5999``). `own` are the specs of a platform file, for messages.

    Raises
    ------
    UnknownNameError
        Neither the string nor the kind tells; the message lists the entries.
    """
    if device.kind in DEVICE_TABLE or is_card(device.kind):
        return get_spec(device.kind, kernels)
    found = _class_of(device)
    is_cpu = found is not None and found.link is None
    bare = re.sub(r"[-_ .:#]?\d{1,2}$", "", device.kind)
    if found is not None and (_GENERIC.fullmatch(bare) or (is_cpu and _is_plain_cpu(device))):
        return found
    if found is None or not (is_cpu or device.openvino):
        raise UnknownNameError(
            f"device {device.name!r} of kind {device.kind!r} has no spec, and its kind is no class of devices that is "
            f"known; give `spec`: {_told_specs(device.kind, own)}"
        )
    _warn_of_class(device.name, device.kind, found.name)
    return found


def _is_plain_cpu(device: Device) -> bool:
    """Return True for a CPU whose kind promises nothing that the class does not have."""
    return bool(device.openvino or device.kind.lower() == "host" or _GENERIC_CPU.fullmatch(device.kind))


@cache
def _warn_of_class(device: str, kind: str, spec: str) -> None:
    """Warn of a kind that counts as a class; once per process, as costs are made many times."""
    _LOGGER.warning(
        "device %r of kind %r: no entry is called so, so it counts as %s (%s); give `spec` in the platform file",
        device, kind, spec, _nearest(kind),
    )  # fmt: skip


def _class_of(device: Device) -> DeviceSpec | None:
    """Return the entry of the class of a device by how its OpenVINO string or kind begins; None if neither tells."""
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
    return DEVICE_TABLE["cpu-8core-f32"] if device.is_host else None
