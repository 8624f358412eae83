"""Bounds from prices for two devices under contiguity `acyclic`, in two cases.

One of the two comes first: no op on it needs an op on the other one, directly or not. So where the order graph has an
edge from u to v, the device that comes first holds u if it holds v. A price of at least 0 that v pays on the first
device, and u receives there, takes nothing from any such placement, so it may be added to those of
:mod:`placekit.verification.prices`. Each case has prices of its own, and the smaller bound is one of all placements.
"""

from __future__ import annotations

import math
from fractions import Fraction

from placekit.model.errors import InvalidCertificateError
from placekit.solve.certificates import Directions
from placekit.verification.exact import ExactProblem
from placekit.verification.prices import NOTHING_FEASIBLE, Bound, priced_value

__all__ = ["directed_value"]


def directed_value(exact: ExactProblem, certificate: Directions) -> Bound:
    """Return what prices for either order of the two devices prove, in seconds; see the module docstring.

    Raises
    ------
    InvalidCertificateError
        There is another number of devices or another contiguity, or the prices of a case break a rule.
    """
    if exact.num_devices != 2 or exact.problem.contiguity != "acyclic":
        raise InvalidCertificateError("directions are cases of two devices under contiguity acyclic")
    edges = set(exact.order_edges)
    values: list[Bound] = []
    for first, case in enumerate(certificate.cases):
        if case is None:
            if not _clashes(exact, first):
                raise InvalidCertificateError(
                    f"certificate: device {first} may come first, and there is no proof of it"
                )
            continue
        profile = case.prices.profile_of_device
        if len(profile) != 2 or profile[0] == profile[1]:
            raise InvalidCertificateError("certificate: devices in order must have profiles of their own")
        paid: dict[tuple[int, int], Fraction] = {}
        for sender, receiver, seconds in case.order:
            if (sender, receiver) not in edges or not (math.isfinite(seconds) and seconds >= 0):
                raise InvalidCertificateError(
                    f"certificate: {sender} -> {receiver} has no price {seconds} of its order"
                )
            for op, sign in ((receiver, 1), (sender, -1)):
                key = profile[first], exact.group_of[op]
                paid[key] = paid.get(key, Fraction(0)) + sign * Fraction(seconds)
        values.append(priced_value(exact, case.prices, paid))
    return min(values, default=NOTHING_FEASIBLE)


def _clashes(exact: ExactProblem, first: int) -> bool:
    """Return whether some group may be on no device if device `first` comes before the other one."""
    before: list[set[int]] = [set() for _ in exact.groups]
    for u, v in exact.order_edges:
        before[exact.group_of[v]].add(exact.group_of[u])
    must = [group for group, devices in enumerate(exact.allowed) if devices == [first]]
    found = set(must)
    for group in must:
        for other in before[group] - found:
            found.add(other)
            must.append(other)
    return any(first not in exact.allowed[group] for group in found)
