"""The second judge: objective and constraints of a placement from the formulas alone, in whole ticks.

It shares no code with :mod:`placekit.objectives.evaluate`, the objectives' scores or any kernel. The formulas are those
of the docstrings of :mod:`placekit.objectives`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise

from placekit.model.errors import UnsupportedProblemError
from placekit.objectives import Makespan, OffloadLatency, SerialLatency, Throughput
from placekit.verification.exact import ExactProblem, fits, rounded
from placekit.verification.graphs import topological_positions
from placekit.verification.timeline import makespan

CONSTRAINTS = ("support", "memory", "pin", "colocation", "team", "contiguity", "order", "calls")
"""What a placement can break; the last two are of the execution models."""


Teams = list[tuple[int, ...]]
"""Members of every team of several devices, rising; an op is on the first member of its team."""


def objective(
    exact: ExactProblem,
    # device, step: ``[num_ops]`` device of every op, and its step if the placement has steps
    device: list[int],
    step: list[int] | None = None,
    teams: Teams | None = None,  # teams of several devices, for the throughput only
) -> Fraction | None:
    """Return the objective of a supported placement in seconds; None if it cannot be executed.

    Raises
    ------
    UnsupportedProblemError
        An objective that has no formula here.
    """
    variant = exact.problem.objective
    if isinstance(variant, Throughput):
        return _throughput(exact, device, variant, teams or []) * exact.tick
    if isinstance(variant, SerialLatency):
        cost = Fraction(variant.subgraph_cost_s) * num_subgraphs(exact, device)
        return exact.seconds(sum(work(exact, device)) + sum(moved(exact, device))) + cost
    if isinstance(variant, OffloadLatency):
        found = unit_ends(exact, device, step)
        return None if found is None else exact.seconds(max(found[1]))
    if isinstance(variant, Makespan):
        ticks = makespan(exact, device, step, variant)
        return None if ticks is None else exact.seconds(ticks)
    raise UnsupportedProblemError(f"the verifier has no formula for objective {variant.name!r}")


def work(exact: ExactProblem, device: list[int], ops: list[bool] | None = None) -> list[int]:
    """``[num_devices]`` ticks of the ops on each device; of those only that are True in `ops`."""
    total = [0] * exact.num_devices
    for op, d in enumerate(device):
        if ops is None or ops[op]:
            total[d] += exact.ticks(op, d)
    return total


def moved(exact: ExactProblem, device: list[int], ops: list[bool] | None = None) -> list[int]:
    """``[num_devices]`` ticks of tensors that enter or leave each device, each once; those written by `ops` only.

    What goes over direct links is paid for once per receiver, by it and, if the objective says so, by the sender.
    """
    total = [0] * exact.num_devices
    for t, producer in enumerate(exact.producer):
        if ops is not None and not ops[producer]:
            continue
        source, by_host = device[producer], set()
        for d in {device[reader] for reader in exact.readers[t]} - {source}:
            link = exact.link[source][d]
            if link is None:
                by_host |= {d, source}
                continue
            total[d] += exact.direct[t][link]
            if exact.problem.objective.direct_ends == 2:
                total[source] += exact.direct[t][link]
        for d in by_host:
            total[d] += exact.transfer[t][exact.kind[d]]
    return total


def _throughput(exact: ExactProblem, device: list[int], variant: Throughput, teams: Teams) -> Fraction:
    """Return the largest load in ticks; under GPipe the largest forward and the largest backward load together.

    The load of a team is one sample over the samples that its members do per tick, each for all ops of the team; its
    passes have the share of it that they have of a sample (members of a team are equal where passes count).
    """
    passes: list[list[bool] | None] = [None]
    if variant.schedule == "gpipe":
        passes = [[not backward for backward in exact.is_backward], exact.is_backward]
    join = max if variant.overlap else operator.add
    total = Fraction(0)
    for ops in passes:
        busy, sent = work(exact, device, ops), moved(exact, device, ops)
        loads = {d: Fraction(join(busy[d], sent[d])) for d in range(exact.num_devices)}
        for members in teams:
            alone = []
            for d in members:
                there = [d if own == members[0] else own for own in device]  # all of the team on this member
                alone.append(join(work(exact, there, ops)[d], moved(exact, there, ops)[d]))
            rate = Fraction(0) if 0 in alone else sum((Fraction(1, load) for load in alone), Fraction(0))
            loads[members[0]] = 1 / rate if rate else Fraction(0)
        total += max(loads.values())
    return total


def num_subgraphs(exact: ExactProblem, device: list[int]) -> int:
    """Return the number of pairs (level, device), the level of an op being the most device changes on a path to it."""
    level = [0] * exact.num_ops
    for op in exact.in_order:
        for t in exact.inputs[op]:
            source = exact.producer[t]
            level[op] = max(level[op], level[source] + (device[source] != device[op]))
    return len(set(zip(level, device, strict=True)))


def _units(exact: ExactProblem, device: list[int], step: list[int] | None) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the unit of every op, and (device, step) of every unit; a host op is a unit by itself, its step is -1.

    An op on device -1, which is not placed yet, has unit -1.
    """
    rank = {s: at for at, s in enumerate(sorted(set(step)))} if step is not None else {}
    number: dict[tuple[int, int, int], int] = {}
    unit = []
    for op, d in enumerate(device):
        turn = 0 if step is None else rank[step[op]]
        key = (d, -1, op) if exact.is_host[d] else (d, turn, 0)
        unit.append(-1 if d < 0 else number.setdefault(key, len(number)))
    return unit, [(d, turn) for d, turn, _ in number]


