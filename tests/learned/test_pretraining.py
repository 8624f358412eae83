"""Generated models, and one policy trained on many of them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples

import placekit as pk
from placekit.cost_models.op_classes import DENSE_TYPES
from placekit.errors import InvalidProblemError
from placekit.learned import pretrain as script
from placekit.learned.architectures import ARCHITECTURES
from placekit.learned.checkpoint import read_checkpoint, write_checkpoint
from placekit.learned.gdp.method import GdpParams
from placekit.learned.policy import PRETRAINED
from placekit.learned.pretraining import pretrain, pretraining_problem
from placekit.learned.vocabulary import OP_TYPES

TINY = GdpParams(hidden=16, layers=1, rounds=1, samples=4, epochs=1, updates=2, patience=0)


@pytest.mark.parametrize("sort", ARCHITECTURES)
@given(seed=st.integers(0, 1000))
@examples(10)
def test_generated_models_look_like_models(sort: str, seed: int) -> None:
    """Known types, one result, nothing computed in vain, and most work in products and convolutions."""
    graph = ARCHITECTURES[sort](np.random.default_rng(seed), "x")
    assert set(graph.op_types) <= set(OP_TYPES)
    assert graph.op_types.count("Result") == 1
    has_input = np.zeros(graph.num_ops, dtype=bool)
    has_input[graph.receivers] = True
    assert {graph.op_types[op] for op in np.flatnonzero(~has_input)} == {"Parameter"}
    assert np.bincount(graph.senders, minlength=graph.num_ops).astype(bool).sum() == graph.num_ops - 1
    dense = np.array([op_type in DENSE_TYPES for op_type in graph.op_types])
    assert graph.op_flops[dense].sum() > 0.5 * graph.op_flops.sum()
    assert all(size > 0 for shape in graph.tensor_shapes for size in shape)


def test_residual_work_is_counted_by_hand() -> None:
    """The stem: 7 x 7 x 3 products for each of its outputs, and as many weights per channel."""
    graph = ARCHITECTURES["residual"](np.random.default_rng(0), "x")
    stem = graph.op_types.index("Convolution")
    tensor = int(np.flatnonzero(graph.tensor_producer == stem)[0])
    outputs, channels = np.prod(graph.tensor_shapes[tensor]), graph.tensor_shapes[tensor][1]
    assert graph.op_flops[stem] == 2 * 7 * 7 * 3 * outputs
    assert graph.op_weight_bytes[stem] == 4 * 7 * 7 * 3 * channels
    assert graph.tensor_bytes[tensor] == 4 * outputs


def test_same_seed_same_problem_and_other_seeds_differ() -> None:
    """The generator is a function of its seed; neither device is always the better one."""
    assert pretraining_problem(3) == pretraining_problem(3)
    problems = [pretraining_problem(seed) for seed in range(12)]
    assert len({problem.name for problem in problems}) == 12
    faster = {bool(np.diff(problem.costs.op_time_s.sum(axis=0))[0] < 0) for problem in problems}
    assert faster == {True, False}
    assert pretraining_problem(3, pk.Makespan()).objective == pk.Makespan()


def test_one_policy_learns_on_many_problems_and_places_another(tmp_path: Path) -> None:
    """Same seed, same policy; it can be written, and applied to a problem it never saw."""
    problems = [pretraining_problem(seed) for seed in (2, 3, 9)]
    seen: list[int] = []
    policy = pretrain(problems, TINY, seed=1, on_update=lambda metrics: seen.append(metrics.update))
    assert sorted(seen) == [1, 1, 1, 2, 2, 2]  # every problem once per round
    again = pretrain(problems, TINY, seed=1).transferable
    assert all((weights == again[name]).all() for name, weights in policy.transferable.items())
    write_checkpoint(tmp_path / "policy.pt", policy)
    other = pretraining_problem(14)
    result = pk.solve(other, f"policy:{tmp_path / 'policy.pt'}")
    single = pk.solve(other, "single").objective
    assert result.objective is not None
    assert single is not None
    assert result.objective <= single


def test_pretraining_stops_when_told(tmp_path: Path) -> None:
    """Before the next update; what was learned so far is returned."""
    asked = iter([None, None, pk.StopReason.USER])
    seen: list[int] = []
    problems = [pretraining_problem(seed) for seed in (2, 9)]
    pretrain(problems, TINY, should_stop=lambda: next(asked), on_update=lambda metrics: seen.append(metrics.update))
    assert len(seen) == 2


def test_problems_must_agree_in_their_number_of_devices(diamond: pk.Problem) -> None:
    """The policy has one output per device."""
    with pytest.raises(InvalidProblemError, match=re.escape("with one number of devices; these have [2, 3]")):
        pretrain([pretraining_problem(0), diamond], TINY)
    with pytest.raises(InvalidProblemError, match=re.escape("these have []")):
        pretrain([], TINY)


def test_the_script_writes_a_policy(tmp_path: Path) -> None:
    """As little training as can be."""
    script.main(["-o", str(tmp_path / "p.pt"), "--problems", "2", "--rounds", "1", "--objective", "makespan"])
    checkpoint = read_checkpoint(tmp_path / "p.pt")
    assert (checkpoint.method, checkpoint.num_devices, checkpoint.training) == ("gdp", 2, None)


def test_the_pretrained_policy_places_models_it_never_saw() -> None:
    """Twelve problems of other seeds: the policy's own answer, without a sample, halves the distance to the optimum.

    The distance of the best single device, that is; the optimum is the minimum cut.
    """
    assert PRETRAINED.stat().st_size < 5e6
    distance = np.zeros(2)
    for seed in range(2_000_000, 2_000_012):
        problem = pretraining_problem(seed)
        optimum = pk.solve(problem, "mincut").objective
        found = pk.solve(problem, "policy:pretrained", params={"rollouts": 0}).objective
        single = pk.solve(problem, "single").objective
        assert optimum is not None
        assert found is not None
        assert single is not None
        distance += np.array([found, single]) / optimum - 1
    assert distance[0] < 0.5 * distance[1]
