r"""Judge of training plans, written from the formulas.

For a stage of layers :math:`S` with data-parallel degree :math:`d` and tensor-parallel degree :math:`t`, with one
choice per layer (time :math:`p`, gradient bytes :math:`w`, memory :math:`a, b`), :math:`N` microbatches and bandwidth
:math:`B`:

.. math::

    \text{time} = \frac{1}{d} \sum_{v \in S} p_v
        + \frac{1}{B} \Bigl[ \frac{1}{d} \sum_{e \in \delta(S)} 2 (c_e + \text{sync}_e)
        + \frac{4 (d - 1)}{d N} \sum_{v \in S} w_v \Bigr],
    \qquad \text{memory} = \sum_{v \in S} (a_v y + b_v),

where :math:`\delta(S)` are the edges between the stage and others, :math:`\text{sync}_e` the extra bytes of the edge's
end in the stage, and :math:`y = \lceil \sum_{s' \ge s} d_{s'} / d_s \rceil` the microbatches in flight. The objective
is the largest time of a stage, in seconds per microbatch.

References
----------
Tarnawski et al., NeurIPS 2021, section 3; the formulas are those of the public code, with its factor 4 for gradients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from placekit.model.memory import MEMORY_TOLERANCE
from placekit.model.placement import Violation
from placekit.model.sizes import format_bytes
from placekit.training.plan import PlanStage, TrainingPlan
from placekit.training.problem import TrainingProblem

PASSES, RECOMPUTED_PASSES = 3, 4
"""Time of forward and backward together, in forward passes: backward takes two, recomputation one more."""


@dataclass(frozen=True)
class StageLoad:
    """Time and memory of one stage, per microbatch and per device."""

    # compute_s, transfer_s, sync_s: seconds per microbatch of layers, of edges between stages, and of gradients;
    # `load_s` is their sum
    compute_s: float
    transfer_s: float
    sync_s: float
    load_s: float
    forward_s: float  # seconds of the forward pass in `compute_s`: a third, or a quarter with recomputation
    # memory_bytes, held_bytes: bytes on each device, in total and for each microbatch in flight
    memory_bytes: float
    held_bytes: float
    in_flight: int  # number of microbatches that each device holds
    # num_layers, data_degree, tensor_degree: size and degrees of the stage
    num_layers: int
    data_degree: int
    tensor_degree: int


@dataclass(frozen=True)
class PlanEvaluation:
    """Judgement of a training plan."""

    objective: float | None  # seconds per microbatch of the slowest stage; None for a plan whose structure is invalid
    stages: tuple[StageLoad, ...]  # load of every stage
    violations: tuple[Violation, ...]  # broken constraints, with stage, layer and amount; empty if feasible

    @property
    def is_feasible(self) -> bool:
        """True if no constraint is broken."""
        return not self.violations


def evaluate_plan(problem: TrainingProblem, plan: TrainingPlan) -> PlanEvaluation:
    """Judge `plan` for `problem`. O(layers + edges).

    Examples
    --------
    >>> from placekit.training.problem import Choice, Layer, LayerEdge, TrainingProblem
    >>> a = Layer("a", {1: (Choice("plain", 3.0, 8.0, 10.0, 5.0, {}, {1: 0.0}),)})
    >>> b = Layer("b", {1: (Choice("plain", 1.0, 0.0, 10.0, 5.0, {0: 0.0}, {}),)})
    >>> problem = TrainingProblem("two", (a, b), (LayerEdge(0, 1, 6.0),), 3, 100.0, 6.0, 4)
    >>> plan = TrainingPlan((PlanStage((0,), 2, 1, (0,)), PlanStage((1,), 1, 1, (0,))))
    >>> found = evaluate_plan(problem, plan)
    >>> [stage.load_s for stage in found.stages], [stage.memory_bytes for stage in found.stages]
    ([3.1666666666666665, 3.0], [25.0, 15.0])
    """
    broken = _structure_violations(problem, plan)
    if broken:
        return PlanEvaluation(None, (), tuple(broken))
    loads: list[StageLoad] = []
    violations: list[Violation] = []
    for at, stage in enumerate(plan.stages):
        load = _load(problem, stage, plan.in_flight(at))
        loads.append(load)
        violations += _degree_violations(problem, at, stage)
        over = load.memory_bytes - problem.memory_bytes
        if load.memory_bytes > problem.memory_bytes * (1 + MEMORY_TOLERANCE):
            heaviest = max(
                zip(stage.layers, stage.choices, strict=True),
                key=lambda pair: _layer_bytes(problem, stage.tensor_degree, load.in_flight, *pair),
            )[0]
            message = (
                f"stage {at} needs {format_bytes(load.memory_bytes)} per device with {load.in_flight} microbatches in "
                f"flight, {format_bytes(over)} more than the limit of {format_bytes(problem.memory_bytes)}; its "
                f"largest layer is {problem.layers[heaviest].name!r}"
            )
            violations.append(Violation("memory", message, problem.layers[heaviest].name, f"stage {at}", over, "bytes"))
    violations += _total_violations(problem, plan)
    return PlanEvaluation(max(load.load_s for load in loads), tuple(loads), tuple(violations))


def _load(problem: TrainingProblem, stage: PlanStage, in_flight: int) -> StageLoad:
    inside = set(stage.layers)
    d, bandwidth = stage.data_degree, problem.bandwidth_bytes_per_s
    picked = {
        v: problem.layers[v].choices[stage.tensor_degree][c] for v, c in zip(stage.layers, stage.choices, strict=True)
    }
    moved = 0.0
    for edge in problem.edges:
        if edge.source not in inside and edge.target in inside:
            moved += 2 * (edge.num_bytes + picked[edge.target].sync_in_bytes[edge.source])
        elif edge.source in inside and edge.target not in inside:
            moved += 2 * (edge.num_bytes + picked[edge.source].sync_out_bytes[edge.target])
    compute_s = math.fsum(choice.time_s for choice in picked.values()) / d
    transfer_s = moved / d / bandwidth
    gradients = math.fsum(choice.parameter_bytes for choice in picked.values())
    sync_s = 4 * (d - 1) / d * gradients / problem.num_microbatches / bandwidth
    memory = math.fsum(
        choice.memory_per_microbatch_bytes * in_flight + choice.memory_fixed_bytes for choice in picked.values()
    )
    forward_s = math.fsum(
        choice.time_s / (RECOMPUTED_PASSES if choice.is_recomputing else PASSES) for choice in picked.values()
    )
    return StageLoad(
        compute_s, transfer_s, sync_s, compute_s + transfer_s + sync_s, forward_s / d, memory,
        math.fsum(choice.memory_per_microbatch_bytes for choice in picked.values()), in_flight, len(inside), d,
        stage.tensor_degree,
    )  # fmt: skip


def _layer_bytes(problem: TrainingProblem, tensor_degree: int, in_flight: int, layer: int, c: int) -> float:
    choice = problem.layers[layer].choices[tensor_degree][c]
    return choice.memory_per_microbatch_bytes * in_flight + choice.memory_fixed_bytes


def _structure_violations(problem: TrainingProblem, plan: TrainingPlan) -> list[Violation]:
    """Return violations that leave the plan without an objective: unknown layers, degrees or choices, wrong order."""
    broken: list[Violation] = []
    stage_of: dict[int, int] = {}
    if not plan.stages:
        broken.append(Violation("support", "the plan has no stages"))
    for at, stage in enumerate(plan.stages):
        if not stage.layers:
            broken.append(Violation("support", f"stage {at} has no layers", None, f"stage {at}"))
        for v, c in zip(stage.layers, stage.choices, strict=True):
            if not 0 <= v < problem.num_layers:
                broken.append(Violation("support", f"stage {at} has layer {v}; there are {problem.num_layers}"))
                continue
            layer = problem.layers[v]
            if v in stage_of:
                message = f"layer {layer.name!r} is in stage {stage_of[v]} and in stage {at}"
                broken.append(Violation("support", message, layer.name, f"stage {at}"))
            stage_of[v] = at
            choices = layer.choices.get(stage.tensor_degree)
            if choices is None:
                message = f"layer {layer.name!r} in stage {at} has no tensor-parallel degree {stage.tensor_degree}"
                broken.append(Violation("support", message, layer.name, f"stage {at}"))
            elif not 0 <= c < len(choices):
                message = f"layer {layer.name!r} in stage {at} has choice {c}; there are {len(choices)}"
                broken.append(Violation("support", message, layer.name, f"stage {at}"))
            elif not problem.allows(choices[c]):
                message = f"layer {layer.name!r} in stage {at} uses {choices[c].name!r}; recomputation is not allowed"
                broken.append(Violation("support", message, layer.name, f"stage {at}"))
    for v, layer in enumerate(problem.layers):
        if v not in stage_of:
            broken.append(Violation("support", f"layer {layer.name!r} is in no stage", layer.name))
    for edge in problem.edges:
        if edge.source in stage_of and edge.target in stage_of and stage_of[edge.source] > stage_of[edge.target]:
            names = problem.layers[edge.source].name, problem.layers[edge.target].name
            message = (
                f"the edge from layer {names[0]!r} to {names[1]!r} goes back from stage {stage_of[edge.source]} to "
                f"stage {stage_of[edge.target]}"
            )
            broken.append(Violation("order", message, names[1]))
    return broken


def _degree_violations(problem: TrainingProblem, at: int, stage: PlanStage) -> list[Violation]:
    found: list[Violation] = []
    d, n, rules = stage.data_degree, problem.num_microbatches, problem.restrictions

    def refuse(reason: str, amount: float = 1.0) -> None:
        found.append(Violation("degree", f"stage {at} {reason}", None, f"stage {at}", amount, "devices"))

    if n % d:
        refuse(f"has data-parallel degree {d}, which does not divide the {n} microbatches")
    if not rules.data_parallel and d > 1:
        refuse(f"has data-parallel degree {d}; data parallelism is not allowed", d - 1)
    if rules.powers_of_two and d & (d - 1):
        refuse(f"has data-parallel degree {d}, which is no power of two")
    if stage.tensor_degree not in problem.tensor_degrees:
        refuse(f"has tensor-parallel degree {stage.tensor_degree}; tensor parallelism is not allowed")
    return found


def _total_violations(problem: TrainingProblem, plan: TrainingPlan) -> list[Violation]:
    found: list[Violation] = []
    used, replicas = plan.num_devices, sum(stage.data_degree for stage in plan.stages)
    if used > problem.num_devices:
        message = f"the plan uses {used} devices; there are {problem.num_devices}"
        found.append(Violation("devices", message, amount=used - problem.num_devices, unit="devices"))
    if replicas > problem.num_microbatches:
        message = f"the data-parallel degrees sum to {replicas}, more than the {problem.num_microbatches} microbatches"
        found.append(Violation("degree", message, amount=replicas - problem.num_microbatches, unit="devices"))
    return found
