"""What the bounds and the local search of the throughput can do without: each can be switched off by its name.

``--param without=clusters`` of ``local-search`` and ``bound``; in a suite ``params = { without = "forced-cuts" }``. The
suite ``ablation-throughput`` measures what each of them brings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from placekit.solvers import switches
from placekit.solvers.params import LocalSearchParams

__all__ = ["ALL", "Mechanisms", "ThroughputLocalSearchParams", "Without"]


@dataclass(frozen=True, slots=True)
class Mechanisms(switches.Switches):
    """True for every mechanism that is used.

    Parameters
    ----------
    forced_work
        Bounds know what accelerators cannot hold (:mod:`placekit.solvers.throughput.bounds.forced_work`).
    forced_cuts
        And that every part pays for a cut (:mod:`placekit.solvers.throughput.bounds.forced_cuts`).
    bottleneck
        One device in detail (:mod:`placekit.solvers.throughput.bounds.bottleneck`).
    several
        And then two, and so on, where one is not all.
    clusters
        Searches move clusters before they move classes (:mod:`placekit.solvers.throughput.local_search.clusters`).
    """

    forced_work: bool = True
    forced_cuts: bool = True
    bottleneck: bool = True
    several: bool = True
    clusters: bool = True
    objective: ClassVar[str] = "throughput"


ALL = Mechanisms()
"""Everything, as it is by default."""


@dataclass(frozen=True)
class Without(switches.Without[Mechanisms]):
    """The parameter of ``bound`` for the throughput."""

    table = Mechanisms


@dataclass(frozen=True)
class ThroughputLocalSearchParams(Without, LocalSearchParams):
    """Parameters of ``local-search`` for the throughput: those for all objectives, and `without`."""
