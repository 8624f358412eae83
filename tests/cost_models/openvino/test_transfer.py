"""Measured links."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placekit.cost_models.openvino.transfer import TRANSFER_SIZES_BYTES, fit_link, measure_link
from placekit.model.errors import ProfileError
from placekit.model.platform import Device

GPU = Device("GPU", "GPU", openvino="GPU")


@given(st.floats(0, 1e-3), st.floats(1e6, 1e12))
def test_a_fit_of_exact_times_returns_the_link(latency_s: float, bandwidth: float) -> None:
    """Latency and bandwidth come back from times that follow them."""
    sizes = np.array(TRANSFER_SIZES_BYTES)
    link = fit_link(sizes.tolist(), (latency_s + sizes / bandwidth).tolist())
    np.testing.assert_allclose(link.time_s(sizes), latency_s + sizes / bandwidth, rtol=1e-6)


def test_a_fit_never_gives_a_negative_latency_or_bandwidth() -> None:
    """Times that fall with size mean a constant; times that grow faster than size mean no latency."""
    assert fit_link([1000, 2000], [2e-6, 1e-6]).bandwidth_bytes_per_s == float("inf")
    assert fit_link([1000, 2000], [1e-6, 9e-6]).latency_s == 0.0


def test_a_device_with_memory_is_measured_through_it(fake_core: Callable[..., Any]) -> None:
    """Remote tensors are made and copied; no model is compiled."""
    core = fake_core({"GPU": "Arc"})
    assert measure_link(GPU, core, sizes_bytes=(4096, 65536)).bandwidth_bytes_per_s > 0
    assert core.context.num_tensors == 2
    assert not core.compiled


def test_a_device_without_memory_is_measured_through_a_model(fake_core: Callable[..., Any]) -> None:
    """One model per size is called."""
    core = fake_core({"GPU": "Arc"}, has_memory=False)
    assert measure_link(GPU, core, sizes_bytes=(4096, 65536)).bandwidth_bytes_per_s > 0
    assert [device for device, _ in core.compiled] == ["GPU", "GPU"]


def test_a_device_that_can_do_neither_is_an_error(fake_core: Callable[..., Any]) -> None:
    """The message names the device and the runtime's reason."""
    core = fake_core({"GPU": "Arc"}, has_memory=False, refused=("Relu",))
    with pytest.raises(ProfileError, match="link of device 'GPU' cannot be measured: unsupported op"):
        measure_link(GPU, core, sizes_bytes=(4096, 65536))
