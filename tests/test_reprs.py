"""Representations of public classes are short, also of large problems."""

from __future__ import annotations

import inspect
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import placekit as pk

pytestmark = pytest.mark.xdist_group("reprs")  # one process makes the values, once

NUM_OPS, NUM_GPUS = 200, 40
LONGEST = 350
"""Characters."""
WITHOUT_VALUES = {"Method", "Objective", "Run", "PlacekitError", "Answer", "Runtime", "ServingReport"}
"""Bases, a run, which only methods see, and records of language models, of which notebooks show parts."""


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Return a large value of every public class by the name of the class."""
    names = [f"model.layers.{number}.block_sparse_moe" for number in range(NUM_OPS)]
    graph = pk.OpGraph.from_edges(names, list(pairwise(names)))
    devices = [pk.Device("CPU", "cpu", is_host=True, cores=tuple(range(128)))]
    devices += [pk.Device(f"GPU.{number}", f"kind {number}", memory_bytes=1e9) for number in range(NUM_GPUS)]
    link = pk.Link(1e-5, 1e9)
    platform = pk.Platform(tuple(devices), {device.kind: link for device in devices[1:]})
    shape = (NUM_OPS, len(devices))
    costs = pk.CostTable(platform.kinds, np.full(shape, 1e-3), np.zeros((NUM_OPS - 1, shape[1])), np.ones(NUM_OPS))
    problem = pk.Problem(graph, platform, costs, objective=pk.Makespan())
    placement = pk.Placement.of(problem, np.arange(NUM_OPS) % len(devices))
    evaluation = pk.evaluate(problem, placement)
    result = pk.solve(problem, "round-robin", stop=pk.MaxIterations(1))
    assert evaluation.score is not None
    made: list[object] = [
        graph, *devices[:1], link, platform, costs, problem, placement, evaluation, evaluation.score, result,
        evaluation.score.schedule, pk.explain(problem, result, time_limit_s=0), pk.verify(result, problem, max_steps=0),
        pk.Model(), pk.verdict(problem, result),
        pk.DirectLink(1e-5, 1e9), pk.Analytic({device.kind: "npu" for device in devices[1:]}), pk.Profiled(),
        pk.Makespan(), pk.OffloadLatency(), pk.SerialLatency(), pk.Throughput(), pk.Contiguity.NONE, pk.Status.OPTIMAL,
        pk.StopReason.TIME, pk.MaxIterations(1), pk.MaxMemory(1e9), pk.MaxRuntime(1), pk.NoImprovement(1),
        pk.TargetGap(0.1), pk.Timing(pk.TimingSettings()), pk.TimingSettings(), pk.Violation("memory", "GPU is full"),
        pk.Loads(is_total=True, has_passes=False), pk.Serving(), pk.Decoder(2, 256, 512, 1000),
        pk.Pool("ram", 32e9, tuple(f"GPU.{number}" for number in range(NUM_GPUS))),
        pk.MemoryBlocks.of([(1e6, True, range(NUM_OPS))]), pk.Search(), pk.Wishes(), pk.TaskForm(pk.SerialLatency()),
        pk.ModelSource(graph, np.arange(NUM_OPS), Path("model.xml"), "0" * 32, 300, 400, ()),
    ]  # fmt: skip
    path = tmp_path_factory.mktemp("reprs") / "placement.json"
    pk.write_placement(placement, path, problem=problem)
    made.append(pk.read_placement(path))
    return {type(each).__name__: each for each in made}


PUBLIC = [name for name in pk.__all__ if inspect.isclass(getattr(pk, name)) and name not in WITHOUT_VALUES]


@pytest.mark.parametrize("name", [*PUBLIC, "Verification", "PlacementFile"])
def test_representation_is_short(examples: dict[str, object], name: str) -> None:
    """One line, whatever the size of the problem, and it names the class."""
    told = repr(examples[name])
    assert len(told) <= LONGEST, told[:1000]
    assert "\n" not in told
    assert name in told


@pytest.mark.parametrize("name", ["Evaluation", "Schedule", "Platform", "Placement"])
def test_printed_value_is_short(examples: dict[str, object], name: str) -> None:
    """What `print` shows is the representation, with sizes in the place of arrays."""
    assert str(examples[name]) == repr(examples[name])


def test_representation_of_an_evaluation_has_its_objective(examples: dict[str, object]) -> None:
    """What is short is shown as it is."""
    evaluation = examples["Evaluation"]
    assert isinstance(evaluation, pk.Evaluation)
    assert f"objective={evaluation.objective}" in repr(evaluation)
    assert "device_loads=<41 entries>" in repr(evaluation)
