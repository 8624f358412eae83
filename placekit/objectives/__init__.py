"""Execution models, one module each, with their formula, reference and evaluator; others can be registered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

from placekit.model.errors import InvalidProblemError, UnknownNameError
from placekit.model.problem import O_co, Problem
from placekit.objectives.base import BatchScore, Loads, Objective, Schedule, Score, device_transfers, fastest_class_s
from placekit.objectives.makespan.objective import Makespan
from placekit.objectives.offload_latency import OffloadLatency
from placekit.objectives.serial_latency import SerialLatency
from placekit.objectives.throughput import Throughput
from placekit.plugins import OpenTable, load_class

__all__ = [
    "OBJECTIVES",
    "BatchScore",
    "Loads",
    "Makespan",
    "O_co",
    "Objective",
    "OffloadLatency",
    "Schedule",
    "Score",
    "SerialLatency",
    "Throughput",
    "device_transfers",
    "fastest_class_s",
    "get_objective",
    "register_objective",
]


def register_objective(objective: type[Objective]) -> None:
    """Add an execution model under its own name: to `solve`, files and the command line of this process.

    Parameters
    ----------
    objective
        A frozen dataclass derived from `Objective`, every field with a default.

    Raises
    ------
    InvalidProblemError
        A name that is taken or malformed, or a class that lacks something; the message says what.
    """
    _check(objective, "objective")
    OBJECTIVES.register(objective.name, objective)


def _check(objective: Any, what: str) -> None:
    """Refuse a class that is no execution model by an `InvalidProblemError`."""
    if not (isinstance(objective, type) and issubclass(objective, Objective)):
        raise InvalidProblemError(f"{what}: {objective!r} is no class derived from placekit.Objective")
    for attribute in ("name", "summary"):
        if not isinstance(getattr(objective, attribute, None), str):
            raise InvalidProblemError(f"{what}: {objective.__name__} has no class attribute {attribute!r} of type str")
    if not is_dataclass(objective) or not objective.__dataclass_params__.frozen:
        raise InvalidProblemError(f"{what}: {objective.__name__} is no frozen dataclass")
    try:
        objective()
    except TypeError as error:
        raise InvalidProblemError(f"{what}: {objective.__name__} cannot be made without arguments: {error}") from None


Problem.default_objective = Throughput()

OBJECTIVES: OpenTable[type[Objective]] = OpenTable(
    "objective",
    {each.name: each for each in (Throughput, OffloadLatency, Makespan, SerialLatency)},
    lambda point: load_class(point, "objective", _check),
)
"""Every objective by its name: placekit's own, those of plugins, those that were registered."""


def get_objective(name: str, params: Mapping[str, Any] | None = None) -> Objective:
    """Return the objective called `name`, in the variant given by `params`.

    Raises `UnknownNameError`: no objective has that name (the message lists them); `InvalidProblemError`: a parameter
    that the objective does not have, or a value out of its range.
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
