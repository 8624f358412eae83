"""What ``mincut`` can do without: each mechanism, by its name, can be switched off.

``--param without=pieces,paths``; the suite ``ablation-latency`` measures what each of them brings.
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
    direction
        With contiguity, cuts that everything crosses in one direction.
    memory_prices
        Cuts with a price on bytes (:mod:`placekit.solvers.serial_latency.memory`).
    paths
        Cuts with a price on changes along paths (:mod:`placekit.solvers.serial_latency.paths`).
    pieces
        Moves of whole pieces (:mod:`placekit.solvers.serial_latency.subgraphs`).
    descent
        Single moves (:mod:`placekit.solvers.serial_latency.descent`).
    decomposition
        The bound of one cut per device (:mod:`placekit.solvers.serial_latency.decomposition`).
    levels
        The constraint program that counts subgraphs (:mod:`placekit.solvers.serial_latency.levels`).
    """

    direction: bool = True
    memory_prices: bool = True
    paths: bool = True
    pieces: bool = True
    descent: bool = True
    decomposition: bool = True
    levels: bool = True
    objective: ClassVar[str] = "serial-latency"


ALL = Mechanisms()
"""Everything, as it is by default."""


@dataclass(frozen=True)
class Without(switches.Without[Mechanisms]):
    """The parameter of ``mincut``."""

    table = Mechanisms
