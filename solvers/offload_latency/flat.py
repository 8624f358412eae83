"""Offload problem as flat arrays: nodes, groups of equal accelerators, nets and order.

A *node* is a class of ops that share a device. With one call per device they share that call. With more calls the ops
of a class may be in different calls, so a node is a single op and colocation is left to the judge.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import csr_lists
from placekit.model.contiguity import Contiguity, edges_along_order
from placekit.model.memory import MEMORY_TOLERANCE
from placekit.model.problem import Problem
from placekit.objectives import OffloadLatency
from placekit.solvers.generic.coarsen import Contraction, contract


@dataclass(frozen=True, eq=False)
class OffloadProblem:
    """Nodes, groups and nets of a problem with `OffloadLatency`."""

    contraction: Contraction  # contraction whose classes are the nodes
    calls_per_device: int  # as in the objective
    groups: tuple[tuple[int, ...], ...]  # accelerators in groups of equals, by device index
    # device indices of the hosts, of equal ones the first: a host runs any number of ops at the same time, so equal
    # hosts with room for everything are one place. All of them under a contiguity, which may tell them apart.
    hosts: tuple[int, ...]
    # ``[N]`` least seconds between any input and any output of the node on a host that may run it; infinity where none
    # may. Between two ops of a class there may be several paths, and ops without inputs; this time is never more than
    # the judge's.
    host_time_s: NDArray[np.float64]
    # ``[N, G]`` seconds of the node on an accelerator of the group; infinity where not allowed
    time_s: NDArray[np.float64]
    memory_bytes: NDArray[np.float64]  # ``[N]`` bytes
    limit_bytes: NDArray[np.float64]  # ``[G]`` limit of one accelerator, with the judge's tolerance; infinity for none
    # net_offsets, net_nodes: CSR lists of the nodes of each net, the producer's first
    net_offsets: NDArray[np.int64]
    net_nodes: NDArray[np.int64]
    net_time_s: NDArray[np.float64]  # ``[nets, G]`` seconds to move the net in or out once
    # senders, receivers: distinct edges between nodes along which the receiver waits for the sender, unless both are in
    # one call. They form no cycle.
    senders: NDArray[np.int64]
    receivers: NDArray[np.int64]

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.memory_bytes)

    @property
    def device_of_place(self) -> NDArray[np.int64]:
        """``[P]`` device index of each place: first the slots, ``calls_per_device`` an accelerator, then the hosts."""
        accelerators = sorted(d for group in self.groups for d in group)
        slots = np.repeat(np.array(accelerators, dtype=np.int64), self.calls_per_device)
        return np.concatenate([slots, np.array(self.hosts, dtype=np.int64)])

    @property
    def num_nets(self) -> int:
        """Number of nets."""
        return len(self.net_time_s)

    def nodes_of_net(self, net: int) -> NDArray[np.int64]:
        """Return the nodes of a net, the producer's first."""
        return self.net_nodes[self.net_offsets[net] : self.net_offsets[net + 1]]

    @property
    def num_groups(self) -> int:
        """Number of groups of equal accelerators."""
        return len(self.groups)

    @property
    def rounding_s(self) -> float:
        """Error bound of sums and differences of times: eight rounding errors per term of all of them."""
        terms = [self.time_s, self.host_time_s, 2 * self.net_time_s]
        total = sum(float(t[np.isfinite(t)].sum()) for t in terms)
        return 8 * np.finfo(np.float64).eps * (self.num_nodes + len(self.net_time_s) + 1) * total


