r"""A served language model as a placement problem.

The costs of a phase are the costs of the same ops at its shapes, and a placement serves all phases, so costs add up:
an op, or a tensor between devices, takes :math:`\sum_p n_p t_p` seconds for the :math:`n_p` steps of every phase
:math:`p` of a request. A *sample* is a batch of requests, from the first token of the prompts to the last one.

Memory of an op is its weights, and its keys and values for all sequences in flight. Activations are not added up over
ops, because buffers are used again: the most that is alive at a time in any phase is set aside on every device. With
teams, every member is counted with the cache of all sequences, as any of them may be any member's. A weight that
several ops use, such as a tied head, counts once on every device that uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import components, number_by_first
from placekit.language.decoder import Decoder, bits_of
from placekit.language.description import ModelDescription
from placekit.language.from_numbers import describe_decoder
from placekit.language.gguf.buffers import Buffers
from placekit.language.graph import model_step
from placekit.language.serving import Phase, Serving
from placekit.language.tensor_parallel import Teams, copies_of_caches, team_costs, with_teams
from placekit.model.blocks.block_paths import layer_labels
from placekit.model.contiguity import Contiguity
from placekit.model.costs import CostTable
from placekit.model.errors import InvalidProblemError, NoRoomError
from placekit.model.graph import OpGraph
from placekit.model.memory import MemoryBlocks
from placekit.model.platform import Platform
from placekit.model.problem import Problem
from placekit.model.reprs import short_repr
from placekit.model.sizes import format_bytes
from placekit.objectives import Objective

GRANULARITIES = ("layer", "op")
"""What stays together: the ops of a block, or nothing but what is fused."""

Costs = Callable[[OpGraph], CostTable]
"""From the graph of a step to its costs."""


@dataclass(frozen=True)
class LanguageTask:
    """A problem of serving a language model, with what its numbers are made of."""

    problem: Problem[Any]  # the problem, for any method; its platform has the memory that activations leave
    serving: Serving  # what is served
    costs_of_phase: Mapping[str, CostTable]  # costs of one step, by name of the phase
    # weight_bytes, cache_bytes: ``[num_ops]`` bytes of weights, and of keys and values of one sequence
    weight_bytes: NDArray[np.float64]
    cache_bytes: NDArray[np.float64]
    activation_bytes: float  # set aside on every device
    # bytes, and the ops that use them, of weights that several ops use; `weight_bytes` has them for each
    shared_weights: tuple[tuple[float, tuple[int, ...]], ...] = ()
    description: ModelDescription | None = None  # the model as blocks, if it was given as such
    # hosted_blocks, hosted_bytes: number of first blocks whose experts, or dense feed-forward layers, the host
    # computes, and the weights of these, which only the host holds
    hosted_blocks: int = 0
    hosted_bytes: float = 0.0
    # host_cache_bytes, host_cache_of_block: cache of one sequence that only the host holds, and most of it in a block
    host_cache_bytes: float = 0.0
    host_cache_of_block: float = 0.0
    # of a task with prefill and decode on devices of their own, the one with both phases on the same devices
    undivided: LanguageTask | None = None
    # first_kind: kind of the card that the costs take for the first one; None where there is no choice
    first_kind: str | None = None
    # offload_tokens: tokens of a step from which on a card computes what the host holds; None for never
    offload_tokens: int | None = None
    overlaps_prompt: bool = False  # True if cards compute the chunks of one prompt at the same time
    buffers: Buffers | None = None  # parts of llama.cpp's compute buffers; None where `activation_bytes` is all

    __repr__ = short_repr

    def held_bytes(self, is_held: NDArray[np.bool_]) -> float:
        """Return the bytes of the weights of some ops on one device, shared ones once."""
        again = sum(num_bytes * max(int(is_held[list(ops)].sum()) - 1, 0) for num_bytes, ops in self.shared_weights)
        return float(self.weight_bytes[is_held].sum()) - again

    @cached_property
    def has_experts(self) -> bool:
        """True for a mixture of experts."""
        return self.description is not None and any(part.experts > 1 for part in self.description.parts)

    @property
    def hosted_layers(self) -> str:
        """Parts on the host of blocks whose rest is on cards."""
        return "experts" if self.has_experts else "feed-forward layers"

    @property
    def platform(self) -> Platform:
        """The devices with all of their memory, that of activations too."""
        held = self.hosted_bytes + self.serving.sequences * self.host_cache_bytes
        return self.problem.platform.with_more_memory(of_member=self.activation_bytes, of_host=held)

    def with_costs(self, costs_of_phase: Mapping[str, CostTable]) -> LanguageTask:
        """Return the task with other costs of its phases; what ops hold stays."""
        mixed = mix_phases([(phase, costs_of_phase[phase.name]) for phase in self.serving.phases])
        old = self.problem.costs
        mixed = mixed.replace(op_memory_bytes=old.op_memory_bytes, blocks=old.blocks, provenance=old.provenance)
        return replace(self, problem=self.problem.replace(costs=mixed), costs_of_phase=costs_of_phase)


def alive_bytes(graph: OpGraph) -> float:
    """Return the most bytes of tensors that are alive at a time when the ops run in topological order."""
    rank = graph.rank
    born = rank[graph.tensor_producer]
    dead = born.copy()
    np.maximum.at(dead, graph.consumed_tensor, rank[graph.consumers])
    change = np.zeros(graph.num_ops + 1)
    np.add.at(change, born, graph.tensor_bytes)
    np.add.at(change, dead + 1, -graph.tensor_bytes)
    return float(np.cumsum(change).max(initial=0.0))


@dataclass(frozen=True)
class TaskForm:
    """Choices by which serving a model becomes a problem."""

    objective: Objective | None = None  # None for that of problems that name none
    contiguity: Contiguity | None = None  # None for the objective's own
    pins: Mapping[str, str] | None = None  # device by op or pattern, as of `Problem.pin`; their ops are not fused
    granularity: str = "layer"  # ``"layer"`` to keep the ops of a block together, ``"op"`` not to
    together: int = 1  # consecutive blocks that stay together
    cache_precision: str = "f16"  # of keys and values, a name of `placekit.language.decoder.BITS`
    # devices, by index, that compute every op together: these teams are the devices of the problem; empty for the
    # devices of the platform
    tensor_teams: Teams = ()


@dataclass(frozen=True)
class HeldByOps:
    """Memory of the ops of a model, and which of them are one."""

    # weight_bytes, cache_bytes, shared_weights, description: as of `LanguageTask`
    weight_bytes: NDArray[np.float64]
    cache_bytes: NDArray[np.float64]
    shared_weights: tuple[tuple[float, tuple[int, ...]], ...] = ()
    description: ModelDescription | None = None
    colocation: NDArray[np.int64] | None = None  # ``[num_ops]`` labels of what must stay together in any case


def decoder_task(
    model: Decoder | ModelDescription,
    serving: Serving,
    platform: Platform,
    costs: Costs,
    form: TaskForm | None = None,
    *,
    precision: str = "f16",
    name: str = "decoder",
) -> LanguageTask:
    """Return the problem of serving a decoder that is given by its numbers, or a model that is described.

    Parameters
    ----------
    model, serving
        Numbers or description, and what is asked of it.
    platform
        The devices.
    costs
        From an op graph to its costs on `platform`: ``lambda graph: Analytic().cost_table(graph, platform)``.
    form
        Objective, constraints, granularity, precision of the cache; whole blocks and the defaults if None.
    precision
        Of weights: a name of `placekit.language.decoder.BITS`. A description has its own.
    name
        Name of a model that is given by numbers.

    Raises
    ------
    UnknownNameError
        No such precision.
    InvalidProblemError
        No such granularity, activations that do not fit into a device, or a team that cannot divide the model.

    Examples
    --------
    >>> from placekit import Analytic, Platform, solve
    >>> model, platform = Decoder(4, 256, 1024, 1000, heads=4), Platform.of(a10=2)
    >>> task = decoder_task(model, Serving(64, 16), platform, lambda graph: Analytic().cost_table(graph, platform))
    >>> solve(task.problem).status
    <Status.OPTIMAL: 'optimal'>
    """
    form = form or TaskForm()
    described = describe_decoder(model, precision, name) if isinstance(model, Decoder) else model
    steps = {
        phase.name: model_step(described, phase, batch=serving.batch, cache_precision=form.cache_precision)
        for phase in serving.phases
    }
    first = next(iter(steps.values()))
    graphs = {phase: step.graph for phase, step in steps.items()}
    cache_bytes = first.cache_bytes(serving.context, bits_of(form.cache_precision) / 8)
    if form.tensor_teams:
        cache_bytes *= copies_of_caches(described, first, [len(team) for team in form.tensor_teams])
        costs = team_costs(costs, first, platform, form.tensor_teams)
        platform = with_teams(platform, form.tensor_teams)
    together = np.arange(first.graph.num_ops)
    together[: len(described.front)] = 0  # embeddings and towers: with whole blocks the model is a chain then
    held = HeldByOps(
        first.weight_bytes, cache_bytes, first.shared_weights, described,
        together if form.granularity == "layer" else None,
    )  # fmt: skip
    return language_task(graphs, serving, platform, costs, held, form)


def language_task(
    graphs: Mapping[str, OpGraph],
    serving: Serving,
    platform: Platform,
    costs: Costs,
    held: HeldByOps,
    form: TaskForm,
) -> LanguageTask:
    """Return the problem of serving a model whose phases are graphs of the same ops.

    There is a graph for the name of every phase of `serving`. See `decoder_task` for what is raised.
    """
    if form.granularity not in GRANULARITIES:
        raise InvalidProblemError(f"granularity is {form.granularity!r}; it must be one of {', '.join(GRANULARITIES)}")
    if form.together < 1 or (form.together > 1 and form.granularity != "layer"):
        raise InvalidProblemError(f"together is {form.together}; it must be at least 1, and 1 with granularity 'op'")
    phases = {phase.name: phase for phase in serving.phases}
    tables = {name: costs(graphs[name]) for name in phases}
    alive = max(alive_bytes(graphs[name]) for name in phases)
    graph = graphs[next(iter(phases))]
    labels = np.arange(graph.num_ops) if held.colocation is None else held.colocation
    whole = layer_labels(graph.op_names, form.together)
    if form.granularity == "layer":
        tables = {name: _apart(table, layer_labels(graph.op_names)) for name, table in tables.items()}
        labels = join_labels(labels, whole)
    mixed = mix_phases([(phases[name], table) for name, table in tables.items()])
    memory = held.weight_bytes + serving.sequences * held.cache_bytes
    mixed = mixed.replace(
        op_memory_bytes=memory - _counted_apart(held.shared_weights, graph.num_ops),
        blocks=shared_memory(held.shared_weights),
    )
    problem: Problem[Any] = Problem(graph, less_memory(platform, alive), mixed, form.objective, colocation=labels)
    if form.contiguity is not None:
        problem = problem.replace(contiguity=form.contiguity)
    problem = problem.pin(form.pins or {})
    if form.pins:
        tables = {name: _apart(table, problem.pinned) for name, table in tables.items()}
        problem = problem.replace(costs=_apart(problem.costs, problem.pinned))
    return LanguageTask(
        problem, serving, tables, held.weight_bytes, held.cache_bytes, alive, held.shared_weights, held.description
    )


def _apart(costs: CostTable, labels: NDArray[np.int64]) -> CostTable:
    """Return the costs with every fused group divided by label; the time of a group stays with the op that leads it.

    A group across two blocks would join the blocks, and all blocks in the end, into one class.
    """
    pairs = np.stack([costs.op_group, labels], axis=1)
    return costs.replace(op_group=number_by_first(np.unique(pairs, axis=0, return_inverse=True)[1].ravel()))


def _counted_apart(shared: Sequence[tuple[float, tuple[int, ...]]], num_ops: int) -> NDArray[np.float64]:
    """``[num_ops]`` bytes of weights that `shared_memory` counts."""
    found = np.zeros(num_ops)
    for num_bytes, ops in shared:
        found[list(ops)] += num_bytes
    return found


def shared_memory(shared: Sequence[tuple[float, tuple[int, ...]]]) -> MemoryBlocks | None:
    """Return weights that several ops use as memory that a device holds once."""
    if not shared:
        return None
    return MemoryBlocks.of([(num_bytes, True, ops) for num_bytes, ops in shared])


def mix_phases(parts: list[tuple[Phase, CostTable]]) -> CostTable:
    """Return the sum of the tables, each as often as its phase has steps."""
    (_, first), *_ = parts
    return first.replace(
        op_time_s=np.sum([phase.count * table.op_time_s for phase, table in parts], axis=0),
        transfer_time_s=np.sum([phase.count * table.transfer_time_s for phase, table in parts], axis=0),
        direct_time_s=np.sum([phase.count * table.direct_time_s for phase, table in parts], axis=0),
        supported=np.logical_and.reduce([table.supported for _, table in parts]),
        provenance={**first.provenance, "phases": {phase.name: phase.count for phase, _ in parts}},
    )


def join_labels(labels: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.int64]:
    """``[num_ops]`` labels of the parts that are connected through equal labels of either kind."""
    if len(np.unique(labels)) == len(labels):
        return others
    first, second = number_by_first(labels), number_by_first(others) + len(labels)
    return number_by_first(components(2 * len(labels), first, second)[first])


def less_memory(platform: Platform, num_bytes: float) -> Platform:
    """Return the platform with less memory on every device, on each member of those that are teams.

    Raises `NoRoomError`: a device has no more than that.
    """
    for device in platform.devices:
        limit = device.memory_bytes
        taken = device.degree * num_bytes
        if limit is not None and limit <= taken:
            raise NoRoomError(
                f"device {device.name!r} has {format_bytes(limit)}; activations of a step alone take "
                f"{format_bytes(taken)}: ask for a smaller batch, prompt or context",
                device.name, taken,
            )  # fmt: skip
    return platform.with_more_memory(of_member=-num_bytes)
