"""Parameters of a command from dataclasses: every field that is annotated with an option becomes an option.

::

    @dataclass(frozen=True)
    class SearchOptions:
        panel: ClassVar[str] = SEARCH
        time_limit: Annotated[float, typer.Option(metavar="SECONDS", help="Solving time.")] = 60.0


    @with_options
    def solve(model: ModelArgument, *, search: SearchOptions) -> None: ...

The command takes ``--time-limit`` and gets a ``SearchOptions``. An option has the name of its field and stands in the
panel of its class unless the annotation says otherwise. A field may itself be such a dataclass.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, get_args, get_type_hints

__all__ = ["COMMON", "OBJECTIVE", "OUTPUT", "PLATFORM", "SEARCH", "with_options"]

COMMON, PLATFORM, OBJECTIVE, SEARCH, OUTPUT = "Common", "Platform", "Objective", "Search", "Output"
"""Panels of the help, in their order; a command may have others before the last."""


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
        for inner in (_options(filled[outer.name], outer.name) if outer.name in filled else (outer,))
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
    for field in fields(cls):
        name, hint = f"{prefix}_{field.name}", hints[field.name]
        if is_dataclass(hint):
            yield from _options(hint, name)
            continue
        kind, option = get_args(hint)
        option = copy(option)
        if option.default is ... and not option.param_decls:
            option.param_decls = (_name_of(field.name, kind),)
        option.rich_help_panel = option.rich_help_panel or getattr(cls, "panel", COMMON)
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        yield inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
        )


def _name_of(field: str, kind: Any) -> str:
    name = field.replace("_", "-")
    return f"--{name}/--no-{name}" if bool in (kind, *get_args(kind)) else f"--{name}"


def _gathered(cls: Any, prefix: str, given: dict[str, Any]) -> Any:
    """Return the dataclass that the values of its options make; they are taken out of `given`."""
    hints = get_type_hints(cls)
    return cls(**{
        field.name: _gathered(hints[field.name], f"{prefix}_{field.name}", given)
        if is_dataclass(hints[field.name])
        else given.pop(f"{prefix}_{field.name}")
        for field in fields(cls)
    })  # fmt: skip
