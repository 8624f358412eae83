"""Undoing the running averages of the profiling counters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placekit.cost_models.openvino import counters
from placekit.cost_models.openvino.counters import deaverage, node_time_s, profile_counters
from placekit.cost_models.openvino.devices import shared_core
from placekit.cost_models.openvino.groups import RuntimeNode
from placekit.io.models.model import ModelSource
from placekit.model.errors import ProfileError

ONE_THREAD = {"INFERENCE_NUM_THREADS": "1", "INFERENCE_PRECISION_HINT": "f32"}


class FakeRequest:
    """Counters as the CPU plugin keeps them: whole microseconds per run, cut-off average over all runs."""

    def __init__(self, runs_us: list[dict[str, int]]) -> None:
        self.runs_us, self.done = runs_us, 0

    def infer(self) -> None:
        """Run once."""
        self.done += 1

    def read(self) -> dict[str, float]:
        """Return the averages so far."""
        past = self.runs_us[: self.done]
        names = {name for run in past for name in run}
        return {name: float(sum(run.get(name, 0) for run in past) // self.done) for name in names}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 10**6), min_size=4, max_size=12), st.integers(1, 2))
def test_deaveraging_returns_what_every_run_took(runs: list[int], warm_ups: int) -> None:
    """Against a request that averages like the plugin, each run is exact up to the rounding of its averages."""
    request = FakeRequest([{"op": us} for us in runs])
    readings = []
    for done in range(1, len(runs) + 1):
        request.infer()
        if done >= warm_ups:
            readings.append(request.read())
    names, times = deaverage(readings, warm_ups)
    assert names == ("op",)
    bounds = np.arange(warm_ups + 1, len(runs) + 1)
    assert (np.abs(times[:, 0] - runs[warm_ups:]) <= bounds).all()


def test_a_cold_first_run_does_not_spoil_the_median() -> None:
    """The plugin's average says 109 us after a cold run of 1000; the op takes 10."""
    request = FakeRequest([{"op": 1000}, *({"op": 10} for _ in range(9))])
    readings = []
    for _ in range(10):
        request.infer()
        readings.append(request.read())
    assert readings[-1]["op"] == 109
    _, times = deaverage(readings[1:], 2)
    assert np.median(times) == pytest.approx(10, abs=2)


def test_a_node_that_appears_late_took_nothing_before() -> None:
    """A conversion that is inserted after the first reading has its own first time."""
    names, times = deaverage([{"a": 4.0}, {"a": 4.0, "late": 2.0}], 1)
    assert dict(zip(names, times[0], strict=True)) == {"a": 4.0, "late": 4.0}


def test_the_median_ignores_a_disturbed_minority() -> None:
    """Three of ten runs were interrupted for milliseconds; long and short nodes keep their time."""
    times = np.tile([400.0, 3.0], (10, 1))
    times[:3] += 5000
    assert node_time_s(times, rounding_us=10) * 1e6 == pytest.approx([400.5, 3.5])


def test_short_nodes_are_resolved_better_than_the_rounding() -> None:
    """An op of 3 us in averages cut off to integers comes out within 2 us, though single runs are off by up to 10."""
    rng = np.random.default_rng(0)
    request = FakeRequest([{"op": int(us)} for us in rng.integers(2, 5, size=10)])
    readings = []
    for done in range(1, 11):
        request.infer()
        if done >= 2:
            readings.append(request.read())
    times = deaverage(readings, 2)[1]
    assert node_time_s(times, 10)[0] * 1e6 == pytest.approx(3.5, abs=1.75)


def test_a_profile_covers_the_model(saved: Callable[[Any], ModelSource], make_convnet: Callable[[], Any]) -> None:
    """Every op has a group, the groups' times sum up to what was executed, and precision and shares are recorded."""
    source = saved(make_convnet())
    calls: list[tuple[int, int, str]] = []
    profile = profile_counters(
        shared_core(), source.load(), source.graph, device="CPU", properties=ONE_THREAD, repetitions=12,
        progress=lambda *call: calls.append(call),
    )  # fmt: skip
    assert profile.op_group.shape == (source.graph.num_ops,)
    assert profile.meta["precision"] == "f32"
    assert profile.meta["mapped_share"] >= counters.MIN_MAPPED_SHARE
    assert profile.meta["inferences"] >= 12
    assert profile.meta["sum_of_op_times_s"] == pytest.approx(profile.group_time_s.sum())
    assert 0 < profile.group_time_s.sum() < 0.1
    index = source.graph.op_index
    assert profile.group_time_s[profile.op_group[index["conv1"]]] > 0
    assert profile.op_group[index["conv1"]] == profile.op_group[index["relu1"]], "the CPU fuses them"
    done = [call[0] for call in calls]
    assert done == sorted(done)
    assert calls[-1][0] == calls[-1][1]


def test_time_that_cannot_be_assigned_is_an_error(
    saved: Callable[[Any], ModelSource], make_convnet: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runtime model whose nodes name no op of the model is not believed; the message gives the share."""
    source = saved(make_convnet())
    nameless = [RuntimeNode("conv1", (), (), True)]
    monkeypatch.setattr(counters, "runtime_nodes", lambda *_: nameless)
    with pytest.raises(ProfileError, match=r"only 0\.0% of the executed time .* at least 95% is needed"):
        profile_counters(shared_core(), source.load(), source.graph, device="CPU", properties=ONE_THREAD, repetitions=3)


def test_a_few_microseconds_need_no_op(saved: Callable[[Any], ModelSource], make_convnet: Callable[[], Any]) -> None:
    """Of a model of 44 us, a reorder of 3 us is 6.8 %, and no error; the same share of a longer one is."""
    graph, names = saved(make_convnet()).graph, ("conv1", "#8")
    time_s, is_mapped = np.array([41e-6, 3e-6]), np.array([True, False])
    assert counters.mapped_share_of(graph, names, time_s, is_mapped) == pytest.approx(41 / 44)
    with pytest.raises(ProfileError, match=r"only 93\.2% of the executed time .* node without an op is '#8'"):
        counters.mapped_share_of(graph, names, 10 * time_s, is_mapped)


def test_a_device_that_cannot_run_the_model_is_an_error(
    saved: Callable[[Any], ModelSource], make_convnet: Callable[[], Any], fake_core: Callable[..., Any]
) -> None:
    """The runtime's own reason is passed on."""
    source = saved(make_convnet())
    core = fake_core({"NPU": "x"}, refused=("Convolution",))
    with pytest.raises(ProfileError, match="model 'convnet' does not run on 'NPU': unsupported op"):
        profile_counters(core, source.load(), source.graph, device="NPU", properties={}, repetitions=3)
