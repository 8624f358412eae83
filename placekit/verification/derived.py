"""Fields of a result that follow from others: what its file tells, compared with what it should tell.

Loads, schedule and verdict are computed anew by :func:`placekit.evaluate`, whose objective is compared with that of the
second judge elsewhere.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from placekit.advice.verdict import verdict
from placekit.model.errors import PlacekitError
from placekit.model.placement import Placement
from placekit.objectives.evaluate import evaluate
from placekit.solve.result import Status
from placekit.solve.split_verdict import NOT_KNOWN
from placekit.solve.stop import StopReason, relative_gap

if TYPE_CHECKING:
    from placekit.model.problem import Problem
    from placekit.solve.result import Result

TOLERANCE = 1e-9
"""Relative distance that numbers may have from those computed anew, which may be summed in another order."""
_GAP_TOLERANCE = 1e-12
_FIGURE = re.compile(r"\d+(?:\.\d+)?")


def differences(document: Mapping[str, Any], result: Result, problem: Problem) -> Iterator[str]:
    """Yield every field of `document`, the JSON values of `result`, that contradicts the others, with both values."""
    gap, follows = document["gap"], relative_gap(result.objective, result.lower_bound)
    if not _is_near(gap, follows, _GAP_TOLERANCE):
        yield f"gap is {gap}, objective and bound give {'none' if follows is None else f'{follows:.6g}'}"
    if document["objective_name"] != problem.objective.name:
        yield f"objective_name is {document['objective_name']!r}, the problem's is {problem.objective.name!r}"
    if result.problem_hash == problem.content_hash and (terms := document.get("problem_terms")) is not None:
        yield from _differing("problem_terms", terms, problem.terms)
    is_proved = result.status in (Status.OPTIMAL, Status.INFEASIBLE)
    if result.stop_reason is StopReason.PROVED and not is_proved:
        yield f"stop_reason is proved, status is {result.status}"
    if result.placement is not None and result.violations:
        yield f"violations has {len(result.violations)}, with a placement there are none"
    yield from _history(document, result)
    yield from _of_placement(document, result, problem)


def _history(document: Mapping[str, Any], result: Result) -> Iterator[str]:
    """Yield what the trace, the stages and the compared problems have that is better than the result."""
    lines = [(f"trace[{at}]", line[1], line[2]) for at, line in enumerate(document["trace"])]
    for name in ("stages", "compared"):
        rows = document.get("info", {}).get(name, ())
        for at, row in enumerate(rows if isinstance(rows, Sequence) else ()):
            if isinstance(row, Mapping):
                bound = row.get("bound_s") if name == "stages" else None  # of another problem, which was compared
                lines.append((f"info.{name}[{at}]", row.get("objective_s"), bound))
    for where, objective, bound in lines:
        if _is_below(objective, math.inf if result.objective is None else result.objective):
            yield f"{where} has the objective {objective}, the result has {result.objective}"
        if _is_below(-math.inf if result.lower_bound is None else result.lower_bound, bound):
            yield f"{where} has the bound {bound}, the result has {result.lower_bound}"
    times = [line[0] for line in document["trace"]]
    if times != sorted(times) or (times and times[0] < 0):
        yield "trace goes back in time"


def _of_placement(document: Mapping[str, Any], result: Result, problem: Problem) -> Iterator[str]:
    """Yield the loads, the schedule and the verdict that are not those of the placement."""
    if result.placement is None:
        return
    try:
        placement = Placement.from_mapping(problem, result.placement.as_dict(), steps=result.placement.steps_as_dict())
        judged = evaluate(problem, placement)
    except PlacekitError:  # the placement is of another problem, which its own checks say
        return
    loads = {load.device: load.to_dict() for load in judged.device_loads}
    yield from _differing("devices", {each["device"]: each for each in document["devices"]}, loads)
    yield from _differing(
        "device_loads", document["device_loads"], {name: each["load_s"] for name, each in loads.items()}
    )
    schedule = None if judged.score is None else judged.score.schedule
    if document.get("schedule") is not None and schedule is not None:
        yield from _differing("schedule", document["schedule"], schedule.to_dict())
    told = document.get("verdict")
    if told is not None and judged.is_feasible:
        yield from _verdict(told, verdict(problem, replace(result, placement=placement)).to_dict())


def _verdict(told: Mapping[str, Any], follows: dict[str, Any]) -> Iterator[str]:
    """Yield the parts of a verdict that differ. Words may be those of another version, figures may not."""
    is_older = follows["choice"] == NOT_KNOWN != told["choice"]  # earlier versions advised a form within the error
    words = ("choice", "use", "split", "error", "within_error", "sentence")
    for name in follows.keys() - {"sentence", *(words if is_older else ())}:
        yield from _differing(f"verdict.{name}", told.get(name), follows[name])
    if told["split"] != (told["choice"] == "split"):
        yield f"verdict.split is {told['split']}, choice is {told['choice']}"
    figures = set(_FIGURE.findall(told["sentence"])) - set(_FIGURE.findall(follows["sentence"]))
    is_other = told["sentence"].split(":")[0] != follows["sentence"].split(":")[0]
    if not is_older and (figures or is_other):
        yield f"verdict.sentence is {told['sentence']!r}, the numbers give {follows['sentence']!r}"


def _differing(where: str, told: object, follows: object) -> Iterator[str]:
    """Yield the places below `where` at which two JSON values differ; of a missing one it is None."""
    if isinstance(told, Mapping) and isinstance(follows, Mapping):
        for name in sorted({*told, *follows}):
            yield from _differing(f"{where}.{name}", told.get(name), follows.get(name))
    elif isinstance(told, list) and isinstance(follows, list) and len(told) == len(follows):
        for at, (one, other) in enumerate(zip(told, follows, strict=True)):
            yield from _differing(f"{where}[{at}]", one, other)
    elif not (told == follows or _is_near(told, follows, TOLERANCE)):
        yield f"{where} is {told}, it follows {follows}"


def _is_near(one: object, other: object, tolerance: float) -> bool:
    if one is None or other is None:
        return one is other
    if isinstance(one, bool) or isinstance(other, bool) or not all(isinstance(x, int | float) for x in (one, other)):
        return False
    return math.isclose(one, other, rel_tol=tolerance, abs_tol=1e-15)  # type: ignore[arg-type]  # numbers, as checked


def _is_below(one: float | None, other: float | None) -> bool:
    """Return True if `one` is below `other` by more than rounding."""
    if one is None or other is None or math.isinf(one) or math.isinf(other):
        return one is not None and other is not None and one < other
    return one < other - TOLERANCE * abs(other)
