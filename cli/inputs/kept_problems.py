"""Copies of the problems that were solved last, by their hash, so that nothing has to be said twice about a result."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from placekit.io.files.problem_json import read_problem, write_problem
from placekit.io.folders import cache_directory
from placekit.model.errors import PlacekitError
from placekit.model.problem import Problem

MOST_KEPT = 64
"""Problems in the cache; the oldest go first."""
MOST_BYTES = 256 * 2**20
"""Limit for all of them together."""
AT_ONCE_UP_TO = 20_000
"""Ops up to which a problem is kept and the stages of its placement are counted: of ten times as many either takes
seconds, in which the answer is waited for. A larger one has a file of its own, for nobody measures so many."""

_HASH = re.compile(r"[0-9a-f]{8,64}")
_LOGGER = logging.getLogger(__name__)


def keep_problem(problem: Problem) -> None:
    """Keep `problem` in the cache under its hash, as the latest problem.

    One of more than `AT_ONCE_UP_TO` ops is not kept. What cannot be kept is logged, and built anew when it is wanted.
    """
    if problem.graph.num_ops > AT_ONCE_UP_TO:
        return
    path = _path(problem.content_hash)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            path.touch()
        else:
            write_problem(problem, path)
        _drop_oldest(path.parent)
    except (OSError, PlacekitError) as error:
        _LOGGER.info("the problem could not be kept: %s", error)


def kept_problem(content_hash: str | None) -> Problem | None:
    """Return the cached problem of a hash; None if the cache has none."""
    if content_hash is None or not _HASH.fullmatch(content_hash) or not (path := _path(content_hash)).is_file():
        return None
    try:
        problem = read_problem(path)
    except PlacekitError as error:
        _LOGGER.info("the problem that was kept cannot be read: %s", error)
    else:
        if problem.content_hash == content_hash:
            return problem
    path.unlink(missing_ok=True)  # one that is there is not written again
    return None


def _path(content_hash: str) -> Path:
    return cache_directory() / "problems" / f"{content_hash}.json"


def _drop_oldest(folder: Path) -> None:
    num_bytes = 0
    stats = [(path.stat(), path) for path in folder.glob("*.json")]
    for rank, (stat, path) in enumerate(sorted(stats, key=lambda each: -each[0].st_mtime)):
        num_bytes += stat.st_size
        if rank and (rank >= MOST_KEPT or num_bytes > MOST_BYTES):
            path.unlink(missing_ok=True)
