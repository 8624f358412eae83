"""Lower bounds: never above the optimum, equal to hand-made values, as strong as promised on public workloads."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import classes, is_feasible, objective
from strategies import examples, objectives, problems

import placekit as pk
from placekit.benchmarks.generators.families import FAMILIES, generate
from placekit.model.errors import InvalidProblemError
from placekit.solve.stop import wanted_until
from placekit.solvers.backends.arrays import weak_bound
from placekit.solvers.backends.program import Program, round_down
from placekit.solvers.generic.bounds.work_and_path import shared_work
from placekit.solvers.throughput.bounds import largest_op, lower_bounds
from placekit.solvers.throughput.bounds.bottleneck import bottleneck
from placekit.solvers.throughput.bounds.forced_cuts import memory_forced_cuts
from placekit.solvers.throughput.bounds.forced_work import memory_forced_work
from placekit.solvers.throughput.bounds.minimum_cut import minimum_cut
from placekit.solvers.throughput.bounds.stages import contiguous_stages
from placekit.solvers.throughput.bounds.unrelated_machines import certified_machines


def unrelated_machines(problem: pk.Problem) -> float | None:
    """Return the bound by unrelated machines, without its certificate."""
    found = certified_machines(problem)
    return None if found is None else found[0]


def optima(problem: pk.Problem) -> dict[pk.Contiguity, float]:
    """Return the optimum under every contiguity that has a feasible placement, by trying all placements."""
    groups = classes(problem)
    num_ops, num_devices = problem.graph.num_ops, problem.platform.num_devices
    kind = problem.platform.kind_of_device
    scored = []
    for choice in itertools.product(range(num_devices), repeat=len(groups)):
        device = [0] * num_ops
        for group, d in zip(groups, choice, strict=True):
            for op in group:
                device[op] = d
        if problem.costs.supported[np.arange(num_ops), kind[device]].all():
            scored.append((objective(problem, tuple(device)), tuple(device)))
    scored.sort()
    best: dict[pk.Contiguity, float] = {}
    for contiguity in pk.Contiguity:
        under = problem.replace(contiguity=contiguity)
        value = next((value for value, device in scored if is_feasible(under, device)), None)
        if value is not None:
            best[contiguity] = value
    return best


def small_problems() -> st.SearchStrategy[pk.Problem]:
    """Throughput problems with memory, pins, colours, backward ops, all variants."""
    throughput = objectives().filter(lambda variant: isinstance(variant, pk.Throughput))
    return problems(max_ops=5, max_devices=3, objective=throughput)


@examples(300)
@given(small_problems())
def test_no_bound_exceeds_the_optimum(problem: pk.Problem) -> None:
    """Every bound, every contiguity, with and without the optimum as the upper bound, against brute force."""
    for contiguity, best in optima(problem).items():
        under = problem.replace(contiguity=contiguity)
        bounds: dict[str, float | None] = {
            "largest op": largest_op(under)[0],
            "contiguous stages": contiguous_stages(under),
            "unrelated machines": unrelated_machines(under),
            "memory-forced work": memory_forced_work(under),
            "memory-forced cuts": memory_forced_cuts(under),
            "bottleneck": bottleneck(under)[0],
            "bottleneck below the optimum": bottleneck(under, upper_bound_s=best)[0],
            "bottleneck, two in detail": bottleneck(under, upper_bound_s=best * 1.5, num_detailed=2)[0],
        }
        for name, bound in bounds.items():
            assert bound is None or bound <= best * (1 + 1e-12), (name, contiguity, bound, best)


@examples(300)
@given(st.data())
def test_minimum_cut_is_the_smallest_of_all_cuts(data: st.DataObject) -> None:
    """The kernel against all sets of nodes, on random hypergraphs with equal and zero weights."""
    num_nodes = data.draw(st.integers(2, 7))
    node = st.integers(0, num_nodes - 1)
    nets = data.draw(st.lists(st.lists(node, min_size=2, max_size=4, unique=True), max_size=8))
    weight = np.array([data.draw(st.integers(0, 5)) for _ in nets], dtype=np.float64)
    offsets = np.cumsum([0, *(len(net) for net in nets)], dtype=np.int64)
    pins = np.array([pin for net in nets for pin in net], dtype=np.int64)
    least = min(
        sum(w for net, w in zip(nets, weight, strict=True) if 0 < sum(inside >> pin & 1 for pin in net) < len(net))
        for inside in range(1, 2**num_nodes - 1)
    )
    assert minimum_cut(num_nodes, offsets, pins, weight) == least
    with pytest.MonkeyPatch.context() as patch:  # a look at the clock after every merge changes nothing
        patch.setattr("placekit.solvers.throughput.bounds.minimum_cut.WORK_BETWEEN_LOOKS", 0)
        assert minimum_cut(num_nodes, offsets, pins, weight) == least
    assert minimum_cut(num_nodes, offsets, pins, weight, lambda: True) is None


def fork(**limits: float) -> pk.Problem:
    """Return a chain of four equal ops, 1 s on an accelerator, 4 s on the host, 1 byte; a transfer costs 0.5 s."""
    graph = pk.OpGraph.from_edges(list("abcd"), [("a", "b"), ("b", "c"), ("c", "d")])
    costs = pk.CostTable(("acc", "cpu"), np.array([[1.0, 4.0]] * 4), np.array([[0.5, 0.0]] * 3), np.ones(4))
    platform = pk.Platform.of(acc=2, cpu=1, host="cpu", memory_bytes=limits)
    return pk.Problem(graph, platform, costs, contiguity=pk.Contiguity.NONE)


def test_unrelated_machines_divides_work_ideally() -> None:
    """4 ops on two accelerators and a host four times slower: 4 / (1 + 1 + 1/4) s; less memory pushes work out."""
    assert unrelated_machines(fork()) == pytest.approx(4 / 2.25)
    # one byte per accelerator: two ops must go to the host, 8 s
    assert unrelated_machines(fork(acc=1.0)) == pytest.approx(8.0)


def test_memory_forces_whole_ops() -> None:
    """1.5 bytes per accelerator hold three ops as a fluid, and the knapsack knows that the fourth is whole: 4 s."""
    assert memory_forced_work(fork()) is None
    assert memory_forced_work(fork(acc=1.5)) == pytest.approx(4.0, rel=1e-5)
    graded = fork(acc=1.5).replace(costs=fork().costs.replace(op_memory_bytes=[1.0, 1.0, 1.0, 0.2]))
    # the last op is small: 0.2 bytes of 3.2 are too much, as a fluid 0.2 of an op; whole, at least one op: 4 s
    linear, whole = unrelated_machines(graded), memory_forced_work(graded)
    assert linear is not None
    assert whole is not None
    assert linear < 2.0
    assert whole == pytest.approx(4.0, rel=1e-5)


def test_memory_forces_cuts() -> None:
    """Two accelerators alone, two ops each: the smallest cut, 0.5 s, is paid by both: 2.5 s."""
    problem = fork(acc=2.0)
    alone = problem.pin({}).replace(
        platform=pk.Platform.of(acc=2, memory_bytes={"acc": 2.0}), costs=problem.costs.for_kinds(("acc",))
    )
    assert memory_forced_cuts(alone) == pytest.approx(2.5, rel=1e-5)
    assert brute(alone) == pytest.approx(2.5)
    # an accelerator and the host, or one device that holds everything and pays no cut: 4 s
    assert memory_forced_cuts(fork()) == pytest.approx(4.5 / 2.25, rel=1e-5)


def brute(problem: pk.Problem) -> float:
    """Return the optimum under the problem's own contiguity."""
    return optima(problem)[problem.contiguity]


