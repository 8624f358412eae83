"""The table of cost models: by name, as ``--costs`` and suites give it, imported on use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from placekit.model.errors import InvalidProblemError, UnknownNameError, did_you_mean
from placekit.plugins import OpenTable, load_class

if TYPE_CHECKING:
    from placekit.cost_models.base import CostModel
    from placekit.model.platform import Platform


def _analytic(platform: Platform) -> CostModel:
    from placekit.cost_models.analytic import Analytic

    return Analytic.from_platform_file(platform)


def _profiled(platform: Platform) -> CostModel:  # noqa: ARG001  # it measures the devices themselves
    from placekit.cost_models.profiled import Profiled

    return Profiled()


def _check(model: Any, what: str) -> None:
    """Refuse a class that is no cost model by an `InvalidProblemError`."""
    if not isinstance(model, type) or not callable(getattr(model, "cost_table", None)):
        raise InvalidProblemError(f"{what} is no class with a method 'cost_table'")
    if not isinstance(getattr(model, "name", None), str):
        raise InvalidProblemError(f"{what}: {model.__name__} has no class attribute 'name' of type str")


def _maker(model: Any) -> Callable[[Platform], CostModel]:
    """Return what makes the cost model of a platform file."""

    def make(platform: Platform) -> CostModel:
        made: CostModel = model.from_platform_file(platform) if hasattr(model, "from_platform_file") else model()
        return made

    return make


COST_MODELS: OpenTable[Callable[[Platform], CostModel]] = OpenTable(
    "cost model",
    {"analytic": _analytic, "profiled": _profiled},
    lambda point: _maker(load_class(point, "cost model", _check)),
)
"""What makes a cost model of a platform file, by name: placekit's own, of plugins, and those that were registered."""


def register_cost_model(model: type[CostModel]) -> None:
    """Add a cost model under its own name: to ``--costs`` and suites of this process.

    Parameters
    ----------
    model
        A class with a class attribute `name` and a method `cost_table`, as in
        :class:`~placekit.cost_models.base.CostModel`. It is made by ``model.from_platform_file(platform)`` if it
        has that, for specs in the platform file, else by ``model()``.

    Raises
    ------
    InvalidProblemError
        A name that is taken or malformed, or a class that is no cost model.
    """
    _check(model, repr(model))
    COST_MODELS.register(str(model.name), _maker(model))


def get_cost_model(name: str, platform: Platform) -> CostModel:
    """Return the cost model called `name`, made for a platform file.

    Raises
    ------
    UnknownNameError
        No cost model has that name; the message lists them.
    """
    if name not in COST_MODELS:
        raise UnknownNameError(
            f"no cost model {name!r}; cost models are {', '.join(COST_MODELS)}{did_you_mean(name, COST_MODELS)}"
        )
    return COST_MODELS[name](platform)
