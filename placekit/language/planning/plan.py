"""The best plan that a runtime can follow: its rules as pins, classes and devices of a few problems.

A runtime that takes whole blocks in a chain leaves contiguity and colocation to say so. Where the CPU may stand is a
pin of an end of the model, or no CPU at all; each such case is a problem of its own, solved to a proof, and the best
answer counts. With more than one batch in flight, the number of batches is a choice, too: fewer read the weights less
often, more keep more stages busy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from placekit.language.gguf.buffers import padded
from placekit.language.planning.experts import hosting, hosting_cases, needs_host, with_hosted_cache
from placekit.language.planning.offload import is_offloaded, streamed, with_offload
from placekit.language.planning.reserved import with_buffers
from placekit.language.planning.tensor_cut import all_teams, best_teams
from placekit.language.report import ServingReport, serving_report
from placekit.language.runtimes import refuse_nodes
from placekit.language.runtimes.device_names import ADDRESS
from placekit.language.runtimes.record import Runtime
from placekit.language.serving import Serving
from placekit.language.task import LanguageTask, TaskForm, join_labels
from placekit.language.tensor_parallel import Teams, cache_copies, equal_teams, usable_degrees
from placekit.model.blocks.block_paths import BEFORE, BEHIND, block_numbers
from placekit.model.contiguity import Contiguity
from placekit.model.errors import InvalidProblemError, NoRoomError
from placekit.model.placement import Placement
from placekit.model.platform import Platform
from placekit.model.problem import Problem
from placekit.objectives import Objective, SerialLatency, Throughput
from placekit.solve.result import Result
from placekit.solve.solve import solve as solve_problem
from placekit.solvers.chain.costs import chain_of
from placekit.solvers.chain.method import Chain, ChainParams

MAX_BATCHINGS = 6
"""Numbers of batches in flight that are tried."""

Solve = Callable[[Problem[Any]], Result]


class MakeTask(Protocol):
    """Maker of the task of a model, for a load to serve and the devices that serve it."""

    def __call__(self, serving: Serving, platform: Platform, *, form: TaskForm) -> LanguageTask:
        """Return the task."""


@dataclass(frozen=True)
class ServingPlan:
    """A plan and what it delivers."""

    runtime: Runtime | None  # whose rules it follows; None for no runtime's
    # task, result: the problem that was solved last, and its answer
    task: LanguageTask
    result: Result
    report: ServingReport | None  # what the placement delivers; None without one

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second; 0 without a placement."""
        return 0.0 if self.report is None else self.report.tokens_per_s


def plans(cases: Iterable[LanguageTask], solve: Solve, runtime: Runtime | None = None) -> list[ServingPlan]:
    """Return the plan of every case."""
    found = []
    for task in cases:
        result = solve(task.problem)
        if task.first_kind is not None and first_card(task, result.placement) not in (None, task.first_kind):
            result = solve_problem(task.problem, Chain(ChainParams(first_kind=task.first_kind)))
        report = None if result.placement is None else serving_report(task, result.placement)
        found.append(ServingPlan(runtime, task, result, report))
    return found


def first_card(task: LanguageTask, placement: Placement | None) -> str | None:
    """Return the kind of the first card of this machine with a block; None if no card has one."""
    if placement is None:
        return None
    devices, blocks = task.problem.platform.devices, block_numbers(task.problem.graph)
    rank = np.where(blocks == BEHIND, blocks.max() + 1, blocks)
    on_card = ~np.array([device.is_host or ADDRESS in device.properties for device in devices])[placement.device_of_op]
    if not on_card.any():
        return None
    op = int(np.flatnonzero(on_card)[rank[on_card].argmin()])
    return devices[int(placement.device_of_op[op])].kind


def as_computed(task: LanguageTask, placement: Placement, min_tokens: int | None, hosted_blocks: int) -> LanguageTask:
    """Return the task with large steps on the first card with a block, then feed-forward of first blocks on the host.

    In this order: what the host holds is copied to that card for large steps. Raises `InvalidProblemError`: the host
    lacks memory.
    """
    kind = first_card(task, placement)
    if min_tokens is not None and kind is not None:
        task = with_offload(task, kind, min_tokens)
    return hosting(task, hosted_blocks) if hosted_blocks else task


def fastest(found: Sequence[ServingPlan]) -> ServingPlan:
    """Return the first plan that no other beats in tokens per second."""
    return max(found, key=lambda plan: plan.tokens_per_s)


