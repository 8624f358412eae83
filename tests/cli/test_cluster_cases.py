"""``placekit bench --cluster``: cases on the workers of a real scheduler, whatever happens to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dask_processes import ROOT, DaskProcesses, end, free_port, wait_until
from limits import SOON_S, Stopwatch
from signals import interruptible

from placekit.benchmarks.on_cluster import cluster_executor
from placekit.cluster.engine import Cluster, ClusterError

pytestmark = pytest.mark.xdist_group("dask")

SUITE = """
name = "few"
time_limit_s = {limit_s}
max_evaluations = 50
[[model]]
family = "chains"
params = {{ num_ops = 20, num_devices = 2 }}
[[method]]
name = "greedy"
[[method]]
name = "random"
seeds = {seeds}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskProcesses]:
    """Start a scheduler and two workers on cores of their own."""
    with DaskProcesses(tmp_path_factory.mktemp("dask")) as made:
        made.start_worker("one", 0)
        made.start_worker("two", 1)
        made.wait_for(2)
        yield made


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """Return a suite of five cases of a moment."""
    return _suite(tmp_path, range(4))


def _suite(folder: Path, seeds: range, limit_s: float = 5.0, *, is_endless: bool = False) -> Path:
    text = SUITE.format(limit_s=limit_s, seeds=[*seeds])
    path = folder / "few.toml"
    path.write_text(text.replace("max_evaluations = 50\n", "") if is_endless else text)
    return path


def _start(suite: Path, address: str, *more: str) -> subprocess.Popen[str]:
    command = interruptible("-m", "placekit", "bench", str(suite), "--cluster", address, "-o", "out", *more)
    return subprocess.Popen(
        command, cwd=suite.parent, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def _rows(folder: Path) -> list[dict[str, Any]]:
    path = folder / "rows.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_rows_are_those_of_this_machine_and_a_second_run_has_nothing_to_do(
    cluster: DaskProcesses, suite: Path, tmp_path: Path, call: Callable[..., Any]
) -> None:
    """Objectives and evaluations are the same; each case has a core to itself, and the processes end with the run."""
    done = call("bench", suite, "-o", "out", "--cluster", cluster.address)
    assert done.returncode == 0, done.stderr
    assert "5 of 5 cases have a row" in done.stdout
    wait_until(lambda: not cluster.children())
    there = {row["case"]: row for row in _rows(tmp_path / "out")}
    assert {row["machine"]["cores"] for row in there.values()} == {1}
    assert {row["num_workers"] for row in there.values()} == {1}
    assert call("bench", suite, "-o", "here").returncode == 0
    for row in _rows(tmp_path / "here"):
        other = there[row["case"]]
        assert [row[name] for name in ("objective_s", "evaluations", "device_of_op", "versions", "commit")] == [
            other[name] for name in ("objective_s", "evaluations", "device_of_op", "versions", "commit")
        ]
    assert "5 cases, 5 already" in call("bench", suite, "-o", "out", "--cluster", f"tcp://{cluster.address}").stdout


@pytest.mark.slow
def test_files_of_a_case_travel_with_it(cluster: DaskProcesses, tmp_path: Path, call: Callable[..., Any]) -> None:
    """A parameter that is a file needs no folder that all machines share: the worker has a copy."""
    suite = _suite(tmp_path, range(1))
    split = tmp_path / "split.json"
    suite.write_text(suite.read_text() + '[[method]]\nname = "file"\nfiles = { path = "split.json" }\n')
    assert call("bench", suite, "-o", "out", "-m", "greedy").returncode == 0
    problem = tmp_path / "out" / _rows(tmp_path / "out")[0]["problem_file"]
    assert call("solve", problem, "-m", "greedy", "-o", split).returncode == 0
    done = call("bench", suite, "-o", "out", "-m", "file", "--cluster", cluster.address)
    assert done.returncode == 0, done.stderr
    greedy, found = _rows(tmp_path / "out")
    assert (found["error"], found["objective_s"]) == (None, greedy["objective_s"])


def test_an_address_that_nobody_answers_is_an_error_within_ten_seconds(suite: Path, call: Callable[..., Any]) -> None:
    """Before any work, in one line; a text that is no address is told at once."""
    address = f"127.0.0.1:{free_port()}"
    watch = Stopwatch()
    done = call("bench", suite, "--cluster", address)
    assert watch.seconds() < 10
    assert done.returncode == 2
    assert done.stderr == f"error: nobody answers at {address}: Connection refused\n"
    done = call("bench", suite, "--cluster", "nowhere")
    assert "write the address of a scheduler as HOST:PORT" in done.stderr


def test_isolated_suites_and_options_of_this_machine_stay_here(suite: Path, call: Callable[..., Any]) -> None:
    """An isolated suite does not ask the cluster; --workers is of this machine."""
    suite.write_text("isolate = true\n" + suite.read_text())
    done = call("bench", suite, "-m", "greedy", "--cluster", f"127.0.0.1:{free_port()}")
    assert done.returncode == 0, done.stderr
    assert "isolated suite: its cases measure memory and time on this machine, and run here" in done.stdout
    assert "--workers is of this machine" in call("bench", suite, "--workers", "2", "--cluster", "a:1").stderr


