"""Solvers that do less above some size, with these sizes drawn small: small problems get what only large ones get.

Such a size is a constant of a module of :mod:`placekit.solvers` named ``MAX_...``, ``MOST_...``, ``MANY_...``,
``..._UP_TO`` or alike. What is left out above it makes bounds weaker and answers worse, never false; so whatever it is
drawn to, results have to hold. Sizes that a compiled kernel has taken over stay as they are. Half of these solves end
at some question whether to go on, as a time limit or Ctrl-C may have it.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import NamedTuple

import numpy as np

import placekit.solvers
from placekit.solve.stop import MaxRuntime, Progress, Stop, StopReason

SIZES = re.compile(
    r"^(MAX|MOST|MANY|FEWEST|LARGE|LARGEST|LIGHT|WORD|CHUNK|BATCH|BLOCK|CANDIDATES|PATIENCE|FIRST_(STEPS|NODES|SIZE))(_|$)"
    r"|_(UP_TO|AT_ALL|FROM|PER_CALL|PER_SHARE)$"
)
"""Names of such constants."""
SHARES = frozenset({"LIGHT", "LARGEST"})
"""Those that are shares, above which less is done: they are drawn large."""
OTHERS = frozenset({"MAX_SEED", "MAX_SLOWNESS", "MOST_LOST", "MOST_EVENTS", "MAX_DEVICES"})
"""Those that mean something else."""
SMALL = 64
"""What a size is drawn to, at most."""
LEAST = {"LARGE": 3}
"""What it is drawn to, at least, where 1 makes no sense: a segment that is divided has ends, and something between."""

QUESTIONS = 3_000
"""After so many questions a solve ends at the latest, if after any."""

Size = int | float | tuple[int, ...]


class _Limit(NamedTuple):
    """A constant, and the modules that hold it."""

    name: str
    value: Size
    modules: tuple[ModuleType, ...]


@cache
def _limits() -> tuple[_Limit, ...]:
    for each in pkgutil.walk_packages(placekit.solvers.__path__, f"{placekit.solvers.__name__}."):
        importlib.import_module(each.name)
    found: dict[tuple[str, Size], list[ModuleType]] = {}
    for path, module in sorted(sys.modules.items()):
        for name, value in vars(module).items() if path.startswith(f"{placekit.solvers.__name__}.") else ():
            is_size = all(isinstance(part, int | float) for part in (value if isinstance(value, tuple) else (value,)))
            if SIZES.search(name) and name not in OTHERS and is_size:
                found.setdefault((name, value), []).append(module)
    return tuple(_Limit(name, value, tuple(modules)) for (name, value), modules in found.items())


def _drawn(rng: np.random.Generator, limit: _Limit, value: Size) -> Size:
    if isinstance(value, tuple):
        return tuple(int(_drawn(rng, limit, part)) for part in value)  # type: ignore[arg-type]  # parts are integers
    if limit.name in SHARES:
        return value * float(rng.choice([1.0, 10.0, 100.0]))
    least = LEAST.get(limit.name, 1)
    size = np.exp(rng.uniform(0.0, np.log(min(max(value, 1.0), SMALL))))
    return min(value, max(least, type(value)(size)))


@contextmanager
def tight(seed: int, case: int) -> Iterator[Mapping[str, Size]]:
    """Draw about half of all sizes small, and let no enumeration come before programs; yield them."""
    rng = np.random.default_rng([seed, case, 2])
    changes = {
        limit: 0 if limit.name == "ENUMERATE_FIRST_UP_TO" else _drawn(rng, limit, limit.value)
        for limit in _limits()
        if rng.random() < 0.5 or limit.name == "ENUMERATE_FIRST_UP_TO"
    }
    try:
        for limit, value in changes.items():
            for module in limit.modules:
                setattr(module, limit.name, value)
        yield {f"{limit.modules[0].__name__}.{limit.name}": value for limit, value in changes.items()}
    finally:
        for limit in changes:
            for module in limit.modules:
                setattr(module, limit.name, limit.value)


class MaxQuestions:
    """Stop after `time_limit_s`, or when it has been asked `count` times."""

    gap: float | None = None

    def __init__(self, time_limit_s: float, count: int) -> None:
        self.time_limit_s: float | None = time_limit_s
        self._clock, self._left = MaxRuntime(time_limit_s), iter(range(count))

    def __call__(self, progress: Progress) -> StopReason | None:
        """Return `StopReason.TIME` from then on."""
        return self._clock(progress) if next(self._left, None) is not None else StopReason.TIME


def max_questions(seed: int, case: int, seconds: float) -> Stop:
    """Return a criterion that ends half of all solves at some question, and the others after so many seconds."""
    rng = np.random.default_rng([seed, case, 3])
    if rng.random() < 0.5:
        return MaxRuntime(seconds)
    return MaxQuestions(seconds, int(np.exp(rng.uniform(0.0, np.log(QUESTIONS)))))
