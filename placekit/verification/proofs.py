r"""What certificates prove, worked out exactly: the value is a lower bound whatever the certificate says, or an error.

**prices**, **directions**, **series.** See :mod:`placekit.verification.prices`,
:mod:`placekit.verification.directions` and :mod:`placekit.verification.series`.

**critical-path.** Op after op, the least time at which each can end on each kind of device.

**work-in-window** (makespan). If k devices run the ops J, the first op of J on each of them starts no earlier than its
longest path from the start, and the last one is followed by its longest path to the end; these are different ops.
Weighing device d by y, :math:`T \ge \min_k (\sum_{v \in J} \min_d y_d t_{vd} + \min y \cdot (\text{k least heads + k
least tails})) / (\text{k largest } y)`.
"""

from __future__ import annotations

import math
from fractions import Fraction

from placekit.errors import InvalidCertificateError
from placekit.objectives import Makespan, OffloadLatency
from placekit.verification.certificates import (
    Certificate,
    CriticalPath,
    Directions,
    LargestOp,
    NoDevice,
    Series,
    WorkInWindow,
)
from placekit.verification.directions import directed_value
from placekit.verification.exact import ExactProblem
from placekit.verification.exhaustive import MAX_STEPS
from placekit.verification.paths import earliest_ends, latest_tails, least_start
from placekit.verification.prices import NOTHING_FEASIBLE, Bound, group_of, priced_value
from placekit.verification.series import series_value

__all__ = ["fastest_everywhere", "proven"]


def proven(exact: ExactProblem, certificate: Certificate, max_steps: int = MAX_STEPS) -> Bound:
    """Return what `certificate` proves: no placement has an objective below it. See the module docstring.

    Parameters
    ----------
    exact
        The problem.
    certificate
        The certificate.
    max_steps
        Steps of enumeration at most, for the kinds that need it.

    Raises
    ------
    InvalidCertificateError
        It is no certificate of this problem, or breaks the rules of its kind.
    OpenCertificateError
        There are too few steps to say.
    """
    if isinstance(certificate, NoDevice):
        return NOTHING_FEASIBLE if not exact.allowed[group_of(exact, certificate.op)] else Fraction(0)
    if any(not devices for devices in exact.allowed):
        return NOTHING_FEASIBLE
    if isinstance(certificate, LargestOp):
        return _largest_op(exact, certificate)
    if isinstance(certificate, CriticalPath):
        return _critical_path(exact, certificate)
    if isinstance(certificate, WorkInWindow):
        return _work_in_window(exact, certificate)
    if isinstance(certificate, Directions):
        return directed_value(exact, certificate)
    if isinstance(certificate, Series):
        return series_value(exact, certificate, max_steps)
    return priced_value(exact, certificate)


def _least_ticks(exact: ExactProblem, group: int) -> int:
    """Return the least ticks of a group, all of it on one of its devices."""
    ops = exact.groups[group]
    return min(sum(exact.ticks(op, d) for op in ops) for d in exact.allowed[group])


def _largest_op(exact: ExactProblem, certificate: LargestOp) -> Fraction:
    group = group_of(exact, certificate.op)
    if isinstance(exact.problem.objective, OffloadLatency):  # a host runs the ops of a group at the same time
        devices = exact.allowed[group]
        return exact.seconds(min(exact.ticks(certificate.op, d) for d in devices))
    if exact.team_rule != "off":  # the largest team that there can be shares the samples
        return _shared_ticks(exact, group) * exact.tick
    return exact.seconds(_least_ticks(exact, group))


def _shared_ticks(exact: ExactProblem, group: int) -> Fraction:
    """Return the least ticks per sample of a group on any team."""
    ops, devices = exact.groups[group], exact.allowed[group]
    alone = {d: sum(exact.ticks(op, d) for op in ops) for d in devices}
    if 0 in alone.values():
        return Fraction(0)
    if exact.team_rule == "any":
        return 1 / sum((Fraction(1, ticks) for ticks in alone.values()), Fraction(0))
    return min(Fraction(ticks, exact.num_equals(d)) for d, ticks in alone.items())


def fastest_everywhere(exact: ExactProblem) -> Fraction:
    """Return the least work of all groups together: a bound of the serial latency, less its subgraphs."""
    return exact.seconds(sum(_least_ticks(exact, group) for group in range(len(exact.groups))))


def _critical_path(exact: ExactProblem, certificate: CriticalPath) -> Fraction:
    if not isinstance(exact.problem.objective, Makespan | OffloadLatency):
        raise InvalidCertificateError(f"objective {exact.problem.objective.name} has no critical path")
    for op in certificate.ops:
        group_of(exact, op)
    steps = set(zip(certificate.ops, certificate.ops[1:], strict=False))
    missing = steps - set(exact.edges)
    if missing or len(set(certificate.ops)) != len(certificate.ops):
        raise InvalidCertificateError(
            f"certificate: {sorted(missing) or list(certificate.ops)} is no path of the graph"
        )
    ends = earliest_ends(exact, steps)
    return exact.seconds(max((ends[op] for op in certificate.ops), default=0))


def _work_in_window(exact: ExactProblem, certificate: WorkInWindow) -> Fraction:
    if not isinstance(exact.problem.objective, Makespan):
        raise InvalidCertificateError("work in windows bounds the makespan only")
    weight, ops = certificate.weight, certificate.ops
    if len(weight) != exact.num_devices or not all(math.isfinite(y) and y > 0 for y in weight):
        raise InvalidCertificateError(f"certificate needs {exact.num_devices} positive weights")
    for op in ops:
        group_of(exact, op)
    if len(set(ops)) != len(ops):
        raise InvalidCertificateError("certificate names an op twice")
    y = [Fraction(value) for value in weight]
    total = Fraction(0)
    for op in ops:
        total += min(y[d] * exact.ticks(op, d) for d in exact.allowed[exact.group_of[op]])
    starts, tails = least_start(exact), latest_tails(exact)
    heads, ends = sorted(starts[op] for op in ops), sorted(tails[op] for op in ops)
    heaviest, best = sorted(y, reverse=True), None
    for k in range(1, min(len(ops), len(y)) + 1):
        idle = sum(heads[:k]) + sum(ends[:k])
        value = (total + min(y) * idle) / sum(heaviest[:k])
        best = value if best is None else min(best, value)
    return (best or Fraction(0)) * exact.tick
