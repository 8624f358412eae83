"""HSDAG: finds a known optimum, repeats itself, keeps to masks, has the right gradient; its three forms."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, reject
from numpy.typing import NDArray
from strategies import examples, problems

import placekit as pk
from placekit.benchmarks.generators.families import generate
from placekit.learned.environment import Environment
from placekit.learned.hsdag.learner import HsdagLearner
from placekit.learned.hsdag.method import Hsdag
from placekit.learned.hsdag.params import HsdagParams
from placekit.learned.hsdag.parsing import NodeGraph, coarse_nodes, parse
from placekit.learned.hsdag.starts import Starts
from placekit.model.errors import InvalidProblemError, UnsupportedProblemError


def learner_of(problem: pk.Problem, **params: object) -> HsdagLearner:
    """Return a small learner with seeded weights."""
    method = Hsdag.from_params(None, {"hidden": 8, **params})
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        return HsdagLearner(Environment(problem), method.params)


@pytest.mark.parametrize(
    ("objective", "optimum"), [(pk.SerialLatency(), 15.0), pytest.param(pk.Makespan(), 12.5, marks=pytest.mark.slow)]
)
def test_the_optimum_of_the_toy_is_found(toy: pk.Problem, objective: pk.Objective, optimum: float) -> None:
    """It is what enumeration finds, and the policy's own answer is as good."""
    problem = toy.replace(objective=objective)
    environment = Environment(problem)
    every = np.array(list(itertools.product(range(2), repeat=6)))
    assert environment.evaluate(every).min() == optimum
    result = pk.solve(problem, "hsdag", params={"updates": 60, "hidden": 16, "patience": 0}, seed=1)
    assert result.objective == optimum
    assert result.evaluations > 60


def test_same_seed_same_answer(toy: pk.Problem) -> None:
    """Placement, trace and number of evaluations; torch's global state is left alone."""
    before = torch.random.get_rng_state()
    first, second = (pk.solve(toy, "hsdag", params={"updates": 4, "hidden": 8}, seed=7) for _ in range(2))
    assert first.placement == second.placement
    assert [line.objective for line in first.trace] == [line.objective for line in second.trace]
    assert first.evaluations == second.evaluations
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.usefixtures("doubles")
@pytest.mark.parametrize("fidelity", ["placekit", "paper"])
def test_the_gradient_is_the_derivative_of_the_log_probability(toy: pk.Problem, fidelity: str) -> None:
    """Autograd through pooling, scores and heads equals central differences, for the weights of every part."""
    learner = learner_of(toy, fidelity=fidelity, dropout=0.0, noise=0.0)
    policy = learner.policy.double()
    learner.features = learner.features.double()
    with torch.no_grad():
        for weight in policy.parameters():  # zeros at the start would hide the gradient
            weight.add_(0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))

    def log_probability() -> torch.Tensor:
        levels, _ = learner.parse_and_decide(learner.features, None)
        return torch.stack([level.log_probs[:, 0].sum() for level in levels]).sum()

    policy.zero_grad()
    log_probability().backward()  # type: ignore[no-untyped-call]  # torch has no types here
    step, checked = 1e-6, 0
    for name, weight in policy.named_parameters():
        if weight.grad is None:
            continue
        at = int(weight.grad.abs().argmax())
        flat = weight.data.view(-1)
        values = []
        for change in (step, -2 * step):
            flat[at] += change
            values.append(float(log_probability().detach()))
        flat[at] += step
        numeric = (values[0] - values[1]) / (2 * step)
        assert numeric == pytest.approx(float(weight.grad.view(-1)[at]), rel=1e-4, abs=1e-6), name
        checked += float(weight.grad.abs().max()) > 1e-9
    assert checked > 10


@given(problems(max_ops=6, max_devices=3))
@examples(25)
def test_masks_are_never_violated(problem: pk.Problem) -> None:
    """Samples and decoded answers of every form keep to support, pins and colocation."""
    try:
        environment = Environment(problem)
    except UnsupportedProblemError:
        reject()
    for fidelity in ("placekit", "paper"):
        learner = learner_of(problem, fidelity=fidelity, steps=2)
        placements = np.concatenate([learner.rollout(torch.Generator().manual_seed(0)).placements, learner.decode()])
        assert environment.op_mask[np.arange(problem.graph.num_ops), placements].all()
        assert all(np.array_equal(row, row[environment._leader]) for row in placements)


@given(problems(max_ops=8, max_devices=3))
@examples(60)
def test_nodes_keep_classes_together_and_a_device_each(problem: pk.Problem) -> None:
    """Whatever the rule, a node is a union of classes that have a device in common."""
    try:
        environment = Environment(problem)
    except UnsupportedProblemError:
        reject()
    for has_chains in (False, True):
        nodes = coarse_nodes(problem, environment.mask, has_chains=has_chains)
        assert environment.coarsened(nodes).mask.any()