def plan_cases(
    make: MakeTask,
    serving: Serving,
    platform: Platform,
    runtime: Runtime | None = None,
    *,
    batch: int | None = None,
    goal: str | None = None,
    objective: Objective | None = None,
    contiguity: Contiguity | None = None,
    pins: Mapping[str, str] | None = None,
    degrees: Sequence[int] = (1,),
) -> Iterator[LanguageTask]:
    """Yield the problems whose best answer is the plan.

    Parameters
    ----------
    make, serving, platform
        The model, what is asked of it (its batch is ignored), and devices with the memory that may be used.
    runtime
        Whose rules hold; None for whole runs of blocks on any device.
    batch
        Batch size of a decoding step; None for the best.
    goal
        ``"latency"`` for all sequences in one batch; ``"throughput"`` or ``"context"`` for as many batches as are
        fastest; None for what the runtime is for.
    objective
        What to minimise; None for what the number of batches asks for: the time of the only one, or the rate of many.
    contiguity
        None for runs of blocks.
    pins
        Device by op or pattern.
    degrees
        Tensor-parallel degrees that stages may have: all stages the same for a runtime, each its own without one.

    Raises
    ------
    InvalidProblemError
        The runtime has no device here, a pin is wrong, or a degree that the runtime, the model or the devices lack.
    """
    devices = platform if runtime is None else runtime.devices(platform)
    if runtime is not None:
        refuse_nodes(runtime, devices.devices)
    if runtime is not None and not runtime.is_parallel and max(degrees) > 1:
        raise InvalidProblemError(f"{runtime.name} has no tensor parallelism: leave out --tensor-parallel")
    is_buffered = runtime is not None and runtime.has_buffers
    is_latency = (goal or (runtime.goal if runtime else "throughput")) == "latency"
    sizes = [batch] if batch is not None else [serving.sequences] if is_latency else _batches(serving, devices)
    for size in sizes:
        context = padded(serving.context) if is_buffered else serving.context
        served = replace(serving, batch=size, context=context)
        minimised = objective or (SerialLatency() if served.sequences // size == 1 or is_latency else Throughput())
        is_chain = isinstance(minimised, (SerialLatency, Throughput))
        rule = contiguity or (Contiguity.ACYCLIC if is_chain else None)
        made: Callable[..., LanguageTask] = partial(_made, make, served, TaskForm(minimised, rule, pins))
        made = partial(_buffered, made) if is_buffered else made
        if tuple(degrees) == (1,):
            yield from _with_rules(made, devices, runtime) if pins else _with_room(made, devices, runtime)
        else:
            yield from _in_teams(made, devices, runtime, degrees)


def _made(make: MakeTask, serving: Serving, form: TaskForm, devices: Platform, teams: Teams = ()) -> LanguageTask:
    return make(serving, devices, form=replace(form, tensor_teams=teams))


def _buffered(make: Callable[..., LanguageTask], devices: Platform, teams: Teams = ()) -> LanguageTask:
    return with_buffers(make(devices, teams))


def _batches(serving: Serving, devices: Platform) -> list[int]:
    """Return batch sizes worth a try: all sequences at once, or as many batches as stages."""
    most = min(serving.sequences, devices.num_devices)
    counts = sorted({round(most ** (at / (MAX_BATCHINGS - 1))) for at in range(MAX_BATCHINGS)} | {most})
    return sorted({serving.sequences // count for count in counts}, reverse=True)


def _in_teams(
    make: Callable[..., LanguageTask], devices: Platform, runtime: Runtime | None, degrees: Sequence[int]
) -> Iterator[LanguageTask]:
    """Yield the task once for every way to cut the devices into tensor-parallel teams that must be solved."""
    usable = usable_degrees(devices, degrees)
    if not usable:
        raise InvalidProblemError(f"there are no {min(degrees)} equal accelerators, as --tensor-parallel asks for")
    model = make(devices).description
    if model is None:
        raise InvalidProblemError(
            "--tensor-parallel needs a model that is given by a config.json, a GGUF file, a name or numbers"
        )
    if runtime is not None:
        for degree in usable:
            yield _whole(make(devices, equal_teams(devices, degree)), alone=False)[0]
        return
    divided = [degree for degree in usable if all(cache_copies(part, degree) == 1 for part in model.parts)]
    teams = best_teams(make(devices, all_teams(devices, divided)), devices, divided) if divided else ()
    if teams:
        yield make(devices, teams)
    cards = devices.with_devices(device for device in devices.devices if not device.is_host)
    for degree in usable:  # beside the best cut, as a plan with fewer stages may be faster with few batches in flight
        chosen = devices if degree in divided else cards  # a host would hold the cache once, and such a team more often
        yield make(chosen, equal_teams(chosen, degree))


def _with_room(
    make: Callable[[Platform], LanguageTask], devices: Platform, runtime: Runtime | None
) -> Iterator[LanguageTask]:
    """Yield the cases of `_with_rules`, in which cards without room for the activations of a step hold nothing."""
    try:
        yield from _with_rules(make, devices, runtime)
    except NoRoomError as error:  # before the first case
        yield from _with_room(make, without_card(devices, error), runtime)


def made_with_room(make: Callable[[Platform], LanguageTask], platform: Platform) -> LanguageTask:
    """Return a task in which cards without room for the activations of a step hold nothing; see `without_card`."""
    try:
        return make(platform)
    except NoRoomError as error:
        return made_with_room(make, without_card(platform, error))


def without_card(platform: Platform, error: NoRoomError) -> Platform:
    """Return the platform with just the memory that a step takes on cards of a kind with less: they hold no weights.

    The cards stay, as programs number them. Raises `error` for a host, a pool of devices, or the last kind of card.
    """
    small = platform.devices[platform.index(error.device)]
    limits = [each.memory_bytes for each in platform.devices if not each.is_host and each.kind != small.kind]
    has_other = any(limit is None or limit > error.taken_bytes + 1 for limit in limits)
    pooled = {name for pool in platform.pools for name in pool.devices}
    alike = {each.name for each in platform.devices if each.kind == small.kind}
    if small.is_host or not has_other or pooled & alike:
        raise error
    devices = (
        each.replace(memory_bytes=error.taken_bytes + 1) if each.name in alike else each for each in platform.devices
    )
    return platform.replace(devices=tuple(devices))


def _with_rules(
    make: Callable[[Platform], LanguageTask], devices: Platform, runtime: Runtime | None
) -> Iterator[LanguageTask]:
    """Yield the task once for every way to obey the runtime."""
    rule = "any" if runtime is None else runtime.host
    hosts = [device for device in devices.devices if device.is_host]
    cards = [device for device in devices.devices if not device.is_host]
    if runtime is None:
        task = make(devices)
        yield task
        yield from hosting_cases(task)
    elif rule == "first" and hosts and cards:
        assert runtime is not None
        task, blocks = _whole(make(devices), alone=True)
        last = (blocks == BEHIND) | (blocks == blocks.max())  # the output follows the last block
        problem = task.problem
        problem = problem.replace(colocation=join_labels(problem.colocation, np.where(last, -1, np.arange(len(last)))))
        task = _pinned(replace(task, problem=problem), blocks == BEFORE, devices.index(hosts[0].name))
        for way in _caches(replace(task, overlaps_prompt=runtime.overlaps_prompt), runtime):
            for offloaded in _with_offload(way, runtime.offload_tokens):
                yield offloaded
                yield from hosting_cases(offloaded)
    elif rule == "last" and hosts and cards:
        yield _whole(make(devices.with_devices(cards)), alone=True)[0]
        for kind in dict.fromkeys(card.kind for card in cards):
            task, blocks = _whole(_streamed(make(devices), kind), alone=True)
            first = next(at for at, device in enumerate(devices.devices) if device.kind == kind)
            task = _pinned(task, blocks == BEFORE, first)
            yield _pinned(task, blocks == BEHIND, devices.index(hosts[0].name))
    else:
        yield _whole(make(devices), alone=rule != "none")[0]


def _caches(task: LanguageTask, runtime: Runtime) -> Iterator[LanguageTask]:
    """Yield the task, and that with the cache on the host where the cards lack room for all blocks.

    With all blocks on cards nothing is gained: the cache would only be read more slowly.
    """
    yield task
    if "host_cache" in runtime.options and Chain().supports(task.problem) is None and needs_host(task):
        cached = with_hosted_cache(task, runtime.offload_tokens)
        if cached is not None:
            yield cached


def _whole(task: LanguageTask, *, alone: bool) -> tuple[LanguageTask, NDArray[np.int64]]:
    """Return the task in whole blocks, and the block of every op, as of `block_numbers`.

    What is before and behind the blocks may be on devices of its own if `alone`.
    """
    problem = task.problem
    blocks = block_numbers(problem.graph)
    label = np.where(blocks == BEHIND, blocks.max() + 1, blocks)
    if not alone:
        label = label.clip(0, blocks.max())
    problem = problem.replace(colocation=join_labels(problem.colocation, label))
    if blocks.max() < 0 or chain_of(problem) is None:
        raise InvalidProblemError(
            f"{problem.name!r} is no chain of whole blocks, which runtimes ask for: solve without --for"
        )
    return replace(task, problem=problem), blocks


def _pinned(task: LanguageTask, ops: NDArray[np.bool_], device: int) -> LanguageTask:
    pinned = task.problem.pinned.copy()
    pinned[ops] = device
    return replace(task, problem=task.problem.replace(pinned=pinned))


def _with_offload(task: LanguageTask, min_tokens: int | None) -> Iterator[LanguageTask]:
    """Yield the task once for every kind of card that may be the first, as large steps are computed there.

    Cards of other machines compute nothing that this host holds.
    """
    cards = [device for device in task.problem.platform.devices if not device.is_host]
    kinds = list(dict.fromkeys(card.kind for card in cards if ADDRESS not in card.properties))
    if min_tokens is None or not kinds or not any(is_offloaded(replace(task, offload_tokens=min_tokens), name)
                                     for name in task.costs_of_phase):  # fmt: skip
        yield task
        return
    is_chain = Chain().supports(task.problem) is None
    for kind in kinds:
        yield replace(with_offload(task, kind, min_tokens), first_kind=kind if is_chain and len(kinds) > 1 else None)


def _streamed(task: LanguageTask, kind: str) -> LanguageTask:
    """Return the task as accelerate runs it: what hosts keep is copied to a card of `kind`, and computed there."""
    return task.with_costs({name: streamed(task, kind, table) for name, table in task.costs_of_phase.items()})
