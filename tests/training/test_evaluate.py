"""The judge of training plans, against plain sums and by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from fuzz.training_plans import all_skeletons, first_choices, random_training_problem
from strategies import ALL

from placekit.training.evaluate import evaluate_plan
from placekit.training.plan import PlanStage, TrainingPlan
from placekit.training.problem import Choice, Layer, LayerEdge, Restrictions, TrainingProblem


def chain(num_layers: int = 3, **changes: object) -> TrainingProblem:
    """Return a chain of layers: 2 s, 4 bytes of gradients, memory 3 y + 1, edges of 5 bytes; degrees 1 and 2."""
    layers = []
    for v in range(num_layers):
        ins = {v - 1: 1.0} if v else {}
        outs = {v + 1: 2.0} if v + 1 < num_layers else {}
        plain = Choice("plain", 2.0, 4.0, 3.0, 1.0, ins, outs)
        again = Choice("recomputation", 3.0, 4.0, 1.0, 1.0, ins, outs)
        layers.append(Layer(f"layer{v}", {1: (plain, again), 2: (plain, again)}))
    edges = tuple(LayerEdge(v, v + 1, 5.0) for v in range(num_layers - 1))
    return TrainingProblem("chain", tuple(layers), edges, 4, 100.0, 10.0, 8).replace(**changes)


def test_formulas_by_hand() -> None:
    """Two stages: (0, 1) on two replicas, (2) on two devices that share the layer."""
    plan = TrainingPlan((PlanStage((0, 1), 2, 1, (0, 1)), PlanStage((2,), 1, 2, (0,))))
    found = evaluate_plan(chain(), plan)
    first, second = found.stages
    assert first.compute_s == pytest.approx((2 + 3) / 2)
    assert first.transfer_s == pytest.approx(2 * (5 + 2) / 2 / 10)
    assert first.sync_s == pytest.approx(4 * 1 / 2 * 8 / 8 / 10)
    assert first.in_flight == 2  # (2 + 1) / 2, rounded up
    assert first.memory_bytes == (3 * 2 + 1) + (1 * 2 + 1)
    assert second.load_s == pytest.approx(2 + 2 * (5 + 1) / 10)
    assert second.in_flight == 1
    assert found.objective == pytest.approx(max(first.load_s, second.load_s))
    assert found.is_feasible


def test_judge_agrees_with_plain_sums() -> None:
    """On random plans every number is that of a loop over layers and edges."""
    rng = np.random.default_rng(3)
    for _ in range(60 if ALL else 20):
        problem = random_training_problem(rng)
        for skeleton in itertools.islice(all_skeletons(problem), 0, 200, 23):
            plan = first_choices(problem, skeleton)
            found = evaluate_plan(problem, plan)
            for at, ((stage, d, t), load) in enumerate(zip(skeleton, found.stages, strict=True)):
                seconds = sum(problem.layers[v].choices[t][0].time_s for v in stage) / d
                for edge in problem.edges:
                    if (edge.source in stage) != (edge.target in stage):
                        inside = edge.source if edge.source in stage else edge.target
                        choice = problem.layers[inside].choices[t][0]
                        sync = (
                            choice.sync_out_bytes[edge.target]
                            if inside == edge.source
                            else choice.sync_in_bytes[edge.source]
                        )
                        seconds += 2 * (edge.num_bytes + sync) / d / problem.bandwidth_bytes_per_s
                gradients = sum(problem.layers[v].choices[t][0].parameter_bytes for v in stage)
                seconds += 4 * (d - 1) / d * gradients / problem.num_microbatches / problem.bandwidth_bytes_per_s
                assert load.load_s == pytest.approx(seconds)
                replicas = sum(later for _, later, _ in skeleton[at:])
                assert load.in_flight == int(np.ceil(replicas / d))


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ([((0, 1), 1, 1), ((1, 2), 1, 1)], "layer 'layer1' is in stage 0 and in stage 1"),
        ([((0, 1), 1, 1)], "layer 'layer2' is in no stage"),
        ([((1, 2), 1, 1), ((0,), 1, 1)], "from layer 'layer0' to 'layer1' goes back from stage 1 to stage 0"),
        ([((0, 1, 2), 3, 1)], "data-parallel degree 3, which does not divide the 8 microbatches"),
        ([((0, 1, 2), 8, 1)], "the plan uses 8 devices; there are 4"),
        ([((0, 1, 2), 1, 3)], "has no tensor-parallel degree 3"),
        ([], "has no stages"),
    ],
)
def test_broken_plans_are_named(plan: list[tuple[tuple[int, ...], int, int]], words: str) -> None:
    """Every broken constraint names stage, layer and value."""
    stages = tuple(PlanStage(layers, d, t, (0,) * len(layers)) for layers, d, t in plan)
    found = evaluate_plan(chain(), TrainingPlan(stages))
    assert any(words in str(violation) for violation in found.violations), found.violations


def test_memory_violation_names_stage_layer_and_bytes() -> None:
    """Stage 0 holds (3 * 1 + 1) * 3 = 12 bytes."""
    plan = TrainingPlan((PlanStage((0, 1, 2), 1, 1, (0, 0, 0)),))
    (violation,) = evaluate_plan(chain(memory_bytes=10.0), plan).violations
    assert "stage 0 needs 12 B per device" in violation.message
    assert "layer0" in violation.message
    assert violation.amount == pytest.approx(2)
    assert violation.unit == "bytes"


def test_replicas_beyond_microbatches_are_refused() -> None:
    """The data-parallel degrees of all stages together are at most the number of microbatches."""
    plan = TrainingPlan((PlanStage((0,), 2, 1, (0,)), PlanStage((1, 2), 1, 1, (0, 0))))
    found = evaluate_plan(chain(num_microbatches=2), plan)
    assert any("sum to 3, more than the 2 microbatches" in str(v) for v in found.violations)


@pytest.mark.parametrize(
    ("rules", "stage", "words"),
    [
        (Restrictions(data_parallel=False), (2, 1, 0), "data parallelism is not allowed"),
        (Restrictions(tensor_parallel=False), (1, 2, 0), "tensor parallelism is not allowed"),
        (Restrictions(recomputation=False), (1, 1, 1), "recomputation is not allowed"),
    ],
)
def test_restrictions_are_judged(rules: Restrictions, stage: tuple[int, int, int], words: str) -> None:
    """A plan that uses what is not allowed is not feasible."""
    d, t, c = stage
    plan = TrainingPlan((PlanStage((0, 1, 2), d, t, (c,) * 3),))
    found = evaluate_plan(chain(restrictions=rules), plan)
    assert any(words in str(violation) for violation in found.violations)