def unit_ends(
    exact: ExactProblem, device: list[int], step: list[int] | None = None
) -> tuple[list[int], list[int]] | None:
    """Return the unit of every op, and the ticks at which every call and host op ends; None if calls wait in a circle.

    Ops on device -1 are left out; a tensor of theirs counts where it is known to be split.
    """
    unit, facts = _units(exact, device, step)
    takes = [0] * len(facts)
    following: list[set[int]] = [set() for _ in facts]
    for op, d in enumerate(device):
        if d >= 0:
            takes[unit[op]] += exact.ticks(op, d)
    for t, producer in enumerate(exact.producer):
        touched = {unit[op] for op in (producer, *exact.readers[t])} - {-1}
        if len(touched) < 2:
            continue
        for u in touched:
            d, turn = facts[u]
            if turn >= 0:  # a host works in host memory
                takes[u] += exact.transfer[t][exact.kind[d]]
        if unit[producer] >= 0:
            following[unit[producer]] |= touched - {unit[producer]}
    calls = sorted((d, turn, u) for u, (d, turn) in enumerate(facts) if turn >= 0)
    for (d, _, before), (other, _, after) in pairwise(calls):
        if d == other:
            following[before].add(after)
    position = topological_positions(len(facts), [list(targets) for targets in following])
    if None in position:
        return None
    start, end = [0] * len(facts), [0] * len(facts)
    for u in sorted(range(len(facts)), key=lambda u: position[u] or 0):
        end[u] = start[u] + takes[u]
        for target in following[u]:
            start[target] = max(start[target], end[u])
    return unit, end


def broken_constraints(
    exact: ExactProblem, device: list[int], step: list[int] | None = None, teams: Teams | None = None
) -> list[tuple[str, str]]:
    """Return (constraint, one sentence) for every constraint that a placement breaks; one of each kind at most."""
    first: dict[str, str] = {}
    for constraint, message in _broken(exact, device, step, teams or []):
        first.setdefault(constraint, message)
    return list(first.items())


