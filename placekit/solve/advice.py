"""Decision between a placement and simpler ways of running the model, from their seconds, in one sentence.

The simplest way wins that is as fast as the best one, within the error of the costs: one device (or all cores as one
device), then what the runtime does by itself, then copies of the whole model, then a split. Without a known error a
gain below `LEAST_GAIN` counts as none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from placekit.model.reprs import MOST_CHARACTERS, short_list
from placekit.model.sizes import format_seconds
from placekit.model.teams import JOINT
from placekit.solve.alternatives import ALL_CORES, WITH_PINNED, Alternative, Form

LEAST_GAIN = 0.01
"""Relative gain below which nothing is worth a more complicated way."""

LARGE_ERROR = 0.5
"""Relative error of costs above which the advice is to measure again."""

_RANK: dict[Form, int] = {form: rank for rank, form in enumerate(get_args(Form))} | {"all cores": 0}


@dataclass(frozen=True, slots=True)
class Evidence:
    """Facts beside the objectives of the alternatives."""

    error: float | None = None  # relative error of the costs, or of what was measured; None if it is not known
    error_of: str = "the error of these costs"  # whose error it is, in words
    bound_s: float | None = None  # proven lower bound of the objective; None without one
    is_rate: bool = True  # True if objectives are seconds per sample of a stream, False if they are latencies
    latency_s: float | None = None  # latency of one sample, of a placement for throughput
    per_sample_s: float | None = None  # seconds per sample of a stream, of a placement for latency
    why_none: str | None = None  # why there is no placement; None if there is one
    sample: str = "sample"
    is_modelled: bool = False  # True if no cost was measured

    @property
    def tolerance(self) -> float:
        """Relative gain that counts as none."""
        return max(self.error or 0.0, LEAST_GAIN)


@dataclass(frozen=True)
class Verdict:
    """Advice on splitting a model, and what a placement gains over simpler ways.

    Parameters
    ----------
    choice
        Form of the best way, such as ``"device"``, ``"copies"`` or ``"split"``; None if nothing is feasible.
    use
        Name of the devices, as in `alternatives`; None without a choice.
    best_single, best_single_objective
        The best single device (or all cores as one), and its objective in seconds; None if none can run the model.
    objective
        Objective of the placement in seconds; None without one.
    gain
        Speedup of the placement over the best single device; None if one of the two is missing.
    within_error
        True if the gain is not above the error, and thus none.
    error
        Relative error of the costs, or of the measurement; None if it is not known.
    latency, per_sample
        Latency of one sample of a placement for throughput; seconds per sample in a stream of one for latency.
    sentence
        All of that in one sentence.
    alternatives
        Ways of running the model that were compared.
    """

    choice: Form | None
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
            Alternative(each["name"], each["form"], each["objective"], each["why_not"])
            for each in values.pop("alternatives")
        )
        return cls(**values, alternatives=others)


def decide(mine: Alternative | None, others: Sequence[Alternative], evidence: Evidence) -> Verdict:
    """Return the verdict on a placement, `mine`, from the objectives of all alternatives."""
    feasible = [each for each in (*others, *([mine] if mine else [])) if each.objective_s is not None]
    singles = [each for each in others if _RANK[each.form] == 0 and each.objective_s is not None]
    best_single = min(singles, key=_seconds, default=None)
    gain = None
    if mine is not None and best_single is not None:
        a, b = _seconds(best_single), _seconds(mine)
        gain = a / b if b > 0 else 1.0
    chosen = None
    if feasible:
        limit = min(map(_seconds, feasible)) * (1 + evidence.tolerance)
        good = [each for each in feasible if _seconds(each) <= limit]
        chosen = min(good, key=lambda each: (_RANK[each.form], _seconds(each)))
    case = _Case(mine, chosen, best_single, tuple(others), evidence)
    return Verdict(
        choice=None if chosen is None else chosen.form,
        use=None if chosen is None else chosen.name,
        best_single=None if best_single is None else best_single.name,
        best_single_objective=None if best_single is None else best_single.objective_s,
        objective=None if mine is None else mine.objective_s,
        gain=gain,
        within_error=gain is not None and gain <= 1 + evidence.tolerance,
        error=evidence.error,
        latency=evidence.latency_s,
        per_sample=evidence.per_sample_s,
        sentence=case.sentence(),
        alternatives=tuple(replace(each, violations=()) for each in others),
    )


def _seconds(each: Alternative) -> float:
    assert each.objective_s is not None
    return each.objective_s


@dataclass(frozen=True)
class _Case:
    """Facts of the sentence of a verdict."""

    mine: Alternative | None
    chosen: Alternative | None
    best_single: Alternative | None
    others: tuple[Alternative, ...]
    evidence: Evidence

    def sentence(self) -> str:
        if self.chosen is None:
            return f"{self.evidence.why_none or 'No placement was found'}."
        told, error = self._comparison(self.chosen), self.evidence.error
        if error is None:
            return f"{told}{'; costs are modelled, not measured' * self.evidence.is_modelled}."
        return f"{told}{'; so large an error decides nothing, repeat on a quiet machine' * (error >= LARGE_ERROR)}."

    def _comparison(self, chosen: Alternative) -> str:
        mine = self.mine
        if mine is None:
            return f"{self._advice(chosen)}: {self._takes(chosen)}. {self.evidence.why_none or 'No split was found'}"
        if chosen.form == "split":
            return f"{self._split(mine)}{self._tail()}"
        if chosen.form == "copies" and mine.form != "split":
            tail = self._tail() if chosen.name == mine.name else ""  # the latency is that of the placement
            return f"{self._advice(chosen)}: {self._called(chosen)} is {self._over_single(chosen)}{tail}"
        return f"{self._advice(chosen)}: {self._simpler(chosen, mine)}"

    def _advice(self, chosen: Alternative) -> str:
        if chosen.form == "all cores":
            return "Use all cores as one device"
        if chosen.form == "runtime":
            return f"Let the runtime do it ({chosen.name})"
        return "Use copies" if chosen.form == "copies" else "Do not split"

    def _split(self, mine: Alternative) -> str:
        if self.best_single is None:
            lacks = short_list(each.lack for each in self.others if each.form != "copies" and each.lack is not None)
            takes = format_seconds(_seconds(mine)) + self._unit
            return f"Split: no device alone can run the model ({lacks}); {takes}"
        told = f"Split: {self._over_single(mine)}"
        copies = [each for each in self.others if each.form in ("copies", "runtime") and each.objective_s is not None]
        if copies and _seconds(best := min(copies, key=_seconds)) < _seconds(self.best_single):
            told += f", {_times(_seconds(best), _seconds(mine))} over {self._called(best)}"
        return told

    def _over_single(self, each: Alternative) -> str:
        single = self.best_single
        if single is None:
            return f"{format_seconds(_seconds(each))}{self._unit}, and no device alone can run the model"
        change = format_seconds(_seconds(single), _seconds(each)) + self._unit
        return f"{_times(_seconds(single), _seconds(each))} over {self._called(single)} ({change})"

    def _simpler(self, chosen: Alternative, mine: Alternative) -> str:
        """Say how a simpler way compares with the placement."""
        if chosen.form == mine.form and chosen.name == mine.name:
            return f"{self._takes(chosen)}{self._room(_seconds(chosen))}"
        theirs, ours = _seconds(chosen), _seconds(mine)
        called = "it" if chosen.form in ("all cores", "runtime") else self._called(chosen)
        if theirs <= ours:
            faster = "as fast" if theirs > ours * (1 - 1e-9) else f"{_times(ours, theirs)} faster"
            if theirs < ours * (1 - 1e-9) and ours <= theirs * (1 + (self.evidence.error or 0.0)):
                faster = f"as fast, within {self.evidence.error_of} ({_percent(self.evidence.error or 0.0)})"
            both = f"{format_seconds(theirs)}{self._unit} against {format_seconds(ours)} of {self._whose(mine)}"
            return f"{called} is {faster}, {both}"
        share = _percent(theirs / ours - 1)
        both = f"{format_seconds(theirs)}{self._unit} against {format_seconds(ours)} of {self._whose(mine)}"
        error = self.evidence.error
        if error is None or error < LEAST_GAIN:
            return f"{called} is within {share}, {both}; the gain is too small to be worth it"
        return f"{called} is within {share}, {both}; that is less than {self.evidence.error_of} ({_percent(error)})"

    def _room(self, seconds: float) -> str:
        """Say what a split could bring at best."""
        bound = self.evidence.bound_s
        if bound is None:
            return ""
        if bound > seconds * (1 - 1e-6):
            return "; no placement is faster (proven)"
        if bound <= 0:
            return "; no faster placement was found"
        return f"; no faster placement was found, and none is more than {_times(seconds, bound)} as fast (proven)"

    def _takes(self, each: Alternative) -> str:
        return f"{self._called(each)} takes {format_seconds(_seconds(each))}{self._unit}"

    def _called(self, each: Alternative) -> str:
        if each.form == "copies":
            return f"a copy on each of {_members(each.name)}"
        if each.form == "all cores":
            return f"{ALL_CORES} as one device"
        return f"{each.name} alone" if each.form == "device" and WITH_PINNED not in each.name else each.name

    def _whose(self, mine: Alternative) -> str:
        return "the split" if mine.form == "split" else self._called(mine)

    @property
    def _unit(self) -> str:
        return f" {'per' if self.evidence.is_rate else 'for one'} {self.evidence.sample}"

    def _tail(self) -> str:
        latency, per_sample, error = self.evidence.latency_s, self.evidence.per_sample_s, self.evidence.error
        told = ""
        if latency is not None:
            told = f"; latency of one {self.evidence.sample} {format_seconds(latency)}"
        elif per_sample:
            told = f"; in a stream {format_seconds(per_sample)} per {self.evidence.sample}"
        return told if error is None else f"{told}; {self.evidence.error_of} is {_percent(error)}"


def _short(sentence: str) -> str:
    return sentence if len(sentence) <= MOST_CHARACTERS else f"{sentence[:MOST_CHARACTERS]}..."


def _members(name: str) -> str:
    """Return the members of a team for people: the first of many, and how many there are."""
    return short_list(name.split(JOINT))


def _percent(share: float) -> str:
    return f"{share * 100:.2g} %" if share < 0.995 else f"{share * 100:.0f} %"


def _times(slow_s: float, fast_s: float) -> str:
    ratio = slow_s / fast_s if fast_s > 0 else 1.0
    return f"{ratio:.3g}x" if ratio < 1.095 else f"{ratio:.2g}x" if ratio < 9.95 else f"{ratio:.0f}x"
