"""The durable runner: nothing repeated, nothing lost, whatever dies."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from placekit.benchmarks.cases.plan import Case, Job, make_plan
from placekit.benchmarks.cases.solve_case import command_of, solve_case, stop_of, time_to_best_s
from placekit.benchmarks.cases.suite import read_suite
from placekit.benchmarks.report.answers import write_answers
from placekit.benchmarks.report.groups import read_groups
from placekit.benchmarks.runner import SuiteProgress, remaining_s, run_jobs
from placekit.benchmarks.store import Store, append_row
from placekit.benchmarks.workers import make_executor, shares_of
from placekit.io.files.problem_json import read_problem
from placekit.io.files.result_json import read_result
from placekit.model.errors import InvalidFileError, InvalidProblemError, PlacekitError
from placekit.model.problem import Problem
from placekit.solve.result import Incumbent
from placekit.verification.verify import Outcome, verify

SUITE = """
name = "small"
time_limit_s = 5.0
[[model]]
family = "chains"
params = { num_ops = 40, num_devices = 2 }
[[objective]]
name = "throughput"
[[method]]
name = "random:150"
seeds = [0, 1, 2, 3, 4, 5, 6, 7]
[[method]]
name = "greedy"
[[method]]
name = "single"
"""


@pytest.fixture
def suite_file(tmp_path: Path) -> Path:
    """Return a suite of ten cases that take some milliseconds each."""
    path = tmp_path / "small.toml"
    path.write_text(SUITE)
    return path


@pytest.fixture
def jobs(suite_file: Path, tmp_path: Path) -> tuple[Job, ...]:
    """Return its jobs."""
    return make_plan(read_suite(str(suite_file)), tmp_path / "results").jobs


def outcomes(store: Store) -> dict[str, tuple[Any, ...]]:
    """Return what must be equal from run to run, by case."""
    keys = ("method", "seed", "objective_s", "bound_s", "status", "evaluations", "device_of_op", "error")
    return {case: tuple(map(str, (row[key] for key in keys))) for case, row in store.rows().items()}


class Inline(Executor):
    """Runs every task at once, in this thread; some of them kill the worker."""

    def __init__(self, deadly: set[str]) -> None:
        self.deadly = deadly
        self.is_broken = False

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run now; a deadly case breaks the executor as a dying process breaks its pool."""
        if self.is_broken:
            raise BrokenProcessPool("broken")
        future: Future[Any] = Future()
        if args[0].case.address in self.deadly:
            self.is_broken = True
            future.set_exception(BrokenProcessPool("died"))
        else:
            future.set_result(fn(*args, **kwargs))
        return future


def test_rows_are_complete_and_progress_counts(jobs: tuple[Job, ...], tmp_path: Path) -> None:
    """One row per case, told one by one, with all that a reader needs."""
    store, told = Store(tmp_path / "results"), list[SuiteProgress]()
    with store.locked():
        run_jobs(jobs, store, lambda: ThreadPoolExecutor(1), on_progress=told.append)
    assert [progress.num_done for progress in told] == list(range(11))
    assert told[-1].remaining_s == 0
    rows = store.rows()
    assert set(rows) == {job.case.address for job in jobs}
    for row in rows.values():
        assert row["error"] is None
        assert len(row["device_of_op"]) == row["num_ops"] == 40
        assert row["single_device_s"] >= row["objective_s"] > 0
        assert row["machine"]["cores"] >= 1
        assert row["command"].startswith("placekit solve problems/")
        assert row["trace"][-1][1] == row["objective_s"]


def test_a_case_that_kills_its_worker_gets_a_row_and_the_rest_goes_on(jobs: tuple[Job, ...], tmp_path: Path) -> None:
    """With four cases in flight the suspects are tried alone; the guilty one has an error row, the others results."""
    store, deadly = Store(tmp_path / "results"), {jobs[2].case.address, jobs[9].case.address}
    with store.locked():
        run_jobs(jobs, store, lambda: Inline(deadly), num_workers=4)
    rows = store.rows()
    assert {case for case, row in rows.items() if row["error"]} == deadly
    assert len(rows) == 10
    assert rows[jobs[2].case.address]["error"] == "the worker process died"
    assert len((tmp_path / "results" / "rows.jsonl").read_text().splitlines()) == 10


