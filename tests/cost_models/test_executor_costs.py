"""What a pipeline takes besides the ops: measured once with the pipeline itself, kept, and part of all costs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
from quantized_models import residual_net

import placekit as pk
from placekit.cost_models.measured.cache import ProfileCache
from placekit.cost_models.measured.executor_costs import ExecutorCosts, executor_costs
from placekit.cost_models.measured.stage_costs import HAND_OVER, predict
from placekit.cost_models.openvino.backend import OpenVinoBackend
from placekit.cost_models.profiled import Profiled
from placekit.io.models.model import ModelSource
from placekit.model.platform import Device
from placekit.runtime.pipelines import idle

QUICK = Profiled(repetitions=4, budget_s=0, max_foreign_load=1.0, cache=None)
CPU = Device(
    "cpu.0", "CPU", is_host=True, openvino="CPU",
    properties={"INFERENCE_NUM_THREADS": "1", "INFERENCE_PRECISION_HINT": "f32"},
)  # fmt: skip
TWO = pk.Platform((CPU, CPU.replace(name="cpu.1")))
CALL_S, PAIR_S = 1e-3, 5e-3


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the numbers of stages that were measured; one takes `CALL_S`, several `PAIR_S`, more each time."""
    found: list[int] = []

    def fixed(devices: Sequence[Device], *_: object) -> float:
        found.append(len(devices))
        return (CALL_S if len(devices) == 1 else PAIR_S) * (1 + 0.1 * (len(found) > 2))

    monkeypatch.setattr(idle, "idle_s", fixed)
    return found


@pytest.mark.parametrize("framework", ["openvino", "torch"])
@pytest.mark.parametrize("count", [1, 2])
def test_idle_stages_take_some_time(framework: str, count: int) -> None:
    """The pipeline of either framework runs stages that compute next to nothing."""
    devices = [*TWO.devices][:count]
    if framework == "torch":
        pytest.importorskip("torch")
        devices = [each.replace(openvino=None, properties={"torch": "cpu"}) for each in devices]
    assert 0 < idle.idle_s(devices, framework) < 1


def test_either_end_of_a_cut_makes_up_for_the_half_of_a_call() -> None:
    """One device takes a call, and each of two that share the ops equally a stage of a pipeline."""
    costs = ExecutorCosts({"CPU": 4e-5}, 1e-4)
    ops_s = np.full(4, 1e-3)
    assert costs.with_call("CPU", ops_s).sum() == pytest.approx(4e-3 + 4e-5)
    assert costs.with_call("CPU", ops_s)[:2].sum() + costs.end_s == pytest.approx(2e-3 + 1e-4)
    assert costs.with_call("NPU", ops_s).sum() == pytest.approx(4e-3 + 4e-5), "as on the slowest that was measured"
    assert ExecutorCosts({"CPU": 4e-5}, None).end_s == 0
    assert ExecutorCosts({"CPU": 4e-5}, 1e-5).end_s == 2e-5, "two stages take no less than one"


def test_measured_once_and_kept(measured: list[int], tmp_path: Path) -> None:
    """Devices alike are measured once; the next command finds it. What other load disturbed is tried again later."""
    cache, backend = ProfileCache(tmp_path), OpenVinoBackend()
    for _ in range(2):
        found = executor_costs(TWO.devices, backend, cache)
        assert (found.call_s, found.pair_s) == ({"CPU": CALL_S}, PAIR_S)
        assert measured == [1, 2]
    old = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    for path in (tmp_path / "profiles").iterdir():
        with np.load(path) as arrays:
            meta: dict[str, Any] = json.loads(str(arrays["meta"][()]))
        cache.store(path.stem, {}, meta | {"foreign_load": 0.6, "date": old})
    again = executor_costs(TWO.devices, backend, cache)
    assert measured == [1, 2, 1, 2]
    assert (again.call_s, again.pair_s) == ({"CPU": CALL_S}, PAIR_S), "the lower of two"


def test_stages_shorter_than_a_handover_are_no_split(
    saved: Callable[[ov.Model], ModelSource], measured: list[int]
) -> None:
    """A model of some microseconds stays on one device, and is promised what a call allows."""
    source = saved(residual_net(8, 16))
    problem = source.problem(TWO, QUICK.cost_table(source, TWO))
    result = pk.solve(problem)
    assert measured
    assert result.placement is not None
    assert result.objective is not None
    assert len(set(result.placement.device_of_op.tolist())) == 1
    assert CALL_S < result.objective < 2 * CALL_S
    long = problem.costs.replace(op_time_s=np.where(problem.costs.op_time_s > 0, 100 * PAIR_S, 0.0))
    split = pk.solve(problem.replace(costs=long))
    assert split.placement is not None
    assert len(set(split.placement.device_of_op.tolist())) == 2, "long stages are worth a handover"


@pytest.mark.usefixtures("measured")
def test_prediction_is_what_was_solved_for(saved: Callable[[ov.Model], ModelSource]) -> None:
    """The stages of a pipeline take together what the judge adds up; one after another they wake nobody."""
    source = saved(residual_net(8, 16))
    problem = source.problem(TWO, QUICK.cost_table(source, TWO))
    graph = source.graph
    on_second = np.arange(graph.num_ops) > graph.op_index["sum"]
    cut = pk.Placement(graph.op_names, TWO.device_names, on_second.astype(np.int64))
    told = predict(problem, cut, is_serial=False)
    assert 1 / told.throughput_per_s == pytest.approx(pk.evaluate(problem, cut).objective, rel=0.05)
    one = pk.Placement(graph.op_names, TWO.device_names, np.zeros(graph.num_ops, dtype=np.int64))
    alone = predict(problem, one, is_serial=False)
    assert 1 / alone.throughput_per_s == pytest.approx(pk.evaluate(problem, one).objective, rel=0.05)
    end_s = problem.costs.provenance[HAND_OVER]["CPU"]
    assert end_s == pytest.approx(PAIR_S - CALL_S / 2)
    assert told.latency_s - predict(problem, cut, is_serial=True).latency_s == pytest.approx(2 * end_s)


@pytest.mark.usefixtures("measured")
def test_links_that_are_given_stay(saved: Callable[[ov.Model], ModelSource]) -> None:
    """Who states a link states all that a tensor takes."""
    source = saved(residual_net(8, 16))
    link = pk.Link(1e-3, 1e9)
    costs = QUICK.cost_table(source, pk.Platform(TWO.devices, {"CPU": link}))
    assert costs.transfer_time_s[:, 0] == pytest.approx(link.time_s(source.graph.tensor_bytes))


def test_what_does_not_run_is_left_out(
    saved: Callable[[ov.Model], ModelSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Costs of a stage that cannot be measured are not known, which is no reason to fail."""

    def fails(*_: object) -> float:
        raise pk.PlacekitError("no such thread")

    monkeypatch.setattr(idle, "idle_s", fails)
    source = saved(residual_net(8, 16))
    costs = replace(QUICK, cache=None).cost_table(source, TWO)
    assert costs.provenance["stage_call_s"] == {}
    assert not costs.transfer_time_s[source.graph.tensor_producer == source.graph.op_index["image"]].any()
