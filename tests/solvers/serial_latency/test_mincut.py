"""Minimum cuts: against brute force and the integer program, gadget by gadget, and at the size they are for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from limits import SOON_S, Stopwatch
from numpy.typing import NDArray
from oracle import brute_force, objective
from strategies import examples, problems

import placekit as pk
from placekit.model.contiguity import Contiguity
from placekit.model.errors import InvalidProblemError, UnsupportedProblemError
from placekit.solve.method import Run
from placekit.solvers.assignment.flat import flatten
from placekit.solvers.backends.flow import CutCost, Nets, closure
from placekit.solvers.generic.coarsen import contract
from placekit.solvers.serial_latency import mincut as mincut_method
from placekit.solvers.serial_latency.bound import fewest_subgraphs
from placekit.solvers.serial_latency.decomposition import decomposition_bounds
from placekit.solvers.serial_latency.descent import descend
from placekit.solvers.serial_latency.expansion import best_labels, expand_label, expansion_cost
from placekit.solvers.serial_latency.labels import Labels, labels_of
from placekit.solvers.serial_latency.levels import LevelModel, most_levels
from placekit.solvers.serial_latency.memory import priced_cuts
from placekit.solvers.serial_latency.mincut import MinCut, MinCutParams
from placekit.solvers.serial_latency.paths import price_paths

PLAIN = st.just(pk.SerialLatency())
COSTLY = st.builds(pk.SerialLatency, subgraph_cost_s=st.sampled_from([1e-3, 0.1, 1.0, 5.0, 200.0]))
NO_CONTIGUITY = st.just(Contiguity.NONE)


def layered(num_ops: int, width: int, *, num_kinds: int = 2, per_kind: int = 1, transfer: float = 0.5) -> pk.Problem:
    """Return layers of `width` ops that each read two of the layer before; random times and transfers."""
    rng = np.random.default_rng(0)
    readers = np.repeat(np.arange(width, num_ops), 2)
    producers = (readers // width - 1) * width + rng.integers(0, width, len(readers))
    producers, readers = np.divmod(np.unique(producers * num_ops + readers), num_ops)
    tensor_producer, starts = np.unique(producers, return_index=True)
    graph = pk.OpGraph(
        name="layered",
        op_names=tuple(f"o{i}" for i in range(num_ops)),
        op_types=("Op",) * num_ops,
        tensor_producer=tensor_producer,
        consumer_offsets=np.append(starts, len(readers)),
        consumers=readers,
        tensor_bytes=np.ones(len(starts)),
    )
    kinds = tuple("abcd"[:num_kinds])
    devices = tuple(pk.Device(f"{kind}.{i}", kind) for kind in kinds for i in range(per_kind))
    transfers = rng.random((graph.num_tensors, num_kinds)) * transfer
    costs = pk.CostTable(kinds, rng.random((num_ops, num_kinds)), transfers, np.ones(num_ops))
    return pk.Problem(graph, pk.Platform(devices), costs, pk.SerialLatency())


def with_memory(problem: pk.Problem, **limits: float) -> pk.Problem:
    """Return the problem with memory limits in bytes by kind."""
    devices = [device.replace(memory_bytes=limits.get(device.kind)) for device in problem.platform.devices]
    return problem.replace(platform=problem.platform.replace(devices=tuple(devices)))


def assert_optimal(problem: pk.Problem, best: float | None, method: str | MinCut = "mincut") -> None:
    """Check that the method finds and proves what exhaustive search says, or that there is nothing to find."""
    result = pk.solve(problem, method)
    if best is None:
        assert result.status is pk.Status.INFEASIBLE
        return
    assert result.objective == pytest.approx(best, rel=2e-6, abs=1e-300)
    assert result.lower_bound is not None
    assert result.lower_bound <= best * (1 + 1e-12)
    assert result.status is pk.Status.OPTIMAL
    assert result.info["proven_by"]


# the method against exhaustive search


@examples(550)
@given(problems(max_ops=6, max_kinds=3, max_devices=4, objective=PLAIN))
def test_mincut_matches_brute_force(problem: pk.Problem) -> None:
    """One to three kinds, memory, pins, colours, fused groups, backward ops, any contiguity: proven optimal."""
    assert_optimal(problem, brute_force(problem))


@examples(250)
@given(problems(max_ops=7, max_kinds=2, max_devices=3, objective=PLAIN, contiguity=NO_CONTIGUITY, with_memory=False))
def test_two_kinds_are_proven_by_the_cut_alone(problem: pk.Problem) -> None:
    """Without pins on two devices of a kind, two kinds need nothing but one cut, however many devices there are."""
    best = brute_force(problem)
    assert_optimal(problem, best)
    if best is not None and labels_of(contract(problem)).num_labels <= 2:
        assert pk.solve(problem, MinCut(MinCutParams(fallback=False))).info["proven_by"] == "minimum cut"


@examples(130)
@given(problems(max_ops=6, max_kinds=3, max_devices=4, objective=COSTLY))
def test_subgraph_costs_match_brute_force(problem: pk.Problem) -> None:
    """The exact number of subgraphs, which is no sum over nets: proven optimal all the same."""
    assert_optimal(problem, brute_force(problem))


@examples(80)
@given(problems(max_ops=6, max_kinds=3, max_devices=4, objective=PLAIN))
def test_mincut_matches_the_integer_program(problem: pk.Problem) -> None:
    """The same optimum as method ``ilp``, within the optimality tolerance."""
    by_cut, by_ilp = pk.solve(problem, "mincut"), pk.solve(problem, "ilp")
    assert by_cut.status == by_ilp.status
    if by_ilp.objective is not None:
        assert by_cut.objective == pytest.approx(by_ilp.objective, rel=2e-6, abs=1e-12)


@examples(100)
@given(problems(max_ops=6, max_kinds=4, max_devices=4, objective=PLAIN | COSTLY))
def test_bound_is_never_above_the_optimum(problem: pk.Problem) -> None:
    """Method ``bound`` holds whatever the limits and the cost per subgraph are, and lists its best bound."""
    best = brute_force(problem)
    if best is not None:
        result = pk.solve(problem, "bound")
        assert result.lower_bound is not None
        assert result.lower_bound <= best * (1 + 1e-12)
        assert result.info["lower_bounds_s"][result.bound_name] == result.lower_bound


# the parts


def random_nets(draw: st.DrawFn, num_nodes: int) -> Nets:
    """Draw up to four nets of one to five pins."""
    pins = draw(
        st.lists(st.lists(st.integers(0, num_nodes - 1), min_size=1, max_size=5, unique=True), min_size=0, max_size=4)
    )
    weight = draw(st.lists(st.floats(0, 10), min_size=len(pins), max_size=len(pins)))
    return Nets(
        np.cumsum([0, *map(len, pins)], dtype=np.int64),
        np.array([pin for net in pins for pin in net], dtype=np.int64),
        np.array(weight, dtype=np.float64),
    )


@st.composite
def cut_costs(draw: st.DrawFn) -> CutCost:
    """Draw costs of one to six nodes of any sign and scale, some infinite on one side, with nets of every sort."""
    num_nodes = draw(st.integers(1, 6))
    scale = draw(st.sampled_from([1e-200, 1e-9, 1.0, 1e12]))
    cost = st.floats(-10, 10).map(lambda c: c * scale)
    side = st.lists(cost, min_size=num_nodes, max_size=num_nodes)
    first, second = np.array(draw(side)), np.array(draw(side))
    for v in range(num_nodes):
        which = draw(st.sampled_from(["both", "both", "both", "first", "second"]))
        first[v] = np.inf if which == "second" else first[v]
        second[v] = np.inf if which == "first" else second[v]
    nets = [random_nets(draw, num_nodes) for _ in range(3)]
    split, any_first, any_second = (Nets(n.offsets, n.pins, n.weight * scale) for n in nets)
    requires = None
    if draw(st.booleans()):
        pairs = draw(st.lists(st.tuples(*[st.integers(0, num_nodes - 1)] * 2), max_size=3))
        needing, needed = (np.array([pair[i] for pair in pairs], dtype=np.int64) for i in (0, 1))
        if not (closure(np.isinf(second), needing, needed) & np.isinf(first)).any():
            requires = needing, needed
    return CutCost(first, second, split, any_first, any_second, requires)


def plain_value(cost: CutCost, side: tuple[bool, ...]) -> float:
    """Add up the cost of a choice of sides from its definition."""
    total = math.fsum(cost.first[v] if on_first else cost.second[v] for v, on_first in enumerate(side))
    rules: list[tuple[Nets | None, Callable[[set[bool]], bool]]] = [
        (cost.split, lambda seen: len(seen) == 2),
        (cost.any_first, lambda seen: True in seen),
        (cost.any_second, lambda seen: False in seen),
    ]
    for nets, pays in rules:
        assert nets is not None
        for n in range(len(nets.weight)):
            if pays({side[p] for p in nets.pins[nets.offsets[n] : nets.offsets[n + 1]]}):
                total += float(nets.weight[n])
    if cost.requires is not None and any(side[v] and not side[r] for v, r in zip(*cost.requires, strict=True)):
        return math.inf
    return total


@examples(300)
@given(cut_costs())
def test_cut_is_the_cheapest_choice_of_sides(cost: CutCost) -> None:
    """Every gadget, any scale: the minimum over all choices, a value that is its cost, a bound not above it."""
    values = {side: plain_value(cost, side) for side in itertools.product([True, False], repeat=len(cost.first))}
    best = min(values.values())
    size = sum(abs(c) for c in [*cost.first, *cost.second] if math.isfinite(c))
    for nets in (cost.split, cost.any_first, cost.any_second):
        assert nets is not None
        size += float(nets.weight.sum())
    cut = cost.minimise()
    assert values[tuple(cut.is_first.tolist())] == pytest.approx(cut.value, rel=1e-12, abs=1e-14 * size)
    assert cut.value == pytest.approx(best, rel=2e-7, abs=2e-7 * size)
    assert cut.bound <= best + 1e-15 * size
    assert cut.bound == pytest.approx(cut.value, rel=3e-7, abs=3e-7 * size)


@examples(80)
@given(problems(max_ops=6, max_devices=4, objective=PLAIN, with_memory=False, contiguity=NO_CONTIGUITY), st.data())
def test_labels_cost_what_the_judge_says(problem: pk.Problem, data: st.DataObject) -> None:
    """Work and transfers of labels, and of an expansion of one, equal the judge's for the same devices."""
    contraction = contract(problem)
    if not contraction.allowed.any(axis=1).all():
        return
    labels = labels_of(contraction)
    classes = range(contraction.num_classes)
    label = np.array(
        [data.draw(st.sampled_from(np.flatnonzero(np.isfinite(labels.time_s[c])).tolist())) for c in classes]
    )

    def judged(chosen: NDArray[np.int64]) -> float:
        placement = pk.Placement.of(problem, contraction.expand(labels.devices[chosen]))
        value = pk.evaluate(problem, placement).objective
        assert value is not None
        return value

    assert labels.value_s(label) == pytest.approx(judged(label), rel=1e-12, abs=1e-12)
    alpha = data.draw(st.integers(0, labels.num_labels - 1))
    cost, constant = expansion_cost(labels, label, alpha)
    reachable = []
    for moves in itertools.product([True, False], repeat=contraction.num_classes):
        chosen = np.where(moves, alpha, label)
        if np.isfinite(labels.time_s[classes, chosen]).all() and all(
            m for c, m in enumerate(moves) if label[c] == alpha
        ):
            reachable.append(judged(chosen))
            value = cost.value(np.array(moves)) + constant
            assert value == pytest.approx(reachable[-1], rel=1e-9, abs=1e-9)
    assert judged(expand_label(labels, label, alpha)) == pytest.approx(min(reachable), rel=1e-6, abs=1e-6)


