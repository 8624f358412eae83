"""Longest paths with the least times and transfers, for the two objectives that have a clock; in ticks."""

from __future__ import annotations

from placekit.objectives import Makespan, OffloadLatency
from placekit.verification.exact import ExactProblem
from placekit.verification.heads import heads_and_tails

__all__ = ["earliest_ends", "latest_tails", "least_start", "longest_path"]

_Edges = set[tuple[int, int]]


def _kinds(exact: ExactProblem, op: int) -> set[int]:
    """Return the kinds of the devices that may hold the op's group; there is at least one."""
    return {exact.kind[d] for d in exact.allowed[exact.group_of[op]]}


def _moves(exact: ExactProblem, along: _Edges | None) -> dict[tuple[int, int], list[int]]:
    """Return the tensors of every edge, of `along` only if it is given."""
    found: dict[tuple[int, int], list[int]] = {}
    for t, source in enumerate(exact.producer):
        for reader in set(exact.readers[t]):
            if along is None or (source, reader) in along:
                found.setdefault((source, reader), []).append(t)
    return found


def earliest_ends(exact: ExactProblem, along: _Edges | None = None) -> list[int]:
    """``[num_ops]`` ticks before which no op ends, by the paths along the given edges (all by default)."""
    if isinstance(exact.problem.objective, OffloadLatency):
        return _offload_ends(exact, along)
    return [min(row.values()) for row in _makespan_ends(exact, along)]


def _makespan_ends(exact: ExactProblem, along: _Edges | None) -> list[dict[int, int]]:
    """``[num_ops]`` by kind: least ticks at which the op ends on a device of the kind.

    A tensor is there at once on the device where it was made, or after the times of both links.
    """
    moves = _moves(exact, along)
    before: list[list[int]] = [[] for _ in range(exact.num_ops)]
    for source, reader in moves:
        before[reader].append(source)
    ends: list[dict[int, int]] = [{} for _ in range(exact.num_ops)]
    for op in exact.in_order:
        for k in _kinds(exact, op):
            start = 0
            for source in before[op]:
                for t in moves[source, op]:
                    cost = exact.transfer[t]
                    ways = [end if own == k else end + cost[own] + cost[k] for own, end in ends[source].items()]
                    start = max(start, min(ways))
            ends[op][k] = start + (exact.time[op][k] or 0)
    return ends


def least_start(exact: ExactProblem) -> list[int]:
    """``[num_ops]`` ticks before which no op starts in a makespan schedule."""
    found = heads_and_tails(exact)
    if found is not None:
        return [min(row.values()) for row in found[0]]
    return [
        min(end - (exact.time[op][k] or 0) for k, end in row.items())
        for op, row in enumerate(_makespan_ends(exact, None))
    ]


def latest_tails(exact: ExactProblem) -> list[int]:
    """``[num_ops]`` ticks that a makespan schedule goes on for after each op, at least."""
    found = heads_and_tails(exact)
    if found is not None:
        return [min(row.values()) for row in found[1]]
    moves = _moves(exact, None)
    following: list[list[int]] = [[] for _ in range(exact.num_ops)]
    for source, reader in moves:
        following[source].append(reader)
    tails: list[dict[int, int]] = [{} for _ in range(exact.num_ops)]  # by kind of the op's device
    for op in reversed(exact.in_order):
        for k in _kinds(exact, op):
            tail = 0
            for reader in following[op]:
                for t in moves[op, reader]:
                    cost = exact.transfer[t]
                    ways = [
                        (0 if own == k else cost[k] + cost[own]) + (exact.time[reader][own] or 0) + after
                        for own, after in tails[reader].items()
                    ]
                    tail = max(tail, min(ways))
            tails[op][k] = tail
    return [min(row.values()) for row in tails]


def _offload_ends(exact: ExactProblem, along: _Edges | None) -> list[int]:
    """``[num_ops]`` ticks before which no op ends, on a host or in a call.

    A host op starts when its inputs are in host memory. In a call an input was either made in the same call before, or
    it was in host memory when the call started and its tensors moved in. What a call makes is in host memory after it
    has moved out, which is later than the op itself ended.
    """
    moves = _moves(exact, along)
    before: list[list[int]] = [[] for _ in range(exact.num_ops)]
    for source, reader in moves:
        before[reader].append(source)
    on_host: list[int | None] = [None] * exact.num_ops
    in_call: list[dict[int, int]] = [{} for _ in range(exact.num_ops)]
    hosts = {exact.kind[d] for d, is_host in enumerate(exact.is_host) if is_host}

    def published(op: int, t: int) -> int:
        """Return the least ticks at which tensor `t` of `op` is in host memory."""
        host = on_host[op]
        calls = [end + exact.transfer[t][k] for k, end in in_call[op].items()]
        return min([*calls, *([] if host is None else [host])])

    for op in exact.in_order:
        for k in _kinds(exact, op):
            start = 0
            for source in before[op]:
                tensors = moves[source, op]
                known = max(published(source, t) for t in tensors)
                if k not in hosts:
                    known += sum(exact.transfer[t][k] for t in tensors)
                    known = min([known, *([in_call[source][k]] if k in in_call[source] else [])])
                start = max(start, known)
            end = start + (exact.time[op][k] or 0)
            if k in hosts:
                host = on_host[op]
                on_host[op] = end if host is None else min(host, end)
            else:
                in_call[op][k] = end
    ends = []
    for host, calls in zip(on_host, in_call, strict=True):
        ends.append(min([*calls.values(), *([] if host is None else [host])]))
    return ends


def longest_path(exact: ExactProblem) -> int:
    """Return the ticks of the longest path: no makespan or offload latency is below.

    Of a makespan, with the ops that run on one device because it is too late for another, if that is not too much to
    look at (:mod:`placekit.verification.heads`).
    """
    found = heads_and_tails(exact) if isinstance(exact.problem.objective, Makespan) else None
    if found is None:
        return max(earliest_ends(exact))
    heads, tails = found
    return max(
        min(head + exact.ticks(op, d) + after[d] for d, head in before.items())
        for op, (before, after) in enumerate(zip(heads, tails, strict=True))
    )
