"""The record of a runtime, in which everything that placekit knows of it stands, and what starts it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from placekit.language.runtimes.rules import Rules
from placekit.language.runtimes.values import share, whole_number
from placekit.model.errors import InvalidProblemError, UnsupportedProblemError
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement
from placekit.model.platform import Platform
from placekit.model.problem import Problem
from placekit.model.served import Served

PHASES = ("prefill", "decode")
"""Phases that servers of their own may serve, in this order."""


@dataclass(frozen=True)
class Placed:
    """A plan for a runtime: a placement, and what is served."""

    graph: OpGraph
    platform: Platform
    placement: Placement
    served: Served = field(default_factory=Served)


@dataclass(frozen=True)
class PhaseArguments:
    """Options that make a server of a runtime serve one phase only, beside what it is started with in any case."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Typed:
    """Spellings that people use in a line of a runtime, beside the names that placekit writes."""

    programs: tuple[str, ...] = ()  # beginnings of lines, without the folder of the program
    model: str | None = None  # option that has the model; None for a word of its own
    also: Mapping[str, str] = field(default_factory=dict)  # other names of options; for an empty one, of the model
    # options without a value: the option that is written with its value; None for what changes no place
    flags: Mapping[str, tuple[str, str] | None] = field(default_factory=dict)
    optional: Mapping[str, str] = field(default_factory=dict)  # value of an option that may lack one
    ignored: frozenset[str] = frozenset()  # options whose value changes neither places nor memory
    refused: frozenset[str] = frozenset()  # options that change places or memory in ways that are not read
    is_open: bool = False  # True if a program of the user's takes further options
    lenders: tuple[str, ...] = ()  # programs that lend devices, on lines of their own
    settings_file: str | None = None  # option that names the settings file
    assigns: tuple[str, ...] = ()  # names that lines of Python assign, of a runtime that is a library
    # precision of the cache: the option, and its values by name of `placekit.language.decoder.BITS`
    cache: tuple[str, Mapping[str, str]] | None = None


@dataclass(frozen=True, kw_only=True)
class Runtime(Rules):
    """Everything that placekit knows of a runtime: rules of its plans, and how it is told a plan.

    Raises `InvalidProblemError`: a part that is empty or out of range; the message names the runtime and the part.
    """

    version: str  # of the runtime whose documents the record follows
    pages: tuple[str, ...]  # these documents: files of its sources, or addresses
    # the command, with {model}, {file} for the settings and {start} for what starts the ranks of a machine; None for a
    # library
    program: str | None
    # name of the option by what it sets. Those of `planned` have the name of a field of `Served`, or "used" for the
    # share of memory that may be filled; all others are the writer's own
    options: Mapping[str, str]
    write: Callable[[Runtime, Placed], Launch]  # raises `UnsupportedProblemError`: a plan that it cannot be told
    # the inverse of `write`: from a launch and the problem to the plan; None while there is none
    read: Callable[[Runtime, Launch, Problem[Any]], Placed] | None
    # what a launch says of the cache, the sequences and the steps; None for the options of `planned`
    read_served: Callable[[Runtime, Launch], Served] | None = None
    typed: Typed = field(default_factory=Typed)  # how its lines are typed
    starter: str | None = None  # command that adds a machine to a cluster; its one line is for the whole cluster then
    not_searched: tuple[str, ...]  # what the runtime can do and no plan tries, in words that follow "without"
    variable: str = ""  # environment variable with the number of blocks of every stage
    phases: Mapping[str, PhaseArguments] = field(default_factory=dict)  # by phase that a server may be for alone
    settings: Literal["", "yaml", "toml"] = ""  # format of its settings file; empty if it takes none
    takes_gguf: bool = False  # True for a GGUF file where others take the folder of a ``config.json``
    # what an export writes: arguments, or a file by modules
    exports: Literal["arguments", "device map", "affinities"] = "arguments"
    runs_programs: bool = False  # True if it runs the ops of a model file, as `placekit export` cuts it
    kernel_times: str = ""  # its name in `aiconfigurator-core`; empty if that has no times of its kernels
    is_serial: bool = False  # True if an export for a pipeline is refused: parts run one after another

    def __post_init__(self) -> None:
        super().__post_init__()
        is_told = self.exports == "arguments"
        lacking = {
            "version": not self.version,
            "pages": not all(self.pages) or not self.pages,
            "program": self.program is not None and is_told and not re.search(r"{(model|start)}", self.program),
            "options": is_told and not self.options,
            "write": not callable(self.write),
            "read": self.read is not None and not callable(self.read),
            "not_searched": not all(self.not_searched),
            "phases": not set(self.phases) <= set(PHASES),
        }
        for part, is_lacking in lacking.items():
            if is_lacking:
                raise InvalidProblemError(f"runtime {self.name!r}: {part} is {getattr(self, part)!r}; {_ASKED[part]}")

    @property
    def is_server(self) -> bool:
        """True if its line starts a server of a model; False for a library, and for a program of the user's."""
        return self.program is not None and "{model}" in self.program

    @property
    def has_phases_apart(self) -> bool:
        """True if prefill and decode may be servers of their own."""
        return set(self.phases) == set(PHASES)

    def planned(self, served: Served) -> list[str]:
        """Return the options of what was planned, as far as it is known and the runtime has an option for it."""
        values = {name: getattr(served, name) for name in ("context", "sequences", "chunk")}
        values["used"] = None if served.headroom is None else f"{1 - served.headroom:.3g}"
        told = [(self.options[key], value) for key, value in values.items() if key in self.options]
        return [part for option, value in told if value is not None for part in (option, str(value))]

    def served_by(self, launch: Launch) -> Served:
        """Return what a launch says of the cache, the sequences and the steps: the inverse of `planned`."""
        if self.read_served is not None:
            return self.read_served(self, launch)
        values = launch.values
        told = {name: values.get(self.options.get(name, "")) for name in ("context", "sequences", "chunk")}
        numbers = {name: whole_number(self.options[name], value) for name, value in told.items() if value is not None}
        used = values.get(self.options.get("used", ""))
        return Served(
            runtime=self.name, headroom=None if used is None else 1 - share(self.options["used"], used),
            cache_precision=self._cache(values), **numbers,  # type: ignore[arg-type]  # names of numbers only
        )  # fmt: skip

    def _cache(self, values: Mapping[str, str]) -> str | None:
        """Return the precision of the cache that options say; None for the runtime's own."""
        option, known = self.typed.cache or ("", {})
        told = values.get(option)
        if told is not None and told not in known:
            raise UnsupportedProblemError(f"{option} {told} is not read; types are {', '.join(known)}")
        return None if told is None else known[told]


