"""Parts that ``placekit llm --line`` prints of the line that it was given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rich.console import RenderableType

from placekit.cli.output.render import fact_lines, plain_table
from placekit.language.commands.answer_parts import rate
from placekit.language.planning.read_line import ReadLine
from placekit.language.report import DeviceMemory
from placekit.language.runtimes import loadable
from placekit.language.runtimes.typed import parse_line
from placekit.model.blocks.block_paths import block_numbers
from placekit.model.errors import InvalidFileError, InvalidProblemError
from placekit.model.sizes import format_bytes


def text_of(given: str) -> str:
    """Return a line that was given, or the text of the file of this name.

    Raises `InvalidFileError`: the file cannot be read.
    """
    if len(given.split()) > 1 or not Path(given).is_file():
        return given
    try:
        return Path(given).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFileError(f"{given} cannot be read: {error}") from None


def named_model(line: str) -> str:
    """Return the model that a line names: a file, a folder, or a name that is known.

    Raises `InvalidProblemError`: it names none.
    """
    _, named = parse_line(line, loadable())
    if named is None:
        raise InvalidProblemError("the line names no model: give NAME before the options")
    return named


def line_parts(read: ReadLine) -> Iterator[RenderableType]:
    """Return where the line puts the model, whether it loads, and how much faster the best plan is."""
    problem = read.task.problem
    number = block_numbers(problem.graph)
    device = read.placement.device_of_op
    held = {each.device: each for each in read.report.memory}
    table = plain_table("yours", "blocks", "weights", "cache", "limit", "room left")
    for at, used in enumerate(problem.platform.devices):
        for name in used.member_names:
            memory = held.get(name)
            if memory is not None:
                table.add_row(name, str(len(np.unique(number[(device == at) & (number >= 0)]))), *_bytes_of(memory))
    report, best = read.report, read.best.report
    full = ", ".join(each.device for each in read.too_full)
    loads = "it loads" if read.loads else f"it does not load: no room on {full}"
    rates = {
        "prompt": report.time_to_first_token_s and read.task.serving.prompt / report.time_to_first_token_s,
        "generated": report.time_per_token_s and 1 / report.time_per_token_s,
    }
    speed = ", ".join(f"{what} {rate(each)} tokens/s" for what, each in rates.items() if each)
    told = f"{loads}; {speed}; a request in all {rate(report.tokens_per_s)} tokens/s"
    if best is not None and read.gain is not None:
        told += f", with the plan below {rate(best.tokens_per_s)} ({read.gain:.2f}x)"
    yield fact_lines({"yours": told})
    yield table


def _bytes_of(memory: DeviceMemory) -> tuple[str, ...]:
    if memory.limit_bytes is None:
        return format_bytes(memory.weight_bytes), format_bytes(memory.cache_bytes), "-", "-"
    left = memory.limit_bytes - memory.weight_bytes - memory.cache_bytes - memory.activation_bytes
    return (
        format_bytes(memory.weight_bytes), format_bytes(memory.cache_bytes), format_bytes(memory.limit_bytes),
        format_bytes(left) if left >= 0 else f"lacks {format_bytes(-left)}",
    )  # fmt: skip
