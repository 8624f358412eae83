"""Check a result against its problem: the placement by a second judge, the bound by its certificate."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from placekit.model.device_groups import JOINT
from placekit.model.errors import InvalidCertificateError
from placekit.model.reprs import short_repr
from placekit.objectives import Makespan, OffloadLatency, SerialLatency
from placekit.solve.certificates import Certificate, Prices
from placekit.solve.result import MOST_DIFFERENCES, SOLVER_TOLERANCE, Status
from placekit.verification.derived import differences
from placekit.verification.exact import ExactProblem, rounded
from placekit.verification.exhaustive import MAX_STEPS, enumerate_all
from placekit.verification.heads import longest_path
from placekit.verification.ideals import reaches_below
from placekit.verification.judge import CONSTRAINTS, broken_constraints, objective
from placekit.verification.prices import NOTHING_FEASIBLE, Bound, with_subgraphs
from placekit.verification.proofs import fastest_everywhere, largest_op, proven, rounded_up, step_of
from placekit.verification.runs import runs_below
from placekit.verification.series import OpenCertificateError

if TYPE_CHECKING:
    from placekit.model.problem import Problem
    from placekit.solve.result import Result

OBJECTIVE_TOLERANCE = 1e-9
"""Relative distance that the objective in a result may have from the exact one: it is a sum of rounded floats."""
BOUND_TOLERANCE = Fraction(1, 10**12)
"""Relative; by so much a bound may exceed what is proven, because it is compared with objectives that were rounded."""


class Outcome(StrEnum):
    """Outcome of a check."""

    CHECKED = "checked"
    """True, and found so independently of the method."""
    TRUSTED = "trusted"
    """Nothing here can tell: it is as good as the one that said so."""
    FAILED = "failed"
    """Not true, or not of this problem."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line: what was looked at, what came of it, and how."""

    subject: str
    outcome: Outcome
    detail: str


@dataclass(frozen=True)
class Verification:
    """All checks of a result."""

    checks: tuple[Check, ...]  # one entry per subject
    # objective, lower_bound: seconds, as recomputed, and as far as it was checked; None where there is nothing, or
    # nothing was checked
    objective: float | None
    lower_bound: float | None
    gap: float | None  # relative gap between the recomputed objective and the result's bound; None if either is missing

    __repr__ = short_repr

    @property
    def is_consistent(self) -> bool:
        """True if no check failed; what was trusted may be wrong all the same."""
        return all(check.outcome is not Outcome.FAILED for check in self.checks)

    def __getitem__(self, subject: str) -> Check:
        """Return the check of `subject`; KeyError if there is none."""
        for check in self.checks:
            if check.subject == subject:
                return check
        raise KeyError(subject)

    def to_dict(self) -> dict[str, Any]:
        """Return the checks as JSON values."""
        return {
            "schema": "placekit/verification/1",
            "is_consistent": self.is_consistent,
            "objective": self.objective,
            "checked_lower_bound": self.lower_bound,
            "gap": self.gap,
            "checks": [{**asdict(check), "outcome": str(check.outcome)} for check in self.checks],
        }

    def __str__(self) -> str:
        width = max(len(check.subject) for check in self.checks)
        return "\n".join(f"{check.subject:<{width}}  {check.outcome:<7}  {check.detail}" for check in self.checks)