@pytest.mark.slow
def test_isolated_jobs_have_an_executor_each(jobs: tuple[Job, ...], tmp_path: Path) -> None:
    """One after the other, also where one of them kills its worker."""
    made: list[Inline] = []

    def make() -> Inline:
        made.append(Inline({jobs[1].case.address}))
        return made[-1]

    store = Store(tmp_path / "results")
    with store.locked():
        run_jobs(jobs, store, make, is_isolated=True)
    rows = store.rows()
    assert [job.case.address for job in jobs] == list(rows)
    assert [case for case, row in rows.items() if row["error"]] == [jobs[1].case.address]
    assert len(made) == len(jobs)


def test_a_solve_tells_its_memory_and_what_the_method_says(jobs: tuple[Job, ...]) -> None:
    """In a process of its own, after a warm-up on another problem."""
    job = replace(jobs[0], warm_up_problem=jobs[1].problem)
    with make_executor(1) as executor:
        row = executor.submit(solve_case, job).result(timeout=120)
    assert row["error"] is None
    assert row["info"] == {}
    if sys.platform == "linux":
        assert 0 <= row["memory_bytes"] < 1e9


def test_a_training_plan_is_a_row(tmp_path: Path) -> None:
    """With its proof, and its command."""
    (tmp_path / "plans.toml").write_text(
        'name = "plans"\n[[model]]\nfamily = "training-chain"\nparams = { num_blocks = 4 }\nmachines = [[4, 8.0]]\n'
        '[[method]]\nname = "dp"\n'
    )
    (job,) = make_plan(read_suite(str(tmp_path / "plans.toml")), tmp_path / "results").jobs
    store = Store(tmp_path / "results")
    with store.locked():
        run_jobs([job], store, lambda: ThreadPoolExecutor(1))
    (row,) = store.rows().values()
    assert (row["error"], row["status"]) == (None, "optimal")
    assert row["bound_s"] == pytest.approx(row["objective_s"], rel=1e-6)
    assert row["num_stages"] == len(row["stages"]) >= 1
    assert row["command"].startswith("placekit train-plan ")


def test_an_error_is_a_row(jobs: tuple[Job, ...]) -> None:
    """A method that fails does not end the sweep; its row says why."""
    row = solve_case(replace(jobs[0], case=replace(jobs[0].case, params={"no_such": 1})))
    assert row["status"] == "error"
    assert "no_such" in row["error"]
    assert json.loads(json.dumps(row)) == row


