"""Learners with measured rewards in a suite, and placements timed in turns."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from placekit.benchmarks.cases.plan import make_plan
from placekit.benchmarks.cases.suite import read_suite
from placekit.benchmarks.execute import measure_jobs
from placekit.benchmarks.report.named import named_tables
from placekit.benchmarks.report.sources import read_source
from placekit.benchmarks.runner import run_jobs
from placekit.benchmarks.store import Store

SUITE = """
name = "learners"
time_limit_s = 2.0
measure = "together"
[[model]]
file = "tiny.xml"
[[platform]]
name = "two groups"
groups = 2
costs = "analytic"
[[objective]]
name = "throughput"
[[method]]
name = "gdp"
label = "gdp"
params = { reward = "measured" }
[[method]]
name = "greedy"
params = { reward = "measured" }
[[method]]
name = "hsdag"
params = { reward = "guessed" }
[[method]]
name = "single"
"""


@pytest.mark.slow
def test_a_learner_measures_and_all_methods_are_timed_in_turns(tmp_path: Path) -> None:
    """The learner's row counts its measurements; what does not learn, and unknown rewards, are left out by name."""
    pytest.importorskip("torch")
    pytest.importorskip("openvino")
    from openvino_models import save_product

    from placekit.machine import usable_cpus
    from placekit.runtime.timing.timing import Timing, TimingSettings

    if len(usable_cpus()) < 2:
        pytest.skip("two groups of cores need two cores")
    save_product(tmp_path / "tiny.xml")
    (tmp_path / "suite.toml").write_text(SUITE)
    store = Store(tmp_path / "results")
    plan = make_plan(read_suite(str(tmp_path / "suite.toml")), store.folder)
    assert [job.facts["label"] for job in plan.jobs] == ["gdp", "single"]
    assert any("greedy does not learn" in reason for reason in plan.left_out)
    assert any("no reward 'guessed'" in reason for reason in plan.left_out)
    settings = TimingSettings(rounds=3, max_rounds=3, warm_up_s=0.01, latency_s=0.0, throughput_s=0.02)
    timing = Timing(settings, cache=None, lock=tmp_path / "lock")
    with store.locked():
        run_jobs(plan.jobs, store, lambda: ThreadPoolExecutor(1))
        assert measure_jobs(plan.jobs, store, "together", timing=timing) == 2
        assert measure_jobs(plan.jobs, store, "together", timing=timing) == 0
    learned = store.rows()[plan.jobs[0].case.address]
    assert learned["error"] is None
    assert learned["info"]["measured.sample_s"] > 0
    assert "--case" in learned["command"]
    row = store.measured()[plan.jobs[0].case.address]
    assert row["error"] is None
    assert row["measured_s"] > 0
    assert row["found_s"] == [learned["info"]["measured.sample_s"]]
    assert {"single CPU[0]", "all cores", "AUTO:CPU"} <= row["references"].keys()
    ((title, table),) = named_tables("measured", read_source([store.folder]))
    assert title is not None
    assert "throughput on two groups" in title
    assert [line[0] for line in table.rows][-2:] == ["gdp", "single"]
