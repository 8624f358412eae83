"""Decision between a placement and simpler ways of running the model, from their seconds, in one sentence.

The simplest way wins that is as fast as the best one, within the error of the costs: one device (or all cores as one
device), then what the runtime does by itself, then copies of the whole model, then a split. A gain below `LEAST_GAIN`
counts as none. Where a more complicated way seems faster, but by less than a known error, nothing is known: the verdict
is `NOT_KNOWN`, and says what to measure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import get_args

from placekit.advice.alternatives import ALL_CORES, WITH_PINNED
from placekit.model.device_groups import JOINT
from placekit.model.reprs import short_list
from placekit.model.sizes import format_seconds, format_share
from placekit.solve.split_verdict import NOT_KNOWN, Alternative, Form, Verdict
from placekit.solve.stop import relative_gap

LEAST_GAIN = 0.01
"""Relative gain below which nothing is worth a more complicated way."""

LARGE_ERROR = 0.5
"""Relative error of costs above which the advice is to measure again."""

SAMPLE = "sample"
"""Unit of a stream, unless it serves requests."""

_RANK: dict[Form, int] = {form: rank for rank, form in enumerate(get_args(Form))} | {"all cores": 0}
_ANSWER: dict[Form, int] = dict.fromkeys(get_args(Form), 0) | {"copies": 1, "split": 2}
"""Answer to the question whether to split that a form is: not, copies of the whole model, or a split."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Relative error of numbers."""

    error: float | None = None  # None if it is not known
    of: str = "the error of these costs"  # whose error it is, in words
    kind: str = ""  # what it tells, in words that stand behind the number: ``"between repetitions"``

    def __str__(self) -> str:
        told = "" if self.error is None else _percent(self.error)
        return f"{told} {self.kind}".strip()

    @property
    def tolerance(self) -> float:
        """Relative gain that counts as none."""
        return max(self.error or 0.0, LEAST_GAIN)

    @property
    def is_large(self) -> bool:
        """True if the error is larger than what is too small to be worth anything."""
        return (self.error or 0.0) >= LEAST_GAIN


@dataclass(frozen=True, slots=True)
class Evidence:
    """Facts beside the objectives of the alternatives."""

    accuracy: Accuracy = Accuracy()  # of the costs, or of what was measured
    apart: Accuracy = Accuracy()  # of what groups of cores do at once, as against one device alone
    bound_s: float | None = None  # proven lower bound of the objective; None without one
    is_rate: bool = True  # True if objectives are seconds per sample of a stream, False if they are latencies
    latency_s: float | None = None  # latency of one sample, of a placement for throughput
    per_sample_s: float | None = None  # seconds per sample of a stream, of a placement for latency
    why_none: str | None = None  # why there is no placement; None if there is one
    sample: str = SAMPLE
    costs: str = ""  # words for costs that were not measured
    rules: str = ""  # rules that the bound holds under, in words (:mod:`placekit.advice.rules`)
    remedy: str = "to know, measure"  # what decides a verdict that is not known

    def between(self, one: Alternative, other: Alternative) -> Accuracy:
        """Return the accuracy of a comparison of two ways: the largest error that concerns it."""
        known = [self.accuracy]
        forms = {one.form, other.form}
        if len(forms) > 1 and "all cores" in forms:
            whole = one if one.form == "all cores" else other
            of = f"the error of the costs of {ALL_CORES} as one device"
            known.append(Accuracy(whole.error, of, "between repetitions"))
        if len(forms & {"device", "all cores"}) == 1 and forms & {"copies", "split"}:
            known.append(self.apart)
        return max(known, key=lambda each: each.error or 0.0)


