"""What the searches and the bounds of the makespan can do without: each mechanism, by its name, can be switched off.

``--param without=beam,both-ends`` of ``auto``, ``local-search``, ``lns``, ``cpsat`` and ``bound``; in a suite
``params = { without = "beam,both-ends" }``. The suite ``ablation-makespan`` measures what each of them brings.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

from placekit.errors import InvalidProblemError

__all__ = ["ALL", "Mechanisms"]


@dataclass(frozen=True, slots=True)
class Mechanisms:
    """True for every mechanism that is used.

    Parameters
    ----------
    beam
        Searches begin at schedules by beam search where devices are unequal
        (:mod:`placekit.solvers.makespan.search.beam`).
    prices
        Annealing pays for ops on the wrong device; dear proposals are not tried
        (:mod:`placekit.solvers.makespan.search.prices`). Without them there is no beam, and no perturbation.
    perturbation
        Where work is nearly all that counts, a few classes move at once, and a cold annealing follows
        (:mod:`placekit.solvers.makespan.search.perturbation`). Without it there is no successive halving either.
    successive_halving
        Many schedules are perturbed, and the better half gets more time
        (:mod:`placekit.solvers.makespan.search.successive_halving`); without it only the best is.
    tempering
        Every other long cycle goes on with parallel tempering
        (:mod:`placekit.solvers.makespan.search.parallel_tempering`).
    stretches
        Stretches of the best schedule are annealed one after the other
        (:mod:`placekit.solvers.makespan.decomposition.stretch`).
    cuts
        Most cycles anneal what is between the ops that separate the graph.
    between
        Bounds know the work between two ops (:mod:`placekit.solvers.makespan.bounds.between`).
    energy
        And the work in windows (:mod:`placekit.solvers.makespan.bounds.energy`).
    shared_work
        And how it can be shared out over unequal devices (:mod:`placekit.solvers.makespan.bounds.shared_work`).
    loads
        And the loads of a pipeline without transfers, memory included.
    bisection
        Limits on the makespan are refuted by windows, by bisection (:mod:`placekit.solvers.makespan.bounds.quick`).
    series
        Segments between the ops that separate the graph are solved one by one
        (:mod:`placekit.solvers.makespan.exact.series`).
    a_star
        All schedules of a few ops are searched (:mod:`placekit.solvers.makespan.exact.a_star`).
    assignment
        Programs say who runs where, and when (:mod:`placekit.solvers.makespan.bounds.assignment_programs`).
    both_ends
        What any schedule loses at its ends is searched for (:mod:`placekit.solvers.makespan.bounds.both_ends`).
    case_split
        Limits are refuted case by case (:mod:`placekit.solvers.makespan.decomposition.case_split`).
    rising_limits
        The constraint program refutes limits far below the best makespan first; without it, it is asked for the best.
    """

    beam: bool = True
    prices: bool = True
    perturbation: bool = True
    successive_halving: bool = True
    tempering: bool = True
    stretches: bool = True
    cuts: bool = True
    between: bool = True
    energy: bool = True
    shared_work: bool = True
    loads: bool = True
    bisection: bool = True
    series: bool = True
    a_star: bool = True
    assignment: bool = True
    both_ends: bool = True
    case_split: bool = True
    rising_limits: bool = True

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of all mechanisms, as users write them."""
        return tuple(field.name.replace("_", "-") for field in fields(cls))

    @classmethod
    def without(cls, names: str) -> Self:
        """Return all mechanisms but those of a list with commas.

        Raises
        ------
        InvalidProblemError
            A name that no mechanism has; the message lists them.

        Examples
        --------
        >>> Mechanisms.without("beam, both-ends").both_ends
        False
        """
        off = [name.strip() for name in names.split(",") if name.strip()]
        for name in off:
            if name not in cls.names():
                raise InvalidProblemError(f"no mechanism {name!r} of the makespan; there are {', '.join(cls.names())}")
        return cls(**{name.replace("-", "_"): False for name in off})


ALL = Mechanisms()
"""Everything, as it is by default."""
