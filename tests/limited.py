"""Solves within limits: which methods can take part, what they may take, and one in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import placekit as pk
from placekit.solve.lifting.relaxed import why_not
from placekit.solve.registry import METHODS, get_method

OBJECTIVES = (pk.Throughput(), pk.SerialLatency(), pk.OffloadLatency(), pk.Makespan())
NEEDS_MORE = ("policy", "file")
"""Methods that need a file."""
LIMIT_S = 2.0


def allowed_s(limit_s: float) -> float:
    """Return the seconds within which a solve with a limit has to end."""
    return 1.1 * limit_s + 1.0


def methods(problem: pk.Problem) -> Iterator[str]:
    """Yield the methods that can work on a problem."""
    for name in METHODS:
        if name in NEEDS_MORE:
            continue
        try:
            if why_not(get_method(name), problem) is None:
                yield name
        except pk.PlacekitError:
            continue  # a package that is not installed


SOLVE = """
import json, resource, sys
import placekit as pk
from limits import Stopwatch
problem = pk.read_problem(sys.argv[1])
watch = Stopwatch()
result = pk.solve(problem, sys.argv[2], stop=pk.MaxRuntime(float(sys.argv[3])))
took_s = watch.seconds() - result.compile_s - result.load_s
peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"took_s": took_s, "peak_bytes": peak, "objective": result.objective, "bound": result.lower_bound}))
"""


def solve_in_a_process(path: Path, method: str, limit_s: float, cache: Path | None) -> dict[str, Any]:
    """Solve the problem of a file within a limit, and return what it took; `cache` is a folder for kernels."""
    found = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONPATH": found} | ({} if cache is None else {"NUMBA_CACHE_DIR": str(cache)})
    command = [sys.executable, "-c", SOLVE, str(path), method, str(limit_s)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told
