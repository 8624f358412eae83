"""Files of ``placekit export`` for runtimes of language models: what starts each, or a map of modules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from placekit.exports.commands.writers import ExportTask, Writer, Written, to_affinities, to_device_map
from placekit.io.atomic import write_json, write_text
from placekit.language.runtimes import RUNTIMES
from placekit.language.runtimes.launch import launch, refuse_apart, servers
from placekit.language.runtimes.record import Placed

_DEVICE_MAP = "device-map"
"""The map by itself, of which accelerate is told in an argument."""


def _to_arguments(runtime: str, task: ExportTask) -> Written:
    if task.problem is None:
        started = {"": launch(runtime, Placed(task.graph, task.devices, task.placement))}
    else:
        started = servers(runtime, task.problem, task.placement)
    told = {phase: each.to_dict() for phase, each in started.items()}
    told = told.get("", told)
    write_json(task.target, told)
    files, facts = {runtime: str(task.target)}, {}
    for phase, each in started.items():
        if each.settings:
            settings = task.target.with_suffix(".".join(["", *filter(None, [phase]), each.runtime.settings]))
            write_text(settings, each.settings + "\n")
            files[f"{phase} settings".strip()] = str(settings)
        facts[f"{phase} stages".strip()] = ", ".join(each.devices) or "on the CPU"
    return Written(files, told, facts, "\n".join(each.command for each in started.values()))


def _write(name: str, exports: str, task: ExportTask) -> Written:
    if task.problem is not None:
        refuse_apart(name, task.problem)
    by_modules = {"device map": to_device_map, "affinities": to_affinities}
    return by_modules[exports](task) if exports in by_modules else _to_arguments(name, task)


class _Writers(Mapping[str, Writer]):
    def __getitem__(self, name: str) -> Writer:
        record = RUNTIMES["accelerate" if name == _DEVICE_MAP else name]
        return Writer(partial(_write, name, record.exports), serial=record.name if record.is_serial else None)

    def __iter__(self) -> Iterator[str]:
        return iter((*RUNTIMES, _DEVICE_MAP))

    def __len__(self) -> int:
        return len(RUNTIMES) + 1


WRITERS = _Writers()
"""Writers for every runtime."""
