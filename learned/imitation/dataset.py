"""Data sets of labelled problems on disk: what a policy is trained on.

A data set is a folder. ``dataset.json`` says what it is of; ``shard-00000.jsonl.gz`` and so on hold one line per
problem: the whole problem as in a problem file, and its label: the best placement known, its objective and the bound
that was proven. A shard is written whole, atomically, so that a data set that was killed lacks shards, and never has a
broken one.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placekit.io.atomic import write_bytes, write_json
from placekit.io.problem_json import problem_from_dict, problem_to_dict
from placekit.io.reading import parse_json, read_bytes, read_json
from placekit.model.errors import InvalidFileError
from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.objectives.evaluate import evaluate

__all__ = ["LabelledProblem", "read_dataset", "read_shard", "shard_path", "write_manifest", "write_shard"]

SCHEMA = "placekit/labelled-problems/1"
MAX_SHARD_BYTES = 1_000_000_000
"""A shard that unpacks to more than this is no shard."""
_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class LabelledProblem:
    """A problem and the best that is known of it.

    Parameters
    ----------
    problem
        The problem.
    device_of_op, step_of_op
        ``[num_ops]`` the placement; steps are None where the objective has no order.
    objective_s, bound_s
        Its objective and the proven lower bound, seconds; no bound: None.
    runtime_s
        Seconds that the label took.
    """

    problem: Problem
    device_of_op: NDArray[np.int64]
    step_of_op: NDArray[np.int64] | None
    objective_s: float
    bound_s: float | None
    runtime_s: float

    @property
    def gap(self) -> float:
        """Gap between objective and bound, as a share of the bound; infinity without a bound."""
        return self.objective_s / self.bound_s - 1 if self.bound_s else math.inf


def shard_path(folder: Path, number: int) -> Path:
    """Return where shard `number` lies."""
    return folder / f"shard-{number:05d}.jsonl.gz"


def write_manifest(folder: Path, told: dict[str, Any]) -> None:
    """Say what the data set in `folder` is of, or check that it says so already.

    Raises
    ------
    InvalidFileError
        The folder holds a data set of something else.
    """
    path = folder / "dataset.json"
    manifest = {"schema": SCHEMA} | told
    if path.exists():
        found = read_json(path)
        if found != manifest:
            differing = [key for key in manifest if not isinstance(found, dict) or found.get(key) != manifest[key]]
            key = differing[0] if differing else "schema"
            was = found.get(key) if isinstance(found, dict) else None
            raise InvalidFileError(
                f"{path}: a data set with {key} {was!r}, not {manifest.get(key)!r}; take another folder"
            )
        return
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, manifest)


def write_shard(path: Path, labelled: Sequence[LabelledProblem]) -> None:
    """Write a shard, atomically."""
    lines = [json.dumps({"problem": problem_to_dict(each.problem), "label": _label(each)}) for each in labelled]
    write_bytes(path, gzip.compress("".join(line + "\n" for line in lines).encode(), mtime=0))


def _label(each: LabelledProblem) -> dict[str, Any]:
    return {
        "device_of_op": each.device_of_op.tolist(),
        "step_of_op": None if each.step_of_op is None else each.step_of_op.tolist(),
        "objective_s": each.objective_s,
        "bound_s": each.bound_s,
        "runtime_s": each.runtime_s,
    }


def read_dataset(folder: Path) -> Iterator[LabelledProblem]:
    """Yield the problems of all shards that are there, in order.

    Raises
    ------
    InvalidFileError
        No data set, no shard in it, or a shard that cannot be read.
    """
    path = folder / "dataset.json"
    manifest = read_json(path)
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        raise InvalidFileError(f"{path}: not a data set of schema {SCHEMA!r}")
    shards = sorted(folder.glob("shard-*.jsonl.gz"))
    if not shards:
        raise InvalidFileError(f"{folder}: a data set without shards")
    for shard in shards:
        yield from read_shard(shard)


def read_shard(path: Path) -> Iterator[LabelledProblem]:
    """Yield the problems of one shard.

    Raises
    ------
    InvalidFileError
        A shard that is damaged, or a label that is no placement of its problem or not worth what it says.
    """
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(read_bytes(path))) as file:
            content = file.read(MAX_SHARD_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidFileError(f"{path}: cannot be unpacked: {error}") from None
    if len(content) > MAX_SHARD_BYTES:
        raise InvalidFileError(f"{path}: unpacks to more than {MAX_SHARD_BYTES} bytes")
    for number, line in enumerate(content.splitlines()):
        where = f"{path}, line {number + 1}"
        value = parse_json(line, where)
        if not isinstance(value, dict) or set(value) != {"problem", "label"}:
            raise InvalidFileError(f"{where}: not a problem with its label")
        problem = problem_from_dict(value["problem"], where)
        yield _labelled(problem, value["label"], where)


def _labelled(problem: Problem, label: Any, where: str) -> LabelledProblem:
    try:
        steps = label["step_of_op"]
        found = LabelledProblem(
            problem,
            np.array(label["device_of_op"], dtype=np.int64),
            None if steps is None else np.array(steps, dtype=np.int64),
            float(label["objective_s"]),
            None if label["bound_s"] is None else float(label["bound_s"]),
            float(label["runtime_s"]),
        )
        scored = evaluate(problem, Placement.of(problem, found.device_of_op, found.step_of_op))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InvalidFileError(f"{where}: a label that is none: {type(error).__name__}: {error}") from None
    if scored.violations:
        raise InvalidFileError(f"{where}: the label breaks a constraint: {scored.violations[0]}")
    if scored.objective is None or not math.isclose(scored.objective, found.objective_s, rel_tol=_TOLERANCE):
        raise InvalidFileError(f"{where}: the label says {found.objective_s} s, the judge {scored.objective} s")
    return found
