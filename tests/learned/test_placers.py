"""GDP, HDP ("rnn"), Placeto and DOPPLER: enumerated optima, same seed same answer, exact resume, gradients."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, reject
from hypothesis import strategies as st
from states import same
from strategies import examples, problems
from torch import Tensor

import placekit as pk
from placekit.learned.doppler.method import Doppler
from placekit.learned.environment import Environment
from placekit.learned.group_graph import few_groups, group_graph, relations_of, wanted_actions
from placekit.learned.method import LearnedMethod, Session, seeded_learner
from placekit.learned.placers.gdp import Gdp, GdpLearner, GdpNetwork, GdpParams, SegmentLayer
from placekit.learned.placers.placeto import Placeto, PlacetoLearner
from placekit.learned.placers.rnn import Rnn, RnnLearner
from placekit.learned.training.checkpoint import read_checkpoint, write_checkpoint
from placekit.model.errors import InvalidProblemError, UnsupportedProblemError

PLACERS = [Gdp, Rnn, Placeto, Doppler]
SMALL: dict[type[LearnedMethod], dict[str, Any]] = {
    Gdp: {"hidden": 16, "samples": 8, "segment": 3, "rounds": 2},
    Rnn: {"hidden": 16, "samples": 8, "groups_per_device": 2},
    Placeto: {"episodes": 4, "width": 6, "rounds": 2, "refresh": 2, "trained_blocks": 2},
    Doppler: {"hidden": 8, "samples": 4, "imitation": 2},
}
"""Parameters with which every part of a learner is at work in a graph of six ops."""

anyone = pytest.mark.parametrize("placer", PLACERS, ids=lambda placer: placer.name)


def small(placer: type[LearnedMethod], session: Session | None = None, **params: Any) -> LearnedMethod:
    """Return the method with small networks."""
    return placer(placer.params_type(**SMALL[placer], **params), session)


def optimum(problem: pk.Problem) -> float:
    """Return the best objective of all placements."""
    rows = product(range(problem.platform.num_devices), repeat=problem.graph.num_ops)
    evaluations = (pk.evaluate(problem, pk.Placement.of(problem, row)) for row in rows)
    return min(e.objective for e in evaluations if e.is_feasible and e.objective is not None)


@anyone
@pytest.mark.parametrize(
    "objective",
    [pk.SerialLatency(), pytest.param(pk.Makespan(), marks=pytest.mark.slow)],
    ids=lambda objective: objective.name,
)
def test_placers_find_the_enumerated_optimum(
    placer: type[LearnedMethod], objective: pk.Objective, toy: pk.Problem
) -> None:
    """With default parameters and without a time limit; both single devices are worse."""
    problem = toy.replace(objective=objective)
    best = optimum(problem)
    single = pk.solve(problem, "single").objective
    assert single is not None
    assert best < 0.8 * single
    result = pk.solve(problem, placer(), seed=1)
    assert result.objective == pytest.approx(best)


@pytest.mark.parametrize(
    ("placer", "updates"),
    [
        pytest.param(Gdp, 150, marks=pytest.mark.slow),
        pytest.param(Rnn, 160, marks=pytest.mark.slow),
        (Placeto, 60),
        (Doppler, 100),
    ],
)
def test_the_policy_itself_beats_single_devices(placer: type[LearnedMethod], updates: int, toy: pk.Problem) -> None:
    """Not only a lucky sample: after training, the placement without randomness beats both devices, which trap it."""
    learners: list[Any] = []

    class Kept(placer):  # type: ignore[misc, valid-type]  # a class from a parameter
        """Keeps its learner."""

        def make_learner(self, environment: Environment) -> Any:
            learners.append(super().make_learner(environment))
            return learners[-1]

    pk.solve(toy, Kept(placer.params_type(updates=updates, patience=0)), seed=0)
    environment = Environment(toy)
    with torch.no_grad():
        decoded = environment.evaluate(learners[0].decode())
    assert decoded[0] < environment.single_devices.min()


@anyone
def test_same_seed_same_placement_and_weights(placer: type[LearnedMethod], toy: pk.Problem, tmp_path: Path) -> None:
    """Twice the same, whatever torch's global generator is at; another seed trains other weights."""
    states = []
    for number, seed in enumerate((5, 5, 6)):
        torch.manual_seed(number)
        path = tmp_path / f"{number}.pt"
        pk.solve(toy, small(placer, Session(checkpoint=path), updates=4, patience=0), seed=seed)
        states.append(read_checkpoint(path).training)
    assert states[0] is not None
    assert same(states[0], states[1])
    assert states[2] is not None
    assert not same(states[0]["policy"], states[2]["policy"])


