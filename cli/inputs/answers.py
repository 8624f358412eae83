"""Problem of a result: its file, or the copy that `solve` keeps so that nothing has to be said twice.

A result does not hold its problem. `keep_problem` puts it into the cache under its hash, and whoever asks about the
result on the same machine has the very costs that it was solved with, also where a noisy profile was measured anew
meanwhile. The cache holds the latest problems only; one that is gone is built anew, from its file and options.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from placekit.advice.order import order_note
from placekit.cli.inputs.kept_problems import kept_problem
from placekit.cli.inputs.task import TaskOptions, read_task
from placekit.io.files.detect import kind_of_file, problem_of_file
from placekit.io.files.placement_json import read_placement
from placekit.io.files.result_json import read_result
from placekit.io.readers import READERS, suffixes
from placekit.model.errors import InvalidFileError, InvalidProblemError, PlacekitError
from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.solve.result import Result

_STEMS = (".problem", ".workload", ".placement", ".result", ".costs")


def result_file(path: Path) -> Path:
    """Return the result file of `path`: the file itself, or the result that `solve` wrote beside a placement."""
    if kind_of_file(path) != "placement":
        return path
    beside = result_beside(path)
    placement = read_result(beside).placement if beside.is_file() else None
    if placement is None or read_placement(path).ops != placement.as_dict():
        raise InvalidFileError(f"{path}: a placement does not say how good it is, and {beside} is not its result")
    return beside


def order_facts(path: Path) -> dict[str, str]:
    """Return as a fact what a plan loses where its order of ops is not taken; empty where nothing is known of that."""
    try:
        result = read_result(result_file(path))
    except PlacekitError:
        return {}
    problem = kept_problem(result.problem_hash)
    placed = result.placement
    if problem is None or placed is None:
        return {}
    note = order_note(problem, Placement.from_mapping(problem, placed.as_dict(), steps=placed.steps_as_dict()))
    return {} if note is None else {"order": note}


def answered_problem(file: Path, result: Result, source: Path | None, asked: TaskOptions) -> Problem:
    """Return the problem that the result in `file` is of.

    That is the kept one, if neither `source` nor any option is given. Else it is read from `source` (by default the
    file of the same name) with the options, and with the costs of the kept one if they are of that model.
    """
    kept = kept_problem(result.problem_hash)
    if kept is not None and source is None and asked == TaskOptions():
        return kept
    source = source or problem_file_of(file)
    objective = replace(asked.objective, name=asked.objective.name or _objective_of(result, source))
    platform = asked.platform.of_answer(file)
    problem = read_task(source, replace(asked, objective=objective, platform=platform), kept).problem
    if (why := result.mismatch(problem)) is not None:
        is_measured = problem.costs.provenance.get("source") == "profiled"
        anew = (
            "; noisy costs are measured anew after a while: give those of the solve by --costs" if is_measured else ""
        )
        raise InvalidProblemError(f"{file}: it is of another problem than {source} with these options: {why}{anew}")
    return problem


def _objective_of(result: Result, source: Path) -> str | None:
    """Return the result's objective, unless the file has one of its own, with its variant, that is the same."""
    problem = problem_of_file(source, kind_of_file(source))
    if problem is not None and problem.objective.name == result.objective_name:
        return None
    return result.objective_name


def problem_file_of(result: Path) -> Path:
    """Return the file with the same name that a result can be of, from its folder or the current one."""
    stem = result.name.removesuffix(".json").removesuffix(".result")
    known = (*suffixes("model"), *suffixes("problem"))
    names = [f"{stem}{suffix}" for suffix in (".problem.json", ".workload.json", *known, ".json")]
    candidates = [folder / name for folder in (result.parent, Path()) for name in names]
    for path in candidates:
        is_other = path.is_file() and path.resolve() != result.resolve()
        if is_other and ((kind := kind_of_file(path)) == "model" or kind in READERS):
            return path
    raise InvalidFileError(
        f"{result}: no problem or model of the same name ({', '.join(names)}) beside it; give it after the result"
    )


def result_beside(placement: Path) -> Path:
    """Return the file of the result that goes with a placement's."""
    return placement.with_name(f"{stem_of(placement)}.result.json")


def stem_of(path: Path) -> str:
    """Return the name of a file without the suffixes that placekit gives."""
    stem = path.stem
    for suffix in _STEMS:
        stem = stem.removesuffix(suffix)
    return stem
