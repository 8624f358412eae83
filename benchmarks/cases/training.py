"""Training plans as cases of suites: problems from generators and files, what a row says of them, and the solve."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from placekit.benchmarks.cases.suite_schema import TRAINING_PLAN, ModelEntry
from placekit.model.errors import InvalidProblemError, PlacekitError, UnknownNameError
from placekit.solve.stop import Stop
from placekit.solvers.training_plan.solve import PLAN_METHODS, plan_method, solve_plan
from placekit.training.generate import chain_problem, recurrent_problem
from placekit.training.piper_json import read_piper
from placekit.training.problem import TrainingProblem
from placekit.training.result import PlanResult

GIB = 2.0**30
FAMILIES: Mapping[str, Callable[..., TrainingProblem]] = MappingProxyType(
    {"training-chain": chain_problem, "training-recurrent": recurrent_problem}
)
"""Families of generated training problems."""


def training_problems(
    entry: ModelEntry, path: Path | None = None
) -> Iterator[tuple[str, Callable[[], TrainingProblem]]]:
    """Yield for every machine of an entry its name, and a maker of the problem: from the file `path`, or generated."""
    for devices, memory_gib in entry.machines:
        name = f"{devices} x {memory_gib:g} GiB"
        machine: dict[str, Any] = {"num_devices": devices, "memory_bytes": memory_gib * GIB}
        if path is None:
            yield name, partial(_generate, str(entry.family), dict(entry.params), machine)
            continue
        if entry.bandwidth_gib_per_s is not None:
            machine["bandwidth_bytes_per_s"] = entry.bandwidth_gib_per_s * GIB
        yield name, partial(read_piper, path, **machine)


def _generate(family: str, params: dict[str, Any], machine: dict[str, Any]) -> TrainingProblem:
    if family not in FAMILIES:
        raise UnknownNameError(f"no family {family!r} of training problems; there are {', '.join(FAMILIES)}")
    with params_checked(family, params):
        return FAMILIES[family](**params, **machine)


@contextmanager
def params_checked(family: str, params: Mapping[str, Any]) -> Iterator[None]:
    """Turn what Python says of the wrong parameters of a family into an error that names both."""
    try:
        yield
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, PlacekitError):
            raise
        raise InvalidProblemError(f"family {family!r} cannot be made from {params}: {error}") from None


def facts_of_training(problem: TrainingProblem) -> dict[str, Any]:
    """Return what a row says of a training problem: layers are its ops."""
    return {
        "objective": TRAINING_PLAN,
        "variant": {},
        "contiguity": "none",
        "num_ops": problem.num_layers,
        "num_edges": len(problem.edges),
        "num_devices": problem.num_devices,
    }


def why_not_training(method: str | None, params: Mapping[str, Any]) -> str | None:
    """Return why a method cannot plan training, or None."""
    if method is None:
        return None
    if method not in ("auto", *PLAN_METHODS):
        return "it plans no training"
    plan_method(method, params)
    return None


def solve_training(
    problem: TrainingProblem, method: str, stop: Stop, seed: int, params: Mapping[str, Any]
) -> tuple[PlanResult, dict[str, Any]]:
    """Return the result, and what its row says instead of a placement."""
    result = solve_plan(problem, method, stop=stop, seed=seed, params=params)
    plan = result.to_dict()["stages"]
    stages = plan and [{name: stage[name] for name in ("data_degree", "tensor_degree", "layers")} for stage in plan]
    num_stages = None if plan is None else len(plan)
    return result, {"num_stages": num_stages, "stages": stages}
