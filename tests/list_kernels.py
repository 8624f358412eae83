"""List of the kernels that the methods need, by objective: ``make kernels`` writes it to `kernels.json`.

Random problems of all shapes are solved by every method, and what they have numba compile is listed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from typing import Any

from fuzz.problems import OBJECTIVE_NAMES, random_problem
from numba.core import types
from numba.core.dispatcher import Dispatcher

import placekit as pk
from placekit import kernels
from placekit.benchmarks.generators.families import generate
from placekit.kernels import LEARNED, LIST, TRAINING_PLAN, used
from placekit.solve.registry import METHODS, get_method
from placekit.solve.relaxed import why_not

__all__ = ["GROUPS", "problems", "solve_by_all_methods", "spell_type"]

GROUPS = (*sorted(OBJECTIVE_NAMES), LEARNED, TRAINING_PLAN)
NEEDS_MORE = ("file",)
"""Methods that need a file."""
SIZES = (None, None, (6, 14), (30, 60))
"""Fewest and most ops of the problems, by turns; None for as few as the fuzzer enumerates."""
_SCALARS = tuple(map(str, (types.boolean, types.int64, types.float64, types.npy_rng, types.none)))


def problems(objective: str, count: int, seed: int) -> Iterator[pk.Problem]:
    """Yield problems of every shape: chains, teams, links, pins, contiguities, memory models."""
    for case in range(count):
        yield random_problem(seed, case, objective, SIZES[case % len(SIZES)])
    if objective == "throughput":  # among few random ones there may be none
        yield generate("layered", 20, seed=seed, num_devices=4, objective=pk.Throughput(teams="any"))


def solve_by_all_methods(group: str, count: int, seed: int, limit_s: float) -> list[pk.Result]:
    """Solve `count` problems of an objective by every method, or what else the list names."""
    if group == TRAINING_PLAN:
        _plan_training(limit_s)
        return []
    results = []
    for objective in OBJECTIVE_NAMES if group == LEARNED else [group]:
        for problem in problems(objective, count, seed):
            for name in METHODS:
                if name in NEEDS_MORE:
                    continue
                name = f"{name}:pretrained" if name == "policy" else name  # noqa: PLW2901
                method = get_method(name, {}, objective)
                is_learned = ".learned." in type(method).__module__
                if is_learned is (group == LEARNED) and why_not(method, problem) is None:
                    results.append(pk.solve(problem, name, stop=pk.MaxRuntime(limit_s), seed=seed))
    return results


def _plan_training(limit_s: float) -> None:
    from placekit.solvers.training_plan.solve import PLAN_METHODS, solve_plan
    from placekit.training.generate import chain_problem

    for method in PLAN_METHODS:
        solve_plan(chain_problem(6, num_devices=4), method, stop=pk.MaxRuntime(limit_s))


def spell_type(kind: Any) -> Any:
    """Return a numba type as JSON: a scalar by its name, an array as ``"float64[2C]"``, a tuple by its parts.

    Raises
    ------
    TypeError
        A type that no kernel here takes.
    """
    if str(kind) in _SCALARS:
        return str(kind)
    if isinstance(kind, types.Array) and kind.aligned:
        return f"{'' if kind.mutable else 'readonly '}{kind.dtype}[{kind.ndim}{kind.layout}]"
    if isinstance(kind, types.BaseTuple):
        of = getattr(kind, "instance_class", tuple)
        return {"class": f"{of.__module__}:{of.__qualname__}", "of": [spell_type(each) for each in list(kind)]}  # type: ignore[call-overload]
    raise TypeError(f"type {kind} of a kernel's argument cannot be written as JSON")


def _used() -> list[list[Any]]:
    """Return module, name and types of the kernels of this process, the longest to compile first."""
    found = sorted(used.items(), key=lambda item: -item[1])
    return [[each.__module__, each.__qualname__, [spell_type(kind) for kind in kinds]] for (each, kinds), _ in found]


def _modules() -> list[str]:
    """Return the modules of this process that define kernels."""
    own = [module for name, module in sys.modules.items() if name.startswith("placekit.")]
    return sorted({each.__module__ for module in own for each in vars(module).values() if isinstance(each, Dispatcher)})


def _used_in_a_process(group: str) -> tuple[list[list[Any]], list[str]]:
    """Return the kernels of a group, and the modules with kernels, of a process with no kernels on disk."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"NUMBA_CACHE_DIR": folder}
        command = [sys.executable, __file__, group]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    kernels, modules = json.loads(run.stdout.splitlines()[-1])
    return kernels, modules


def written(kernels: dict[str, list[list[Any]]], modules: list[str]) -> str:
    """Return the content of `LIST`; every class of tuples is written once."""
    tuples: dict[str, Any] = {}

    def short(kind: Any) -> Any:
        if not isinstance(kind, dict):
            return kind
        kind = kind | {"of": [short(each) for each in kind["of"]]}
        for number in range(1, len(tuples) + 2):
            alias = kind["class"].partition(":")[2] + (f" {number}" if number > 1 else "")
            if tuples.setdefault(alias, kind) == kind:
                return alias
        raise AssertionError

    lines = {
        group: ",\n".join(
            f"   {json.dumps([module, name, [short(each) for each in kinds]])}" for module, name, kinds in all_of_it
        )
        for group, all_of_it in kernels.items()
    }
    listed = ",\n".join(f"  {json.dumps(group)}: [\n{of_it}\n  ]" for group, of_it in lines.items())
    aliases = ",\n".join(f"  {json.dumps(alias)}: {json.dumps(kind)}" for alias, kind in tuples.items())
    names = ",\n".join(f"  {json.dumps(module)}" for module in modules)
    return f'{{\n "modules": [\n{names}\n ],\n "tuples": {{\n{aliases}\n }},\n "kernels": {{\n{listed}\n }}\n}}\n'


def main() -> None:
    """Write the list; of a group that is named, print it."""
    if sys.argv[1:]:
        kernels._listed = cache(lambda: {"modules": [], "tuples": {}, "kernels": {}})  # nothing is prepared
        solve_by_all_methods(sys.argv[1], count=24, seed=1, limit_s=0.5)
        sys.stdout.write(json.dumps([_used(), _modules()]) + "\n")
        return
    listed, modules = {}, set[str]()
    for group in GROUPS:
        listed[group], found = _used_in_a_process(group)
        modules |= set(found)
    LIST.write_text(written(listed, sorted(modules)), encoding="utf-8")


if __name__ == "__main__":
    main()