def _nodes(
    mask: NDArray[np.bool_], edges: NDArray[np.int64], times: NDArray[np.float64] | None = None, transfer: float = 1.0
) -> NodeGraph:
    """Return nodes with equal times, if none are given, and equal transfers."""
    return NodeGraph(mask, np.ones(mask.shape) if times is None else times, edges, np.full(edges.shape[1], transfer))


def test_coarsening_follows_the_paper() -> None:
    """A fork is no chain; nodes without a common device stay apart."""
    chain = pk.OpGraph.from_edges(list("abcd"), [("a", "b"), ("b", "c"), ("b", "d")])
    problem = pk.Problem(
        chain, pk.Platform.of(cpu=2), pk.CostTable(("cpu",), np.ones((4, 1)), np.ones((2, 1)), np.ones(4))
    )
    mask = np.ones((4, 2), dtype=bool)
    assert coarse_nodes(problem, mask, has_chains=True).tolist() == [0, 0, 1, 2]
    apart = np.array([[True, False], [False, True], [True, True], [True, True]])
    assert coarse_nodes(problem, apart, has_chains=True).tolist() == [0, 1, 2, 3]


def test_parsing_joins_nodes_along_their_best_edges() -> None:
    """Scores 0.9, 0.1, 0.8 on a line of four make two pairs; nodes without a common device stay apart."""
    edges = np.array([[0, 1, 2], [1, 2, 3]])
    scores = np.array([0.9, 0.1, 0.8], dtype=np.float32)
    level = parse(_nodes(np.ones((4, 2), dtype=bool), edges), scores)
    assert level.group_of_node.tolist() == [0, 0, 1, 1]
    assert level.is_inside.tolist() == [True, False, True]
    assert level.graph.edges.tolist() == [[0], [1]]
    mask = np.array([[True, False], [False, True], [True, True], [True, True]])
    assert parse(_nodes(mask, edges), scores).group_of_node.tolist() == [0, 1, 2, 2]
    lonely = parse(_nodes(mask, edges[:, :0]), scores[:0])
    assert lonely.group_of_node.tolist() == [0, 1, 2, 3]


def test_returns_of_the_paper_are_discounted(toy: pk.Problem) -> None:
    """Per step, from the first one on."""
    paper = learner_of(toy, fidelity="paper")
    weights = paper.advantages(paper.rollout(torch.Generator()), torch.full((20,), 2.0))
    assert weights[0] == 0.5
    assert weights[-1] == pytest.approx(0.5 * 0.95**19)


def test_a_warm_start_is_where_the_policy_begins(toy: pk.Problem) -> None:
    """The first decoded answer is the placement that was preferred."""
    learner = learner_of(toy, anneal_updates=0)
    assert learner.decode().tolist()[0] == [1] * 6
    learner.prefer(np.array([0, 1, 1, 0, 0, 1]))
    assert learner.decode().tolist()[0] == [0, 1, 1, 0, 0, 1]


def test_wrong_parameters_are_named() -> None:
    """Choices and ranges."""
    with pytest.raises(InvalidProblemError, match="fidelity is 'mine'; it must be one of placekit, paper"):
        Hsdag.from_params(None, {"fidelity": "mine"})
    with pytest.raises(InvalidProblemError, match="dropout is 1"):
        HsdagParams(dropout=1.0)
    with pytest.raises(InvalidProblemError, match="fidelity 'paper' needs samples = 1, not 16"):
        HsdagParams(fidelity="paper")


