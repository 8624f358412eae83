"""What is special about pipelines of processes: a death is noticed and named, and nothing is left behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
from limits import SOON_S
from numpy.typing import NDArray
from pipelines import F32, alternating_plan, chain, is_alive, make_slow_plan, slow_model, wait_until

from placekit.cost_models.openvino import pipeline_processes
from placekit.cost_models.openvino.devices import core_groups
from placekit.cost_models.openvino.pipeline_processes import ProcessPipeline
from placekit.cost_models.openvino.stages import StagePlan, plan_stages
from placekit.io.model import ModelSource
from placekit.model.errors import ExecutionError, UnsupportedProblemError
from placekit.model.placement import Placement


@pytest.fixture
def slow_plan(saved: Callable[[ov.Model], ModelSource]) -> StagePlan:
    """Return two stages of which the second works for some milliseconds."""
    return make_slow_plan(saved(slow_model()))


def test_processes_refuse_dynamic_shapes(saved: Callable[[ov.Model], ModelSource]) -> None:
    """Shared memory needs sizes: the tensor is named, and threads are recommended."""
    with pytest.raises(UnsupportedProblemError, match=r"tensor 'x' has the dynamic shape .* use threads"):
        ProcessPipeline(alternating_plan(saved(chain(["?", 8]))))


@pytest.mark.parametrize(("victim", "how"), [(0, signal.SIGKILL), (1, signal.SIGSEGV)])
def test_a_killed_worker_is_noticed(slow_plan: StagePlan, victim: int, how: signal.Signals) -> None:
    """Every future ends with device, process and signal, or with a right result; no process stays."""
    x = np.ones((256, 256), dtype=np.float32)
    with ProcessPipeline(slow_plan) as pipe:
        expected = pipe([x])["y"]
        processes = [process.pid for process in pipe._processes]
        futures = [pipe.submit([x]) for _ in range(4)]
        start = time.perf_counter()
        os.kill(processes[victim], how)
        message = rf"device 'cpu{victim}' \(process {processes[victim]}\) was killed by {how.name} while"
        with pytest.raises(ExecutionError, match=message):
            list(pipe.stream([x] for _ in range(1000)))
        assert time.perf_counter() - start < SOON_S
        for future in futures:
            if future.exception(1) is None:
                np.testing.assert_array_equal(future.result()["y"], expected)
    assert not any(is_alive(process) for process in processes)


def test_a_worker_that_hangs_is_ended_by_close(slow_plan: StagePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Close gives a worker that does not answer a while, then kills it; no future stays open."""
    monkeypatch.setattr(pipeline_processes, "_EXIT_WAIT_S", 0.3)
    with ProcessPipeline(slow_plan) as pipe:
        processes = [process.pid for process in pipe._processes]
        os.kill(processes[1], signal.SIGSTOP)
        future = pipe.submit([np.ones((256, 256), dtype=np.float32)])
        pipe.close(cancel=True)
        with pytest.raises(ExecutionError, match="was closed before this sample was done"):
            future.result(1)
    assert not any(is_alive(process) for process in processes)


