"""Memory that ops share: lives of tensors, weights read twice, queues; judges and methods on limits that bind."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import brute_force, held_bytes, is_feasible, team_brute_force
from strategies import blocked, examples, problems, teamed_problems

import placekit as pk
from placekit.io.files.problem_json import problem_from_dict, problem_to_dict
from placekit.model.errors import InvalidProblemError
from placekit.model.memory import MemoryBlocks, positions
from placekit.solve import registry
from placekit.solve.lifting.relaxed import why_not
from placekit.verification.verify import verify


def chain(slots: int = 0, limit: float | None = None) -> pk.Problem:
    """Four ops in a row; a makes 8 bytes that b and d read, b and c make 2; b and c read one weight of 5 bytes."""
    graph = pk.OpGraph.from_edges(
        ["a", "b", "c", "d"], [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")], output_bytes=[8, 2, 2, 0]
    )
    ops = [[graph.tensor_producer[t], *graph.consumers_of(t)] for t in range(3)] + [[1, 2]]
    blocks = MemoryBlocks(
        np.array([*graph.tensor_bytes, 5.0]),
        np.array([False, False, False, True]),
        np.cumsum([0, *map(len, ops)]),
        np.concatenate(ops),
        slots,
    )
    costs = pk.CostTable(("acc",), np.ones((4, 1)), np.ones((3, 1)), np.array([1.0, 1, 1, 1]), blocks=blocks)
    memory = {} if limit is None else {"acc": limit}
    return pk.Problem(graph, pk.Platform.of(acc=2, memory_bytes=memory), costs)


@pytest.mark.parametrize(
    ("device", "weights", "activations", "queues"),
    [
        ([0, 0, 0, 0], (9, 0), (12, 0), (0, 0)),  # at c: the 8 bytes wait for d, what c reads, what it writes
        ([0, 0, 1, 1], (7, 7), (10, 10), (10, 10)),  # the weight on both; the 8 bytes of a are there until d read them
        ([0, 1, 1, 0], (2, 7), (10, 10), (10, 10)),  # what comes from elsewhere lives from its first reader on
    ],
)
def test_bytes_are_told_apart(
    device: list[int], weights: tuple[int, ...], activations: tuple[int, ...], queues: tuple[int, ...]
) -> None:
    """Weights count once per device, activations while they live, every tensor in transit by its slots."""
    problem = chain(slots=1)
    use = problem.stage_memory.use(np.array(device), 2)
    assert [tuple(part.tolist()) for part in use] == [weights, activations, queues]
    for load, total in zip(pk.evaluate(problem, pk.Placement.of(problem, device)).device_loads, use.total, strict=True):
        assert (
            load.memory_bytes
            == total
            == sum(part or 0.0 for part in (load.weight_bytes, load.activation_bytes, load.queue_bytes))
        )


def test_queues_belong_to_pipelines() -> None:
    """An execution model in which one sample is on its way has no queues."""
    problem = chain(slots=3).replace(objective=pk.Makespan())
    assert problem.stage_memory.use(np.array([0, 0, 1, 1]), 2).queues.tolist() == [0, 0]


@examples(150)
@given(blocked(problems()), st.data())
def test_more_ops_need_no_less(problem: pk.Problem, data: st.DataObject) -> None:
    """What a part needs is what the plain twin says, and without its queues it grows with every op."""
    num_ops = problem.graph.num_ops
    inside = np.array(data.draw(st.lists(st.booleans(), min_size=num_ops, max_size=num_ops)))
    more = inside | np.array(data.draw(st.lists(st.booleans(), min_size=num_ops, max_size=num_ops)))
    memory = problem.stage_memory
    assert memory.of(inside) == pytest.approx(held_bytes(problem, set(np.flatnonzero(inside).tolist())))
    assert memory.without_queues(inside) <= memory.without_queues(more) + 1e-9
    assert memory.of(more) <= memory.most_bytes + 1e-9
    assert sorted(positions(problem.graph).tolist()) == list(range(num_ops))


@examples(150)
@given(blocked(problems()), st.data())
def test_judges_agree(problem: pk.Problem, data: st.DataObject) -> None:
    """The judge, the second judge and the plain twin say the same of a placement; so does the file."""
    devices = st.integers(0, problem.platform.num_devices - 1)
    device = data.draw(st.lists(devices, min_size=problem.graph.num_ops, max_size=problem.graph.num_ops))
    assert pk.evaluate(problem, pk.Placement.of(problem, device)).is_feasible == is_feasible(problem, tuple(device))
    copy = problem_from_dict(problem_to_dict(problem))
    assert copy == problem
    assert copy.content_hash == problem.content_hash
    assert problem.replace(costs=problem.costs.replace(blocks=None)).content_hash != problem.content_hash


@pytest.mark.parametrize("method", ["ilp", "cpsat", "dp"])
def test_exact_methods_match_brute_force(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same optimum or the same verdict on problems whose limits bind, by the method alone."""
    monkeypatch.setattr(registry, "_COMPLETE", ())  # else what it leaves open is enumerated

    @examples(60)
    @given(blocked(problems(max_ops=6, max_devices=3, with_memory=False)))
    def matches(problem: pk.Problem) -> None:
        if method == "dp":
            problem = problem.replace(contiguity="acyclic")
        best, result = brute_force(problem), None
        if why_not(registry.get_method(method), problem) is None:
            result = pk.solve(problem, method)
        if result is None:
            return
        if best is None:
            assert result.status is pk.Status.INFEASIBLE
            return
        assert result.lower_bound is not None
        assert result.objective is not None
        assert result.lower_bound <= best * (1 + 1e-9) + 1e-12
        if not getattr(problem.objective, "subgraph_cost_s", 0):  # which programs count too low
            assert result.objective == pytest.approx(best, rel=2e-6, abs=1e-12)
            assert result.status is pk.Status.OPTIMAL

    matches()