def _broken(exact: ExactProblem, device: list[int], step: list[int] | None, teams: Teams) -> Iterator[tuple[str, str]]:
    names, devices = exact.problem.graph.op_names, exact.problem.platform.device_names
    able = True
    holders = {members[0]: members for members in teams}
    held: list[set[int]] = [set() for _ in range(exact.num_devices)]
    for op, first in enumerate(device):
        members = holders.get(first, (first,))
        for d in members:
            held[d].add(op)
            if exact.time[op][exact.kind[d]] is None:
                able = False
                yield "support", f"device {devices[d]!r} does not support op {names[op]!r}"
        if exact.pinned[op] not in (None, *members):
            yield "pin", f"op {names[op]!r} is pinned to {devices[exact.pinned[op] or 0]!r}, not {devices[first]!r}"
    rule = exact.team_rule
    for members in teams:
        if rule == "off" or (rule == "equal" and len({exact.kind[d] for d in members}) > 1):
            able = able and rule != "off"
            yield "team", f"devices {', '.join(devices[d] for d in members)} may not be a team: teams are {rule!r}"
    for d, limit in enumerate(exact.limit):
        used = 0 if limit is None else exact.needed(held[d])
        if not fits(used, limit):
            times = rounded(Fraction(used, limit or 1))
            yield "memory", f"device {devices[d]!r} holds more than its limit, {times:.6g} times as much"
    for sharing, size in exact.pools:
        if not fits(sum(exact.needed(held[d]) for d in sharing), size):
            names_of = ", ".join(repr(devices[d]) for d in sharing)
            yield "memory", f"devices {names_of} hold more than the memory that they share"
    home: dict[int, int] = {}
    for op, c in enumerate(exact.class_of):
        other = home.setdefault(c, op)
        if device[op] != device[other]:
            yield "colocation", f"ops {names[other]!r} and {names[op]!r} must share a device"
    if (message := not_contiguous(exact, device)) is not None:
        yield "contiguity", message
    variant = exact.problem.objective
    if not able:
        return  # such a placement has no calls and no times
    if isinstance(variant, OffloadLatency):
        _, facts = _units(exact, device, step)
        counts = [sum(d == own and turn >= 0 for own, turn in facts) for d in range(exact.num_devices)]
        for d, count in enumerate(counts):
            if count > variant.calls_per_device:
                yield (
                    "calls",
                    f"device {devices[d]!r} is called {count} times, it may be called {variant.calls_per_device}",
                )
    if isinstance(variant, OffloadLatency | Makespan) and objective(exact, device, step) is None:
        yield "order", "devices wait for each other"


def not_contiguous(exact: ExactProblem, device: list[int]) -> str | None:
    """Return in one sentence how the order graph of the ops with a device breaks the problem's contiguity, or None.

    Ops on device -1 are left out; what is broken without them is broken with them.
    """
    rule, devices = exact.problem.contiguity, exact.problem.platform.device_names
    edges = [(u, v) for u, v in exact.order_edges if device[u] >= 0 and device[v] >= 0]
    if rule == "acyclic":
        following: list[set[int]] = [set() for _ in devices]
        for u, v in edges:
            if device[u] != device[v]:
                following[device[u]].add(device[v])
        if None in topological_positions(len(devices), [list(targets) for targets in following]):
            return "devices wait for each other: their graph has a cycle"
    if rule == "convex":
        after: list[list[int]] = [[] for _ in device]
        before: list[list[int]] = [[] for _ in device]
        for u, v in edges:
            after[u].append(v)
            before[v].append(u)
        for d in sorted(set(device) - {-1}):
            inside = {op for op, own in enumerate(device) if own == d}
            if (_reached(inside, after) & _reached(inside, before)) - inside:
                return f"a path leaves device {devices[d]!r} and comes back to it"
    return None


def _reached(start: set[int], following: list[list[int]]) -> set[int]:
    """Return everything that `start` leads to."""
    found, stack = set(start), list(start)
    while stack:
        for op in following[stack.pop()]:
            if op not in found:
                found.add(op)
                stack.append(op)
    return found
