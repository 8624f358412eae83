"""Compile times: the cache fills, is hit, and every stage has its time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openvino as ov
from openvino import opset13 as opset

from placekit.benchmarks.timing_compile import NUM_STAGES, compile_times
from placekit.cost_models.openvino.devices import core_groups
from placekit.costs import CostTable
from placekit.io.model import read_model


def test_every_plan_is_compiled_without_into_and_out_of_the_cache(tmp_path: Path) -> None:
    """A chain of eight products in one, two and six stages, on two devices in turn."""
    node = x = opset.parameter([1, 16], ov.Type.f32, name="x")
    rng = np.random.default_rng(0)
    for index in range(8):
        weights = opset.constant(rng.standard_normal((16, 16)).astype(np.float32))
        node = opset.matmul(node, weights, False, False, name=f"product{index}")
    ov.save_model(ov.Model([opset.result(node)], [x], "chain"), tmp_path / "chain.xml")
    source = read_model(tmp_path / "chain.xml")
    # twice the same core, so that it runs where there is only one
    group = core_groups(1)
    platform = group.replace(devices=tuple(group.devices[0].replace(name=name) for name in "ab"))
    work = np.array([[float(kind == "MatMul")] for kind in source.graph.op_types])
    costs = CostTable(platform.kinds, work, np.zeros((source.graph.num_tensors, 1)), np.zeros(source.graph.num_ops))
    row = compile_times(source, source.problem(platform, costs), is_quick=True, progress=None)
    assert [plan["num_stages"] for plan in row["plans"]] == list(NUM_STAGES)
    for plan in row["plans"]:
        assert plan["is_cached"]
        assert plan["cache_bytes"] > 0
        assert len(plan["stage_cold_s"]) == len(plan["stage_cached_s"]) == plan["num_stages"]
        assert plan["cold_s"] > 0 < plan["cached_s"]
        assert plan["cold_s"] == np.sum(plan["stage_cold_s"])