def flatten_calls(problem: Problem[OffloadLatency], *, whole_classes: bool = False) -> OffloadProblem:
    """Return the flat form of a problem whose objective is `OffloadLatency`; its contiguity is left to others.

    Parameters
    ----------
    whole_classes
        True for nodes that are classes with several calls per device, too: all of a class is in one call then, and
        classes that an acyclic quotient cannot separate are one node.

    Notes
    -----
    O(ops + edges log edges), and for classes of several ops O(entries * edges) inside each.
    """
    objective, is_free = problem.objective, problem.contiguity is Contiguity.NONE
    if not whole_classes:
        problem = problem.replace(contiguity=Contiguity.NONE)
        if objective.calls_per_device > 1:
            groups = np.arange(problem.graph.num_ops)
            problem = problem.replace(colocation=None, costs=problem.costs.replace(op_group=groups))
    contraction = contract(problem)
    platform = problem.platform
    hosts = tuple(d for d, device in enumerate(platform.devices) if device.is_host)
    if is_free and float(contraction.memory_bytes.sum()) <= platform.memory_limits_bytes[list(hosts)].min(
        initial=np.inf
    ):
        hosts = tuple(sorted(group[0] for group in contraction.interchangeable if group[0] in hosts))
    accelerators = [group for group in contraction.interchangeable if not platform.devices[group[0]].is_host]
    first = [group[0] for group in accelerators]
    kinds = platform.kind_of_device[first]
    limit_bytes = platform.memory_limits_bytes[first] * (1 + MEMORY_TOLERANCE)  # the judge's sum is rounded, too
    allowed = contraction.allowed[:, first] & (contraction.memory_bytes[:, None] <= limit_bytes)
    host_time_s, is_passage = _host_times(contraction, hosts)
    graph, class_of_op = problem.graph, contraction.class_of_op
    sender, receiver = class_of_op[graph.senders], class_of_op[graph.receivers]
    # a class whose inputs do not reach all its outputs makes nobody wait; on an accelerator it would
    kept = (sender != receiver) & is_passage[receiver]
    keys = np.unique(sender[kept] * contraction.num_classes + receiver[kept])
    senders, receivers = np.divmod(keys, contraction.num_classes)
    return OffloadProblem(
        contraction=contraction,
        calls_per_device=objective.calls_per_device,
        groups=tuple(accelerators),
        hosts=hosts,
        host_time_s=host_time_s,
        time_s=np.where(allowed, contraction.time_s.sum(axis=2)[:, kinds], np.inf),
        memory_bytes=contraction.memory_bytes,
        limit_bytes=limit_bytes,
        net_offsets=contraction.net_offsets,
        net_nodes=contraction.net_pins,
        net_time_s=contraction.net_time_s.sum(axis=2)[:, kinds],
        senders=senders,
        receivers=receivers,
    )


def _host_times(contraction: Contraction, hosts: tuple[int, ...]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return `host_time_s`, and where every input op of a class leads to every output op inside the class."""
    problem = contraction.problem
    graph, num_classes = problem.graph, contraction.num_classes
    kinds = problem.platform.kind_of_device
    best = np.full(num_classes, np.inf)
    sizes = np.bincount(contraction.class_of_op, minlength=num_classes)
    is_passage = np.ones(num_classes, dtype=bool)
    for host in hosts:
        total = contraction.time_s.sum(axis=2)[:, kinds[host]]
        best = np.where(contraction.allowed[:, host], np.minimum(best, total), best)
    crossing = contraction.class_of_op[graph.senders] != contraction.class_of_op[graph.receivers]
    has_input, has_output = np.zeros(graph.num_ops, dtype=bool), np.zeros(graph.num_ops, dtype=bool)
    has_output[graph.senders[crossing]] = True
    has_input[graph.receivers[crossing]] = True
    op_at, members = csr_lists(contraction.class_of_op, np.arange(graph.num_ops), num_classes)
    edge_class = np.where(crossing, -1, contraction.class_of_op[graph.senders])
    edge_at, by_class = csr_lists(edge_class, np.arange(len(edge_class)), num_classes)
    for c in np.flatnonzero(sizes > 1).tolist():
        ops = members[op_at[c] : op_at[c + 1]]
        inside = by_class[edge_at[c] : edge_at[c + 1]]
        local = {op: i for i, op in enumerate(ops.tolist())}
        u = np.array([local[op] for op in graph.senders[inside].tolist()], dtype=np.int64)
        v = np.array([local[op] for op in graph.receivers[inside].tolist()], dtype=np.int64)
        times = [problem.costs.op_time_s[ops, kinds[host]] for host in hosts if contraction.allowed[c, host]]
        least, is_passage[c] = _passage(u, v, has_input[ops], has_output[ops], times)
        if times:
            best[c] = least
    return best, is_passage


def _passage(
    senders: NDArray[np.int64],
    receivers: NDArray[np.int64],
    has_input: NDArray[np.bool_],
    has_output: NDArray[np.bool_],
    times: list[NDArray[np.float64]],
) -> tuple[float, bool]:
    """Return the least time from an input op to an output op, and whether each input leads to each output.

    Without inputs or without outputs outside, every op may start or end a path.
    """
    num_ops = len(has_input)
    edges = list(zip(*(ends.tolist() for ends in edges_along_order(num_ops, senders, receivers)), strict=True))
    exits = np.flatnonzero(has_output).tolist()
    entries = np.flatnonzero(has_input).tolist()
    least, leads = math.inf, True
    for time in times or [np.zeros(num_ops)]:
        starts: list[list[int]] = [[entry] for entry in entries] or [list(range(num_ops))]
        for start in starts:
            end = [-math.inf] * num_ops
            for op in start:
                end[op] = float(time[op])
            for a, b in edges:
                if end[a] + time[b] > end[b]:
                    end[b] = end[a] + float(time[b])
            reached = [end[op] for op in exits] if exits else [max(end)]
            leads = leads and not math.isinf(min(reached))
            least = min(least, max(min(reached), 0.0))
    return least, leads
