r"""Throughput of acyclic pipelines, by a plain dynamic program over ideals: the proof of method ``dp``, done again.

Devices whose graph is acyclic can be put in a row, so that the first :math:`i` of them hold a set of groups that is
closed under predecessors: an *ideal*. So there is a placement with every load below a value iff the full set can be
reached from the empty one by adding differences of ideals that a device can bear, no device twice. This is for one load
per device (not GPipe with backward ops), and for as many ideals as :mod:`placekit.verification.ideal_program` bears.

**Leaves.** A group that nothing precedes, or nothing follows, lies inside no path. Without it every placement of the
others stays acyclic, and no load and no memory grows. So if no placement without some leaves is below the value, none
at all is. Leaves that take no time are left out first: constants, which double the ideals each. If there are still too
many ideals, those that take little time are, too.
"""

from __future__ import annotations

from fractions import Fraction

from placekit.objectives import Throughput
from placekit.verification.exact import ExactProblem
from placekit.verification.ideal_program import IdealProgram

__all__ = ["reaches_below"]

LIGHT = Fraction(1, 100)
"""Share of the value that the time of a light leaf has at most."""


def reaches_below(exact: ExactProblem, below: Fraction) -> bool | None:
    """Return whether some placement has every load below `below` seconds; None if this is not the way to know."""
    variant = exact.problem.objective
    if not isinstance(variant, Throughput) or exact.problem.contiguity != "acyclic":
        return None
    if (variant.schedule == "gpipe" and any(exact.is_backward)) or exact.team_rule != "off":
        return None
    if below <= 0 or any(not devices for devices in exact.allowed):
        return False
    before: list[set[int]] = [set() for _ in exact.groups]
    for u, v in exact.order_edges:
        if exact.group_of[u] != exact.group_of[v]:
            before[exact.group_of[v]].add(exact.group_of[u])
    most = below / exact.tick
    for longest in (Fraction(0), LIGHT * most):
        kept = _without_leaves(exact, before, longest)
        reaches = IdealProgram(exact, before, kept, most, rounds_up=False).reaches()
        if reaches is False:
            return False
        if reaches is not None:
            break
    if exact.problem.costs.blocks is not None:
        return None  # what shares memory was left out: a relaxation, in which more fits
    # what fits after rounding down need not fit: only what fits after rounding up is sure to
    everything = list(range(len(exact.groups)))
    return True if IdealProgram(exact, before, everything, most, rounds_up=True).reaches() else None


def _without_leaves(exact: ExactProblem, before: list[set[int]], longest: Fraction) -> list[int]:
    """Return the groups that are left if leaves of at most `longest` ticks are taken off, one after the other."""
    most = [
        max(sum(exact.ticks(op, d) for op in ops) for d in devices)
        for ops, devices in zip(exact.groups, exact.allowed, strict=True)
    ]
    behind: list[set[int]] = [set() for _ in before]
    for v, sources in enumerate(before):
        for u in sources:
            behind[u].add(v)
    before = [set(sources) for sources in before]
    kept = set(range(len(before)))
    queue = sorted(kept)
    for v in queue:
        if v not in kept or most[v] > longest or (before[v] and behind[v]) or len(kept) == 1:
            continue
        kept.remove(v)
        for u in before[v]:
            behind[u].discard(v)
            queue.append(u)
        for w in behind[v]:
            before[w].discard(v)
            queue.append(w)
    return sorted(kept)
