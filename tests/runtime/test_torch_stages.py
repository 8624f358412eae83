"""PyTorch placements cut, run in every way, and checked."""

from __future__ import annotations

import threading
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

import placekit as pk
from placekit.model.costs import CostTable
from placekit.model.errors import (
    ExecutionError,
    InvalidProblemError,
    OutputMismatchError,
    UnsupportedProblemError,
)
from placekit.model.placement import Placement
from placekit.model.platform import Device, Platform
from placekit.model.problem import Problem
from placekit.pytorch.module import random_inputs
from placekit.pytorch.source import TorchSource, read_torch
from placekit.runtime.output_check import require_equal_outputs
from placekit.runtime.pipelines.pipeline import Pipeline
from placekit.runtime.stages.plans import compile_plan, plan_stages
from placekit.runtime.stages.stage_plan import StagePlan
from placekit.runtime.timing.baselines import equal_shares, layers_of, random_cuts, torch_baselines
from placekit.runtime.timing.contenders import PlacedContender, on_one_device
from placekit.runtime.timing.timing import Timing, TimingSettings

torch = pytest.importorskip("torch")
nn = torch.nn

import torch_modules as modules  # noqa: E402  # torch is there

NAMES = ("tied", "convolutional", "recurrent", "views")


def platform(count: int = 2) -> Platform:
    """Return CPUs that share all cores, so that the tests run on any machine."""
    return Platform(tuple(Device(f"cpu{i}", "cpu", is_host=True, openvino="CPU") for i in range(count)))


def source_of(name: str) -> TorchSource:
    """Return the program of one of the shared modules."""
    module, args = modules.examples()[name]
    return read_torch(module, args, name=name)


def problem_of(source: TorchSource, count: int = 2) -> Problem:
    """Return its problem, at a second for every op."""
    time_s = np.ones((source.graph.num_ops, 1))
    memory = source.graph.op_weight_bytes
    costs = CostTable(("cpu",), time_s, np.zeros((source.graph.num_tensors, 1)), memory)
    return source.problem(platform(count), costs)


def placed(source: TorchSource, device_of_op: Any, count: int = 2, teams: Any = None) -> StagePlan:
    """Return the stages of a placement; ops that need the same memory go where the last of them is."""
    labels, device = source.colocation, np.asarray(device_of_op, dtype=np.int64)
    device = device[[np.flatnonzero(labels == label)[-1] for label in labels]]
    names = platform(count).device_names
    team = None if teams is None else np.asarray(teams)
    return plan_stages(source, Placement(source.graph.op_names, names, device, team_of_device=team), platform(count))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", [0, 1])
def test_any_placement_gives_what_the_whole_gives(name: str, seed: int) -> None:
    """At every tensor between stages, and at the outputs of the pipeline."""
    source = source_of(name)
    drawn = np.random.default_rng(seed).integers(0, 3, source.graph.num_ops)
    plan = placed(source, drawn, 3)
    checked = require_equal_outputs(compile_plan(plan), "threads", seed=seed)
    assert checked.max_relative_error <= 1e-5
    assert len(checked.cuts) >= len(plan.cuts) > 0


