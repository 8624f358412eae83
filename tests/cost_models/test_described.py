"""Devices that are here are measured, devices that are not are modelled: in one platform, and the table says which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import openvino as ov
import pytest

from placekit.cost_models.analytic import roofline
from placekit.cost_models.described import anchor_of
from placekit.cost_models.device_table import get_spec
from placekit.cost_models.profiled import Profiled
from placekit.io.costs_json import read_costs, write_costs
from placekit.io.model import ModelSource
from placekit.io.platform_toml import read_platform
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
        assert anchor["kinds"] == ["cpu"]
        assert anchor["ratio"] > 0
        assert anchor["spread"] >= 1
        assert told["igpu"]["spec"]["name"] == "gpu-integrated"
        modelled, supported = roofline(source.graph, table.op_group, get_spec("npu"))
        assert table.op_time_s[:, 2] == pytest.approx(anchor["ratio"] * modelled)
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


def test_anchor_is_the_known_ratio(source: ModelSource) -> None:
    """Times of three times the roofline give the ratio 3 without spread; half of them doubled give some."""
    graph, platform = source.graph, Platform((CPU.replace(cores=(0,)),))
    group = np.arange(graph.num_ops)
    modelled, _ = roofline(graph, group, replace(get_spec("cpu-core-f32")))
    exact = anchor_of(graph, group, platform, {"cpu": 3 * modelled})
    assert exact.ratio == pytest.approx(3)
    assert exact.spread == pytest.approx(1)
    assert exact.kinds == ("cpu",)
    loose = anchor_of(graph, group, platform, {"cpu": np.where(group % 2, 3, 6) * modelled})
    assert 3 < loose.ratio < 6
    assert loose.spread is not None
    assert 1 < loose.spread < 2
    assert loose.error_of(np.full(100, 2.0)) == pytest.approx((loose.spread - 1) / 10)
    assert loose.error_of(np.array([0.0, 2.0])) == pytest.approx(loose.spread - 1)


def test_nothing_to_compare_leaves_the_roofline_as_it_is(source: ModelSource) -> None:
    """Without a measured time the ratio is 1, and no spread is claimed."""
    graph = source.graph
    anchor = anchor_of(graph, np.arange(graph.num_ops), Platform((CPU,)), {"cpu": np.zeros(graph.num_ops)})
    assert (anchor.ratio, anchor.spread, anchor.kinds) == (1.0, None, ())


def test_absent_device_without_a_spec_is_an_error_that_says_what_helps(source: ModelSource) -> None:
    """A device that the user takes for present is not modelled behind their back."""
    with pytest.raises(DeviceUnavailableError, match=r"'NPU' is not available.*a `spec` in the platform file"):
        QUICK.cost_table(source, Platform((CPU, NPU)))


def test_platform_of_described_devices_alone_is_an_error(source: ModelSource) -> None:
    """Without anything to measure the costs would be analytic, which has a name of its own."""
    with pytest.raises(DeviceUnavailableError, match="no device of the platform can be measured here"):
        QUICK.cost_table(source, Platform((NPU,), spec_of_kind={"npu": "npu"}))