def verify(
    result: Result,
    problem: Problem | None = None,
    *,
    max_steps: int = MAX_STEPS,
    document: Mapping[str, Any] | None = None,
) -> Verification:
    """Check `result` against `problem` without trusting the method that made it.

    The placement is scored by a second judge, in exact arithmetic; every constraint is looked at. The bound is checked
    by the result's certificate, else by what can be proven from scratch: the largest op, the longest path, a program
    over ideals, and enumeration, as far as the problem is small enough. A bound that nothing here can prove is
    "trusted", with the name of what claims it.

    Parameters
    ----------
    result
        The result.
    problem
        The problem that it is said to be of; by default the one that a result of `solve` holds.
    max_steps
        Steps of the enumeration at most; 0 for none.
    document
        JSON values of the result's file, whose fields are compared with those that follow; those of `result` if None.

    Raises
    ------
    UnsupportedProblemError
        An objective that has no formula here.

    Examples
    --------
    >>> import placekit as pk
    >>> graph = pk.OpGraph.from_edges(["a", "b", "c"], [("a", "b"), ("b", "c")])
    >>> costs = pk.CostTable(("cpu",), [[2.0], [1.0], [1.0]], [[0.0], [0.0]], [0, 0, 0])
    >>> problem = pk.Problem(graph, pk.Platform.of(cpu=2), costs)
    >>> print(verify(pk.solve(problem, method="dp"), problem)["bound"].outcome)
    checked
    """
    problem = result.own_problem if problem is None else problem
    exact = ExactProblem.of(problem)
    checks = [_same_problem(result, problem)]
    value: Fraction | None = None
    if result.placement is not None:
        found, value = _placement(exact, result)
        checks += found
    proved: Fraction | None = None
    if result.lower_bound is not None:
        check, proved = _bound(exact, result, max_steps)
        checks.append(check)
    if result.status is Status.INFEASIBLE:
        checks.append(_infeasible(exact, result, max_steps))
    gap: float | None = None
    if value is not None and result.lower_bound is not None:
        gap = _relative(value - Fraction(result.lower_bound), value)
        checks.append(_status(result, gap))
    elif result.status is Status.OPTIMAL:
        checks.append(Check("status", Outcome.FAILED, "optimal, without an objective that holds and a bound"))
    checks.append(_fields(result.to_dict() if document is None else document, result, problem))
    return Verification(
        tuple(checks),
        None if value is None else rounded(value),
        None if proved is None else rounded(proved),
        None if gap is None else max(gap, 0.0),
    )


def certifies(certificate: Certificate, bound_s: float | None, problem: Problem) -> bool:
    """Return whether `certificate` proves that no objective is below `bound_s` seconds; None: there is no placement."""
    try:
        exact = ExactProblem.of(problem)
        value = proven(exact.for_bounds, certificate)
        return value is NOTHING_FEASIBLE if bound_s is None else _reaches(exact, value, Fraction(bound_s))
    except (InvalidCertificateError, OpenCertificateError):
        return False


def _relative(difference: Fraction, value: Fraction) -> float:
    return rounded(difference / abs(value)) if value else float(difference != 0)


def _reaches(exact: ExactProblem, value: Bound, claimed: Fraction) -> bool:
    """Return whether no objective is below `claimed` if none is below `value`."""
    if value is NOTHING_FEASIBLE or Fraction(value) * (1 + BOUND_TOLERANCE) >= claimed:
        return True
    steps = rounded_up(Fraction(value), step_of(exact.for_bounds))  # of that problem it is a bound, too
    return rounded_up(steps, step_of(exact)) * (1 + BOUND_TOLERANCE) >= claimed


def _same_problem(result: Result, problem: Problem) -> Check:
    mine = problem.content_hash
    size = f"{problem.graph.num_ops} ops on {problem.platform.num_devices} devices"
    if (detail := result.mismatch(problem)) is not None:
        return Check("problem", Outcome.FAILED, detail)
    if result.problem_hash is None:
        return Check(
            "problem", Outcome.TRUSTED, f"{problem.name}, {size}: the result does not say which problem it is of"
        )
    return Check("problem", Outcome.CHECKED, f"{problem.name}, {size}, {mine}")


def _placement(exact: ExactProblem, result: Result) -> tuple[list[Check], Fraction | None]:
    placement = result.placement
    assert placement is not None  # the caller looks first
    ops, devices = exact.problem.graph.op_names, exact.problem.platform.device_names
    device_of, step_of = placement.as_dict(), placement.steps_as_dict()
    if device_of.keys() != set(ops):
        other = sorted(device_of.keys() ^ set(ops))[0]
        return [Check("placement", Outcome.FAILED, f"op {other!r} is not in both the result and the problem")], None
    number = {name: d for d, name in enumerate(devices)}
    held = {name: [name] if name in number else name.split(JOINT) for name in device_of.values()}
    unknown = {member for members in held.values() for member in members} - set(devices)
    if unknown:
        return [Check("placement", Outcome.FAILED, f"the problem has no device {min(unknown)!r}")], None
    parts = {name: tuple(sorted(number[member] for member in members)) for name, members in held.items()}
    twice = [d for members in set(parts.values()) for d in members]
    if len(twice) != len(set(twice)):
        shared = next(devices[d] for d in twice if twice.count(d) > 1)
        return [Check("placement", Outcome.FAILED, f"device {shared!r} is in a team twice, or in two teams")], None
    device = [parts[device_of[op]][0] for op in ops]
    teams = sorted({members for members in parts.values() if len(members) > 1})
    step = None if step_of is None else [step_of[op] for op in ops]
    checks = [Check("placement", Outcome.CHECKED, f"every op has one of {len(devices)} devices")]
    broken = dict(broken_constraints(exact, device, step, teams))
    for constraint in CONSTRAINTS:
        if constraint in broken:
            checks.append(Check(constraint, Outcome.FAILED, broken[constraint]))
        elif (kept := _kept(exact, constraint, len(teams))) is not None:
            checks.append(Check(constraint, Outcome.CHECKED, kept))
    is_scored = "support" not in broken and (not teams or exact.team_rule != "off")
    value = None if not is_scored else objective(exact, device, step, teams)
    if value is None:
        return [*checks, Check("objective", Outcome.FAILED, "the placement cannot be executed")], None
    claimed = result.objective
    assert claimed is not None  # a result with a placement has one
    off = _relative(abs(Fraction(claimed) - value), value)
    detail = f"{rounded(value)!r} s; the result says {claimed!r} s, relative difference {off:.1e}"
    outcome = Outcome.CHECKED if off <= OBJECTIVE_TOLERANCE else Outcome.FAILED
    return [*checks, Check("objective", outcome, detail)], value


