"""Base of method ``cpsat`` for every objective; it does not import OR-Tools, which takes seconds."""

from __future__ import annotations

from placekit.machine import num_usable_cpus
from placekit.solve.method import Method
from placekit.solvers.params import CpsatParams

ONE_WORKER_UP_TO = 1000
"""Largest number of variables for which one worker is enough; its answer is reproducible."""


def num_workers(num_variables: int, asked: int | None = None) -> int:
    """Return the number of CP-SAT's workers for a model of so many variables."""
    return 1 if num_variables <= ONE_WORKER_UP_TO else asked or max(8, num_usable_cpus())


class CpsatMethod(Method):
    """Method ``cpsat``: name and parameters for every objective."""

    name = "cpsat"
    params_type = CpsatParams
    argument = "workers"
    params: CpsatParams

    def workers(self, num_variables: int) -> int:
        """Return the number of CP-SAT's workers for a model of so many variables."""
        return num_workers(num_variables, self.params.workers)
