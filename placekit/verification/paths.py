"""Longest path with the least times and transfers, for the two objectives that have a clock; in ticks."""

from __future__ import annotations

from placekit.objectives import OffloadLatency
from placekit.verification.exact import ExactProblem
from placekit.verification.heads import around

__all__ = ["longest_path"]


def longest_path(exact: ExactProblem) -> int:
    """Return the ticks of the longest path: no makespan or offload latency is below."""
    if isinstance(exact.problem.objective, OffloadLatency):
        return max(_offload_ends(exact))
    return max(
        min(head + exact.ticks(op, d) + after[d] for d, head in before.items())
        for op, (before, after) in enumerate(zip(*around(exact), strict=True))
    )


def _offload_ends(exact: ExactProblem) -> list[int]:
    """``[num_ops]`` ticks before which no op ends, on a host or in a call.

    A host op starts when its inputs are in host memory. In a call an input was either made in the same call before, or
    it was in host memory when the call started and its tensors moved in. What a call makes is in host memory after it
    has moved out, which is later than the op itself ended.
    """
    moves: dict[tuple[int, int], list[int]] = {}
    for t, source in enumerate(exact.producer):
        for reader in set(exact.readers[t]):
            moves.setdefault((source, reader), []).append(t)
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
        for k in {exact.kind[d] for d in exact.allowed[exact.group_of[op]]}:
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
