"""The accelerator made from a CPU's table: formula, fit, and problems whose best placement is not trivial."""

from __future__ import annotations

import pickle
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import cost_tables, examples, graphs

import placekit as pk
from placekit.benchmarks.two_kinds import two_kind_costs
from placekit.cost_models.accelerator import PUBLISHED_RATIOS, RATIOS, Accelerator, speed_class
from placekit.cost_models.op_classes import FUSABLE_TYPES
from placekit.model.errors import InvalidProblemError, UnknownNameError
from placekit.model.platform import Link

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
    accelerator = Accelerator(
        ratios={"dense": 4.0, "other": 0.5}, launch_s=0.25, link=Link(1.0, 100.0), full_width=100, speed=2.0
    )
    costs = accelerator.beside(*line)
    wide = (300 + 100 / 8) / 400
    expected = [8 / (2 * 4 * wide) + 0.25, 2 / (2 * 0.5 * 9 / 16) + 0.25, 1 / (2 * 4 * 9 / 16) + 0.25, 0.0]
    assert costs.op_time_s[:, 1] == pytest.approx(expected)
    assert costs.op_time_s[:, 0].tolist() == [8.0, 2.0, 1.0, 0.0]
    assert costs.transfer_time_s.tolist() == [[0.0, 5.0], [0.0, 5.0], [0.0, 1.4]]
    assert accelerator.platform().device_names == costs.kinds == ("cpu", "accelerator")


def test_classes_and_pickle() -> None:
    """Every type has one class, the elementwise ones theirs, and the accelerator survives a pickle."""
    assert [speed_class(name) for name in ("MatMul", "GroupConvolution", "Gather", "Transpose", "SoftMax")] == [
        "dense", "depthwise", "lookup", "reordering", "other",
    ]  # fmt: skip
    assert {speed_class(name) for name in FUSABLE_TYPES - {"Convert"}} == {"elementwise"}
    accelerator = Accelerator(ratios={"dense": 9.0})
    assert pickle.loads(pickle.dumps(accelerator)) == accelerator
    assert accelerator.ratios["lookup"] == RATIOS["lookup"]


@given(st.data(), st.floats(0.1, 10))
@examples(40)
def test_fit_reaches_any_ratio_that_launches_leave(data: st.DataObject, ratio: float) -> None:
    """CPU-only over accelerator-only time is the given ratio; what cannot be reached says why."""
    graph = data.draw(graphs())
    table = data.draw(cost_tables(graph, ("npu", "cpu"), with_unsupported=False))
    accelerator = Accelerator(launch_s=1e-3)
    time_s = table.op_time_s[:, 1]
    if time_s.sum() / ratio <= 1e-3 * (time_s > 0).sum():
        with pytest.raises(InvalidProblemError, match=r"cannot be fitted|launches alone take"):
            accelerator.fit(graph, table, ratio, cpu="cpu")
        return
    costs = accelerator.fit(graph, table, ratio, cpu="cpu").beside(graph, table, cpu="cpu")
    total = costs.op_time_s.sum(axis=0)
    assert costs.kinds == ("cpu", "accelerator")
    assert total[0] == pytest.approx(ratio * total[1], rel=1e-6)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"ratios": {"fast": 2.0}}, "no class 'fast'.*dense, depthwise"),
        ({"ratios": {"dense": 0.0}}, r"ratio of dense is 0\.0; it must be finite and > 0"),
        ({"speed": float("inf")}, "speed is inf"),
        ({"launch_s": -1.0}, r"launch_s is -1\.0"),
        ({"full_width": -1}, "full_width is -1"),
    ],
)
def test_wrong_values_are_refused(values: dict[str, object], message: str) -> None:
    """Every field names its value and its bound."""
    with pytest.raises(InvalidProblemError, match=message):
        Accelerator(**values)  # type: ignore[arg-type]  # wrong on purpose


def test_unknown_cpu_is_named(line: tuple[pk.OpGraph, pk.CostTable]) -> None:
    """A kind that the table lacks lists those it has."""
    with pytest.raises(InvalidProblemError, match="no costs for kind 'gpu'; the table has cpu"):
        Accelerator().fit(*line, ratio=2.0, cpu="gpu")


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
