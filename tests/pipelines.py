"""What the tests of pipelines share: plans whose results are known, and ways to look at threads."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray
from openvino import opset13 as opset

from placekit.cost_models.openvino.devices import shared_core
from placekit.io.models.model import ModelSource
from placekit.model.placement import Placement
from placekit.model.platform import Device, Platform
from placekit.runtime.pipelines.pipeline import Pipeline
from placekit.runtime.stages.plans import compile_plan, plan_stages
from placekit.runtime.stages.stage_plan import StagePlan

F32 = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "1"}


def start_threads(plan: StagePlan, **options: Any) -> Pipeline:
    """Compile a plan and start a pipeline of threads."""
    return Pipeline(compile_plan(plan), **options)


def virtual_platform(count: int = 2) -> Platform:
    """Return CPUs that share all cores, so that the tests run on any machine."""
    return Platform(tuple(Device(f"cpu{i}", "cpu", is_host=True, openvino="CPU", properties=F32) for i in range(count)))


def placed_plan(
    source: ModelSource,
    device_of_op: Sequence[int] | NDArray[np.int64],
    devices: int = 2,
    teams: Sequence[int] | None = None,
) -> StagePlan:
    """Return the stages of a placement on the virtual platform; `teams` has the first member of every device's team."""
    platform = virtual_platform(devices)
    placement = Placement(
        source.graph.op_names,
        platform.device_names,
        np.asarray(device_of_op, dtype=np.int64),
        team_of_device=None if teams is None else np.asarray(teams),
    )
    return plan_stages(source, placement, platform)


def random_plan(source: ModelSource, seed: int, devices: int = 2) -> StagePlan:
    """Place every op at random."""
    return placed_plan(source, np.random.default_rng(seed).integers(0, devices, source.graph.num_ops), devices)


def chain(dims: Sequence[int | str], num_ops: int = 4) -> ov.Model:
    """Return ``x -> op0 -> op1 -> ...``, alternately ``+ 1`` and ``* 2``."""
    node = parameter = opset.parameter(ov.PartialShape(list(dims)), ov.Type.f32, name="x")
    for index in range(num_ops):
        make, value = (opset.add, 1.0) if index % 2 == 0 else (opset.multiply, 2.0)
        node = make(node, opset.constant(value, ov.Type.f32), name=f"op{index}")
    node.output(0).set_names({"y"})
    return ov.Model([opset.result(node)], [parameter], "chain")


def chain_value(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Compute what a chain of four ops computes."""
    return ((x + 1) * 2 + 1) * 2


def alternating_plan(source: ModelSource, devices: int = 2) -> StagePlan:
    """Give the ops ``op0, op1, ...`` to the devices in turn, so that every op of a chain is a stage."""
    names = source.graph.op_names
    drawn = [int(name.removeprefix("op")) % devices if name.startswith("op") else 0 for name in names]
    return placed_plan(source, drawn, devices)


def team_plan(source: ModelSource) -> StagePlan:
    """Give the ops of a chain in turn to a team of two, ``cpu0+cpu2``, and to ``cpu1``."""
    names = source.graph.op_names
    drawn = [int(name.removeprefix("op")) % 2 if name.startswith("op") else 0 for name in names]
    return placed_plan(source, drawn, 3, [0, 1, 0])


def corrupt_stage(plan: StagePlan, stage: int, by: float = 0.1) -> StagePlan:
    """Return the plan with a stage of which one f32 output is ``(1 + by) * value + by``.

    Both, because adding alone vanishes in a tensor of large numbers, and scaling alone in one of zeros.

    Raises
    ------
    StopIteration
        The stage has none.
    """
    model = plan.stages[stage].model.clone()
    result = next(each for each in model.get_results() if each.get_output_element_type(0) == ov.Type.f32)
    scaled = opset.multiply(result.input_value(0), opset.constant(np.float32(1 + by)))
    wrong = opset.add(scaled, opset.constant(np.float32(by)))
    result.input(0).replace_source_output(wrong.output(0))
    stages = list(plan.stages)
    stages[stage] = replace(stages[stage], model=model)
    return replace(plan, stages=tuple(stages))


SLOW_INPUT = np.ones((256, 256), dtype=np.float32)
"""An input of `slow_model`."""


def slow_model() -> ov.Model:
    """Return a quick op ``op0`` before forty matrix products, which take some milliseconds."""
    rng = np.random.default_rng(0)
    x = opset.parameter([256, 256], ov.Type.f32, name="x")
    node: Any = opset.relu(x, name="op0")
    for _ in range(40):
        weight = opset.constant(rng.standard_normal((256, 256)).astype(np.float32) / 16)
        node = opset.matmul(node, weight, False, False)
    node = opset.tanh(node, name="op1")
    node.output(0).set_names({"y"})
    return ov.Model([opset.result(node)], [x], "slow")


@contextmanager
def pinned_model_ended() -> Iterator[None]:
    """Let the next model of one thread get, inside the block, what a pinned model ran on that has ended."""
    pinned = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1", "INFERENCE_NUM_THREADS": "1"}
    others: list[ov.CompiledModel] = []  # what OpenVINO would hand on before is kept busy
    while True:
        compiled = shared_core().compile_model(slow_model(), "CPU", {**pinned, "ENABLE_CPU_PINNING": True})
        with ThreadPoolExecutor(1) as thread:
            thread.submit(compiled, [SLOW_INPUT]).result()  # for the first time in a thread that is bound to nothing
        with ThreadPoolExecutor(1) as thread:
            if thread.submit(_is_moved_by, compiled).result():
                break
        others.append(compiled)
    del compiled
    yield
    others.clear()


def _is_moved_by(compiled: ov.CompiledModel) -> bool:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    bound = os.sched_getaffinity(0)
    compiled([SLOW_INPUT])
    return os.sched_getaffinity(0) != bound


def make_slow_plan(source: ModelSource) -> StagePlan:
    """Cut the slow model behind its quick op."""
    return placed_plan(source, [0 if name == "op0" else 1 for name in source.graph.op_names])


def whole(model: ov.Model, inputs: Sequence[Any]) -> list[NDArray[Any]]:
    """Run the model in one piece."""
    compiled = shared_core().compile_model(model, "CPU", F32)
    return [np.array(value) for value in compiled(list(inputs)).values()]


def num_own_threads() -> int:
    """Count the threads of pipelines."""
    return sum(thread.name.startswith("placekit-") for thread in threading.enumerate())


def is_alive(process: int) -> bool:
    """Whether a process runs; one that has ended and waits to be collected does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_until(is_so: Callable[[], bool], limit_s: float = 10.0) -> bool:
    """Wait for a condition, and return whether it came true."""
    end = time.perf_counter() + limit_s
    while time.perf_counter() < end and not is_so():
        time.sleep(0.01)
    return is_so()
