"""When to stop: small criteria objects, shared by every anytime method.

A criterion looks at the `Progress` of a solve and answers with a `StopReason` or None. Methods that run inside a
native solver cannot ask at every step; they read `time_limit_s` and `gap` instead and pass them on.

Examples
--------
>>> stop = MaxRuntime(10) | TargetGap(0.01)
>>> stop.time_limit_s, stop.gap
(10.0, 0.01)
>>> stop(Progress(elapsed_s=11.0, iterations=3))
<StopReason.TIME: 'time'>
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import ParamSpec, Protocol, TypeVar

from placekit import machine
from placekit.model.errors import InvalidProblemError

P = ParamSpec("P")
T = TypeVar("T")


class StopReason(StrEnum):
    """Why a method returned."""

    PROVED = "proved"
    """The answer is optimal, or the problem is infeasible."""
    GAP = "gap"
    """The requested gap was reached."""
    FINISHED = "finished"
    """A heuristic came to its own end."""
    TIME = "time"
    """The time limit."""
    MEMORY = "memory"
    """The memory limit, or a program that would need more than it leaves."""
    ITERATIONS = "iterations"
    """The limit on iterations or evaluations, or too many without improvement."""
    USER = "user"
    """Interrupted (Ctrl-C)."""


def relative_gap(objective: float | None, bound: float | None) -> float | None:
    """Return ``(objective - bound) / objective``, 0 where both are 0, None where either is not known."""
    if objective is None or bound is None:
        return None
    if objective <= bound:
        return 0.0
    return (objective - bound) / abs(objective) if objective else math.inf  # a bound that rounding took below 0


@dataclass(frozen=True, slots=True)
class Progress:
    """State of a solve that stop criteria may look at."""

    elapsed_s: float  # wall seconds since `solve` was called
    iterations: int  # evaluations so far
    stale_iterations: int = 0  # evaluations since the best objective last improved
    # objective, bound: best objective and best bound so far, None while not known
    objective: float | None = None
    bound: float | None = None


class Stop(Protocol):
    """A stopping criterion. One that has no `memory_limit_bytes` limits no memory."""

    @property
    def time_limit_s(self) -> float | None:
        """Seconds after which this criterion stops for sure; None for never."""
        return None

    @property
    def gap(self) -> float | None:
        """Relative gap at which this criterion stops; None for none."""
        return None

    def __call__(self, progress: Progress) -> StopReason | None:
        """Return why to stop now, or None to go on."""
        ...


class _Combinable(Stop):
    """Criterion with ``a | b``: stop when either says so; it limits no memory unless it says otherwise."""

    @property
    def memory_limit_bytes(self) -> float | None:
        """Bytes that the process may hold; None for no limit."""
        return None

    def __or__(self, other: Stop) -> AnyOf:
        return AnyOf((self, other))


def _require(what: str, value: float, low: float) -> None:
    if not (math.isfinite(value) and value >= low):
        raise InvalidProblemError(f"{what} is {value}; it must be finite and >= {low:g}")


@dataclass(frozen=True)
class MaxRuntime(_Combinable):
    """Stop after `seconds`."""

    seconds: float

    def __post_init__(self) -> None:
        _require("time limit in seconds", self.seconds, 0)

    @property
    def time_limit_s(self) -> float | None:
        """The limit."""
        return float(self.seconds)

    def __call__(self, progress: Progress) -> StopReason | None:
        """Return `StopReason.TIME` once the time is up."""
        return StopReason.TIME if progress.elapsed_s >= self.seconds else None


@dataclass(frozen=True)
class MaxMemory(_Combinable):
    """Stop when this process holds `num_bytes` of memory; programs that would need more than is left are not built.

    Without it a solve may take most of what the machine has left: :func:`placekit.machine.default_limit_bytes`.
    """

    num_bytes: float

    def __post_init__(self) -> None:
        _require("memory limit in bytes", self.num_bytes, 1)

    @property
    def memory_limit_bytes(self) -> float | None:
        """The limit."""
        return float(self.num_bytes)

    def __call__(self, progress: Progress) -> StopReason | None:  # noqa: ARG002  # all solves share the memory
        """Return `StopReason.MEMORY` once the process holds as much."""
        return StopReason.MEMORY if machine.resident_bytes() >= self.num_bytes else None


@dataclass(frozen=True)
class MaxIterations(_Combinable):
    """Stop after `count` evaluations."""

    count: int

    def __post_init__(self) -> None:
        _require("number of iterations", self.count, 1)

    def __call__(self, progress: Progress) -> StopReason | None:
        """Return `StopReason.ITERATIONS` once `count` placements were evaluated."""
        return StopReason.ITERATIONS if progress.iterations >= self.count else None


@dataclass(frozen=True)
class NoImprovement(_Combinable):
    """Stop after `count` evaluations in a row without a better objective."""

    count: int

    def __post_init__(self) -> None:
        _require("number of iterations", self.count, 1)

    def __call__(self, progress: Progress) -> StopReason | None:
        """Return `StopReason.ITERATIONS` once the search is stale."""
        return StopReason.ITERATIONS if progress.stale_iterations >= self.count else None


@dataclass(frozen=True)
class TargetGap(_Combinable):
    """Stop once the proven relative gap is at most `target`."""

    target: float

    def __post_init__(self) -> None:
        _require("gap", self.target, 0)

    @property
    def gap(self) -> float | None:
        """The target."""
        return float(self.target)

    def __call__(self, progress: Progress) -> StopReason | None:
        """Return `StopReason.GAP` once the gap is small enough."""
        gap = relative_gap(progress.objective, progress.bound)
        return StopReason.GAP if gap is not None and gap <= self.target else None


@dataclass(frozen=True)
class AnyOf(_Combinable):
    """Stop as soon as one of `criteria` says so."""

    criteria: tuple[Stop, ...]

    @property
    def time_limit_s(self) -> float | None:
        """The tightest limit."""
        return min((c.time_limit_s for c in self.criteria if c.time_limit_s is not None), default=None)

    @property
    def gap(self) -> float | None:
        """The loosest gap: it is reached first."""
        return max((c.gap for c in self.criteria if c.gap is not None), default=None)

    @property
    def memory_limit_bytes(self) -> float | None:
        """The tightest limit on memory."""
        limits = (getattr(c, "memory_limit_bytes", None) for c in self.criteria)
        return min((limit for limit in limits if limit is not None), default=None)

    def __call__(self, progress: Progress) -> StopReason | None:
        """Return the first reason that a criterion gives."""
        return next((reason for c in self.criteria if (reason := c(progress)) is not None), None)


_wanted: ContextVar[Callable[[], bool] | None] = ContextVar("wanted", default=None)


@contextmanager
def wanted_until(should_stop: Callable[[], object]) -> Iterator[None]:
    """Let `is_wanted` be False inside the ``with`` block once `should_stop` has a reason, or outside it is False."""
    outer = _wanted.get()
    token = _wanted.set(lambda: (outer is None or outer()) and not should_stop())
    try:
        yield
    finally:
        _wanted.reset(token)


def is_wanted() -> bool:
    """Return whether the solve that this thread works for, if any, is to go on.

    For code that knows no run: native solvers, and bounds that many methods ask for. A thread that a solve starts works
    for it if `in_this_solve` says so.
    """
    says = _wanted.get()
    return says is None or says()


def in_this_solve(work: Callable[P, T]) -> Callable[P, T]:
    """Return `work` for other threads, in which `is_wanted` says what it says in this one."""
    says = _wanted.get()

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        token = _wanted.set(says)
        try:
            return work(*args, **kwargs)
        finally:
            _wanted.reset(token)

    return call
