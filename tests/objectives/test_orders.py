"""The better of two orders: against a plain rank, the judge, and what choosing an order must never do."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from strategies import MAKESPANS, examples, problems

import placekit as pk
from placekit.benchmarks.generators.families import generate
from placekit.objectives.makespan.arrays import MakespanInstance
from placekit.objectives.makespan.instance import instance_of
from placekit.objectives.makespan.orders import BestOrder, placed_rank
from placekit.objectives.makespan.simulate import simulate


def plain_rank(instance: MakespanInstance, device: list[int], op: int) -> float:
    """Return the longest path from the start of `op` to an end, by recursion over the definition."""
    home = instance.kind[device[op]]
    paths = [0.0]
    for tensor in np.flatnonzero(instance.producer == op).tolist():
        for reader in instance.readers[instance.reader_offsets[tensor] : instance.reader_offsets[tensor + 1]].tolist():
            away = instance.kind[device[reader]]
            moves = device[reader] != device[op]
            link_s = instance.transfer_s[tensor, home] + instance.transfer_s[tensor, away] if moves else 0.0
            paths.append(link_s + plain_rank(instance, device, reader))
    return float(instance.op_time_s[op, home] + max(paths))


@given(problems(max_ops=7, max_kinds=3, objective=st.sampled_from(MAKESPANS)), st.randoms(use_true_random=False))
@examples(150)
def test_an_order_is_what_the_judge_says_and_never_worse(problem: pk.Problem, random: Random) -> None:
    """Ranks follow their definition; the score is the judge's of the answer, at most that of the rule, and reached."""
    instance = instance_of(problem)
    can = [np.flatnonzero(row).tolist() for row in instance.allowed]
    if not all(can):
        return
    device = np.array([random.choice(row) for row in can])
    rank = np.empty(problem.graph.num_ops)
    placed_rank(instance, device, rank)
    np.testing.assert_allclose(rank, [plain_rank(instance, device.tolist(), op) for op in range(len(rank))])
    assert isinstance(problem.objective, pk.Makespan)
    order = BestOrder(problem, problem.objective.order, has_contention=problem.objective.contention)
    (score,) = order(device[None]).tolist()
    answer = order.placement(device)
    judged, ruled = (pk.evaluate(problem, it).objective for it in (answer, pk.Placement.of(problem, device)))
    ranked = simulate(instance, device, -rank, has_contention=problem.objective.contention).makespan_s
    assert score == judged
    assert ruled is not None
    assert score == min(ruled, ranked)
    assert (answer.step_of_op is None) == (ruled <= ranked)


def test_order_is_worth_more_than_first_come_first_served() -> None:
    """On layered graphs most placements run sooner by their own remaining paths."""
    problem = generate("layered", 200, num_devices=4, transfer_ratio=1.0, objective=pk.Makespan())
    rows = np.random.default_rng(0).integers(0, 4, (50, 200))
    fifo = [pk.evaluate(problem, pk.Placement.of(problem, row)).objective or 0.0 for row in rows]
    best = BestOrder(problem, "fifo", has_contention=False)(rows)
    assert (best <= fifo).all()
    assert (best < fifo).mean() > 0.5
    assert best.mean() < 0.98 * np.mean(fifo)