def _kept(exact: ExactProblem, constraint: str, num_teams: int) -> str | None:
    """Return in words what a placement that keeps a constraint keeps; None if the problem does not ask for it."""
    variant = exact.problem.objective
    if constraint == "support":
        return "every op is supported where it is"
    if constraint == "memory":
        limited = sum(limit is not None for limit in exact.limit)
        return f"within the limits of {limited} of {len(exact.limit)} devices" if limited else None
    if constraint == "pin":
        pins = sum(pin is not None for pin in exact.pinned)
        return f"{pins} ops are where they are pinned" if pins else None
    if constraint == "colocation":
        bound = exact.num_ops - (max(exact.class_of) + 1)
        return "ops that must share a device do" if bound else None
    if constraint == "team":
        return f"{num_teams} teams of devices that may be one" if num_teams else None
    if constraint == "contiguity":
        return None if exact.problem.contiguity == "none" else f"the parts are {exact.problem.contiguity}"
    if constraint == "order":
        return "no device waits for itself" if isinstance(variant, Makespan | OffloadLatency) else None
    if isinstance(variant, OffloadLatency):
        return f"at most {variant.calls_per_device} calls per accelerator"
    return None


def _bound(exact: ExactProblem, result: Result, max_steps: int) -> tuple[Check, Fraction | None]:
    """Return the check of the bound, and the bound if it was checked."""
    assert result.lower_bound is not None  # the caller looks first
    claimed, name = Fraction(result.lower_bound), result.bound_name or "not named"
    said, certificate, lacks = f"{result.lower_bound!r} s ({name})", result.certificate, "no certificate"
    if certificate is not None:
        by = f"certificate {certificate.kind}"
        try:
            value = proven(exact.for_bounds, certificate, max_steps)
            if _reaches(exact, value, claimed):
                return Check("bound", Outcome.CHECKED, f"{said} by certificate: {certificate.kind}"), claimed
            return Check(
                "bound", Outcome.FAILED, f"{said}: {by} proves no more than {rounded(Fraction(value))!r} s"
            ), None
        except InvalidCertificateError as error:
            return Check("bound", Outcome.FAILED, f"{said}: {by}: {error}"), None
        except OpenCertificateError as error:
            lacks = f"{by}: {error}"
    for how, value in _from_scratch(exact.for_bounds):
        if _reaches(exact, value, claimed):
            return Check("bound", Outcome.CHECKED, f"{said} by {how}"), claimed
    below = claimed * (1 - BOUND_TOLERANCE)
    for reached, what, is_relaxed in _searches(exact, below):
        if reached is False:
            return Check("bound", Outcome.CHECKED, f"{said} by {what}"), claimed
        if reached and not is_relaxed:
            return Check("bound", Outcome.FAILED, f"{said}: a placement below it exists ({what})"), None
    found = enumerate_all(exact, below, max_steps)
    if found.device is not None:
        better = objective(exact, found.device, found.step)
        where = ", ".join(exact.problem.platform.device_names[d] for d in found.device[:12])
        detail = f"{said}: the placement [{where}] takes {rounded(better or Fraction(0))!r} s"
        return Check("bound", Outcome.FAILED, detail), None
    if found.is_complete:
        return Check("bound", Outcome.CHECKED, f"{said} by enumeration"), claimed
    return Check("bound", Outcome.TRUSTED, f"{said}: {lacks}, too large to enumerate"), None


