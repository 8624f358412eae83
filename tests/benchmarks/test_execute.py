"""Real timings of a suite: which placements, once each, and what the rows say."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from placekit.benchmarks.cases.plan import Job, make_plan
from placekit.benchmarks.cases.suite import read_suite
from placekit.benchmarks.execute import measurable, measure_jobs
from placekit.benchmarks.report.write import write_report
from placekit.benchmarks.runner import run_jobs
from placekit.benchmarks.store import Store, append_row
from placekit.model.problem import Problem

SUITE = """
name = "measured"
time_limit_s = 1.0
measure = true
[[model]]
file = "tiny.xml"
[[platform]]
name = "one group"
groups = 1
costs = "analytic"
[[objective]]
name = "throughput"
[[objective]]
name = "serial-latency"
[[method]]
name = "single"
[[method]]
name = "greedy"
"""


@pytest.fixture
def solved(tmp_path: Path) -> tuple[tuple[Job, ...], Store]:
    """Return the jobs of a suite with a small model on one group of cores, and the store with their rows."""
    pytest.importorskip("openvino")
    from openvino_models import save_product

    save_product(tmp_path / "tiny.xml")
    (tmp_path / "suite.toml").write_text(SUITE)
    store = Store(tmp_path / "results")
    plan = make_plan(read_suite(str(tmp_path / "suite.toml")), store.folder)
    with store.locked():
        run_jobs(plan.jobs, store, lambda: ThreadPoolExecutor(1))
    return plan.jobs, store


@pytest.mark.slow
def test_placements_are_executed_once_and_reported(solved: tuple[tuple[Job, ...], Store]) -> None:
    """Both methods find the same placement: one measurement for two rows; the second run has nothing to do."""
    from placekit.runtime.timing.timing import Timing, TimingSettings

    jobs, store = solved
    settings = TimingSettings(rounds=3, max_rounds=3, warm_up_s=0.01, latency_s=0.02, throughput_s=0.02)
    timing = Timing(settings, cache=None, lock=store.folder / "lock")
    told: list[tuple[int, int, str]] = []
    with store.locked():
        assert measure_jobs(jobs, store, timing=timing, on_step=lambda *step: told.append(step)) == 4
        assert measure_jobs(jobs, store, timing=timing) == 0
        for row in store.measured().values():
            append_row(store.measured_path, row | {"is_noisy": row["case"] == jobs[0].case.address})
        assert measure_jobs(jobs, store, timing=timing) == 0
        assert measure_jobs(jobs, store, timing=timing, retry=True) == 1
    assert [step[:2] for step in told] == [(0, 4), (1, 4), (2, 4), (3, 4)]
    rows = store.measured()
    assert set(rows) == {job.case.address for job in jobs}
    for job in jobs:
        row = rows[job.case.address]
        assert row["error"] is None, row["error"]
        assert row["executor"] == ("threads" if job.facts["objective"] == "throughput" else "serial")
        assert row["measured_s"] > 0
        objective_s = store.rows()[job.case.address]["objective_s"]
        assert row["prediction_error"] == pytest.approx(objective_s / row["measured_s"] - 1)
    page, _ = write_report(store.folder)
    assert "measured ms (predicted off by)" in page.read_text()


def test_outputs_are_compared_of_every_placement(solved: tuple[tuple[Job, ...], Store]) -> None:
    """Every case is executed, not only the best of a method; rows say how far the tensors are apart."""
    jobs, store = solved
    with store.locked():
        assert measure_jobs(jobs, store, "outputs") == len(jobs)
        assert measure_jobs(jobs, store, "outputs", retry=True) == 0
    for row in store.measured().values():
        assert row["error"] is None, row["error"]
        assert row["num_tensors"] >= 1
        assert (row["num_mismatches"], row["executor"]) == (0, "serial")
        assert row["max_error"] <= 1e-5


def test_a_verdict_is_measured_against_the_simplest_way(solved: tuple[tuple[Job, ...], Store]) -> None:
    """One group of cores has nothing to split: the row has the verdict, and what was measured over the device alone."""
    from placekit.runtime.timing.timing import Timing, TimingSettings

    jobs, store = solved
    settings = TimingSettings(rounds=3, max_rounds=3, warm_up_s=0.01, latency_s=0.02, throughput_s=0.02)
    timing = Timing(settings, cache=None, lock=store.folder / "lock")
    with store.locked():
        assert measure_jobs(jobs[:1], store, "verdicts", timing=timing) == 1
    row = store.measured()[jobs[0].case.address]
    assert row["error"] is None, row["error"]
    assert row["verdict"]["choice"] == "device"
    assert row["verdict"]["error"] >= 0.01
    assert row["verdict"]["measured_gain"] > 0


def test_what_cannot_be_executed_is_left_out(solved: tuple[tuple[Job, ...], Store]) -> None:
    """A problem without a model, a device that is not here, a case without a placement; of two seeds the better."""
    jobs, store = solved
    rows = store.rows()
    job = jobs[0]
    assert isinstance(job.problem, Problem)
    assert measurable([job], rows) == [job]
    assert measurable([replace(job, model_file=None)], rows) == []
    away = tuple(device.replace(openvino=None) for device in job.problem.platform.devices)
    platform = job.problem.platform.replace(devices=away)
    assert measurable([replace(job, problem=job.problem.replace(platform=platform))], rows) == []
    assert measurable([job], {job.case.address: {**rows[job.case.address], "objective_s": None}}) == []
    other = replace(job, case=replace(job.case, seed=7))
    better = {**rows[job.case.address], "objective_s": rows[job.case.address]["objective_s"] / 2}
    assert measurable([job, other], rows | {other.case.address: better}) == [other]
    assert measurable([job, other], rows | {other.case.address: better}, is_every=True) == [job, other]


def test_a_placement_that_cannot_run_gets_a_row_that_says_why(solved: tuple[tuple[Job, ...], Store]) -> None:
    """A model file that is gone is no reason to stop."""
    jobs, store = solved
    gone = [replace(jobs[0], model_file=store.folder / "gone.xml")]
    with store.locked():
        assert measure_jobs(gone, store) == 1
    assert "gone.xml" in store.measured()[jobs[0].case.address]["error"]


@pytest.mark.slow
def test_pytorch_programs_run_by_torch(tmp_path: Path) -> None:
    """A file of torch.export is a model of a suite; its tensors are compared with the whole program's."""
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.SiLU(), torch.nn.Linear(16, 2)).eval()
    torch.export.save(torch.export.export(module, (torch.zeros(5, 8),)), tmp_path / "tiny.pt2")
    suite = SUITE.replace("tiny.xml", "tiny.pt2").replace("measure = true", 'measure = "outputs"')
    (tmp_path / "suite.toml").write_text(suite.replace("groups = 1", 'devices = "cpu"'))
    plan = make_plan(read_suite(str(tmp_path / "suite.toml")), tmp_path / "results")
    store = Store(tmp_path / "results")
    with store.locked():
        run_jobs(plan.jobs, store, lambda: ThreadPoolExecutor(1))
        assert measure_jobs(plan.jobs, store, "outputs") > 0
    for row in store.measured().values():
        assert row["error"] is None
        assert (row["num_mismatches"], row["num_stages"]) == (0, 1)
        assert row["num_tensors"] > 0
