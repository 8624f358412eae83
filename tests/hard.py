"""A problem too hard for a short time limit; imported by tests and by the subprocesses that they interrupt."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from signals import wait_until_it_solves

import placekit as pk


def hard_problem(contiguity: str = "none", num_ops: int = 400) -> pk.Problem:
    """Return a random graph of `num_ops` ops on four accelerators and a CPU."""
    rng = np.random.default_rng(0)
    names = [f"o{i}" for i in range(num_ops)]
    edges = [(names[rng.integers(max(0, i - 20), i)], names[i]) for i in range(1, num_ops) for _ in range(2)]
    graph = pk.OpGraph.from_edges(names, edges, name="hard")
    times = rng.random((num_ops, 1)) * [[1e-3, 8e-3]]
    transfers = np.stack([rng.random(graph.num_tensors) * 1e-3, np.zeros(graph.num_tensors)], axis=1)
    costs = pk.CostTable(("acc", "cpu"), times, transfers, np.ones(num_ops))
    return pk.Problem(graph, pk.Platform.of(acc=4, cpu=1, host="cpu"), costs, contiguity=pk.Contiguity(contiguity))


def interrupted_answer(method: str, after_s: float = 2.0) -> dict[str, Any]:
    """Solve the hard problem in another process, send Ctrl-C after some CPU seconds, and return its answer."""
    script = (
        "import json, placekit as pk\nfrom hard import hard_problem\n"
        "problem = hard_problem()\n"
        f"print(json.dumps(pk.solve(problem, method={method!r}, stop=pk.MaxRuntime(300)).to_dict()))\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        wait_until_it_solves(process, after_s)
        os.kill(process.pid, signal.SIGINT)
        answer: dict[str, Any] = json.loads(process.communicate(timeout=60)[0])
    return answer