def test_a_dominated_kind_is_left_out() -> None:
    """A kind that is slower and has dearer transfers is no label; a pin to it makes it one."""
    problem = layered(12, 3)
    slower = problem.costs.op_time_s.copy()
    slower[:, 1] = slower[:, 0] + 1
    dearer = problem.costs.transfer_time_s.copy()
    dearer[:, 1] = dearer[:, 0]
    problem = problem.replace(costs=problem.costs.replace(op_time_s=slower, transfer_time_s=dearer))
    assert labels_of(contract(problem)).devices.tolist() == [0]
    assert labels_of(contract(problem), across_kinds=False).devices.tolist() == [0, 1]
    assert labels_of(contract(problem.pin({"o3": "b.0"}))).devices.tolist() == [0, 1]


def test_pins_tell_devices_of_one_kind_apart() -> None:
    """Two devices of a kind are one label, until each has an op pinned to it: then three labels, and still a proof."""
    problem = layered(12, 3, per_kind=2)
    assert labels_of(contract(problem)).devices.tolist() == [0, 2]
    pinned = problem.pin({"o0": "a.0", "o11": "a.1"})
    assert labels_of(contract(pinned)).devices.tolist() == [0, 1, 2]
    result = pk.solve(pinned, "mincut")
    assert result.status is pk.Status.OPTIMAL
    assert result.objective == pytest.approx(pk.solve(pinned, "ilp").objective, rel=2e-6)


