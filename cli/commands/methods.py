"""``placekit methods``: list methods, their objectives and their parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from inspect import cleandoc
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from placekit.cli.console import tell
from placekit.cli.options import JsonOption
from placekit.cli.output.render import plain_table
from placekit.cli.output.units import format_count
from placekit.solve.method import Method
from placekit.solve.method_table import ANY
from placekit.solve.registry import METHODS, method_classes


def methods(
    name: Annotated[str | None, typer.Argument(help="Method whose parameters are listed.", show_default=False)] = None,
    as_json: JsonOption = False,
) -> None:
    """List the methods, or the parameters (--param) of one of them."""
    if name is None:
        lines = {each: _facts(each) for each in METHODS}
        tell(as_json, lines, [_table(lines)])
        return
    by_objective = {
        "every other objective" if objective == ANY and len(classes) > 1 else objective: parameter_lines(each)
        for classes in [method_classes(name)]
        for objective, each in classes.items()
    }
    tell(as_json, {"method": name, "parameters": by_objective}, _parameters(name, by_objective))


def _facts(name: str) -> dict[str, Any]:
    entry = METHODS[name]
    served = list(entry.target) if isinstance(entry.target, Mapping) else [ANY]
    objectives = ["all"] if ANY in served else served
    return {"family": entry.family, "guarantee": entry.guarantee, "objectives": objectives}


def _table(lines: Mapping[str, Mapping[str, Any]]) -> RenderableType:
    table = plain_table("method", "family", "objectives", "answer", left=4)
    for name, told in lines.items():
        guarantee = "" if told["guarantee"] == "none" else told["guarantee"]
        table.add_row(name, told["family"], ", ".join(told["objectives"]), guarantee)
    return table


def parameter_lines(method: type[Method]) -> list[dict[str, Any]]:
    """Return name, type, default and meaning of every parameter of a method, from its dataclass and its docstring."""
    told: dict[str, str] = {}
    for each in reversed(method.params_type.__mro__):
        told |= _descriptions(cleandoc(each.__doc__ or ""))
    return [
        {"name": each.name, "type": str(each.type), "default": _default(each), "meaning": told.get(each.name, "")}
        for each in fields(method.params_type)
    ]


def _default(field: Field[Any]) -> Any:
    value = field.default if field.default is not MISSING else None
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def _descriptions(doc: str) -> dict[str, str]:
    r"""Return the text of every name of the section ``Parameters`` of a numpydoc docstring.

    Examples
    --------
    >>> _descriptions("What.\n\nParameters\n----------\na, b\n    Both\n    of them.\nc\n    This.")
    {'a': 'Both of them.', 'b': 'Both of them.', 'c': 'This.'}
    """
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[^\n]*\n-{3,}$|\Z)", doc, re.MULTILINE | re.DOTALL)
    found: dict[str, str] = {}
    names: list[str] = []
    for line in section.group(1).splitlines() if section else ():
        if line and not line[0].isspace():
            names = [each.strip() for each in line.partition(" : ")[0].split(",")]
        else:
            for each in names:
                found[each] = f"{found.get(each, '')} {line.strip()}".strip()
    return found


def _parameters(name: str, by_objective: Mapping[str, list[dict[str, Any]]]) -> Iterator[RenderableType]:
    groups: dict[str, list[str]] = {}  # objectives by equal tables
    for objective, lines in by_objective.items():
        groups.setdefault(repr(lines), []).append(objective)
    for objectives in groups.values():
        whose = name if len(groups) == 1 else f"{name} for {', '.join(objectives)}"
        table = plain_table("--param", "default", "meaning", left=3)
        for each in by_objective[objectives[0]]:
            table.add_row(each["name"], str(each["default"]), each["meaning"].replace("`", ""))
        yield f"{whose}: {format_count(table.row_count, 'parameter')}"
        if table.row_count:
            yield table
        yield ""
