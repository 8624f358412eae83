"""What cutting costs a CPU: measured rates that make sense, put on the right tensors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as opset

from placekit.cost_models.kind_profile import KindProfile
from placekit.cost_models.openvino import hand_over
from placekit.cost_models.openvino.devices import shared_core
from placekit.cost_models.openvino.hand_over import HandOver, measure_hand_over, with_hand_over
from placekit.io.models.model import ModelSource

Saved = Callable[[ov.Model], ModelSource]
ONE_THREAD = {"INFERENCE_NUM_THREADS": "1", "INFERENCE_PRECISION_HINT": "f32"}


def pooled() -> ov.Model:
    """Two convolutions, the second one's image read by a pooling; the index of its largest number."""
    image = opset.parameter([1, 4, 8, 8], ov.Type.f32, name="image")
    node = image
    for index in range(2):
        weights = opset.constant(np.full((4, 4, 1, 1), 0.5, dtype=np.float32))
        node = opset.convolution(node, weights, [1, 1], [0, 0], [0, 0], [1, 1], name=f"conv{index}")
    pool = opset.max_pool(node, [2, 2], [1, 1], [0, 0], [0, 0], [2, 2], name="pool")
    flat = opset.reshape(pool.output(0), opset.constant(np.array([1, -1])), False, name="flat")
    best = opset.topk(flat, opset.constant(np.int64(1)), 1, "max", "value", name="best")
    # in another type, so that it is told from the numbers
    index_of = opset.convert(best.output(1), "i64", name="index")
    return ov.Model([opset.result(index_of)], [image], "pooled")


def test_tensors_pay_for_the_form_that_they_change(saved: Saved) -> None:
    """The input nothing, an image between convolutions and a flat tensor the conversion of numbers, others more."""
    source = saved(pooled())
    graph = source.graph
    time_s = HandOver(3e-10, 1e-10, 1e-5).tensor_time_s(source.load(), graph)
    rate = {}
    for tensor, producer in enumerate(graph.tensor_producer.tolist()):
        rate[graph.op_names[producer]] = time_s[tensor] / graph.tensor_bytes[tensor]
    expected = {"image": 0.0, "conv0": 1e-10, "conv1": 3e-10, "pool": 3e-10, "flat": 1e-10, "index": 0.0}
    assert {name: rate[name] for name in expected} == pytest.approx(expected)


def test_measured_rates_are_those_of_memory_and_calls() -> None:
    """Turning an image takes longer than leaving it as it is, and nothing takes longer than a slow memory would."""
    found = measure_hand_over(shared_core(), "CPU", ONE_THREAD)
    assert 0 <= found.other_s_per_byte <= found.image_s_per_byte < 1e-7
    assert 0 < found.call_s < 0.1


def test_ops_add_up_to_the_whole_inference(saved: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the counters miss is shared out, except one call, which every stage pays anyway."""
    source = saved(pooled())
    monkeypatch.setattr(hand_over, "measure_hand_over", lambda *_: HandOver(0.0, 0.0, 1e-3))
    groups = np.arange(source.graph.num_ops)
    profile = KindProfile(
        groups,
        np.full(len(groups), 1e-3),
        np.zeros(len(groups)),
        np.ones(len(groups), dtype=bool),
        {"between_ops_s": 1e-3 * len(groups) + 1e-3},
    )
    found = with_hand_over(shared_core(), source.load(), source.graph, ONE_THREAD, profile)
    np.testing.assert_allclose(found.group_time_s, 2e-3)
    assert found.meta["scaled_by"] == pytest.approx(2)
    assert found.meta["call_s"] == 1e-3
