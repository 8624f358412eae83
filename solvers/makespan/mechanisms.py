"""What the searches and the bounds of the makespan can do without: each mechanism, by its name, can be switched off.

``--param without=series,case-split`` of ``auto``, ``local-search``, ``lns``, ``cpsat`` and ``bound``; in a suite
``params = { without = "series,case-split" }``. The suite ``ablation-makespan`` measures what each of them brings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from placekit.solvers import switches

__all__ = ["ALL", "Mechanisms", "Without"]


@dataclass(frozen=True, slots=True)
class Mechanisms(switches.Switches):
    """True for every mechanism that is used.

    Parameters
    ----------
    stretches
        Stretches of the best schedule are annealed one after the other
        (:mod:`placekit.solvers.makespan.decomposition.stretch`).
    between
        Bounds know the work between two ops (:mod:`placekit.solvers.makespan.bounds.between`).
    shared_work
        And how it can be shared out over unequal devices (:mod:`placekit.solvers.makespan.bounds.shared_work`).
    series
        Segments between the ops that separate the graph are solved one by one
        (:mod:`placekit.solvers.makespan.exact.series`).
    a_star
        All schedules of a few ops are searched (:mod:`placekit.solvers.makespan.exact.a_star`).
    case_split
        Limits are refuted case by case (:mod:`placekit.solvers.makespan.decomposition.case_split`).
    rising_limits
        The constraint program refutes limits far below the best makespan first; without it, it is asked for the best.
    """

    stretches: bool = True
    between: bool = True
    shared_work: bool = True
    series: bool = True
    a_star: bool = True
    case_split: bool = True
    rising_limits: bool = True
    objective: ClassVar[str] = "makespan"


ALL = Mechanisms()
"""Everything, as it is by default."""


@dataclass(frozen=True)
class Without(switches.Without[Mechanisms]):
    """The parameter of all methods of the makespan."""

    table = Mechanisms
