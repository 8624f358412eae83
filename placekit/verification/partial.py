"""Cost of the groups placed so far, whatever happens to the others; in ticks.

Only edges and tensors between placed ops are looked at, so everything here grows, or stays broken, with every group
that is placed.

**Makespan.** An op starts no earlier than the tensors arrive that placed ops make for it. A device runs all of its ops
between the earliest of these starts and the least that follows any of them.

**Offload latency with one call per device.** A call starts when the placed ops outside it that it reads have ended, and
takes the work of its ops and the transfers of tensors that are known to be split. What follows an op takes the times of
any path of ops that are not placed: each of them joins the call, which gets longer by it, or starts when the call has
ended, and none joins it later, because calls that wait for each other cannot be executed.
"""

from __future__ import annotations

from placekit.verification.exact import ExactProblem
from placekit.verification.judge import unit_ends


def least_makespan(
    exact: ExactProblem,
    device: list[int],  # ``[num_ops]`` device of every op; -1 for those that are not placed
    # heads, tails: ``[num_ops]`` by device: ticks before each op, and after it, at least
    # (`placekit.verification.heads.around`)
    heads: list[dict[int, int]],
    tails: list[dict[int, int]],
) -> int:
    """Return ticks that no makespan is below."""
    start: list[int] = [0] * exact.num_ops
    most = 0
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    work: dict[int, int] = {}
    for op in exact.in_order:
        d = device[op]
        if d < 0:
            continue
        begin = heads[op][d]
        for t in exact.inputs[op]:
            source = exact.producer[t]
            own = device[source]
            if own >= 0:
                begin = max(begin, start[source] + exact.ticks(source, own) + exact.move(t, own, d))
        start[op] = begin
        takes, tail = exact.ticks(op, d), tails[op][d]
        most = max(most, begin + takes + tail)
        first[d] = min(first.get(d, begin), begin)
        last[d] = min(last.get(d, tail), tail)
        work[d] = work.get(d, 0) + takes
    return max([most, *(first[d] + work[d] + last[d] for d in work)])


def work_from(exact: ExactProblem) -> list[int]:
    """``[num_ops]`` ticks of the longest path of ops from each op on, each on its fastest device, without transfers."""
    ticks = [0] * exact.num_ops
    for op in reversed(exact.in_order):
        behind = [ticks[reader] for t in exact.outputs[op] for reader in exact.readers[t]]
        least = min(exact.ticks(op, d) for d in exact.allowed[exact.group_of[op]])
        ticks[op] = least + max(behind, default=0)
    return ticks


def least_latency(
    exact: ExactProblem,  # the problem, with one call per device
    device: list[int],  # ``[num_ops]`` device of every op; -1 for those that are not placed
    rest: list[int] | None,  # what `work_from` says, if no op that is placed needs one that is not; else None
) -> int | None:
    """Return ticks that no offload latency is below; None if calls wait for each other already."""
    found = unit_ends(exact, device)
    if found is None:
        return None
    unit, end = found
    most = max(end, default=0)
    for t, producer in enumerate(exact.producer if rest is not None else ()):
        if rest is not None and unit[producer] >= 0:
            waiting = (rest[reader] for reader in exact.readers[t] if device[reader] < 0)
            most = max([most, *(end[unit[producer]] + ticks for ticks in waiting)])
    return most
