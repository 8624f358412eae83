"""Costs of a placement's stages from the cost table, and the predicted latency and throughput.

The judge (:mod:`placekit.objectives.evaluate`) knows devices; an executor runs stages. Here the same costs are added up
per stage, the fixed cost of a stage that a calibration found comes on top, and the two ways of running are played
through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import distinct, sum_by
from placekit.cost_models.openvino.few_stages import NO_STAGE, few_stages
from placekit.model.costs import CostTable
from placekit.model.errors import InvalidProblemError
from placekit.model.placement import Placement
from placekit.model.problem import Problem

STAGE_OVERHEAD = "stage_overhead_s"
"""Key in the provenance of a cost table for the fixed seconds per stage."""

HAND_OVER = "hand_over_s"
"""Key for the seconds by kind that a handover adds to either end of a tensor between two stages of a pipeline."""


@dataclass(frozen=True, eq=False)
class StageCosts:
    """The stages of a placement, in an order in which they can run, and what each is made of.

    There is one row per stage and member of its team, in this order; where every device works alone, one per stage.

    Parameters
    ----------
    stage, device, kind
        ``[num_rows]`` number of the stage, index of the device, and of its kind.
    op_time_s, transfer_s
        ``[num_rows]`` seconds of the ops, and of the tensors that enter or leave the device there, as the cost table
        has them. A tensor that several stages of a device read enters with the first. The model's inputs and outputs
        lie in host memory.
    moved_bytes
        ``[num_rows]`` bytes of these tensors, the model's inputs and outputs left out.
    hand_over_s
        ``[num_rows]`` seconds of `transfer_s` that a pipeline takes for handovers between its threads.
    producers
        For every stage, those that it waits for.
    """

    stage: NDArray[np.int64]
    device: NDArray[np.int64]
    kind: NDArray[np.int64]
    op_time_s: NDArray[np.float64]
    transfer_s: NDArray[np.float64]
    moved_bytes: NDArray[np.float64]
    hand_over_s: NDArray[np.float64]
    producers: tuple[tuple[int, ...], ...]

    @property
    def num_stages(self) -> int:
        """Number of stages."""
        return len(self.producers)

    @property
    def has_teams(self) -> bool:
        """True if a stage is on more than one device."""
        return len(self.stage) > self.num_stages

    def rows_of(self, stage: int) -> NDArray[np.int64]:
        """Return the rows of a stage, one per member."""
        return np.flatnonzero(self.stage == stage)


def stage_costs(problem: Problem, placement: Placement) -> StageCosts:
    """Add up the costs of `problem` per stage of `placement`.

    Raises
    ------
    InvalidProblemError
        A placement of other ops or devices, or an op on a device that cannot run it.

    Notes
    -----
    O(ops + edges log edges), apart from `few_stages`.
    """
    graph, platform, costs = problem.graph, problem.platform, problem.costs
    if placement.op_names != graph.op_names or placement.device_names != platform.device_names:
        raise InvalidProblemError(f"the placement is not one of problem {problem.name!r}: other ops or devices")
    device_of_op = placement.device_of_op
    ops = np.arange(graph.num_ops)
    members_of = {team[0]: team for team in placement.teams}
    for device in range(platform.num_devices):
        first = next(first for first, team in members_of.items() if device in team)
        lost = np.flatnonzero((device_of_op == first) & ~costs.supported[ops, platform.kind_of_device[device]])
        if lost.size:
            raise InvalidProblemError(
                f"op {graph.op_names[lost[0]]!r} is placed on {placement.device_names[device]!r}, which cannot run it"
            )
    stage_of_op = few_stages(graph, device_of_op, problem.colocation)
    works = stage_of_op != NO_STAGE
    num_stages = int(stage_of_op.max()) + 1
    first_of_stage = np.zeros(num_stages, dtype=np.int64)
    first_of_stage[stage_of_op[works]] = device_of_op[works]
    rows = [(stage, device) for stage, first in enumerate(first_of_stage.tolist()) for device in members_of[first]]
    stage_of_row, device_of_row = np.array(rows, dtype=np.int64).reshape(-1, 2).T
    kind = platform.kind_of_device[device_of_row]
    num_kinds = len(platform.kinds)
    tensor, end, is_inner = _touching(problem, stage_of_op, first_of_stage)
    # a kind that cannot run an op has no time for it, and no row that asks
    op_time_s = np.stack(
        [sum_by(stage_of_op[works], costs.op_time_s[ops, each][works], num_stages) for each in range(num_kinds)], axis=1
    )
    # a cost table knows only tensors between stages: what enters and leaves the model is not handed over
    ends_s = _hand_over_s(problem)[tensor]
    transfer_s, hand_over_s = (
        np.stack([sum_by(end, seconds[:, each], num_stages) for each in range(num_kinds)], axis=1)
        for seconds in (costs.transfer_time_s[tensor] - ends_s * ~is_inner[:, None], ends_s * is_inner[:, None])
    )
    producer, consumer = stage_of_op[graph.senders], stage_of_op[graph.receivers]
    crossing = (producer != consumer) & (producer != NO_STAGE) & (consumer != NO_STAGE)
    waits: list[set[int]] = [set() for _ in range(num_stages)]
    for before, after in zip(producer[crossing].tolist(), consumer[crossing].tolist(), strict=True):
        waits[after].add(before)
    return StageCosts(
        stage=stage_of_row,
        device=device_of_row,
        kind=kind,
        op_time_s=op_time_s[stage_of_row, kind],
        transfer_s=transfer_s[stage_of_row, kind],
        moved_bytes=sum_by(end, graph.tensor_bytes[tensor] * is_inner, num_stages)[stage_of_row],
        hand_over_s=hand_over_s[stage_of_row, kind],
        producers=tuple(tuple(sorted(each)) for each in waits),
    )


def _touching(
    problem: Problem, stage_of_op: NDArray[np.int64], device: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Return every pair of a tensor and a device whose border it crosses: the tensor, the device's stage, is it a cut.

    Host memory, where the model's inputs and outputs lie, counts as a device of its own.
    """
    graph = problem.graph
    outside = len(problem.platform.devices)
    device_of_stage = np.append(device, outside)  # NO_STAGE indexes the last
    tensor = graph.consumed_tensor
    source, target = stage_of_op[graph.tensor_producer[tensor]], stage_of_op[graph.consumers]
    crossing = device_of_stage[source] != device_of_stage[target]
    is_inner = (source != NO_STAGE) & (target != NO_STAGE)
    ends = np.concatenate([source[crossing], target[crossing]])
    tensors, inner = np.tile(tensor[crossing], 2), np.tile(is_inner[crossing], 2)
    # per tensor and device the earliest stage; a tensor that is both a cut and an output counts as a cut
    order = np.lexsort((~inner, ends, device_of_stage[ends], tensors))
    order = order[ends[order] != NO_STAGE]
    pair = tensors[order] * (outside + 1) + device_of_stage[ends[order]]
    first = order[np.searchsorted(pair, distinct(pair))]
    return tensors[first], ends[first], inner[first]


