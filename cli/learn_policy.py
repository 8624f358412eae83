"""``placekit learn --generate`` and ``--train``: solved problems in a folder, and a policy for all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from placekit.cli.console import check_writable, print_json, print_line
from placekit.cli.options import parse_params
from placekit.cli.progress import StepBar
from placekit.cli.training_run import TrainingRun
from placekit.io.problem_json import read_problem, write_problem
from placekit.io.result_json import read_result, write_result
from placekit.model.errors import InvalidProblemError
from placekit.solve.params import read_params
from placekit.solve.solve import solve
from placekit.solve.stop import MaxRuntime, StopReason

if TYPE_CHECKING:
    from placekit.learned.training import Metrics
    from placekit.model.placement import Placement
    from placekit.model.problem import Problem

__all__ = ["DataSetOptions", "generate", "train"]

_EVERY = 50
_PROBLEM, _RESULT = ".problem.json", ".result.json"


@dataclass(frozen=True)
class DataSetOptions:
    """Folder of solved problems to make or to train on, and how they are made."""

    panel: ClassVar[str] = "Data set"

    generate: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Draw problems, solve them, and write them to this folder.")
    ] = None
    train: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Train a policy for any platform on the results in this folder."),
    ] = None
    problems: Annotated[int, typer.Option(metavar="N", min=1, help="Number of problems.")] = 1000
    label_time: Annotated[float, typer.Option(metavar="SECONDS", help="Solving time of each problem, by auto.")] = 1.0
    max_ops: Annotated[int, typer.Option(metavar="N", help="Largest number of ops of a problem.")] = 500
    split: Annotated[str, typer.Option(metavar="train|test", help="Families and platforms to draw from.")] = "train"


def generate(folder: Path, data: DataSetOptions, run: TrainingRun, *, as_json: bool) -> None:
    """Draw and solve the problems that are not there yet, and say how many there are."""
    from placekit.benchmarks.generators.drawn import draw_problem

    begun, stop = perf_counter(), MaxRuntime(data.label_time)
    draw_problem(data.split, run.seed, 0, max_ops=data.max_ops)  # refuses wrong options before there is a folder
    folder.mkdir(parents=True, exist_ok=True)
    with StepBar() as bar:
        for number in range(data.problems):
            name = f"{data.split}-{data.max_ops}-{run.seed}-{number:05d}"
            if not (folder / (name + _RESULT)).exists():
                if run.time_limit is not None and perf_counter() - begun >= run.time_limit:
                    break
                problem = draw_problem(data.split, run.seed, number, max_ops=data.max_ops)
                write_problem(problem, folder / (name + _PROBLEM))
                write_result(solve(problem, stop=stop, seed=number), folder / (name + _RESULT))
            bar(number + 1, data.problems, "problems")
    count = len(list(folder.glob("*" + _RESULT)))
    if as_json:
        print_json({"folder": str(folder), "problems": count})
    else:
        print_line(f"{folder}: {count} solved problems")


def _solved(folder: Path) -> list[tuple[Problem, Placement, float | None]]:
    """Return the problems in `folder` whose results have a placement, with that placement and its bound."""
    found = []
    for path in sorted(folder.glob("*" + _RESULT)):
        result = read_result(path)
        if result.placement is not None:
            problem = read_problem(path.with_name(path.name.removesuffix(_RESULT) + _PROBLEM))
            found.append((problem, result.placement, result.lower_bound))
    if not found:
        raise InvalidProblemError(
            f"{folder} has no solved problems; make some with `placekit learn --generate {folder}`"
        )
    return found


def train(folder: Path, run: TrainingRun, output: Path | None, *, as_json: bool) -> None:
    """Train a policy, write it, and say how far it came."""
    from placekit.learned.imitation.curriculum import CurriculumParams, train_policy
    from placekit.learned.method import policy_path

    target = run.policy_out or output or Path("policy.pt")
    check_writable(target)
    chosen = read_params(CurriculumParams, "training", dict(parse_params(run.param)))
    chosen = chosen if run.episodes is None else replace(chosen, updates=run.episodes)
    begun, last = perf_counter(), {"update": 0.0}

    def take(metrics: Metrics) -> None:
        last.update(metrics.values, update=float(metrics.update))
        if not as_json and metrics.update % _EVERY == 0:
            told = "  ".join(f"{name} {value:.3f}" for name, value in sorted(metrics.values.items()))
            print_line(f"update {metrics.update}  {told}")

    def should_stop() -> StopReason | None:
        over = run.time_limit is not None and perf_counter() - begun >= run.time_limit
        return StopReason.TIME if over else None

    reason = train_policy(
        _solved(folder),
        target,
        chosen,
        seed=run.seed,
        policy=None if run.policy is None else policy_path(run.policy),
        resume=run.resume,
        log_dir=run.log_dir,
        checkpoint_every_s=run.checkpoint_interval,
        should_stop=should_stop,
        on_update=take,
    )
    if as_json:
        print_json({"policy": str(target), "stop_reason": str(reason), "updates": int(last["update"]), "metrics": last})
    else:
        print_line(f"{target}: {int(last['update'])} updates, ended by {reason}")
