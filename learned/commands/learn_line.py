"""Progress of a training, on one line of stderr."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import RenderableType

from placekit.cli.output.progress import SolveLine
from placekit.cli.output.units import format_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placekit.learned.measured_reward import MeasuredReward
    from placekit.learned.training.loop import Metrics


class LearnLine(SolveLine):
    """The best and the mean of a running training, its entropy and its speed."""

    def __init__(self, time_limit_s: float | None = None) -> None:
        super().__init__(time_limit_s)
        self._metrics: Mapping[str, float] = {}
        self._update = 0
        self._measured: MeasuredReward | None = None

    def take(self, metrics: Metrics) -> None:
        """Take the newest metrics; the training calls this after every update."""
        self._metrics, self._update = metrics.values, metrics.update

    def take_measured(self, reward: MeasuredReward) -> None:
        """Take a reward that has measured one more placement: a line per update would come too seldom."""
        self._measured = reward

    def render(self, elapsed_s: float) -> RenderableType:
        """Return the line."""
        values = self._metrics
        if self._measured is not None:
            told = self._measured
            limit = "" if told.max_measurements is None else f" of {told.max_measurements}"
            return (
                f"update {self._update}  best {format_time(told.best_s)} measured  {told.measurements}{limit} "
                f"measurements, {told.asked - told.measurements} known before  {elapsed_s:.0f} s  "
                "(Ctrl-C: take the best)"
            )
        if not values:
            return super().render(elapsed_s)
        if "imitation/deviations" in values:
            away = values["imitation/deviations"]
            return f"imitating the teacher  update {self._update}  about {away:.0f} groups elsewhere  {elapsed_s:.0f} s"
        return (
            f"update {self._update}  best {format_time(values.get('charts/best_objective'))}  "
            f"mean cost {-values['charts/episodic_return']:.3f}  entropy {values['losses/entropy']:.3f}  "
            f"{values['charts/SPS']:.0f} evaluations/s  {elapsed_s:.0f} s  (Ctrl-C: take the best)"
        )
