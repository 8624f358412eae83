"""``python -m placekit.learned.pretrain -o policy.pt``: make the policy that placekit ships.

Trains GDP on generated problems of two kinds of device and writes a policy for ``--method policy:policy.pt``.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from time import perf_counter

from placekit.learned.checkpoint import write_checkpoint
from placekit.learned.gdp.method import GdpParams
from placekit.learned.pretraining import pretrain, pretraining_problem
from placekit.learned.training import Metrics
from placekit.objectives import Makespan, SerialLatency
from placekit.stop import StopReason

_LOGGER = logging.getLogger(__name__)
_REPORT_EVERY = 50


def main(arguments: list[str] | None = None) -> None:
    """Parse `arguments` (the command line's by default), train, write."""
    parser = argparse.ArgumentParser(prog="python -m placekit.learned.pretrain", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True, help="policy file to write")
    parser.add_argument("--problems", type=int, default=400, help="generated problems to train on")
    parser.add_argument("--rounds", type=int, default=14, help="updates per problem")
    parser.add_argument("--time-limit", type=float, default=3600.0, help="seconds after which to stop")
    parser.add_argument("--objective", choices=["serial-latency", "makespan"], default="serial-latency")
    parser.add_argument("--seed", type=int, default=0, help="seed of problems and training")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    objective = SerialLatency() if options.objective == "serial-latency" else Makespan()
    problems = [pretraining_problem(options.seed * 100_000 + number, objective) for number in range(options.problems)]
    params = GdpParams(
        updates=options.rounds,
        patience=0,
        learning_rate=5e-4,  # with that of one problem alone, the shared network forgets in jumps
        epochs=2,
        entropy_updates=max(1, options.rounds * 2 // 3),
    )
    begun = perf_counter()
    returns: list[float] = []

    def report(metrics: Metrics) -> None:
        returns.append(metrics.values["charts/episodic_return"])
        if len(returns) % _REPORT_EVERY == 0:
            mean = sum(returns[-_REPORT_EVERY:]) / _REPORT_EVERY
            _LOGGER.info("%6.0f s  update %5d  mean cost %.4f", perf_counter() - begun, len(returns), -mean)

    def should_stop() -> StopReason | None:
        return StopReason.TIME if perf_counter() - begun >= options.time_limit else None

    write_checkpoint(
        options.output, pretrain(problems, params, seed=options.seed, should_stop=should_stop, on_update=report)
    )


if __name__ == "__main__":
    main()