def test_merging_devices_can_add_a_subgraph() -> None:
    """The example of the module docstring of ``labels``: two devices of a kind run four subgraphs, one of them five."""
    names = ["p", "q", "r", "u", "v", "s"]
    graph = pk.OpGraph.from_edges(names, [("p", "q"), ("q", "r"), ("u", "v"), ("v", "s")])
    costs = pk.CostTable(("a", "b"), np.zeros((6, 2)), np.zeros((4, 2)), np.zeros(6))
    problem = pk.Problem(graph, pk.Platform.of(a=2, b=1), costs, pk.SerialLatency(1.0))
    apart, merged = [0, 1, 2, 2, 1, 2], [0, 0, 2, 2, 0, 2]
    assert pk.evaluate(problem, pk.Placement.of(problem, apart)).objective == 4.0
    assert pk.evaluate(problem, pk.Placement.of(problem, merged)).objective == 5.0
    bound = dict(zip(names, [("a",), ("a",), ("b",), ("b",), ("a",), ("b",)], strict=True))
    supported = np.array([[kind in bound[name] for kind in ("a", "b")] for name in names])
    assert_optimal(problem.replace(costs=costs.replace(supported=supported)), 4.0)


def plain_descent_value(problem: pk.Problem, device: NDArray[np.int64]) -> float:
    """Score devices by the plain formula."""
    return objective(problem, tuple(device.tolist()))


