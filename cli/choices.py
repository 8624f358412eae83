"""Options that several commands take together: a class whose fields are options is one parameter of a command.

A field says what its option is called: ``name: Annotated[str | None, typer.Option("--objective")] = None``. It may be
such a class itself. `with_choices` gives a command the options of all fields, and gathers what the user said.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from functools import wraps
from typing import Any, get_type_hints

__all__ = ["with_choices"]


def with_choices(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command for typer that has the options of its parameters' fields in the place of the parameters."""
    signature = inspect.signature(command, eval_str=True)
    choices: dict[str, Any] = {
        each.name: each.annotation for each in signature.parameters.values() if is_dataclass(each.annotation)
    }
    parameters = [
        inner
        for outer in signature.parameters.values()
        for inner in (_options(choices[outer.name], outer) if outer.name in choices else (outer,))
    ]

    @wraps(command)
    def expanded(**given: Any) -> None:
        made = {name: _gathered(choice, name, given) for name, choice in choices.items()}
        command(**given, **made)

    expanded.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # inspect reads it
    expanded.__annotations__ = {each.name: each.annotation for each in parameters}
    return expanded


def _options(choice: Any, outer: inspect.Parameter) -> Iterator[inspect.Parameter]:
    """Yield a parameter for the option of each field of a choice, in the place of the one for the choice."""
    for field, kind in get_type_hints(choice, include_extras=True).items():
        inner = outer.replace(name=f"{outer.name}_{field}", annotation=kind, default=None)
        yield from _options(kind, inner) if is_dataclass(kind) else (inner,)


def _gathered(choice: Any, name: str, given: dict[str, Any]) -> Any:
    """Return the choice that the options of its fields make; they are taken out of `given`."""
    values = {
        field: _gathered(kind, f"{name}_{field}", given) if is_dataclass(kind) else given.pop(f"{name}_{field}")
        for field, kind in get_type_hints(choice, include_extras=True).items()
    }
    return choice(**values)
