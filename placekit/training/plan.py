"""Training plan: a chain of stages with degrees, and a choice for every layer."""

from __future__ import annotations

from dataclasses import dataclass

from placekit.model.errors import InvalidProblemError


@dataclass(frozen=True)
class PlanStage:
    """Stage of a training plan."""

    layers: tuple[int, ...]  # ascending indices of layers
    # data_degree, tensor_degree: number of replicas that share the microbatches, and of devices that share a layer. The
    # stage has their product of devices.
    data_degree: int
    tensor_degree: int
    choices: tuple[int, ...]  # index of the choice of every layer, in the order of `layers`

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
        """Number of devices of the stage."""
        return self.data_degree * self.tensor_degree


@dataclass(frozen=True)
class TrainingPlan:
    """Training plan: stages from the first of the pipeline to the last."""

    stages: tuple[PlanStage, ...]

    @property
    def num_devices(self) -> int:
        """Number of devices of all stages."""
        return sum(stage.num_devices for stage in self.stages)

    def in_flight(self, at: int) -> int:
        """Return the microbatches per device of stage `at`: all replicas from there on, per replica of the stage."""
        after = sum(stage.data_degree for stage in self.stages[at:])
        return -(-after // self.stages[at].data_degree)
