"""Machines in a line."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from placekit.cli.inputs.platforms import MemoryLimits
from placekit.cli.main import app
from placekit.cost_models.analytic import Analytic
from placekit.cost_models.sheets.cards import GENERAL, LLAMA_CPP, get_card
from placekit.cost_models.sheets.device_table import card_spec
from placekit.cost_models.sheets.machines import machine_of, with_links
from placekit.io.files.platform_toml import read_platform, write_platform
from placekit.io.link_classes import get_link
from placekit.model.errors import InvalidProblemError, PlacekitError, UnknownNameError


def test_cards_and_memory_make_a_platform() -> None:
    """Every card has its memory and its link; equal cards are of one kind."""
    machine = machine_of("RTX 4090, 2x RTX 3060", "96 GB DDR5-5600 x2", "Ryzen 9 7950X")
    platform = Analytic(machine.specs(LLAMA_CPP)).with_links(machine.platform())
    assert platform.device_names == ("CPU", "rtx-4090", "rtx-3060-12-gb.0", "rtx-3060-12-gb.1")
    assert [device.memory_bytes for device in platform.devices] == [96 * 2**30, 24 * 2**30, 12 * 2**30, 12 * 2**30]
    assert set(platform.links) == {"rtx-4090", "rtx-3060-12-gb"}
    costs = Analytic(machine.specs(LLAMA_CPP)).spec_of_kind(platform)
    assert costs["CPU"].memory_bandwidth_bytes_per_s == pytest.approx(0.7 * 89.6e9)


def test_chips_share_one_memory_with_the_host() -> None:
    """Unified memory is a pool of card and host; a headroom and a limit by name are of the pool, too."""
    platform = machine_of("M4 Max").platform()
    assert [(pool.memory_bytes, pool.devices) for pool in platform.pools] == [(128 * 2**30, ("CPU", "m4-max"))]
    assert [device.memory_bytes for device in platform.devices] == [128 * 2**30, 0.75 * 128 * 2**30]
    assert machine_of("Strix Halo", "64 GB LPDDR5X-8000 x4").platform().pools[0].memory_bytes == 64 * 2**30
    assert not machine_of("RTX 4090", "64 GB DDR5-5600 x2").platform().pools
    less = MemoryLimits(["ram=100GB"], "10%").apply(platform)
    assert less.pools[0].memory_bytes == pytest.approx(90e9)
    assert [device.memory_bytes for device in less.devices] == pytest.approx([90e9, 90e9])


def test_links_have_names(tmp_path: Path) -> None:
    """A bus or a network joins each card with its host, NVLink the cards; files know the same names."""
    machine = machine_of("RTX 4090, RTX 3060", "64 GB DDR5-5600 x2")
    links = with_links(machine, "pcie4x16, 10gbe").links
    assert links["rtx-4090"].bandwidth_bytes_per_s == pytest.approx(0.65 * 31.5e9, rel=1e-3)
    assert (links["rtx-3060-12-gb"].latency_s, links["rtx-3060-12-gb"].bandwidth_bytes_per_s) == (50e-6, 0.9 * 1.25e9)
    (direct,) = with_links(machine_of("2x RTX 3090"), "nvlink-bridge").direct_links
    assert direct.kinds == ("rtx-3090", "rtx-3090")
    path = tmp_path / "platform.toml"
    path.write_text('[[device]]\nname = "a"\nkind = "a10"\n[link.a10]\nname = "usb4"\nlatency_s = 0.001\n')
    assert read_platform(path).links["a10"] == get_link("usb4").__class__(0.001, 0.65 * 4e9)
    for links_named, message in (
        ("pcie4x16, usb4, usb4", "3 links for 2 cards"),
        ("pcie4x3", "no link 'pcie4x3'; did you mean 'pcie4x8'"),
        ("nvlink4, usb4", "joins cards with each other"),
    ):
        with pytest.raises(PlacekitError, match=message):
            with_links(machine, links_named)
    with pytest.raises(InvalidProblemError, match="cards 'rtx-3090' have links 'pcie4x16' and 'usb4'; use a platform"):
        with_links(machine_of("2x RTX 3090"), "pcie4x16, usb4")


def test_rates_can_be_multiplied() -> None:
    """Arithmetic of all kinds, memory, and overhead, each by its own factor."""
    spec = card_spec(get_card("RTX 3090"))
    scaled = spec.scaled(2.0, 3.0, 5.0)
    assert scaled.dense_flops_per_s == 2 * spec.dense_flops_per_s
    assert scaled.depthwise_flops_per_s == 2 * spec.depthwise_flops_per_s
    assert scaled.other_flops_per_s == 2 * spec.other_flops_per_s
    assert scaled.memory_bandwidth_bytes_per_s == 3 * spec.memory_bandwidth_bytes_per_s
    assert scaled.op_overhead_s == 5 * spec.op_overhead_s
    assert spec.scaled() == spec


def test_a_machine_without_anything_is_refused() -> None:
    """Neither cards nor memory are no machine, and a wrong card is named."""
    with pytest.raises(InvalidProblemError, match="a card or host memory"):
        machine_of("")
    with pytest.raises(UnknownNameError, match="no card '3 RTX 4090'"):
        machine_of("3 RTX 4090")


def test_a_machine_is_written_as_a_file(tmp_path: Path) -> None:
    """The file has the host's rates, and cards by name, so that every runtime's kernels have their own."""
    written = machine_of("RTX 3090", "64 GB DDR4-3200 x2").platform()
    write_platform(written, tmp_path / "machine.toml")
    read = read_platform(tmp_path / "machine.toml")
    assert read == written
    for kernels in (GENERAL, LLAMA_CPP):
        specs = Analytic.from_platform_file(read, kernels).spec_of_kind(read)
        assert specs["rtx-3090"] == card_spec(get_card("RTX 3090"), kernels)
        assert specs["CPU"].memory_bandwidth_bytes_per_s == pytest.approx(0.7 * 51.2e9)


def test_the_command_describes_a_machine(tmp_path: Path) -> None:
    """From a line to a platform file that plans read."""
    path = str(tmp_path / "machine.toml")
    run = CliRunner()
    told = run.invoke(app, ["devices", "--cards", "2x RTX 3090", "--ram", "64 GB DDR4-3200 x2", "-o", path])
    assert told.exit_code == 0, told.output
    assert read_platform(path).device_names == ("CPU", "rtx-3090.0", "rtx-3090.1")
    plan = run.invoke(
        app, ["llm", "mistral-7b", "--platform", path, "--for", "llama.cpp", "-o", str(tmp_path / "p.json")]
    )
    assert plan.exit_code == 0, plan.output
    assert "llama-server -m mistral-7b.gguf" in plan.output
    wrong = run.invoke(app, ["devices", "--cards", "RTX 4095"])
    assert isinstance(wrong.exception, UnknownNameError)


def test_a_chip_brings_its_host() -> None:
    """Its memory is the host's, with all of its bandwidth, unless the memory is named; a card brings none."""
    chip = machine_of("M1 Max").ram
    assert chip is not None
    assert (chip.memory_bytes, chip.bandwidth_bytes_per_s, chip.share) == (64 * 2**30, 400e9, 0.7)
    named = machine_of("M1 Max", "16 GB DDR4-3200 x2").ram
    assert named is not None
    assert named.bandwidth_bytes_per_s == 51.2e9
    assert machine_of("RTX 4090").ram is None
    unknown = machine_of("", "64 GB DDR5-5600")
    assert unknown.ram is not None
    assert unknown.ram.channels == 2
    assert unknown.specs()["CPU"].dense_flops_per_s == 0.4 * 1e12
