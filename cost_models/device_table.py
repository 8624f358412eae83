"""Device table of the analytic cost model: sustained rates per class of ops, with their source.

The numbers are *sustained* rates of a class of devices, to within a factor of about two: enough to compare placements,
no replacement for measuring (:class:`placekit.cost_models.profiled.Profiled`). Every entry says where it comes from in
`source`; "measured" refers to single-thread OpenVINO runs of convolutional and transformer models on one AVX-512 server
core (ResNet-50: 8.2 GFLOP in 32 ms in f32, 16 ms in bf16), "data sheet" to the published peak of a device class times
the stated efficiency. Named accelerators are in :mod:`placekit.cost_models.accelerators`. Give a device its own numbers
with ``[spec.NAME]`` in a platform file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

from placekit.cost_models.accelerators import CARDS
from placekit.cost_models.device_spec import DeviceSpec
from placekit.model.errors import InvalidProblemError, UnknownNameError
from placekit.model.platform import Device, Link, Platform

__all__ = ["DEVICE_TABLE", "get_spec", "guess_spec", "platform_of_specs", "spec_from_values"]

CONTROL_FLOW_TYPES = frozenset({"If", "Loop", "TensorIterator"})
"""Ops with bodies: they need a host that decides what runs next."""

DATA_DEPENDENT_TYPES = frozenset(
    {"NonMaxSuppression", "MulticlassNms", "MatrixNms", "NonZero", "Unique", "ExperimentalDetectronDetectionOutput"}
)
"""Ops whose output shape depends on the values of their inputs."""

STRING_TYPES = frozenset({"StringTensorPack", "StringTensorUnpack", "RegexNormalization", "BPETokenizer"})
"""Ops on strings (tokenizers)."""


_CORE_F32 = DeviceSpec(
    name="cpu-core-f32",
    dense_flops_per_s=230e9,
    depthwise_flops_per_s=70e9,
    other_flops_per_s=30e9,
    memory_bandwidth_bytes_per_s=25e9,
    op_overhead_s=1e-6,
    source="measured: 200-265 GF/s for the median op, 45-100 GF/s for the slowest tenth (depthwise and small ops); "
    "elementwise: half an AVX-512 operation per cycle at 3.5 GHz; bandwidth: one core of a server, most tensors in "
    "cache (memcpy 38-78 GB/s there) but weights not",
)
_CORE_BF16 = replace(
    _CORE_F32,
    name="cpu-core-bf16",
    dense_flops_per_s=460e9,
    depthwise_flops_per_s=100e9,
    source="measured: whole models 1.9-2.0 times as fast as f32 (AVX512_BF16); the rest as cpu-core-f32",
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
                link=Link(10e-6, 20e9),
                source="data sheet of a laptop GPU with 8 Xe cores (4.6 TFLOP/s f32, twice that in f16, 45 % of it "
                "sustained) on LPDDR5x shared with the CPU (120 GB/s, 60 %); launch and copy: typical of OpenCL queues",
            ),
            DeviceSpec(
                name="gpu-discrete",
                dense_flops_per_s=40e12,
                depthwise_flops_per_s=3e12,
                other_flops_per_s=8e12,
                memory_bandwidth_bytes_per_s=400e9,
                op_overhead_s=6e-6,
                link=Link(15e-6, 20e9),
                memory_bytes=16 * 2.0**30,
                source="data sheet of a mid-range card with matrix units (137 TFLOP/s f16, 30 % sustained; 19.7 "
                "TFLOP/s f32, 40 %; 560 GB/s, 70 %) on PCIe 4.0 x16 (31.5 GB/s, 65 %)",
            ),
            DeviceSpec(
                name="npu",
                dense_flops_per_s=2.3e12,
                depthwise_flops_per_s=0.3e12,
                other_flops_per_s=0.1e12,
                memory_bandwidth_bytes_per_s=40e9,
                op_overhead_s=20e-6,
                link=Link(50e-6, 10e9),
                unsupported_op_types=CONTROL_FLOW_TYPES | DATA_DEPENDENT_TYPES | STRING_TYPES,
                source="data sheet of a first-generation laptop NPU (11.5 TOP/s int8, half in f16, 40 % sustained; "
                "vector units two orders below) on memory shared with the CPU; launch: a command list per call",
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


def platform_of_specs(counts: Mapping[str, int]) -> Platform:
    """Return a platform of devices that need not be present, by number of devices of each entry of the table.

    Devices are of the kind ``spec`` and are called ``spec.0``, ...; they have the entry's memory and link, and those
    without a link are hosts.

    Raises
    ------
    UnknownNameError
        An entry that the table does not have.

    Examples
    --------
    >>> platform_of_specs({"cpu-8core-f32": 1, "gpu-discrete": 3}).device_names
    ('cpu-8core-f32.0', 'gpu-discrete.0', 'gpu-discrete.1', 'gpu-discrete.2')
    """
    specs = [get_spec(name) for name in counts]
    return Platform(
        tuple(
            Device(f"{spec.name}.{number}", spec.name, memory_bytes=spec.memory_bytes, is_host=spec.link is None)
            for spec in specs
            for number in range(counts[spec.name])
        ),
        {spec.name: spec.link for spec in specs if spec.link is not None and counts[spec.name]},
    )
