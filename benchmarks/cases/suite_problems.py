"""From the models, platforms and objectives of a suite to problems.

A problem is *declared* by hashes of everything that it is made from, so that it can be recognised without being made.
The first run makes it and keeps it as ``problems/DECLARATION.problem.json`` in the folder of results; later runs read
it from there. Costs are measured once, therefore, and a zoo model is built once; and rows refer to problems that are
still there when the model files are not.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from placekit.benchmarks.cases.suite import Suite
from placekit.benchmarks.cases.suite_schema import PUBLISHED, TRAINING_PLAN, ModelEntry, ObjectiveEntry, PlatformEntry
from placekit.cost_models.base import backend_of
from placekit.cost_models.registry import COST_MODELS, get_cost_model
from placekit.io.file_hash import file_hash
from placekit.io.files.costs_json import read_costs
from placekit.io.files.detect import kind_of_file, problem_of_file
from placekit.io.files.platform_toml import read_platform
from placekit.io.files.problem_json import problem_to_dict, read_problem, write_problem
from placekit.io.models.model import ModelSource
from placekit.io.models.read_model import read_model
from placekit.io.readers import READERS
from placekit.io.reading import inside
from placekit.model.contiguity import Contiguity
from placekit.model.costs import CostTable
from placekit.model.errors import InvalidFileError, UnknownNameError
from placekit.model.platform import Platform
from placekit.model.problem import Problem
from placekit.objectives import Objective, get_objective
from placekit.training.piper_json import piper_to_dict, read_piper, write_piper
from placekit.training.problem import TrainingProblem

AnyProblem = Problem | TrainingProblem

logger = logging.getLogger(__name__)

MOST_NAMED = 3
"""Missing files that a warning names."""
DRAWN = "drawn"
"""Family of the random problems of :mod:`placekit.benchmarks.generators.drawn`."""
ADDRESS_LENGTH = 16
"""Hexadecimal digits of an address: 64 bits, enough for any number of cases."""


@dataclass(frozen=True)
class ProblemSpec:
    """A problem that a suite asks for, not yet made."""

    # model, platform: what the report calls them; the platform is None where the model file has its own, and the
    # machine of a training problem
    model: str
    platform: str | None
    objective: str | None  # what the suite calls the objective; None for the one of the problem file
    declaration: Mapping[str, Any]  # hashes of what it is made from
    build: Callable[[], AnyProblem]  # makes it
    model_file: Path | None = None  # the model that can be executed; None where there is only a problem


def address_of(value: Any) -> str:
    """Return the address of a JSON value: the start of a hash of its canonical form."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:ADDRESS_LENGTH]


def problem_address(problem: AnyProblem) -> str:
    """Return the address of a problem's content; where its costs come from does not matter, what they are does."""
    if isinstance(problem, TrainingProblem):
        return address_of(piper_to_dict(problem))
    document = problem_to_dict(problem)
    document["costs"] = {key: value for key, value in document["costs"].items() if key != "provenance"}
    return address_of(document)


def settle(spec: ProblemSpec, results: Path) -> tuple[AnyProblem, Path]:
    """Return the problem of `spec`, and the file in the folder `results` where it is kept."""
    kind = "training" if spec.objective == TRAINING_PLAN else "problem"
    path = results / "problems" / f"{address_of(spec.declaration)}.{kind}.json"
    if path.is_file():
        return (read_piper if kind == "training" else read_problem)(path), path
    problem = spec.build()
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(problem, TrainingProblem):
        write_piper(problem, path)
    else:
        write_problem(problem, path)
    return problem, path


def declared_problems(suite: Suite, results: Path) -> Iterator[ProblemSpec]:
    """Yield the problems of a suite: every model with every platform, objective and contiguity that it goes with.

    Zoo models are built below the folder `results`.
    """
    from placekit.benchmarks.generators.drawn import drawn_models

    _tell_files(suite)
    source = _Sources(suite, results)
    drawn = [model for draw in suite.content.draw for model in drawn_models(draw)]
    for entry in (*suite.content.model, *drawn):
        if entry.machines:
            yield from _training(entry, source)
            continue
        goals = [
            goal
            for goal in _goals(suite.content.objective)
            if entry.objectives is None or goal.name is None or goal.name in entry.objectives
        ]
        if entry.family is not None:
            yield from _generated(entry, goals)
        else:
            for path, model_name, declared in source.files(entry):
                yield from source.problems(path, model_name, declared, goals)


def _training(entry: ModelEntry, source: _Sources) -> Iterator[ProblemSpec]:
    from placekit.benchmarks.cases.training import training_problems

    named: list[tuple[Path | None, str, dict[str, Any]]] = list(source.files(entry)) if entry.file is not None else []
    if entry.family is not None:
        named.append((None, entry.name or entry.family, {"family": entry.family, "params": dict(entry.params)}))
    for path, name, declared in named:
        for machine, build in training_problems(entry, path):
            declaration = declared | {"machine": machine, "bandwidth": entry.bandwidth_gib_per_s}
            yield ProblemSpec(name, machine, TRAINING_PLAN, declaration, build)


