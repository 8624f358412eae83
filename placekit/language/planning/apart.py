r"""Prefill and decode on devices of their own, with the cache sent between them.

The model is there twice, once for each phase: the ops of prefill come first, then a proxy that hands requests over,
then the ops of decode. The cache of every attention op is a tensor from its prefill to its decode, paid by the sender
and by the receiver over the links of their devices, once per request. The proxy has a device of its own, so that no run
of blocks can have ops of both phases: which devices serve which phase is part of the solve.

Decode holds the cache of all sequences in flight; prefill that of two batches, one being computed and one being sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import number_by_first
from placekit.language.graph import free_name
from placekit.language.task import LanguageTask, mix_phases, shared_memory
from placekit.model.costs import CostTable
from placekit.model.errors import InvalidProblemError
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement
from placekit.model.platform import Device, Platform
from placekit.model.problem import UNPINNED, Problem

PROXY = "proxy"
"""Name of the device, its kind and the op that hand requests from prefill to decode."""
CACHE = "Cache"
"""Type of the ops that stand for caches being sent."""
APART = "phases apart"
"""Key in the provenance of costs."""
PHASES = ("prefill", "decode")
BATCHES_HELD = 2
"""Batches whose cache a device of prefill holds."""


def apart_cases(tasks: Iterable[LanguageTask]) -> Iterator[LanguageTask]:
    """Yield the tasks with both phases apart.

    Raises `InvalidProblemError`: a model or requests without two phases, or direct links between devices.
    """
    for task in tasks:
        if len(task.costs_of_phase) < 2 or task.description is None:
            raise InvalidProblemError("--apart needs requests with both phases, and a model that is no program")
        if task.problem.has_direct_links:
            raise InvalidProblemError("--apart knows links through host memory only, and the platform has direct ones")
        if not task.hosted_blocks:
            yield _apart(task)


def are_apart(problem: Problem[Any]) -> bool:
    """Return whether a problem has the phases apart, as those of `apart_cases` have."""
    return bool(problem.costs.provenance.get(APART))


def _apart(task: LanguageTask) -> LanguageTask:
    problem, serving = task.problem, task.serving
    old, costs = problem.graph, problem.costs
    keeping = np.flatnonzero(task.cache_bytes > 0)
    graph = _twice(old, keeping)
    platform = problem.platform.replace(devices=(*problem.platform.devices, Device(PROXY, PROXY, is_host=True)))
    sent = serving.batch * task.cache_bytes * _prompt_share(task)
    tables = {phase: _table(task, phase, graph, sent[keeping] if phase == PHASES[0] else None) for phase in PHASES}
    held = BATCHES_HELD / serving.sequences * sent
    none = np.zeros(1 + len(keeping))
    memory = costs.op_memory_bytes
    shared = tuple(
        (num_bytes, tuple(op + at * old.num_ops for op in ops))
        for at in range(2)
        for num_bytes, ops in task.shared_weights
    )
    mixed = mix_phases([(phase, tables[phase.name]) for phase in serving.phases]).replace(
        op_memory_bytes=np.concatenate(
            [memory + serving.sequences * (held - task.cache_bytes), memory, none]
        ),
        blocks=shared_memory(shared),
        provenance={**costs.provenance, APART: True},
    )  # fmt: skip
    classes = problem.op_class
    label = np.concatenate([classes, classes + old.num_ops, [2 * old.num_ops], classes[keeping]])
    pinned = np.full(graph.num_ops, UNPINNED)
    pinned[: 2 * old.num_ops] = np.tile(problem.pinned, 2)
    pinned[2 * old.num_ops] = platform.num_devices - 1
    return replace(
        task,
        problem=problem.replace(
            graph=graph, platform=platform, costs=mixed, colocation=number_by_first(label), pinned=pinned
        ),
        costs_of_phase=tables,
        weight_bytes=np.concatenate([task.weight_bytes, task.weight_bytes, none]),
        cache_bytes=np.concatenate([held, task.cache_bytes, none]),
        shared_weights=shared,
        undivided=task,
    )


def _twice(graph: OpGraph, keeping: NDArray[np.int64]) -> OpGraph:
    """Return the graph of both phases: prefill, decode, the proxy, and the caches of the ops that keep one."""
    before, behind = ([f"{phase}.{name}" for name in graph.op_names] for phase in PHASES)
    taken = set(before)
    caches = [free_name(f"{before[op]}.cache", taken) for op in keeping.tolist()]
    edges = [
        (names[sender], names[receiver])
        for names in (before, behind)
        for sender, receiver in zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True)
    ]
    has_input = np.isin(np.arange(graph.num_ops), graph.receivers)
    edges.append((before[-1], PROXY))
    edges += [(PROXY, behind[op]) for op in np.flatnonzero(~has_input).tolist()]
    for cache, op in zip(caches, keeping.tolist(), strict=True):
        edges += [(before[op], cache), (cache, behind[op])]
    types = [*graph.op_types, *graph.op_types, "Proxy", *(CACHE for _ in caches)]
    found = OpGraph.from_edges([*before, *behind, PROXY, *caches], edges, name=graph.name, op_types=types)
    more = np.zeros(1 + len(caches))
    return found.replace(
        op_flops=np.concatenate([graph.op_flops, graph.op_flops, more]),
        op_weight_bytes=np.concatenate([graph.op_weight_bytes, graph.op_weight_bytes, more]),
    )


def _prompt_share(task: LanguageTask) -> NDArray[np.float64]:
    """``[num_ops]`` share of the cache of a sequence that is there after its prompt."""
    assert task.description is not None
    shares = []
    for part in task.description.parts:
        kept = (part.cache_values * part.kept_tokens(tokens) * 2.0 + part.state_bytes
                for tokens in (task.serving.prompt, task.serving.context))  # fmt: skip
        some, all_of_it = kept
        shares.append(some / all_of_it if all_of_it else 0.0)
    return np.array([*shares, 0.0])


def _table(task: LanguageTask, phase: str, graph: OpGraph, sent: NDArray[np.float64] | None) -> CostTable:
    """Return the costs of one step of a phase; `sent` are the bytes of caches that leave with the last one."""
    old = task.problem.graph
    table = task.costs_of_phase[phase].for_kinds(task.problem.platform.kinds)
    num_kinds = len(table.kinds)
    first = PHASES.index(phase) * old.num_ops
    time = np.zeros((graph.num_ops, num_kinds + 1))
    time[first : first + old.num_ops, :num_kinds] = table.op_time_s
    supported = np.ones_like(time, dtype=np.bool_)
    for at in range(2):
        supported[at * old.num_ops : (at + 1) * old.num_ops, :num_kinds] = table.supported
    supported[:, num_kinds] = False
    supported[2 * old.num_ops] = np.arange(num_kinds + 1) == num_kinds
    tensor_of = {int(producer): tensor for tensor, producer in enumerate(graph.tensor_producer.tolist())}
    moved = np.zeros((graph.num_tensors, num_kinds + 1))
    for tensor, producer in enumerate(old.tensor_producer.tolist()):
        moved[tensor_of[first + producer], :num_kinds] = table.transfer_time_s[tensor]
    if sent is not None:
        steps = next(each.count for each in task.serving.phases if each.name == phase)
        caches = [tensor_of[2 * old.num_ops + 1 + at] for at in range(len(sent))]
        moved[caches, :num_kinds] = _times_of(sent, old.tensor_bytes, table.transfer_time_s) / steps
    group = np.concatenate([table.op_group, table.op_group + old.num_ops, np.arange(2 * old.num_ops, graph.num_ops)])
    return CostTable(
        kinds=(*table.kinds, PROXY), op_time_s=time, transfer_time_s=moved, op_memory_bytes=np.zeros(graph.num_ops),
        supported=supported, op_group=number_by_first(group), provenance=table.provenance,
    )  # fmt: skip


def _times_of(
    wanted: NDArray[np.float64], num_bytes: NDArray[np.float64], time_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """``[num_wanted, num_kinds]`` seconds to move `wanted` bytes, as times of known tensors grow with their bytes."""
    small, large = int(num_bytes.argmin()), int(num_bytes.argmax())
    grown = max(float(num_bytes[large] - num_bytes[small]), 1.0)
    slope = (time_s[large] - time_s[small]) / grown
    times: NDArray[np.float64] = time_s[small] + slope * (wanted - num_bytes[small])[:, None]
    return times


def of_phase(problem: Problem[Any], placement: Placement, phase: str) -> tuple[OpGraph, Platform, Placement]:
    """Return model, devices and placement of one phase of a problem with the phases apart."""
    graph, before = problem.graph, f"{phase}."
    named = zip(graph.op_names, graph.op_types, strict=True)
    kept = [op for op, (name, kind) in enumerate(named) if name.startswith(before) and kind != CACHE]
    name_of = {op: graph.op_names[op].removeprefix(before) for op in kept}
    pairs = zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True)
    inner = OpGraph.from_edges(
        list(name_of.values()),
        [(name_of[sender], name_of[receiver]) for sender, receiver in pairs if name_of.keys() >= {sender, receiver}],
        name=graph.name,
        op_types=[graph.op_types[op] for op in kept],
    ).replace(op_flops=graph.op_flops[kept], op_weight_bytes=graph.op_weight_bytes[kept])
    platform = problem.platform.with_devices(each for each in problem.platform.devices if each.name != PROXY)
    teams = np.arange(platform.num_devices)
    for members in placement.teams:
        teams[[device for device in members if device < len(teams)]] = members[0]
    at = placement.device_of_op[kept]
    return inner, platform, Placement(inner.op_names, platform.device_names, at, team_of_device=teams)
