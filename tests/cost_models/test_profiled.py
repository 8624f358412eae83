"""The profiled cost model, from a model file to a cost table."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest

from placekit.cost_models import profiled
from placekit.cost_models.base import CostModel
from placekit.cost_models.kind_profile import KindProfile, anchors_of
from placekit.cost_models.measured import measuring
from placekit.cost_models.measured.cache import ProfileCache
from placekit.cost_models.measured.executor_costs import ExecutorCosts
from placekit.cost_models.openvino import counters, machine
from placekit.cost_models.openvino.devices import core_groups
from placekit.cost_models.profiled import Profiled
from placekit.io.models.model import ModelSource
from placekit.io.models.read_model import read_model
from placekit.model.errors import (
    DeviceUnavailableError,
    InvalidFileError,
    InvalidProblemError,
    UnsupportedProblemError,
)
from placekit.model.graph import OpGraph
from placekit.model.platform import Device, Link, Platform

QUICK = Profiled(repetitions=4, budget_s=0, max_foreign_load=1.0, cache=None)
ONE_THREAD = {"INFERENCE_NUM_THREADS": "1", "INFERENCE_PRECISION_HINT": "f32"}
CPU = Device("cpu.0", "CPU one", is_host=True, openvino="CPU", properties=ONE_THREAD)
GPU = Device("GPU", "GPU", openvino="GPU")


@pytest.fixture(autouse=True)
def no_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what pipelines cost; `test_executor_costs.py` has that."""
    monkeypatch.setattr(profiled, "executor_costs", lambda *_: ExecutorCosts({}, None))


@pytest.fixture
def source(saved: Callable[[ov.Model], ModelSource], make_convnet: Callable[[], ov.Model]) -> ModelSource:
    """Return the convolutional model, read from a file."""
    return saved(make_convnet())


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the device of every measurement by counters."""
    calls: list[str] = []
    real = counters.profile_counters

    def counting(*args: Any, **kwargs: Any) -> KindProfile:
        calls.append(kwargs["device"])
        return real(*args, **kwargs)

    monkeypatch.setattr(counters, "profile_counters", counting)
    return calls


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Make the meter read these loads, one after the other, then 0."""
    loads: list[float] = []
    real = measuring.LoadMeter.__exit__

    def leave(self: measuring.LoadMeter, *args: Any) -> None:
        real(self, *args)
        self.foreign_load = loads.pop(0) if loads else 0.0

    monkeypatch.setattr(measuring.LoadMeter, "__exit__", leave)
    return loads


def test_it_is_a_cost_model() -> None:
    """The protocol holds."""
    assert isinstance(QUICK, CostModel)
    assert QUICK.name == "profiled"


def test_the_table_says_where_its_numbers_come_from(source: ModelSource) -> None:
    """Times, memory, groups and provenance of a platform of one kind; the provenance is JSON."""
    costs = QUICK.cost_table(source, Platform((CPU,)))
    graph, meta = source.graph, costs.provenance["kinds"]["CPU one"]
    assert costs.kinds == ("CPU one",)
    assert costs.supported.all()
    assert costs.op_time_s.sum() == pytest.approx(
        meta["sum_of_op_times_s"] + max(meta["between_ops_s"] - meta["call_s"], 0.0)
    )
    assert meta["mapped_share"] >= 0.95
    assert meta["precision"] == "f32"
    assert meta["model_latency_s"] > 0
    assert 0 <= meta["foreign_load"] <= 1
    assert {"openvino", "cpu", "content_hash"} <= costs.provenance.keys()
    assert costs.error == meta["error"] >= 0
    json.dumps(dict(costs.provenance), allow_nan=False)
    conv = graph.op_index["conv1"]
    output_bytes = sum(graph.tensor_bytes[graph.tensor_producer == conv])
    assert costs.op_memory_bytes[conv] == graph.op_weight_bytes[conv] == 8 * 3 * 3 * 3 * 4
    assert costs.blocks is not None
    assert output_bytes == 8 * 32 * 32 * 4
    assert output_bytes in costs.blocks.num_bytes[~costs.blocks.is_weight]
    # images of which nobody but a convolution could make use with their channels last; the input is converted by its op
    assert costs.transfer_time_s[graph.tensor_producer == graph.op_index["add"], 0] > 0
    assert costs.transfer_time_s[graph.tensor_producer == graph.op_index["image"], 0] == 0


