"""Options of a training: method, limits and files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from placekit.cli.options import SeedOption
from placekit.cli.parameters import COMMON, OUTPUT, option
from placekit.model.errors import UnknownNameError
from placekit.solve.stop import AnyOf, MaxIterations, MaxRuntime, Stop

__all__ = ["TrainingRun"]


@dataclass(frozen=True)
class TrainingRun:
    """Method, limits and files of a training."""

    panel: ClassVar[str] = "Training"

    method: str | None = option(
        None, "Learned method. Default: the method of --policy, or hsdag.", "NAME", names="--method -m", panel=COMMON
    )
    time_limit: float | None = option(None, "Stop after this time.", "SECONDS", panel=COMMON)
    seed: SeedOption = 0
    episodes: int | None = option(None, "Stop after this number of updates.", "N")
    evaluations: int | None = option(None, "Stop after this number of scored or measured placements.", "N")
    reward: str = option("judge", "Score placements by their costs, or time them on the devices.", "judge|measured")
    param: list[str] | None = option(
        None, "Set a parameter of the method; repeatable (`placekit methods NAME`).", "NAME=VALUE"
    )
    policy: Path | None = option(None, "Policy to begin with, or 'pretrained'. --episodes 0 only applies it.", "FILE")
    resume: Path | None = option(None, "Checkpoint to resume from, written again without --policy-out.", "FILE")
    warm_start: Path | None = option(None, "Placement or result to begin with.", "FILE")
    bound_s: float = option(10.0, "Time for a lower bound after training; 0: no bound.", "SECONDS", names="--bound")
    checkpoint_interval: float = option(30.0, "Time between checkpoints; 0: one after every update.", "SECONDS", min=0)
    policy_out: Path | None = option(None, "Policy and checkpoint (default STEM.policy.pt).", "FILE", panel=OUTPUT)
    log_dir: Path | None = option(None, "Folder for metrics.jsonl and TensorBoard events.", "DIR", panel=OUTPUT)

    @property
    def is_measured(self) -> bool:
        """True if placements are measured."""
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
