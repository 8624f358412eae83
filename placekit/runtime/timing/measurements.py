"""Measured series and their statistics: medians, spreads, percentiles, ratios, and signs of noise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from placekit.model.errors import UnknownNameError
from placekit.runtime.pipelines.pipeline import UNKNOWN_MEMBER
from placekit.runtime.timing.timed_process import Burst

Quantity: TypeAlias = Literal["throughput", "latency"]

MAX_SPREAD = 0.1
"""Interquartile range over median from which on a number is flagged as spread out."""
MAX_DRIFT = 0.05
"""Relative change from the first to the last third of the rounds from which on it is flagged as drifting."""
_LEAST_QUIET = 3
_PERCENTILES = (5, 50, 95, 99)
_COLUMNS = (
    "latency_s", "latency_round", "throughput_per_s", "round", "foreign_load", "stage_times_s", "stage_members",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Estimate:
    """Median and interquartile range."""

    median: float
    iqr: float

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Self:
        """Return the estimate from ``[num_values]`` at least one value."""
        low, median, high = np.percentile(values, [25, 50, 75])
        return cls(float(median), float(high - low))

    @property
    def reciprocal(self) -> Estimate:
        """Seconds per sample of samples per second, to first order: d(1/x) = dx / x^2."""
        return Estimate(1 / self.median, self.iqr / self.median**2)


@dataclass(frozen=True, eq=False)
class Measurements:
    """Measurements of one contender."""

    name: str  # its name
    # latency_s, latency_round: ``[num_samples]`` seconds of every sample that ran alone, and the round in which it ran
    latency_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    latency_round: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    # throughput_per_s, round, foreign_load: ``[num_rounds]`` samples per second of a stream, number of the round, and
    # the share of the cores' time that other load took in it
    throughput_per_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    round: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    foreign_load: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    # ``[num_samples, num_stages, 2]`` start and end of every stage of some samples of the last round; a stream if
    # streams were measured
    stage_times_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0, 2)))
    # ``[num_samples, num_stages]`` which member of its team ran every stage of these samples; `UNKNOWN_MEMBER` where
    # members share a compiled model
    stage_members: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    error: str | None = None  # why there is nothing; None else

    def with_round(self, number: int, bursts: Mapping[str, Burst], foreign_load: float) -> Measurements:
        """Return the series with one more round.

        A contender that was not streamed has the rate of its samples one after another as throughput.
        """
        alone = bursts.get("latency")
        latency_s = np.zeros(0) if alone is None else alone.latency_s
        last = bursts["throughput"] if "throughput" in bursts else bursts["latency"]
        return replace(
            self,
            latency_s=np.append(self.latency_s, latency_s),
            latency_round=np.append(self.latency_round, np.full(len(latency_s), number)),
            throughput_per_s=np.append(self.throughput_per_s, last.throughput_per_s),
            round=np.append(self.round, number),
            foreign_load=np.append(self.foreign_load, foreign_load),
            stage_times_s=last.stage_times_s,
            stage_members=last.stage_members,
        )

    def of_rounds(self, rounds: NDArray[np.int64]) -> Measurements:
        """Return what was measured in some rounds only."""
        kept = np.isin(self.round, rounds)
        alone = np.isin(self.latency_round, rounds)
        return replace(
            self,
            latency_s=self.latency_s[alone],
            latency_round=self.latency_round[alone],
            throughput_per_s=self.throughput_per_s[kept],
            round=self.round[kept],
            foreign_load=self.foreign_load[kept],
        )

    @property
    def latency(self) -> Estimate | None:
        """Seconds of a sample that runs alone; None if not measured."""
        return Estimate.of(self.latency_s) if len(self.latency_s) else None

    @property
    def throughput(self) -> Estimate | None:
        """Samples per second over the rounds; None if not measured."""
        return Estimate.of(self.throughput_per_s) if len(self.throughput_per_s) else None

    @property
    def drift(self) -> float:
        """Relative change of the throughput from the first to the last third of the rounds."""
        third = len(self.throughput_per_s) // 3
        if not third:
            return 0.0
        first, last = self.throughput_per_s[:third], self.throughput_per_s[-third:]
        return float(np.median(last) / np.median(first) - 1)

    @property
    def stage_busy_s(self) -> NDArray[np.float64]:
        """``[num_stages]`` median seconds that every stage works on a sample; empty if not known."""
        durations = np.diff(self.stage_times_s, axis=2)[:, :, 0]
        busy: NDArray[np.float64] = np.median(durations, axis=0) if len(durations) else np.zeros(0)
        return busy

    def member_busy_s(self, stage: int, member: int) -> float | None:
        """Return the median seconds that a member of a stage's team works on a sample; None if not known.

        Where equal members share a compiled model, it is that of all of them.
        """
        if not self.stage_times_s.size:
            return None
        mine = self.stage_times_s[np.isin(self.stage_members[:, stage], (member, UNKNOWN_MEMBER)), stage]
        return float(np.median(mine[:, 1] - mine[:, 0])) if len(mine) else None

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as JSON values; numbers that were not measured are None."""
        latency, throughput = self.latency, self.throughput
        percentiles = np.percentile(self.latency_s, _PERCENTILES).tolist() if latency else [None] * len(_PERCENTILES)
        return {
            "name": self.name,
            "latency_s": latency and latency.median,
            "latency_s_iqr": latency and latency.iqr,
            "latency_s_percentiles": {str(p): value for p, value in zip(_PERCENTILES, percentiles, strict=True)},
            "throughput_per_s": throughput and throughput.median,
            "throughput_per_s_iqr": throughput and throughput.iqr,
            "rounds": len(self.round),
            "samples": len(self.latency_s),
            "foreign_load": float(np.median(self.foreign_load)) if len(self.foreign_load) else None,
            "drift": self.drift,
            "error": self.error,
        }


