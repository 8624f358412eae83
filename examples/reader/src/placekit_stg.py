"""A sample reader of placekit: the Standard Task Graph Set of Tobita and Kasahara 2002 (``.stg``)."""

from __future__ import annotations

from pathlib import Path

import placekit as pk
from placekit.io.readers import Reader
from placekit.io.reading import blaming, read_text
from placekit.model.errors import InvalidFileError


def read_stg(path: Path) -> pk.Problem:
    """Read a task graph for two equal processors, on which messages are free.

    Behind the number of tasks, each line has a task: its number, its time, and how many tasks it waits for, and which.
    """
    lines = [line.split() for line in read_text(path).splitlines()]
    model, readers = pk.Model(path.stem), dict[str, list[str]]()
    for processor in ("proc.0", "proc.1"):
        model.add_device(processor, "proc")
    with blaming(path):  # names the file in every error of placekit
        for at, words in enumerate(lines[1:], start=2):
            if not words or words[0].startswith("#"):
                continue
            if len(words) < 3 or not all(word.isdigit() for word in words) or int(words[2]) != len(words) - 3:
                raise InvalidFileError(f"{path}, line {at}: {' '.join(words)!r} is no task: NUMBER TIME COUNT TASKS")
            model.add_op(words[0], time_s=float(words[1]))
            for before in words[3:]:
                readers.setdefault(before, []).append(words[0])
        for task, waiting in readers.items():
            model.add_tensor(task, waiting)
        return model.problem(pk.Makespan())


STG = Reader("problem", read_stg, suffixes=(".stg",))
