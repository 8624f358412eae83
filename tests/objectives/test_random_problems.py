"""On many small awkward problems the judge's account adds up: loads, batches, schedules, prices of tensors, bounds."""

from __future__ import annotations

import numpy as np
import pytest
from fuzz.problems import OBJECTIVE_NAMES, random_problem
from numpy.typing import NDArray
from strategies import draws

import placekit as pk
from placekit.model.placement import Placement
from placekit.objectives import Makespan, Schedule, Throughput
from placekit.objectives.base import device_transfers
from placekit.objectives.evaluate import evaluate
from placekit.verification.exact import ExactProblem
from placekit.verification.judge import moved, num_subgraphs, work
from placekit.verification.proofs import fastest_everywhere, largest_op


def placed(seed: int, case: int, name: str) -> tuple[pk.Problem, ExactProblem, list[int]]:
    """Return a random problem without teams, and a placement on devices that support their ops."""
    problem = random_problem(seed, case, name)
    if isinstance(problem.objective, Throughput):
        problem = problem.replace(objective=Throughput(problem.objective.overlap, problem.objective.schedule))
    exact, rng = ExactProblem.of(problem), np.random.default_rng([seed, case])
    able = [[d for d in range(exact.num_devices) if row[exact.kind[d]] is not None] for row in exact.time]
    return problem, exact, [int(rng.choice(devices)) for devices in able]


def seconds(exact: ExactProblem, ticks: list[int]) -> list[float]:
    """Return ticks in seconds."""
    return [float(exact.seconds(each)) for each in ticks]


