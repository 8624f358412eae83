"""The best known answers of rows as files, for ``placekit verify``: rows of suites with ``answers`` hold them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from placekit.benchmarks.report.groups import Group
from placekit.io.atomic import write_json
from placekit.model.errors import InvalidFileError


def write_answers(groups: Iterable[Group], folder: Path) -> int:
    """Write the answer with the best objective of every problem, and the one with the best bound if it is another.

    Returns the number of files. Raises `InvalidFileError`: no row has its answer.
    """
    count = 0
    for group in groups:
        name = re.sub(r"[^\w.-]+", "-", f"{group.model}.{group.variant}.{group.contiguity}")
        with_answer = [row for row in group.all_rows if row.get("answer")]
        has = sorted((row for row in with_answer if row["objective_s"] is not None), key=lambda row: row["objective_s"])
        proves = sorted((row for row in with_answer if row["bound_s"] is not None), key=lambda row: -row["bound_s"])
        chosen = {"": has[0]} if has else {}
        if proves and (not has or proves[0]["bound_s"] > (has[0]["bound_s"] or 0.0)):
            chosen[".bound"] = proves[0]
        for what, row in chosen.items():
            folder.mkdir(parents=True, exist_ok=True)
            write_json(folder / f"{name}{what}.json", row["answer"])
        count += len(chosen)
    if not count:
        raise InvalidFileError("no row holds its answer; those of suites with `answers = true` do")
    return count
