"""Options of a training: method, limits and files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from placekit.cli.options import SeedOption
from placekit.cli.parameters import COMMON, OUTPUT
from placekit.model.errors import UnknownNameError
from placekit.solve.stop import AnyOf, MaxIterations, MaxRuntime, Stop

__all__ = ["TrainingRun"]


@dataclass(frozen=True)
class TrainingRun:
    """Method, limits and files of a training."""

    panel: ClassVar[str] = "Training"

    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            "-m",
            metavar="NAME",
            help="Learned method. Default: the method of --policy, or hsdag.",
            rich_help_panel=COMMON,
        ),
    ] = None
    time_limit: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Stop after this time.", rich_help_panel=COMMON)
    ] = None
    seed: SeedOption = 0
    episodes: Annotated[int | None, typer.Option(metavar="N", help="Stop after this number of updates.")] = None
    evaluations: Annotated[
        int | None, typer.Option(metavar="N", help="Stop after this number of scored or measured placements.")
    ] = None
    reward: Annotated[
        str,
        typer.Option(metavar="judge|measured", help="Score placements by their costs, or time them on the devices."),
    ] = "judge"
    param: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Set a parameter of the method; repeatable (`placekit methods NAME`)."),
    ] = None
    policy: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Policy to begin with, or 'pretrained'. --episodes 0 only applies it."),
    ] = None
    resume: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Checkpoint to resume from, written again without --policy-out.")
    ] = None
    warm_start: Annotated[Path | None, typer.Option(metavar="FILE", help="Placement or result to begin with.")] = None
    bound_s: Annotated[
        float, typer.Option("--bound", metavar="SECONDS", help="Time for a lower bound after training; 0: no bound.")
    ] = 10.0
    checkpoint_interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="Time between checkpoints; 0: one after every update.")
    ] = 30.0
    policy_out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Policy and checkpoint (default STEM.policy.pt).", rich_help_panel=OUTPUT),
    ] = None
    log_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for metrics.jsonl and TensorBoard events.", rich_help_panel=OUTPUT),
    ] = None

    @property
    def is_measured(self) -> bool:
        """True if placements are measured.

        Raises
        ------
        UnknownNameError
            No such reward.
        """
        if self.reward not in ("judge", "measured"):
            raise UnknownNameError(f"no reward {self.reward!r}; rewards are judge, measured")
        return self.reward == "measured"

    @property
    def stop(self) -> Stop | None:
        """The limits; measurements are counted by what makes them."""
        criteria: list[Stop] = []
        if self.time_limit is not None:
            criteria.append(MaxRuntime(self.time_limit))
        if self.evaluations is not None and not self.is_measured:
            criteria.append(MaxIterations(self.evaluations))
        return AnyOf(tuple(criteria)) if criteria else None
