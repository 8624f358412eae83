"""Features: documented columns, the same for the same graph, switched off by name."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from strategies import examples, graphs, problems

import placekit as pk
from placekit.learned.features import fractal_dimension, group_means, op_features
from placekit.learned.vocabulary import OP_TYPES, UNKNOWN_TYPE, type_columns


def test_every_type_of_the_vocabulary_has_its_own_column() -> None:
    """No type twice; unknown ones share the last column."""
    assert type_columns(OP_TYPES).tolist() == list(range(len(OP_TYPES)))
    assert type_columns(["Nonsense", "relu"]).tolist() == [UNKNOWN_TYPE, UNKNOWN_TYPE]


@given(graphs())
@examples(60)
def test_fractal_dimension_is_the_slope_over_undirected_distances(graph: pk.OpGraph) -> None:
    """The compiled search equals a fit with NetworkX and NumPy."""
    undirected = nx.Graph(zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True))
    undirected.add_nodes_from(range(graph.num_ops))
    for op, found in enumerate(fractal_dimension(graph).tolist()):
        distances = np.array([d for v, d in nx.single_source_shortest_path_length(undirected, op).items() if v != op])
        radii = np.unique(distances)
        reached = [(distances <= r).sum() for r in radii]
        expected = np.polyfit(np.log(radii), np.log(reached), 1)[0] if len(radii) > 1 else 0.0
        assert found == pytest.approx(expected, abs=1e-9)


@given(problems())
@examples(60)
def test_features_are_finite_and_as_wide_for_every_graph(problem: pk.Problem) -> None:
    """The width depends on the number of devices alone, so that weights carry over."""
    features = op_features(problem)
    assert features.shape == (problem.graph.num_ops, UNKNOWN_TYPE + 1 + 14 + 1 + 6 + 2 + 2 + 16 + _times(problem))
    assert np.isfinite(features).all()
    assert np.abs(features).max() < 100


def _times(problem: pk.Problem) -> int:
    return 3 * problem.platform.num_devices


def test_costs_can_be_left_out(toy: pk.Problem) -> None:
    """Their columns are zero, and the others stay."""
    every, without = op_features(toy), op_features(toy, has_costs=False)
    begin = UNKNOWN_TYPE + 1 + 14 + 1 + 6
    costs = range(begin, begin + 2 + 2 + _times(toy))
    assert every[:, costs].any()
    assert not without[:, costs].any()
    assert np.array_equal(np.delete(every, costs, 1), np.delete(without, costs, 1))


def test_times_say_which_device_is_faster(toy: pk.Problem) -> None:
    """The ratio columns are 0 on the faster device, log(9 / 2) for 9 s against 2 s."""
    begin = op_features(toy).shape[1] - 16 - 4
    ratio = op_features(toy)[:, begin : begin + 2]
    assert ratio[1].tolist() == pytest.approx([np.log(4.5), 0.0])
    assert ratio[0].tolist() == pytest.approx([0.0, np.log(5.0)])


def test_groups_have_the_mean_of_their_ops() -> None:
    """Row by row."""
    means = group_means(np.array([[1.0], [3.0], [5.0]], dtype=np.float32), np.array([0, 0, 1]))
    assert means.tolist() == [[2.0], [5.0]]