def test_bottleneck_pays_for_its_cut() -> None:
    """A chain of eight equal ops on four accelerators: two each, and a device in the middle is cut out twice."""
    names = [f"o{i}" for i in range(8)]
    graph = pk.OpGraph.from_edges(names, list(itertools.pairwise(names)))
    costs = pk.CostTable(("acc",), np.ones((8, 1)), np.full((7, 1), 0.5), np.zeros(8))
    problem = pk.Problem(graph, pk.Platform.of(acc=4), costs)
    # alone, the device with the most work could sit at an end of the chain: 2 s and one cut; the optimum is 3 s
    assert unrelated_machines(problem) == pytest.approx(2.0)
    assert bottleneck(problem)[0] == pytest.approx(2.5, rel=1e-4)
    # a known placement of 3 s does not make it weaker; all devices in detail make it exact
    known = bottleneck(problem, upper_bound_s=3.0)[0]
    assert known is not None
    assert known >= 2.5 * (1 - 1e-4)
    free = problem.replace(contiguity="none")
    assert bottleneck(free, upper_bound_s=3.0, num_detailed=4)[0] == pytest.approx(3.0, rel=1e-4)


def test_bounds_come_with_names_best_first(diamond: pk.Problem) -> None:
    """The list is sorted, every bound is below the optimum of 4 s, and the serial latency has bounds of its own."""
    seen: list[str] = []
    bounds = lower_bounds(diamond, upper_bound_s=4.0, on_bound=lambda _, name, __: seen.append(name))
    assert [value for value, _ in bounds] == sorted((value for value, _ in bounds), reverse=True)
    assert {"largest op", "unrelated machines", "bottleneck device"} <= {name for _, name in bounds}
    assert sorted(seen) == sorted(name for _, name in bounds)
    assert all(value <= 4.0 for value, _ in bounds)
    serial = pk.solve(diamond.replace(objective=pk.SerialLatency()), method="bound")
    assert serial.bound_name == "fastest device for every op"
    assert not set(serial.info["lower_bounds_s"]) & {name for _, name in bounds}
    quick = {name: value for value, name in lower_bounds(diamond, should_stop=lambda: True)}
    assert set(quick) == {"largest op", "contiguous stages"}
    assert quick["largest op"] == pytest.approx(1.0)