@anyone
def test_resumed_training_equals_an_uninterrupted_one(
    placer: type[LearnedMethod], toy: pk.Problem, tmp_path: Path
) -> None:
    """Three updates, a file, three more: weights, optimiser, random state and best placement of six, bit for bit."""
    whole, half, rest = (tmp_path / name for name in ("whole.pt", "half.pt", "rest.pt"))
    pk.solve(toy, small(placer, Session(checkpoint=whole), updates=6, patience=0), seed=2)
    pk.solve(toy, small(placer, Session(checkpoint=half), updates=3, patience=0), seed=2)
    pk.solve(toy, small(placer, Session(checkpoint=rest, resume=half), updates=6, patience=0), seed=2)
    expected, found = read_checkpoint(whole).training, read_checkpoint(rest).training
    assert expected is not None
    assert found is not None
    assert expected["update"] == 6
    differing = [name for name in expected if not same(expected[name], found[name])]
    assert not differing


@pytest.mark.usefixtures("doubles")
@anyone
def test_gradients_agree_with_differences(placer: type[LearnedMethod], toy: pk.Problem) -> None:
    """The gradient of a weighted sum of log-probabilities and entropies, along random directions, in doubles."""
    environment = Environment(toy)
    # in one segment: no gradient flows into the memory of the one before
    one_segment = {"segment": 6} if placer is Gdp else {}
    learner: Any = seeded_learner(placer(placer.params_type(**SMALL[placer] | one_segment)), environment, 0)
    learner.policy.double()
    learner.graph = replace(learner.graph, features=learner.graph.features.double())
    if isinstance(learner, PlacetoLearner):
        learner.own, learner.relations = learner.graph.group_columns, learner.relations.double()
    weights = torch.rand(10_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def loss() -> Tensor:
        rollout = learner.rollout(torch.Generator().manual_seed(3))  # a small change of the weights samples the same
        terms: Tensor = rollout.log_probs + 0.3 * rollout.entropies
        return (weights[: len(terms)] * terms).sum()

    parameters = list(learner.policy.parameters())
    gradients = torch.autograd.grad(loss(), parameters, allow_unused=True)
    generator = torch.Generator().manual_seed(4)
    for _ in range(3):
        direction = [torch.randn(p.shape, generator=generator, dtype=torch.float64) for p in parameters]
        slope = sum(float((g * d).sum()) for g, d in zip(gradients, direction, strict=True) if g is not None)
        values = []
        for step in (1e-6, -1e-6):
            with torch.no_grad():
                torch._foreach_add_(parameters, direction, alpha=step)
                values.append(float(loss()))
                torch._foreach_add_(parameters, direction, alpha=-step)
        assert (values[0] - values[1]) / 2e-6 == pytest.approx(slope, rel=1e-4, abs=1e-6)


@anyone
def test_a_warm_start_is_where_the_policy_begins(placer: type[LearnedMethod], toy: pk.Problem) -> None:
    """Without training, most of the sampled devices are those of the warm start."""
    preferring: dict[str, Any] = {Gdp: {"deviations": 1.0}, Rnn: {"deviations": 0.5}, Doppler: {"deviations": 0.5}}.get(
        placer, {}
    )
    learner: Any = seeded_learner(small(placer, **preferring), Environment(toy), 0)
    start = np.array([1, 0, 1, 1, 0, 1])
    learner.prefer(start)
    with torch.no_grad():
        placements = learner.rollout(torch.Generator().manual_seed(0)).placements
    assert (placements == start).all(axis=1).any() if placer is Placeto else (placements == start).mean() > 0.6


@anyone
@given(problem=problems(contiguity=st.just(pk.Contiguity.NONE)), seed=st.integers(0, 9))
@examples(15)
def test_samples_respect_support_pins_and_classes(placer: type[LearnedMethod], problem: pk.Problem, seed: int) -> None:
    """Whatever is sampled or decoded lies inside the mask; every decision has a probability."""
    try:
        environment = Environment(problem)
    except UnsupportedProblemError:
        reject()
    learner: Any = seeded_learner(small(placer), environment, seed)
    rollout = learner.rollout(torch.Generator().manual_seed(seed))
    assert torch.isfinite(rollout.log_probs).all()
    assert torch.isfinite(rollout.entropies).all()
    assert rollout.row.max() < len(rollout.placements)
    for placement in np.concatenate([rollout.placements[:10], learner.decode()]):
        found = {
            violation.constraint for violation in pk.evaluate(problem, pk.Placement.of(problem, placement)).violations
        }
        assert not found & {"support", "pin", "colocation"}
    costs = torch.from_numpy(environment.costs(rollout.placements)).float()
    advantages = learner.advantages(rollout, costs)
    assert advantages.shape == rollout.log_probs.shape
    assert torch.isfinite(advantages).all()


@pytest.mark.parametrize(
    ("placer", "params", "message"),
    [
        (Gdp, {"hidden": 10}, "'heads' is 4; it must be a divisor of hidden, 10"),
        (Gdp, {"clip": 1.5}, r"'clip' is 1\.5"),
        (Gdp, {"samples": 1}, "'samples' is 1; it must be >= 2"),
        (Rnn, {"hidden": 9}, "'hidden' is 9; it must be even"),
        (Rnn, {"decay": 1.0}, r"'decay' is 1\.0"),
        (Placeto, {"discount": 1.5}, r"'discount' is 1\.5; it must be between 0 and 1"),
        (Placeto, {"refresh": 0}, "'refresh' is 0; it must be >= 1"),
        (Doppler, {"samples": 1}, "'samples' is 1; it must be >= 2"),
        (Doppler, {"imitation": -1}, "'imitation' is -1; it must be >= 0"),
    ],
)
def test_wrong_parameters_are_refused(placer: type[LearnedMethod], params: dict[str, Any], message: str) -> None:
    """Every parameter names its value and its bound."""
    with pytest.raises(InvalidProblemError, match=message):
        placer.params_type(**params)


def test_gdp_replays_its_rollout(toy: pk.Problem) -> None:
    """Under the same weights, the log-probabilities of old decisions are those of the rollout."""
    learner = GdpLearner(Environment(toy), GdpParams(**SMALL[Gdp]))
    rollout = learner.rollout(torch.Generator().manual_seed(0))
    log_probs, entropies = learner.replay(rollout)
    assert torch.allclose(log_probs, rollout.log_probs)
    assert torch.allclose(entropies, rollout.entropies)


def test_gdp_segments_see_themselves_and_the_one_before(toy: pk.Problem) -> None:
    """A later segment changes nothing; the one before does, and no gradient flows into it."""
    torch.manual_seed(0)
    layer = SegmentLayer(8, 2)
    x, gates = torch.randn(7, 8), torch.ones(3, 8)
    whole = layer(x, gates, 3)
    assert torch.allclose(whole[:3], layer(x[:3], gates, 3), atol=1e-6)
    assert torch.allclose(whole[3:6], layer(x[:6], gates, 3)[3:], atol=1e-6)
    assert torch.allclose(whole[6:], layer(x[3:], gates, 3)[3:], atol=1e-6)
    assert not torch.allclose(whole[3:6], layer(torch.cat([x[:3].flip(1), x[3:]]), gates, 3)[3:6])
    for i in range(3):
        gated = gates.clone()
        gated[i] = 2
        assert not torch.allclose(whole, layer(x, gated, 3))
    network = GdpNetwork(5, 2, GdpParams(hidden=8, rounds=1, layers=2, heads=2, segment=2))
    graph = group_graph(Environment(toy))
    base = replace(graph, features=torch.randn(6, 5), senders=graph.senders[:0], receivers=graph.receivers[:0])
    with torch.no_grad():
        for name, weight in network.named_parameters():
            weight.mul_(not name.startswith("gates"))  # the summary of the graph is the only other way from op to op
    features = base.features.clone().requires_grad_()
    logits = network(replace(base, features=features))
    order = graph.order.tolist()
    (gradient,) = torch.autograd.grad(logits[order[3]].sum(), features)
    reached = {op for op in range(6) if gradient[op].abs().sum() > 0}
    assert reached == {order[2], order[3]}


def test_rnn_sees_the_edges_between_groups(toy: pk.Problem) -> None:
    """With ops a, b in group 0 and the others in group 1: one edge inside 0, two across, three inside 1."""
    environment = Environment(toy)
    learner = RnnLearner(environment, small(Rnn, locality=0.0).params)
    group = torch.tensor([[0, 0, 1, 1, 1, 1]])
    member = torch.nn.functional.one_hot(group, 4).float()
    rows = learner.policy.embed(learner.graph, member, group)[0, :, -8:]
    assert rows[0].tolist() == pytest.approx([1 / 3, 2 / 3, 0, 0, 1 / 2, 0, 0, 0])
    assert rows[1].tolist() == pytest.approx([0, 3 / 4, 0, 0, 2 / 4, 3 / 4, 0, 0])
    assert rows[2:].abs().sum() == 0


def test_placeto_relations_are_means_over_paths(toy: pk.Problem) -> None:
    """By hand, for op d of the toy: ancestors a, b; descendants e, f; parallel c."""
    relations = relations_of(group_graph(Environment(toy)))
    assert relations[:, 3].tolist() == [[0.5, 0.5, 0, 0, 0, 0], [0, 0, 0, 0, 0.5, 0.5], [0, 0, 1, 0, 0, 0]]


def test_placeto_sees_when_nodes_start(toy: pk.Problem) -> None:
    """By hand: all on the GPU they start at 0, 5, 7, 9, 14 and 19 s; b and c have their turn."""
    learner = PlacetoLearner(Environment(toy), small(Placeto).params)
    expected = np.array([0, 5, 7, 9, 14, 19])
    starts = learner._starts(torch.ones(2, 6, dtype=torch.long), torch.tensor([1, 2]))
    assert (starts * 19 + 5).numpy() == pytest.approx(np.stack([expected] * 2))


def test_placeto_contracts_large_graphs(toy: pk.Problem) -> None:
    """Runs of ops in topological order, apart where their pins are."""
    environment = few_groups(Environment(toy.pin({"a": "cpu.0", "b": "gpu.0"})), 3)
    assert environment.group_of_op.tolist() == [0, 1, 1, 2, 2, 3]
    result = pk.solve(toy, small(Placeto, max_nodes=2, updates=3))
    assert result.objective is not None
    free = Environment(toy)
    assert few_groups(free, 6) is free


def test_wanted_actions_stay_inside_the_mask(toy: pk.Problem) -> None:
    """A warm start that breaks a pin is corrected there and kept elsewhere."""
    environment = Environment(toy.pin({"a": "cpu.0"}))
    assert wanted_actions(environment, np.ones(6, dtype=np.int64)).tolist() == [0, 1, 1, 1, 1, 1]


def test_trainings_of_earlier_versions_say_what_to_do(toy: pk.Problem, tmp_path: Path) -> None:
    """A checkpoint that knows no stages cannot go on; its weights are a policy all the same."""
    path = tmp_path / "old.pt"
    pk.solve(toy, small(Gdp, Session(checkpoint=path), updates=2, patience=0), seed=1)
    checkpoint = read_checkpoint(path)
    assert checkpoint.training is not None
    state = {name: value for name, value in checkpoint.training.items() if name != "stage"}
    write_checkpoint(path, type(checkpoint)(**{**vars(checkpoint), "training": state}))
    with pytest.raises(InvalidProblemError, match=r"of an earlier version of placekit.*--policy FILE"):
        pk.solve(toy, small(Gdp, Session(resume=path), updates=4, patience=0), seed=1)
    assert pk.solve(toy, small(Gdp, Session(policy=path), updates=1, patience=0), seed=1).info["updates"] == 1
    weights = {name: value for name, value in checkpoint.transferable.items() if "lin_l" not in name}
    write_checkpoint(path, type(checkpoint)(**{**vars(checkpoint), "transferable": weights}))
    with pytest.raises(InvalidProblemError, match=r"nothing for weight 'updates.*train it again"):
        pk.solve(toy, f"policy:{path}")


def test_methods_in_a_row_begin_at_what_they_get(toy: pk.Problem) -> None:
    """The learner is no worse than the method before it, and gets its turn unless that one proved the optimum."""
    params = {"hsdag.updates": 2, "hsdag.samples": 4}
    problem = toy.replace(objective=pk.Throughput(), contiguity=pk.Contiguity.ACYCLIC)
    result = pk.solve(problem, "dpl+hsdag", params=params)
    stages = [line["objective_s"] for line in result.info["stages"]]
    assert len(stages) == 2
    assert all(after <= before for before, after in pairwise(stages))
    proven = pk.solve(toy, "mincut+hsdag", params=params)
    assert proven.status is pk.Status.OPTIMAL
    assert [line["method"] for line in proven.info["stages"]] == ["mincut"]
