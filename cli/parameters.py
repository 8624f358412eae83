"""Options of a command: fields of the dataclasses that the command takes, and parameters of its own.

::

    @dataclass(frozen=True)
    class SearchOptions:
        panel: ClassVar[str] = SEARCH
        time_limit: float = option(60.0, "Solving time.", "SECONDS")


    def solve(model: ModelArgument, *, search: SearchOptions, seed: int = option(0, "Seed.", "N")) -> None: ...

The command takes ``--time-limit`` and gets a ``SearchOptions``. An option has the name of its field and stands in the
panel of its class unless it says otherwise. A field may itself be such a dataclass. Options that commands share are
annotations (`placekit.cli.options`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import MISSING, Field, field, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, get_args, get_type_hints

import typer

COMMON, PLATFORM, OBJECTIVE, SEARCH, OUTPUT = "Common", "Platform", "Objective", "Search", "Output"
"""Panels of the help, in their order; a command may have others before the last."""


def option(
    default: Any, text: str, metavar: str | None = None, *, names: str = "", panel: str | None = None, **more: Any
) -> Any:
    """Return an option: a field of a dataclass, or the default of a parameter of a command.

    Parameters
    ----------
    default
        Value without the option; ``...`` if the option must be given.
    text, metavar
        Help of the option, and what the help calls its value.
    names
        Spellings, such as ``"--method -m"``; the name of the field where there are none. A flag that is off has no
        ``--no-``.
    panel
        Panel of the help; that of the class where there is none.
    more
        Other arguments of ``typer.Option``.
    """
    made = shared(text, metavar, names=names, panel=panel, **more)
    return field(default=MISSING if default is ... else default, metadata={"option": made})


def shared(text: str, metavar: str | None = None, *, names: str = "", panel: str | None = None, **more: Any) -> Any:
    """Return what `typing.Annotated` makes the type of an option that commands share; see `option`."""
    return typer.Option(*names.split(), metavar=metavar, help=text, rich_help_panel=panel, **more)


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command for typer: options stand in the place of the parameters that are dataclasses.

    Parameters
    ----------
    command
        A function; its dataclass parameters are keyword-only.
    """
    signature = inspect.signature(command, eval_str=True)
    filled: dict[str, Any] = {
        each.name: each.annotation for each in signature.parameters.values() if is_dataclass(each.annotation)
    }
    parameters = [
        inner
        for outer in signature.parameters.values()
        for inner in (_options(filled[outer.name], outer.name) if outer.name in filled else (_parameter(outer),))
    ]

    @wraps(command)
    def expanded(**given: Any) -> None:
        made = {name: _gathered(cls, name, given) for name, cls in filled.items()}
        command(**given, **made)

    expanded.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # inspect reads it
    expanded.__annotations__ = {each.name: each.annotation for each in parameters}
    return expanded


def _options(cls: Any, prefix: str) -> Iterator[inspect.Parameter]:
    """Yield a parameter for every option among the fields of a dataclass, nested dataclasses included."""
    hints = get_type_hints(cls, include_extras=True)
    for each in fields(cls):
        name, hint = f"{prefix}_{each.name}", hints[each.name]
        if is_dataclass(hint):
            yield from _options(hint, name)
        else:
            yield _as_parameter(each, name, each.name, hint, getattr(cls, "panel", COMMON))


def _parameter(given: inspect.Parameter) -> inspect.Parameter:
    if not isinstance(given.default, Field):
        return given
    made = _as_parameter(given.default, given.name, given.name, given.annotation, COMMON)
    return made.replace(kind=given.kind)


def _as_parameter(made: Field[Any], name: str, spelt: str, hint: Any, panel: str) -> inspect.Parameter:
    """Return the parameter `name` for an option that the user spells like `spelt`."""
    kind, shared = get_args(hint) if "option" not in made.metadata else (hint, made.metadata["option"])
    told = copy(shared)
    if told.default is ... and not told.param_decls:
        told.param_decls = (_spelling(spelt.replace("_", "-"), kind, made.default),)
    told.rich_help_panel = told.rich_help_panel or panel
    default = inspect.Parameter.empty if made.default is MISSING else made.default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, told])


def _spelling(name: str, kind: Any, default: Any) -> str:
    is_two_way = bool in (kind, *get_args(kind)) and default is not False
    return f"--{name}/--no-{name}" if is_two_way else f"--{name}"


def _gathered(cls: Any, prefix: str, given: dict[str, Any]) -> Any:
    """Return the dataclass that the values of its options make; they are taken out of `given`."""
    hints = get_type_hints(cls)
    return cls(**{
        each.name: _gathered(hints[each.name], f"{prefix}_{each.name}", given)
        if is_dataclass(hints[each.name])
        else given.pop(f"{prefix}_{each.name}")
        for each in fields(cls)
    })  # fmt: skip