def test_bound_method_reports_every_bound(diamond: pk.Problem) -> None:
    """Placement, best bound with its name, and all of them in `info`; no parameters."""
    result = pk.solve(diamond.replace(contiguity="none"), method="bound")
    assert result.lower_bound is not None
    assert result.lower_bound == max(result.info["lower_bounds_s"].values())
    assert result.bound_name in result.info["lower_bounds_s"]
    assert result.objective == 4.0
    with pytest.raises(InvalidProblemError, match="method 'bound' has no parameters"):
        pk.solve(diamond, method="bound:fast")


def test_infeasible_programs_prove_nothing() -> None:
    """No device for an op: no bound, and no error."""
    supported = np.array([[False, False], [True, True], [True, True], [True, True]])
    problem = fork().replace(costs=fork().costs.replace(supported=supported))
    assert unrelated_machines(problem) is None
    assert memory_forced_work(problem) is None
    assert memory_forced_cuts(problem) is None
    assert bottleneck(problem)[0] is None
    [(value, name)] = lower_bounds(problem)
    assert value == pytest.approx(1.0)
    assert name == "largest op"


def test_bounds_are_rounded_down() -> None:
    """One step towards zero after scaling; zero says nothing; HiGHS's bound loses its tolerances."""
    assert round_down(0.1, 3.0) == np.nextafter(0.1 * 3.0, 0)
    assert round_down(0.0, 1.0) is None
    program = Program()
    x = program.column(is_integer=True, cost=1.0)
    program.row({x: 2.0}, low=1.0)
    bound = program.proven_s(program.solve(10.0), 2.0)
    assert bound is not None
    assert 2.0 * (1 - 1e-5) < bound < 2.0
    program.row({x: 1.0}, low=3.0)
    assert program.solve(10.0).status == "infeasible"


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 6))
@examples(150)
def test_rows_may_join_a_program_at_any_time(seed: int, num_columns: int, num_rows: int) -> None:
    """Random boxes with a point inside: rows between two solves, or before the only one, give the same optimum.

    No multipliers of the rows say more than it, and HiGHS's say that.
    """
    rng = np.random.default_rng(seed)
    low = rng.integers(-3, 3, num_columns).astype(float)
    high = low + rng.integers(0, 5, num_columns)
    cost, inside = rng.integers(-4, 5, num_columns).astype(float), low + rng.random(num_columns) * (high - low)
    growing, whole = Program(), Program()
    for program in (growing, whole):
        for column in zip(low, high, cost, strict=True):
            program.column(column[0], column[1], cost=column[2])
    for _ in range(num_rows):
        factors = rng.integers(-3, 4, num_columns).astype(float)
        at = float(factors @ inside)
        sides = {"low": at - rng.random()} if rng.random() < 0.5 else {"high": at + rng.random()}
        for program in (growing, whole):
            program.row(dict(enumerate(factors.tolist())), **sides)
        assert growing.solve(10.0).status == "optimal"
    outcome, again = whole.solve(10.0), growing.solve(10.0)
    assert outcome.bound is not None
    assert outcome.row_dual is not None
    assert again.bound == pytest.approx(outcome.bound, abs=1e-6)
    arrays, box = whole.arrays(), (low, high.astype(np.float64))
    assert weak_bound(arrays, outcome.row_dual, *box) == pytest.approx(outcome.bound, abs=1e-6)
    for multipliers in (outcome.row_dual, *rng.normal(size=(5, num_rows))):
        assert weak_bound(arrays, multipliers, *box) <= outcome.bound + 1e-9


