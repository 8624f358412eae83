"""What kernels ``auto`` needs for small problems of each objective: ``make kernels`` writes it to `kernels.json`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from placekit.cli.warm_up import OBJECTIVES
from placekit.compile_ahead import LIST, written
from placekit.patience import MODE

CODE = """
import json, sys
import placekit as pk
from placekit import compiled
from placekit.cli.warm_up import _problems
from placekit.kernel_types import spell_type
for problem in _problems(sys.argv[1]):
    pk.solve(problem, stop=pk.MaxRuntime(float(sys.argv[2])))
print(json.dumps([
    (kernel.__module__, kernel.__qualname__, [spell_type(each) for each in kinds])
    for kernel, kinds in compiled.used if "<" not in kernel.__qualname__
]))
"""

SECOND = {"makespan": "anneal"}
"""What takes longest to compile and every search waits for: the second of two processes begins with it."""


def used_by_auto(objective: str, limit_s: float) -> list[list[Any]]:
    """Return module, name and types of the kernels that are called for small problems, each solved for so long."""
    command = [sys.executable, "-c", CODE, objective, str(limit_s)]
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | {MODE: "inline"})
    found: list[list[Any]] = json.loads(run.stdout.splitlines()[-1])
    long = [kernel for kernel in found if kernel[1] == SECOND.get(objective)]
    others = [kernel for kernel in found if kernel not in long]
    return [*others[:1], *long, *others[1:]]


if __name__ == "__main__":
    LIST.write_text(written({objective: used_by_auto(objective, 10.0) for objective in OBJECTIVES}), encoding="utf-8")