@dataclass(frozen=True)
class _Goal:
    """Objective, by the name that the suite gives it, and contiguity; None for what the problem itself says."""

    name: str | None = None
    objective: Objective | None = None
    contiguity: str | None = None

    def declared(self) -> dict[str, Any]:
        """Return what decides the goal."""
        objective = self.objective
        return {
            "objective": None if objective is None else {"name": objective.name, "params": objective.identity()},
            "contiguity": self.contiguity,
        }


def _goals(entries: tuple[ObjectiveEntry, ...]) -> list[_Goal]:
    """Return the objectives of a suite, each with every contiguity."""
    found = []
    for entry in entries:
        objective = get_objective(entry.name, entry.params)
        for contiguity in entry.contiguity or (None,):
            if contiguity is not None and contiguity not in set(Contiguity):
                raise UnknownNameError(f"no contiguity {contiguity!r}; it is one of {', '.join(Contiguity)}")
            found.append(_Goal(entry.name, objective, contiguity))
    return found or [_Goal()]


def _generated(entry: ModelEntry, goals: list[_Goal]) -> Iterator[ProblemSpec]:
    assert entry.family is not None
    family, params = entry.family, dict(entry.params)
    for seed in entry.seeds:
        for goal in goals:
            declaration = {"family": family, "params": params, "seed": seed} | goal.declared()
            model = entry.name or f"{family}-{params.get('num_ops')}"
            model = f"{model}-{seed}" if len(entry.seeds) > 1 else model
            yield ProblemSpec(model, None, goal.name, declaration, partial(_generate, family, params, seed, goal))


def _generate(family: str, params: dict[str, Any], seed: int, goal: _Goal) -> Problem:
    """Return a problem of a family; the seed of a drawn one is its number."""
    from placekit.benchmarks.cases.training import params_checked
    from placekit.benchmarks.generators.drawn import draw_problem
    from placekit.benchmarks.generators.families import generate
    from placekit.benchmarks.generators.shops import SHOPS

    objective = goal.objective
    with params_checked(family, params):
        if family == DRAWN:
            drawn: dict[str, Any] = {"split": "test", "seed": 0, "objective": objective and objective.name} | params
            made = draw_problem(drawn.pop("split"), drawn.pop("seed"), seed, **drawn)
        elif family in SHOPS:
            made = SHOPS[family](seed=seed, **params)
        else:
            made = generate(family, seed=seed, objective=objective, **params)
    if objective is not None and made.objective != objective:
        made = made.replace(objective=objective)
    return made if goal.contiguity is None else made.replace(contiguity=Contiguity(goal.contiguity))


