"""Stage costs, predictions, splits, and calibration on measurements that were made up from known parameters."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from strategies import examples, problems

import placekit as pk
from placekit.cost_models.measured.calibration import Calibration, MeasuredSplit, Parameters, calibrate
from placekit.cost_models.measured.splits import calibration_splits, split_placement
from placekit.cost_models.measured.stage_costs import predict, stage_costs, stage_overhead_s
from placekit.io.files.costs_json import read_costs, write_costs
from placekit.model.costs import CostTable
from placekit.model.errors import InvalidProblemError
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement
from placekit.model.platform import Device, Platform


def chain(num_ops: int = 40, *, kinds: tuple[str, ...] = ("fast", "slow"), transfer: bool = False) -> pk.Problem:
    """Return a chain of uneven ops on two host devices, of one kind or of two, the second half as fast."""
    rng = np.random.default_rng(3)
    names = [f"op{i}" for i in range(num_ops)]
    sizes = rng.integers(1, 50, num_ops) * 20_000.0
    graph = OpGraph.from_edges(names, list(itertools.pairwise(names)), name="chain", output_bytes=sizes)
    times = rng.uniform(2e-4, 2e-3, num_ops)
    op_time_s = np.stack([times * (1 + k * rng.uniform(0.8, 1.2, num_ops)) for k in range(len(kinds))], axis=1)
    moved = graph.tensor_bytes[:, None] * (1e-10 if transfer else 0.0) * np.ones(len(kinds))
    devices = [Device(f"{kind}.{i}", kind, is_host=True) for kind in kinds for i in range(2 // len(kinds))]
    platform = Platform(tuple(devices))
    return pk.Problem(graph, platform, CostTable(kinds, op_time_s, moved, np.zeros(num_ops)))


def measured(
    problem: pk.Problem, truth: Parameters, placements: dict[str, Placement], *, is_serial: bool, noise: float = 0.0
) -> list[MeasuredSplit]:
    """Return what a machine with parameters `truth` would measure, `noise` being the relative error."""
    rng = np.random.default_rng(5)
    splits = []
    for name, placement in placements.items():
        stages = stage_costs(problem, placement)
        exact = MeasuredSplit(name, stages, 1.0, is_serial, np.zeros(0))
        sample_s = truth.sample_s(exact) * (1 + noise * rng.standard_normal())
        scale = np.asarray(truth.op_scale)[stages.kind]
        busy_s = scale * stages.op_time_s + truth.transfer_s_per_byte * stages.moved_bytes + truth.stage_overhead_s
        splits.append(MeasuredSplit(name, stages, sample_s, is_serial, busy_s))
    return splits


def relative(found: Calibration, truth: Parameters) -> float:
    """Return the largest relative error of the parameters that are not 0."""
    wanted = truth.vector()
    return float(np.abs(found.parameters.vector()[wanted > 0] / wanted[wanted > 0] - 1).max())


def test_stages_of_a_diamond_are_those_checked_by_hand(diamond: pk.Problem) -> None:
    """a, b on the CPU, c on an accelerator, d on the CPU again: three stages, two transfers of 2 s each."""
    placement = Placement.from_mapping(diamond, {"a": "cpu.0", "b": "cpu.0", "c": "acc.0", "d": "cpu.0"})
    found = stage_costs(diamond, placement)
    assert found.device.tolist() == [0, 1, 0]
    assert found.op_time_s.tolist() == [8.0, 1.0, 4.0]
    assert found.transfer_s.tolist() == [0.0, 4.0, 0.0]
    assert found.moved_bytes.tolist() == [4.0, 8.0, 4.0]
    assert found.producers == ((), (0,), (0, 1))
    pipeline, serial = (predict(diamond, placement, is_serial=each) for each in (False, True))
    assert pipeline.device_load_s.tolist() == [12.0, 5.0, 0.0]
    assert pipeline.throughput_per_s == pytest.approx(1 / 12)
    assert serial.latency_s == pipeline.latency_s == 17.0
    assert serial.throughput_per_s == pytest.approx(1 / 17)


def test_stages_of_one_sample_overlap_where_they_do_not_wait(diamond: pk.Problem) -> None:
    """With b on the CPU and c on an accelerator the two run side by side in a pipeline, not serially."""
    placement = Placement.from_mapping(diamond, {"a": "acc.1", "b": "cpu.0", "c": "acc.0", "d": "acc.1"})
    pipeline, serial = (predict(diamond, placement, is_serial=each) for each in (False, True))
    assert serial.latency_s == pytest.approx(float(serial.stage_s.sum()))
    assert pipeline.latency_s < serial.latency_s


@given(problem=problems(with_unsupported=False, with_backward=False))
@examples(60)
def test_device_loads_are_the_judge_s(problem: pk.Problem) -> None:
    """Stages add up to what the judge says of every device."""
    rng = np.random.default_rng(0)
    problem = problem.replace(objective=pk.Throughput())
    placement = Placement.of(problem, rng.integers(problem.platform.num_devices, size=problem.graph.num_ops))
    evaluation = pk.evaluate(problem, placement)
    if evaluation.score is None or not evaluation.score.load_s.any():
        return
    found = predict(problem, placement, is_serial=False)
    np.testing.assert_allclose(found.device_load_s, evaluation.score.load_s)


def test_op_on_a_device_that_cannot_run_it_is_named() -> None:
    """A prediction for what cannot run would be a lie."""
    problem = chain()
    supported = np.ones((40, 2), dtype=bool)
    supported[7, 1] = False
    problem = problem.replace(costs=problem.costs.replace(supported=supported))
    with pytest.raises(InvalidProblemError, match=r"op 'op7' is placed on 'slow\.0'"):
        stage_costs(problem, Placement.of(problem, np.ones(40, dtype=np.int64)))


@pytest.mark.parametrize("overhead", [-1.0, True, "much", float("inf")])
def test_stage_overhead_that_is_no_time_is_refused(overhead: object) -> None:
    """What stands in a cost file is not trusted."""
    costs = chain().costs.replace(provenance={"stage_overhead_s": overhead})
    with pytest.raises(InvalidProblemError, match="must be seconds"):
        stage_overhead_s(costs)


def test_blocks_get_their_shares_of_the_work() -> None:
    """A cut at 30 % leaves 30 % of the work before it, up to an op."""
    problem = chain(kinds=("same",))
    stages = stage_costs(problem, split_placement(problem, [0, 1, 0], [0.2, 0.5, 0.3]))
    shares = stages.op_time_s / stages.op_time_s.sum()
    assert stages.device.tolist() == [0, 1, 0]
    np.testing.assert_allclose(shares, [0.2, 0.5, 0.3], atol=0.04)


@pytest.mark.parametrize(
    ("pattern", "shares", "message"),
    [([0, 1], [1.0], "one weight"), ([0, 1], [0.0, 0.0], "not all 0"), ([0, 2], [1.0, 1.0], "none of the 2")],
)
def test_split_arguments_are_checked(pattern: Sequence[int], shares: Sequence[float], message: str) -> None:
    """A split that cannot be is an error with its values."""
    with pytest.raises(InvalidProblemError, match=message):
        split_placement(chain(), pattern, shares)


def test_calibration_splits_leave_out_what_cannot_run() -> None:
    """An op that only the first device runs rules out whatever places it elsewhere."""
    problem = chain()
    assert len(calibration_splits(problem)) == 8
    supported = np.ones((40, 2), dtype=bool)
    supported[0, 1] = False
    problem = problem.replace(costs=problem.costs.replace(supported=supported))
    assert "all on slow.0" not in calibration_splits(problem)


@pytest.mark.parametrize("is_serial", [False, True])
@pytest.mark.parametrize("kinds", [("same",), ("fast", "slow")])
def test_known_parameters_are_recovered(kinds: tuple[str, ...], is_serial: bool) -> None:
    """Without noise the fit finds what the measurements were made from, and says that it is better."""
    problem = chain(kinds=kinds)
    truth = Parameters((1.1, 1.25)[: len(kinds)], 1.0, 4e-10, 1e-4)
    found = calibrate(problem.costs, measured(problem, truth, _many(problem), is_serial=is_serial))
    assert relative(found, truth) < 0.05
    assert found.is_better
    assert found.error_before > 0.05
    assert found.error_after < 0.005


@pytest.mark.parametrize("seed", range(4))
def test_noise_does_not_make_up_a_cost_of_a_stage(seed: int) -> None:
    """Six blocks are predicted well by splits into two and three whose errors of 4 % say nothing of stages."""
    problem = chain(kinds=("same",))
    truth = Parameters((1.1,), 1.0, 0.0, 0.0)
    splits = measured(problem, truth, calibration_splits(problem), is_serial=False)
    rng = np.random.default_rng(seed)
    noisy = [replace(each, sample_s=each.sample_s * (1 + 0.04 * rng.standard_normal())) for each in splits]
    found = calibrate(problem.costs, noisy)
    worst = max(abs(truth.sample_s(each) / each.sample_s - 1) for each in noisy)
    assert np.abs(found.after).max() < worst + 0.05


def _many(problem: pk.Problem) -> dict[str, Placement]:
    extra = {
        f"{share:.2f}": split_placement(problem, [1, 0, 1, 0], [share, 0.3, 0.1, 0.6 - share])
        for share in (0.05, 0.2, 0.35, 0.5)
    }
    return calibration_splits(problem) | extra


def test_transfer_times_of_the_table_are_scaled() -> None:
    """A link that is twice as slow as the table says is found out."""
    problem = chain(transfer=True)
    problem = problem.replace(costs=problem.costs.replace(transfer_time_s=problem.costs.transfer_time_s * 10))
    truth = Parameters((1.0, 1.0), 2.0, 0.0, 0.0)
    found = calibrate(problem.costs, measured(problem, truth, _many(problem), is_serial=True))
    # bytes and transfer times are proportional here: only their sum is told by the measurements
    moved_s = found.parameters.transfer_scale * 1e-9 + found.parameters.transfer_s_per_byte
    assert moved_s == pytest.approx(2e-9, rel=0.05)
    assert found.error_after < 0.005


def test_noise_leaves_a_spread_that_covers_the_truth() -> None:
    """With 2 % noise the op scale is found within three standard errors, and predictions become better."""
    problem = chain()
    truth = Parameters((1.1, 1.2), 1.0, 0.0, 5e-5)
    found = calibrate(problem.costs, measured(problem, truth, _many(problem), is_serial=False, noise=0.02))
    assert found.is_better
    for value, wanted, spread in zip(found.parameters.op_scale, truth.op_scale, found.spread.op_scale, strict=True):
        assert 0 < spread < 0.1
        assert abs(value - wanted) < 3 * spread + 0.01


def test_perfect_costs_are_left_alone() -> None:
    """Where predictions were exact before, the calibration says that it does not help, and changes nothing."""
    problem = chain()
    truth = Parameters((1.0, 1.0), 1.0, 0.0, 0.0)
    found = calibrate(problem.costs, measured(problem, truth, calibration_splits(problem), is_serial=False))
    assert not found.is_better
    applied = found.apply(problem.costs, problem.graph)
    np.testing.assert_array_equal(applied.op_time_s, problem.costs.op_time_s)
    assert applied.provenance["calibration"]["applied"] is False
    assert stage_overhead_s(applied) == 0


def test_what_no_split_tells_stays_as_it_was() -> None:
    """Splits on one device alone say nothing about the other, about transfers, or about stages."""
    problem = chain()
    alone = {f"{i}": Placement.of(problem, np.zeros(40, dtype=np.int64)) for i in range(4)}
    found = calibrate(problem.costs, measured(problem, Parameters((1.3, 9.0), 9.0, 9.0, 0.0), alone, is_serial=True))
    assert found.parameters.op_scale[0] == pytest.approx(1.3, rel=0.01)
    assert found.parameters.op_scale[1] == 1.0
    assert found.parameters.transfer_scale == 1.0
    assert found.parameters.transfer_s_per_byte == 0.0


def test_calibrated_costs_predict_what_was_measured(tmp_path: Path) -> None:
    """The parameters go into the table and its provenance, survive the file, and predict the measurements."""
    problem = chain()
    truth = Parameters((1.1, 1.25), 1.0, 4e-10, 1e-4)
    splits = measured(problem, truth, _many(problem), is_serial=False)
    found = calibrate(problem.costs, splits)
    write_costs(found.apply(problem.costs, problem.graph), problem.graph, tmp_path / "c.json")
    calibrated = problem.replace(costs=read_costs(tmp_path / "c.json", problem.graph))
    assert calibrated.costs.provenance["calibration"]["standard_error"]["op_scale"].keys() == {"fast", "slow"}
    for (_, placement), split in zip(_many(problem).items(), splits, strict=True):
        prediction = predict(calibrated, placement, is_serial=False)
        assert 1 / prediction.throughput_per_s == pytest.approx(split.sample_s, rel=0.01)
    again = calibrate(calibrated.costs, [
        MeasuredSplit(s.name, stage_costs(calibrated, p), s.sample_s, False, s.busy_s)
        for s, p in zip(splits, _many(problem).values(), strict=True)
    ])  # fmt: skip
    assert again.error_before < 0.01


def test_too_few_or_wrong_splits_are_refused() -> None:
    """Three splits, a time that is none, busy times of other stages, costs of 0: errors with the value."""
    problem = chain()
    stages = stage_costs(problem, split_placement(problem, [0, 1], [1.0, 1.0]))
    good = MeasuredSplit("s", stages, 1.0, False, np.zeros(0))
    with pytest.raises(InvalidProblemError, match="3 splits; at least 4"):
        calibrate(problem.costs, [good] * 3)
    with pytest.raises(InvalidProblemError, match=r"'s': measured -1\.0 s"):
        MeasuredSplit("s", stages, -1.0, False, np.zeros(0))
    with pytest.raises(InvalidProblemError, match="3 stages were measured, the placement has 2"):
        MeasuredSplit("s", stages, 1.0, False, np.ones(3))
    free = problem.replace(costs=problem.costs.replace(op_time_s=np.zeros((40, 2))))
    nothing = MeasuredSplit("n", stage_costs(free, split_placement(problem, [0], [1.0])), 1.0, False, np.zeros(0))
    with pytest.raises(InvalidProblemError, match="'n': all of its costs are 0"):
        calibrate(free.costs, [nothing] * 4)
    other = chain(kinds=("same",))
    truth = Parameters((1.0,), 1.0, 0.0, 0.0)
    found = calibrate(other.costs, measured(other, truth, calibration_splits(other), is_serial=True))
    with pytest.raises(InvalidProblemError, match="calibration of kinds same does not fit"):
        found.apply(problem.costs, problem.graph)