@examples(60)
@given(problems(max_ops=7, max_devices=4, objective=PLAIN, with_memory=False, with_unsupported=False, with_pins=False))
def test_descent_ends_where_no_single_move_helps(problem: pk.Problem) -> None:
    """From everything on one device: every single move of a class, scored plainly, is not better."""
    contraction = contract(problem)
    start = np.zeros(contraction.num_classes, dtype=np.int64)
    device = descend(flatten(contraction), start, max_sweeps=1000)
    value = plain_descent_value(problem, contraction.expand(device))
    assert value <= plain_descent_value(problem, contraction.expand(start)) * (1 + 1e-12)
    for c, d in itertools.product(range(contraction.num_classes), range(problem.platform.num_devices)):
        moved = device.copy()
        moved[c] = d
        assert plain_descent_value(problem, contraction.expand(moved)) >= value * (1 - 1e-9) - 1e-9


def test_descent_leaves_a_device_that_holds_too_much() -> None:
    """Ops leave an overfull device until it fits, and none enters a full one."""
    problem = with_memory(layered(40, 4), a=10.0)
    contraction = contract(problem)
    device = descend(flatten(contraction), np.zeros(40, dtype=np.int64))
    assert (device == 0).sum() <= 10
    assert pk.evaluate(problem, pk.Placement.of(problem, contraction.expand(device))).violations == ()


