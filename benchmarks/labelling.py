"""``placekit learn --generate``: drawn problems, each labelled with the best placement of a method and its proof.

Shards are made beside each other by processes of this machine or on Ray; one that is there is not made again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import asdict, dataclass
from pathlib import Path

from placekit.benchmarks.generators.drawn import SPLITS, draw_problem
from placekit.benchmarks.workers import make_executor
from placekit.learned.imitation.dataset import LabelledProblem, shard_path, write_manifest, write_shard
from placekit.model.errors import InvalidProblemError, UnknownNameError
from placekit.model.problem import Problem
from placekit.solve.solve import solve
from placekit.solve.stop import MaxRuntime

__all__ = ["Labelling", "generate_dataset", "label", "label_shard"]


@dataclass(frozen=True)
class Labelling:
    """Contents of a data set.

    Parameters
    ----------
    split, seed, max_ops
        Which problems: :func:`placekit.benchmarks.generators.drawn.draw_problem`.
    method, label_s
        Method of the labels, and the most seconds for each.
    per_shard
        Problems in a shard.

    Raises
    ------
    UnknownNameError, InvalidProblemError
        No such split; a value out of its range.
    """

    split: str = "train"
    seed: int = 0
    max_ops: int = 500
    method: str = "auto"
    label_s: float = 1.0
    per_shard: int = 20

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise UnknownNameError(f"no split {self.split!r}; splits are {', '.join(SPLITS)}")
        if not self.label_s > 0:
            raise InvalidProblemError(f"time of a label is {self.label_s} s; it must be > 0")
        if self.per_shard < 1:
            raise InvalidProblemError(f"a shard of {self.per_shard} problems; it must have at least 1")


def label(problem: Problem, method: str, label_s: float, seed: int) -> LabelledProblem | None:
    """Return `problem` with the best placement that `method` finds in `label_s` seconds; None if it finds none."""
    result = solve(problem, method, stop=MaxRuntime(label_s), seed=seed)
    if result.placement is None or result.objective is None:
        return None
    return LabelledProblem(
        problem,
        result.placement.device_of_op,
        result.placement.step_of_op,
        result.objective,
        result.lower_bound,
        result.runtime_s,
    )


def label_shard(labelling: Labelling, folder: Path, shard: int) -> int:
    """Label the problems of one shard and write it; return how many have a label."""
    labelled = []
    for number in range(shard * labelling.per_shard, (shard + 1) * labelling.per_shard):
        problem = draw_problem(labelling.split, labelling.seed, number, max_ops=labelling.max_ops)
        found = label(problem, labelling.method, labelling.label_s, number)
        if found is not None:
            labelled.append(found)
    write_shard(shard_path(folder, shard), labelled)
    return len(labelled)


def generate_dataset(
    labelling: Labelling,
    folder: Path,
    num_problems: int,
    *,
    num_workers: int = 1,
    executor: str = "process",
    time_limit_s: float | None = None,
    on_shard: Callable[[int, int], None] = lambda _done, _total: None,
) -> int:
    """Make the shards of a data set that are not there yet, and return how many it has.

    Parameters
    ----------
    labelling
        What the data set is of.
    folder
        Where; made if it does not exist.
    num_problems
        Problems in all, rounded up to whole shards.
    num_workers, executor
        Shards beside each other, and where: ``"process"`` or ``"ray"``.
    time_limit_s
        No shard is begun after this time; None for no limit.
    on_shard
        Told how many shards there are, and how many there shall be, after each.

    Raises
    ------
    InvalidProblemError
        No problem, or no worker.
    InvalidFileError
        The folder holds a data set of something else.
    """
    if num_problems < 1:
        raise InvalidProblemError(f"a data set of {num_problems} problems; it must have at least 1")
    write_manifest(folder, asdict(labelling))
    begun = time.perf_counter()
    total = -(-num_problems // labelling.per_shard)
    missing = [shard for shard in range(total) if not shard_path(folder, shard).exists()]
    done = total - len(missing)
    if not missing:
        return done

    def is_over() -> bool:
        return time_limit_s is not None and time.perf_counter() - begun >= time_limit_s

    pool = make_executor(executor, num_workers)
    running: set[Future[int]] = set()
    try:
        while (missing and not is_over()) or running:
            while missing and len(running) < num_workers and not is_over():
                running.add(pool.submit(label_shard, labelling, folder, missing.pop(0)))
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                future.result()
                done += 1
                on_shard(done, total)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return done
