"""Direct links between devices: what they cost, bounds of methods that know none, and proofs, against brute force."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from linked_problems import check_enumeration, check_promises, near, on_two_nodes
from strategies import blocked, examples, linked, placements, problems

import placekit as pk
from placekit.io.files.costs_json import read_costs, write_costs
from placekit.io.files.problem_json import read_problem, write_problem
from placekit.model.errors import InvalidProblemError, UnsupportedProblemError
from placekit.model.problem import Problem
from placekit.solve.lifting.without_links import without_links
from placekit.solvers.generic.coarsen import contract
from placekit.solvers.generic.scoring import Scorer
from placekit.verification.exact import ExactProblem
from placekit.verification.judge import objective as second_judge

SOLVED = linked(problems(max_ops=5, max_devices=4)) | linked(blocked(problems(max_ops=5, max_devices=4)))


@examples(1000)
@given(data=st.data(), problem=linked(problems(max_ops=10, max_devices=5)))
def test_all_judges_agree_and_the_relaxation_costs_no_more(data: st.DataObject, problem: Problem) -> None:
    """The judge, its exact twin, the batch kernel and the definitions say the same; `relaxation` says no more."""
    placement = data.draw(placements(problem))
    device = placement.device_of_op
    judged = pk.evaluate(problem, placement)
    if judged.objective is None:
        return
    expected = oracle.objective(problem, tuple(device.tolist()))
    assert judged.objective == near(expected)
    assert float(second_judge(ExactProblem.of(problem), device.tolist()) or 0) == near(expected)
    batch = problem.objective.batch_score(problem)
    assert batch is not None
    assert batch(device[None])[0] == near(expected)
    relaxed = pk.evaluate(without_links(problem), pk.Placement.of(without_links(problem), device)).objective
    assert relaxed is not None
    assert relaxed <= judged.objective * (1 + 1e-12)
    exact = ExactProblem.of(problem)
    least = second_judge(exact.without_links, device.tolist())
    assert least is not None
    assert float(least) == near(relaxed)
    assert least <= (second_judge(exact, device.tolist()) or 0)


@examples(1000)
@given(problem=SOLVED)
def test_enumeration_finds_the_optimum(problem: Problem) -> None:
    """Against all placements."""
    check_enumeration(problem, oracle.brute_force(problem))


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", ["auto", "dp", "dpl", "ilp", "cpsat", "mincut", "bound", "local-search:3", "greedy", "random"]
)
def test_no_method_promises_what_is_not_there(method: str) -> None:
    """No objective is below the optimum, no bound above it; what claims to be proven is."""

    @examples(60)
    @given(problem=SOLVED)
    def check(problem: Problem) -> None:
        try:
            check_promises(problem, method, oracle.brute_force(problem))
        except UnsupportedProblemError:
            reject()

    check()


@examples(60)
@given(problem=linked(problems()))
def test_files_keep_links(tmp_path_factory: pytest.TempPathFactory, problem: Problem) -> None:
    """A problem and its costs come back equal, with the same hash; links are part of the hash."""
    path = tmp_path_factory.getbasetemp() / "linked.json"
    write_problem(problem, path)
    assert read_problem(path) == problem
    assert read_problem(path).content_hash == problem.content_hash
    write_costs(problem.costs, problem.graph, path)
    assert read_costs(path, problem.graph) == problem.costs
    if problem.has_direct_links and problem.graph.num_tensors:
        slower = problem.costs.replace(direct_time_s=problem.costs.direct_time_s + 1)
        assert problem.replace(costs=slower).content_hash != problem.content_hash


CHAIN = on_two_nodes([("a", "b"), ("b", "c"), ("c", "d")], pk.Throughput())


def test_pipelines_stay_on_a_node_as_long_as_they_can() -> None:
    """The best pipeline crosses between the nodes once; by hand: 2 s of work, 0.1 s in, 1 s out."""
    result = pk.solve(CHAIN)
    assert result.objective == near(3.1)
    assert str(result.status) == "optimal"
    nodes = ["xyxy"[d] for d in result.placement.device_of_op.tolist()]  # type: ignore[union-attr]
    assert nodes in (list("xxyy"), list("yyxx"))


def test_relaxed_answers_are_tried_with_devices_exchanged_between_nodes() -> None:
    """`dp` knows no nodes; its chain of four devices is put in an order that crosses once all the same."""
    assert pk.solve(CHAIN, method="dp").objective == near(3.1)


def test_the_relaxation_leaves_out_a_pool_of_one_node() -> None:
    """Without nodes the devices outside are like those inside: more fits, and no bound is above an answer."""
    problem = on_two_nodes([("a", "b"), ("b", "c"), ("c", "d")], pk.Throughput())
    pools = (pk.Pool("ram", 1.0, ("gpu.0", "gpu.2")),)
    platform = pk.Platform(
        tuple(device.replace(memory_bytes=1.0) for device in problem.platform.devices),
        problem.platform.links, problem.platform.direct_links, pools=pools,
    )  # fmt: skip
    problem = problem.replace(platform=platform, costs=problem.costs.replace(op_memory_bytes=np.full(4, 1.0)))
    assert without_links(problem).platform.pools == ()
    for method in ("enumerate", "auto", "dp"):
        result = pk.solve(problem, method, stop=pk.MaxRuntime(10))
        assert result.status == "infeasible", method  # three ops have room: two on y, one in the pool
    roomy = problem.replace(costs=problem.costs.replace(op_memory_bytes=np.array([1.0, 1.0, 1.0, 0.0])))
    best = pk.solve(roomy, "enumerate")
    assert best.objective is not None
    auto = pk.solve(roomy, "auto", stop=pk.MaxRuntime(10))
    assert auto.objective == near(best.objective)
    assert auto.lower_bound is not None
    assert auto.lower_bound <= best.objective * (1 + 1e-9)


def test_what_knows_no_links_is_refused_with_the_reason() -> None:
    """Offload latency, teams, a cost table without the link, and a workload file."""
    problem = CHAIN
    with pytest.raises(InvalidProblemError, match=r"'offload-latency' knows no direct links.*'any'"):
        problem.replace(objective=pk.OffloadLatency())
    with pytest.raises(InvalidProblemError, match=r"teams of devices know no direct links.*ask for teams 'off'"):
        problem.replace(objective=pk.Throughput(teams="equal"))
    with pytest.raises(InvalidProblemError, match=r"no costs for direct link 'any'; the table has none"):
        problem.replace(costs=problem.costs.for_links(()))


def test_leaves_are_not_merged_and_scores_are_the_judges() -> None:
    """A free leaf may still move a tensor to a slower link; the contraction's scorer sees links."""
    contraction = contract(CHAIN)
    assert contraction.num_classes == 4
    device = np.array([0, 1, 0, 1])
    judged = pk.evaluate(CHAIN, pk.Placement.of(CHAIN, device)).objective
    assert Scorer(contraction)(device[None])[0] == near(judged or 0)