def test_an_op_that_fails_inside_a_check_is_one_line() -> None:
    """The whole program runs first, so that a stage is not blamed for what every placement would do."""

    class Failing(nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            return torch.linalg.cholesky(-torch.ones(2, 2) + 0 * x)

    source = read_torch(Failing(), (torch.zeros(2, 2),))
    with pytest.raises(ExecutionError, match=r"^model 'Failing' does not run on cpu: linalg\.cholesky: .*$") as caught:
        require_equal_outputs(compile_plan(placed(source, np.zeros(source.graph.num_ops))), "threads")
    assert "\n" not in str(caught.value)


def test_memory_that_is_changed_is_in_one_stage() -> None:
    """Cut after its last reader, the parts give the whole; torn apart, the placement is refused."""
    source = source_of("changing")
    graph = source.graph
    rank = np.argsort(graph.order)
    for cut in range(1, graph.num_ops):
        device = (rank >= cut).astype(np.int64)
        groups = [set(device[source.colocation == label].tolist()) for label in set(source.colocation.tolist())]
        placement = Placement(graph.op_names, platform().device_names, device)
        if all(len(each) == 1 for each in groups):
            require_equal_outputs(compile_plan(plan_stages(source, placement, platform())), "threads")
        else:
            with pytest.raises(UnsupportedProblemError, match="work on the same memory"):
                plan_stages(source, placement, platform())


def test_results_come_in_order_and_inputs_stay_the_callers() -> None:
    """Many samples under way, each of another number; an input may be overwritten once it is submitted."""
    source = source_of("perceptron")
    plan = placed(source, [0, 0, 0, 1, 1, 1][: source.graph.num_ops])
    whole = source.builder().whole()
    with Pipeline(compile_plan(plan), record=4) as pipe:
        x = np.zeros((5, 8), dtype=np.float32)
        futures = []
        for number in range(20):
            x[...] = number
            futures.append(pipe.submit([x]))
        for number, future in enumerate(futures):
            (expected,) = whole(torch.full((5, 8), float(number)))
            (found,) = future.result().values()
            np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5)
        assert pipe.stage_times_s.shape == (4, len(plan.stages), 2)
        named = pipe({plan.input_names[0]: x})
        assert list(named) == list(plan.output_names)
    assert not [each for each in threading.enumerate() if each.name.startswith("placekit")]


def test_members_of_a_team_share_the_samples() -> None:
    """Results stay in order, and both work."""
    source = source_of("tied")
    half = source.graph.num_ops // 2
    plan = placed(source, [0] * half + [1] * (source.graph.num_ops - half), 3, [0, 1, 0])
    require_equal_outputs(compile_plan(plan), "threads")
    inputs = [random_inputs(plan.model.lowered.program, seed) for seed in range(12)]
    whole = source.builder().whole()
    with Pipeline(compile_plan(plan), record=12) as pipe:
        for sample, found in zip(inputs, pipe.stream(inputs), strict=True):
            np.testing.assert_allclose(found["linear_8"], whole(*sample)[0].numpy(), rtol=1e-4, atol=1e-5)
        assert set(pipe.stage_members[:, 0].tolist()) <= {0, 1}


def test_a_failing_stage_is_named() -> None:
    """All futures say which stage and device, and what torch said."""

    class Picking(nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any, at: Any) -> Any:
            return torch.relu(x)[at]

    source = read_torch(Picking(), (torch.zeros(4, 2), torch.zeros(1, dtype=torch.long)))
    plan = placed(source, [0, 0, 0, 1, 1])
    with Pipeline(compile_plan(plan)) as pipe:
        good = pipe([torch.zeros(4, 2), torch.ones(1, dtype=torch.long)])
        assert next(iter(good.values())).shape == (1, 2)
        with pytest.raises(ExecutionError, match=r"stage '1:cpu1' failed on device 'cpu1': index 9 is out of bounds"):
            pipe([torch.zeros(4, 2), torch.full((1,), 9)])
        with pytest.raises(ExecutionError, match="1:cpu1"):
            pipe.submit([torch.zeros(4, 2), torch.ones(1, dtype=torch.long)])


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ([np.zeros((5, 9), np.float32)], r"shape \[5, 9\]; it must have type float32 and shape \[5, 8\]"),
        ([np.zeros((5, 8))], "type float64"),
        ([], "0 inputs given, it has 1: input"),
        ({"y": 1}, "no input 'y'; inputs are input"),
        ({}, "input 'input' is missing"),
        ([np.array("a")], "input 'input': "),
    ],
)
def test_wrong_inputs_are_told(inputs: Any, says: str) -> None:
    """With the name of the input."""
    source = source_of("perceptron")
    with (
        Pipeline(compile_plan(placed(source, np.zeros(source.graph.num_ops)))) as pipe,
        pytest.raises(InvalidProblemError, match=says),
    ):
        pipe.submit(inputs)


