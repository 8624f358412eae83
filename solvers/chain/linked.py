"""Exact plans of a chain of blocks over devices with direct links.

What a stage pays for its tensors depends on the devices of the stages before and behind it. So the state of
:mod:`placekit.solvers.chain.dynamic_program` has two parts more, the group of the last stage and that of the next: the
seconds of a stage are known once the stage before it and the one behind it are. Tensors go to the next block only.

With ``D`` states (devices used of every group), ``G`` groups and ``B`` blocks it takes O(D G^3 B^2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placekit.solve.stop import is_wanted
from placekit.solvers.chain.dynamic_program import BlockRun, Lead, StageSort, StoppedError

if TYPE_CHECKING:
    from placekit.model.problem import Problem
    from placekit.solvers.chain.costs import BlockOrder


@dataclass(frozen=True)
class Crossings:
    """Seconds that both ends pay for the tensors between two blocks, by the groups of both stages.

    The last group stands for none: before the first stage, and behind the last.
    """

    # ``[num_groups + 1, num_groups + 1, num_blocks + 1]`` seconds of the tensors into block ``i``, from the first group
    # to the second: of the second, and of the first
    entering_s: NDArray[np.float64]
    leaving_s: NDArray[np.float64]


def goes_to_next(problem: Problem[Any], chain: BlockOrder) -> bool:
    """Return whether all tensors are read in the block that makes them or in the next one."""
    graph = problem.graph
    made = chain.block_of_op[graph.tensor_producer[graph.consumed_tensor]]
    return bool((chain.block_of_op[graph.consumers] - made <= 1).all())


def crossings(problem: Problem[Any], chain: BlockOrder, groups: Sequence[tuple[int, ...]]) -> Crossings:
    """Return what tensors between blocks take, for chains in which `goes_to_next` is True."""
    graph, costs, platform = problem.graph, problem.costs, problem.platform
    made = chain.block_of_op[graph.tensor_producer]
    moved = np.unique(graph.consumed_tensor[chain.block_of_op[graph.consumers] != made[graph.consumed_tensor]])
    own = np.zeros((chain.num_blocks + 1, costs.transfer_time_s.shape[1]))
    np.add.at(own, made[moved] + 1, costs.transfer_time_s[moved])
    direct = np.zeros((chain.num_blocks + 1, costs.direct_time_s.shape[1]))
    np.add.at(direct, made[moved] + 1, costs.direct_time_s[moved])
    entering, leaving = np.zeros((2, len(groups) + 1, len(groups) + 1, chain.num_blocks + 1))
    for a, senders in enumerate(groups):
        for b, receivers in enumerate(groups):
            source, target = senders[0], receivers[-1]  # two of a group, where it has two
            link = int(platform.direct_link(source, [target])[0]) if source != target else -1
            if link < 0:
                entering[a, b] = own[:, platform.kind_of_device[target]]
                leaving[a, b] = own[:, platform.kind_of_device[source]]
            else:
                entering[a, b] = direct[:, link]
                leaving[a, b] = direct[:, link] if problem.objective.direct_ends == 2 else 0.0
    leaving[:, -1, :-1] = np.inf  # something is behind every block but the last
    return Crossings(entering, leaving)


def best_linked_chain(
    sorts: Sequence[StageSort],
    sizes: Sequence[int],
    crossings: Crossings,
    *,
    is_sum: bool,
    lead: Lead | None = None,
) -> tuple[float, tuple[BlockRun, ...]] | None:
    """Return the best plan and its seconds; None if there is none.

    As :func:`placekit.solvers.chain.dynamic_program.best_chain`, of one sort per group and one device per stage, whose
    seconds have no transfers in them. Raises `StoppedError`: the solve is to stop.
    """
    none, num_blocks = len(sizes), len(sorts[0].cost_s) - 1
    entering, leaving = crossings.entering_s, crossings.leaving_s
    shape = tuple(size + 1 for size in sizes)
    # by devices used, group of the last stage, group of the next
    best = np.full((*shape, none + 1, none + 1, num_blocks + 1), np.inf)
    best[(0,) * none][none, :, 0] = 0.0
    came_from = np.zeros((*best.shape, 2), dtype=np.int32)  # group of the stage before the last, begin of the last
    together = np.add if is_sum else np.maximum
    limit = np.inf
    for used in np.ndindex(*shape):  # rising in every count
        for group, sort in enumerate(sorts):
            if used[group] == sizes[group] or (lead is not None and lead.refuses(group, used)):
                continue
            if not is_wanted():
                raise StoppedError
            grown = (*used[:group], used[group] + 1, *used[group + 1 :])
            for before in range(none + 1):
                so_far = best[used][before, group]
                begins = np.flatnonzero(so_far[:-1] < limit)
                if not len(begins):
                    continue
                load = sort.cost_s[begins] + entering[before, group, begins][:, None]
                for after in range(none + 1):
                    if after < none and grown[after] == sizes[after]:
                        continue
                    reached = together(so_far[begins, None], load + leaving[group, after])
                    row = reached.argmin(axis=0)
                    value = reached[row, np.arange(num_blocks + 1)]
                    kept = best[grown][group, after]
                    better = value < kept
                    kept[better] = value[better]
                    came_from[grown][group, after][better, 0] = before
                    came_from[grown][group, after][better, 1] = begins[row[better]]
            limit = min(limit, best[grown][group, none, -1])
    ends = best[..., :none, none, -1]
    at = tuple(map(int, np.unravel_index(int(ends.argmin()), ends.shape)))
    value = float(ends[at])
    if not np.isfinite(value):
        return None
    stages: list[BlockRun] = []
    used, group, after, end = at[:-1], at[-1], none, num_blocks
    while end:
        before, begin = map(int, came_from[used][group, after, end])
        stages.append(BlockRun(group, begin, end))
        used = (*used[:group], used[group] - 1, *used[group + 1 :])
        group, after, end = before, group, begin
    return value, tuple(reversed(stages))