def _hand_over_s(problem: Problem) -> NDArray[np.float64]:
    """``[num_tensors, num_kinds]`` seconds of the transfer times that a pipeline takes for handovers."""
    told = problem.costs.provenance.get(HAND_OVER)
    by_kind = told if isinstance(told, Mapping) else {}
    stated = [by_kind.get(kind, 0.0) for kind in problem.costs.kinds]
    ends_s = np.array([each if isinstance(each, (int, float)) and each >= 0 else 0.0 for each in stated])
    found: NDArray[np.float64] = np.minimum(ends_s, problem.costs.transfer_time_s)
    return found


def stage_overhead_s(costs: CostTable) -> float:
    """Return the fixed seconds per stage that a calibration of `costs` found; 0 without one.

    Raises
    ------
    InvalidProblemError
        A provenance that has something else there.
    """
    value = costs.provenance.get(STAGE_OVERHEAD, 0.0)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < np.inf:
        raise InvalidProblemError(f"costs: {STAGE_OVERHEAD} is {value!r}; it must be seconds, finite and >= 0")
    return float(value)


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predicted latency and throughput of a placement.

    Parameters
    ----------
    stage_s
        ``[num_rows]`` seconds that every stage takes for a sample on each member of its team, see `StageCosts`.
    start_s
        ``[num_stages]`` when each stage begins for a sample that runs alone.
    device_load_s
        ``[num_devices]`` seconds of every device per sample of the stream; a member of a team has its share of them.
    latency_s, throughput_per_s
        Seconds of a sample that runs alone, on whichever members; samples per second of a stream.
    """

    stage_s: NDArray[np.float64]
    start_s: NDArray[np.float64]
    device_load_s: NDArray[np.float64]
    latency_s: float
    throughput_per_s: float


def predict(problem: Problem, placement: Placement, *, is_serial: bool) -> Prediction:
    """Predict latency and throughput of `placement`.

    The members of a team take samples in proportion to their speed: with loads of ``l`` seconds each alone, a team
    takes ``1 / sum(1 / l)`` per sample.

    Parameters
    ----------
    problem
        Graph, platform and costs; a calibration in the costs' provenance counts.
    placement
        The placement.
    is_serial
        True where stages run one after another in one request; else they form a pipeline, in which stages of different
        devices also overlap within a sample.

    Raises
    ------
    InvalidProblemError
        As `stage_costs`; or costs that are all 0, from which no throughput follows.
    """
    costs = stage_costs(problem, placement)
    stage_s = costs.op_time_s + costs.transfer_s + stage_overhead_s(problem.costs)
    if is_serial:  # in one thread nobody wakes another
        stage_s = stage_s - costs.hand_over_s
    load_s = sum_by(costs.device, stage_s, problem.platform.num_devices)
    for team in placement.teams:
        if len(team) > 1:
            own_s = load_s[list(team)]
            load_s[list(team)] = 1 / (1 / own_s).sum() if own_s.all() else 0.0
    mean_s = sum_by(costs.stage, stage_s, costs.num_stages) / np.bincount(costs.stage, minlength=costs.num_stages)
    start_s, latency_s = _play(costs, mean_s, is_serial)
    period_s = latency_s if is_serial else float(load_s.max(initial=0.0))
    if period_s <= 0:
        raise InvalidProblemError(f"problem {problem.name!r}: all costs are 0, so nothing can be predicted")
    return Prediction(stage_s, start_s, load_s, latency_s, 1 / period_s)


def _play(costs: StageCosts, stage_s: NDArray[np.float64], is_serial: bool) -> tuple[NDArray[np.float64], float]:
    """Return when each stage begins, and when the last one ends, if the stages take ``[num_stages]`` `stage_s`."""
    start_s = np.zeros(costs.num_stages)
    free_s: dict[int, float] = {}
    for stage in range(costs.num_stages):
        unit = 0 if is_serial else int(costs.device[costs.rows_of(stage)[0]])
        ready = [start_s[each] + stage_s[each] for each in costs.producers[stage]]
        start_s[stage] = max([free_s.get(unit, 0.0), *ready])
        free_s[unit] = start_s[stage] + stage_s[stage]
    return start_s, max(free_s.values(), default=0.0)
