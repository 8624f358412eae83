"""The accelerator made from a CPU's table: formula, fit, and problems whose best placement is not trivial."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import cost_tables, examples, graphs

import placekit as pk
from placekit.cost_models.accelerator import PUBLISHED_RATIOS, accelerated, speed_class, two_kind_costs
from placekit.cost_models.op_classes import FUSABLE_TYPES
from placekit.model.errors import InvalidProblemError, UnknownNameError

needs_zoo = pytest.mark.skipif(
    any(find_spec(package) is None for package in ("torch", "transformers")), reason="needs the zoo extra"
)


@pytest.fixture
def line() -> tuple[pk.OpGraph, pk.CostTable]:
    """Return conv (8 s) -> pool (2 s) -> fc (1 s) -> reshape (free), with shapes, on a CPU."""
    graph = pk.OpGraph.from_edges(
        ["conv", "pool", "fc", "reshape"],
        [("conv", "pool"), ("pool", "fc"), ("fc", "reshape")],
        op_types=["Convolution", "MaxPool", "MatMul", "Reshape"],
        output_bytes=[400, 400, 40, 0],
    ).replace(tensor_shapes=[(1, 300), (1, 100), (1, 100)])
    return graph, pk.CostTable(("cpu",), np.array([[8.0], [2.0], [1.0], [0.0]]), np.zeros((3, 1)), np.zeros(4))


def test_times_follow_the_formula(line: tuple[pk.OpGraph, pk.CostTable]) -> None:
    """By hand: 100 outputs on a device that is 100 wide keep (100 + 100/8) / 200 = 9/16 of it busy."""
    platform, costs = accelerated(*line, ratio=2.0, launch_s=0.25, full_width=100)
    wide = (300 + 100 / 8) / 400
    relative = np.array([8 / (4 * wide), 2 / (0.7 * 9 / 16), 1 / (4 * 9 / 16)])
    speed = relative.sum() / (11 / 2 - 3 * 0.25)
    assert costs.op_time_s[:, 1] == pytest.approx([*(relative / speed + 0.25), 0.0])
    assert costs.op_time_s[:, 0].tolist() == [8.0, 2.0, 1.0, 0.0]
    assert costs.transfer_time_s[:, 0].tolist() == [0.0, 0.0, 0.0]
    assert costs.transfer_time_s[:, 1] == pytest.approx([8e-6 + 400 / 20e9, 8e-6 + 400 / 20e9, 8e-6 + 40 / 20e9])
    assert platform.device_names == costs.kinds == ("cpu", "accelerator")


def test_every_type_has_one_class() -> None:
    """Every type has one class, and the elementwise ones theirs."""
    assert [speed_class(name) for name in ("MatMul", "GroupConvolution", "Gather", "Transpose", "SoftMax")] == [
        "dense", "depthwise", "lookup", "reordering", "other",
    ]  # fmt: skip
    assert {speed_class(name) for name in FUSABLE_TYPES - {"Convert"}} == {"elementwise"}


@given(st.data(), st.floats(0.1, 10))
@examples(40)
def test_fit_reaches_any_ratio_that_launches_leave(data: st.DataObject, ratio: float) -> None:
    """CPU-only over accelerator-only time is the given ratio; what cannot be reached says why."""
    graph = data.draw(graphs())
    table = data.draw(cost_tables(graph, ("cpu", "npu"), with_unsupported=False))
    time_s = table.op_time_s[:, 0]
    if time_s.sum() / ratio <= 1e-3 * (time_s > 0).sum():
        with pytest.raises(InvalidProblemError, match=r"cannot be fitted|launches alone take"):
            accelerated(graph, table, ratio, launch_s=1e-3)
        return
    _, costs = accelerated(graph, table, ratio, launch_s=1e-3)
    total = costs.op_time_s.sum(axis=0)
    assert costs.kinds == ("cpu", "accelerator")
    assert total[0] == pytest.approx(ratio * total[1], rel=1e-6)


# fewer layers, all else as published: a narrow model would be all launches
SHALLOW: dict[str, dict[str, Any]] = {
    "resnet50": {"depths": (1, 1, 1, 1)},
    "bert_base": {"layers": 2, "sequence": 8, "vocabulary": 1000},
}


@pytest.mark.slow
@needs_zoo
@pytest.mark.zoo
@pytest.mark.parametrize(
    ("model", "params"),
    [
        ("bert_base", SHALLOW["bert_base"]),
        pytest.param("resnet50", SHALLOW["resnet50"], marks=pytest.mark.slow),
        *(pytest.param(model, {}, marks=pytest.mark.slow) for model in ("resnet50", "inception_v3", "bert_base")),
    ],
)
def test_published_pairs_are_not_trivial(model: str, params: dict[str, Any], tmp_path: Path) -> None:
    """Single devices differ as published, and the proven minimum cut beats both of them by 2 % or more."""
    from placekit.zoo import build

    published = {"sequence": 8} if model == "bert_base" else {}
    source = build(model, tmp_path / f"{model}.xml", **(params or published)).source
    problem = pk.Problem(source.graph, *two_kind_costs(source, model), pk.SerialLatency())
    cpu, own = problem.costs.op_time_s.sum(axis=0)
    assert cpu / own == pytest.approx(PUBLISHED_RATIOS[model])
    optimum = pk.solve(problem, "mincut")
    assert optimum.status is pk.Status.OPTIMAL
    assert optimum.objective is not None
    assert optimum.objective < 0.98 * min(cpu, own)


def test_models_without_a_published_ratio_are_refused() -> None:
    """The error lists the models that have one."""
    with pytest.raises(UnknownNameError, match="no published ratio for model 'gpt2'; models are resnet50"):
        two_kind_costs(None, "gpt2")  # type: ignore[arg-type]  # refused before the model is looked at