def test_wrong_outputs_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight of one stage that is another than the whole program's."""
    source = source_of("perceptron")
    plan = placed(source, [0, 0, 0, 1, 1, 1][: source.graph.num_ops])
    built = plan.model.builder.part

    def corrupt(ops: Any, *args: Any) -> Any:
        part = built(ops, *args)
        if len(ops) < source.graph.num_ops:
            part = deepcopy(part)  # the whole program has the same weights
            for each in part.buffers():
                each.mul_(1.01)
        return part

    monkeypatch.setattr(plan.model.builder, "part", corrupt)
    with pytest.raises(OutputMismatchError, match=r"tensor '\w+:?\w*' of stage '0:cpu0' differs"):
        require_equal_outputs(compile_plan(plan), "threads")


def test_state_and_shared_memory_have_one_place() -> None:
    """A buffer on a team, and ops of one memory in two stages, are refused."""
    source = source_of("counter")
    with pytest.raises(UnsupportedProblemError, match=r"changes its buffer 'calls', and team 'cpu0\+cpu1'"):
        placed(source, np.zeros(source.graph.num_ops), 2, [0, 0])
    module, args = modules.examples()["counter"]
    assigning = read_torch(torch.export.export(module, args).run_decompositions({}), name="counter")
    graph = assigning.graph
    apart = np.zeros(graph.num_ops, dtype=np.int64)
    apart[graph.op_index["calls.assign"]] = 1
    with pytest.raises(UnsupportedProblemError, match=r"'add' and 'calls\.assign' of model 'counter' work on the same"):
        plan_stages(assigning, Placement(graph.op_names, platform().device_names, apart), platform())
    whole = placed(assigning, apart)  # which puts them together, on the other device
    x = torch.ones(3, 4)
    with Pipeline(compile_plan(whole)) as pipe:
        (first,), (second,) = (list(pipe([x]).values()) for _ in range(2))
    np.testing.assert_allclose(second, 2 * first, rtol=1e-6)


def test_layers_are_divided_equally() -> None:
    """By number and by bytes; whatever the model, no op is before what it reads."""
    source = source_of("tied")
    problem = problem_of(source)
    layer = layers_of(source.module_of_op)
    by_layers = equal_shares(source, problem, "layers")
    devices = {
        name: {by_layers[op] for op, each in zip(source.graph.op_names, layer, strict=True) if each == name}
        for name in ("embedding", "layers.0", "layers.1", "head")
    }
    assert devices == {"embedding": {"cpu0"}, "layers.0": {"cpu0"}, "layers.1": {"cpu1"}, "head": {"cpu1"}}
    for each in (by_layers, equal_shares(source, problem, "bytes"), *random_cuts(source, problem, 3)):
        device = each.device_of_op
        assert (device[source.graph.senders] <= device[source.graph.receivers]).all()
        assert pk.evaluate(problem, each).is_feasible
    assert len({tuple(each.device_of_op) for each in random_cuts(source, problem, 3)}) > 10


@pytest.mark.slow
def test_placements_are_timed_against_what_needs_no_plan() -> None:
    """In processes of their own; the ways that need no plan are all there."""
    source = source_of("tied")
    problem = problem_of(source)
    others = torch_baselines(source, problem, "threads")
    assert [each.name for each in others] == ["equal layers", "equal bytes", "random cuts"]  # no cores of their own
    contenders = [
        others[2],
        PlacedContender("serial", on_one_device(source.graph, problem.platform, 0), problem.platform, "serial"),
    ]
    settings = TimingSettings(
        rounds=3, max_rounds=3, warm_up_s=0.0, latency_s=0.01, throughput_s=0.02, max_foreign_load=1.0
    )
    timings = Timing(settings, cache=None).measure(source, contenders)
    assert [each.name for each in timings.series] == ["random cuts", "serial"]
    for series in timings.series:
        assert series.error is None
        assert series.throughput is not None
        assert series.throughput.median > 0
    assert timings["random cuts"].stage_times_s.shape[1] == 2
