"""A solve in progress: the problem, the clock, the seed, the best answer and the best bound so far.

A method reports every placement it finds with `Run.offer`, which asks the judge, and every bound it proves with
`Run.raise_bound`. Whatever happens afterwards (the time limit, Ctrl-C, an error in a native solver), both are safe.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from placekit import machine
from placekit.kernels import compiling, preparing
from placekit.model.errors import InvalidProblemError, JudgeDisagreementError
from placekit.model.placement import Placement, Violation
from placekit.model.problem import O_co, Problem
from placekit.objectives.evaluate import Evaluation, evaluate
from placekit.solve.certificates import Certificate, CertificateSource
from placekit.solve.result import OPTIMALITY_TOLERANCE, SOLVER_TOLERANCE, Incumbent
from placekit.solve.stop import Progress, Stop, StopReason, relative_gap
from placekit.solve.time_step import round_up_to_step, time_step_s

MAX_SEED = 2**63 - 1
"""Largest seed: what result files can say."""


class Judgement(Protocol):
    """Judgement of an answer: objective and violations."""

    @property
    def objective(self) -> float | None:
        """Seconds; None if the answer cannot be scored."""

    @property
    def violations(self) -> tuple[Violation, ...]:
        """Broken constraints."""

    @property
    def is_feasible(self) -> bool:
        """True if no constraint is broken."""


class Named(Protocol):
    """A problem of some kind."""

    @property
    def name(self) -> str:
        """For messages."""


ProblemT_co = TypeVar("ProblemT_co", bound=Named, covariant=True)
AnswerT = TypeVar("AnswerT")
JudgementT = TypeVar("JudgementT", bound=Judgement)


class BaseRun(ABC, Generic[ProblemT_co, AnswerT, JudgementT]):
    """One solve in progress: problem, clock, seed, best answer and best bound, for answers of any type.

    Several threads may offer answers and raise the bound.

    Parameters
    ----------
    problem
        The problem.
    stop
        When to stop; None for the method's own end.
    seed
        Seed of every random choice.
    on_progress
        Called with the new line whenever the trace grows, possibly from another thread.

    Attributes
    ----------
    rng : numpy.random.Generator
        Made once from `seed`.
    interrupted : threading.Event
        Set when the user wants the answer now (Ctrl-C).
    info : dict
        Facts for people; no method reads them.
    """

    def __init__(
        self,
        problem: ProblemT_co,
        stop: Stop | None = None,
        seed: int = 0,
        on_progress: Callable[[Incumbent], None] | None = None,
    ) -> None:
        if not 0 <= seed <= MAX_SEED:
            raise InvalidProblemError(f"seed is {seed}; it must be from 0 to {MAX_SEED}")
        self.problem = problem
        self.stop = stop
        self.seed = seed
        self.rng = np.random.default_rng(seed)
        self.interrupted = threading.Event()
        self.answer: AnswerT | None = None
        self.evaluation: JudgementT | None = None
        self.bound: float | None = None
        self.bound_name: str | None = None
        self._certificate: CertificateSource = None
        self.infeasible_because: tuple[Violation, ...] | None = None
        self.nearest: JudgementT | None = None
        self.evaluations = 0
        self.trace: list[Incumbent] = []
        self.info: dict[str, Any] = {}
        self._stale = 0
        self._step_s: float | None = None  # divides every objective
        self._bound_of: dict[float, float] = {}  # the best bound of each tolerance
        self._tolerance = OPTIMALITY_TOLERANCE  # of the best bound of all
        self._until_s = math.inf
        self._is_counting = True
        self._on_progress = on_progress
        self._lock = threading.RLock()
        self._start = perf_counter()
        self._prepared_s, self._compiled_s = preparing.total_s, compiling.total_s

    @property
    def elapsed_s(self) -> float:
        """Wall seconds since the solve began, without loading and compiling kernels. Limits count these seconds."""
        return perf_counter() - self._start - (preparing.total_s - self._prepared_s)

    @property
    def compile_s(self) -> float:
        """Wall seconds of the solve in which kernels were compiled."""
        return compiling.total_s - self._compiled_s

    @property
    def load_s(self) -> float:
        """Wall seconds of the solve in which methods were imported and kernels loaded from disk."""
        return max(0.0, preparing.total_s - self._prepared_s - self.compile_s)

    @property
    def remaining_s(self) -> float | None:
        """Wall seconds left under the time limit, at least 0; None without a limit."""
        limit = self.stop.time_limit_s if self.stop else None
        limit = min(math.inf if limit is None else limit, self._until_s)
        return None if math.isinf(limit) else max(0.0, limit - self.elapsed_s)

    def tries(self, asked: int | None, default: int) -> float:
        """Return how often a search may fail to improve before it ends: what the user `asked` for, or `default`.

        With a time limit of its own a search uses all of the time, so that methods are compared on the same budget. A
        stage of a longer solve leaves time to others.
        """
        if asked is not None:
            return asked
        limit_s = self.stop.time_limit_s if self.stop else None
        return default if limit_s is None or self._until_s < limit_s else math.inf

    @contextmanager
    def limited_to(self, time_s: float | None) -> Iterator[None]:
        """Limit the run to `time_s` more seconds inside the ``with`` block; None for no limit."""
        before = self._until_s
        self._until_s = min(before, math.inf if time_s is None else self.elapsed_s + time_s)
        try:
            yield
        finally:
            self._until_s = before

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Let no limit on evaluations stop what is inside the ``with`` block: the search for a first answer."""
        before, self._is_counting = self._is_counting, False
        try:
            yield
        finally:
            self._is_counting = before

    @property
    def objective(self) -> float | None:
        """Best objective so far in seconds; None while there is no feasible answer."""
        return None if self.evaluation is None else self.evaluation.objective

    @property
    def gap(self) -> float | None:
        """Relative gap so far; None while not known."""
        return relative_gap(self.objective, self.bound)

    @property
    def tolerance(self) -> float:
        """Relative gap within which the objective counts as optimal: the smallest tolerance that a bound reaches."""
        found = dict(self._bound_of)  # another thread may add to it
        gaps = ((tolerance, relative_gap(self.objective, bound)) for tolerance, bound in found.items())
        reached = [tolerance for tolerance, gap in gaps if gap is not None and gap <= tolerance]
        return min(reached, default=self._tolerance)

    @property
    def is_proven(self) -> bool:
        """True if the objective is optimal, within `tolerance`."""
        return self.gap is not None and self.gap <= self.tolerance

    @property
    def certificate(self) -> Certificate | None:
        """Certificate of the best bound, or of infeasibility; None without one."""
        if self._certificate is not None and callable(self._certificate):
            self._certificate = self._certificate()
        return self._certificate

    @property
    def asked_gap(self) -> float:
        """Relative gap at which the solve is to stop; 0 if none was named."""
        return (self.stop.gap if self.stop else None) or 0.0

    @abstractmethod
    def judge(self, answer: AnswerT) -> JudgementT:
        """Score an answer."""

    def keep(self, answer: AnswerT, at_most: float | None = None) -> JudgementT:
        """Let the judge score an answer, and keep it if it is feasible and better than the best so far."""
        evaluation = self.judge(answer)
        objective = evaluation.objective
        with self._lock:
            self.count_evaluations(1)
            if at_most is not None and objective is not None and objective > at_most * (1 + SOLVER_TOLERANCE):
                raise JudgeDisagreementError(
                    f"the method promises at most {at_most!r} s, the judge says {objective!r} s"
                )
            if not evaluation.is_feasible or objective is None:
                if self.nearest is None or len(evaluation.violations) < len(self.nearest.violations):
                    self.nearest = evaluation
            elif self.objective is None or objective < self.objective:
                self.answer, self.evaluation, self._stale = answer, evaluation, 0
                self._check_bound()
                self._record()
        return evaluation

    def settle_on(self, answer: AnswerT) -> None:
        """Make a feasible answer the best, though the judge may know a better one.

        For methods that minimise what the judge cannot know, such as times measured on the devices. Raises
        `InvalidProblemError`: an answer that breaks a constraint.
        """
        evaluation = self.keep(answer)
        if not evaluation.is_feasible:
            raise InvalidProblemError(f"the answer to problem {self.problem.name!r} breaks: {evaluation.violations[0]}")
        if evaluation is not self.evaluation:
            self.answer, self.evaluation = answer, evaluation
            self._record()

    def count_evaluations(self, count: int) -> None:
        """Count answers that a batched copy of the judge scored, none of them better than those offered."""
        with self._lock:
            self.evaluations += count
            self._stale += count

    def raise_bound(
        self, bound: float, name: str, certificate: CertificateSource = None, *, tolerance: float = SOLVER_TOLERANCE
    ) -> None:
        """Keep a proven lower bound (seconds) if it is better than the best so far.

        A bound that exceeds the best objective by no more than `tolerance` is rounded down to it. If all times are
        multiples of one step, so is every objective, and the bound is rounded up to such a multiple.

        Parameters
        ----------
        bound
            Seconds.
        name
            How it was proven.
        certificate
            Certificate of the bound, or a function that makes it at the end of the run; None without one.
        tolerance
            Relative error of the proof: `OPTIMALITY_TOLERANCE` if only sums are rounded, `SOLVER_TOLERANCE` for a
            solver with tolerances or units of its own.

        Raises
        ------
        JudgeDisagreementError
            The bound is above an objective that the judge confirmed.
        """
        with self._lock:
            if self._step_s is not None:
                rounded = round_up_to_step(bound, self._step_s)
                if rounded > bound:  # whoever checks the certificate knows of steps, too
                    bound, tolerance = rounded, OPTIMALITY_TOLERANCE
            self._bound_of[tolerance] = max(bound, self._bound_of.get(tolerance, bound))
            if self.bound is not None and bound <= self.bound:
                return
            self.bound, self.bound_name = float(bound), name  # numpy's numbers print their type
            self._certificate, self._tolerance = certificate, tolerance
            self._check_bound()
            self._record()

    def prove_infeasible(self, *violations: Violation, certificate: Certificate | None = None) -> StopReason:
        """Record that nothing satisfies the constraints, and why; with a certificate if there is one."""
        self.infeasible_because = violations
        self._certificate = certificate
        return StopReason.PROVED

    def should_stop(self) -> StopReason | None:
        """Return why to stop now, or None to go on. Methods ask between two steps."""
        if self.interrupted.is_set():
            return StopReason.USER
        if self.is_proven:
            return StopReason.PROVED
        if self.elapsed_s >= self._until_s:
            return StopReason.TIME
        if machine.is_exhausted():
            return StopReason.MEMORY
        counted = (self.evaluations, self._stale) if self._is_counting else (0, 0)
        progress = Progress(self.elapsed_s, *counted, self.objective, self.bound)
        reason = None if self.stop is None else self.stop(progress)
        return StopReason.PROVED if reason is None and self.infeasible_because is not None else reason

    def _check_bound(self) -> None:
        if self.bound is None or self.objective is None or self.bound <= self.objective:
            return
        if self.bound - self.objective > self._tolerance * abs(self.objective):
            raise JudgeDisagreementError(
                f"bound {self.bound!r} s ({self.bound_name}) lies above the achieved objective {self.objective!r} s"
            )
        self.bound = self.objective

    def _record(self) -> None:
        line = Incumbent(self.elapsed_s, self.objective, self.bound)
        self.trace.append(line)
        if self._on_progress is not None:
            self._on_progress(line)