def test_in_a_row_the_policy_begins_where_the_method_before_ended(
    toy: pk.Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``greedy+hsdag`` prefers greedy's placement, and ``hsdag`` alone prefers nothing."""
    begun: list[list[int]] = []
    monkeypatch.setattr(HsdagLearner, "prefer", lambda _, placement: begun.append(placement.tolist()))
    greedy = pk.solve(toy, "greedy").placement
    assert greedy is not None
    pk.solve(toy, "greedy+hsdag", params={"hsdag.updates": 1})
    pk.solve(toy, "hsdag", params={"updates": 1})
    assert begun == [greedy.device_of_op.tolist()]


def test_swaps_say_what_one_group_alone_gains(toy: pk.Problem) -> None:
    """Every swap differs from its sample in one group, and its advantage has the sign of what that gains."""
    learner = learner_of(toy, min_groups=6, samples=4, steps=1)
    rollout = learner.rollout(torch.Generator().manual_seed(0))
    costs = torch.from_numpy(learner.environment.costs(rollout.placements))
    weights = learner.advantages(rollout, costs)
    assert len(learner._blocks) == 2
    rows, base = learner._blocks[1]
    assert base == 0
    different = rollout.placements[rows] != rollout.placements[base]
    assert sorted(np.flatnonzero(row).tolist() for row in different) == [[op] for op in range(6)]
    assert torch.equal(weights[rollout.row >= rows.start].sign(), (costs[base] - costs[rows]).sign())


def test_edges_are_cheap_to_cut_where_sharing_a_device_costs_more() -> None:
    """Equal transfers; only the second pair is best on different devices. Twice the seconds change nothing."""
    times = np.array([[1.0, 5], [1, 5], [9, 2]])
    edges = np.array([[0, 1], [1, 2]])
    costs = _nodes(times > 0, edges, times).edge_costs()
    assert costs[0] > costs[1]
    assert _nodes(times > 0, edges, 2 * times, 2.0).edge_costs() == pytest.approx(costs)
    assert _nodes(times > 0, edges, np.ones((3, 2)), 0.0).edge_costs().tolist() == [0, 0]


def test_a_start_goes_down_its_levels_and_ends() -> None:
    """Five updates without a better cost per level and four on the finest; a better one starts the count again."""
    starts = Starts(restart=4)
    for cost in (2.0, 1.5, 1.5, 1.5, 1.5):
        starts.note(cost)
        assert not starts.is_next_due()
    starts.note(1.5)
    assert starts.is_next_due()
    starts.level = 1
    for _ in range(6):
        starts.note(3.0)
    assert not starts.is_next_due()
    assert (starts.number, starts.level) == (1, 0)
    never = Starts(restart=0)
    for _ in range(100):
        never.note(1.0)
    assert not never.is_next_due()


def test_resuming_in_the_middle_of_a_start_repeats_it(toy: pk.Problem) -> None:
    """A learner that takes over weights and memory after some starts plays the same episodes, bit for bit."""
    params = {"restart": 2, "samples": 4}
    learner = learner_of(toy, **params)
    generator = torch.Generator().manual_seed(0)

    def play(learner: HsdagLearner) -> np.ndarray:
        rollout = learner.rollout(generator)
        learner.advantages(rollout, torch.from_numpy(learner.environment.costs(rollout.placements)).float())
        return rollout.placements

    numbers = set()
    for _ in range(80):
        play(learner)
        numbers.add(learner.starts.number)
        if learner.starts.level and len(numbers) > 2:
            break
    assert learner.starts.level
    other = learner_of(toy, **params)
    other.policy.load_state_dict(learner.policy.state_dict())
    other.remember(learner.memory())
    state = generator.get_state()
    expected = [play(learner) for _ in range(8)]
    generator.set_state(state)
    assert all(np.array_equal(play(other), placements) for placements in expected)


@pytest.mark.parametrize("has_residual", [True, False])
def test_every_other_start_draws_its_weights_anew(toy: pk.Problem, has_residual: bool) -> None:
    """From the training's generator alone; the starts in between go on from the best placement, weights kept."""
    learner = learner_of(toy, has_residual=has_residual, anneal_updates=3)
    learner.environment.costs(np.ones((1, toy.graph.num_ops), dtype=np.int64))
    weights = next(learner.policy.input.parameters())
    before, global_state = weights.detach().clone(), torch.random.get_rng_state()
    learner.starts.number = 1
    learner._begin_anew(torch.Generator().manual_seed(5))
    assert torch.equal(weights, before)
    assert learner.starts.noise is not None
    assert learner.annealed_over == 0
    assert learner.environment.best is not None
    assert learner.preferred.tolist() == learner.environment.best[learner.leader].tolist()
    learner.starts.number = 2
    drawn = []
    for seed in (5, 5, 6):
        learner._begin_anew(torch.Generator().manual_seed(seed))
        drawn.append(weights.detach().clone())
    assert torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[0], before) is not has_residual
    assert torch.equal(drawn[0], drawn[2]) is not has_residual
    assert learner.annealed_over == 3
    assert torch.equal(global_state, torch.random.get_rng_state())


def test_contiguity_leaves_no_single_device_in_silence() -> None:
    """Pipelines are found where hardly any sample is feasible; where none is better, the result says so, and why."""
    problem = generate("inception", 60, seed=1, num_devices=2).replace(contiguity=pk.Contiguity.ACYCLIC)
    alone = pk.solve(problem, "single").objective
    found = pk.solve(problem, "hsdag", params={"updates": 5, "patience": 0})
    assert found.objective is not None
    assert alone is not None
    assert found.objective < 0.9 * alone
    assert "no_better" not in found.info
    serial = problem.replace(objective=pk.SerialLatency())
    proven = pk.solve(serial, "hsdag", params={"updates": 2, "patience": 0})
    assert proven.status is pk.Status.OPTIMAL  # equal devices: one of them does all the work that there is
    assert "updates" not in proven.info
    unequal = generate("inception", 60, seed=1, num_devices=2, equal=False, objective=pk.SerialLatency())
    far = unequal.costs.replace(transfer_time_s=1e3 * unequal.costs.transfer_time_s)
    hard = unequal.replace(costs=far, contiguity=pk.Contiguity.ACYCLIC)
    told = pk.solve(hard, "hsdag", params={"updates": 2, "patience": 0}).info
    assert "alone" in told["no_better"]
    assert "broke contiguity acyclic" in told["no_better"]
    assert "training ended after 2 updates (iterations)" in told["no_better"]
