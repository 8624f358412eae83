"""List of the kernels that the methods need, by objective: ``make kernels`` writes it to `kernels.json`.

Random problems of all shapes are solved by every method, and what they have numba compile is listed. What ``auto``
needs for an ordinary model stands apart.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from fuzz.problems import OBJECTIVE_NAMES, random_problem
from numba.core import types
from numba.core.dispatcher import Dispatcher

import placekit as pk
from placekit import kernels
from placekit.benchmarks.generators.families import generate
from placekit.kernels import LEARNED, LIST, MORE, TRAINING_PLAN, used
from placekit.objectives import get_objective
from placekit.solve.lifting.relaxed import why_not
from placekit.solve.registry import METHODS, get_method
from placekit.zoo.builder import build

GROUPS = (
    *(prefix + objective for objective in sorted(OBJECTIVE_NAMES) for prefix in ("", MORE)),
    *(LEARNED, TRAINING_PLAN),
)
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


def solve_ordinary(objective: str) -> None:
    """Solve a convolutional network on a CPU and three accelerators by ``auto``."""
    platform = pk.read_platform(Path(__file__).parent.parent / "examples" / "platform_1cpu_3acc.toml")
    with tempfile.TemporaryDirectory() as folder:
        build("resnet50", f"{folder}/resnet50.xml")
        model = pk.read_model(f"{folder}/resnet50.xml")
    costs = pk.Analytic.from_platform_file(platform).cost_table(model, platform)
    pk.solve(model.problem(platform, costs, objective=get_objective(objective)), stop=pk.MaxRuntime(5.0))


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


def _used_in_a_process(objective: str) -> tuple[dict[str, list[list[Any]]], list[str]]:
    """Return the groups of an objective, and the modules with kernels, of a process with no kernels on disk."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"NUMBA_CACHE_DIR": folder}
        command = [sys.executable, __file__, objective]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    kernels, modules = json.loads(run.stdout.splitlines()[-1])
    return kernels, modules


def _print_used(objective: str) -> None:
    """Solve with no list, and print what `_used_in_a_process` returns."""
    kernels._listed = cache(lambda: {"modules": [], "tuples": {}, "kernels": {}})  # nothing is prepared
    found = {}
    if objective in OBJECTIVE_NAMES:
        solve_ordinary(objective)
        found[objective] = _used()
    solve_by_all_methods(objective, count=24, seed=1, limit_s=0.5)
    more = [each for each in _used() if each not in found.get(objective, [])]
    found[MORE + objective if found else objective] = more
    sys.stdout.write(json.dumps([found, _modules()]) + "\n")


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
    """Write the list; of an objective that is named, print the kernels."""
    if sys.argv[1:]:
        _print_used(sys.argv[1])
        return
    listed, modules = dict[str, list[list[Any]]](), set[str]()
    for objective in (*sorted(OBJECTIVE_NAMES), LEARNED, TRAINING_PLAN):
        groups, found = _used_in_a_process(objective)
        listed |= groups
        modules |= set(found)
    LIST.write_text(written(listed, sorted(modules)), encoding="utf-8")


if __name__ == "__main__":
    main()
