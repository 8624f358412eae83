"""Verdict on splitting a model, as a result carries it; :mod:`placekit.advice.verdict` comes to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from placekit.model.placement import Placement, Violation
from placekit.model.reprs import MOST_CHARACTERS
from placekit.model.sizes import format_bytes

Form: TypeAlias = Literal["device", "all cores", "runtime", "copies", "split"]
"""Ways of running a model, the simplest first."""

Advised: TypeAlias = Literal["device", "all cores", "runtime", "copies", "split", "not known"]
"""What a verdict advises: a form, or `NOT_KNOWN`."""

NOT_KNOWN: Advised = "not known"
"""Verdict where the difference between two ways is less than the error of their costs."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """One way of running the whole model."""

    name: str  # devices in use: ``"GPU"``, ``"all cores"``, ``"CPU.0+CPU.1"``
    form: Form
    objective_s: float | None  # objective in seconds; None if a constraint is broken
    why_not: str | None = None  # the first broken constraint; None if there is none
    # the placement of the problem; None for another platform, or for measured times
    placement: Placement | None = field(default=None, compare=False)
    violations: tuple[Violation, ...] = field(default=(), compare=False)  # all broken constraints
    error: float | None = None  # relative error of its costs, where they are others than those of the problem

    def to_dict(self) -> dict[str, Any]:
        """Return the alternative as JSON values, without the placement."""
        told = {"name": self.name, "form": self.form, "objective": self.objective_s, "why_not": self.why_not}
        return told if self.error is None else told | {"error": self.error}

    @property
    def lack(self) -> str | None:
        """Reason in a few words why it is infeasible: memory, or the first broken constraint; None if feasible."""
        if self.objective_s is not None:
            return None
        lacking = [each for each in self.violations if each.constraint == "memory"]
        if lacking and all(each.constraint == "memory" for each in self.violations):
            most = max(lacking, key=lambda each: each.amount)
            return f"{most.device} lacks {format_bytes(most.amount)}"
        return self.why_not


@dataclass(frozen=True)
class Verdict:
    """Advice on splitting a model, and what a placement gains over simpler ways.

    Parameters
    ----------
    choice
        Form of the best way, such as ``"device"``, ``"copies"`` or ``"split"``; ``"not known"`` if a more complicated
        way is faster by less than the error; None if nothing is feasible.
    use
        Name of the devices, as in `alternatives`; None without a form.
    best_single, best_single_objective
        The best single device (or all cores as one), and its objective in seconds; None if none can run the model.
    objective
        Objective of the placement in seconds; None without one.
    gain
        Speedup of the placement over the best single device; None if one of the two is missing.
    within_error
        True if the gain is not above the error, or not worth it.
    error
        Relative error of the gain, from that of the costs or of the measurement; None if it is not known.
    latency, per_sample
        Latency of one sample of a placement for throughput; seconds per sample in a stream of one for latency.
    sentence
        All of that in one sentence.
    alternatives
        Ways of running the model that were compared.
    """

    choice: Advised | None
    use: str | None
    best_single: str | None
    best_single_objective: float | None
    objective: float | None
    gain: float | None
    within_error: bool
    error: float | None
    latency: float | None
    per_sample: float | None
    sentence: str
    alternatives: tuple[Alternative, ...]

    def __repr__(self) -> str:
        gain = "" if self.gain is None else f"gain={self.gain:.3g}, "
        return f"Verdict(choice={self.choice!r}, {gain}sentence={_short(self.sentence)!r})"

    @property
    def split(self) -> bool:
        """True if the model should be split."""
        return self.choice == "split"

    @property
    def chosen(self) -> Alternative | None:
        """Alternative that the verdict advises; None if that is the placement itself, or nothing."""
        return next((each for each in self.alternatives if (each.form, each.name) == (self.choice, self.use)), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as JSON values; times in seconds."""
        names = ("choice", "use", "best_single", "best_single_objective", "objective", "gain", "within_error", "error")
        more = ("latency", "per_sample", "sentence")
        told = {name: getattr(self, name) for name in (*names, *more)}
        return {"split": self.split, **told, "alternatives": [each.to_dict() for each in self.alternatives]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Verdict:
        """Return the verdict that `to_dict` wrote; placements of alternatives are not in it."""
        values = {name: value for name, value in data.items() if name != "split"}
        others = tuple(
            Alternative(each["name"], each["form"], each["objective"], each["why_not"], error=each.get("error"))
            for each in values.pop("alternatives")
        )
        return cls(**values, alternatives=others)


def _short(sentence: str) -> str:
    return sentence if len(sentence) <= MOST_CHARACTERS else f"{sentence[:MOST_CHARACTERS]}..."
