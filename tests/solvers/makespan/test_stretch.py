"""A stretch of a schedule as a problem of its own, against the whole schedule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from interpreted import interpreted
from random_orders import random_order
from strategies import examples, problems

import placekit as pk
from placekit.benchmarks.generators.families import generate
from placekit.model.contiguity import Contiguity
from placekit.solvers.makespan.decomposition.stretch import cut_stretch
from placekit.solvers.makespan.schedule import sequence as sequences
from placekit.solvers.makespan.schedule.sequence import decode, empty_timeline, sequence_problem
from placekit.solvers.makespan.search import walk as walks
from placekit.solvers.makespan.search.proposals import propose
from placekit.solvers.makespan.search.starts import list_schedule


@pytest.mark.slow
@examples(150)
@given(problems(objective=st.just(pk.Makespan()), contiguity=st.just(Contiguity.NONE)), st.integers(0, 2**31))
def test_a_stretch_says_what_the_whole_schedule_costs(problem: pk.Problem, seed: int) -> None:
    """Whatever changes inside, the whole makespan is that of the stretch, or of a path beside it, which stays."""
    flat, rng = sequence_problem(problem, has_contention=False), np.random.default_rng(seed)
    num_ops = flat.instance.num_ops
    start = list_schedule(flat, 0.5, rng) if flat.allowed.any(axis=1).all() else None
    if start is None:
        return
    device, sequence = start[0], random_order(problem, rng)
    timeline = empty_timeline(flat)
    whole_s = decode(flat, device, sequence, timeline, 0)
    low, high = sorted(rng.choice(num_ops + 1, 2, replace=False).tolist())
    part = cut_stretch(flat, device, sequence, timeline.finish_s, low, high)
    walk = walks.empty_walk(part.flat)
    value_s = walks.load(part.flat, walk, device[part.ops], np.arange(len(part.ops)))
    assert value_s <= whole_s * (1 + 1e-12)
    np.testing.assert_array_equal(walk.timeline.finish_s, timeline.finish_s[part.ops])
    walks.trace(part.flat, walk)
    for _ in range(15):
        walks.forget(walk)
        first = propose(part.flat, walk)
        if first < 0:
            walks.undo(part.flat, walk)
            continue
        value_s = walks.settle(part.flat, walk, first, walks.touched(part.flat, walk, first))
        walks.trace(part.flat, walk)
        changed, order = device.copy(), sequence.copy()
        changed[part.ops], order[low:high] = walk.device, part.ops[walk.sequence]
        after_s = decode(flat, changed, order, empty_timeline(flat), 0)
        assert value_s * (1 - 1e-12) <= after_s <= max(value_s, whole_s) * (1 + 1e-12)
        assert not pk.evaluate(problem, pk.Placement.of(problem, changed, np.argsort(order))).violations


@examples(60)
@given(problems(objective=st.just(pk.Makespan()), contiguity=st.just(Contiguity.NONE)), st.integers(0, 2**31))
def test_what_follows_the_first_starts_is_the_makespan(problem: pk.Problem, seed: int) -> None:
    """The longest time from a start to the end, over ops that start at zero, is the makespan."""
    flat, rng = sequence_problem(problem, has_contention=False), np.random.default_rng(seed)
    device = rng.integers(flat.time_s.shape[1], size=flat.instance.num_ops)
    sequence = random_order(problem, rng)
    timeline = empty_timeline(flat)
    to_end_s, then_s = np.zeros(len(device)), np.zeros(flat.time_s.shape[1])
    with interpreted(sequences):
        whole_s = sequences.decode(flat, device, sequence, timeline, 0)
        sequences.time_to_end(flat, device, sequence, to_end_s, then_s, len(device))
    assert (timeline.start_s + to_end_s).max() == pytest.approx(whole_s, rel=1e-12)


def test_sweeps_improve_a_long_schedule() -> None:
    """Three thousand ops, a few sweeps: at least three percent below HEFT, the same for the same seed."""
    problem = generate("layered", 3000, num_devices=4, equal=False, objective=pk.Makespan())
    listed = pk.solve(problem, "heft").objective
    found = [pk.solve(problem, "local-search", params={"max_cycles": 4}, seed=1) for _ in range(2)]
    assert listed is not None
    assert found[0].objective is not None
    assert found[0].objective < 0.97 * listed
    assert found[0].placement == found[1].placement
