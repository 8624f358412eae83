"""Costs of stages on teams: the same as the judge's, and what follows for predictions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import examples, teamed_placements, teamed_problems

from placekit.cost_models.measured.calibration import MeasuredSplit
from placekit.cost_models.measured.stage_costs import STAGE_OVERHEAD, predict, stage_costs
from placekit.model.contiguity import Contiguity
from placekit.model.costs import CostTable
from placekit.model.errors import InvalidProblemError
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement
from placekit.model.platform import Platform
from placekit.model.problem import Problem
from placekit.objectives import Throughput
from placekit.objectives.evaluate import evaluate


@examples(200)
@given(data=st.data())
def test_predicted_loads_of_teams_are_the_judges(data: st.DataObject) -> None:
    """Without a cost per stage, every device's share of the stream is what the judge says."""
    problem = data.draw(teamed_problems(max_ops=7, max_devices=5, contiguity=st.just(Contiguity.NONE)))
    problem = problem.replace(objective=Throughput(teams="any"))
    placement = data.draw(teamed_placements(problem))
    judged = evaluate(problem, placement)
    assume(judged.objective)
    predicted = predict(problem, placement, is_serial=False)
    loads = [load.load_s for load in judged.device_loads]
    np.testing.assert_allclose(predicted.device_load_s, loads, rtol=1e-9, atol=1e-12)
    assert 1 / predicted.throughput_per_s == pytest.approx(judged.objective, rel=1e-9)


@pytest.fixture
def problem() -> Problem:
    """Return a chain of two ops on two kinds, the second of which takes twice as long."""
    graph = OpGraph.from_edges(["a", "b"], [("a", "b")])
    times_s, transfer_s = np.array([[2.0, 4.0], [1.0, 2.0]]), np.array([[0.5, 0.0]])
    costs = CostTable(("x", "y"), times_s, transfer_s, np.zeros(2), provenance={STAGE_OVERHEAD: 0.25})
    return Problem(graph, Platform.of(x=1, y=2), costs, Throughput(teams="any"))


def test_every_member_has_a_row(problem: Problem) -> None:
    """Op times and transfers are those of the member's kind; a stage costs each of them its call."""
    placement = Placement.from_mapping(problem, {"a": "x.0+y.0", "b": "y.1"})
    costs = stage_costs(problem, placement)
    assert (costs.num_stages, costs.has_teams) == (2, True)
    assert (costs.stage.tolist(), costs.device.tolist()) == ([0, 0, 1], [0, 1, 2])
    assert (costs.op_time_s.tolist(), costs.transfer_s.tolist()) == ([2.0, 4.0, 2.0], [0.5, 0.0, 0.0])
    predicted = predict(problem, placement, is_serial=False)
    assert predicted.stage_s.tolist() == [2.75, 4.25, 2.25]
    team_s = 1 / (1 / 2.75 + 1 / 4.25)
    np.testing.assert_allclose(predicted.device_load_s, [team_s, team_s, 2.25])
    assert predicted.throughput_per_s == pytest.approx(1 / 2.25)
    assert predicted.latency_s == pytest.approx((2.75 + 4.25) / 2 + 2.25)  # whichever member is free first


def test_a_member_that_cannot_run_an_op_is_named(problem: Problem) -> None:
    """Every member has to support all ops of its team."""
    supported = np.array([[True, False], [True, True]])
    unable = problem.replace(costs=problem.costs.replace(supported=supported))
    placement = Placement.from_mapping(problem, {"a": "x.0+y.0", "b": "y.1"})
    with pytest.raises(InvalidProblemError, match=r"op 'a' is placed on 'y\.0', which cannot run it"):
        stage_costs(unable, placement)


def test_calibration_refuses_teams(problem: Problem) -> None:
    """What a member takes is known from it alone."""
    stages = stage_costs(problem, Placement.from_mapping(problem, {"a": "x.0+y.0", "b": "y.1"}))
    with pytest.raises(InvalidProblemError, match="split 'both' has teams"):
        MeasuredSplit("both", stages, 1.0, is_serial=False, busy_s=np.zeros(0))
