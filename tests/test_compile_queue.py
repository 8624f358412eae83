"""Kernels compiled by another process: who waits, for how long, and what happens without them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from placekit.patience import MODE

KERNELS = """
import os, sys, time
from pathlib import Path
CACHE = Path(os.environ["NUMBA_CACHE_DIR"])
from placekit.compiled import judge_kernel, njit
if "placekit.compile_worker" in " ".join(sys.orig_argv):
    time.sleep(float(os.environ.get("SLOW_S", "0")))  # a kernel that takes long to compile

@njit(cache=True)
def half(x, by):
    return x / by

@njit(cache=True)
def one(x):
    return half(x, 2) + 1

@judge_kernel
def two(x):
    return half(x, 2) + 2
"""


def _run(folder: Path, code: str, slow_s: float = 0.0) -> str:
    (folder / "kernels.py").write_text(KERNELS)
    environment = os.environ | {
        "NUMBA_CACHE_DIR": str(folder / "cache"),
        "PYTHONPATH": str(folder),
        "SLOW_S": str(slow_s),
        MODE: "background",
    }
    begin = "import time, kernels; from placekit.patience import waiting_while; start = time.monotonic()\n"
    command = [sys.executable, "-c", begin + code]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=120).stdout


def test_another_process_compiles_what_a_solve_waits_for(tmp_path: Path) -> None:
    """Nothing is compiled here: the kernel comes from the cache on disk, and literals make no second one."""
    code = (
        "from numba.core import event\n"
        "with event.install_recorder('numba:compile') as seen, waiting_while(lambda: True):\n"
        "    print(kernels.one(3.0), kernels.two(3.0), len(seen.buffer), len(kernels.half.overloads))"
    )
    assert _run(tmp_path, code).split()[:3] == ["2.5", "3.5", "0"]
    assert _run(tmp_path, code).split()[:3] == ["2.5", "3.5", "0"]


def test_expected_kernels_are_compiled_beside_the_first_that_is_missing(tmp_path: Path) -> None:
    """Nobody has called the other one yet; without a missing kernel nothing is done, and unknown names do no harm."""
    code = (
        "from placekit.compile_queue import expect\n"
        "expect([['kernels', 'no_such', ['float64']], ['no.such', 'one', []], ['kernels', 'two', ['float64']]])\n"
        "print(len(list(kernels.CACHE.glob('**/*.nbi'))))\n"
        "with waiting_while(lambda: True):\n"
        "    kernels.one(3.0)\n"
        "while not list(kernels.CACHE.glob('**/*two*.nbc')): time.sleep(0.01)\n"
        "print('compiled')"
    )
    assert _run(tmp_path, code).split() == ["0", "compiled"]


def test_waiting_ends_when_it_is_not_worth_it(tmp_path: Path) -> None:
    """A kernel that is late raises, one of the judge is interpreted, and outside of a solve both are compiled here."""
    code = (
        "from placekit.errors import KernelsPendingError\n"
        "with waiting_while(lambda: time.monotonic() < start + 0.3):\n"
        "    try:\n"
        "        kernels.one(3.0)\n"
        "    except KernelsPendingError as error:\n"
        "        print(error)\n"
        "    print(kernels.two(3.0), len(kernels.two.overloads))\n"
        "print(kernels.one(3.0), kernels.two(3.0), len(kernels.two.overloads))\n"
    )
    lines = _run(tmp_path, code, slow_s=5.0).splitlines()
    assert lines == ["kernel 'one' is still being compiled", "3.5 0", "2.5 3.5 1"]


def test_a_solve_ends_in_time_without_its_kernels(tmp_path: Path) -> None:
    """Even the judge of the makespan has an empty cache: there is an answer, and it says what it lacked."""
    code = (
        "import numpy as np, placekit as pk\n"
        "graph = pk.OpGraph.from_edges(list('abc'), [('a', 'b'), ('b', 'c')])\n"
        "costs = pk.CostTable(('x',), np.ones((3, 1)), np.zeros((2, 1)), np.zeros(3))\n"
        "problem = pk.Problem(graph, pk.Platform.of(x=2), costs, pk.Makespan()).pin({'a': 'x.1'}).colocate('ab')\n"
        "result = pk.solve(problem, 'local-search', stop=pk.MaxRuntime(0.2))\n"
        "print(result.objective, result.stop_reason, 0.1 < result.compile_s <= result.runtime_s < 30)\n"
        "print(result.info['kernels'])\n"
    )
    lines = _run(tmp_path, code).splitlines()
    assert lines[0] == "3.0 time True"
    assert "is still being" in lines[1]  # compiled, or imported where even that takes longer
