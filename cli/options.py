"""Arguments and options that several commands share, so that they read alike everywhere."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from placekit.cli.console import take_stdout
from placekit.model.errors import InvalidProblemError

__all__ = [
    "BurstOption",
    "CostsOption",
    "DefaultDeviceOption",
    "ExecutorOption",
    "JsonOption",
    "MemoryHeadroomOption",
    "MemoryLimitOption",
    "MemoryModelOption",
    "MemoryOption",
    "ModelArgument",
    "ParamOption",
    "PinOption",
    "RoundsOption",
    "SeedOption",
    "ShapeOption",
    "output_option",
    "parse_pairs",
    "parse_params",
]

ModelArgument = Annotated[
    Path, typer.Argument(help="OpenVINO IR (.xml), ONNX, or a PyTorch program (.pt2).", show_default=False)
]
DefaultDeviceOption = Annotated[
    str | None,
    typer.Option("--default-device", metavar="NAME", help="Device of the ops that the placement file leaves out."),
]
ShapeOption = Annotated[
    str | None, typer.Option("--shape", metavar="IDS[1,128]", help="Shapes of dynamic inputs: ids[1,128],mask[1,128].")
]
SeedOption = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed of every random choice.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout instead of tables.")]
CostsOption = Annotated[
    str | None,
    typer.Option("--costs", metavar="FILE", help="Costs of a model: a file, 'analytic', or 'profiled' (default)."),
]
ExecutorOption = Annotated[
    str,
    typer.Option(
        "--executor",
        metavar="NAME",
        help="threads (a pipeline); serial or hetero (one stage after another).",
    ),
]
BurstOption = Annotated[
    float, typer.Option("--burst", metavar="SECONDS", help="How long each contender streams in a round.")
]
RoundsOption = Annotated[int, typer.Option("--rounds", metavar="N", help="Undisturbed rounds to measure, at least 3.")]
MemoryOption = Annotated[
    list[str] | None,
    typer.Option("--memory", metavar="DEVICE=8GiB", help="Memory limit of a device, family or kind; repeatable."),
]
MemoryModelOption = Annotated[
    str | None,
    typer.Option(
        "--memory-model",
        metavar="peak|sum",
        help="What a model's ops take: weights and the most that is alive at a time, or all outputs (peak).",
    ),
]
MemoryHeadroomOption = Annotated[
    str | None,
    typer.Option("--memory-headroom", metavar="10%", help="Part of every device's memory that has to stay free."),
]
MemoryLimitOption = Annotated[
    str | None,
    typer.Option(
        "--memory-limit", metavar="4GiB", help="Memory that this process may hold; default: most of what is left."
    ),
]
PinOption = Annotated[
    list[str] | None,
    typer.Option(
        "--pin",
        metavar="OP=DEVICE",
        help="Bind ops to a device: by name, 'layers.[0-9].*', type:Conv* or re:REGEX; repeatable.",
    ),
]
ParamOption = Annotated[
    list[str] | None,
    typer.Option(
        "--param", metavar="NAME=VALUE", help="Set a parameter of the method (`placekit methods NAME` lists them)."
    ),
]


def output_option(what: str) -> Any:
    """Return the option ``-o`` of a command that writes one file, or several with this one first; ``-`` is stdout."""
    return typer.Option("--output", "-o", metavar="FILE", callback=take_stdout, help=what)


def parse_pairs(option: str, pairs: Iterable[str] | None, what: str) -> dict[str, str]:
    """Return ``LEFT=RIGHT`` pairs as a dictionary; the last ``=`` separates, names of ops may contain others.

    Raises
    ------
    InvalidProblemError
        A pair without ``=``, with an empty side, or with a left side that was given before.
    """
    found: dict[str, str] = {}
    for pair in pairs or ():
        left, _, right = pair.rpartition("=")
        if not left or not right:
            raise InvalidProblemError(f"{option} {pair!r}: it should be {what}")
        if left in found:
            raise InvalidProblemError(f"{option} {pair!r}: {left!r} is given twice")
        found[left] = right
    return found


def parse_params(pairs: Iterable[str] | None) -> dict[str, Any]:
    """Return parameters: a value that reads as JSON is that value (``3``, ``true``), any other is text.

    Examples
    --------
    >>> parse_params(["threads=2", "solver=HiGHS"])
    {'threads': 2, 'solver': 'HiGHS'}
    """
    return {name: _value(text) for name, text in parse_pairs("--param", pairs, "NAME=VALUE").items()}


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)  # NaN and infinity stay text
    except ValueError:
        return text


def _refuse(constant: str) -> Any:
    raise ValueError(constant)
