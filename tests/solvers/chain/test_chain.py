"""Runs of blocks by dynamic programming, against all placements."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples

import placekit as pk
from placekit.language.decoder import Decoder
from placekit.language.serving import Serving
from placekit.language.task import LanguageTask, TaskForm, decoder_task
from placekit.model.contiguity import Contiguity
from placekit.model.errors import UnsupportedProblemError
from placekit.model.memory import MemoryBlocks
from placekit.model.platform import DirectLink
from placekit.objectives.evaluate import evaluate
from placekit.solve.lifting.relaxed import why_not
from placekit.solve.registry import get_method
from placekit.solve.result import OPTIMALITY_TOLERANCE, Status
from placekit.solve.solve import solve
from placekit.solvers.chain.costs import chain_of
from placekit.solvers.chain.method import Chain
from placekit.solvers.sequence.auto import plan
from placekit.verification.exact import ExactProblem
from placekit.verification.runs import runs_below


def small_task(rng: np.random.Generator, objective: Any) -> LanguageTask:
    """Return a model of two blocks on three unequal devices, a CPU among them."""
    model = Decoder(
        2, 64, int(rng.integers(64, 512)), int(rng.integers(100, 4000)), heads=4, tied=bool(rng.integers(2))
    )
    sizes = {kind: float(rng.uniform(0.15, 0.9)) * model.num_parameters * 2 for kind in ("l4", "t4")}
    kinds = ("cpu-8core-f32", "l4", "t4")
    devices = tuple(pk.Device(f"{kind}.0", kind, sizes.get(kind), is_host=kind.startswith("cpu")) for kind in kinds)
    links = {"l4": pk.Link(1e-6, float(rng.uniform(1e8, 1e10))), "t4": pk.Link(1e-6, float(rng.uniform(1e8, 1e10)))}
    platform = pk.Platform(devices, links)
    return decoder_task(
        model, Serving(32, 8), platform, lambda graph: pk.Analytic().cost_table(graph, platform),
        TaskForm(objective, Contiguity.ACYCLIC),
    )  # fmt: skip


@pytest.mark.parametrize("objective", [pk.SerialLatency(), pk.Throughput()])
@pytest.mark.parametrize("seed", range(4))
def test_it_equals_all_placements(seed: int, objective: Any) -> None:
    """Tied weights count once per device, pins hold, and what cannot fit is proven not to."""
    rng = np.random.default_rng(seed)
    problem = small_task(rng, objective).problem
    if seed % 2:
        problem = problem.pin({"model.embed_tokens": problem.platform.device_names[0]})
    result = solve(problem, Chain())
    chain = chain_of(problem)
    assert chain is not None
    found = []
    for devices in itertools.product(range(3), repeat=chain.num_blocks):
        runs = [device for device, _ in itertools.groupby(devices)]
        if len(set(runs)) == len(runs):
            judged = evaluate(problem, pk.Placement.of(problem, np.array(devices)[chain.block_of_op]))
            found += [judged.objective] if judged.is_feasible and judged.objective is not None else []
    if found:
        assert result.status is Status.OPTIMAL
        assert result.objective == pytest.approx(min(found), rel=1e-12)
    else:
        assert result.status is Status.INFEASIBLE


def test_equal_devices_may_be_teams() -> None:
    """The method says the same as `dp`."""
    platform = pk.Platform.of(l4=3, t4=2)
    task = decoder_task(
        Decoder(4, 256, 1024, 1000, heads=4), Serving(64, 16, sequences=8, batch=2), platform,
        lambda graph: pk.Analytic().cost_table(graph, platform), form=TaskForm(objective=pk.Throughput(teams="equal")),
    )  # fmt: skip
    mine, theirs = solve(task.problem, Chain()), solve(task.problem, "dp")
    assert mine.status is Status.OPTIMAL
    assert mine.objective == pytest.approx(theirs.objective, rel=1e-9)


def random_chain(seed: int) -> pk.Problem:
    """Return 3 to 7 classes, each of which feeds the next, on three or four devices: what the method knows, at random.

    Tensors skip classes, two ops may share one, times tie or are 0, ops lack kinds, and weights are used by several.
    """
    rng = np.random.default_rng(seed)
    num_ops, count = int(rng.integers(3, 8)), int(rng.integers(3, 5))
    names = [f"op{i}" for i in range(num_ops)]
    edges = list(itertools.pairwise(names))
    edges += [(names[a], names[b]) for a, b in itertools.combinations(range(num_ops), 2) if rng.random() < 0.2]
    graph = pk.OpGraph.from_edges(names, sorted(set(edges)), name=f"chain {seed}")
    kinds = tuple("abc"[: int(rng.integers(1, 4))])
    shape = (num_ops, len(kinds))
    time_s: Any = 0.1 * rng.integers(0, 5, shape) if rng.random() < 0.5 else 10.0 ** rng.uniform(-4, 4, shape)
    costs = pk.CostTable(
        kinds,
        time_s,
        rng.uniform(0, float(time_s.mean()), (graph.num_tensors, len(kinds))),
        rng.integers(0, 4, num_ops).astype(float),
        supported=rng.random(shape) < 0.95,
    )
    if rng.random() < 0.4:
        blocks = [(3.0, True, tuple(rng.choice(num_ops, 2, replace=False).tolist())) for _ in range(2)]
        costs = costs.replace(blocks=MemoryBlocks.of(blocks))
    chosen = [kinds[at % len(kinds)] for at in range(count)]
    limits = {kind: float(rng.integers(4, 12)) if rng.random() < 0.6 else None for kind in kinds}
    platform = pk.Platform(tuple(pk.Device(f"{kind}.{at}", kind, limits[kind]) for at, kind in enumerate(chosen)))
    objective = (pk.SerialLatency(), pk.Throughput(), pk.Throughput(teams="equal"))[seed % 3]
    contiguity = pk.Contiguity.CONVEX if rng.random() < 0.3 else pk.Contiguity.ACYCLIC
    problem = pk.Problem(graph, platform, costs, objective, contiguity)
    if rng.random() < 0.3:
        problem = problem.replace(colocation=np.array([0, 0, *range(2, num_ops)]))
    if objective.team_rule == "off" and rng.random() < 0.4:
        problem = problem.pin({names[int(rng.integers(num_ops))]: platform.device_names[int(rng.integers(count))]})
    return problem


def random_linked_chain(seed: int) -> pk.Problem:
    """Return a chain on devices of two nodes, with direct links between some kinds, or between the nodes."""
    rng = np.random.default_rng(seed)
    num_ops = int(rng.integers(3, 7))
    names = [f"op{i}" for i in range(num_ops)]
    graph = pk.OpGraph.from_edges(names, list(itertools.pairwise(names)), name=f"linked chain {seed}")
    chosen = rng.choice(["a", "b"], 4).tolist()
    links = [
        DirectLink(0.0, 1.0, kinds, between_nodes=between)
        for kinds in (("a", "a"), ("a", "b"), None)
        for between in (False, True)
        if (kinds is None and between) or (rng.random() < 0.4 and {*(kinds or ())} <= {*chosen})
    ]
    limits = {kind: float(rng.integers(4, 12)) if rng.random() < 0.6 else None for kind in "ab"}
    devices = [pk.Device(f"{kind}.{at}", kind, limits[kind], node=f"n{at % 2}")
               for at, kind in enumerate(chosen)]  # fmt: skip
    platform = pk.Platform(tuple(devices), direct_links=tuple(links))
    costs = pk.CostTable(
        ("a", "b"),
        rng.integers(0, 5, (num_ops, 2)) / 4.0,
        rng.integers(0, 5, (graph.num_tensors, 2)) / 4.0,
        rng.integers(0, 4, num_ops).astype(float),
        direct_links=tuple(link.name for link in links),
        direct_time_s=rng.integers(0, 5, (graph.num_tensors, len(links))) / 4.0,
    )
    objective = (pk.SerialLatency(), pk.Throughput())[seed % 2]
    problem = pk.Problem(graph, platform, costs.for_kinds(platform.kinds), objective, pk.Contiguity.ACYCLIC)
    if rng.random() < 0.3:
        problem = problem.pin({names[int(rng.integers(num_ops))]: platform.device_names[int(rng.integers(4))]})
    return problem


@examples(150)
@given(st.integers(0, 2**32))
def test_over_direct_links_answers_are_those_of_all_placements(seed: int) -> None:
    """What a stage pays hangs on the devices of its neighbours; `verify` searches all runs again, with the links."""
    problem = random_linked_chain(seed)
    assert Chain().supports(problem) is None
    mine, all_of_them = solve(problem, "chain"), solve(problem, "enumerate")
    assert mine.status is all_of_them.status
    if mine.objective is None:
        return
    assert mine.objective == pytest.approx(all_of_them.objective, rel=1e-9)
    exact = ExactProblem.of(problem)
    assert pk.verify(mine, problem)["bound"].outcome == "checked"
    assert runs_below(exact, Fraction(mine.objective) * (1 + Fraction(1, 10**9)) + Fraction(1, 10**12))
    if mine.objective:
        assert runs_below(exact, Fraction(mine.objective) * (1 - Fraction(1, 10**9))) is False


@examples(150)
@given(st.integers(0, 2**32))
def test_answers_and_bounds_are_those_of_the_other_exact_methods(seed: int) -> None:
    """All placements, `dp`, `mincut` and `auto` agree with it, and every proof of it is checked from scratch."""
    problem = random_chain(seed)
    method = Chain()
    assert method.supports(problem) is None
    assert plan(problem)[0].method == "chain"
    mine = solve(problem, "chain")
    assert mine.status in (Status.OPTIMAL, Status.INFEASIBLE)
    others = ["enumerate", "auto"] if problem.objective.team_rule == "off" else ["auto"]
    others.append("mincut" if isinstance(problem.objective, pk.SerialLatency) else "dp")
    for other in others:
        if why_not(get_method(other), problem) is not None:
            continue
        theirs = solve(problem, other)
        if theirs.status in (Status.OPTIMAL, Status.INFEASIBLE):
            assert theirs.status is mine.status, other
            assert theirs.objective == pytest.approx(mine.objective, rel=2e-6), other
        if mine.objective is not None and theirs.lower_bound is not None:
            assert theirs.lower_bound <= mine.objective * (1 + 1e-9), other
    subject = "bound" if mine.status is Status.OPTIMAL else "infeasible"
    assert pk.verify(mine, problem)[subject].outcome == "checked"
    if mine.objective:
        above = Fraction(mine.objective) * (1 + Fraction(1, 10**9))
        assert runs_below(ExactProblem.of(problem), above)  # a bound so high would be refused


@pytest.mark.parametrize("objective", [pk.SerialLatency(), pk.Throughput()])
def test_a_proof_is_exact_to_rounding_where_times_differ_by_far(objective: pk.Objective) -> None:
    """Slow ops before fast ones: a stage of the fast ones is no difference of two large sums."""
    rng = np.random.default_rng(5)
    names = [f"op{i}" for i in range(30)]
    graph = pk.OpGraph.from_edges(names, list(itertools.pairwise(names)))
    time_s = rng.uniform(1.0, 2.0, (30, 2)) * np.where(np.arange(30) < 10, [1e9], [1e-6])[:, None].repeat(2, axis=1)
    time_s[:10, 1] *= 1e-15
    costs = pk.CostTable(("a", "b"), time_s, np.full((29, 2), 1e-9), np.zeros(30))
    result = solve(pk.Problem(graph, pk.Platform.of(a=2, b=1), costs, objective, pk.Contiguity.ACYCLIC), "auto")
    assert result.status is Status.OPTIMAL
    assert result.tolerance == OPTIMALITY_TOLERANCE
    assert result.lower_bound is not None
    assert result.objective == pytest.approx(result.lower_bound, rel=1e-13)
    assert [line["method"] for line in result.info["stages"]] == ["chain"]


def test_auto_keeps_its_stages_where_classes_are_no_chain(diamond: pk.Problem) -> None:
    """Two branches, a cost of subgraphs, transfers beside work, or no contiguity: nothing that the method can prove."""
    chain = random_chain(0)
    for problem in (
        diamond.replace(contiguity="acyclic"),
        chain.replace(objective=pk.SerialLatency(0.1)),
        chain.replace(objective=pk.Throughput(overlap=True)),
        chain.replace(objective=pk.Throughput(teams="any")),
        chain.replace(contiguity="none"),
    ):
        assert "chain" not in [stage.method for stage in plan(problem)], problem


def test_a_kind_that_no_device_has_cannot_be_the_first() -> None:
    """The message names the kinds."""
    with pytest.raises(UnsupportedProblemError, match="first_kind is 'x'; kinds are "):
        solve(random_chain(1), "chain", params={"first_kind": "x"})


@pytest.mark.parametrize("limit", [None, 40.0])
def test_of_equal_plans_one_is_even_or_on_one_device(limit: float | None) -> None:
    """Without transfers two cards and one take as long: half on each with limits, all on one without."""
    names = [f"block{i}" for i in range(32)]
    graph = pk.OpGraph.from_edges(names, itertools.pairwise(names))
    costs = pk.CostTable(("gpu",), np.ones((32, 1)), np.zeros((31, 1)), np.ones(32))
    platform = pk.Platform.of(gpu=2, memory_bytes={"gpu": limit} if limit else None)
    problem = pk.Problem(graph, platform, costs, pk.SerialLatency(), pk.Contiguity.ACYCLIC)
    result = solve(problem, "chain")
    assert result.placement is not None
    assert result.objective == 32.0
    counts = np.bincount(result.placement.device_of_op, minlength=2).tolist()
    assert sorted(counts) == ([16, 16] if limit else [0, 32])


@pytest.mark.parametrize("objective", [pk.Throughput(), pk.SerialLatency()])
def test_of_equal_plans_the_fullest_device_is_the_emptiest(objective: pk.Objective) -> None:
    """No plan of the same objective leaves more free on its fullest device, or else moves less."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        names = [f"block{i}" for i in range(6)]
        graph = pk.OpGraph.from_edges(names, itertools.pairwise(names))
        moves = rng.integers(0, 2, (5, 2)).astype(float)
        times, held = (rng.integers(1, 4, shape).astype(float) for shape in ((6, 2), 6))
        costs = pk.CostTable(("cpu", "gpu"), times, moves, held)
        limits = {"cpu": float(rng.integers(8, 14)), "gpu": float(rng.integers(6, 10))}
        platform = pk.Platform.of(cpu=1, gpu=2, memory_bytes=limits)
        problem = pk.Problem(graph, platform, costs, objective, pk.Contiguity.ACYCLIC)
        result = solve(problem, "chain")
        if result.placement is None:
            continue

        def wish(placement: pk.Placement, problem: pk.Problem = problem) -> tuple[float, float] | None:
            judged = evaluate(problem, placement)
            if not judged.is_feasible or judged.objective != result.objective:  # noqa: B023  # called at once
                return None
            full = max(load.memory_bytes / (load.memory_limit_bytes or np.inf) for load in judged.device_loads)
            return full, sum(load.transfer_s for load in judged.device_loads)

        every = (wish(pk.Placement.of(problem, devices)) for devices in itertools.product(range(3), repeat=6))
        assert wish(result.placement) == min(each for each in every if each is not None)
