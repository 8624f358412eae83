"""``--options FILE.toml``: options of a command from a file, whose keys are the names of the options."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from placekit.cli.parameters import COMMON
from placekit.io.reading import read_text
from placekit.model.errors import InvalidFileError, did_you_mean

__all__ = ["OptionsFile"]


def _take(ctx: typer.Context, path: Path | None) -> Path | None:
    """Make the values of the file the defaults of the command that is being called."""
    if path is not None:
        ctx.default_map = {**(ctx.default_map or {}), **_defaults(path, ctx.command.params)}
    return path


OptionsFile = Annotated[
    Path | None,
    typer.Option(
        "--options",
        metavar="FILE.toml",
        callback=_take,
        is_eager=True,
        help="Options from a file: `time-limit = 10`. Options on the command line come first.",
        rich_help_panel=COMMON,
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
        found[known[name].name] = _value(f"{path}: {key}", value, known[name])
    return found


def _value(where: str, value: Any, option: Any) -> Any:
    """Return a value of the file as the command line would give it: one text, several texts, or a flag."""
    if option.is_flag:
        if not isinstance(value, bool):
            raise InvalidFileError(f"{where} is {value!r}; it should be true or false")
        return value
    if option.multiple:
        return [_text(where, each) for each in (value if isinstance(value, list) else [value])]
    return _text(where, value)


def _text(where: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidFileError(f"{where} is {value!r}; it should be a text or a number")
    return str(value)
