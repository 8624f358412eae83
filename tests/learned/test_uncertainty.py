"""Uncertainty: what a policy is undecided about, and what large-neighbourhood search makes of it."""

from __future__ import annotations

import logging
import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import placekit as pk
from placekit.benchmarks.generators.families import generate
from placekit.learned.learner import Rollout
from placekit.learned.uncertainty import op_uncertainty
from placekit.solve.method import Run
from placekit.solve.registry import get_method
from placekit.solvers.assignment.flat import flatten
from placekit.solvers.generic.coarsen import contract
from placekit.solvers.lns.operators import Operator
from placekit.solvers.lns.uncertain import UNCERTAIN, draw_weighted, uncertain_ops
from placekit.solvers.throughput.lns.neighbourhood import Position, draw
from placekit.solvers.throughput.local_search.state import empty_state

PARAMS = {"gdp.updates": 2, "gdp.hidden": 16, "lns.uncertainty": True, "lns.patience": 3, "lns.effort": 0.05}


class Coin:
    """A policy that is sure of its first op, tosses a coin for the second and a die for the third."""

    def rollout(self, generator: torch.Generator) -> Rollout:
        """Return a hundred placements."""
        sides = torch.tensor([1, 2, 6])
        placements = (torch.rand(100, 3, generator=generator) * sides).long().numpy()
        return Rollout(placements, *torch.empty(3, 0))


def test_uncertainty_is_the_entropy_of_each_op() -> None:
    """In nats, estimated from samples; the same for the same seed."""
    found = op_uncertainty(Coin(), seed=1)  # type: ignore[arg-type]  # all that is asked of a learner here
    assert found.tolist() == pytest.approx([0.0, math.log(2), math.log(6)], abs=0.02)
    assert np.array_equal(found, op_uncertainty(Coin(), seed=1))  # type: ignore[arg-type]  # as above


def test_draws_follow_the_weights() -> None:
    """Without repetition, in proportion; all of them if there are no more."""
    rng = np.random.default_rng(0)
    weight = np.array([1.0, 0.0001, 3.0, 1.0])
    among = np.array([0, 2, 3])
    first = np.array([draw_weighted(rng, among, weight, 1)[0] for _ in range(3000)])
    assert np.bincount(first, minlength=4) / 3000 == pytest.approx([0.2, 0, 0.6, 0.2], abs=0.03)
    assert sorted(draw_weighted(rng, among, weight, 9).tolist()) == [0, 2, 3]


def test_neighbourhoods_free_what_is_uncertain() -> None:
    """Half of the classes stand on the fullest device, and those of large weight come before the others."""
    problem = generate("layered", 60, seed=2).replace(contiguity="none")
    flat = flatten(contract(problem))
    rng = np.random.default_rng(1)
    device = np.where(np.arange(60) < 40, 0, 1 + np.arange(60) % 2)
    weights = np.where(np.arange(60) % 3 == 0, 1e6, 1.0)
    at = Position(flat, empty_state(flat), np.arange(60), device, rng, weights)
    freed: NDArray[np.int64] = np.zeros(60, dtype=np.int64)
    for _ in range(20):
        neighbourhood = draw(at, Operator(UNCERTAIN, size=10, smallest=1))
        assert neighbourhood.free.sum() == 10
        assert neighbourhood.devices.all()
        assert (device[neighbourhood.free] == 0).sum() == 5
        freed += neighbourhood.free
    assert freed[weights > 1].sum() == freed.sum()


def test_a_policy_that_is_sure_of_everything_leaves_every_op_a_chance(diamond: pk.Problem) -> None:
    """Weights are positive, whatever the entropies are."""
    run = Run(diamond)
    for entropy in (np.zeros(4), np.array([0.0, 0.0, 1.0, 0.5])):
        run.uncertainty = lambda entropy=entropy: entropy
        weights = uncertain_ops(run)
        assert weights is not None
        assert (weights > 0).all()
        assert np.array_equal(np.argsort(weights, kind="stable"), np.argsort(entropy, kind="stable"))


@pytest.mark.parametrize("objective", [pk.Throughput(), pk.Makespan()], ids=lambda objective: objective.name)
@pytest.mark.parametrize("first", ["gdp", "policy:pretrained"])
def test_a_policy_hands_its_doubts_to_the_search(objective: pk.Objective, first: str, toy: pk.Problem) -> None:
    """A learned method before ``lns`` in a row; same seed, same answer."""
    problem = toy.replace(objective=objective, contiguity="none")
    params = {name: value for name, value in PARAMS.items() if name.startswith(("lns", first))}
    results = [pk.solve(problem, f"{first}+lns", params=params, seed=4) for _ in range(2)]
    assert results[0].placement == results[1].placement
    assert results[0].objective == pytest.approx(pk.solve(problem, "lns").objective)


@pytest.mark.parametrize("objective", [pk.Throughput(), pk.Makespan()], ids=lambda objective: objective.name)
def test_neighbourhoods_of_doubt_are_searched(objective: pk.Objective, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing but them, the search improves a placement that it begins with."""
    problem = generate("layered", 40, seed=3, num_devices=3, objective=objective).replace(contiguity="none")
    monkeypatch.setattr("placekit.solvers.throughput.lns.search.OPERATORS", ())
    monkeypatch.setattr("placekit.solvers.makespan.exact.lns.OPERATORS", ())
    monkeypatch.setattr("placekit.solvers.throughput.lns.search.search", lambda *_: None)
    monkeypatch.setattr("placekit.solvers.makespan.exact.lns.Proof.anneal", lambda *_: None)
    run = Run(problem, pk.MaxRuntime(4))
    run.offer(np.arange(problem.graph.num_ops) % 3)
    before = run.objective
    run.uncertainty = lambda: np.ones(problem.graph.num_ops)
    get_method("lns", {"uncertainty": True, "patience": 4, "effort": 0.1}).run(run)
    assert run.objective is not None
    assert before is not None
    assert run.objective < before


def test_without_a_policy_there_is_a_warning(toy: pk.Problem, caplog: pytest.LogCaptureFixture) -> None:
    """The search goes on as ever."""
    problem = toy.replace(objective=pk.Throughput(), contiguity="none")
    with caplog.at_level(logging.WARNING):
        result = pk.solve(problem, "lns", params={"uncertainty": True})
    assert "no policy worked on toy before" in caplog.text
    assert result.objective == pytest.approx(pk.solve(problem, "lns").objective)