def test_a_groups_time_stands_on_its_heaviest_op(source: ModelSource) -> None:
    """conv1 carries the time of conv1 and relu1; an op without time has no spread."""
    costs = QUICK.cost_table(source, Platform((CPU,)))
    index = source.graph.op_index
    assert costs.op_time_s[index["conv1"], 0] > 0
    assert costs.op_time_s[index["relu1"], 0] == 0
    assert costs.op_group[index["conv1"]] == costs.op_group[index["relu1"]]
    for label in np.unique(costs.op_group):
        assert (costs.op_time_s[costs.op_group == label, 0] > 0).sum() <= 1
    assert costs.op_time_spread is not None
    np.testing.assert_array_equal(np.isnan(costs.op_time_spread), costs.op_time_s == 0)


def test_the_table_makes_a_problem_whose_groups_can_be_placed(source: ModelSource) -> None:
    """Two core groups, every fused group a class of its own or part of one."""
    platform = Platform((CPU, CPU.replace(name="cpu.1")))
    problem = source.problem(platform, QUICK.cost_table(source, platform))
    assert problem.num_classes == len(np.unique(problem.costs.op_group))


def test_kinds_with_the_same_configuration_are_measured_once(source: ModelSource, counted: list[str]) -> None:
    """Two names for one configuration share a measurement; another precision is another one."""
    twin = CPU.replace(name="cpu.1", kind="CPU two")
    other = CPU.replace(
        name="cpu.2", kind="CPU bf16", properties={**CPU.properties, "INFERENCE_PRECISION_HINT": "bf16"}
    )
    costs = QUICK.cost_table(source, Platform((CPU, twin, other)))
    assert counted == ["CPU", "CPU"]
    np.testing.assert_array_equal(costs.op_time_s[:, 0], costs.op_time_s[:, 1])


@pytest.mark.parametrize("is_whole", [True, False])
def test_kinds_that_fuse_differently_share_the_joined_groups(
    source: ModelSource, monkeypatch: pytest.MonkeyPatch, is_whole: bool
) -> None:
    """A kind with every op alone and a kind with one group: one group, each kind's times summed, all or none runs."""
    graph, num_ops = source.graph, source.graph.num_ops
    can_run = np.ones(num_ops, dtype=bool)
    can_run[2] = is_whole
    spread = np.full(num_ops, 0.1)
    by_kind = {
        "CPU one": KindProfile(np.arange(num_ops), np.full(num_ops, 1e-3), spread, can_run, {"noisy": False}),
        "CPU bf16": KindProfile(
            np.zeros(num_ops, dtype=np.int64), np.array([5e-3]), np.array([0.2]), np.array([True]), {"noisy": False}
        ),
    }
    other = CPU.replace(name="cpu.2", kind="CPU bf16", properties={"INFERENCE_PRECISION_HINT": "bf16"})
    monkeypatch.setattr(Profiled, "_profile", lambda _self, _source, device, *_: by_kind[device.kind])
    costs = QUICK.cost_table(source, Platform((CPU, other)))
    assert len(np.unique(costs.op_group)) == 1
    anchor = int(np.argmax(graph.op_flops))
    assert np.flatnonzero(costs.op_time_s[:, 1]).tolist() == [anchor]
    assert costs.op_time_s[anchor] == pytest.approx([1e-3 * num_ops if is_whole else 0.0, 5e-3])
    assert costs.supported.all(axis=0).tolist() == [is_whole, True]
    assert costs.supported.any(axis=0).tolist() == [is_whole, True], "one op that cannot run takes its group with it"
    if is_whole and costs.op_time_spread is not None:
        assert costs.op_time_spread[anchor] == pytest.approx([0.1, 0.2])


def test_links_are_given_or_measured(source: ModelSource) -> None:
    """A given link is used as it is; a host without one has none."""
    link = Link(1e-3, 1e6)
    platform = Platform((CPU,), {"CPU one": link})
    given = QUICK.cost_table(source, platform)
    np.testing.assert_allclose(given.transfer_time_s[:, 0], 1e-3 + source.graph.tensor_bytes / 1e6)
    assert given.provenance["links"]["CPU one"]["source"] == "given"
    assert QUICK.cost_table(source, Platform((CPU,))).provenance["links"]["CPU one"]["source"] == "host"