def test_a_solve_cut_short_gives_no_row(jobs: tuple[Job, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C during a solve, or during that of its warm start, ends the run without a row."""
    from placekit.solve.solve import solve
    from placekit.solve.stop import StopReason

    def cut_short(*args: Any, **kwargs: Any) -> Any:
        return replace(solve(*args, **kwargs), stop_reason=StopReason.USER)

    monkeypatch.setattr("placekit.benchmarks.cases.solve_case.solve", cut_short)
    store = Store(tmp_path / "results")
    warm = replace(jobs[0], case=replace(jobs[0].case, warm_start="greedy"))
    for job in (jobs[0], warm):
        with store.locked(), pytest.raises(KeyboardInterrupt):
            run_jobs([job], store, lambda: Inline(set()))
    assert store.rows() == {}


def test_a_real_worker_that_dies_is_noticed(jobs: tuple[Job, ...]) -> None:
    """A process pool of the runner breaks when its worker is killed, and a new one works."""
    with make_executor(1) as executor:
        future = executor.submit(os.kill, executor.submit(os.getpid).result(timeout=60), signal.SIGKILL)
        with pytest.raises(BrokenProcessPool):
            future.result(timeout=60)


def start(suite: Path, results: Path) -> subprocess.Popen[bytes]:
    """Start ``placekit bench``."""
    command = [sys.executable, "-m", "placekit.cli.main", "bench", str(suite), "-o", str(results), "--json"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def kill_and_finish(suite: Path, folder: Path, kills: int) -> None:
    """Kill a run `kills` times at random points, let it finish, and compare with a run that was left alone."""
    rng = random.Random(kills)
    clean, killed = Store(folder / "clean"), Store(folder / "killed")
    assert start(suite, clean.folder).wait(120) == 0
    for _ in range(kills):
        before = killed.path.stat().st_size if killed.path.is_file() else 0
        running = start(suite, killed.folder)
        # half of the kills come anywhere from the start on, the others soon after a row was written
        deadline = time.monotonic() + (rng.uniform(0, 2.5) if rng.random() < 0.5 else 20.0)
        while running.poll() is None and time.monotonic() < deadline:
            if killed.path.is_file() and killed.path.stat().st_size > before:
                time.sleep(rng.uniform(0, 0.1))
                break
            time.sleep(0.005)
        running.kill()
        running.wait(60)
    last = start(suite, killed.folder)
    assert last.wait(120) == 0, last.stderr.read().decode() if last.stderr else ""
    assert outcomes(killed) == outcomes(clean)
    lines = killed.path.read_text().splitlines()
    assert len(lines) == len(killed.rows()) == 10  # nothing lost, nothing repeated


@pytest.mark.slow
def test_killed_twice_the_rows_are_those_of_one_clean_run(suite_file: Path, tmp_path: Path) -> None:
    """Kill -9 at random points, then finish."""
    kill_and_finish(suite_file, tmp_path, 2)


@pytest.mark.slow
def test_killed_twenty_times_the_rows_are_those_of_one_clean_run(suite_file: Path, tmp_path: Path) -> None:
    """The same, more often."""
    kill_and_finish(suite_file, tmp_path, 20)


def threads_and_cores() -> tuple[set[int], set[int], int]:
    """Return the cores of this process, those of all its threads, and how many threads numba would use."""
    import numba

    threads = [int(task.name) for task in Path("/proc/self/task").iterdir()]
    cores = set().union(*(os.sched_getaffinity(thread) for thread in threads))
    return set(os.sched_getaffinity(0)), cores, numba.get_num_threads()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot bind processes to cores")
def test_workers_share_the_cores_and_their_pools_fit() -> None:
    """As many workers as cores: each has one core, for all of its threads, and pools of one."""
    own = sorted(os.sched_getaffinity(0))
    with make_executor(len(own)) as executor:
        for mine, all_threads, numba_threads in [executor.submit(threads_and_cores).result(60) for _ in own]:
            assert len(mine) == 1
            assert mine <= set(own)
            assert all_threads == mine
            assert numba_threads == 1


@pytest.mark.parametrize("num_cores", [1, 2, 3, 8, 13])
@pytest.mark.parametrize("num_workers", [1, 2, 3, 5, 16])
def test_shares_are_even_and_use_every_core(num_cores: int, num_workers: int) -> None:
    """No worker without a core, no core twice unless there are too few, sizes at most one apart."""
    cores = list(range(10, 10 + num_cores))
    shares = shares_of(cores, num_workers)
    sizes = [len(share) for share in shares]
    assert len(shares) == num_workers
    assert max(sizes) - min(sizes) <= 1
    assert {core for share in shares for core in share} == set(cores)
    assert sum(sizes) == max(num_cores, num_workers)


def test_workers_die_with_their_parent(tmp_path: Path) -> None:
    """After kill -9 of the runner no worker is left behind."""
    code = (
        "import os, time\nfrom placekit.benchmarks.workers import make_executor\n"
        "if __name__ == '__main__':\n"
        "    pool = make_executor(1)\n    print(pool.submit(os.getpid).result(), flush=True)\n"
        "    time.sleep(60)\n"
    )
    script = tmp_path / "parent.py"
    script.write_text(code)
    parent = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    parent.kill()
    parent.wait(60)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{worker}/stat").is_file() and ") Z " in Path(f"/proc/{worker}/stat").read_text():
            return  # dead, and not yet collected by whoever adopted it
        time.sleep(0.05)
    pytest.fail(f"worker {worker} outlived its parent")


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    """A second process is refused while the first holds the folder; afterwards it may write."""
    store = Store(tmp_path / "results")
    with store.locked(), pytest.raises(PlacekitError, match="another process is writing"), store.locked():
        pass
    with store.locked():
        pass


def test_foreign_rows_are_refused(tmp_path: Path) -> None:
    """A file of other rows is no store."""
    append_row(tmp_path / "rows.jsonl", {"benchmark": "other"})
    with pytest.raises(InvalidFileError, match="line 1: no row of a suite"):
        Store(tmp_path).rows()


def test_append_cuts_an_unfinished_line_of_any_length(tmp_path: Path) -> None:
    """Also a rest that is longer than what is read at a time."""
    path = tmp_path / "rows.jsonl"
    append_row(path, {"a": 1})
    kept = path.read_bytes()
    path.write_bytes(kept + b'{"b": "' + b"x" * 200_000)
    append_row(path, {"c": 2})
    assert path.read_bytes() == kept + b'{"c": 2}\n'
    path.write_bytes(b"x" * 70_000)
    append_row(path, {"c": 2})
    assert path.read_bytes() == b'{"c": 2}\n'


def test_remaining_time_learns_from_what_cases_took() -> None:
    """A method that used half of its limit is expected to do so again; an unknown one its whole limit."""

    def case(method: str) -> Case:
        return Case("p", method, {}, {}, None, 0, 10.0)

    assert remaining_s([case("a"), case("b")], [], 1) == 20
    assert remaining_s([case("a"), case("b")], [("a", 10.0, 4.0), ("a", 10.0, 6.0)], 1) == 15
    assert remaining_s([case("a"), case("b")], [("a", 10.0, 5.0)], 2) == 7.5


def test_time_to_best_is_when_it_was_first_reached() -> None:
    """Lines that only raise the bound come later and do not count."""
    trace = [Incumbent(0.1, None, 1.0), Incumbent(0.2, 5.0, 1.0), Incumbent(0.5, 3.0, 1.0), Incumbent(2.0, 3.0, 2.0)]
    assert time_to_best_s(trace) == 0.5
    assert time_to_best_s(trace[:1]) is None


def test_commands_make_the_row_again(jobs: tuple[Job, ...]) -> None:
    """`solve` with the same problem, seed and limits; `bench --case` where `solve` has no such option."""
    file = jobs[0].facts["problem_file"]
    assert command_of(jobs[1]) == f"placekit solve {file} -m random:150 --seed 1 --time-limit 5 -o again.json"
    warm = replace(jobs[1], case=replace(jobs[1].case, warm_start="greedy"))
    assert command_of(warm).count("placekit solve") == 2
    assert "--warm-start start.json" in command_of(warm)
    budget = replace(jobs[1], case=replace(jobs[1].case, max_evaluations=7))
    again = f"placekit bench small.toml -o . --again --case {budget.case.address} --time-limit 5"
    assert command_of(budget) == again
    odd = replace(jobs[1], case=replace(jobs[1].case, time_limit_s=0.12345678901))
    assert "--time-limit 0.12345678901 " in command_of(odd)
    assert stop_of(budget.case).time_limit_s == 5


@pytest.mark.slow
def test_learning_that_was_cut_off_is_made_again_by_its_updates(jobs: tuple[Job, ...], tmp_path: Path) -> None:
    """The command of a row that the clock ended asks for the updates that it made, and gives the same answer."""
    pytest.importorskip("torch")
    from typer.testing import CliRunner

    from placekit.cli.main import app
    from placekit.io.files.problem_json import write_problem

    job = replace(jobs[0], case=replace(jobs[0].case, method="rnn", params={}, seed=3, time_limit_s=0.5))
    row = solve_case(job)
    assert row["stop_reason"] == "time"
    arguments = row["command"].split()
    assert "--time-limit 50" in row["command"]
    assert any(argument.startswith("--param=updates=") for argument in arguments)
    assert isinstance(job.problem, Problem)
    write_problem(job.problem, tmp_path / "p.problem.json")
    arguments[2], arguments[-1] = str(tmp_path / "p.problem.json"), str(tmp_path / "again.json")
    assert CliRunner().invoke(app, arguments[1:]).exit_code == 0
    made = json.loads((tmp_path / "again.result.json").read_text())
    assert made["objective"] == row["objective_s"]
    assert made["evaluations"] <= row["evaluations"]  # those of the update that the clock cut off, and undid, are more


def test_an_executor_without_workers_is_refused() -> None:
    """Nothing would ever be done."""
    with pytest.raises(InvalidProblemError, match="0 workers"):
        make_executor(0)


def test_answers_of_rows_become_files_that_verify(suite_file: Path, tmp_path: Path) -> None:
    """`answers = true` keeps whole results; the best one of a problem is a file, with its certificate."""
    text = SUITE.replace("time_limit_s", "answers = true\ntime_limit_s") + '[[method]]\nname = "dp"\n'
    suite_file.write_text(text)
    results, answers = tmp_path / "results", tmp_path / "answers"
    plan = make_plan(read_suite(str(suite_file)), results)
    store = Store(results)
    with store.locked():
        run_jobs(plan.jobs, store, lambda: Inline(set()))
    assert write_answers(read_groups(results), answers) == 1
    (path,) = answers.iterdir()
    (problem_file,) = (results / "problems").iterdir()
    result, problem = read_result(path), read_problem(problem_file)
    assert result.objective == min(row["objective_s"] for row in Store(results).rows().values())
    assert verify(result, problem)["bound"].outcome is Outcome.CHECKED


def test_rows_without_answers_make_no_files(jobs: tuple[Job, ...], tmp_path: Path) -> None:
    """The error says which suites keep them."""
    store = Store(tmp_path / "results")
    with store.locked():
        run_jobs(jobs[:1], store, lambda: Inline(set()))
    with pytest.raises(InvalidFileError, match="`answers = true`"):
        write_answers(read_groups(tmp_path / "results"), tmp_path / "answers")
    assert not (tmp_path / "answers").exists()