def _searches(exact: ExactProblem, below: Fraction) -> Iterator[tuple[bool | None, str, bool]]:
    """Yield whether a search finds a placement below a value, its name, and whether it leaves out direct links."""
    yield runs_below(exact, below), "all runs of the chain", False
    if exact.has_links:
        yield runs_below(exact.without_links, below), "all runs of the chain", True
    yield reaches_below(exact.without_links, below), "all ideals", exact.has_links


def _from_scratch(exact: ExactProblem) -> Iterator[tuple[str, Bound]]:
    """Yield what can be proven quickly without a certificate."""
    yield "no time being negative", Fraction(0)
    if any(not devices for devices in exact.allowed):
        yield "nothing being feasible", NOTHING_FEASIBLE
        return
    if isinstance(exact.problem.objective, SerialLatency):
        yield "the fastest device for every op", with_subgraphs(exact, fastest_everywhere(exact))
    elif isinstance(exact.problem.objective, OffloadLatency | Makespan):
        yield "the longest path", exact.seconds(longest_path(exact))
    yield "the largest op", largest_op(exact)


def _infeasible(exact: ExactProblem, result: Result, max_steps: int) -> Check:
    if result.certificate is not None:
        kind = result.certificate.kind
        try:
            if proven(exact.for_bounds, result.certificate, max_steps) is NOTHING_FEASIBLE:
                return Check("infeasible", Outcome.CHECKED, f"by certificate: {kind}")
        except (InvalidCertificateError, OpenCertificateError) as error:
            return Check("infeasible", Outcome.FAILED, f"certificate {kind}: {error}")
        return Check("infeasible", Outcome.FAILED, f"certificate {kind} does not prove it")
    for ops, devices in zip(exact.groups, exact.allowed, strict=True):
        if not devices:
            name = exact.problem.graph.op_names[ops[0]]
            detail = f"no device takes op {name!r} and what shares its device"
            return Check("infeasible", Outcome.CHECKED, detail)
    if None not in exact.limit and proven(exact, _all_bytes(exact)) is NOTHING_FEASIBLE:
        return Check("infeasible", Outcome.CHECKED, "more bytes than all devices have")
    if runs_below(exact.without_links, None) is False:
        return Check("infeasible", Outcome.CHECKED, "by all runs of the chain")
    found = enumerate_all(exact, None, max_steps)
    if found.device is not None:
        where = ", ".join(exact.problem.platform.device_names[d] for d in found.device[:12])
        return Check("infeasible", Outcome.FAILED, f"the placement [{where}] is feasible")
    if found.is_complete:
        return Check("infeasible", Outcome.CHECKED, "by enumeration")
    return Check("infeasible", Outcome.TRUSTED, f"{result.method}: no certificate, too large to enumerate")


def _all_bytes(exact: ExactProblem) -> Prices:
    """Return the certificate that weighs every byte the same, and nothing else."""
    variant = exact.problem.objective.to_dict()
    nothing = ((0.0,) * (2 if variant.get("schedule") == "gpipe" else 1),)
    return Prices((0,) * exact.num_devices, nothing, nothing, (1.0,))


def _fields(document: Mapping[str, Any], result: Result, problem: Problem) -> Check:
    found = list(itertools.islice(differences(document, result, problem), MOST_DIFFERENCES))
    if found:
        return Check("fields", Outcome.FAILED, "; ".join(found))
    return Check("fields", Outcome.CHECKED, "gap, loads, trace and verdict follow from the rest")


def _status(result: Result, gap: float) -> Check:
    if gap < -OBJECTIVE_TOLERANCE:
        return Check("gap", Outcome.FAILED, f"the bound {result.lower_bound!r} s is above the objective")
    tolerance = min(result.tolerance, SOLVER_TOLERANCE)  # what a file says may be stricter, not laxer
    if result.status is Status.OPTIMAL and gap > tolerance + OBJECTIVE_TOLERANCE:
        detail = f"{gap:.3e}; called optimal, which means at most {tolerance:g}"
        return Check("gap", Outcome.FAILED, detail)
    return Check("gap", Outcome.CHECKED, f"{max(gap, 0.0):.4%}, {result.status}")