def test_a_gpu_is_measured_with_submodels_and_its_link(source: ModelSource, fake_core: Callable[..., Any]) -> None:
    """CPU by counters, GPU by submodels; the op that the GPU refuses is masked with its whole group."""
    core = fake_core({"GPU": "Arc"}, refused=("Tanh",))
    costs = replace(QUICK, core=core).cost_table(source, Platform((CPU, GPU)))
    methods = [costs.provenance["kinds"][kind]["method"] for kind in ("CPU one", "GPU")]
    assert methods == ["counters", "submodels"]
    assert costs.provenance["links"]["GPU"]["source"] == "measured"
    assert (costs.transfer_time_s[:, 1] > 0).any()
    tanh = source.graph.op_index["tanh"]
    assert costs.supported[tanh].tolist() == [True, False]
    assert costs.supported[source.graph.op_index["conv1"]].all()


def test_the_cache_is_used_and_keyed_by_configuration(
    source: ModelSource, counted: list[str], tmp_path: Path, foreign: list[float]
) -> None:
    """Same configuration: no new measurement and the same table; other repetitions or threads: a new one."""
    model = replace(QUICK, cache=ProfileCache(tmp_path), max_foreign_load=0.1)
    first = model.cost_table(source, Platform((CPU,)))
    again = model.cost_table(source, Platform((CPU.replace(name="renamed", kind="renamed"),)))
    assert counted == ["CPU"]
    np.testing.assert_array_equal(first.op_time_s, again.op_time_s)
    assert again.provenance["kinds"]["renamed"]["cached"] is True
    replace(model, repetitions=5).cost_table(source, Platform((CPU,)))
    bare = CPU.replace(properties={"INFERENCE_PRECISION_HINT": "f32"})
    model.cost_table(source, Platform((bare,)))
    assert len(counted) == 3


def measured_once(source: ModelSource, folder: Path) -> tuple[Profiled, ProfileCache, Path]:
    """Return a cost model that has measured the CPU, its cache in `folder`, and the only entry's file."""
    cache = ProfileCache(folder)
    model = replace(QUICK, cache=cache)
    model.cost_table(source, Platform((CPU,)))
    (path,) = (folder / "profiles").iterdir()
    return model, cache, path


