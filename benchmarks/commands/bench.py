"""``placekit bench``: run the cases of a suite, one row each; finished cases are kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from placekit.benchmarks.cases.plan import Job, SuitePlan, make_plan
from placekit.benchmarks.cases.suite import read_suite
from placekit.benchmarks.cases.suite_schema import SuiteModel
from placekit.benchmarks.execute import measure_jobs
from placekit.benchmarks.published import kept_rows, predictions, read_measurements, write_predictions
from placekit.benchmarks.report.truth import truth
from placekit.benchmarks.report.write import markdown_table
from placekit.benchmarks.rewards import REWARD
from placekit.benchmarks.runner import SuiteProgress, run_jobs
from placekit.benchmarks.store import Store
from placekit.cli.console import diagnostics, print_json, print_line, show_parts
from placekit.cli.options import JsonOption, OptionsFile
from placekit.cli.output.progress import StepBar
from placekit.cli.output.render import plain_table
from placekit.cli.output.units import format_time
from placekit.cli.parameters import COMMON, OUTPUT, SEARCH, option
from placekit.model.errors import InvalidProblemError, PlacekitError, check_names
from placekit.model.sizes import format_seconds, format_share
from placekit.solve.stop import relative_gap

if TYPE_CHECKING:  # needs the extra cluster
    from placekit.benchmarks.on_cluster import CaseExecutor

MAX_REASONS = 8
PUBLISHED = "published"
"""Suite that predicts what other people measured; it solves nothing."""


@dataclass(frozen=True)
class CaseChoice:
    """Cases of a suite that run."""

    panel: ClassVar[str] = "Cases"

    method: list[str] | None = option(None, "Only this method or label; repeatable.", "NAME", names="--method -m")
    workload: str | None = option(None, "Only models whose name contains this text.", "TEXT")
    case: list[str] | None = option(None, "Only this case; repeatable.", "ID")
    shard: str | None = option(None, "Only the third of 16 parts of about the same work, as in an array job.", "3/16")

    def of(self, jobs: list[Job]) -> list[Job]:
        """Return the chosen ones of `jobs`."""
        jobs = self._named(jobs)
        if self.shard is None:
            return jobs
        part = re.fullmatch(r"(\d{1,6})/(\d{1,6})", self.shard)
        if part is None or not 1 <= int(part[1]) <= int(part[2]):
            raise InvalidProblemError(f"--shard {self.shard}: write PART/PARTS, from 1/16 to 16/16")
        # by address, so that no part gets all cases of one method
        mine = set(sorted(job.case.address for job in jobs)[int(part[1]) - 1 :: int(part[2])])
        return [job for job in jobs if job.case.address in mine]

    def _named(self, jobs: list[Job]) -> list[Job]:
        workload = self.workload and [self.workload]
        jobs = _chosen(jobs, "--method", self.method, lambda job: (job.case.method, str(job.facts["label"])))
        jobs = _chosen(jobs, "--workload", workload, lambda job: (str(job.facts["model"]),), str.__contains__)
        return _chosen(jobs, "--case", self.case, lambda job: (job.case.address,))


@dataclass(frozen=True)
class Running:
    """Options for running the chosen cases."""

    panel: ClassVar[str] = COMMON

    output: Path = option(Path("results"), "Folder of the results.", "FOLDER", names="--output -o", panel=OUTPUT)
    time_limit_s: float | None = option(None, "Longest solving time of a case.", "SECONDS", names="--time-limit")
    dry_run: bool = option(False, "Make the problems and count the cases, and solve nothing.")
    again: bool = option(False, "Run cases that have a row again.")
    retry: bool = option(False, "Run failed cases and disturbed timings again.")
    workers: int = option(1, "Number of solves that run in parallel.", "N", panel=SEARCH)
    cluster: str | None = option(None, "Run on the workers of this Dask scheduler instead.", "ADDRESS", panel=SEARCH)
    measurements: Path | None = option(
        None, "published: file of measurements (.jsonl) in place of placekit's own.", "FILE"
    )


def bench(
    suite: Annotated[
        str,
        typer.Argument(
            help="A suite that comes with placekit (makespan, papers, scaling, ...), or one of your own (.toml)."
        ),
    ],
    folder: Annotated[
        Path | None, typer.Argument(help="Folder with the files that the suite names.", exists=True, file_okay=False)
    ] = None,
    *,
    choice: CaseChoice,
    running: Running,
    options: OptionsFile = None,  # noqa: ARG001  # acts in its callback
    as_json: JsonOption = False,
) -> None:
    """Run a benchmark suite; a row is written when its solve ends, and rows that exist are not made again."""
    if suite == PUBLISHED:
        _published(running, as_json=as_json)
        return
    if running.measurements is not None:
        raise InvalidProblemError(f"--measurements goes with the suite {PUBLISHED}, not with {suite}")
    store = Store(running.output)
    chosen = read_suite(suite, folder)
    if running.time_limit_s is not None:
        chosen = chosen.at_most(running.time_limit_s)
    with store.locked(), _cluster(chosen.content, running, is_quiet=as_json) as there:
        plan = make_plan(chosen, store.folder)
        known = store.rows()
        jobs = choice.of(list(plan.jobs))
        wanted = [job for job in jobs if running.again or _is_to_do(known.get(job.case.address), running.retry)]
        if not as_json:
            _announce(plan, jobs, wanted, store)
        if running.dry_run:
            _tell_plan(jobs, wanted, plan, running.workers, as_json=as_json)
            return
        _run(wanted, store, chosen.content, running, there, is_quiet=as_json)
        if chosen.content.measure:
            _measure(jobs, store, chosen.content, retry=running.retry, is_quiet=as_json)
        _finish(jobs, plan, store, as_json=as_json)


@contextmanager
def _cluster(content: SuiteModel, running: Running, *, is_quiet: bool) -> Iterator[CaseExecutor | None]:
    """Connect with the cluster, before any work; there is none to connect with for what measures this machine."""
    if running.cluster is None or running.dry_run:
        yield None
        return
    if running.workers != 1:
        raise InvalidProblemError("--workers is of this machine; the workers of --cluster are as many as you started")
    if content.isolate:
        if not is_quiet:
            print_line("isolated suite: its cases measure memory and time on this machine, and run here")
        yield None
        return
    from placekit.benchmarks.on_cluster import cluster_executor

    with cluster_executor(running.cluster) as there:
        yield there


def _published(running: Running, *, as_json: bool) -> None:
    """Predict published measurements, write the predictions, and print the table `truth`."""
    path = running.measurements or kept_rows()
    with StepBar() as bar:
        found = list(predictions(read_measurements(path), on_step=lambda done, total: bar(done, total, "")))
    written = running.output / f"{PUBLISHED}.jsonl"
    running.output.mkdir(parents=True, exist_ok=True)
    write_predictions(found, written)
    if as_json:
        print_json({"suite": PUBLISHED, "rows": len(found), "files": {"rows": str(written)}})
        return
    for title, table in truth(found):
        print_line(f"**{title}**\n\n{markdown_table(table)}\n")
    print_line(f"{len(found)} measurements of {path}, predictions in {written}")


def _chosen(
    jobs: list[Job],
    option: str,
    wanted: list[str] | str | None,
    names_of: Callable[[Job], tuple[str, ...]],
    has: Callable[[str, str], bool] = str.__eq__,
) -> list[Job]:
    """Return the jobs of which a name is, or contains, one of the wanted names; without wanted names, all jobs."""
    if not wanted or not jobs:  # what is left out of a suite without jobs is told
        return jobs
    known = (name for job in jobs for name in names_of(job))
    check_names(option, wanted, known, lambda name, known: has(known, name))
    return [job for job in jobs if any(has(name, each) for name in names_of(job) for each in wanted)]


def _is_to_do(row: dict[str, Any] | None, retry: bool) -> bool:
    return row is None or (retry and row["error"] is not None)


def _announce(plan: SuitePlan, jobs: list[Job], wanted: list[Job], store: Store) -> None:
    known = len(jobs) - len(wanted)
    print_line(
        f"{plan.suite.name}: {len(jobs)} cases, {known} already in {store.path}, at most {_at_most_s(wanted):.0f} s of "
        "solving"
    )
    if len(jobs) < len(plan.jobs):
        told = f"left out: {len(plan.jobs) - len(jobs)} of {len(plan.jobs)} cases, which the options do not choose"
        more = f", and {len(plan.left_out)} combinations that cannot run (--json lists them)" if plan.left_out else ""
        print_line(told + more)
        return
    for reason in plan.left_out[:MAX_REASONS]:
        print_line(f"left out: {reason}")
    if len(plan.left_out) > MAX_REASONS:
        print_line(
            f"and {len(plan.left_out) - MAX_REASONS} more reasons for leaving something out (--json has them all)"
        )


def _at_most_s(jobs: list[Job]) -> float:
    return sum(job.case.at_most_s for job in jobs)


def _tell_plan(jobs: list[Job], wanted: list[Job], plan: SuitePlan, workers: int, *, as_json: bool) -> None:
    """Print the cases that would run, and their longest time."""
    at_most_s = _at_most_s(wanted)
    if as_json:
        told = {"suite": plan.suite.name, "cases": len(jobs), "to_do": len(wanted), "at_most_s": at_most_s}
        print_json(told | {"left_out": list(plan.left_out)})
        return
    parts: dict[tuple[str, str], list[Job]] = {}
    for job in wanted:
        objective, contiguity = str(job.facts["objective"]), str(job.facts["contiguity"])
        parts.setdefault(
            (objective if contiguity == "none" else f"{objective}, {contiguity}", str(job.facts["label"])), []
        ).append(job)
    table = plain_table("objective", "method", "cases", "at most", left=2)
    for (objective, label), members in parts.items():
        table.add_row(objective, label, f"{len(members)}", f"{_at_most_s(members):.0f} s")
    show_parts([table])
    print_line(
        f"{len(wanted)} of {len(jobs)} cases to do: at most {format_seconds(at_most_s / workers)} of solving with "
        f"--workers {workers}, less if methods end early"
    )


def _run(
    wanted: list[Job], store: Store, content: SuiteModel, running: Running, there: CaseExecutor | None, *,
    is_quiet: bool,
) -> None:  # fmt: skip
    """Run cases on the cluster `there`, and here what measures the devices of this machine."""
    from placekit.benchmarks.workers import make_executor

    workers = 1 if content.isolate else running.workers  # beside others neither memory nor time is its own
    elsewhere = [] if there is None else [job for job in wanted if REWARD not in job.case.params]
    here = [job for job in wanted if job not in elsewhere] if elsewhere else wanted
    with StepBar() as bar:

        def tell(progress: SuiteProgress) -> None:
            bar(progress.num_done, progress.num_total, f"about {progress.remaining_s:.0f} s left")
            if progress.row is not None and not is_quiet:
                print_line(_told(progress, progress.row))

        told = f"what is done is in {store.path}, and the same command goes on from there"
        try:
            if there is not None and elsewhere:
                run_jobs(elsewhere, store, lambda: there, num_workers=lambda: there.width, on_progress=tell)
            if here:
                run_jobs(
                    here, store, lambda: make_executor(workers), num_workers=workers,
                    is_isolated=content.isolate, on_progress=tell,
                )  # fmt: skip
        except KeyboardInterrupt:
            diagnostics().print(f"stopped; {told}", soft_wrap=True)
            raise
        except PlacekitError as error:
            raise PlacekitError(f"{error}; {told}") from None


def _measure(jobs: list[Job], store: Store, content: SuiteModel, *, retry: bool, is_quiet: bool) -> None:
    with StepBar() as bar:
        count = measure_jobs(jobs, store, content.measure, with_baselines=content.baselines, retry=retry, on_step=bar)
    if not is_quiet:
        print_line(f"measured {count} placements, rows in {store.measured_path}")


def _finish(jobs: list[Job], plan: SuitePlan, store: Store, *, as_json: bool) -> None:
    rows = store.rows()
    mine = [rows[job.case.address] for job in jobs if job.case.address in rows]
    failed = [row for row in mine if row["error"] is not None]
    if as_json:
        told = {"suite": plan.suite.name, "cases": len(jobs), "rows": len(mine), "failed": len(failed)}
        print_json(told | {"left_out": list(plan.left_out), "files": {"rows": str(store.path)}})
        return
    print_line(f"{len(mine)} of {len(jobs)} cases have a row in {store.path}, {len(failed)} of them an error")
    print_line(f"next: placekit report {store.folder}")


def _told(progress: SuiteProgress, row: dict[str, Any]) -> str:
    told = f"[{progress.num_done}/{progress.num_total}] {row['model']} {row['objective']} {row['contiguity']} "
    told += f"{row['label']} seed {row['seed']}: "
    if row["error"] is not None:
        return told + f"error: {row['error']}"
    gap = relative_gap(row["objective_s"], row["bound_s"])
    return told + (
        f"{format_time(row['objective_s'])}, bound {format_time(row['bound_s'])}, gap {format_share(gap)}, "
        f"{row['status']}, {format_time(row['runtime_s'])}"
    )
