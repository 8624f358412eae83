"""Method ``chain``: the optimum of problems whose classes form a chain, in milliseconds.

Serial latency without a cost of subgraphs, and throughput without overlap, for single devices or teams of equal ones,
with pins, memory limits and weights that several ops use. The program is :mod:`placekit.solvers.chain.dynamic_program`,
or with direct links, for single devices, :mod:`placekit.solvers.chain.linked`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from placekit.model.contiguity import Contiguity
from placekit.model.placement import Placement, Violation
from placekit.model.problem import UNPINNED
from placekit.solve.method import Method
from placekit.solve.result import OPTIMALITY_TOLERANCE, SOLVER_TOLERANCE
from placekit.solve.stop import StopReason, wanted_until
from placekit.solvers.chain.costs import BlockOrder, chain_of, interchangeable, stage_sorts
from placekit.solvers.chain.dynamic_program import BlockRun, Lead, StageSort, StoppedError, best_chain
from placekit.solvers.chain.linked import best_linked_chain, crossings, goes_to_next
from placekit.solvers.chain.ties import prefer

if TYPE_CHECKING:
    from placekit.model.problem import Problem
    from placekit.solve.run import Run

MAX_WORK = 4e9
"""Stages that a search tries at most: above it the other methods are asked."""
MAX_BLOCKS = 4_000
"""Blocks at most, as a table has an entry for every two of them."""
_ROUNDING = 2.0**-51
"""Relative error of an addition here, and of one of the judge's."""
MOST_LOST = 7e-10
"""Relative rounding of sums up to which a bound is as good as exact."""


@dataclass(frozen=True)
class ChainParams:
    """Parameters of `Chain`.

    Parameters
    ----------
    is_even
        True for runtimes that have as many replicas of every stage: the best such plan, with the bound of all plans.
    first_kind
        Kind of the first card of the chain: the best such plan, with the bound of all plans; None for any.
    """

    is_even: bool = False
    first_kind: str | None = None


class Chain(Method):
    """Exact dynamic program over runs of blocks, for problems whose classes form a chain."""

    name = "chain"
    params_type = ChainParams
    params: ChainParams

    def supports(self, problem: Problem[Any]) -> str | None:
        """Say what the method cannot do."""
        objective, costs, kind = problem.objective, problem.costs, self.params.first_kind
        if problem.num_classes > MAX_BLOCKS:
            return f"it knows chains of {MAX_BLOCKS} classes at most"
        loads = objective.loads(problem)
        if loads is None or loads.has_overlap:
            return "it knows serial-latency, and throughput without overlap"
        if loads.subgraph_cost_s:
            return "it knows no fixed cost of a subgraph"
        if objective.team_rule == "any":
            return "it knows teams of equal devices only"
        if problem.contiguity is Contiguity.NONE or problem.graph.is_backward.any():
            return "it needs contiguity, and no backward ops"
        if problem.has_direct_links and objective.team_rule != "off":
            return "it knows no teams over direct links"
        if objective.team_rule != "off" and (problem.pinned != UNPINNED).any():
            return "it knows no pins of teams"
        if problem.has_tight_blocks and (costs.blocks is None or not costs.blocks.is_weight.all()):
            return "of memory that ops share it knows weights only"
        if problem.has_tight_blocks and costs.blocks is not None and costs.blocks.queue_slots:
            return "it knows no memory of queues"
        if kind is not None and kind not in problem.platform.kinds:
            return f"first_kind is {kind!r}; kinds are {', '.join(problem.platform.kinds)}"
        chain = chain_of(problem)
        if chain is None:
            return "its classes are no chain"
        if problem.has_direct_links and not goes_to_next(problem, chain):
            return "over direct links it knows tensors to the next class only"
        groups = interchangeable(problem)
        states = float(np.prod([len(group) + 1.0 for group in groups]))
        choices = (len(groups) + 1) ** 3 if problem.has_direct_links else sum(map(len, groups))
        if states * choices * (chain.num_blocks + 1) ** 2 > MAX_WORK:
            return "there are too many kinds of devices"
        return None

    def run(self, run: Run[Any]) -> StopReason:
        """Find the best chain, offer it, and prove it."""
        try:
            with wanted_until(run.should_stop):
                return self._prove(run)
        except StoppedError:
            return run.should_stop() or StopReason.FINISHED

    def _prove(self, run: Run[Any]) -> StopReason:
        problem = run.problem
        chain = chain_of(problem)
        assert chain is not None
        found = best = chain_plan(problem)
        if found is None or best is None:
            return run.prove_infeasible(_nothing_fits(problem, chain))
        if self.params.first_kind is not None:
            found = chain_plan(problem, self.params.first_kind) or found
        sizes = sorted({sort.devices for sort in found.sorts})
        if self.params.is_even and len(sizes) > 1:
            found = min((even for size in sizes if (even := found.of_size(size))), key=lambda plan: plan.value)
        run.offer(found.placement(problem, chain))
        lost = _ROUNDING * (problem.graph.num_ops + problem.graph.num_tensors)
        run.raise_bound(
            best.value * (1 - lost),
            "DP over runs of a chain",
            tolerance=OPTIMALITY_TOLERANCE if lost <= MOST_LOST else SOLVER_TOLERANCE,
        )
        return run.should_stop() or StopReason.FINISHED


