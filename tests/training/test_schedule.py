"""Steps of a pipeline against closed forms and the plain rules of a schedule."""

from __future__ import annotations

import numpy as np
import pytest

from placekit.io.trace import trace_to_dict
from placekit.model.errors import InvalidProblemError, UnknownNameError
from placekit.solvers.training_plan.solve import solve_plan
from placekit.training.evaluate import StageLoad
from placekit.training.generate import chain_problem
from placekit.training.schedule import SCHEDULES, StepSchedule, best_by_step, simulate_step, step_as_result


def equal_stages(num_stages: int, forward_s: float = 1.0, backward_s: float = 2.0) -> list[StageLoad]:
    """Return stages of one device each, that hold 5 bytes per microbatch and 1 byte besides."""
    total = forward_s + backward_s
    return [
        StageLoad(total, 0.0, 0.0, total, forward_s, 1.0 + 5.0 * y, 5.0, y, 1, 1, 1) for y in range(num_stages, 0, -1)
    ]


@pytest.mark.parametrize("num_stages", [1, 2, 4])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_equal_stages_have_the_known_step(num_stages: int, schedule: str) -> None:
    """(microbatches + stages - 1) times forward and backward; the bubble is the share of stages - 1."""
    step = simulate_step(equal_stages(num_stages), 8, schedule)
    assert step.step_s == pytest.approx((8 + num_stages - 1) * 3.0)
    assert step.bubble == pytest.approx((num_stages - 1) / (8 + num_stages - 1))
    held = [8] * num_stages if schedule == "gpipe" else list(range(num_stages, 0, -1))
    assert step.peak_in_flight.tolist() == [min(8, y) for y in held]
    assert step.peak_bytes.tolist() == [1 + 5 * min(8, y) for y in held]


def test_interleaving_halves_the_bubble() -> None:
    """Two chunks per stage fill and drain in half the time."""
    plain = simulate_step(equal_stages(4), 8, "1f1b")
    twice = simulate_step(equal_stages(4), 8, "interleaved")
    assert twice.step_s == pytest.approx(8 * 3.0 + 3 * 3.0 / 2)
    assert plain.step_s == pytest.approx(8 * 3.0 + 3 * 3.0)


def check_rules(step: StepSchedule, stages: list[StageLoad], num_microbatches: int) -> None:
    """No replica does two things at a time, and every pass follows those that it needs."""
    finish = {
        (int(s), int(j), bool(b)): float(end)
        for s, j, b, end in zip(step.stage, step.microbatch, step.is_backward, step.finish_s, strict=True)
    }
    last = int(step.stage.max())
    assert len(finish) == 2 * num_microbatches * (last + 1)
    for s, j, b, start in zip(step.stage, step.microbatch, step.is_backward, step.start_s, strict=True):
        needs = [(s, j, False)] + ([(s + 1, j, True)] if s < last else []) if b else ([(s - 1, j, False)] if s else [])
        assert all(finish[int(v), int(m), bool(back)] <= start + 1e-12 for v, m, back in needs)
    for worker in range(len(step.stage_of_replica)):
        mine = step.replica == worker
        order = np.argsort(step.start_s[mine])
        assert (step.finish_s[mine][order][:-1] <= step.start_s[mine][order][1:] + 1e-12).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_planned_pipelines_keep_the_rules(schedule: str) -> None:
    """Plans with unequal degrees run without waiting for each other, and no step is below its bound."""
    for seed in range(6):
        problem = chain_problem(6, num_devices=7, memory_bytes=2e9, num_microbatches=24, seed=seed)
        result = solve_plan(problem)
        if result.plan is None:
            continue
        try:
            step = simulate_step(result.stages, 24, schedule)
        except InvalidProblemError:
            assert schedule == "interleaved"
            continue
        check_rules(step, list(result.stages), 24)
        assert result.objective is not None
        assert step.step_s >= 24 * result.objective * (1 - 1e-9)
        if schedule == "1f1b":
            assert all(step.peak_in_flight <= [load.in_flight for load in result.stages])
        trace = trace_to_dict(step_as_result(result, step))
        assert sum(event["ph"] == "X" for event in trace["traceEvents"]) == len(step.stage)


def test_best_by_step_is_no_worse_and_bounded() -> None:
    """The chosen plan's step is at most that of the best bottleneck, and at least its bound."""
    problem = chain_problem(8, num_devices=8, memory_bytes=3e9, num_microbatches=24, tensor_degrees=(1, 2), seed=3)
    result = solve_plan(problem)
    chosen = best_by_step(problem, result, "1f1b", solve_plan)
    step = chosen.info["step"]
    assert step["bound_s"] <= step["step_s"] <= simulate_step(result.stages, 24, "1f1b").step_s
    with pytest.raises(UnknownNameError, match="gpipe, 1f1b, interleaved"):
        best_by_step(problem, result, "2f2b", solve_plan)
