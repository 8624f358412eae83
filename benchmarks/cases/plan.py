"""The plan of a suite: its cases, each with a content address, and what was left out and why."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

from placekit.benchmarks.cases.suite import Suite
from placekit.benchmarks.cases.suite_problems import (
    AnyProblem,
    ProblemSpec,
    address_of,
    declared_problems,
    problem_address,
    settle,
)
from placekit.benchmarks.cases.suite_schema import MethodEntry
from placekit.benchmarks.cases.training import facts_of_training, why_not_training
from placekit.benchmarks.rewards import why_not_measured, without_reward
from placekit.io.file_hash import file_hash
from placekit.io.reading import inside
from placekit.model.errors import SolverUnavailableError
from placekit.solve.lifting.relaxed import why_not
from placekit.solve.registry import METHODS, get_method
from placekit.solvers.training_plan.solve import PLAN_METHODS
from placekit.training.problem import TrainingProblem

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Case:
    """Everything that decides the outcome of one solve, up to the code and the speed of the machine."""

    problem: str  # address of the problem's content
    # method, params: the method and its parameters
    method: str
    params: Mapping[str, Any]
    file_hashes: Mapping[str, str]  # hash of the content of every parameter that is a file, by name
    warm_start: str | None  # the method whose answer it starts from; None for a cold start
    # seed, time_limit_s, gap, max_evaluations: the seed, and when to stop
    seed: int
    time_limit_s: float
    gap: float | None = None
    max_evaluations: int | None = None

    @cached_property
    def address(self) -> str:
        """The content address: cases with the same address are the same solve."""
        return address_of(asdict(self) | {"time_limit_s": float(self.time_limit_s)})

    @property
    def at_most_s(self) -> float:
        """Longest time of the case in seconds: the method of a warm start has the same limit."""
        return self.time_limit_s * (1 if self.warm_start is None else 2)


@dataclass(frozen=True)
class Job:
    """A case with all that a worker needs to run it, on whichever machine."""

    # case, problem: what to solve, and how
    case: Case
    problem: AnyProblem
    files: Mapping[str, str]  # path of every parameter that is a file, by name
    facts: Mapping[str, Any]  # what the row says about the case beside its fields: suite, model, label, size, ...
    model_file: Path | None = None  # the model that can be executed; None where there is only a problem
    warm_up_problem: AnyProblem | None = None  # what it works on then; None for the problem itself
    keeps_answer: bool = False  # True for a row that holds the result


@dataclass(frozen=True)
class SuitePlan:
    """The jobs of a suite, without doubles, and a sentence for everything that was left out."""

    suite: Suite
    jobs: tuple[Job, ...]
    left_out: tuple[str, ...]


def make_plan(suite: Suite, results: Path) -> SuitePlan:
    """Make the problems of a suite (or read those that an earlier run made), and list its cases.

    Left out are methods that are not installed, methods that do not support a problem, and parameter files that are
    not there. Problems and zoo models are kept in the folder `results`.
    """
    jobs: dict[str, Job] = {}
    left_out: dict[str, None] = {}
    names = set()
    for spec in declared_problems(suite, results):
        names.add(spec.model)
        problem, path = settle(spec, results)
        of_problem = _facts(suite, spec, problem, path.relative_to(results))
        for entry in suite.content.method:
            if not _is_meant(entry, spec, of_problem):
                continue
            reason = _why_not(suite, spec, entry, problem)
            if reason is not None:
                left_out[reason] = None
                continue
            for job in _jobs(suite, spec, entry, problem, of_problem):
                jobs.setdefault(job.case.address, job)
    for entry in suite.content.method:
        for pattern in entry.models or ():
            if not any(fnmatchcase(name, pattern) for name in names):
                left_out[f"{entry.name} on {pattern}: no model of the suite is called so"] = None
    for reason in left_out:
        logger.info("left out: %s", reason)
    made = tuple(jobs.values())
    return SuitePlan(suite, _isolated(made) if suite.content.isolate else made, tuple(left_out))


def _isolated(jobs: tuple[Job, ...]) -> tuple[Job, ...]:
    """Let every method warm up on the smallest problem that it has under the same objective and contiguity."""

    def kind(job: Job) -> tuple[str, ...]:
        return job.case.method, str(job.facts["objective"]), str(job.facts["contiguity"])

    smallest: dict[tuple[str, ...], Job] = {}
    for job in jobs:
        if kind(job) not in smallest or job.facts["num_ops"] < smallest[kind(job)].facts["num_ops"]:
            smallest[kind(job)] = job
    return tuple(replace(job, warm_up_problem=smallest[kind(job)].problem) for job in jobs)


def _facts(suite: Suite, spec: ProblemSpec, problem: AnyProblem, path: Path) -> dict[str, Any]:
    facts = {
        "suite": suite.name,
        "suite_source": suite.source,
        "problem_file": path.as_posix(),
        "problem_address": problem_address(problem),
        "model": spec.model,
        "platform": spec.platform,
    }
    if isinstance(problem, TrainingProblem):
        return facts | facts_of_training(problem)
    return facts | {
        "objective": problem.objective.name,
        "variant": problem.objective.identity(),
        "contiguity": str(problem.contiguity),
        "num_ops": problem.graph.num_ops,
        "num_edges": problem.graph.num_edges,
        "num_devices": problem.platform.num_devices,
    }


def _is_meant(entry: MethodEntry, spec: ProblemSpec, facts: Mapping[str, Any]) -> bool:
    """Return whether the suite wants the method run on the problem."""
    return (
        (entry.objectives is None or facts["objective"] in entry.objectives)
        and (entry.contiguity is None or facts["contiguity"] in entry.contiguity)
        and (entry.models is None or any(fnmatchcase(spec.model, pattern) for pattern in entry.models))
    )


def _files(suite: Suite, spec: ProblemSpec, entry: MethodEntry, seed: int) -> dict[str, Path]:
    def named(text: str) -> Path:
        name = text.replace("{model}", spec.model).replace("{seed}", str(seed))
        inside(suite.folder, name, f"suite {suite.name!r}")
        return suite.path(name)

    return {name: named(text) for name, text in entry.files.items()}


def _why_not(suite: Suite, spec: ProblemSpec, entry: MethodEntry, problem: AnyProblem) -> str | None:
    """Return why an entry cannot be run on a problem, or None."""
    if isinstance(problem, TrainingProblem):
        told = why_not_training(entry.name, entry.params) or why_not_training(entry.warm_start, {})
        told = told or ("a training plan has no warm start" if entry.warm_start is not None else None)
        return told and f"{entry.name} on {spec.model}: {told}"
    if entry.name in PLAN_METHODS and entry.name not in METHODS:
        return f"{entry.name} on {spec.model}: it plans training only"
    files: dict[str, str] = {}
    for seed in entry.seeds or suite.content.seeds:
        for param, path in _files(suite, spec, entry, seed).items():
            if not path.is_file():
                return f"{entry.name} on {spec.model}: there is no file {path}"
            files[param] = str(path)
    for name, params in ((entry.name, dict(entry.params) | files), (entry.warm_start, {})):
        if name is None:
            continue
        try:
            method = get_method(name, without_reward(params), problem.objective.name)
        except SolverUnavailableError as error:
            return str(error)
        reason = why_not(method, problem) or why_not_measured(method, params, problem, spec.model_file)
        if reason is not None:
            return f"{name} on {spec.model}, {problem.objective.name}, {problem.contiguity}: {reason}"
    return None


def _jobs(
    suite: Suite, spec: ProblemSpec, entry: MethodEntry, problem: AnyProblem, facts: Mapping[str, Any]
) -> Iterator[Job]:
    content = suite.content
    for seed in entry.seeds or content.seeds:
        files = _files(suite, spec, entry, seed)
        case = Case(
            problem=facts["problem_address"],
            method=entry.name,
            params=dict(entry.params),
            file_hashes={name: file_hash(path) for name, path in files.items()},
            warm_start=entry.warm_start,
            seed=seed,
            time_limit_s=content.time_limit_s if entry.time_limit_s is None else entry.time_limit_s,
            gap=content.gap if entry.gap is None else entry.gap,
            max_evaluations=content.max_evaluations if entry.max_evaluations is None else entry.max_evaluations,
        )
        paths = {name: str(path) for name, path in files.items()}
        told = {**facts, "label": _label(entry)}
        yield Job(case, problem, paths, told, spec.model_file, keeps_answer=content.answers)


def _label(entry: MethodEntry) -> str:
    if entry.label is not None:
        return entry.label
    params = ", ".join(f"{name}={value}" for name, value in entry.params.items())
    return entry.name + (f" ({params})" if params else "") + (f" from {entry.warm_start}" if entry.warm_start else "")
