"""Programs that fit: whether there is time and memory for one, before it is built and while it is.

A program is as large as its coefficients are many, and Python takes some microseconds for each. So a method counts them
first (:class:`Building`), and what would take too long or too much memory is not begun. The count is rough and machines
differ, so whatever is built is also watched: a program asks at every step of its own making.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from placekit import machine
from placekit.model.errors import ProgramTooLargeError
from placekit.model.sizes import format_bytes
from placekit.solve.method import Run

LOOK_EVERY = 200
"""Steps between two looks at the clock: a millisecond or so."""
AFTERWARDS = 0.5
"""Time that the rest takes until a solver can be stopped, its start included, in times of building."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Memory cost of a coefficient, with its share of rows and columns."""

    time_s: float  # seconds to build
    num_bytes: float  # bytes until the solver has it, whose copies count


PULP = Cost(6e-6, 600.0)
"""Of an integer program that PuLP builds and HiGHS solves."""
ARRAYS = Cost(1e-6, 200.0)
"""Of a program for bounds, which goes to HiGHS as arrays."""
CPSAT = Cost(2.5e-6, 1000.0)
"""Of a constraint program, which each of CP-SAT's workers copies."""


def time_left(run: Run) -> float:
    """Return the seconds that `run` has left: 0 if it is to stop, infinity without a limit."""
    if run.should_stop() is not None:
        return 0.0
    return math.inf if run.remaining_s is None else run.remaining_s


def time_until(end_s: float) -> Callable[[], float]:
    """Return what says how many seconds are left until `end_s` of the performance counter."""
    return lambda: end_s - perf_counter()


class Building:
    """One program in the making: called at every step of it.

    Parameters
    ----------
    what
        What it is called.
    num_coefficients
        About how many it will have.
    cost
        What each of them costs.
    left_s
        Returns the seconds left.

    Raises
    ------
    ProgramTooLargeError
        At once, or at a later step: the time or the memory that is left does not suffice.
    """

    def __init__(self, what: str, num_coefficients: float, cost: Cost, left_s: Callable[[], float]) -> None:
        self._what, self._left_s = f"the {what} of about {num_coefficients:.2g} coefficients", left_s
        self._begin_s, self._steps_left = perf_counter(), LOOK_EVERY
        needed, has = num_coefficients * cost.num_bytes, machine.bytes_left()
        if needed > has:
            raise ProgramTooLargeError(
                f"{self._what} needs about {format_bytes(needed)} of memory; {format_bytes(has)} are left",
                lacks_memory=True,
            )
        takes_s = num_coefficients * cost.time_s * (1 + AFTERWARDS)
        if takes_s > left_s():
            raise ProgramTooLargeError(
                f"{self._what} takes about {takes_s:.2g} s to build; {left_s():.2g} s are left", lacks_memory=False
            )

    def __call__(self) -> None:
        """Look at the clock and at the memory, every so many steps."""
        self._steps_left -= 1
        if self._steps_left:
            return
        self._steps_left = LOOK_EVERY
        if machine.is_exhausted():
            raise ProgramTooLargeError(f"{self._what} reached the memory limit while it was built", lacks_memory=True)
        taken_s = perf_counter() - self._begin_s
        if self._left_s() < AFTERWARDS * taken_s:
            raise ProgramTooLargeError(
                f"{self._what} was not built in the time left, {taken_s:.2g} s", lacks_memory=False
            )


def no_step() -> None:
    """Watch nothing: for programs that are small by construction."""
