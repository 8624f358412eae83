"""Signals: the first brings the best answer within seconds, the second ends the process with 130."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from limits import seconds_to_end
from signals import wait_until_it_solves, wait_until_it_used

import placekit as pk
from placekit.benchmarks.generators.families import generate
from placekit.solve.solve import finishing

HANG_S = 60.0


@pytest.fixture(scope="module")
def hard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with a problem whose first relaxation takes HiGHS some seconds without a look at its callbacks."""
    rng = np.random.default_rng(0)
    n = 800
    edges = sorted({(f"o{rng.integers(max(0, i - width), i)}", f"o{i}") for i in range(2, n) for width in (4, 9)})
    graph = pk.OpGraph.from_edges([f"o{i}" for i in range(n)], edges)
    times = np.stack([rng.uniform(1e-4, 1e-3, n), rng.uniform(5e-4, 4e-3, n)], axis=1)
    transfers = np.stack([rng.uniform(1e-5, 5e-4, graph.num_tensors), np.zeros(graph.num_tensors)], axis=1)
    costs = pk.CostTable(("gpu", "cpu"), times, transfers, np.ones(n))
    path = tmp_path_factory.mktemp("hard") / "problem.json"
    pk.write_problem(pk.Problem(graph, pk.Platform.of(gpu=2, cpu=1, host="cpu"), costs, pk.Throughput()), path)
    return path


def _start(problem: Path, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "placekit", "solve", "--method", "ilp", "--time-limit", "600", "--json"]
    return subprocess.Popen(
        [*command, "-o", str(folder / "placement.json"), str(problem)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_signal_brings_the_best_answer(number: signal.Signals, hard: Path, tmp_path: Path) -> None:
    """Ctrl-C, and what a scheduler sends: an answer, its bound, exit code 0, and no wait for a deaf solver."""
    process = _start(hard, tmp_path)
    wait_until_it_solves(process, 2.0)
    process.send_signal(number)
    out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, err
    result = json.loads(out)
    assert result["stop_reason"] == "user"
    assert result["placement"] is not None
    assert result["lower_bound"] > 0


@pytest.mark.slow
def test_a_second_signal_ends_the_process(hard: Path, tmp_path: Path) -> None:
    """The shell's 130, and no abort of a solver that is still at work; nor do a third and a fourth make one."""
    process = _start(hard, tmp_path)
    wait_until_it_solves(process, 2.0)
    begin = time.perf_counter()
    while process.poll() is None and time.perf_counter() - begin < HANG_S:
        process.send_signal(signal.SIGINT)  # Python merges two that arrive before it has looked: so press on
        time.sleep(0.02)
    _, err = process.communicate(timeout=1.0)
    assert process.returncode == 130, err
    assert "Traceback" not in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_answer_is_written_does_not_take_it_away(number: signal.Signals) -> None:
    """The first is answered by what is being written; the second ends it, and afterwards all is as before."""
    before = signal.getsignal(number)
    with finishing():
        signal.raise_signal(number)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert signal.getsignal(number) is before


@pytest.fixture(scope="module")
def huge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with a makespan of 100,000 ops, whose kernels are compiled."""
    path = tmp_path_factory.mktemp("huge") / "problem.json"
    pk.solve(generate("layered", 50, seed=1, num_devices=4, objective=pk.Makespan()), stop=pk.MaxRuntime(0.1))
    problem = generate("layered", 100_000, seed=1, num_devices=4, objective=pk.Makespan())
    pk.write_problem(problem, path, arrays="npz")
    return path


def _solve_huge(path: Path, folder: Path, limit_s: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "placekit", "solve", str(path), "--time-limit", str(limit_s)]
    return subprocess.Popen([*command, "-o", str(folder / "huge.json")], stdout=subprocess.DEVNULL)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("after_s", [10.0, 14.0, 25.0])
def test_a_signal_ends_a_huge_solve_within_two_seconds(
    after_s: float, number: signal.Signals, huge: Path, tmp_path: Path
) -> None:
    """In whatever stage it is, with placement and result on disk."""
    process = _solve_huge(huge, tmp_path, 600.0)
    wait_until_it_solves(process, 0.0)
    wait_until_it_used(process, after_s)
    process.send_signal(number)
    took_s = seconds_to_end(process, HANG_S)
    assert process.returncode == 0
    result = pk.Result.from_dict(json.loads((tmp_path / "huge.result.json").read_text()))
    assert result.stop_reason is pk.StopReason.USER
    assert result.placement is not None
    assert result.lower_bound is not None
    assert took_s <= 2.0


@pytest.mark.slow
def test_the_command_ends_within_its_limit_on_a_huge_problem(huge: Path, tmp_path: Path) -> None:
    """Reading and writing included: 10 % and a second more than the limit at most."""
    process = _solve_huge(huge, tmp_path, 30.0)
    assert seconds_to_end(process, 4 * HANG_S) <= 1.1 * 30.0 + 1.0
    assert process.returncode == 0


STARTING = """
import sys
package, sys.argv = sys.argv[1], ["placekit", *sys.argv[2:]]
class Told:
    def find_spec(self, name, *_):
        if name == package:
            print("importing", flush=True)
sys.meta_path.insert(0, Told())
from placekit.cli.main import main
main()
"""
"""Runs the command, and says when it begins to import a module."""


@pytest.mark.parametrize("after_s", [0.0, 0.1, *(pytest.param(each, marks=pytest.mark.slow) for each in (0.3, 0.6))])
@pytest.mark.parametrize("package", ["numpy", "typer", pytest.param("rich", marks=pytest.mark.slow)])
def test_ctrl_c_while_a_command_starts_is_one_line(package: str, after_s: float, diamond_file: Path) -> None:
    """Whatever is being imported: no traceback, and the shell's exit code; or the command was done already."""
    target = str(diamond_file.with_name("p.json"))
    process = subprocess.Popen(
        [sys.executable, "-c", STARTING, package, "solve", str(diamond_file), "-o", target],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    if process.stdout.readline() == "importing\n":
        time.sleep(after_s)
        process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=HANG_S)
    assert process.returncode in (0, 130), err
    assert "Traceback" not in err
    if process.returncode == 130:
        assert err.splitlines()[-1:] == ["error: interrupted"]


def test_a_program_that_imports_placekit_keeps_its_handling_of_signals() -> None:
    """Only the command answers Ctrl-C itself."""
    code = "import signal; before = signal.getsignal(2); import placekit; print(signal.getsignal(2) is before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
