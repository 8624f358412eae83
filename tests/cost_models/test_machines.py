"""Machines in a line."""

from __future__ import annotations

import pytest

from placekit.cost_models.analytic import Analytic
from placekit.cost_models.cards import LLAMA_CPP
from placekit.cost_models.machines import machine_of
from placekit.model.errors import InvalidProblemError, UnknownNameError


def test_cards_and_memory_make_a_platform() -> None:
    """Every card has its memory and its link; equal cards are of one kind."""
    machine = machine_of("RTX 4090, 2x RTX 3060", "96 GB DDR5-5600 x2", "Ryzen 9 7950X")
    platform = machine.platform(LLAMA_CPP)
    assert platform.device_names == ("CPU", "rtx-4090", "rtx-3060-12-gb.0", "rtx-3060-12-gb.1")
    assert [device.memory_bytes for device in platform.devices] == [96 * 2**30, 24 * 2**30, 12 * 2**30, 12 * 2**30]
    assert set(platform.links) == {"rtx-4090", "rtx-3060-12-gb"}
    costs = Analytic(machine.specs(LLAMA_CPP)).spec_of_kind(platform)
    assert costs["CPU"].memory_bandwidth_bytes_per_s == pytest.approx(0.7 * 89.6e9)


def test_a_machine_without_anything_is_refused() -> None:
    """Neither cards nor memory are no machine, and a wrong card is named."""
    with pytest.raises(InvalidProblemError, match="a card or host memory"):
        machine_of("")
    with pytest.raises(UnknownNameError, match="no card '3 RTX 4090'"):
        machine_of("3 RTX 4090")