@dataclass(frozen=True)
class ChainPlan:
    """The best plan of a chain of blocks."""

    value: float  # seconds
    # stages, sorts, groups: its stages, the sorts of stages of which they are, and the interchangeable devices of which
    # these are
    stages: tuple[BlockRun, ...]
    sorts: Sequence[StageSort]
    groups: Sequence[tuple[int, ...]]
    is_sum: bool  # True for the sum of the stages' seconds, False for the largest

    def of_size(self, devices: int) -> ChainPlan | None:
        """Return the best plan whose stages take as many devices each; None if there is none."""
        return _planned([sort for sort in self.sorts if sort.devices == devices], self.groups, is_sum=self.is_sum)

    def placement(self, problem: Problem[Any], chain: BlockOrder) -> Placement:
        """Return the plan as a placement: each stage on the next free devices of its group."""
        at, teams = np.zeros(chain.num_blocks, dtype=np.int64), np.arange(problem.platform.num_devices)
        taken = [0] * len(self.groups)
        for stage in self.stages:
            sort = self.sorts[stage.sort]
            begin = taken[sort.group]
            members = self.groups[sort.group][begin : begin + sort.devices]
            taken[sort.group] += sort.devices
            at[stage.begin : stage.end] = members[0]
            teams[list(members)] = members[0]
        names = problem.graph.op_names, problem.platform.device_names
        return Placement(*names, at[chain.block_of_op], team_of_device=teams)


def chain_plan(problem: Problem[Any], first_kind: str | None = None, *, breaks_ties: bool = True) -> ChainPlan | None:
    """Return the best plan of a problem that `Chain` supports; None if there is none.

    With `first_kind` the first card of the chain is of that kind. Unless it `breaks_ties`, it is any of the best plans.
    """
    chain = chain_of(problem)
    loads = problem.objective.loads(problem)
    assert chain is not None
    assert loads is not None
    groups, devices = interchangeable(problem), problem.platform.devices
    sorts = list(stage_sorts(problem, chain, groups, has_moved=breaks_ties))
    lead = (
        None
        if first_kind is None
        else Lead(
            frozenset(at for at, group in enumerate(groups) if devices[group[0]].is_host),
            frozenset(at for at, group in enumerate(groups) if devices[group[0]].kind == first_kind),
        )
    )
    if problem.has_direct_links:
        sizes = [len(group) for group in groups]
        linked = best_linked_chain(sorts, sizes, crossings(problem, chain, groups), is_sum=loads.is_total, lead=lead)
        return None if linked is None else ChainPlan(*linked, sorts, groups, loads.is_total)
    return _planned(sorts, groups, is_sum=loads.is_total, lead=lead, breaks_ties=breaks_ties)


def _planned(
    sorts: Sequence[StageSort],
    groups: Sequence[tuple[int, ...]],
    *,
    is_sum: bool,
    lead: Lead | None = None,
    breaks_ties: bool = True,
) -> ChainPlan | None:
    sizes = [len(group) for group in groups]
    found = best_chain(sorts, sizes, len(sorts[0].cost_s) - 1, is_sum=is_sum, lead=lead)
    if found is None:
        return None
    stages = prefer(sorts, sizes, found, is_sum=is_sum, lead=lead) if breaks_ties else found[1]
    return ChainPlan(found[0], stages, sorts, groups, is_sum)


def is_feasible_chain(problem: Problem[Any]) -> bool:
    """Return whether some run of blocks per device fits; the problem must be one that `Chain` supports.

    Times do not matter: a stage that can be costs nothing.
    """
    chain = chain_of(problem)
    if chain is None:
        return False
    groups = interchangeable(problem)
    free = [
        StageSort(sort.group, sort.devices, np.where(np.isfinite(sort.cost_s), 0.0, np.inf))
        for sort in stage_sorts(problem, chain, groups, has_moved=False)
        if sort.devices == 1
    ]
    return best_chain(free, [len(group) for group in groups], chain.num_blocks, is_sum=False) is not None


def _nothing_fits(problem: Problem[Any], chain: BlockOrder) -> Violation:
    """Return why no plan is possible though every block has a device, and all devices have the bytes in all."""
    kinds = problem.platform.kind_of_device
    if (problem.pinned == UNPINNED).all() and problem.costs.supported[:, kinds].all():
        message = f"no runs of the {chain.num_blocks} blocks, one per device, fit into the memory of the devices"
        return Violation("memory", message, unit="bytes")
    message = f"no runs of the {chain.num_blocks} blocks, one per device, satisfy memory, support and pins together"
    return Violation("infeasible", message)
