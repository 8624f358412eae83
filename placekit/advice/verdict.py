"""Verdict on a split: a comparison with every simpler way of running the model, all scored by the judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from placekit.advice.alternatives import alternatives_of, form_of
from placekit.advice.decision import SAMPLE, Accuracy, Evidence, decide
from placekit.advice.rules import rules_of
from placekit.model.contiguity import Contiguity
from placekit.model.costs import MODELLED
from placekit.model.errors import InvalidProblemError
from placekit.model.placement import Placement, Violation
from placekit.objectives.evaluate import evaluate
from placekit.objectives.serial_latency import SerialLatency
from placekit.objectives.throughput import Throughput
from placekit.solve.result import Result, Status
from placekit.solve.split_verdict import Alternative, Verdict
from placekit.solve.stop import StopReason

if TYPE_CHECKING:
    from placekit.model.problem import Problem

HERE = "to know, measure: `placekit time` both ways, or `placekit profile --no-cache` the costs again"
ELSEWHERE = "to know, measure with all devices there: `placekit profile` the costs, or `placekit time` both ways"
"""What decides a verdict that is not known, on this machine or on one that has the modelled devices."""

APART_ERROR = 0.17
"""Relative error of what groups of cores do at once, from costs of each group alone: the mean over pipelines that were
timed (docs/results/timing.md). They share caches and memory, which no cost of one group shows."""


def asked_of(problem: Problem | Result, answer: Placement | Result | None) -> tuple[Problem, Placement | Result]:
    """Return a problem and an answer to it: both that are given, or those of a result that holds its problem."""
    if isinstance(problem, Result):
        return problem.own_problem, problem if answer is None else answer
    if answer is None:
        raise InvalidProblemError(f"problem {problem.name!r}: give a placement or a result after it")
    return problem, answer


def verdict(
    problem: Problem | Result, answer: Placement | Result | None = None, whole: Problem | None = None
) -> Verdict:
    """Compare a placement with every simpler way of running the model.

    Parameters
    ----------
    problem
        The problem, or a result that `solve` returned, which holds its problem.
    answer
        A placement, or a result. A result also has the bound, or the reason why there is no placement.
    whole
        The same model on one device of all cores of the machine; None if its costs are not known. Then the number in
        the earlier verdict of a result is used again.

    Returns
    -------
    Verdict
        Every number in it is the judge's.

    Raises
    ------
    InvalidProblemError
        A placement of other ops or devices.
    """
    problem, answer = asked_of(problem, answer)
    placement, bound, why, before = None, None, None, None
    if isinstance(answer, Placement):
        placement = answer
    else:
        placement, bound, before = answer.placement, answer.lower_bound or 0.0, answer.verdict
        why = _why_none(answer.violations, str(answer.status)) if placement is None else None
    others = alternatives_of(problem, whole)
    if whole is None and before is not None:
        others = (*others, *(each for each in before.alternatives if each.form == "all cores"))
    mine = None
    if placement is not None:
        judged = evaluate(problem, placement)
        form = form_of(placement)
        used = sorted(set(placement.device_of_op.tolist()))
        name = ", ".join(placement.team_name(d) for d in used)
        mine = Alternative(name, form, judged.objective if judged.is_feasible else None, None, placement)
        mine = next((each for each in others if each.form == "device" and _is_same(each.placement, placement)), mine)
        if not judged.is_feasible:
            why, mine = _why_none(judged.violations, "not feasible"), None
    costs = problem.costs
    is_apart = problem.objective.has_pipeline and any(each.form == "all cores" for each in others)
    has_apart_error = is_apart and "calibration" not in costs.provenance
    latency, per_sample = (None, None) if mine is None else _other_times(problem, mine)
    told = costs.provenance
    remedy = ELSEWHERE if costs.error_of == MODELLED else HERE
    evidence = Evidence(
        Accuracy(costs.error, kind=costs.error_of),
        Accuracy(APART_ERROR if has_apart_error else None, "the error of costs of cores that were measured apart"),
        bound_s=bound, is_rate=problem.objective.has_pipeline, latency_s=latency,
        per_sample_s=per_sample, why_none=why, sample=SAMPLE if problem.served is None else "batch of requests",
        costs=_costs_told(told), rules=rules_of(problem), remedy=remedy,
    )  # fmt: skip
    return decide(mine, others, evidence)


def with_verdict(result: Result, problem: Problem, whole: Problem | None = None) -> Result:
    """Return `result` with its verdict, and with a simpler placement if that is exactly as good.

    A solver stops at the first optimal placement that it meets, which may split a model for nothing.
    """
    told = verdict(problem, result, whole)
    simpler = _as_good(result, problem, told)
    if simpler is None:
        return replace(result, verdict=told)
    judged = evaluate(problem, simpler)
    schedule = None if judged.score is None else judged.score.schedule
    found = {"objective": judged.objective, "device_loads": judged.device_loads, "schedule": schedule}
    result = replace(result, placement=simpler, **found)  # type: ignore[arg-type]  # fields by name
    if result.gap is not None and result.gap <= result.tolerance:
        result = replace(result, status=Status.OPTIMAL, stop_reason=StopReason.PROVED)
    return replace(result, verdict=verdict(problem, result, whole))


def _as_good(result: Result, problem: Problem, told: Verdict) -> Placement | None:
    """Return the placement that a verdict advises, if that is simpler than the result's and no worse."""
    mine, objective, chosen = result.placement, result.objective, told.chosen
    if mine is None or objective is None or chosen is None or chosen.form == form_of(mine):
        return None
    if chosen.placement is None or chosen.placement.device_names != mine.device_names:
        return None
    judged = evaluate(problem, chosen.placement)
    if not judged.is_feasible or judged.objective is None:
        return None
    return chosen.placement if (result.lower_bound or 0.0) <= judged.objective <= objective else None