@pytest.mark.slow
def test_a_worker_that_is_killed_loses_no_case(cluster: DaskProcesses, tmp_path: Path) -> None:
    """Its case goes to the other worker; one that comes back gets cases again."""
    process = _start(_suite(tmp_path, range(8), 0.5, is_endless=True), cluster.address)
    wait_until(lambda: len(_rows(tmp_path / "out")) > 1)
    end(cluster.workers["one"])
    cluster.start_worker("one", 0)
    out, err = process.communicate(timeout=2 * SOON_S)
    assert process.returncode == 0, err
    assert "9 of 9 cases have a row in out/rows.jsonl, 0 of them an error" in out
    assert len({row["case"] for row in _rows(tmp_path / "out")}) == 9
    cluster.wait_for(2)


@pytest.mark.slow
def test_a_case_whose_process_dies_is_tried_again(cluster: DaskProcesses, tmp_path: Path) -> None:
    """Out of memory, say: the worker itself stays."""
    process = _start(_suite(tmp_path, range(2), 4.0, is_endless=True), cluster.address, "-m", "random")
    wait_until(lambda: cluster.children(used_s=2))
    for child in cluster.children():
        child.kill()
    out, err = process.communicate(timeout=2 * SOON_S)
    assert process.returncode == 0, err
    assert "2 of 2 cases have a row in out/rows.jsonl, 0 of them an error" in out


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_a_run_that_is_stopped_leaves_nothing_running(
    cluster: DaskProcesses, tmp_path: Path, number: signal.Signals
) -> None:
    """Neither after Ctrl-C nor after kill -9 does a worker go on with a case that nobody waits for."""
    process = _start(_suite(tmp_path, range(2), 300.0, is_endless=True), cluster.address, "-m", "random")
    wait_until(lambda: cluster.children(used_s=2))
    process.send_signal(number)
    _, err = process.communicate(timeout=SOON_S)
    assert process.returncode == (130 if number == signal.SIGINT else -number), err
    wait_until(lambda: not cluster.children(), for_s=20)
    assert "Traceback" not in err


def test_other_versions_on_a_worker_are_an_error_that_names_them(cluster: DaskProcesses, tmp_path: Path) -> None:
    """A worker whose scipy says to be another one is refused, by its name."""
    fake = tmp_path / "path" / "scipy-0.1.dist-info"
    fake.mkdir(parents=True)
    (fake / "METADATA").write_text("Metadata-Version: 2.1\nName: scipy\nVersion: 0.1\n")
    cluster.start_worker("odd", 0, path=[fake.parent])
    try:
        cluster.wait_for(3)
        with pytest.raises(ClusterError, match=r"worker odd on 127\.0\.0\.1 has other versions.*: scipy 0\.1 there, "):
            cluster_executor(cluster.address)
    finally:
        end(cluster.workers.pop("odd"))


def test_a_scheduler_without_workers_is_an_error(tmp_path: Path) -> None:
    """It says how to start one."""
    with DaskProcesses(tmp_path) as empty:
        wait_until(lambda: "Scheduler at" in (tmp_path / "scheduler.log").read_text())
        with pytest.raises(ClusterError, match=f"no workers; start some with `dask worker {empty.address}"):
            Cluster(empty.address)


@pytest.mark.slow
def test_after_a_scheduler_that_stopped_the_command_goes_on(tmp_path: Path) -> None:
    """Rows that are written stay, the error says so, and the same command does the rest."""
    suite = _suite(tmp_path, range(6), 1.0, is_endless=True)
    with DaskProcesses(tmp_path) as cluster:
        cluster.start_worker("one", 0)
        cluster.wait_for(1)
        process = _start(suite, cluster.address)
        wait_until(lambda: len(_rows(tmp_path / "out")) > 1)
        end(cluster.scheduler)
        _, err = process.communicate(timeout=SOON_S)
        assert process.returncode == 2
        assert "stopped, or forgot a task; what is done is in out/rows.jsonl, and the same command goes on" in err
        kept = _rows(tmp_path / "out")
        assert 1 < len(kept) < 7
        assert not any(row["error"] for row in kept)
        end(cluster.workers["one"])
        cluster.start_scheduler()
        cluster.start_worker("one", 0)
        cluster.wait_for(1)
        process = _start(suite, cluster.address)
        out, err = process.communicate(timeout=2 * SOON_S)
        assert process.returncode == 0, err
        assert f"7 cases, {len(kept)} already" in out
        assert len(_rows(tmp_path / "out")) == 7


@pytest.mark.slow
def test_ten_kills_of_workers_lose_no_case(cluster: DaskProcesses, tmp_path: Path) -> None:
    """Ten runs, in each of which a worker is killed by -9 while it solves."""
    for run in range(10):
        folder = tmp_path / str(run)
        folder.mkdir()
        process = _start(_suite(folder, range(6), 0.5, is_endless=True), cluster.address)
        wait_until(lambda folder=folder: bool(_rows(folder / "out")))  # type: ignore[misc]
        time.sleep(0.1 * run)
        name = ("one", "two")[run % 2]
        end(cluster.workers[name])
        cluster.start_worker(name, run % 2)
        out, err = process.communicate(timeout=2 * SOON_S)
        assert process.returncode == 0, err
        assert "7 of 7 cases have a row in out/rows.jsonl, 0 of them an error" in out
        cluster.wait_for(2)
