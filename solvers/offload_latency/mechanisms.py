"""What the methods for the offload latency can do without: each mechanism, by its name, can be switched off.

``--param without=chains,polish`` of ``dp`` and ``cpsat``; the suite ``ablation-latency`` measures what each of
them brings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from placekit.solvers import switches
from placekit.solvers.params import CpsatParams, DpParams

__all__ = ["ALL", "Mechanisms", "OffloadCpsatParams", "OffloadDpParams", "Without"]


@dataclass(frozen=True, slots=True)
class Mechanisms(switches.Switches):
    """True for every mechanism that is used.

    Parameters
    ----------
    line
        Where gaps are thinned, ``dp`` also offers a placement along one order of all nodes.
    larger
        Gaps that are thinned are looked at again with more ideals.
    chains
        One call inside a gap holds all of its long chains, or the host takes as long as they do: see
        :mod:`placekit.solvers.offload_latency.chains`.
    inside
        Calls inside a gap are counted by small constraint programs (:mod:`placekit.solvers.offload_latency.inside`).
    polish
        What ``dp`` found is annealed for a moment.
    followers
        The constraint program moves nodes that take no time along with the one that they hang on
        (:mod:`placekit.solvers.offload_latency.free_followers`).
    """

    line: bool = True
    larger: bool = True
    chains: bool = True
    inside: bool = True
    polish: bool = True
    followers: bool = True
    objective: ClassVar[str] = "offload-latency"


ALL = Mechanisms()
"""Everything, as it is by default."""


@dataclass(frozen=True)
class Without(switches.Without[Mechanisms]):
    """The parameter of the methods for the offload latency."""

    table = Mechanisms


@dataclass(frozen=True)
class OffloadDpParams(Without, DpParams):
    """Parameters of ``dp`` for the offload latency."""


@dataclass(frozen=True)
class OffloadCpsatParams(Without, CpsatParams):
    """Parameters of ``cpsat`` for the offload latency."""