@examples(50)
@given(problems(max_ops=5, max_devices=3, objective=COSTLY, with_memory=False))
def test_path_prices_bound_every_placement(problem: pk.Problem) -> None:
    """Each round of the game is a lower bound on the optimum without limits, and so is the fewest subgraphs' count."""
    problem = problem.replace(contiguity=Contiguity.NONE)
    contraction = contract(problem)
    best = brute_force(problem)
    if best is None or labels_of(contraction).num_labels < 2:
        return
    last = None
    for last in itertools.islice(price_paths(contraction, labels_of(contraction)), 12):
        assert last.bound_s <= best * (1 + 1e-12)
    if last is not None and last.cut is None:
        for floor in decomposition_bounds(last.labels, last.labels.value_s(last.label), 20):
            assert last.bound_of(floor.bound_s) <= best * (1 + 1e-12)
    device = pk.solve(problem, "mincut").placement
    assert device is not None
    assert fewest_subgraphs(contraction) <= len(set(device.device_of_op.tolist()))


@examples(60)
@given(problems(max_ops=6, max_kinds=4, max_devices=4, objective=PLAIN, with_memory=False, contiguity=NO_CONTIGUITY))
def test_decomposition_bounds_rise_and_hold(problem: pk.Problem) -> None:
    """Every bound is below the optimum, and above the one before; two labels are closed but for the steps."""
    contraction = contract(problem)
    best = brute_force(problem)
    if best is None:
        return
    labels = labels_of(contraction)
    label, _ = best_labels(labels)
    bounds = [floor.bound_s for floor in decomposition_bounds(labels, labels.value_s(label), 30)]
    assert bounds == sorted(bounds)
    assert bounds[-1] <= best * (1 + 1e-12)


def test_price_on_memory_bounds_and_fits() -> None:
    """A limit that binds: the price's bound is above the plain cut's, the placement fits, and the program closes it."""
    problem = with_memory(layered(120, 6, transfer=0.1), a=40.0)
    free = pk.solve(problem.replace(platform=pk.Platform.of(a=1, b=1)), "mincut")
    contraction = contract(problem)
    best = pk.solve(problem, "ilp").objective
    assert best is not None
    bounds = [found.bound_s for found in priced_cuts(contraction, labels_of(contraction, across_kinds=False))]
    assert free.objective is not None
    assert free.objective < max(bounds) <= best
    cuts_only = pk.solve(problem, MinCut(MinCutParams(fallback=False)))
    assert cuts_only.lower_bound == max(bounds)
    assert cuts_only.objective is not None
    assert cuts_only.objective <= 1.02 * best
    result = pk.solve(problem, "mincut")
    assert result.objective == pytest.approx(best, rel=2e-6)
    assert result.info["proven_by"] == "integer program"
    assert result.info["priced_cuts"] > 1


def test_memory_that_does_not_bind_costs_nothing() -> None:
    """If the cut respects the limits it is the optimum, and nothing else is asked."""
    problem = layered(120, 6)
    free = pk.solve(problem, "mincut")
    roomy = pk.solve(with_memory(problem, a=120.0, b=120.0), "mincut")
    assert (roomy.objective, roomy.info["proven_by"]) == (free.objective, "minimum cut")


