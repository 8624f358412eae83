"""Rates of devices by hand: shares of what data sheets say, and what settings make of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placekit.cost_models.sheets.cards import GENERAL, LLAMA_CPP, SERVERS, get_card, get_processor, parse_ram
from placekit.cost_models.sheets.device_table import (
    SOCKET_BANDWIDTH,
    DeviceSpec,
    card_spec,
    get_spec,
    processor_spec,
    spec_from_values,
)
from placekit.model.platform import Device, Link


def test_a_card_with_matrix_units() -> None:
    """RTX 4090: 82.58 TFLOP/s, 165.2 in 16 bits with sums in 32, 330.3 with sums in 16, 660.6 TOP/s, 1010 GB/s."""
    found = card_spec(get_card("RTX 4090"), LLAMA_CPP)
    assert (found.name, found.memory_bytes, found.op_overhead_s) == ("rtx-4090", 24 * 2**30, 7e-6)
    assert found.dense_flops_per_s == pytest.approx(0.33 * 330.3e12)
    assert found.depthwise_flops_per_s == pytest.approx(0.15 * 82.58e12)
    assert found.other_flops_per_s == pytest.approx(0.4 * 82.58e12)
    assert found.memory_bandwidth_bytes_per_s == pytest.approx(0.85 * 1010e9)
    assert (found.int8_speed, found.f32_speed) == pytest.approx((660.6 / 330.3, 82.58 / 330.3))
    assert found.link == Link(40e-6, 0.65 * 31.5e9)
    assert found.source.startswith(
        "data sheet of RTX 4090: 330.3 TFLOP/s in 16 bits, 82.58 in f32, 1010 GB/s, 24 GiB; shares of llama.cpp"
    )
    server = card_spec(get_card("RTX 4090"), SERVERS)
    assert server.dense_flops_per_s == pytest.approx(0.78 * 165.2e12)
    assert (server.int8_speed, server.f32_speed) == pytest.approx((660.6 / 165.2, 82.58 / 165.2))
    assert (server.op_overhead_s, server.link) == (1e-6, Link(30e-6, 0.65 * 31.5e9))


def test_matrix_units_are_known_by_their_rate() -> None:
    """Packed numbers alone are twice as fast as plain ones; matrix units at least four times."""
    card = get_card("RTX 3090")
    for factor, has_units in ((2.0, False), (3.0, False), (4.0, True), (8.0, True)):
        packed = replace(card, f16_sum16_flops_per_s=factor * card.f32_flops_per_s)
        assert packed.has_matrix_units == has_units


def test_a_card_without_matrix_units_that_shares_memory() -> None:
    """M1 Max: 10.4 TFLOP/s of every sort, 400 GB/s, of which a copy takes two; 8-bit integers are no slower."""
    found = card_spec(get_card("M1 Max"))
    assert found.dense_flops_per_s == found.other_flops_per_s == pytest.approx(0.4 * 10.4e12)
    assert (found.int8_speed, found.f32_speed) == (1, 1)
    assert found.memory_bandwidth_bytes_per_s == pytest.approx(0.7 * 400e9)
    assert found.link == Link(15e-6, 0.65 * 200e9)
    assert card_spec(get_card("M1 Max"), SERVERS).memory_bandwidth_bytes_per_s == pytest.approx(0.75 * 400e9)


def test_kernels_reach_shares_of_hbm() -> None:
    """H100: 3360 GB/s; general kernels launch an op in 6 us."""
    for share, kernels in ((0.7, GENERAL), (0.55, LLAMA_CPP), (0.7, SERVERS)):
        found = card_spec(get_card("H100"), kernels)
        assert found.memory_bandwidth_bytes_per_s == pytest.approx(share * 3360e9)
    assert card_spec(get_card("H100")).op_overhead_s == 6e-6
    assert card_spec(get_card("P40"), LLAMA_CPP).dense_flops_per_s == pytest.approx(0.65 * 11.76e12)


def test_a_processor_and_its_memory() -> None:
    """Ryzen 9 7950X: 2.56 TFLOP/s, and two channels of DDR5-5600; one channel is filled further."""
    cpu = get_processor("7950X")
    found = processor_spec(cpu, parse_ram("DDR5-5600 x2"), LLAMA_CPP)
    assert (found.name, found.link, found.memory_bytes, found.op_overhead_s) == ("ryzen-9-7950x", None, None, 1e-6)
    assert found.dense_flops_per_s == pytest.approx(0.33 * 2.56e12)
    assert found.depthwise_flops_per_s == found.other_flops_per_s == pytest.approx(0.1 * 2.56e12)
    assert found.memory_bandwidth_bytes_per_s == pytest.approx(0.7 * 89.6e9)
    assert found.source == "data sheet of Ryzen 9 7950X, and 89.6 GB/s of memory (70%)"
    one = processor_spec(cpu, parse_ram("DDR5-5600 x1"))
    assert one.memory_bandwidth_bytes_per_s == pytest.approx(0.92 * 44.8e9)


def test_classes_are_shares_of_their_data_sheets() -> None:
    """The sheets that each entry names: dense, elementwise, bytes, and how 8-bit integers and f32 compare."""
    sheets = {
        "gpu-integrated": (0.45 * 9.2e12, 1e12, 0.6 * 120e9, 18 / 9.2, 0.5),
        "gpu-discrete": (0.3 * 137e12, 0.4 * 19.7e12, 0.7 * 560e9, 275 / 137, 0.4 * 19.7 / (0.3 * 137)),
        "npu": (0.4 * 24e12, 0.4 * 1.5e12, 0.45 * 136e9, 2, 0.5),
        "npu-2023": (0.4 * 5.75e12, 0.1e12, 40e9, 2, 0.5),
    }
    for name, sheet in sheets.items():
        spec = get_spec(name)
        rates = (spec.dense_flops_per_s, spec.other_flops_per_s, spec.memory_bandwidth_bytes_per_s)
        assert (*rates, spec.int8_speed, spec.f32_speed) == pytest.approx(sheet, rel=0.06), name
        assert spec.link is not None
        assert 1e-6 < spec.op_overhead_s < spec.link.latency_s < 1e-4
    assert get_spec("gpu-discrete").memory_bytes == 16 * 2**30
    assert get_spec("npu").memory_bytes is None


def test_cores_add_up() -> None:
    """Nine tenths of every added core, a fork and a join of 2 us, and bandwidth up to that of the socket."""
    core = get_spec("cpu-core-f32")
    assert (core.int8_speed, core.f32_speed, core.link) == (3, 1, None)
    three = core.on_cores(3)
    assert three.name == "cpu-core-f32 x3"
    for rate in ("dense_flops_per_s", "depthwise_flops_per_s", "other_flops_per_s"):
        assert getattr(three, rate) == pytest.approx(2.8 * getattr(core, rate))
    assert three.memory_bandwidth_bytes_per_s == 3 * core.memory_bandwidth_bytes_per_s == 75e9
    assert three.op_overhead_s == pytest.approx(3e-6)
    assert three.source.endswith("; 3 cores at 2.8 times one")
    assert core.on_cores(5).memory_bandwidth_bytes_per_s == SOCKET_BANDWIDTH == 100e9
    half = get_spec("cpu-core-bf16")
    assert half.dense_flops_per_s == 2 * core.dense_flops_per_s
    assert (half.int8_speed, half.f32_speed) == (1.5, 0.5)


def test_a_device_that_is_set_to_f32() -> None:
    """Half the rate of products, twice as much faster with integers, and four bytes a number."""
    npu, f32 = get_spec("npu"), {"INFERENCE_PRECISION_HINT": "f32"}
    found = npu.as_set(Device("n", "npu", properties=f32))
    assert (found.name, found.dense_flops_per_s, found.int8_speed) == ("npu f32", npu.dense_flops_per_s / 2, 4)
    assert (npu.float_bits, found.float_bits) == (16, 32)
    assert npu.as_set(Device("n", "npu", properties={"INFERENCE_PRECISION_HINT": "f16"})) is npu
    core = get_spec("cpu-core-f32")
    assert core.as_set(Device("c", "cpu", properties=f32)) is core


def test_a_spec_as_json_and_from_values() -> None:
    """Op types in order, the link as values; a spec without a base starts its ops at once."""
    told = get_spec("npu").to_dict()
    assert told["unsupported_op_types"][:2] == ["BPETokenizer", "ExperimentalDetectronDetectionOutput"]
    assert told["link"] == {"latency_s": 50e-6, "bandwidth_bytes_per_s": 10e9}
    assert get_spec("cpu-core-f32").to_dict()["link"] is None
    rates = dict.fromkeys(
        ("dense_flops_per_s", "depthwise_flops_per_s", "other_flops_per_s", "memory_bandwidth_bytes_per_s"), 2.0
    )
    made = spec_from_values("mine", {**rates, "int8_speed": None})
    assert made == DeviceSpec("mine", 2.0, 2.0, 2.0, 2.0, 0.0, source="platform file")
    based = spec_from_values("mine", {"base": "rtx4090", "int8_speed": 1.0}, LLAMA_CPP)
    assert based.source == "platform file, based on rtx4090"
    assert based.int8_speed == 1
    assert based.dense_flops_per_s == pytest.approx(0.33 * 330.3e12)