@examples(30)
@given(blocked(problems(max_ops=6, max_devices=3, with_memory=False)), st.integers(0, 4))
def test_no_method_claims_too_much(problem: pk.Problem, number: int) -> None:
    """A bound never exceeds the optimum, what is called infeasible is, and the verifier finds nothing wrong."""
    method = ("auto", "greedy", "local-search", "mincut", "bound")[number]
    if why_not(registry.get_method(method), problem) is not None:
        return
    best, result = brute_force(problem), pk.solve(problem, method, stop=pk.MaxIterations(300))
    assert result.lower_bound is None or best is None or result.lower_bound <= best * (1 + 1e-9) + 1e-12
    assert best is None or result.status is not pk.Status.INFEASIBLE
    assert result.objective is None or (best is not None and result.objective >= best * (1 - 1e-9))
    if result.placement is not None or result.status is pk.Status.INFEASIBLE:
        assert verify(result, problem).is_consistent
    if method == "auto":
        assert (result.status is pk.Status.INFEASIBLE) == (best is None)


@examples(30)
@given(blocked(teamed_problems(max_ops=5, max_devices=3)))
def test_teams_hold_shared_memory_each(problem: pk.Problem) -> None:
    """Every member of a team needs all of it; the optimum is that of brute force."""
    best, result = team_brute_force(problem), pk.solve(problem)
    if best is None:
        assert result.status is pk.Status.INFEASIBLE
    else:
        assert result.objective == pytest.approx(best, rel=2e-6, abs=1e-12)


@examples(30)
@given(
    blocked(problems(max_ops=5, max_devices=3, with_backward=False, contiguity=st.just(pk.Contiguity.NONE))),
    st.sampled_from([pk.Makespan(), pk.OffloadLatency(), pk.OffloadLatency(calls_per_device=2)]),
)
def test_execution_models_with_a_clock(problem: pk.Problem, objective: pk.Makespan | pk.OffloadLatency) -> None:
    """`auto` ends with an answer that fits or with the proof that nothing does, and the verifier agrees."""
    problem = problem.replace(objective=objective)
    result = pk.solve(problem, stop=pk.MaxRuntime(10))
    assert result.status in (pk.Status.OPTIMAL, pk.Status.INFEASIBLE)
    assert verify(result, problem).is_consistent


def test_relaxed_methods_answer_within_the_limit() -> None:
    """A method that knows nothing of blocks still finds what fits: nothing but b and c together, for their weight."""
    problem = chain(limit=19)
    assert not pk.evaluate(problem, pk.Placement.of(problem, [0] * 4)).is_feasible
    for method in ("greedy", "local-search", "random"):
        result = pk.solve(problem, method)
        assert result.placement is not None, method
        assert pk.evaluate(problem, result.placement).is_feasible


@pytest.mark.parametrize(
    ("method", "objective"),
    [("mincut", pk.SerialLatency()), ("dp", pk.OffloadLatency()), ("ilp", pk.OffloadLatency())],
)
def test_the_optimum_of_a_relaxation_is_no_proof(method: str, objective: pk.SerialLatency | pk.OffloadLatency) -> None:
    """Without blocks all ops fit one device. Only an exact method closes what is open, by looking at all placements."""
    problem = chain(limit=19).replace(objective=objective, contiguity="none")
    best, result = brute_force(problem), pk.solve(problem, method)
    assert result.objective == pytest.approx(best)
    is_exact = method != "mincut"
    assert result.status is (pk.Status.OPTIMAL if is_exact else pk.Status.FEASIBLE)
    assert (result.stop_reason is pk.StopReason.PROVED) == is_exact


def test_a_class_that_fits_nowhere_is_refused_at_once() -> None:
    """The message says how much is missing."""
    problem = chain(limit=11).colocate(["a", "b", "c", "d"])
    result = pk.solve(problem, "greedy")
    assert result.status is pk.Status.INFEASIBLE
    assert result.violations[0].constraint == "memory"
    assert result.violations[0].amount == 10
    assert verify(result, problem).is_consistent


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_bytes": [-1.0]}, "block 0 has -1.0 bytes"),
        ({"num_bytes": [np.inf]}, "block 0 has inf bytes"),
        ({"offsets": [0, 2]}, "from 0 to 2; they must run from 0 to 1"),
        ({"offsets": [0, 0], "ops": []}, "block 0 has no ops"),
        ({"ops": [-1]}, "op -1 does not exist"),
        ({"is_weight": [True, False]}, "is_weight has shape"),
        ({"queue_slots": -1}, "queue_slots is -1"),
    ],
)
def test_bad_blocks_are_refused(changes: dict[str, object], message: str) -> None:
    """One line that names the value."""
    values: dict[str, object] = {"num_bytes": [1.0], "is_weight": [False], "offsets": [0, 1], "ops": [0]}
    with pytest.raises(InvalidProblemError, match=message):
        MemoryBlocks(**{**values, **changes})  # type: ignore[arg-type]  # lists are converted


def test_blocks_name_ops_of_the_table() -> None:
    """A block of an op that the table does not have is refused."""
    blocks = MemoryBlocks(np.ones(1), np.zeros(1, dtype=bool), np.array([0, 1]), np.array([4]))
    with pytest.raises(InvalidProblemError, match="names op 4; ops run from 0 to 3"):
        chain().costs.replace(blocks=blocks)
