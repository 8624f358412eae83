"""Devices that are here are measured, devices that are not are modelled: in one platform, and the table says which."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
from numpy.typing import NDArray
from quantized_models import residual_net

from placekit.cli.output.facts import anchor_words
from placekit.cost_models.analytic import roofline
from placekit.cost_models.described import MOST_RATIO, TABLE_ERROR, Anchor, anchor_of
from placekit.cost_models.profiled import Profiled
from placekit.cost_models.sheets.device_table import get_spec
from placekit.io.files.costs_json import read_costs, write_costs
from placekit.io.files.platform_toml import read_platform
from placekit.io.models.model import ModelSource
from placekit.model.errors import DeviceUnavailableError
from placekit.model.platform import Device, Link, Platform

QUICK = Profiled(repetitions=4, budget_s=0, max_foreign_load=1.0, cache=None)
CPU = Device("CPU", "cpu", is_host=True, openvino="CPU")
NPU = Device("NPU", "npu", openvino="NPU")
LAPTOP = Path(__file__).parents[2] / "examples" / "laptop.toml"


@pytest.fixture
def source(saved: Callable[[ov.Model], ModelSource], make_convnet: Callable[[], ov.Model]) -> ModelSource:
    """Return the convolutional model, read from a file."""
    return saved(make_convnet())


def test_laptop_is_measured_where_it_exists(source: ModelSource, tmp_path: Path) -> None:
    """The CPU has measured columns, iGPU and NPU have anchored ones; the costs file keeps which is which."""
    costs = QUICK.cost_table(source, read_platform(LAPTOP))
    write_costs(costs, source.graph, tmp_path / "costs.json")
    for table in (costs, read_costs(tmp_path / "costs.json", source.graph)):
        told = table.provenance["kinds"]
        assert {kind: each["source"] for kind, each in told.items()} == {
            "cpu": "measured", "igpu": "described", "npu": "described",
        }  # fmt: skip
        anchor = told["npu"]["anchor"]
        assert 1 / MOST_RATIO <= anchor["ratio"] <= MOST_RATIO
        assert told["igpu"]["spec"]["name"] == "gpu-integrated"
        modelled, supported = roofline(source.graph, table.op_group, get_spec("npu"), source.numbers)
        call_s = max(table.provenance["stage_call_s"].values())  # shared out among the ops
        assert table.op_time_s[:, 2] == pytest.approx(modelled * (anchor["ratio"] + call_s / modelled.sum()))
        assert np.array_equal(table.supported[:, 2], supported)
        assert table.op_time_spread is not None
        assert np.isfinite(table.op_time_spread[:, 0]).any()
        assert np.isnan(table.op_time_spread[:, 1:]).all()
    link = get_spec("npu").link
    assert link is not None
    assert costs.transfer_time_s[:, 2] == pytest.approx(link.time_s(source.graph.tensor_bytes))


def test_link_of_the_file_counts(source: ModelSource) -> None:
    """A described device moves tensors over the link that the platform gives."""
    link = Link(1e-3, 1e9)
    costs = QUICK.cost_table(source, Platform((CPU, NPU), {"npu": link}, spec_of_kind={"npu": "npu"}))
    assert costs.transfer_time_s[:, 1] == pytest.approx(link.time_s(source.graph.tensor_bytes))


@pytest.fixture
def large(saved: Callable[[ov.Model], ModelSource]) -> ModelSource:
    """Return a convolutional model whose ops take longer than some microseconds."""
    return saved(residual_net())


ONE_CORE = Platform((CPU.replace(cores=(0,)),))


def compared(source: ModelSource, times: Callable[[NDArray[np.float64]], NDArray[np.float64]], **more: Any) -> Anchor:
    """Return the anchor of a model whose ops take `times` of what the roofline says; `more` has their spread."""
    group = np.arange(source.graph.num_ops)
    modelled, _ = roofline(source.graph, group, get_spec("cpu-core-f32"), source.numbers)
    spread = more.get("spread", np.zeros(len(group)))
    return anchor_of(source.graph, group, ONE_CORE, {"cpu": (times(modelled), spread)}, source.numbers)


def test_anchor_is_the_known_ratio(large: ModelSource) -> None:
    """Twice the roofline gives the ratio 2 without spread; half of the ops slower give some."""
    exact = compared(large, lambda modelled: 2 * modelled)
    assert exact.ratio == exact.found == pytest.approx(2)
    assert exact.spread == pytest.approx(1)
    assert exact.kinds == ("cpu",)
    loose = compared(large, lambda modelled: np.where(np.arange(len(modelled)) % 2, 1.2, 2.2) * modelled)
    assert 1.2 < loose.ratio < 2.2
    assert loose.spread is not None
    assert 1 < loose.spread < 2
    assert loose.error_of(np.full(100, 2.0)) == pytest.approx((loose.spread - 1) / 10)
    assert loose.error_of(np.array([0.0, 2.0])) == pytest.approx(loose.spread - 1)
    assert loose.error_of(np.zeros(2)) is None


@pytest.mark.parametrize(("found", "ratio"), [(0.26, 1 / MOST_RATIO), (2.0, 2.0), (47.4, MOST_RATIO)])
def test_ratio_is_cut_to_what_a_data_sheet_allows(large: ModelSource, found: float, ratio: float) -> None:
    """What was cut off is part of the error, and the output says where it was cut."""
    anchor = compared(large, lambda modelled: found * modelled)
    assert (anchor.found, anchor.ratio) == pytest.approx((found, ratio))
    assert anchor.error_of(np.ones(100)) == pytest.approx(max(found / ratio, ratio / found) - 1, abs=1e-6)
    told = anchor_words({"kinds": {"npu": {"anchor": anchor.to_dict()}}}, "npu")
    assert (f"cut from {found:.3g}" in told) == (found != ratio)


def test_tiny_and_disturbed_ops_do_not_decide(large: ModelSource) -> None:
    """Ops of a few microseconds, and one that was interrupted, leave the ratio to those with work."""
    steady = compared(large, lambda modelled: 2 * modelled)

    def disturbed(modelled: NDArray[np.float64]) -> NDArray[np.float64]:
        times = np.where(2 * modelled < 1e-5, 9e-6, 2 * modelled)  # rounding and clocks, as far as they go
        times[int(np.argmax(modelled))] *= 100
        return times

    spread = np.zeros(large.graph.num_ops)
    modelled, _ = roofline(large.graph, np.arange(len(spread)), get_spec("cpu-core-f32"), large.numbers)
    spread[int(np.argmax(modelled))] = 0.9
    assert compared(large, disturbed, spread=spread).found == pytest.approx(steady.found)


def test_a_slow_op_counts_by_its_work(large: ModelSource) -> None:
    """An op with a hundredth of the work and a thousand times its time does not set the ratio."""

    def slow(modelled: NDArray[np.float64]) -> NDArray[np.float64]:
        times = modelled.copy()
        least = np.flatnonzero(modelled > 2e-5)
        times[least[np.argmin(modelled[least])]] *= 1000
        return times

    assert compared(large, slow).found < 2


@pytest.mark.parametrize("time_s", [0.0, 5e-6])
def test_nothing_to_compare_leaves_the_roofline_as_it_is(source: ModelSource, time_s: float) -> None:
    """Without a time of some length the ratio is 1, and the error that of the device table."""
    anchor = compared(source, lambda modelled: np.full(len(modelled), time_s))
    assert anchor == Anchor()
    assert anchor.error_of(np.ones(3)) == TABLE_ERROR
    assert "factor of about two" in anchor_words({"kinds": {"npu": {"anchor": anchor.to_dict()}}}, "npu")


def test_the_error_reaches_the_costs(large: ModelSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ratio of 47 by other load: the costs, and with them the verdict, have the error of what was cut off."""
    anchor = Anchor(MOST_RATIO, 1.0, ("cpu",), 47.0)
    monkeypatch.setattr("placekit.cost_models.profiled.anchor_of", lambda *_: anchor)
    costs = QUICK.cost_table(large, read_platform(LAPTOP))
    assert costs.error is not None
    assert costs.error >= 47 / MOST_RATIO - 1


def test_absent_device_without_a_spec_is_an_error_that_says_what_helps(source: ModelSource) -> None:
    """A device that the user takes for present is not modelled behind their back."""
    with pytest.raises(DeviceUnavailableError, match=r"'NPU' is not available.*a `spec` in the platform file"):
        QUICK.cost_table(source, Platform((CPU, NPU)))


def test_platform_of_described_devices_alone_is_an_error(source: ModelSource) -> None:
    """Without anything to measure the costs would be analytic, which has a name of its own."""
    with pytest.raises(DeviceUnavailableError, match="no device of the platform can be measured here"):
        QUICK.cost_table(source, Platform((NPU,), spec_of_kind={"npu": "npu"}))