def test_interrupted_program_keeps_what_it_proved(workloads: Path) -> None:
    """Told to stop at once, a large program returns soon and its bound, if any, is valid."""
    problem = pk.read_workload(workloads / "throughput" / "operator_bert_l-12_inference.json")
    bound = bottleneck(problem, time_limit_s=60, upper_bound_s=0.148, should_stop=lambda: True)[0]
    assert bound is None
    bound = bottleneck(problem, time_limit_s=1, upper_bound_s=0.148)[0]
    assert bound is None or bound <= 0.147477984449


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "contiguity", "optimum_ms", "num_detailed", "at_least"),
    [
        ("operator_bert_l-3_inference", "none", 21.9083761057, 2, 0.999),
        ("layer_bert24_training", "acyclic", 41.7458125, 1, 0.98),
        ("layer_bert24_inference", "acyclic", 17.78990625, 1, 0.92),
    ],
)
def test_bottleneck_is_strong_on_public_workloads(
    workloads: Path, name: str, contiguity: str, optimum_ms: float, num_detailed: int, at_least: float
) -> None:
    """Close to the known optimum, never above it, in seconds."""
    problem = pk.read_workload(workloads / "throughput" / f"{name}.json").replace(contiguity=contiguity)
    optimum_s = optimum_ms / 1e3
    bound = bottleneck(problem, time_limit_s=60, upper_bound_s=optimum_s * (1 + 1e-9), num_detailed=num_detailed)[0]
    assert bound is not None
    assert at_least * optimum_s <= bound <= optimum_s * (1 + 1e-9)


@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize("seed", range(3))
def test_contiguous_stages_stay_below_the_optimum(family: str, seed: int) -> None:
    """Graphs of 24 to 32 ops on two to four unequal devices have an optimum that the DP over ideals proves."""
    problem = generate(family, 24 + 4 * seed, seed=seed, num_devices=2 + seed, equal=False)
    best = pk.solve(problem, method="dp")
    assert best.objective is not None
    bound_s = contiguous_stages(problem)
    assert bound_s is not None
    assert 0 < bound_s <= best.objective * (1 + 1e-12)


@pytest.mark.parametrize("family", ["layered", "inception", "transformer"])
def test_contiguous_stages_are_nearly_as_long_as_the_best_chain_of_long_graphs(family: str) -> None:
    """Shared work is a fifth below, since it lets each op be on the device that suits it best."""
    problem = generate(family, 3_000, seed=1, num_devices=4, equal=False)
    chain = pk.solve(problem, method="dpl")
    bound_s, work = contiguous_stages(problem), shared_work(problem)
    assert chain.objective is not None
    assert bound_s is not None
    assert work is not None
    assert work[0] < 0.85 * chain.objective
    assert 0.96 * chain.objective < bound_s <= chain.objective


def test_contiguous_stages_know_acyclic_placements_of_single_devices_only() -> None:
    """Nothing is said of other contiguities and of teams, where parts of one device need not be in a row."""
    problem = generate("layered", 100, seed=1, num_devices=3, equal=False)
    assert contiguous_stages(problem) is not None
    for contiguity in (pk.Contiguity.NONE, pk.Contiguity.CONVEX):
        assert contiguous_stages(problem.replace(contiguity=contiguity)) is None
    assert contiguous_stages(problem.replace(objective=pk.Throughput(teams="any"))) is None
    with wanted_until(lambda: True):
        assert contiguous_stages(problem) is None