def decide(mine: Alternative | None, others: Sequence[Alternative], evidence: Evidence) -> Verdict:
    """Return the verdict on a placement, `mine`, from the objectives of all alternatives."""
    feasible = [each for each in (*others, *([mine] if mine else [])) if each.objective_s is not None]
    singles = [each for each in others if _RANK[each.form] == 0 and each.objective_s is not None]
    best_single = min(singles, key=_seconds, default=None)
    gain = None
    if mine is not None and best_single is not None:
        a, b = _seconds(best_single), _seconds(mine)
        gain = a / b if b > 0 else 1.0
    chosen = rival = None
    if feasible:
        best = min(feasible, key=_seconds)
        good = [e for e in feasible if _seconds(e) <= _seconds(best) * (1 + evidence.between(e, best).tolerance)]
        chosen = min(good, key=lambda each: (_RANK[each.form], _seconds(each)))
        is_other = _ANSWER[best.form] > _ANSWER[chosen.form] and evidence.between(chosen, best).is_large
        rival = best if is_other and _seconds(best) < _seconds(chosen) * (1 - 1e-9) else None
    accuracy = evidence.accuracy
    if mine is not None and best_single is not None:
        accuracy = evidence.between(mine, best_single)
    case = _Case(mine, chosen, rival, best_single, tuple(others), evidence, accuracy)
    return Verdict(
        choice=None if chosen is None else chosen.form if rival is None else NOT_KNOWN,
        use=None if chosen is None or rival is not None else chosen.name,
        best_single=None if best_single is None else best_single.name,
        best_single_objective=None if best_single is None else best_single.objective_s,
        objective=None if mine is None else mine.objective_s,
        gain=gain,
        within_error=gain is not None and gain <= 1 + accuracy.tolerance,
        error=accuracy.error,
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
    chosen: Alternative | None  # the simplest way within the error of the best one
    rival: Alternative | None  # the best way, if it is not known to be better than the chosen one
    best_single: Alternative | None
    others: tuple[Alternative, ...]
    evidence: Evidence
    accuracy: Accuracy  # of the gain

    def sentence(self) -> str:
        if self.chosen is None:
            return f"{self.evidence.why_none or 'No placement was found'}."
        if self.rival is not None:
            return f"{self._open(self.chosen, self.rival)}."
        told, error = self._comparison(self.chosen), self.accuracy.error
        if error is None:
            return f"{'; '.join(filter(None, (told, self.evidence.costs)))}."
        return f"{told}{'; so large an error: measure again on a quiet machine' * (error >= LARGE_ERROR)}."

    def _open(self, chosen: Alternative, rival: Alternative) -> str:
        """Say that the difference between two ways is less than the error, and what would tell."""
        accuracy = self.evidence.between(chosen, rival)
        takes = (f"{format_seconds(_seconds(each))} by {self._whose(each)}" for each in (chosen, rival))
        return (
            f"Not known: the difference is less than {accuracy.of} ({accuracy}): {', '.join(takes)}, "
            f"{self._unit.strip()}; {self.evidence.remedy}"
        )

    def _comparison(self, chosen: Alternative) -> str:
        mine = self.mine
        if mine is None:
            return f"{self._advice(chosen)}: {self._takes(chosen)}. {self.evidence.why_none or 'No split was found'}"
        if chosen.form == "split":
            return f"{self._split(mine)}{self._proof(mine)}{self._tail()}"
        if chosen.form == "copies" and mine.form != "split":
            # proof and latency are those of the placement
            tail = f"{self._proof(mine)}{self._tail()}" if chosen.name == mine.name else ""
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
        both = f"{format_seconds(theirs)}{self._unit} against {format_seconds(ours)} of {self._whose(mine)}"
        accuracy = self.evidence.between(chosen, mine)
        if theirs <= ours:
            faster = "as fast" if theirs > ours * (1 - 1e-9) else f"{_times(ours, theirs)} faster"
            if theirs < ours * (1 - 1e-9) and ours <= theirs * (1 + (accuracy.error or 0.0)):
                faster = f"as fast, within {accuracy.of} ({accuracy})"
            return f"{called} is {faster}, {both}"
        within = f"{called} is within {_percent(theirs / ours - 1)}, {both}"
        if not accuracy.is_large:
            return f"{within}; the gain is too small to be worth it"
        return f"{within}; that is less than {accuracy.of} ({accuracy})"

    def _room(self, seconds: float) -> str:
        """Say what a split could bring at best."""
        bound = self.evidence.bound_s
        if bound is None:
            return ""
        if bound > seconds * (1 - 1e-6):
            return f"; no placement{self.evidence.rules} is faster (proven)"
        if bound <= 0:
            return "; no faster placement was found"
        none = f"none{self.evidence.rules} is more than {_times(seconds, bound)} as fast (proven)"
        return f"; no faster placement was found, and {none}"

    def _proof(self, mine: Alternative) -> str:
        """Say how far the placement is from the best one; of what serves requests, the search says it itself."""
        gap = relative_gap(_seconds(mine), self.evidence.bound_s)
        if gap is None or self.evidence.sample != SAMPLE:
            return ""
        if gap <= 1e-6:
            return f"; no placement{self.evidence.rules} is faster (proven)"
        if gap >= 1:
            return "; not proven"
        return f"; at most {format_share(gap)} from the best placement{self.evidence.rules}"

    def _takes(self, each: Alternative) -> str:
        return f"{self._called(each)} takes {format_seconds(_seconds(each))}{self._unit}"

    def _called(self, each: Alternative) -> str:
        if each.form == "copies":
            return f"a copy on each of {short_list(each.name.split(JOINT))}"
        if each.form == "all cores":
            return f"{ALL_CORES} as one device"
        return f"{each.name} alone" if each.form == "device" and WITH_PINNED not in each.name else each.name

    def _whose(self, each: Alternative) -> str:
        return "the split" if each.form == "split" else self._called(each)

    @property
    def _unit(self) -> str:
        return f" {'per' if self.evidence.is_rate else 'for one'} {self.evidence.sample}"

    def _tail(self) -> str:
        latency, per_sample, accuracy = self.evidence.latency_s, self.evidence.per_sample_s, self.accuracy
        told = ""
        if latency is not None:
            told = f"; latency of one {self.evidence.sample} {format_seconds(latency)}"
        elif per_sample:
            told = f"; in a stream {format_seconds(per_sample)} per {self.evidence.sample}"
        return told if accuracy.error is None else f"{told}; {accuracy.of} is {accuracy}"


def _percent(share: float) -> str:
    return f"{share * 100:.2g} %" if share < 0.995 else f"{share * 100:.0f} %"


def _times(slow_s: float, fast_s: float) -> str:
    ratio = slow_s / fast_s if fast_s > 0 else 1.0
    return f"{ratio:.3g}x" if ratio < 1.095 else f"{ratio:.2g}x" if ratio < 9.95 else f"{ratio:.0f}x"