def near(values: list[float]) -> object:
    """Return what equals values up to rounding."""
    return pytest.approx(values, rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("name", OBJECTIVE_NAMES)
def test_loads_of_devices_add_up(name: str) -> None:
    """Work, transfers and memory are the checker's; how they are combined is what the objective says of itself."""
    for case in range(draws(3200)):
        problem, exact, device = placed(71, case, name)
        found, variant = evaluate(problem, Placement.of(problem, device)), problem.objective
        loads = found.device_loads
        assert [load.num_ops for load in loads] == [device.count(d) for d in range(exact.num_devices)]
        held = [{op for op, own in enumerate(device) if own == d} for d in range(exact.num_devices)]
        needed = np.array([exact.needed(ops) for ops in held], dtype=float)
        memory = np.array([load.memory_bytes for load in loads])
        assert memory * needed.max() == pytest.approx(needed * memory.max(), rel=1e-9)  # in another unit
        if found.objective is None:
            assert all(load.load_s == load.compute_s == load.transfer_s == 0 for load in loads)
            continue
        assert [load.compute_s for load in loads] == near(seconds(exact, work(exact, device)))
        if name in ("throughput", "serial-latency"):
            assert [load.transfer_s for load in loads] == near(seconds(exact, moved(exact, device)))
        own = [load.load_s for load in loads]
        told = variant.loads(problem)
        assert (told is None) == (name in ("makespan", "offload-latency"))
        if told is not None and not told.has_passes:
            join = max if told.has_overlap else lambda *both: sum(both)
            base = [join(load.compute_s, load.transfer_s) for load in loads]
            extra = told.subgraph_cost_s * num_subgraphs(exact, device)
            assert sum(own) == pytest.approx(sum(base) + extra, rel=1e-12, abs=1e-300)
            assert found.objective == pytest.approx(sum(own) if told.is_total else max(own), rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("name", ["throughput", "serial-latency", "makespan"])
def test_batches_score_as_the_judge_does(name: str) -> None:
    """Every row is the objective of its placement, and of the order that the batch has chosen for it."""
    for case in range(draws(1600)):
        problem, exact, device = placed(72, case, name)
        rng = np.random.default_rng([72, case, 1])
        able = [[d for d in range(exact.num_devices) if times[exact.kind[d]] is not None] for times in exact.time]
        rows = [device, *([int(rng.choice(devices)) for devices in able] for _ in range(3))]
        batch = problem.objective.batch_score(problem)
        assert batch is not None
        scores: NDArray[np.float64] = batch(np.array(rows, dtype=np.int64))
        for row, score in zip(rows, scores.tolist(), strict=True):
            placement = batch.placement(np.array(row, dtype=np.int64))
            assert placement.device_of_op.tolist() == row
            assert score == pytest.approx(evaluate(problem, placement).objective, rel=1e-12, abs=1e-300), case
            if name == "makespan":
                first = evaluate(problem, Placement.of(problem, row)).objective
                assert first is not None
                assert score <= first * (1 + 1e-12)


@pytest.mark.parametrize("name", OBJECTIVE_NAMES)
def test_prices_of_tensors_add_up_to_transfers(name: str) -> None:
    """What leaves its device costs each end what the account of the placement says in sum."""
    for case in range(draws(1600)):
        problem, exact, device = placed(73, case, name)
        total = np.zeros(exact.num_devices)
        for t, producer in enumerate(exact.producer):
            targets = sorted({device[reader] for reader in exact.readers[t]} - {device[producer]})
            if targets:
                price = problem.objective.crossing_s(problem, t, device[producer], targets)
                assert price.keys() == {device[producer], *targets}
                for d, one_s in price.items():
                    total[d] += one_s
        found = evaluate(problem, Placement.of(problem, device))
        if found.objective is None:
            continue
        if name == "offload-latency":  # several calls of a device, and ops of a host, share what a tensor costs
            is_host = np.array(exact.is_host)
            assert not total[is_host].any()
            assert all(load.transfer_s == 0 for load, host in zip(found.device_loads, is_host, strict=True) if host)
        assert [load.transfer_s for load in found.device_loads] == near(total.tolist()), case
        if name in ("throughput", "serial-latency"):
            every = np.ones(len(exact.producer), dtype=np.bool_)
            array = np.array(device, dtype=np.int64)
            assert device_transfers(problem, array, every).tolist() == near(total.tolist())
            assert not device_transfers(problem, array, ~every).any()


@pytest.mark.parametrize("name", ["makespan", "offload-latency"])
def test_schedules_are_of_the_placement(name: str) -> None:
    """Every op once, on its device, for its time; transfers begin when their tensor is there."""
    for case in range(draws(1600)):
        problem, exact, device = placed(74, case, name)
        found = evaluate(problem, Placement.of(problem, device))
        if found.objective is None:
            continue
        assert found.score is not None
        assert found.score.schedule is not None
        schedule = found.score.schedule
        assert Schedule.from_dict(schedule.to_dict()).to_dict() == schedule.to_dict()
        runs = {int(schedule.op[at]): at for at in range(len(schedule)) if not schedule.is_transfer[at]}
        assert sorted(runs) == list(range(exact.num_ops))
        assert len(schedule) - schedule.is_transfer.sum() == exact.num_ops
        for op, at in runs.items():
            assert schedule.device[at] == device[op]
            assert schedule.peer[at] == -1
            takes = float(exact.seconds(exact.ticks(op, device[op])))
            assert schedule.finish_s[at] - schedule.start_s[at] == pytest.approx(
                takes, rel=1e-6, abs=1e-9 * found.objective
            )
        assert (schedule.finish_s >= schedule.start_s).all()
        assert found.objective == pytest.approx(schedule.finish_s.max(), rel=1e-12) or name == "offload-latency"
        if name == "makespan":
            assert isinstance(problem.objective, Makespan)
            for at in np.flatnonzero(schedule.is_transfer).tolist():
                assert schedule.start_s[at] >= schedule.finish_s[runs[int(schedule.op[at])]]
                assert schedule.peer[at] >= 0
                assert schedule.device[at] == device[int(schedule.op[at])]


@pytest.mark.parametrize("name", OBJECTIVE_NAMES)
def test_quick_bounds_are_those_of_the_checker(name: str) -> None:
    """The largest op, or the fastest device of each op, less a rounding; also with teams."""
    for case in range(draws(3200)):
        problem = random_problem(75, case, name)
        exact, bound = ExactProblem.of(problem.replace(contiguity="none")), problem.objective.quick_bound(problem)
        assert bound is not None
        if not all(exact.allowed):
            continue
        free = problem.replace(contiguity="none", pinned=np.full(exact.num_ops, -1))
        if problem.has_direct_links:
            continue
        devices = tuple(device.replace(memory_bytes=None) for device in free.platform.devices)
        exact = ExactProblem.of(free.replace(platform=pk.Platform(devices)))
        value = fastest_everywhere(exact) if name == "serial-latency" else largest_op(exact)
        assert bound[0] == pytest.approx(float(value), rel=1e-11, abs=1e-300), case
        assert bound[0] <= float(value)