class _Sources:
    """Reads models and costs at most once per suite, and only when a problem has to be made."""

    def __init__(self, suite: Suite, results: Path) -> None:
        self._suite = suite
        self._results = results
        self._platforms = suite.content.platform or (PlatformEntry(name="default"),)
        self._read_model = cache(self._read)
        self._costs_of = cache(self._costs)

    def files(self, entry: ModelEntry) -> Iterator[tuple[Path, str, dict[str, Any]]]:
        """Yield path, name and declaration of the model files of an entry; zoo models get a path of their own."""
        if entry.zoo is not None:
            from placekit.zoo.registry import entry_of

            values = {**entry_of(entry.zoo).settle(entry.params)}
            for seed in entry.seeds:
                declared = {"zoo": entry.zoo, "params": values, "seed": seed}
                if entry.format != "xml":
                    declared["format"] = entry.format
                name = entry.name or entry.zoo
                name = f"{name}-{seed}" if len(entry.seeds) > 1 else name
                yield self._results / "models" / f"{entry.zoo}-{address_of(declared)}.{entry.format}", name, declared
            return
        assert entry.file is not None
        folder = self._suite.folder
        paths = self._matching(entry.file) if _has_wildcards(entry.file) else [self._suite.path(entry.file)]
        paths = [path for path in paths if path.is_file()]
        if not paths:
            if not entry.optional:
                raise InvalidFileError(f"suite {self._suite.name!r}: there is no file {entry.file} in {folder}")
            if _has_wildcards(entry.file):
                logger.warning("suite %s: left out %s, which is not in %s", self._suite.name, entry.file, folder)
        for path in paths:
            name = path.stem.removesuffix(".problem").removesuffix(".workload")
            yield path, entry.name if entry.name and len(paths) == 1 else name, {"file": _file_hash(path)}

    def _matching(self, pattern: str) -> list[Path]:
        try:
            return sorted(self._suite.folder.glob(pattern))
        except (ValueError, NotImplementedError, re.error) as error:
            raise InvalidFileError(f"suite {self._suite.name!r}: file {pattern!r} is no pattern: {error}") from None

    def problems(self, path: Path, model: str, declared: dict[str, Any], goals: list[_Goal]) -> Iterator[ProblemSpec]:
        """Yield the problems of one model file."""
        kind = kind_of_file(path)
        if kind in READERS:
            for goal in goals:
                build = partial(self._from_file, path, kind, goal)
                yield ProblemSpec(model, None, goal.name, declared | goal.declared(), build)
            return
        if kind != "model":
            raise InvalidFileError(f"{path}: a {kind} file is no model of a suite")
        zoo = json.dumps(declared) if "zoo" in declared else None
        for platform in self._platforms:
            for goal in goals:
                declaration = declared | {"platform": self._declared(platform, model)} | goal.declared()
                build = partial(self._from_model, path, zoo, model, platform, goal)
                yield ProblemSpec(model, platform.name, goal.name, declaration, build, path)

    def _declared(self, platform: PlatformEntry, model: str) -> dict[str, Any]:
        """Return what decides the platform and the costs; files count by their content."""
        declared = platform.model_dump(exclude={"name"})
        if platform.file is not None:
            declared["file"] = _file_hash(self._suite.home / platform.file)
        if platform.costs != PUBLISHED and platform.costs not in COST_MODELS:
            declared["costs"] = _file_hash(self._costs_file(platform, model))
        return declared

    def _costs_file(self, platform: PlatformEntry, model: str) -> Path:
        return inside(self._suite.folder, platform.costs.replace("{model}", model), f"suite {self._suite.name!r}")

    @staticmethod
    def _from_file(path: Path, kind: str, goal: _Goal) -> Problem:
        problem = problem_of_file(path, kind)
        assert problem is not None  # of a kind that has one
        if goal.objective is None:
            return problem
        return problem.replace(objective=goal.objective, contiguity=goal.contiguity)

    def _from_model(self, path: Path, zoo: str | None, model: str, platform: PlatformEntry, goal: _Goal) -> Problem:
        source = self._read_model(path, zoo)
        devices, costs = self._costs_of(path, zoo, model, platform)
        chosen = {} if goal.objective is None else {"objective": goal.objective}
        return source.problem(devices, costs, contiguity=goal.contiguity, **chosen)

    def _read(self, path: Path, zoo: str | None) -> ModelSource:
        if zoo is not None and not path.is_file():
            from placekit.zoo import build

            declared = json.loads(zoo)
            path.parent.mkdir(parents=True, exist_ok=True)
            return build(declared["zoo"], path, seed=declared["seed"], **declared["params"]).source
        return read_model(path)

    def _costs(self, path: Path, zoo: str | None, model: str, entry: PlatformEntry) -> tuple[Platform, CostTable]:
        source = self._read_model(path, zoo)
        if entry.costs == PUBLISHED:
            from placekit.cost_models.accelerator import two_kind_costs

            return two_kind_costs(source, json.loads(zoo)["zoo"] if zoo is not None else model)
        platform = self._platform(entry, source)
        if entry.costs in COST_MODELS:
            return platform, get_cost_model(entry.costs, platform).cost_table(source, platform)
        costs = read_costs(str(self._costs_file(entry, model)), source.graph)
        return platform, costs.for_kinds(platform.kinds)

    def _platform(self, entry: PlatformEntry, source: ModelSource) -> Platform:
        if entry.file is not None:
            return read_platform(self._suite.home / entry.file)
        from placekit.cost_models.openvino.devices import core_groups

        if entry.groups is not None:
            return core_groups(entry.groups, precision=entry.precision)
        assert isinstance(entry.precision, str)  # several go with groups
        return backend_of(source).platform(entry.devices, entry.precision)


def _has_wildcards(pattern: str) -> bool:
    return any(c in pattern for c in "*?[")


def _tell_files(suite: Suite) -> None:
    """Warn of optional files that are not there, and of files that are not those of their origin."""
    content = suite.content
    entries = [entry for entry in content.model if entry.file and not _has_wildcards(entry.file)]
    optional = [entry.file for entry in entries if entry.file and entry.optional]
    missing = [name for name in optional if not suite.path(name).is_file()]
    where = f" of {content.origin}" if content.origin else ""
    if missing:
        told = ", ".join(missing[:MOST_NAMED]) + (", ..." if len(missing) > MOST_NAMED else "")
        logger.warning(
            "suite %s: left out what needs %d of %d files%s, which are not in %s: %s",
            *(suite.name, len(missing), len(optional), where, suite.folder, told),
        )
    for entry in entries:
        path = suite.path(entry.file or "")
        if entry.sha256 is not None and path.is_file() and not _sha256(path).startswith(entry.sha256):
            logger.warning("suite %s: %s is not the file%s: its sha256 differs", suite.name, path, where)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _file_hash(path: Path) -> str:
    """Return the hash of a file's content, and for an IR of its weights, too."""
    weights = path.with_suffix(".bin")
    parts = (path, weights) if path.suffix == ".xml" and weights.is_file() else (path,)
    return "-".join(map(file_hash, parts))
