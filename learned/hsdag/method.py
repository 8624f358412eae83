"""HSDAG as a method: ``placekit solve --method hsdag``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from placekit.learned.hsdag.learner import HsdagLearner
from placekit.learned.hsdag.params import FIDELITIES, HsdagParams
from placekit.learned.method import LearnedMethod


class Hsdag(LearnedMethod):
    """Trains HSDAG on the problem; see :mod:`placekit.learned.hsdag.learner`.

    Budget without a stop criterion: `HsdagParams.updates`, or `HsdagParams.patience` without a better placement.
    """

    name = "hsdag"
    params_type = HsdagParams
    learner_type = HsdagLearner

    @classmethod
    def from_params(cls, argument: str | None, params: Mapping[str, Any]) -> Self:
        """Make the method; the parameter ``fidelity`` sets the defaults of the others."""
        defaults = FIDELITIES.get(params.get("fidelity", "placekit"), {})  # its parameters refuse another fidelity
        return super().from_params(argument, {**defaults, **params})