@dataclass(frozen=True, eq=False)
class Timings:
    """Contenders measured against each other, as the rounds were."""

    series: tuple[Measurements, ...]  # one per contender, in their order
    max_foreign_load: float  # other load from which on a round counts as disturbed
    wall_s: float  # seconds that measuring took
    is_cached: bool = False  # whether this was measured before and kept

    @property
    def quiet_rounds(self) -> NDArray[np.int64]:
        """Rounds in which other load left every contender alone."""
        rounds = np.unique(np.concatenate([each.round for each in self.series]))
        disturbed = [each.round[each.foreign_load > self.max_foreign_load] for each in self.series]
        quiet: NDArray[np.int64] = np.setdiff1d(rounds, np.concatenate(disturbed))
        return quiet

    @property
    def used(self) -> tuple[Measurements, ...]:
        """The series of the quiet rounds; of all rounds if less than three were quiet."""
        quiet = self.quiet_rounds
        return tuple(each.of_rounds(quiet) for each in self.series) if len(quiet) >= _LEAST_QUIET else self.series

    @property
    def is_noisy(self) -> bool:
        """True if disturbed rounds had to be used."""
        return len(self.quiet_rounds) < _LEAST_QUIET

    def __getitem__(self, name: str) -> Measurements:
        """Return the used series of a contender."""
        for each in self.used:
            if each.name == name:
                return each
        raise UnknownNameError(f"no contender {name!r}; contenders are {', '.join(s.name for s in self.series)}")

    def ratio(self, name: str, other: str, quantity: Quantity = "throughput") -> Estimate | None:
        """Return how many times `name` is as good as `other`: the quotient of their medians; None without one.

        So it is the quotient of the two numbers that are told of them. The spread is that of the ratios within rounds,
        in which changes of the machine hit both sides. Of latencies, less is better.
        """
        one, two = self[name], self[other]
        medians = (one.latency, two.latency) if quantity == "latency" else (one.throughput, two.throughput)
        mine, theirs = _by_round(one, quantity), _by_round(two, quantity)
        both = sorted(mine.keys() & theirs.keys())
        if medians[0] is None or medians[1] is None or not both:
            return None
        ratios = np.array([mine[each] / theirs[each] for each in both])
        ratio = medians[0].median / medians[1].median
        if quantity == "latency":
            ratio, ratios = 1 / ratio, 1 / ratios
        return Estimate(ratio, Estimate.of(ratios).iqr)

    def over_best(self, name: str, others: Iterable[str]) -> Estimate | None:
        """Return how many times `name` has the throughput of the best of `others`; None without one.

        The best of several medians is above what it would be measured as again: it was lucky, too. So the rounds are
        halved, even and odd ones; which contender is the best is decided in the one half, and the ratios are those of
        the other half, and the other way round (cross-fitting).
        """
        others, rounds = tuple(others), np.unique(np.concatenate([each.round for each in self.used]))
        halves = (rounds[::2], rounds[1::2]) if len(rounds) > 1 else (rounds, rounds)
        ratios: list[float] = []
        for chosen, compared in (halves, halves[::-1]):
            series = tuple(each.of_rounds(chosen) for each in self.series)
            best = replace(self, series=series, max_foreign_load=np.inf).best(others)
            if best is not None:
                mine, theirs = (_by_round(self[each].of_rounds(compared), "throughput") for each in (name, best))
                ratios += [mine[each] / theirs[each] for each in mine.keys() & theirs.keys()]
        return Estimate.of(np.array(ratios)) if ratios else None

    def best(self, names: Iterable[str], quantity: Quantity = "throughput") -> str | None:
        """Return the contender among `names` with the best median; None if none of them was measured."""
        found = {name: getattr(self[name], quantity) for name in names}
        known = {name: estimate.median for name, estimate in found.items() if estimate is not None}
        if not known:
            return None
        return min(known, key=lambda each: known[each] * (1 if quantity == "latency" else -1))

    def flags(self) -> tuple[str, ...]:
        """Return why not to believe the numbers, one sentence each; empty if there is no reason."""
        told = []
        if self.is_noisy:
            total = len(np.unique(np.concatenate([each.round for each in self.series])))
            worst = max((float(np.median(s.foreign_load)) for s in self.series if len(s.round)), default=0.0)
            told.append(
                f"other load disturbed {total - len(self.quiet_rounds)} of {total} rounds (median up to {worst:.0%} of "
                "the cores)"
            )
        for each in self.used:
            doubts = [
                f"{what} is spread by {estimate.iqr / estimate.median:.0%}"
                for what, estimate in (("throughput", each.throughput), ("latency", each.latency))
                if estimate is not None and estimate.iqr > MAX_SPREAD * estimate.median
            ]
            if abs(each.drift) > MAX_DRIFT:
                doubts.append(f"throughput drifted by {each.drift:+.0%} while it was measured")
            if doubts:
                told.append(f"{each.name}: {', '.join(doubts)}")
        return tuple(told)

    def to_arrays(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return the arrays and the JSON values from which `from_arrays` makes it again."""
        arrays = {f"{at}.{name}": getattr(each, name) for at, each in enumerate(self.series) for name in _COLUMNS}
        meta = {
            "names": [each.name for each in self.series],
            "max_foreign_load": self.max_foreign_load,
            "wall_s": self.wall_s,
        }
        return arrays, meta

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        """Return what was kept."""
        columns: list[dict[str, Any]] = [
            {column: arrays[f"{at}.{column}"] for column in _COLUMNS} for at in range(len(meta["names"]))
        ]
        series = tuple(Measurements(name, **each) for name, each in zip(meta["names"], columns, strict=True))
        return cls(series, float(meta["max_foreign_load"]), float(meta["wall_s"]), is_cached=True)


def _by_round(series: Measurements, quantity: Quantity) -> dict[int, float]:
    if quantity == "throughput":
        return dict(zip(series.round.tolist(), series.throughput_per_s.tolist(), strict=True))
    rounds = np.unique(series.latency_round).tolist()
    return {each: float(np.median(series.latency_s[series.latency_round == each])) for each in rounds}
