"""Execution models, one module each, with their formula, reference and evaluator."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from placekit.errors import InvalidProblemError, UnknownNameError
from placekit.objectives.base import BatchScore, Objective, Schedule, Score
from placekit.objectives.makespan import Makespan
from placekit.objectives.offload_latency import OffloadLatency
from placekit.objectives.serial_latency import SerialLatency
from placekit.objectives.throughput import Throughput

__all__ = [
    "OBJECTIVES",
    "BatchScore",
    "Makespan",
    "Objective",
    "OffloadLatency",
    "Schedule",
    "Score",
    "SerialLatency",
    "Throughput",
    "get_objective",
]

OBJECTIVES: Mapping[str, type[Objective]] = MappingProxyType(
    {objective.name: objective for objective in (Throughput, OffloadLatency, Makespan, SerialLatency)}
)
"""Every objective by its name."""


def get_objective(name: str, params: Mapping[str, Any] | None = None) -> Objective:
    """Return the objective called `name`, in the variant given by `params`.

    Raises
    ------
    UnknownNameError
        No objective has that name; the message lists them.
    InvalidProblemError
        A parameter that the objective does not have, or a value out of its range.
    """
    if name not in OBJECTIVES:
        raise UnknownNameError(f"no objective {name!r}; objectives are {', '.join(OBJECTIVES)}")
    has = OBJECTIVES[name]().to_dict()
    for param in params or {}:
        if param not in has:
            owners = [other for other, cls in OBJECTIVES.items() if param in cls().to_dict()]
            whose = f", which {owners[0]} has" if owners else ""
            raise InvalidProblemError(
                f"objective {name!r} has no parameter {param!r}{whose}; its parameters are {', '.join(has)}"
            )
    return OBJECTIVES[name](**(params or {}))
