"""One measurement of what training costs: one learner on one generated problem, alone in its process.

``python -m placekit.benchmarks.training_cost_case CASE`` measures the case given as JSON and prints its row as JSON.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from placekit.benchmarks.circumstances import circumstances, peak_bytes, reset_peak, resident_bytes
from placekit.benchmarks.families import generate
from placekit.objectives import SerialLatency
from placekit.problem import Problem
from placekit.solvers.registry import get_method
from placekit.stop import StopReason

if TYPE_CHECKING:
    from placekit.learned.environment import Environment
    from placekit.learned.method import LearnedMethod
    from placekit.learned.training import Learner, Metrics

__all__ = ["PHASES", "CostCase", "measure"]

PHASES = ("encode", "sample", "judge", "learn")
"""Where the time of an update goes: the networks forward; drawing placements from what they say; scoring those; and
advantages, loss, gradients and the step of the optimiser. (`rnn` draws inside its network: all of that is ``encode``.)
"""

WARM_UP_OPS = 60

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class CostCase:
    """What is measured.

    Parameters
    ----------
    learner
        A learned method, with its default parameters.
    family, size
        The generated problem: two unequal accelerators, serial latency.
    seconds
        Updates are made until those that count took so long together; 0 for memory, where one is enough.
    """

    learner: str
    family: str
    size: int
    seconds: float

    def problem(self, num_ops: int | None = None) -> Problem:
        """Return the problem; or one of the same family with `num_ops`."""
        return generate(
            self.family, num_ops or self.size, num_devices=2, equal=False, objective=SerialLatency(), transfer_ratio=1.0
        )


class PhaseClock:
    """Seconds by phase. The innermost phase that is running counts.

    Attributes
    ----------
    seconds : dict[str, float]
        By phase; what is not in any other is ``"learn"``.
    """

    def __init__(self) -> None:
        self._running = ["learn"]
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._since = perf_counter()

    @property
    def total_s(self) -> float:
        """Seconds since the last `reset`."""
        self._settle()
        return sum(self.seconds.values())

    def _settle(self) -> None:
        now = perf_counter()
        self.seconds[self._running[-1]] += now - self._since
        self._since = now

    def enter(self, phase: str) -> None:
        """Begin a phase inside the present one."""
        self._settle()
        self._running.append(phase)

    def leave(self) -> None:
        """Go back to the phase before."""
        self._settle()
        self._running.pop()

    def timed(self, phase: str, function: Callable[_P, _T]) -> Callable[_P, _T]:
        """Return `function` as a part of `phase`."""

        def run(*arguments: _P.args, **named: _P.kwargs) -> _T:
            self.enter(phase)
            try:
                return function(*arguments, **named)
            finally:
                self.leave()

        return run

    def watch(self, learner: Learner, environment: Environment) -> None:
        """Count what happens inside `learner` and `environment` from now on."""
        from torch import nn

        setattr(learner, "rollout", self.timed("sample", learner.rollout))  # noqa: B010  # instances, not classes
        setattr(environment, "costs", self.timed("judge", environment.costs))  # noqa: B010

        def enter(*_: object) -> None:
            self.enter("encode")

        def leave(*_: object) -> None:
            self.leave()

        for module in learner.policy.modules():
            if not isinstance(module, nn.ModuleList):  # it has no forward of its own
                module.register_forward_pre_hook(enter)
                module.register_forward_hook(leave)


def measure(case: CostCase) -> dict[str, Any]:
    """Train and return the row of the case.

    Kernels and torch are warm: a tiny problem is trained on first. The first update does not count either, as it
    allocates, unless it is longer than `CostCase.seconds` by itself. Memory is that of the problem, its features and
    its training: the peak, less what the process held after the warm-up.
    """
    from placekit.learned.method import LearnedMethod

    method = get_method(case.learner, {})
    assert isinstance(method, LearnedMethod)
    _updates(method, case.problem(WARM_UP_OPS), 0.0)
    gc.collect()
    reset_peak()
    before = resident_bytes()
    problem = case.problem()
    told = _updates(method, problem, case.seconds)
    peak = peak_bytes()
    return {
        "benchmark": "training-cost",
        **asdict(case),
        "num_ops": problem.graph.num_ops,
        "num_edges": problem.graph.num_edges,
        **told,
        "peak_bytes": peak,
        "memory_bytes": None if peak is None or before is None else peak - before,
    } | circumstances()


def _updates(method: LearnedMethod, problem: Problem, seconds: float) -> dict[str, Any]:
    """Return what an update costs on `problem`."""
    from placekit.learned.environment import Environment
    from placekit.learned.method import seeded_learner
    from placekit.learned.training import Training

    clock = PhaseClock()
    begun_s = perf_counter()
    environment = Environment(problem)
    learner = seeded_learner(method, environment, 0)
    training = Training.begin(learner, environment, method.params, 0)
    setup_s = perf_counter() - begun_s
    clock.watch(learner, environment)
    uncounted, uncounted_evaluations = 0, environment.evaluations
    clock.reset()

    def should_stop() -> StopReason | None:
        is_over = training.update > uncounted and clock.total_s >= seconds
        return StopReason.TIME if is_over else None

    def on_update(metrics: Metrics) -> None:
        nonlocal uncounted, uncounted_evaluations
        if metrics.update == 1 and clock.total_s < seconds:
            uncounted, uncounted_evaluations = 1, environment.evaluations
            clock.reset()

    type(method).loop(training, should_stop, on_update)
    total_s, updates = clock.total_s, training.update - uncounted
    return {
        "setup_s": setup_s,
        "updates": updates,
        "update_s": total_s / updates,
        "evaluations_per_s": (environment.evaluations - uncounted_evaluations) / total_s,
        "shares": {phase: spent / total_s for phase, spent in clock.seconds.items()},
    }


def main() -> None:
    """Measure the case in the first argument."""
    print(json.dumps(measure(CostCase(**json.loads(sys.argv[1])))))


if __name__ == "__main__":
    main()
