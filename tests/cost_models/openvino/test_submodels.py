"""The portable way: one submodel per group, on devices that pretend to be a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from placekit.cost_models.openvino.devices import shared_core
from placekit.cost_models.openvino.submodels import cpu_groups, profile_submodels
from placekit.io.models.model import ModelSource

F16 = {"INFERENCE_PRECISION_HINT": "f16"}


def test_groups_are_those_of_the_cpu(saved: Callable[[Any], ModelSource], make_convnet: Callable[[], Any]) -> None:
    """The CPU fuses conv1 with relu1, so they are timed together."""
    source = saved(make_convnet())
    labels = dict(zip(source.graph.op_names, cpu_groups(shared_core(), source.load(), source.graph), strict=True))
    assert labels["conv1"] == labels["relu1"]
    assert labels["tanh"] != labels["conv1"]


@pytest.mark.parametrize("has_memory", [True, False])
def test_every_group_is_timed(
    saved: Callable[[Any], ModelSource],
    make_convnet: Callable[[], Any],
    fake_core: Callable[..., Any],
    has_memory: bool,
) -> None:
    """All groups that compute have a time and a spread; whether transfers are inside is recorded."""
    source = saved(make_convnet())
    core = fake_core({"GPU": "Arc"}, has_memory=has_memory)
    profile = profile_submodels(core, source.load(), source.graph, device="GPU", properties=F16, repetitions=3)
    boundary = {"Parameter", "Result"}
    computing = np.unique(
        [g for g, kind in zip(profile.op_group, source.graph.op_types, strict=True) if kind not in boundary]
    )
    assert profile.group_supported.all()
    assert (profile.group_time_s[computing] >= 0).all()
    assert np.isfinite(profile.group_spread[computing]).all()
    assert profile.group_time_s.sum() > 0
    assert profile.meta["submodels"] == len(computing)
    assert profile.meta["model_latency_s"] > 0
    assert profile.meta["includes_transfer"] is not has_memory
    if has_memory:
        assert core.context.num_tensors > 2 * len(computing)
    on_gpu = [config for device, config in core.compiled if device == "GPU"]
    assert on_gpu
    assert all(config["INFERENCE_PRECISION_HINT"] == "f16" for config in on_gpu)


@pytest.mark.parametrize("can_be_asked", [True, False])
def test_what_the_device_refuses_is_not_supported(
    saved: Callable[[Any], ModelSource],
    make_convnet: Callable[[], Any],
    fake_core: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    can_be_asked: bool,
) -> None:
    """Tanh is refused, by query or by failing to compile; the rest is measured, the whole model is not."""
    source = saved(make_convnet())
    core = fake_core({"NPU": "Boost"}, refused=("Tanh",))
    if not can_be_asked:

        def silent(*_: Any) -> dict[str, str]:
            raise RuntimeError("query_model is not implemented")

        monkeypatch.setattr(core, "query_model", silent)
    profile = profile_submodels(core, source.load(), source.graph, device="NPU", properties={}, repetitions=3)
    tanh = profile.op_group[source.graph.op_index["tanh"]]
    assert np.flatnonzero(~profile.group_supported).tolist() == [tanh]
    assert profile.group_time_s[tanh] == 0
    assert profile.meta["unsupported_groups"] == 1
    assert profile.meta["model_latency_s"] is None


def test_values_that_steer_shapes_are_real(
    saved: Callable[[Any], ModelSource], make_embedder: Callable[..., Any], fake_core: Callable[..., Any]
) -> None:
    """Groups are fed what the groups before them computed, so that lookups stay in range."""
    source = saved(make_embedder(3))
    calls: list[tuple[int, int, str]] = []
    profile = profile_submodels(
        fake_core({"GPU": "Arc"}), source.load(), source.graph, device="GPU", properties=F16, repetitions=3,
        progress=lambda *call: calls.append(call),
    )  # fmt: skip
    assert profile.group_supported.all()
    assert calls[-1][0] == calls[-1][1] == profile.meta["submodels"]
