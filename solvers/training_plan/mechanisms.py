"""What ``dp`` for training plans can do without: each mechanism, by its name, can be switched off.

``--param without=prices``; the suite ``ablation-latency`` measures what each of them brings.
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
    orders_first
        Ideals of a few linear orders are searched before all of them, where there are many.
    prices
        Prices of a second refute stages without a knapsack (:mod:`placekit.solvers.training_plan.relaxation`).
    """

    orders_first: bool = True
    prices: bool = True
    objective: ClassVar[str] = "training-plan"


ALL = Mechanisms()
"""Everything, as it is by default."""


@dataclass(frozen=True)
class Without(switches.Without[Mechanisms]):
    """The parameter of ``dp`` for training plans."""

    table = Mechanisms