def _costs_told(provenance: Mapping[str, Any]) -> str:
    """Return words for the origin of analytic costs, which have no known error; empty for others."""
    if provenance.get("source") != "analytic":
        return ""
    if measured := provenance.get("measured"):
        return f"costs are modelled, with measured rates of {', '.join(measured)}"
    return "costs are modelled, not measured"


def _is_same(one: Placement | None, other: Placement) -> bool:
    return one is not None and one.as_dict() == other.as_dict()


def _why_none(violations: Sequence[Violation], status: str) -> str:
    what = "No placement satisfies the constraints" if status == "infeasible" else "No feasible placement was found"
    return f"{what}: {violations[0].message}" if violations else what


def serial_latency_s(problem: Problem, placement: Placement) -> float | None:
    """Return the seconds of one sample that goes through the parts of a placement one after another.

    The slowest member of a team takes the sample. None for a training graph, and if the serial latency does not know a
    feature of the problem, such as direct links.
    """
    if problem.graph.is_backward.any():
        return None
    device = placement.device_of_op.copy()
    for members in placement.teams:
        mine = device == members[0]
        kinds = problem.platform.kind_of_device[list(members)]
        slowest = int(np.argmax(problem.costs.op_time_s[mine][:, kinds].sum(axis=0)))
        device[mine] = members[slowest]
    return _rescored(problem, SerialLatency(), device)


def _rescored(problem: Problem, objective: Any, device_of_op: Any) -> float | None:
    try:
        other = problem.replace(objective=objective, contiguity=Contiguity.NONE)
    except InvalidProblemError:  # direct links, say, that the objective does not know
        return None
    return evaluate(other, Placement.of(other, device_of_op)).objective


def _other_times(problem: Problem, mine: Alternative) -> tuple[float | None, float | None]:
    """Return the latency of one sample, of a placement for throughput; seconds per sample, of one for latency."""
    placement = mine.placement
    if placement is None or problem.graph.is_backward.any():
        return None, None
    if problem.objective.has_pipeline:
        return serial_latency_s(problem, placement), None
    return None, _rescored(problem, Throughput(), placement.device_of_op)
