"""``placekit learn --generate`` and ``--train``: a data set of labelled problems, and a policy for all of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from placekit.learned.training import Metrics

__all__ = [
    "ExecutorChoice",
    "GenerateOption",
    "LabelTimeOption",
    "MaxOpsOption",
    "ProblemsOption",
    "SplitOption",
    "TrainOption",
    "WorkersOption",
    "generate",
    "train",
]

_EVERY = 50

GenerateOption = Annotated[
    Path | None,
    typer.Option(
        "--generate", metavar="DATASET", help="Make a data set of labelled problems in this folder; no model."
    ),
]
TrainOption = Annotated[
    Path | None,
    typer.Option("--train", metavar="DATASET", help="Train a policy for any platform on a data set; no model."),
]
ProblemsOption = Annotated[int, typer.Option(metavar="N", min=1, help="--generate: problems in all.")]
LabelTimeOption = Annotated[
    float, typer.Option(metavar="SECONDS", help="--generate: most time for a label, of 'auto'.")
]
MaxOpsOption = Annotated[int, typer.Option(metavar="N", help="--generate: most ops of a problem.")]
SplitOption = Annotated[str, typer.Option(metavar="train|test", help="--generate: which families and platforms.")]
WorkersOption = Annotated[
    int, typer.Option(metavar="N", min=1, help="--generate: shards that are made beside each other.")
]
ExecutorChoice = Annotated[str, typer.Option(metavar="process|ray", help="--generate: where shards are made.")]


def generate(
    folder: Path,
    *,
    split: str,
    problems: int,
    max_ops: int,
    label_s: float,
    seed: int,
    workers: int,
    executor: str,
    time_limit_s: float | None,
    as_json: bool,
) -> None:
    """Make the shards that are not there yet, and say how many there are."""
    from placekit.benchmarks.labelling import Labelling, generate_dataset
    from placekit.cli.console import print_json, print_line
    from placekit.cli.progress import StepBar

    labelling = Labelling(split, seed, max_ops, label_s=label_s)
    with StepBar() as bar:
        shards = generate_dataset(
            labelling,
            folder,
            problems,
            num_workers=workers,
            executor=executor,
            time_limit_s=time_limit_s,
            on_shard=lambda done, total: bar(done, total, "shards"),
        )
    told = {"dataset": str(folder), "shards": shards, "problems_per_shard": labelling.per_shard}
    if as_json:
        print_json(told)
    else:
        print_line(f"{folder}: {shards} shards of {labelling.per_shard} problems, split {split}")


def train(
    dataset: Path,
    output: Path,
    *,
    params: dict[str, object],
    steps: int | None,
    seed: int,
    device: str,
    policy: Path | None,
    resume: Path | None,
    checkpoint_every_s: float,
    log_dir: Path | None,
    time_limit_s: float | None,
    as_json: bool,
) -> None:
    """Train a policy, write it, and say how far it came."""
    from contextlib import ExitStack
    from dataclasses import replace
    from time import perf_counter

    from placekit.cli.console import check_writable, print_json, print_line
    from placekit.learned.imitation.train import ImitationParams, steps_done
    from placekit.learned.imitation.train import train as train_policy
    from placekit.learned.journal import Journal
    from placekit.learned.policy import policy_path
    from placekit.solve.params import read_params
    from placekit.solve.stop import StopReason

    check_writable(output)
    chosen = read_params(ImitationParams, "training", params)
    chosen = chosen if steps is None else replace(chosen, steps=steps)
    resumed_at = None if resume is None else steps_done(resume)
    begun, last = perf_counter(), {"step": 0.0}
    with ExitStack() as stack:
        journal = None if log_dir is None else stack.enter_context(Journal(log_dir, resumed_at))

        def take(metrics: Metrics) -> None:
            last.update(metrics.values, step=float(metrics.update))
            if journal is not None:
                journal(metrics)
            if not as_json and metrics.update % _EVERY == 0:
                told = "  ".join(f"{name} {value:.3f}" for name, value in sorted(metrics.values.items()))
                print_line(f"step {metrics.update}  {told}")

        def should_stop() -> StopReason | None:
            over = time_limit_s is not None and perf_counter() - begun >= time_limit_s
            return StopReason.TIME if over else None

        reason = train_policy(
            dataset,
            output,
            chosen,
            seed=seed,
            device=device,
            policy=None if policy is None else policy_path(policy),
            resume=resume,
            checkpoint_every_s=checkpoint_every_s,
            should_stop=should_stop,
            on_update=take,
        )
    if as_json:
        print_json({"policy": str(output), "stop_reason": str(reason), "steps": int(last["step"]), "metrics": last})
    else:
        print_line(f"{output}: {int(last['step'])} steps, ended by {reason}")
