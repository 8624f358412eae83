"""Named accelerators of the device table: published peaks times one efficiency for all of them.

What an op takes on such a card is `DENSE` of the peak of its matrix units in 16 bits (sums in 32), `PLAIN` of its plain
32-bit peak or `BANDWIDTH` of its memory bandwidth, whichever is slowest; a link gives `LINK` of the bus. With equal
efficiencies, two cards compare as their data sheets do; one card against a measured device is right to within a factor
of about two.
"""

from __future__ import annotations

from placekit.cost_models.device_spec import DeviceSpec
from placekit.model.platform import Link

__all__ = ["CARDS"]

DENSE, DEPTHWISE, PLAIN, BANDWIDTH, LINK = 0.4, 0.15, 0.4, 0.7, 0.65
"""Sustained share of the peak: matrix units, plain units with little reuse, plain units, memory, bus."""

PCIE_3, PCIE_4, PCIE_5 = 15.75e9, 31.5e9, 63.0e9
"""Bytes per second of 16 lanes, one way."""


def _card(
    name: str, product: str, matrix_tflops: float, plain_tflops: float, memory_gb_per_s: float, memory_gib: float,
    bus_bytes_per_s: float,
) -> DeviceSpec:  # fmt: skip
    bus = "unified memory" if bus_bytes_per_s > PCIE_5 else f"a bus of {bus_bytes_per_s / 1e9:.4g} GB/s"
    return DeviceSpec(
        name=name,
        dense_flops_per_s=DENSE * matrix_tflops * 1e12,
        depthwise_flops_per_s=DEPTHWISE * plain_tflops * 1e12,
        other_flops_per_s=PLAIN * plain_tflops * 1e12,
        memory_bandwidth_bytes_per_s=BANDWIDTH * memory_gb_per_s * 1e9,
        op_overhead_s=6e-6,
        link=Link(15e-6, LINK * bus_bytes_per_s),
        memory_bytes=memory_gib * 2.0**30,
        source=f"data sheet of {product}: {matrix_tflops:g} TFLOP/s in 16 bits without sparsity ({DENSE:.0%} of it "
        f"sustained), {plain_tflops:g} in f32 ({PLAIN:.0%}), {memory_gb_per_s:g} GB/s ({BANDWIDTH:.0%}), "
        f"{memory_gib:g} GiB, {bus} ({LINK:.0%}); launch and copy: typical of GPU queues",
    )


CARDS = (
    _card("t4", "NVIDIA T4", 65, 8.1, 320, 16, PCIE_3),
    _card("l4", "NVIDIA L4", 121, 30.3, 300, 24, PCIE_4),
    _card("a10", "NVIDIA A10", 125, 31.2, 600, 24, PCIE_4),
    _card("a100-40gb", "NVIDIA A100 40 GB PCIe", 312, 19.5, 1555, 40, PCIE_4),
    _card("a100-80gb", "NVIDIA A100 80 GB SXM", 312, 19.5, 2039, 80, PCIE_4),
    _card("h100", "NVIDIA H100 80 GB SXM", 989, 67, 3350, 80, PCIE_5),
    _card("rtx3090", "GeForce RTX 3090", 71, 35.6, 936, 24, PCIE_4),
    _card("rtx4090", "GeForce RTX 4090", 165, 82.6, 1008, 24, PCIE_4),
    _card("arc-a770", "Intel Arc A770 16 GB", 137, 19.7, 560, 16, PCIE_4),
    _card("m2-ultra", "Apple M2 Ultra, 76 GPU cores", 27.2, 27.2, 800, 192, 400e9),
)
"""Every named card."""