@pytest.mark.parametrize("content", ["garbage", "wrong shape", "no load"])
def test_a_cache_entry_that_does_not_fit_is_measured_again(
    source: ModelSource, counted: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    """Broken files, arrays of another model and missing values are not believed, with a warning."""
    model, cache, path = measured_once(source, tmp_path)
    arrays, meta = cache.load(path.stem) or ({}, {})
    if content == "garbage":
        path.write_bytes(b"garbage")
    elif content == "wrong shape":
        cache.store(path.stem, {**arrays, "op_group": arrays["op_group"][1:]}, meta)
    else:
        cache.store(path.stem, arrays, {})
    with caplog.at_level(logging.WARNING):
        model.cost_table(source, Platform((CPU,)))
    assert "measured again" in caplog.text
    assert len(counted) == 2


@pytest.mark.parametrize(
    ("spread", "age_s", "is_kept"),
    [(0.05, 10**6, True), (0.5, 60, True), (0.5, 3600, False), (0.5, None, False), (np.nan, 3600, True)],
)
def test_an_unsteady_measurement_is_made_again_later(
    source: ModelSource, counted: list[str], tmp_path: Path, spread: float, age_s: float | None, is_kept: bool
) -> None:
    """Repetitions that differ much say that the machine changed its speed, which it has perhaps ended to do."""
    model, cache, path = measured_once(source, tmp_path)
    arrays, meta = cache.load(path.stem) or ({}, {})
    date = "" if age_s is None else (datetime.now(UTC) - timedelta(seconds=age_s)).isoformat()
    spreads = np.full_like(arrays["group_spread"], spread)
    cache.store(path.stem, {**arrays, "group_spread": spreads}, {**meta, "date": date})
    model.cost_table(source, Platform((CPU,)))
    assert len(counted) == (1 if is_kept else 2)


def test_a_measurement_is_repeated_until_its_error_is_small(
    source: ModelSource, counted: list[str], foreign: list[float], tmp_path: Path
) -> None:
    """Loud, loud, quiet: three measurements, and the error is that of the quiet one."""
    foreign += [0.6, 0.3]
    labels: list[str] = []
    model = replace(QUICK, budget_s=1e3, max_foreign_load=0.1, cache=ProfileCache(tmp_path))
    costs = model.cost_table(source, Platform((CPU,)), progress=lambda *call: labels.append(call[2]))
    assert len(counted) >= 3  # more on a machine that changes its speed
    assert costs.error is not None
    assert costs.error <= 0.1
    assert [label for label in labels if "again, +-60% so far" in label]
    measured = len(counted)
    model.cost_table(source, Platform((CPU,)))
    assert len(counted) == measured


def test_beyond_the_budget_the_error_counts_other_load(
    source: ModelSource, counted: list[str], foreign: list[float], tmp_path: Path
) -> None:
    """One loud measurement: the table states its error, and no later command measures again at once."""
    foreign += [0.6]
    model = replace(QUICK, max_foreign_load=0.1, cache=ProfileCache(tmp_path))
    costs = model.cost_table(source, Platform((CPU,)))
    assert costs.error is not None
    assert costs.error >= 0.6
    again = model.cost_table(source, Platform((CPU,)))
    assert len(counted) == 1
    np.testing.assert_array_equal(again.op_time_s, costs.op_time_s)
    assert again.error == costs.error


def test_a_noisy_measurement_is_merged_with_the_next(
    source: ModelSource, counted: list[str], foreign: list[float], tmp_path: Path
) -> None:
    """An hour later there is another try: of every group the lower time, or a quiet measurement alone."""
    foreign += [0.6]
    model = replace(QUICK, max_foreign_load=0.1, cache=ProfileCache(tmp_path))
    model.cost_table(source, Platform((CPU,)))
    (path,) = (tmp_path / "profiles").iterdir()
    assert model.cache is not None
    arrays, meta = model.cache.load(path.stem) or ({}, {})
    slow = arrays["group_time_s"].copy()
    slow[0], slow[1:] = 0.0, 1.0

    def age() -> None:
        assert model.cache is not None
        long_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
        model.cache.store(path.stem, {**arrays, "group_time_s": slow}, {**meta, "date": long_ago})

    age()
    foreign += [0.5]
    merged = model.cost_table(source, Platform((CPU,)))
    assert len(counted) == 2
    assert merged.error is not None
    assert merged.error >= 0.5
    kept = KindProfile.from_arrays(*(model.cache.load(path.stem) or ({}, {})), source.graph.num_ops)
    assert kept is not None
    assert kept.group_time_s[0] == 0
    assert (kept.group_time_s[1:] < 1).all()
    age()
    quiet = model.cost_table(source, Platform((CPU,)))
    assert len(counted) >= 3
    alone = KindProfile.from_arrays(*(model.cache.load(path.stem) or ({}, {})), source.graph.num_ops)
    assert alone is not None
    assert quiet.error == alone.meta["error"]
    assert not (alone.second_time_s == 1).any()


def test_profiles_of_other_groups_are_not_mixed() -> None:
    """The minimum of every group where the groups agree; else the one that was there."""
    can_run, nothing = np.ones(2, dtype=bool), np.zeros(0)
    one = KindProfile(np.array([0, 1]), np.array([1.0, 4.0]), np.array([0.1, 0.2]), can_run, {"a": 1}, np.array([3.0]))
    two = replace(one, group_time_s=np.array([2.0, 3.0]), group_spread=np.array([0.3, 0.4]), tensor_time_s=np.ones(1))
    merged = one.merged(two)
    assert merged.group_time_s.tolist() == [1.0, 3.0]
    assert merged.group_spread.tolist() == [0.1, 0.4]
    assert merged.tensor_time_s.tolist() == [1.0]
    assert merged.meta == {"a": 1}
    assert merged.second_time_s.tolist() == [2.0, 4.0]
    assert merged.error == pytest.approx(2 / 4)
    third = merged.merged(replace(one, group_time_s=np.array([1.1, 3.1])))
    assert third.error == pytest.approx(0.2 / 4)
    assert one.error == pytest.approx((0.1 * 1 + 0.2 * 4) / 5 / 2)
    kept = KindProfile.from_arrays(merged.to_arrays(), {}, 2)
    assert kept is not None
    assert kept.error == merged.error
    for other in (
        replace(two, op_group=np.array([1, 0])),
        replace(two, group_supported=np.array([True, False])),
        replace(two, tensor_time_s=nothing),
    ):
        assert one.merged(other) is one


def test_progress_names_the_kind_and_ends_at_the_total(source: ModelSource, foreign: list[float]) -> None:
    """Over two kinds and a repeated measurement."""
    foreign += [0.6]
    calls: list[tuple[int, int, str]] = []
    other = CPU.replace(name="cpu.1", kind="CPU bf16", properties={"INFERENCE_PRECISION_HINT": "bf16"})
    model = replace(QUICK, budget_s=1e3, max_foreign_load=0.1)
    model.cost_table(source, Platform((CPU, other)), progress=lambda *call: calls.append(call))
    assert calls[-1][0] == calls[-1][1]
    assert {call[2].partition(":")[0] for call in calls} == {"CPU one", "CPU bf16"}


def test_a_group_is_measured_on_its_own_cores(source: ModelSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads are bound to the group's cores while it is measured."""
    seen: list[tuple[int, ...]] = []
    real = machine.running_on

    def watched(cores: Sequence[int]) -> AbstractContextManager[None]:
        seen.append(tuple(cores))
        return real(cores)

    monkeypatch.setattr("placekit.cost_models.profiled.running_on", watched)
    last = machine.usable_cores()[-1].cpu
    QUICK.cost_table(source, core_groups(1, cores=[last]))
    assert seen == [(last,)]


def test_what_cannot_be_measured_is_a_named_error(
    source: ModelSource, saved: Callable[[ov.Model], ModelSource]
) -> None:
    """A bare graph, a device without OpenVINO name, an absent device, a dynamic model."""
    with pytest.raises(UnsupportedProblemError, match="graph 'convnet' cannot be measured"):
        QUICK.cost_table(source.graph, Platform((CPU,)))
    with pytest.raises(DeviceUnavailableError, match=r"device 'fpga\.0' of kind 'fpga' names no OpenVINO device"):
        QUICK.cost_table(source, Platform.of(fpga=1))
    with pytest.raises(DeviceUnavailableError, match="device 'TPU' is not available"):
        QUICK.cost_table(source, Platform((Device("tpu", "tpu", openvino="TPU"),)))
    x = ov.opset13.parameter([-1, 4], ov.Type.f32, name="x")
    dynamic = saved(ov.Model([ov.opset13.relu(x)], [x], "dynamic"))
    with pytest.raises(InvalidFileError, match="input 'x' has shape"):
        QUICK.cost_table(dynamic, Platform((CPU,)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"repetitions": 2}, "repetitions is 2; at least 3"),
        ({"max_foreign_load": 1.5}, "max_foreign_load is 1.5"),
        ({"budget_s": -1}, "budget_s is -1"),
    ],
)
def test_parameters_outside_their_range_are_refused(arguments: dict[str, Any], message: str) -> None:
    """The message names the parameter, its value and the bound."""
    with pytest.raises(InvalidProblemError, match=message):
        Profiled(**arguments)


