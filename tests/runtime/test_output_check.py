"""The output check: equal placements pass, a corrupted one is named at the first tensor that differs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as opset
from pipelines import alternating_plan, chain, corrupt_stage, placed_plan, random_plan

from placekit.io.models.model import ModelSource
from placekit.model.errors import OutputMismatchError, UnsupportedProblemError
from placekit.runtime import output_check
from placekit.runtime.output_check import check_placement, in_f32
from placekit.runtime.stages.plans import compile_plan
from placekit.runtime.tensor_checks import TOLERANCES, OutputCheck, TensorCheck, relative_errors

Saved = Callable[[ov.Model], ModelSource]


@pytest.mark.parametrize("seed", range(3))
def test_a_random_placement_is_equal(saved: Saved, make_convnet: Callable[[], ov.Model], seed: int) -> None:
    """Every tensor that leaves a stage is listed once, in topological order, and so is every output."""
    plan = random_plan(saved(make_convnet()), seed, devices=3)
    check = check_placement(compile_plan(plan), seed=seed)
    check.require_equal()
    assert check.first_mismatch is None
    assert check.max_relative_error <= 1e-5
    assert (check.reference, check.precision) == (plan.devices[0].name, "f32")
    assert sorted(each.name for each in check.cuts) == sorted(
        f"{op}:{port}" for stage in plan.stages for op, port in stage.outputs
    )
    order = [op.get_friendly_name() for op in plan.model.get_ordered_ops()]
    for stage in plan.stages:
        ranks = [order.index(each.name.rpartition(":")[0]) for each in check.cuts if each.stage == stage.name]
        assert ranks == sorted(ranks)
    assert [each.name for each in check.outputs] == list(plan.output_names)


@pytest.mark.parametrize("stage", range(4))
def test_a_corrupted_stage_is_named(saved: Saved, stage: int) -> None:
    """The first tensor that differs is the corrupted one, not those that it spoils."""
    plan = corrupt_stage(alternating_plan(saved(chain([2, 8]))), stage, by=0.01)
    check = check_placement(compile_plan(plan))
    assert [each.is_equal for each in check.cuts] == [index < stage for index in range(4)]
    message = rf"tensor 'op{stage}:0' of stage '{stage}:cpu{stage % 2}' differs by .* spread; the tolerance is 1e-05"
    with pytest.raises(OutputMismatchError, match=message):
        check.require_equal()


def test_an_error_that_the_output_hides_is_found(saved: Saved) -> None:
    """A Softmax of large numbers is one-hot whatever is added to them: only the cut tensor shows the corruption."""
    x = opset.parameter([1, 8], ov.Type.f32, name="x")
    large = opset.multiply(x, opset.constant(np.float32(1e4)), name="large")
    model = ov.Model([opset.result(opset.softmax(large, 1, name="softmax"))], [x], "saturated")
    source = saved(model)
    plan = placed_plan(source, [int(name == "softmax") for name in source.graph.op_names])
    check = check_placement(compile_plan(corrupt_stage(plan, 0, by=3.0)))
    assert all(each.is_equal for each in check.outputs)
    assert check.first_mismatch is not None
    assert check.first_mismatch.name == "large:0"


def test_lower_precision_has_a_wider_tolerance(saved: Saved, make_convnet: Callable[[], ov.Model]) -> None:
    """A stage in bf16 is compared as bf16, and a corrupted one is found nevertheless."""
    plan = random_plan(saved(make_convnet()), 0)
    low = {**plan.stages[0].device.properties, "INFERENCE_PRECISION_HINT": "bf16"}
    stages = tuple(
        replace(each, members=(each.device.replace(properties=low),)) if each.device.name == "cpu1" else each
        for each in plan.stages
    )
    mixed = replace(plan, stages=stages)
    check = check_placement(compile_plan(mixed))
    if check.precision != "bf16":
        pytest.skip("this CPU does not compute in bf16")
    check.require_equal()
    assert 1e-4 < check.max_relative_error < 0.2
    with pytest.raises(OutputMismatchError, match=r"\(root mean square\) of its spread; the tolerance is 1 \(bf16"):
        check_placement(compile_plan(corrupt_stage(mixed, 0, by=20.0))).require_equal()
    # the same stages in f32 are as exact as ever, and show a small corruption, too
    assert check_placement(compile_plan(in_f32(mixed))).max_relative_error <= 1e-5
    assert check_placement(compile_plan(in_f32(corrupt_stage(mixed, 0, by=0.01)))).first_mismatch is not None


def test_dynamic_shapes_need_inputs(saved: Saved) -> None:
    """Seeded inputs have no shape to go by; given ones are compared."""
    compiled = compile_plan(alternating_plan(saved(chain([-1, 8]))))
    with pytest.raises(UnsupportedProblemError, match="'x' has type f32 and shape"):
        check_placement(compiled)
    check_placement(compiled, inputs=[ov.Tensor(np.ones((3, 8), dtype=np.float32))]).require_equal()


def test_integers_are_exact_where_f32_is_computed(saved: Saved) -> None:
    """Indices between stages must be the same."""
    x = opset.parameter([1, 8], ov.Type.f32, name="x")
    top = opset.topk(opset.relu(x, name="relu"), opset.constant(3), 1, "max", "value", name="top")
    model = ov.Model([opset.result(opset.abs(top.output(1), name="abs")), opset.result(top.output(0))], [x], "top3")
    source = saved(model)
    plan = placed_plan(source, [int(name == "abs") for name in source.graph.op_names])
    check = check_placement(compile_plan(plan))
    check.require_equal()
    assert {each.name: each.tolerance for each in check.cuts} == {"top:0": 1e-5, "top:1": 0.0, "abs:0": 0.0}


def test_relative_error_knows_the_awkward_numbers() -> None:
    """NaN, infinity, what stands for infinity, constants, and other shapes."""
    nan, inf, lowest = np.nan, np.inf, np.finfo(np.float32).min

    def error(a: Any, b: Any) -> float:
        return relative_errors(np.array(a, dtype=np.float32), np.array(b, dtype=np.float32))[0]

    assert error([1, nan, inf, -inf], [1, nan, inf, -inf]) == 0
    assert error([1, nan], [1, 2]) == error([1, 2], [1, nan]) == error([1, inf], [1, -inf]) == np.inf
    assert error([0, nan], [0, inf]) == error([0, 1], [0, inf]) == np.inf
    # a mask does not hide the numbers beside it
    assert error([0, 2, lowest], [0, 2.1, lowest]) == pytest.approx(0.1, rel=1e-5)
    assert error([0, 2, lowest], [0, 2, -inf]) == 0
    # a constant tensor: in units of a hundredth of its magnitude
    assert error([5, 5], [5, 5.05]) == pytest.approx(1, rel=1e-3)
    assert error([0, 0], [0, 1e-9]) == np.inf
    # a hundred zeros, and one number ten spreads from the mean: a quarter of that distance is the unit of all
    for at in (0, 100):
        found = [0.0] * 100 + [101.0]
        found[at] += 0.1
        assert error([0] * 100 + [101], found) == pytest.approx(0.1 / 25, rel=1e-4)
    # not of the distance from zero, which is large where the mean is
    assert error([1000, 1002], [1000, 1002.1]) == pytest.approx(0.1 / 10.02, rel=1e-3)
    assert error([], []) == error([0, 0], [0, 0]) == 0
    assert error([1, 2], [[1, 2]]) == np.inf
    assert relative_errors(np.array([True, False]), np.array([True, True])) == (0.5, 0.5)


@pytest.mark.parametrize(("by", "is_equal"), [(0.0, True), (3e-5, True), (5e-3, False)])
def test_a_model_that_differs_from_itself_allows_as_much(
    saved: Saved, make_convnet: Callable[[], ov.Model], monkeypatch: pytest.MonkeyPatch, by: float, is_equal: bool
) -> None:
    """Where other tensors are outputs, too, it may be rounded otherwise: by 3 tolerances it may, by 500 it may not."""
    run = output_check._WholeModel._run

    def otherwise(self: Any, compiled: Any) -> list[Any]:
        found = run(self, compiled)
        return [each + by * each.std() for each in found] if compiled is self._model else found

    monkeypatch.setattr(output_check._WholeModel, "_run", otherwise)
    plan = random_plan(saved(make_convnet()), 0, devices=2)
    check = check_placement(compile_plan(plan))
    assert all(each.tolerance == 1e-5 for each in check.cuts)
    assert (check.first_mismatch is None) == is_equal
    assert all(each.tolerance == pytest.approx(np.clip(2 * by, 1e-5, 1e-3), rel=0.1) for each in check.outputs)


def test_tolerances_rise_as_precision_falls() -> None:
    """And the check reports the worst of its tensors."""
    assert TOLERANCES["f32"] < TOLERANCES["f16"] < TOLERANCES["bf16"] < 1.4
    some = TensorCheck("a:0", "0:x", 0.3, 0.1, 0.4)
    check = OutputCheck("CPU", "bf16", (some,), (replace(some, name="out", stage="", max_error=0.5),))
    assert check.max_relative_error == 0.5
    with pytest.raises(OutputMismatchError, match=r"output 'out' differs by 0.5 .*\(bf16, compared with .* 1 of 2"):
        check.require_equal()
