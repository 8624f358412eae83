"""The quick bound of an objective."""

from __future__ import annotations

from placekit.model.errors import UnsupportedProblemError
from placekit.model.problem import Problem


def largest_op(problem: Problem) -> tuple[float, str]:
    """Bound in seconds by the work that cannot be divided, with its name: the objective's `quick_bound`.

    Raises `UnsupportedProblemError`: the objective has none.
    """
    bound: tuple[float, str] | None = problem.objective.quick_bound(problem)
    if bound is None:
        raise UnsupportedProblemError(f"no bound for objective {problem.objective.name!r}")
    return bound
