"""A placement timed on several machines: stages of OpenVINO on workers, tensors between them by the cluster's engine.

1. Every stage travels as a bundle of its own to the worker of its device's node, which compiles it.
2. A sample is a chain of tasks. Tensors go from worker to worker; the inputs of the model are where its stages are.
3. Samples alone give the latency; a stream, with a few samples under way for each device, the throughput.
4. The same chain of tasks that do nothing says how much of both is the engine's.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from placekit.cluster.engine import Cluster, ClusterError, Worker
from placekit.cluster.nodes import PACKAGES, nodes_of
from placekit.cost_models.base import Progress, report
from placekit.cost_models.measured.stage_costs import predict, stage_costs
from placekit.io.models.model import ModelSource
from placekit.model.errors import PlacekitError, UnsupportedProblemError
from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.objectives import Makespan, Throughput
from placekit.runtime.bundles.bundle import read_bundle, write_bundle
from placekit.runtime.stages.openvino_tensors import array_of, run_once
from placekit.runtime.stages.plans import compile_plan, engine_named, plan_stages
from placekit.runtime.stages.stage_plan import PlacedStage, ReadyPlan, Stage, StagePlan
from placekit.runtime.tensor_checks import OutputCheck, TensorCheck
from placekit.runtime.timing.compare import PLACEMENT, PlacementTiming
from placekit.runtime.timing.contenders import singles
from placekit.runtime.timing.measurements import Measurements, Timings
from placekit.runtime.timing.timed_process import Burst
from placekit.runtime.timing.timing import TimingSettings

EMPTY = "empty stages"
"""Contender whose tasks do nothing: what the engine takes by itself."""
_UNDER_WAY = 3
"""Samples of a stream that are under way for each device."""


def time_on_cluster(
    cluster: Cluster,
    source: ModelSource,
    problem: Problem,
    placement: Placement,
    settings: TimingSettings,
    progress: Progress | None = None,
) -> tuple[PlacementTiming, OutputCheck]:
    """Time a placement on the workers of its nodes against every device alone, and compare its outputs.

    Raises
    ------
    UnsupportedProblemError
        A team of several devices, or a model that OpenVINO does not run.
    ClusterError
        A node without a worker, one with fewer threads than devices, or one whose worker left.
    OutputMismatchError
        An output differs from that of the whole model on the CPU of this machine.
    """
    if "openvino" not in source.exports:
        raise UnsupportedProblemError(
            f"--cluster times stages of OpenVINO; for {source.path.name} export --to torch-pipeline, and start its "
            "run.py by torchrun"
        )
    platform = problem.platform
    workers = cluster.by_node(nodes_of(platform))
    for node, worker in workers.items():
        devices = sum(device.node == node for device in platform.devices)
        if worker.threads < devices:
            raise ClusterError(
                f"worker {worker.name!r} has {worker.threads} threads for {devices} devices; start it with "
                f"--nthreads {devices}"
            )
    cluster.require_same_versions(PACKAGES)
    alone = singles(source.graph, platform, "threads")
    plans = {name: plan_stages(source, each, platform) for name, each in
             {PLACEMENT: placement, **{each.name: each.placement for each in alone}}.items()}  # fmt: skip
    for plan in plans.values():
        plan.require_no_teams("a cluster runs every stage on one device")
    with ExitStack() as stack:
        chains = {name: stack.enter_context(_chain(cluster, plan, workers, settings)) for name, plan in plans.items()}
        checked = _checked(chains[PLACEMENT], settings)
        chains[EMPTY] = replace(chains[PLACEMENT], is_empty=True)
        timings = _rounds(chains, settings, progress)
    timings = _with_stage_times(timings, chains[PLACEMENT].busy_s)
    stages = stage_costs(problem, placement)
    device_of_op = placement.device_of_op
    latency_s, period_s = (
        kind.score(problem.replace(objective=kind), device_of_op).objective_s for kind in (Makespan(), Throughput())
    )
    return PlacementTiming(
        timings=timings,
        executor="threads",
        singles=dict(zip(platform.device_names, (each.name for each in alone), strict=True)),
        runtime=(),
        stages=stages,
        # links between nodes count in the objectives only
        prediction=replace(
            predict(problem, placement, is_serial=False), latency_s=latency_s, throughput_per_s=1 / period_s
        ),
        placement=placement,
        team_names=tuple((stage.device.name,) for stage in plans[PLACEMENT].stages),
    ), checked


@dataclass(frozen=True)
class _Chain:
    """Stages on workers, and how they are wired: where each input comes from, by stage (-1 for the model) and place."""

    cluster: Cluster
    plan: StagePlan
    keys: tuple[str, ...]  # of the stages in the workers
    workers: tuple[Worker, ...]
    wiring: tuple[tuple[tuple[int, int], ...], ...]
    is_empty: bool = False
    busy_s: list[NDArray[np.float64]] = field(default_factory=list)  # of every stage, at the end

    def start(self) -> list[Any]:
        """Start a sample; return the futures of all stages."""
        made: list[Any] = []
        for key, worker, wires in zip(self.keys, self.workers, self.wiring, strict=True):
            sources = sorted({stage for stage, _ in wires if stage >= 0})
            local = [(sources.index(stage) if stage >= 0 else -1, place) for stage, place in wires]
            function = _nothing if self.is_empty else _run
            made.append(self.cluster.submit(function, key, local, *(made[each] for each in sources), worker=worker))
        return made

    def ends(self, futures: Sequence[Any]) -> list[Any]:
        """Return the futures that no other stage waits for."""
        read = {stage for wires in self.wiring for stage, _ in wires}
        return [future for at, future in enumerate(futures) if at not in read]

    def latency_s(self, duration_s: float, timeout_s: float) -> NDArray[np.float64]:
        """Return the seconds of samples one after another; at least three."""
        found: list[float] = []
        while sum(found) < duration_s or len(found) < 3:
            begin = time.perf_counter()
            futures = self.start()
            self.cluster.wait(self.ends(futures), timeout_s)
            found.append(time.perf_counter() - begin)
        return np.array(found)

    def rate(self, duration_s: float, timeout_s: float) -> float:
        """Return the samples per second of a stream."""
        most = _UNDER_WAY * len(self.plan.devices)
        under_way = [self.start() for _ in range(most)]
        ended_s: list[float] = []
        while not ended_s or ended_s[-1] - ended_s[0] < duration_s or len(ended_s) < most + 3:
            self.cluster.wait(self.ends(under_way.pop(0)), timeout_s)
            ended_s.append(time.perf_counter())
            under_way.append(self.start())
        for futures in under_way:
            self.cluster.wait(self.ends(futures), timeout_s)
        return (len(ended_s) - 1) / (ended_s[-1] - ended_s[0])


@contextmanager
def _chain(
    cluster: Cluster, plan: StagePlan, workers: Mapping[str, Worker], settings: TimingSettings
) -> Iterator[_Chain]:
    """Load the stages of a plan on their workers inside the block."""
    maker = {key: (at, place) for at, stage in enumerate(plan.stages) for place, key in enumerate(stage.outputs)}
    of_model = {key: (-1, place) for place, key in enumerate(plan.input_keys)}
    inputs = [array_of(tensor) for tensor in engine_named(plan.engine).random_inputs(plan, settings.seed)]
    chain = _Chain(
        cluster,
        plan,
        tuple(f"{uuid4().hex}-{stage.name}" for stage in plan.stages),
        tuple(workers[str(stage.device.node)] for stage in plan.stages),
        tuple(tuple(maker.get(key) or of_model[key] for key in stage.inputs) for stage in plan.stages),
    )
    try:
        loads = [
            cluster.submit(_load, key, stage.device.name, _files(plan, stage), inputs, worker=worker)
            for key, stage, worker in zip(chain.keys, plan.stages, chain.workers, strict=True)
        ]
        cluster.wait(loads, settings.timeout_s)
        yield chain
        told = [cluster.submit(_busy_s, key, worker=w) for key, w in zip(chain.keys, chain.workers, strict=True)]
        chain.busy_s.extend(cluster.values(told, settings.timeout_s))
    finally:
        for key, worker in zip(chain.keys, chain.workers, strict=True):
            cluster.forget(_drop, key, worker=worker)


def _files(plan: StagePlan, stage: PlacedStage) -> dict[str, bytes]:
    """Return a bundle of one stage by the names of its files."""
    names = [f"input{at}" for at in range(len(stage.inputs))], [f"output{at}" for at in range(len(stage.outputs))]
    alone = replace(
        plan, model=stage.model, stages=(stage,), input_keys=stage.inputs, output_keys=stage.outputs,
        input_names=tuple(names[0]), output_names=tuple(names[1]), cuts=(),
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="placekit-") as folder:
        write_bundle(alone, Path(folder) / "bundle")
        return {path.name: path.read_bytes() for path in (Path(folder) / "bundle").iterdir()}


def _checked(chain: _Chain, settings: TimingSettings) -> OutputCheck:
    """Compare the outputs of one sample with those of the whole model on this machine."""
    plan = chain.plan
    inputs = engine_named(plan.engine).random_inputs(plan, settings.seed)
    expected = run_once(plan.model, inputs)
    found = chain.cluster.values(chain.start(), settings.timeout_s)
    made = {key: array for stage, arrays in zip(plan.stages, found, strict=True)
            for key, array in zip(stage.outputs, arrays, strict=True)}  # fmt: skip
    hints = {stage.device.properties.get("INFERENCE_PRECISION_HINT", "f32") for stage in plan.stages}
    precision = next((each for each in ("bf16", "f16") if each in hints), "f32")
    outputs = [
        TensorCheck.compared(name, "", true, np.asarray(made[key]).reshape(true.shape), precision)
        for name, key, true in zip(plan.output_names, plan.output_keys, expected, strict=True)
        if key in made  # an input that is an output passes no stage
    ]
    check = OutputCheck("the CPU of this machine", precision, (), tuple(outputs))
    check.require_equal()
    return check


def _rounds(chains: Mapping[str, _Chain], settings: TimingSettings, progress: Progress | None) -> Timings:
    """Let every chain run its bursts in turns; what other programs do on the workers is not watched."""
    series = {name: Measurements(name) for name in chains}
    begin = time.perf_counter()
    for chain in chains.values():
        chain.latency_s(settings.warm_up_s, settings.timeout_s)
    for number in range(settings.rounds):
        if number >= 3 and time.perf_counter() - begin > settings.time_limit_s:
            break
        for name, chain in [*chains.items()][:: -1 if number % 2 else 1]:
            alone_s = chain.latency_s(settings.latency_s, settings.timeout_s)
            rate = chain.rate(settings.throughput_s, settings.timeout_s)
            bursts = {"latency": Burst(alone_s, 1 / float(alone_s.mean())), "throughput": Burst(np.zeros(0), rate)}
            series[name] = series[name].with_round(number, bursts, 0.0)
        report(progress, number + 1, settings.rounds, "rounds")
    return Timings(tuple(series.values()), settings.max_foreign_load, time.perf_counter() - begin)


def _with_stage_times(timings: Timings, busy_s: Sequence[NDArray[np.float64]]) -> Timings:
    """Return the timings with the seconds that the stages of the placement worked on the last samples."""
    count = min(map(len, busy_s), default=0)
    ends = np.stack([each[len(each) - count :] for each in busy_s], axis=1) if count else np.zeros((0, len(busy_s)))
    times_s = np.stack([np.zeros_like(ends), ends], axis=2)
    first = replace(timings.series[0], stage_times_s=times_s, stage_members=np.zeros(ends.shape, dtype=np.int64))
    return replace(timings, series=(first, *timings.series[1:]))


@dataclass
class _Loaded:
    """Stage in a worker."""

    ready: ReadyPlan
    stage: Stage
    inputs: list[NDArray[Any]]  # of the model
    lock: Lock  # of its device, which runs one sample at a time
    helpers: ExitStack
    busy_s: list[float] = field(default_factory=list)


_LOADED: dict[str, _Loaded] = {}
_LOCKS: dict[str, Lock] = {}


def _load(key: str, device: str, files: Mapping[str, bytes], inputs: list[NDArray[Any]]) -> None:
    try:
        with tempfile.TemporaryDirectory(prefix="placekit-") as folder:
            for name, content in files.items():
                (Path(folder) / name).write_bytes(content)
            ready = compile_plan(read_bundle(folder)[0])
    except PlacekitError as error:
        raise ClusterError(f"device {device!r}: {error}") from None
    helpers = ExitStack()
    helpers.enter_context(ready.helpers())
    _LOADED[key] = _Loaded(ready, ready.open()[0][0], inputs, _LOCKS.setdefault(device, Lock()), helpers)


def _run(key: str, wires: Sequence[tuple[int, int]], *sources: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Run a stage for one sample; an input is an output of a source, or of the model (-1)."""
    each = _LOADED[key]
    given = [each.inputs[place] if source < 0 else sources[source][place] for source, place in wires]
    tensors = each.ready.read([np.require(array, requirements=["C", "W"]) for array in given])
    plan = each.ready.plan
    with each.lock, each.ready.at_home(plan.stages[0].device):
        begin = time.perf_counter()
        made = each.stage.run(tensors, [None] * len(plan.output_keys))
        each.busy_s.append(time.perf_counter() - begin)
    return [np.array(each.ready.view(tensor)) for tensor in made]


def _nothing(key: str, wires: Sequence[tuple[int, int]], *sources: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Take the place of a stage, and of its outputs."""
    del key, wires, sources
    return []


def _busy_s(key: str) -> NDArray[np.float64]:
    return np.array(_LOADED[key].busy_s[-1000:])


def _drop(key: str) -> None:
    loaded = _LOADED.pop(key, None)
    if loaded is not None:
        loaded.helpers.close()
