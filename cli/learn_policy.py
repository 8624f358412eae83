"""``placekit learn --generate`` and ``--train``: a data set of labelled problems, and a policy for all of them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from placekit.cli.console import check_writable, print_json, print_line
from placekit.cli.options import parse_params
from placekit.cli.progress import StepBar
from placekit.cli.training_run import TrainingRun
from placekit.solve.params import read_params
from placekit.solve.stop import StopReason

if TYPE_CHECKING:
    from placekit.learned.training import Metrics

__all__ = ["DataSetOptions", "generate", "train"]

_EVERY = 50


@dataclass(frozen=True)
class DataSetOptions:
    """Data set to make or to train on, and its options."""

    panel: ClassVar[str] = "Data set"

    generate: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Make a data set of labelled problems in this folder.")
    ] = None
    train: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Train a policy for any platform on this data set.")
    ] = None
    problems: Annotated[int, typer.Option(metavar="N", min=1, help="Number of problems.")] = 1000
    label_time: Annotated[float, typer.Option(metavar="SECONDS", help="Solving time of each label, by auto.")] = 1.0
    max_ops: Annotated[int, typer.Option(metavar="N", help="Largest number of ops of a problem.")] = 500
    split: Annotated[str, typer.Option(metavar="train|test", help="Families and platforms to draw from.")] = "train"
    workers: Annotated[int, typer.Option(metavar="N", min=1, help="Number of shards that are made in parallel.")] = 1
    executor: Annotated[str, typer.Option(metavar="process|ray", help="Where shards are made.")] = "process"


def generate(folder: Path, data: DataSetOptions, run: TrainingRun, *, as_json: bool) -> None:
    """Make the shards that are not there yet, and say how many there are."""
    from placekit.benchmarks.labelling import Labelling, generate_dataset

    labelling = Labelling(data.split, run.seed, data.max_ops, label_s=data.label_time)
    with StepBar() as bar:
        shards = generate_dataset(
            labelling,
            folder,
            data.problems,
            num_workers=data.workers,
            executor=data.executor,
            time_limit_s=run.time_limit,
            on_shard=lambda done, total: bar(done, total, "shards"),
        )
    told = {"dataset": str(folder), "shards": shards, "problems_per_shard": labelling.per_shard}
    if as_json:
        print_json(told)
    else:
        print_line(f"{folder}: {shards} shards of {labelling.per_shard} problems, split {data.split}")


def train(dataset: Path, run: TrainingRun, device: str, output: Path | None, *, as_json: bool) -> None:
    """Train a policy, write it, and report its progress."""
    from placekit.learned.imitation.train import ImitationParams, steps_done
    from placekit.learned.imitation.train import train as train_policy
    from placekit.learned.journal import Journal
    from placekit.learned.method import policy_path

    target = run.policy_out or output or Path("policy.pt")
    check_writable(target)
    chosen = read_params(ImitationParams, "training", dict(parse_params(run.param)))
    chosen = chosen if run.episodes is None else replace(chosen, steps=run.episodes)
    resumed_at = None if run.resume is None else steps_done(run.resume)
    begun, last = perf_counter(), {"step": 0.0}
    with ExitStack() as stack:
        journal = None if run.log_dir is None else stack.enter_context(Journal(run.log_dir, resumed_at))

        def take(metrics: Metrics) -> None:
            last.update(metrics.values, step=float(metrics.update))
            if journal is not None:
                journal(metrics)
            if not as_json and metrics.update % _EVERY == 0:
                told = "  ".join(f"{name} {value:.3f}" for name, value in sorted(metrics.values.items()))
                print_line(f"step {metrics.update}  {told}")

        def should_stop() -> StopReason | None:
            over = run.time_limit is not None and perf_counter() - begun >= run.time_limit
            return StopReason.TIME if over else None

        reason = train_policy(
            dataset,
            target,
            chosen,
            seed=run.seed,
            device=device,
            policy=None if run.policy is None else policy_path(run.policy),
            resume=run.resume,
            checkpoint_every_s=run.checkpoint_interval,
            should_stop=should_stop,
            on_update=take,
        )
    if as_json:
        print_json({"policy": str(target), "stop_reason": str(reason), "steps": int(last["step"]), "metrics": last})
    else:
        print_line(f"{target}: {int(last['step'])} steps, ended by {reason}")
