"""Base class of methods: a few facts about the method and one verb, `run`, which works on a `Run`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, Self

from placekit.model.errors import InvalidProblemError
from placekit.model.problem import Problem
from placekit.solve.params import NoParams, read_params
from placekit.solve.run import Run
from placekit.solve.stop import StopReason

__all__ = ["Method", "Run"]  # a plugin needs both


class Method(ABC):
    """Anything that turns a problem into a result: a name, parameters, and one verb, `run`.

    Parameters
    ----------
    params
        Parameters of the method; the defaults if None.

    Examples
    --------
    >>> class Last(Method):
    ...     name = "last"
    ...
    ...     def run(self, run: Run) -> StopReason:
    ...         problem = run.problem
    ...         run.offer(np.full(problem.graph.num_ops, problem.platform.num_devices - 1))
    ...         return StopReason.FINISHED
    """

    name: str
    """Name in the registry."""
    params_type: ClassVar[type[Any]] = NoParams
    """Frozen dataclass of the parameters, each with a default."""
    argument: ClassVar[str | None] = None
    """The parameter that is meant by what follows the colon in ``name:argument``; None if nothing may follow."""

    params: Any
    """The parameters."""

    def __init__(self, params: Any = None) -> None:
        self.params = self.params_type() if params is None else params

    @classmethod
    def from_params(cls, argument: str | None, params: Mapping[str, Any]) -> Self:
        """Make the method from the argument after the colon in ``name:argument``, and from named parameters.

        Raises
        ------
        InvalidProblemError
            A parameter that the method does not have, or a value that it may not have.
        """
        return cls(read_params(cls.params_type, cls.name, {**params, **cls._meant_by(argument)}))

    @classmethod
    def _meant_by(cls, argument: str | None) -> dict[str, Any]:
        if argument is None:
            return {}
        types = {field.name: str(field.type) for field in fields(cls.params_type)}
        if cls.argument is None:
            can = f"takes no argument; got {argument!r}" if types else "has no parameters"
            raise InvalidProblemError(f"method {cls.name!r} {can}")
        if "int" not in types[cls.argument]:
            return {cls.argument: argument}
        if not argument.isdigit():
            raise InvalidProblemError(f"{cls.name}: {cls.argument} is {argument!r}; it must be a whole number >= 1")
        return {cls.argument: int(argument)}

    def supports(self, problem: Problem[Any]) -> str | None:
        """Return None if the method can work on `problem` as it is, else one sentence that says why not.

        By default a method knows neither direct links nor memory that ops share. What it is given in place of a problem
        with them says :mod:`placekit.solve.lifting.relaxed`.
        """
        return no_links(problem) or no_shared_memory(problem)

    def knows_pools(self, problem: Problem[Any]) -> bool:  # noqa: ARG002
        """Return True if the method counts memory that devices of `problem` share (`placekit.Pool`); by default not.

        What it is given in place of such a problem says :mod:`placekit.solve.lifting.without_pools`.
        """
        return False

    @abstractmethod
    def run(self, run: Run[Any]) -> StopReason:
        """Work on `run.problem` until done or told to stop; report through `run`; return why it ended."""


def no_links(problem: Problem[Any]) -> str | None:
    """Say why a method that knows no direct links (`placekit.DirectLink`) does not apply; None if it does."""
    return "it knows no direct links between devices" if problem.has_direct_links else None


def no_shared_memory(problem: Problem[Any]) -> str | None:
    """Say why a method that knows no memory that ops share (:mod:`placekit.model.memory`) does not; None if it does."""
    return "it knows no memory that ops share" if problem.has_tight_blocks else None


def no_engine_order(problem: Problem[Any]) -> str | None:
    """Say why a method that plans an order does not apply where the runtime takes none; None if it does."""
    leaves_order = problem.objective.free_order is not problem.objective
    return "it plans an order of ops, and the runtime takes none" if leaves_order else None


def no_teams(problem: Problem) -> str | None:
    """Say why a method that knows single devices only does not apply; None if it does."""
    rule = problem.objective.team_rule
    return None if rule == "off" else f"it knows single devices only; the problem has teams {rule!r}"
