"""A training plan: a chain of stages, each with its degrees and a choice for every layer."""

from __future__ import annotations

from dataclasses import dataclass

from placekit.model.errors import InvalidProblemError

__all__ = ["PlanStage", "TrainingPlan"]


@dataclass(frozen=True)
class PlanStage:
    """One stage.

    Parameters
    ----------
    layers
        Indices, rising.
    data_degree, tensor_degree
        Replicas that share the microbatches, and devices that share a layer; their product is the stage's devices.
    choices
        Index of the choice of every layer, in the order of `layers`.
    """

    layers: tuple[int, ...]
    data_degree: int
    tensor_degree: int
    choices: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.layers) != len(self.choices):
            raise InvalidProblemError(
                f"a stage has {len(self.layers)} layers and {len(self.choices)} choices; they must be as many"
            )
        for what, degree in (("data", self.data_degree), ("tensor", self.tensor_degree)):
            if degree < 1:
                raise InvalidProblemError(f"a stage has {what}-parallel degree {degree}; it must be at least 1")

    @property
    def num_devices(self) -> int:
        """Devices of the stage."""
        return self.data_degree * self.tensor_degree


@dataclass(frozen=True)
class TrainingPlan:
    """Stages from the first of the pipeline to the last."""

    stages: tuple[PlanStage, ...]

    @property
    def num_devices(self) -> int:
        """Devices of all stages."""
        return sum(stage.num_devices for stage in self.stages)

    def in_flight(self, at: int) -> int:
        """Return the microbatches that a member of stage `at` holds: its share of all replicas from there on."""
        after = sum(stage.data_degree for stage in self.stages[at:])
        return -(-after // self.stages[at].data_degree)