def test_the_heaviest_op_is_the_first_among_equals() -> None:
    """Ties in FLOPs go by topological order."""
    graph = OpGraph.from_edges(["b", "a", "c"], [("a", "b"), ("b", "c")])
    anchors = anchors_of(graph, np.array([0, 0, 1]), 2)
    assert [graph.op_names[op] for op in anchors] == ["a", "c"]


@pytest.mark.slow
def test_a_light_onnx_model_is_mapped_and_repeatable() -> None:
    """SqueezeNet from the onnx wheel: at least 95 % of the time mapped, the sum near the latency, groups a DAG."""
    onnx = pytest.importorskip("onnx")
    path = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / "light_squeezenet.onnx"
    if not path.is_file():
        pytest.skip(f"the onnx wheel has no {path.name}")
    source = read_model(path)
    costs = replace(QUICK, repetitions=8).cost_table(source, Platform((CPU,)))
    meta = costs.provenance["kinds"]["CPU one"]
    assert meta["mapped_share"] >= 0.95
    if meta["foreign_load"] < 0.1:
        assert 0.6 < meta["sum_of_op_times_s"] / meta["model_latency_s"] < 1.2
    assert 20 < costs.provenance["num_groups"] < source.graph.num_ops


def test_a_graph_that_is_read_otherwise_is_another_measurement(source: ModelSource) -> None:
    """Times are kept by the number of an op, so a reader that finds the ops in another order must not reuse them."""
    kept = ProfileCache.key(QUICK._key_parts(source, CPU))
    assert ProfileCache.key(QUICK._key_parts(replace(source, path=Path("moved.xml")), CPU)) == kept
    names = (*source.graph.op_names[1:], source.graph.op_names[0])
    other = replace(source, graph=source.graph.replace(op_names=names))
    assert ProfileCache.key(QUICK._key_parts(other, CPU)) != kept