_ASKED = {
    "version": "it is that of the runtime whose documents the record follows",
    "pages": "these documents are named",
    "program": "it has {model} where the model stands, or {start} where ranks are started, or is None for a library",
    "options": "it has the name of every option that is written, by what the option sets",
    "write": "it is a function from the record and a plan to a launch",
    "read": "it is a function from the record, a launch and a problem to a plan, or None",
    "not_searched": "each is what the runtime can do and no plan tries",
    "phases": f"phases are {' and '.join(PHASES)}",
}


@dataclass(frozen=True)
class Start:
    """Start of the ranks of one machine: what its line has beside those of all machines."""

    node: str | None = None  # the machine; None where there is one only
    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()

    @property
    def comment(self) -> str:
        """Words behind the line."""
        return "" if self.node is None else f"  # on {self.node}"


@dataclass(frozen=True)
class Launch:
    """Program that starts a runtime, or one of its servers."""

    runtime: Runtime
    environment: Mapping[str, str] = field(default_factory=dict)  # environment variables
    arguments: tuple[str, ...] = ()  # arguments of its command
    # devices of the stages, first to last: start the ranks, or list the devices, in this order
    devices: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)  # settings that go into a file of the runtime's
    file: str = "settings.yaml"  # name of that file
    elsewhere: tuple[str, ...] = ()  # lines that start servers on other machines, before its own
    starts: tuple[Start, ...] = ()  # of the machines, in the order of their ranks; empty for one line
    code: tuple[str, ...] = ()  # lines of Python, of a runtime that is a library

    @property
    def values(self) -> dict[str, str]:
        """Value by option; the last one of an option that is repeated."""
        return dict(zip(self.arguments[::2], self.arguments[1::2], strict=True))

    @property
    def command(self) -> str:
        """As typed in a shell, without the program."""
        return self._typed(self.environment, "", self.arguments)

    def line(self, model: str, start: Start | None = None) -> str:
        """Return the whole line as typed in a shell, for a model given by its name or its file, on one machine.

        A runtime of transformers' models takes the folder of a ``config.json``; llama.cpp takes a GGUF file. Without
        `start` the machine is the first one.
        """
        named, program = shlex.quote(self._as_served(model)), self.runtime.program or ""
        if start is None:
            start = Start() if self.runtime.starter or not self.starts else self.starts[0]
        told = program.format(model=named, file=self.file, start=shlex.join(start.arguments))
        behind = () if "{start}" in program else start.arguments
        return self._typed({**self.environment, **start.environment}, told, (*self.arguments, *behind))

    def lines(self, model: str) -> tuple[str, ...]:
        """Return the lines of other machines, the whole line, and those of the settings file; Python of a library."""
        starter = self.runtime.starter
        if starter:
            own = [f"{self._typed(each.environment, starter, each.arguments)}{each.comment}" for each in self.starts]
            own.append(self.line(model) + (self.starts[0].comment if self.starts else ""))
        else:
            own = [self.line(model, each) + each.comment for each in self.starts] or [self.line(model)]
        return self.code or (*self.elsewhere, *own, *self.settings.splitlines())

    def _as_served(self, model: str) -> str:
        path = Path(model)
        path = path.parent if path.name == "config.json" else path
        if not self.runtime.takes_gguf or path.suffix == ".gguf":
            return str(path)
        return f"{path.resolve().name}.gguf"

    def _typed(self, environment: Mapping[str, str], program: str, arguments: Iterable[str]) -> str:
        variables = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
        return " ".join([*variables, *filter(None, [program]), *map(shlex.quote, arguments)])

    @property
    def settings(self) -> str:
        """Lines for the runtime's file; empty if it takes none."""
        if self.runtime.settings == "toml":
            tables = [
                "\n".join([f"[{table}]", *(f"{name} = {json.dumps(value)}" for name, value in values.items())])
                for table, values in self.config.items()
            ]
            return "\n".join(tables)
        return "\n".join(f"{name}: {json.dumps(value)}" for name, value in self.config.items())

    def to_dict(self) -> dict[str, Any]:
        """Return the arguments as JSON values."""
        config: dict[str, Any] = {"config": dict(self.config)} if self.config else {}
        config |= {"elsewhere": list(self.elsewhere)} if self.elsewhere else {}
        starts = [{"node": each.node, "environment": dict(each.environment), "arguments": list(each.arguments)}
                  for each in self.starts]  # fmt: skip
        config |= {"starts": starts} if starts else {}
        return {
            "runtime": self.runtime.name,
            "environment": dict(self.environment),
            "arguments": list(self.arguments),
            "devices": list(self.devices),
            **config,
        }