@examples(50)
@given(problems(max_ops=6, max_devices=3, objective=COSTLY), st.data())
def test_level_model_accepts_every_placement_at_its_cost(problem: pk.Problem, data: st.DataObject) -> None:
    """The values of a feasible placement satisfy the program, whose objective is the judge's, rounded down."""
    contraction = contract(problem)
    if not contraction.allowed.any(axis=1).all():
        return
    device = np.array([data.draw(st.sampled_from(np.flatnonzero(row).tolist())) for row in contraction.allowed])
    evaluation = pk.evaluate(problem, pk.Placement.of(problem, contraction.expand(device)))
    if not evaluation.is_feasible or evaluation.objective is None:
        return
    model = LevelModel(contraction, None, most_levels(contraction, None, 0.0))
    values = model.encode(device)
    assert values is not None
    from ortools.sat.python import cp_model

    for index, value in values.items():
        model.proto.add(model.proto.get_int_var_from_proto_index(index) == value)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model.proto) == cp_model.OPTIMAL
    unit_s = model.scale.unit_s
    terms = model.scale.num_terms + problem.graph.num_ops * problem.platform.num_devices
    assert solver.objective_value * unit_s <= evaluation.objective * (1 + 1e-12)
    assert (solver.objective_value + terms) * unit_s >= evaluation.objective * (1 - 1e-12)


def test_level_model_has_room_for_more_subgraphs_than_devices() -> None:
    """Without a placement that is known: a chain that must go there and back pays for three subgraphs."""
    graph = pk.OpGraph.from_edges(list("abc"), [("a", "b"), ("b", "c")])
    platform = pk.Platform.of(a=1, b=1)
    costs = pk.CostTable(platform.kinds, np.zeros((3, 2)), np.zeros((2, 2)), np.zeros(3))
    problem = pk.Problem(graph, platform, costs, pk.SerialLatency(0.001)).pin({"a": "a.0", "b": "b.0", "c": "a.0"})
    contraction = contract(problem)
    model = LevelModel(contraction, None, most_levels(contraction, None, 0.0))
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    assert solver.solve(model.proto) == cp_model.OPTIMAL
    assert solver.objective_value * model.scale.unit_s == pytest.approx(0.003)


# at work


@pytest.mark.parametrize("contiguity", list(Contiguity))
def test_two_devices_are_cut_in_either_direction(contiguity: Contiguity) -> None:
    """One-way cuts are the acyclic optimum and start the convex program; the plain cut is never above them."""
    problem = layered(60, 4)
    free = pk.solve(problem, "mincut").objective
    result = pk.solve(problem.replace(contiguity=contiguity), "mincut")
    assert result.status is pk.Status.OPTIMAL
    assert result.objective is not None
    assert free is not None
    assert free <= result.objective
    if contiguity is Contiguity.ACYCLIC:
        assert result.info["proven_by"] == "minimum cuts by direction"
        by_ilp = pk.solve(problem.replace(contiguity=contiguity), "ilp")
        assert result.objective == pytest.approx(by_ilp.objective, rel=2e-6)


def test_hundred_thousand_ops_are_proven_quickly() -> None:
    """A layered graph of 100,000 ops on two kinds: the optimum with its proof, in seconds."""
    problem, watch = layered(100_000, 50), Stopwatch()
    result = pk.solve(problem, "mincut", stop=pk.MaxRuntime(10 * SOON_S))
    assert (result.status, result.info["proven_by"]) == (pk.Status.OPTIMAL, "minimum cut")
    assert watch.seconds() < SOON_S


