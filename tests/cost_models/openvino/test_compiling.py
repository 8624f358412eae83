"""Compiling without pinning where a pinned model has ended; that threads stay is tested with pipelines."""

from __future__ import annotations

import openvino as ov
import pytest
from openvino_models import convnet

from placekit.cost_models.openvino import compiling
from placekit.cost_models.openvino.compiling import compile_properties, compile_unbound
from placekit.cost_models.openvino.devices import shared_core


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[ov.CompiledModel]:
    """Return what was found: on a machine on which every executor binds threads, and nothing was found before."""
    found: list[ov.CompiledModel] = []

    def find(_: object) -> ov.CompiledModel:
        found.append(shared_core().compile_model(convnet(), "CPU"))
        return found[-1]

    monkeypatch.setattr(compiling, "_MAY_USE_ALL", True)
    monkeypatch.setattr(compiling, "_MOST_HELD", 3)
    monkeypatch.setattr(compiling, "_held", [])
    monkeypatch.setattr(compiling, "_seen", {})
    monkeypatch.setattr(compiling, "_next_if_it_binds", find)
    return found


def test_where_every_executor_binds_the_search_ends(looked: list[ov.CompiledModel]) -> None:
    """After so many as are held at most, and once for the process."""
    for _ in range(2):
        compile_unbound(shared_core(), convnet(), "CPU", compile_properties("CPU", {}))
        assert compiling._held == looked
        assert len(looked) == 3


@pytest.mark.parametrize("properties", [{"ENABLE_CPU_PINNING": "YES"}, {"ENABLE_CPU_PINNING": True}])
def test_a_device_that_asks_for_pinning_gets_what_is_there(
    looked: list[ov.CompiledModel], properties: dict[str, str]
) -> None:
    """Its properties go before those of measurements."""
    compile_unbound(shared_core(), convnet(), "CPU", compile_properties("CPU", properties))
    assert not looked


def test_a_process_with_fewer_cores_than_the_machine_does_not_look(
    looked: list[ov.CompiledModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenVINO binds threads there, whatever it is asked."""
    monkeypatch.setattr(compiling, "_MAY_USE_ALL", False)
    compile_unbound(shared_core(), convnet(), "CPU", compile_properties("CPU", {"ENABLE_CPU_PINNING": "NO"}))
    assert not looked
