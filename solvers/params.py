"""Parameters of the methods that serve several objectives, read in the rooms of all of them."""

from __future__ import annotations

from dataclasses import dataclass

from placekit.model.errors import InvalidProblemError


@dataclass(frozen=True, slots=True)
class DpParams:
    """Parameters of ``dp``.

    Parameters
    ----------
    max_memory_bytes
        Most memory for ideals; beyond it the search returns what it has and a bound.
    """

    max_memory_bytes: int = 400_000_000

    def __post_init__(self) -> None:
        if self.max_memory_bytes < 1_000_000:
            raise InvalidProblemError(f"dp: max_memory_bytes is {self.max_memory_bytes}; it must be >= 1000000")


@dataclass(frozen=True, slots=True)
class IlpParams:
    """Parameters of ``ilp``.

    Parameters
    ----------
    solver
        ``"HiGHS"``, or any other solver that PuLP knows by name and finds (``"CBC"``, ``"GUROBI"``, ...).
        Only HiGHS reports a bound and incumbents while it runs.
    threads
        Threads of the solver; every usable core if None.
    mps
        File to which the model is written in MPS format before it is solved; None for no file.
    """

    solver: str = "HiGHS"
    threads: int | None = None
    mps: str | None = None

    def __post_init__(self) -> None:
        if self.threads is not None and self.threads < 1:
            raise InvalidProblemError(f"ilp: threads is {self.threads}; it must be >= 1")


@dataclass(frozen=True, slots=True)
class CpsatParams:
    """Parameters of ``cpsat``.

    Parameters
    ----------
    workers
        Parallel workers of CP-SAT; 8 or the usable cores if None, whichever is more, because CP-SAT's strategies
        complement each other even where they share a core. Only with one worker, which small models always get, does
        the same seed give the same answer whatever the machine does besides. Limits below the best makespan are refuted
        by one worker whatever this says.
    """

    workers: int | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise InvalidProblemError(f"cpsat: workers is {self.workers}; it must be >= 1")


PATIENCE = 100
"""Rounds in vain after which a search ends, unless there is a time limit or it is told another number."""


@dataclass(frozen=True, slots=True)
class LocalSearchParams:
    """Parameters of ``local-search``.

    Parameters
    ----------
    patience
        Ends after so many V-cycles in a row without a better placement. If None: 100, and never under a time limit.
    steps
        Proposals per class and level of a V-cycle.
    fresh
        Share of the cycles that start anew instead of from the best placement.
    max_cycles
        Ends after so many V-cycles in all; None for any number.
    """

    patience: int | None = None
    steps: int = 400
    fresh: float = 0.5
    max_cycles: int | None = None

    def __post_init__(self) -> None:
        for name, low in (("patience", 1), ("steps", 1), ("max_cycles", 1)):
            value = getattr(self, name)
            if value is not None and value < low:
                raise InvalidProblemError(f"local-search: {name} is {value}; it must be >= {low}")
        if not 0 <= self.fresh <= 1:
            raise InvalidProblemError(f"local-search: fresh is {self.fresh}; it must be between 0 and 1")
