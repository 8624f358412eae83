"""Arguments and options that several commands share, so that they read alike everywhere; exit codes of a search."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from placekit.cli.console import take_stdout
from placekit.cli.parameters import COMMON, OUTPUT, PLATFORM, SEARCH, option, shared
from placekit.io.files.platform_toml import parse_memory
from placekit.io.reading import read_text
from placekit.model.errors import InvalidFileError, InvalidProblemError, did_you_mean
from placekit.solve.result import Status
from placekit.solve.stop import AnyOf, MaxMemory, MaxRuntime, Stop, TargetGap

ModelArgument = Annotated[
    Path, typer.Argument(help="Model: OpenVINO IR (.xml), ONNX, or PyTorch program (.pt2).", show_default=False)
]
ProblemArgument = Annotated[
    Path,
    typer.Argument(
        help="Model (.xml, .onnx, .pt2), problem or workload (.json), or graph (.graphml).", show_default=False
    ),
]
PlacementArgument = Annotated[
    Path, typer.Argument(help="Placement or result (.json) of this model.", show_default=False)
]
QuestionArgument = Annotated[
    Path | None, typer.Argument(help="Model, problem or workload of the result; needed if it was solved elsewhere.")
]
CostsOption = Annotated[
    str | None, shared("Costs of the model: a costs file, 'analytic' or 'profiled' (default).", "FILE", panel=COMMON)
]
ShapeOption = Annotated[
    list[str] | None,
    shared(
        "Shapes of dynamic inputs: ids[1,128],mask[1,128]; repeatable for other inputs.", "IDS[1,128]", panel=COMMON
    ),
]
DefaultDeviceOption = Annotated[
    str | None, shared("Device of ops that the placement file leaves out.", "NAME", panel=PLATFORM)
]
SeedOption = Annotated[int, shared("Seed of all random choices.", "N", names="--seed", min=0)]
DetailsOption = Annotated[
    bool,
    shared("Also print facts of the model, stages of the search, and other details.", names="--details", panel=OUTPUT),
]
JsonOption = Annotated[bool, shared("Print one JSON object instead of tables.", names="--json", panel=OUTPUT)]


def output_option(what: str) -> Any:
    """Return the option ``-o`` for the file that a command writes, or the first one of several; ``-`` is stdout."""
    return option(None, what, "FILE", names="--output -o", panel=OUTPUT, callback=take_stdout)


def parse_pairs(option: str, pairs: Iterable[str] | None, what: str) -> dict[str, str]:
    """Return ``LEFT=RIGHT`` pairs as a dictionary; the last ``=`` separates, names of ops may contain others."""
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


def _take(ctx: typer.Context, path: Path | None) -> Path | None:
    """Make the values of the file the defaults of the command that is being called."""
    if path is not None:
        ctx.default_map = {**(ctx.default_map or {}), **_defaults(path, ctx.command.params)}
    return path


OptionsFile = Annotated[
    Path | None,
    shared(
        "Options from a file: `time-limit = 10`. Options on the command line come first.",
        "FILE.toml",
        names="--options",
        panel=COMMON,
        callback=_take,
        is_eager=True,
    ),
]


def _defaults(path: Path, parameters: list[Any]) -> dict[str, Any]:
    """Return the values in the file by the parameter that they set."""
    try:
        document = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise InvalidFileError(f"{path}: not TOML: {error}") from None
    known = {
        name.removeprefix("--"): each
        for each in parameters
        if each.param_type_name == "option" and not each.is_eager
        for name in each.opts
        if name.startswith("--")
    }
    found = {}
    for key, value in document.items():
        name = key.replace("_", "-")
        if name not in known:
            raise InvalidFileError(
                f"{path}: no option {key!r}; options are {', '.join(known)}{did_you_mean(name, known)}"
            )
        found[known[name].name] = _given(f"{path}: {key}", value, known[name])
    return found


def _given(where: str, value: Any, asked: Any) -> Any:
    """Return a value of the file as the command line would give it: one text, several texts, or a flag."""
    if asked.is_flag:
        if not isinstance(value, bool):
            raise InvalidFileError(f"{where} is {value!r}; it should be true or false")
        return value
    texts = value if asked.multiple and isinstance(value, list) else [value]
    for each in texts:
        if isinstance(each, bool) or not isinstance(each, str | int | float):
            raise InvalidFileError(f"{where} is {each!r}; it should be a text or a number")
    return [str(each) for each in texts] if asked.multiple else str(value)


EXIT_INFEASIBLE = 3
"""Proven: no placement satisfies the constraints."""
EXIT_NO_ANSWER = 4
"""Stopped without a feasible placement, and without a proof that there is none."""


@dataclass(frozen=True)
class SearchOptions:
    """Method, limits and seed of a search, as the user gave them."""

    panel: ClassVar[str] = SEARCH

    method: str = option(
        "auto", "Name of the method. `placekit methods` lists all of them.", "NAME", names="--method -m", panel=COMMON
    )
    time_limit: float = option(60.0, "Solving time; imports and compilation come before it.", "SECONDS", panel=COMMON)
    gap: float | None = option(None, "Stop at this proven gap: 0.01 is 1 %.", "RATIO")
    memory_limit: str | None = option(None, "Memory that this process may take. Default: most of what is free.", "4GiB")
    param: list[str] | None = option(
        None, "Set a parameter of the method; repeatable (`placekit methods NAME`).", "NAME=VALUE"
    )
    seed: SeedOption = 0

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of the method."""
        return parse_params(self.param)

    def stop(self, spent_s: float = 0.0) -> Stop:
        """Return when to stop, of which `spent_s` seconds are gone."""
        limits: list[Stop] = [MaxRuntime(max(self.time_limit - spent_s, 0.0) if spent_s else self.time_limit)]
        if self.gap is not None:
            limits.append(TargetGap(self.gap))
        if self.memory_limit is not None:
            limits.append(MaxMemory(parse_memory(self.memory_limit, "--memory-limit")))
        return limits[0] if len(limits) == 1 else AnyOf(tuple(limits))


def exit_code(answer: object | None, status: Status) -> int:
    """Return 0 for an answer, 3 for a proof that there is none, 4 for neither."""
    if answer is not None:
        return 0
    return EXIT_INFEASIBLE if status is Status.INFEASIBLE else EXIT_NO_ANSWER
