"""Samples that a pipeline takes by itself: in order, without copies, and with a clean end whatever goes wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import openvino as ov
import pytest
from numpy.typing import NDArray
from openvino import opset13 as opset
from pipelines import (
    alternating_plan,
    chain,
    chain_value,
    make_slow_plan,
    slow_model,
    start_threads,
    team_plan,
)

from placekit.io.models.model import ModelSource
from placekit.model.errors import ExecutionError, InvalidProblemError
from placekit.runtime.stages.stage_plan import StagePlan

Saved: TypeAlias = Callable[[ov.Model], ModelSource]


def filled(value: float) -> list[NDArray[np.float32]]:
    """Return a sample of one number."""
    return [np.full((2, 8), value, dtype=np.float32)]


@pytest.fixture(params=["stages in turn", "teams"])
def plan(request: pytest.FixtureRequest, saved: Saved) -> StagePlan:
    """Return four stages on two devices, or on a team of two and a third device."""
    return (alternating_plan if request.param == "stages in turn" else team_plan)(saved(chain([2, 8])))


@pytest.mark.parametrize("queue_size", [1, 3])
def test_outputs_come_in_order_and_all_of_them(queue_size: int, plan: StagePlan) -> None:
    """Five hundred samples of a generator have their own outputs, in order, and the pipeline works afterwards."""
    found: list[float] = []
    with start_threads(plan, queue_size=queue_size, record=8) as pipe:
        count = pipe.for_each((filled(i) for i in range(500)), lambda outputs: found.append(float(outputs["y"][0, 0])))
        assert count == 500
        assert found == [float(chain_value(filled(i)[0])[0, 0]) for i in range(500)]
        assert pipe.num_in_flight == 0
        assert len(pipe.stage_times_s) == 8
        np.testing.assert_array_equal(pipe(filled(7))["y"], chain_value(filled(7)[0]))
        assert pipe.for_each([], lambda _: found.append(-1)) == 0
        assert len(found) == 500


def test_samples_and_outputs_are_handled_one_at_a_time(plan: StagePlan) -> None:
    """Neither the generator nor the consumer runs in two threads at once, and outputs are not copied."""
    busy = {"in": threading.Lock(), "out": threading.Lock()}
    bases: set[int] = set()

    def samples() -> Iterator[list[NDArray[np.float32]]]:
        for i in range(200):
            assert busy["in"].acquire(blocking=False)
            time.sleep(0)
            busy["in"].release()
            yield filled(i)

    def consume(outputs: dict[str, Any]) -> None:
        assert busy["out"].acquire(blocking=False)
        bases.add(outputs["y"].__array_interface__["data"][0])
        busy["out"].release()

    with start_threads(plan) as pipe:
        assert pipe.for_each(samples(), consume) == 200
    assert len(bases) < 50  # the slots of the ring, again and again


def test_errors_of_the_caller_are_the_callers(plan: StagePlan) -> None:
    """What the generator or the consumer raises comes out, nothing more is consumed, and the pipeline goes on."""
    seen: list[float] = []

    def broken() -> Iterator[list[NDArray[np.float32]]]:
        yield filled(1)
        yield filled(2)
        raise KeyError("no third sample")

    def refuse(outputs: dict[str, Any]) -> None:
        seen.append(float(outputs["y"][0, 0]))
        if len(seen) == 3:
            raise ValueError("three are enough")

    with start_threads(plan) as pipe:
        with pytest.raises(KeyError, match="no third sample"):
            pipe.for_each(broken(), lambda _: None)
        with pytest.raises(ValueError, match="three are enough"):
            pipe.for_each((filled(i) for i in range(1000)), refuse)
        assert len(seen) == 3
        with pytest.raises(InvalidProblemError, match="it must have type f32 and shape"):
            pipe.for_each([filled(0), [np.zeros((3, 8), dtype=np.float32)]], lambda _: None)
        assert pipe.num_in_flight == 0
        np.testing.assert_array_equal(pipe(filled(7))["y"], chain_value(filled(7)[0]))


def test_a_failing_stage_ends_it(saved: Saved) -> None:
    """A stage that fails raises its error here, whatever else is in flight, and the pipeline is over."""
    x = opset.parameter([2, 8], ov.Type.f32, name="x")
    total = opset.reduce_sum(opset.relu(x, name="op0"), opset.constant(1), False, name="op1")
    plan = alternating_plan(saved(ov.Model([opset.result(opset.exp(total, name="op2"))], [x], "sums")))
    # a plan that lies: the last stage is handed the tensor before the sum, of another shape
    stages = (*plan.stages[:2], replace(plan.stages[2], inputs=plan.stages[1].inputs))
    with start_threads(replace(plan, stages=stages)) as pipe:
        for _ in range(2):
            with pytest.raises(ExecutionError, match="stage '2:cpu0' failed on device 'cpu0'"):
                pipe.for_each((filled(i) for i in range(100)), lambda _: None)


@pytest.mark.parametrize("cancel", [True, False])
def test_closing_from_elsewhere_ends_it(saved: Saved, cancel: bool) -> None:
    """An endless feed ends with an error when another thread closes the pipeline."""
    pipe = start_threads(make_slow_plan(saved(slow_model())))
    x = np.ones(pipe.plan.model.inputs[0].get_shape(), dtype=np.float32)
    begun = threading.Event()

    def endless() -> Iterator[list[Any]]:
        while True:
            begun.set()
            yield [x]

    def close() -> None:
        begun.wait(10)
        pipe.close(cancel=cancel)

    closer = threading.Thread(target=close)
    closer.start()
    with pytest.raises(ExecutionError, match="closed"):
        pipe.for_each(endless(), lambda _: None)
    closer.join(10)
    assert not closer.is_alive()


def test_a_consumer_must_not_submit(plan: StagePlan) -> None:
    """Submitting from the consumer would wait for itself: it is refused."""
    with start_threads(plan) as pipe, pytest.raises(ExecutionError, match="submit in a callback"):
        pipe.for_each([filled(1)], lambda _: pipe.submit(filled(2)))


def test_a_model_without_ops(saved: Saved) -> None:
    """Inputs that are outputs pass through."""
    x = opset.parameter([2], ov.Type.f32, name="x")
    source = saved(ov.Model([opset.result(x, name="same")], [x], "nothing"))
    found: list[float] = []
    with start_threads(alternating_plan(source)) as pipe:
        samples = [[np.full(2, i, dtype=np.float32)] for i in range(5)]
        assert pipe.for_each(samples, lambda outputs: found.append(float(next(iter(outputs.values()))[0]))) == 5
    assert found == [0, 1, 2, 3, 4]