def test_large_problems_are_bounded_without_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the programs are too large, the result says so, with a bound that is not far."""
    monkeypatch.setattr(mincut_method, "MAX_ILP_SIZE", 10)
    monkeypatch.setattr(mincut_method, "MAX_LEVEL_SIZE", 10)
    three = pk.solve(layered(300, 8, num_kinds=3), "mincut", stop=pk.MaxRuntime(20))
    assert three.info["too_large_for"] == "integer program"
    assert three.bound_name == "minimum cut per device"
    costly = pk.solve(layered(300, 8).replace(objective=pk.SerialLatency(0.3)), "mincut", stop=pk.MaxRuntime(20))
    assert costly.info["too_large_for"] == "constraint program"
    assert costly.bound_name == "changes along paths"
    for result in (three, costly):
        assert (result.stop_reason, result.info["proven_by"]) == (pk.StopReason.FINISHED, None)
        assert result.gap is not None
        assert 0 < result.gap < 0.02


@pytest.mark.parametrize("cost_s", [0.0, 0.3])
def test_time_limit_and_progress_are_kept(cost_s: float) -> None:
    """A short limit ends any step with the best so far; the trace only gets better."""
    problem = layered(3000, 10, num_kinds=3).replace(objective=pk.SerialLatency(cost_s))
    seen: list[pk.Incumbent] = []
    result = pk.solve(problem, "mincut", stop=pk.MaxRuntime(0.5), on_progress=seen.append)
    assert (result.stop_reason, result.status) == (pk.StopReason.TIME, pk.Status.FEASIBLE)
    assert result.runtime_s < SOON_S
    assert result.gap is not None
    assert seen == list(result.trace)
    bounds = [line.bound for line in seen if line.bound is not None]
    assert bounds == sorted(bounds)


def test_interrupt_is_heard_between_steps() -> None:
    """A run that was interrupted returns after the opening, without claiming a proof."""
    run = Run(layered(300, 8, num_kinds=3))
    run.interrupted.set()
    assert MinCut().run(run) is pk.StopReason.USER
    assert run.placement is not None
    assert run.info["proven_by"] is None


def test_opposite_orders_on_two_devices_are_infeasible() -> None:
    """Pins that make two devices wait for each other leave neither direction; the result names them."""
    graph = pk.OpGraph.from_edges(list("abc"), [("a", "b"), ("b", "c")])
    costs = pk.CostTable(("x", "y"), np.ones((3, 2)), np.ones((2, 2)), np.zeros(3))
    problem = pk.Problem(graph, pk.Platform.of(x=1, y=1), costs, pk.SerialLatency(), Contiguity.ACYCLIC)
    result = pk.solve(problem.pin({"a": "x.0", "b": "y.0", "c": "x.0"}), "mincut")
    assert (result.status, result.violations[0].constraint) == (pk.Status.INFEASIBLE, "pin")


def test_wrong_use_is_named(diamond: pk.Problem) -> None:
    """Another objective, an argument after the colon, an unknown parameter."""
    with pytest.raises(UnsupportedProblemError, match="mincut serves serial-latency, not throughput"):
        pk.solve(diamond, "mincut")
    with pytest.raises(InvalidProblemError, match="takes no argument; got '3'"):
        MinCut.from_params("3", {})
    with pytest.raises(InvalidProblemError, match="no parameter 'speed'; parameters are: fallback"):
        MinCut.from_params(None, {"speed": 1})


def test_a_cut_without_nets_or_choice_is_its_sum() -> None:
    """Nothing to cut: the sides are free or forced, and the bound is the sum."""
    cost = CutCost(np.array([1.0, np.inf, 2.0]), np.array([2.0, 3.0, np.inf]))
    cut = cost.minimise()
    assert (cut.is_first.tolist(), cut.value) == ([True, False, True], 6.0)
    assert cut.bound == pytest.approx(6.0, rel=1e-11)
    one = Labels(np.array([0]), np.ones((2, 1)), np.array([0]), np.zeros(0, np.int64), np.zeros((0, 1)), np.array([0]))
    assert best_labels(one)[0].tolist() == [0, 0]