class Run(BaseRun[Problem[O_co], Placement, Evaluation], Generic[O_co]):
    """One solve of a placement problem in progress.

    Parameters
    ----------
    problem, stop, seed, on_progress
        As for `BaseRun`.
    warm_start
        A placement to start from, feasible or not.

    Attributes
    ----------
    parts : dict
        Runs of parts of the problem, by a key of the method, for methods that solve the same parts again.
    done : set of str
        Steps that an earlier method of a row has done, and a later one need not repeat.
    """

    def __init__(
        self,
        problem: Problem[O_co],
        stop: Stop | None = None,
        seed: int = 0,
        warm_start: Placement | None = None,
        on_progress: Callable[[Incumbent], None] | None = None,
    ) -> None:
        super().__init__(problem, stop, seed, on_progress)
        self.warm_start = warm_start
        self.parts: dict[Any, Run[Any]] = {}
        self.done: set[str] = set()
        self._step_s = time_step_s(problem)

    @property
    def placement(self) -> Placement | None:
        """Best placement so far."""
        return self.answer

    def judge(self, answer: Placement) -> Evaluation:
        """Score a placement."""
        return evaluate(self.problem, answer)

    def offer(self, placement: Placement | ArrayLike, at_most: float | None = None) -> Evaluation:
        """Let the judge score a placement, and keep it if it is feasible and better than the best so far.

        Parameters
        ----------
        placement
            A placement, or ``[num_ops]`` device indices.
        at_most
            Upper bound on the objective that the method promises, in seconds.

        Raises
        ------
        JudgeDisagreementError
            The objective exceeds `at_most`, or lies below a proven bound, by more than the tolerance.
        """
        if not isinstance(placement, Placement):
            placement = Placement.of(self.problem, placement)
        objective: Any = self.problem.objective
        if placement.step_of_op is not None and objective.free_order is not objective:
            placement = replace(placement, step_of_op=None)  # the runtime takes no order
        return self.keep(placement, at_most)
