"""Table of the commands, their help in panels, and errors of the parser in the words of the others."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from placekit.cli.command_table import COMMANDS
from placekit.cli.parameters import COMMON, OBJECTIVE, OUTPUT, PLATFORM, SEARCH, with_options
from placekit.interrupts import disarm
from placekit.model.errors import PluginError, UnknownNameError, did_you_mean

FIRST = {
    "placekit devices": "see this machine",
    "placekit zoo resnet50 -o resnet50.xml": "make a model",
    "placekit solve resnet50.xml": "place it",
}
"""Commands that a new user tries first, with what they do."""

UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""Error of the parser. typer brings a click of its own, and names only this subclass."""


class PanelCommand(TyperCommand):
    """Command whose help shows options by panel."""

    def invoke(self, ctx: Any) -> Any:
        """Call the command: from here on Ctrl-C leaves it what it cleans up."""
        disarm()
        return super().invoke(ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, common options, panels of this command alone, and the other panels in their order."""
        panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], COMMON: []}
        for each in self.get_params(ctx):
            if (record := each.get_help_record(ctx)) is not None:
                panel = getattr(each, "rich_help_panel", None) or COMMON
                panels.setdefault("Arguments" if each.param_type_name == "argument" else panel, []).append(record)
        for panel in (PLATFORM, OBJECTIVE, SEARCH, OUTPUT):
            panels[panel] = panels.pop(panel, [])
        for panel, records in panels.items():
            if records:
                with formatter.section(panel):
                    formatter.write_dl(records, col_max=26)


class TableOfCommands(TyperGroup):
    """The `COMMANDS`, each imported when it is called, so that ``placekit --help`` answers at once."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """Return the names of the commands in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """Return a command; None if there is none of that name."""
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            alone = typer.Typer(rich_markup_mode=None, add_completion=False)
            alone.command(cmd_name, cls=PanelCommand)(with_options(COMMANDS[cmd_name].load()))
            self.commands[cmd_name] = typer.main.get_command(alone)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the arguments begin with."""
        if not args[0].startswith("-") and args[0] not in COMMANDS:
            known = ", ".join(COMMANDS)
            raise UnknownNameError(f"no command {args[0]!r}; commands are {known}{did_you_mean(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Write the table."""
        for heading, rows in (
            ("Commands", {name: _summary(name) for name in COMMANDS}),
            ("First commands to try", FIRST),
        ):
            with formatter.section(heading):
                formatter.write_dl(list(rows.items()), col_max=60)


def _summary(command: str) -> str:
    try:
        return COMMANDS[command].summary
    except PluginError:  # its own call says why
        return "Of a package that cannot be loaded."


def usage_error_line(error: Any) -> str:
    """Return an error of the parser as one line: the command, the option or argument, and the value."""
    command = error.ctx.command_path if error.ctx is not None else "placekit"
    cause = error.__cause__
    if isinstance(error, typer.BadParameter) and hasattr(cause, "errors"):  # a value of the wrong type, by pydantic
        found = cause.errors()[0]
        should = str(error.message).partition(", ")[0]
        told = f"{_name(error)} {found['input']!r}: {should.replace('Input should', 'it should')}"
    elif isinstance(error, typer.BadParameter) and not error.message:
        told = f"{_name(error)} is missing"
    elif hasattr(error, "option_name") and hasattr(error, "possibilities"):
        told = f"no option {error.option_name}{did_you_mean(error.option_name, error.possibilities or ())}"
    else:
        told = error.format_message().rstrip(".")
        told = told[:1].lower() + told[1:]
    return f"{command}: {told} (`{command} --help`)"


def _name(error: Any) -> str:
    if error.param is None:
        return "an argument"
    return str(error.param.opts[-1] if error.param.param_type_name == "option" else error.param.name.upper())
