"""A case as a user meets it after the installation: ``placekit solve`` as a command, with an empty folder for kernels.

It runs twice: without kernels, and once more with those that the first time left.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from placekit.benchmarks.plan import Job
from placekit.io.problem_json import write_problem
from placekit.model.errors import PlacekitError
from placekit.training.piper_json import write_piper
from placekit.training.problem import TrainingProblem

__all__ = ["solve_cold"]

GRACE_S = 600.0
"""Seconds beyond its time limit after which a command is ended."""


def solve_cold(job: Job) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the result that the command without kernels printed, and the fields of a row about its time.

    These are ``wall_s`` from the start of the process to its end, and ``again_s``, the same with kernels.

    Raises
    ------
    PlacekitError
        The command fails.
    """
    with tempfile.TemporaryDirectory(prefix="placekit-cold-") as name:
        folder = Path(name)
        kernels = folder / "kernels"
        kernels.mkdir()
        problem = folder / "problem.json"
        if isinstance(job.problem, TrainingProblem):
            write_piper(job.problem, problem)
        else:
            write_problem(job.problem, problem)
        result, wall_s = _run(job, problem, kernels)
        _, again_s = _run(job, problem, kernels)
    return result, {"wall_s": wall_s, "again_s": again_s}


def _run(job: Job, problem: Path, kernels: Path) -> tuple[dict[str, Any], float]:
    case = job.case
    command = [sys.executable, "-m", "placekit", "solve", str(problem), "--method", case.method, "--json"]
    command += ["--seed", str(case.seed), "--time-limit", repr(case.time_limit_s)]
    command += ["-o", str(problem.with_name("answer.json"))]  # not where the suite runs
    command += [] if case.gap is None else ["--gap", repr(case.gap)]
    command += [f"--param={name}={value}" for name, value in case.params.items()]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(kernels)}
    environment["PYTHONPATH"] = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    begin = time.perf_counter()
    done = subprocess.run(  # noqa: S603  # this interpreter, and a problem of ours
        command, capture_output=True, text=True, check=False, env=environment, timeout=case.time_limit_s + GRACE_S
    )
    wall_s = time.perf_counter() - begin
    try:
        result: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["nothing was printed"])[-1]
        raise PlacekitError(f"placekit solve ended with status {done.returncode}: {last}") from None
    return result, wall_s
