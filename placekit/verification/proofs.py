r"""Exact value of certificates: a lower bound whatever the certificate says, or an error.

**prices**, **directions**, **series**. See :mod:`placekit.verification.prices` and :mod:`placekit.verification.series`.

**shared-work** (makespan). Of the ops J, those on device d run one after another, none before the least head of J on d,
and none of them is followed by less than the least tail: :math:`\sum_{v \in J \text{ on } d} t_{vd} \le T - r - q`.
Where d runs none of them this holds as well, as T is at least the longest path; no more than that counts of r + q.
With weights y of such rows, :math:`\sum y` T is at least the sum of y (r + q), and of the least, over the devices of
every group, of its weighted time.

**Steps.** If all times are whole multiples of one step, so is every objective, a sum of times or the largest of such
sums: no objective is between two multiples. If each time differs from a multiple by `SLACK` relative at most, so does
the sum, as no time is negative. The step is looked for among decimal units, since files say 0.055 s and floats are only
near that.
"""

from __future__ import annotations

import math
from fractions import Fraction

from placekit.model.errors import InvalidCertificateError
from placekit.objectives import Makespan, OffloadLatency
from placekit.solve.certificates import Certificate, Directions, NoDevice, Series, SharedWork
from placekit.verification.exact import ExactProblem
from placekit.verification.exhaustive import MAX_STEPS
from placekit.verification.heads import around, longest_path
from placekit.verification.prices import NOTHING_FEASIBLE, Bound, directed_value, group_of, priced_value
from placekit.verification.series import series_value

SLACK = Fraction(1, 2**49)
"""Relative distance that a time may have from a multiple: a few roundings of a float."""
DECIMALS = 12
"""Decimals of a second that are tried."""
MOST_STEPS = 2**40
"""Steps of the largest time at most: any float is a multiple of something."""


def proven(exact: ExactProblem, certificate: Certificate, max_steps: int = MAX_STEPS) -> Bound:
    """Return what `certificate` proves: no placement has an objective below it. See the module docstring.

    `max_steps` are for the enumeration of each segment of a series. Raises `InvalidCertificateError`: it is no
    certificate of this problem, or breaks the rules of its kind. Raises `OpenCertificateError`: too few steps.
    """
    if isinstance(certificate, NoDevice):
        return NOTHING_FEASIBLE if not exact.allowed[group_of(exact, certificate.op)] else Fraction(0)
    if any(not devices for devices in exact.allowed):
        return NOTHING_FEASIBLE
    if isinstance(certificate, SharedWork):
        return _shared_work(exact, certificate)
    if isinstance(certificate, Directions):
        return directed_value(exact.without_links, certificate)
    if isinstance(certificate, Series):
        return series_value(exact.without_links, certificate, max_steps)
    return priced_value(exact.without_links, certificate)


def _least_ticks(exact: ExactProblem, group: int) -> int:
    """Return the least ticks of a group, all of it on one of its devices."""
    ops = exact.groups[group]
    return min(sum(exact.ticks(op, d) for op in ops) for d in exact.allowed[group])


def largest_op(exact: ExactProblem) -> Fraction:
    """Return the largest time of a group, each on its fastest device: a bound of every objective."""
    if isinstance(exact.problem.objective, OffloadLatency):  # a host runs the ops of a group at the same time
        homes = (exact.allowed[group] for group in exact.group_of)
        return exact.seconds(max(min(exact.ticks(op, d) for d in devices) for op, devices in enumerate(homes)))
    if exact.team_rule != "off":  # the largest team that there can be shares the samples
        return max(_shared_ticks(exact, group) for group in range(len(exact.groups))) * exact.tick
    return exact.seconds(max(_least_ticks(exact, group) for group in range(len(exact.groups))))


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


def _shared_work(exact: ExactProblem, certificate: SharedWork) -> Fraction:
    if not isinstance(exact.problem.objective, Makespan):
        raise InvalidCertificateError("shared work bounds the makespan only")
    heads, tails = around(exact)
    most = longest_path(exact)
    price = [[Fraction(0)] * exact.num_devices for _ in range(exact.num_ops)]
    idle = total = Fraction(0)
    for devices, ops, weight in certificate.rows:
        if not (math.isfinite(weight) and weight >= 0):
            raise InvalidCertificateError(f"certificate: a row has weight {weight}")
        if len(set(devices)) != len(devices) or not set(devices) <= set(range(exact.num_devices)):
            raise InvalidCertificateError(f"certificate: a row is of devices {list(devices)}")
        if len(set(ops)) != len(ops):
            raise InvalidCertificateError("certificate: a row names an op twice")
        y = Fraction(weight)
        for d in devices:
            there = [op for op in ops if d in exact.allowed[group_of(exact, op)]]
            if there:
                total += y
                idle += y * min(most, min(heads[op][d] for op in there) + min(tails[op][d] for op in there))
            for op in there:
                price[op][d] += y
    if not total:
        return Fraction(0)
    work = sum(
        min(sum((price[op][d] * exact.ticks(op, d) for op in ops), Fraction(0)) for d in devices)
        for ops, devices in zip(exact.groups, exact.allowed, strict=True)
    )
    return (idle + work) / total * exact.tick


def step_of(exact: ExactProblem) -> Fraction | None:
    """Return seconds of which every objective is a whole multiple but for `SLACK`; None if there are none."""
    constants = exact.problem.objective.constants_s()
    if constants is None:
        return None
    times = {exact.seconds(ticks) for row in exact.time for ticks in row if ticks}
    times |= {exact.seconds(ticks) for row in exact.transfer for ticks in row if ticks}
    times |= {exact.seconds(ticks) for row in exact.direct for ticks in row if ticks and exact.has_links}
    times |= {Fraction(seconds) for seconds in constants if seconds}
    for decimals in range(DECIMALS + 1):
        unit = 10**decimals
        steps = [round(time * unit) for time in times]
        if max(steps, default=0) > MOST_STEPS:
            return None
        if all(abs(step - time * unit) <= SLACK * time * unit for step, time in zip(steps, times, strict=True)):
            return Fraction(math.gcd(*steps), unit) if times else None
    return None


def rounded_up(value: Fraction, step: Fraction | None) -> Fraction:
    """Return the lower bound `value` in seconds, or the least that a multiple of `step` at or above it may be."""
    if step is None or value <= 0:
        return value
    multiple = math.ceil(value / (step * (1 + SLACK)))
    return max(value, multiple * step * (1 - SLACK))