def test_a_fork_of_a_worker_does_not_hide_its_end() -> None:
    """What a library forks (as OpenVINO's telemetry does) holds none of the pipes by which an end is noticed."""
    program = """
import os, signal, time
from placekit.cost_models.openvino.pipeline_worker import _keep_from_forks
reader, writer = os.pipe()
_keep_from_forks([writer])
child = os.fork()
if child == 0:
    time.sleep(600)
    os._exit(0)
os.close(writer)
closed = os.read(reader, 1) == b""
os.kill(child, signal.SIGKILL)
os._exit(0 if closed else 1)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=SOON_S)


def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    """A parent that is killed with samples in flight leaves no worker behind."""
    path = tmp_path / "m.xml"
    ov.save_model(chain([2, 8]), path, compress_to_fp16=False)
    program = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
import numpy as np
from pipelines import alternating_plan, start_processes
from placekit.io.model import read_model
pipe = start_processes(alternating_plan(read_model({str(path)!r})))
print(*[process.pid for process in pipe._processes], flush=True)
while True:
    pipe([np.ones((2, 8), dtype=np.float32)])
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    workers = [int(word) for word in parent.stdout.readline().split()]
    assert len(workers) == 2
    assert all(is_alive(worker) for worker in workers)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert wait_until(lambda: not any(is_alive(worker) for worker in workers), 5.0)


@pytest.mark.parametrize(
    ("num_samples", "num_kills"), [(20, 1), pytest.param(1000, 20, marks=pytest.mark.slow, id="thousand")]
)
def test_random_kills_lose_no_acknowledged_result(slow_plan: StagePlan, num_samples: int, num_kills: int) -> None:
    """Stages are killed at random moments and the rest is submitted again.

    Every kill is one error that names the victim, every result that came is right, and nothing is left: no process, no
    descriptor, no thread.
    """
    rng = np.random.default_rng(num_samples)
    samples = [rng.standard_normal((256, 256)).astype(np.float32) for _ in range(num_samples)]
    acknowledged: dict[int, NDArray[Any]] = {}
    processes: list[int] = []
    gc.collect()  # pipelines of other tests, kept by their tracebacks
    num_descriptors, num_threads = len(list(Path("/proc/self/fd").iterdir())), threading.active_count()
    for kills_left in range(num_kills, -1, -1):
        todo = [i for i in range(num_samples) if i not in acknowledged]
        at = int(rng.integers(max(1, len(todo) // (kills_left + 1)))) if kills_left else num_samples
        victim = int(rng.integers(2))
        futures: list[Future[Any]] = []
        with ProcessPipeline(slow_plan) as pipe:
            mine = [process.pid for process in pipe._processes]
            processes += mine
            killer = threading.Timer(rng.uniform(0, 0.02), os.kill, (mine[victim], signal.SIGKILL))
            try:
                for position, i in enumerate(todo):
                    if position == at:
                        killer.start()
                    futures.append(pipe.submit([samples[i]]))
                futures[-1].result(20)
                assert not kills_left
            except ExecutionError as error:
                killed = f"device 'cpu{victim}' (process {mine[victim]}) was killed by SIGKILL"
                assert killed in str(error)  # noqa: PT017  # submit or result raises, that depends on the moment
            if kills_left:
                killer.join()
        came = [future.exception(0) is None for future in futures]
        assert came == sorted(came, reverse=True)  # in order: none is missing before one that came
        results = [future.result()["y"] for future in futures[: sum(came)]]
        acknowledged |= dict(zip(todo, results, strict=False))
    assert len(acknowledged) == num_samples
    assert not any(is_alive(process) for process in processes)
    assert len(list(Path("/proc/self/fd").iterdir())) <= num_descriptors
    assert threading.active_count() <= num_threads
    request = ov.Core().compile_model(slow_plan.model, "CPU", F32)
    for i, value in acknowledged.items():
        np.testing.assert_allclose(value, request([samples[i]])[0], rtol=1e-4, atol=1e-5)


def test_workers_are_born_on_the_cores_of_their_device(saved: Callable[[ov.Model], ModelSource]) -> None:
    """Every thread of a worker, OpenVINO's own included, runs on the device's cores only; the caller is not moved."""
    source = saved(slow_model())
    platform = core_groups(1, threads=[1])
    placed = np.zeros(source.graph.num_ops, dtype=np.int64)
    plan = plan_stages(source, Placement(source.graph.op_names, platform.device_names, placed), platform)
    home = os.sched_getaffinity(0)
    with ProcessPipeline(plan) as pipe:
        pipe([np.ones((256, 256), dtype=np.float32)])
        threads = [int(each.name) for each in Path(f"/proc/{pipe._processes[0].pid}/task").iterdir()]
        assert {core for thread in threads for core in os.sched_getaffinity(thread)} == set(platform.devices[0].cores)
    assert os.sched_getaffinity(0) == home
