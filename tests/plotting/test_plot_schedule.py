"""Gantt charts show the schedule."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.patches import StepPatch

import placekit as pk
from placekit.io.trace import assign_lanes
from placekit.model.errors import InvalidProblemError
from placekit.plotting.canvas import figure_of
from placekit.plotting.plot_schedule import critical_path, plot_schedule


@pytest.fixture
def result(diamond: pk.Problem) -> pk.Result:
    """Return the diamond on two accelerators: a, b, d on one, c on the other; 11 s."""
    problem = diamond.replace(objective=pk.Makespan(), contiguity="none").pin(
        {"a": "acc.0", "b": "acc.0", "c": "acc.1", "d": "acc.0"}
    )
    return pk.solve(problem, method="heft")


def bars(result: pk.Result) -> list[tuple[float, float, float, float]]:
    """Return left, right, top and bottom of every bar of the chart, in seconds and rows."""
    found = []
    for collection in plot_schedule(result).collections:
        if isinstance(collection, PolyCollection):
            for path in collection.get_paths():
                corners = np.asarray(path.vertices)
                (left, top), (right, bottom) = corners.min(axis=0), corners.max(axis=0)
                found.append((float(left), float(right), float(top), float(bottom)))
    return found


def test_bars_are_the_events(result: pk.Result) -> None:
    """Four ops and two transfers, each from its start to its finish in the row of its device."""
    drawn = [(left, right, round((top + bottom) / 2)) for left, right, top, bottom in bars(result)]
    assert drawn == [
        (0.0, 1.0, 1),
        (1.0, 2.0, 1),
        (5.0, 6.0, 2),
        (10.0, 11.0, 1),
        (1.0, 5.0, 1),
        (6.0, 10.0, 2),
    ]


def test_ops_are_named_and_transfers_have_arrows(result: pk.Result) -> None:
    """Wide bars carry the names; one arrow per transfer between devices; rows carry the devices."""
    ax = plot_schedule(result)
    texts = [text.get_text() for text in ax.texts]
    assert texts == ["a", "b", "c", "d", "", ""]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["cpu.0", "acc.0", "acc.1"]
    assert "makespan 11 s by heft" in ax.get_title(loc="left")


def test_long_names_are_shortened_to_their_bars(result: pk.Result) -> None:
    """Names that do not fit show their end; none is wider than its bar."""
    assert result.placement is not None
    placement = pk.Placement(
        tuple(f"encoder/layer.{i}/attention/self/query/MatMul_{i}" * 3 for i in range(4)),
        result.placement.device_names,
        result.placement.device_of_op,
    )
    long = pk.Result(**{name: getattr(result, name) for name in result.__dataclass_fields__} | {"placement": placement})
    ax = plot_schedule(long)
    figure = figure_of(ax)
    figure.draw_without_rendering()
    shown = [text for text in ax.texts if text.get_text()]
    assert len(shown) == 4
    for text in shown:
        assert text.get_text().startswith("…")
        box = ax.transData.inverted().transform(text.get_window_extent())
        assert box[1, 0] - box[0, 0] <= 1.0


def test_ops_side_by_side_share_a_row() -> None:
    """Host ops that run at the same time stand in lanes of the same row and do not overlap."""
    graph = pk.OpGraph.from_edges(["a", "b", "c"], [("a", "b"), ("a", "c")])
    costs = pk.CostTable(("cpu",), np.ones((3, 1)), np.zeros((1, 1)), np.zeros(3))
    problem = pk.Problem(graph, pk.Platform.of(cpu=1, host="cpu"), costs, pk.OffloadLatency())
    drawn = bars(pk.solve(problem, method="single"))
    assert len(drawn) == 3
    side_by_side = sorted((top, bottom) for left, _, top, bottom in drawn if left == 1.0)
    assert all(first[1] <= second[0] + 1e-9 for first, second in pairwise(side_by_side))


def test_result_without_schedule_is_refused(diamond: pk.Problem) -> None:
    """An execution model without a clock has nothing to draw."""
    with pytest.raises(InvalidProblemError, match=r"diamond.*throughput.*has no schedule to draw"):
        plot_schedule(pk.solve(diamond, method="single"))


def test_lanes_never_overlap() -> None:
    """Events of one device and lane follow each other, and there are no more lanes than events at a time."""
    rng = np.random.default_rng(0)
    start = rng.random(300)
    finish = start + rng.random(300) * 0.05
    device = rng.integers(0, 3, 300)
    lane = assign_lanes(device, start, finish)
    for d in range(3):
        most = max(int(((start <= t) & (finish > t) & (device == d)).sum()) for t in start)
        assert int(lane[device == d].max()) + 1 == most
        for one in range(most):
            mine = np.flatnonzero((device == d) & (lane == one))
            mine = mine[np.argsort(start[mine])]
            assert (finish[mine[:-1]] <= start[mine[1:]]).all()


def test_the_critical_path_leads_to_the_end(result: pk.Result) -> None:
    """a, the transfer to c, c, and the transfer back to d: every event begins when the one before ends."""
    schedule = result.schedule
    assert schedule is not None
    path = critical_path(schedule)
    assert [(schedule.start_s[event], schedule.finish_s[event]) for event in path] == [
        (0.0, 1.0),
        (1.0, 5.0),
        (5.0, 6.0),
        (6.0, 10.0),
        (10.0, 11.0),
    ]


def test_many_events_are_curves(result: pk.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each device has the share of time in ops and in transfers; together they are the seconds of the events."""
    schedule = result.schedule
    assert schedule is not None
    monkeypatch.setattr("placekit.plotting.plot_schedule._MANY_EVENTS", 3)
    ax = plot_schedule(result)
    curves = [patch for patch in ax.patches if isinstance(patch, StepPatch)]
    assert len(curves) == 5, "ops of three devices, and transfers of the two that send"
    worked = []
    for curve in curves:
        values, edges, _ = curve.get_data()
        low = np.round(np.max(values) - 0.38) + 0.38
        worked.append(float(np.sum((low - values) * np.diff(edges)) / 0.76))
    assert sum(worked) == pytest.approx(float((schedule.finish_s - schedule.start_s).sum()), rel=1e-6)
    legend = ax.get_legend()
    assert legend is not None
    assert {text.get_text() for text in legend.get_texts()} >= {"critical path", "in transfers"}
