"""A launch line as somebody typed it: its runtime, and its options by the names that placekit writes."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

from placekit.language.runtimes.module_lines import assigned
from placekit.language.runtimes.record import Launch, Runtime, Start
from placekit.model.errors import InvalidFileError, InvalidProblemError, UnsupportedProblemError

_OPTION = re.compile(r"--?[a-zA-Z]")
_BEHIND = re.compile(r"&|\||\d?>>?.*")
"""Words of a shell behind a command: background, pipes and files for what it prints."""
_BEFORE = ("env", "exec", "nohup", "nice", "sudo", "time", "$")
"""Words before a command that say nothing of it."""
_SETTING = re.compile(r"\s*(\[[\w.]+\]\s*$|[\w.]+ *[:=]|- )")
_TORCHRUN = frozenset(("--nnodes", "--node-rank", "--nproc-per-node", "--rdzv-endpoint"))
"""Options of torchrun that are kept; all others but the flags have a value, too. Each may have _ in place of -."""
_TORCHRUN_FLAGS = frozenset(("--standalone", "--no-python", "--run-path", "--virtual-local-rank"))
_NODE_OPTIONS = {"--nnodes": "--nnodes", "--node-rank": "--node-rank", "--dist-init-addr": "--dist-init-addr"}
"""Options of a server that say which of several machines it is on."""


@dataclass(frozen=True)
class _Line:
    """Words of a line of a shell."""

    environment: dict[str, str]
    words: list[str]
    node: str | None

    @property
    def plain(self) -> list[str]:
        """The words, the program without its folder."""
        return [Path(self.words[0]).name.removesuffix(".exe"), *self.words[1:]] if self.words else []

    def behind(self, programs: Iterable[str]) -> list[str] | None:
        """Return the words behind one of some programs; None if the line does not begin with one."""
        plain = self.plain
        for program in sorted(programs, key=len, reverse=True):
            parts = program.split()
            if plain[: len(parts)] == parts:
                return plain[len(parts) :]
        return None


def parse_line(text: str, runtimes: Iterable[Runtime], wanted: str | None = None) -> tuple[Launch, str | None]:
    """Return the launch of a line, and the model that it names.

    Options have the names of the record, each with its value; what changes neither places nor memory is left out. The
    lines of several machines, and of a settings file, may stand below one another. A map of modules is a line of Python
    or a file of JSON. Where several runtimes have such lines, `wanted` is the name of the one that is meant.

    Raises
    ------
    InvalidProblemError
        No program that is known, an option that is unknown or lacks its value, or two models; the message names it.
    UnsupportedProblemError
        A runtime whose lines are not read, or an option that is not.
    """
    known = list(runtimes)
    values = assigned(text)
    if values is not None:
        return _library(text, values, known, wanted), None
    lines, settings = _lines(text, known)
    starts = [_start(each, known) for each in lines]
    commands = [line for line, start in zip(lines, starts, strict=True) if start is None]
    if not commands:
        first = lines[0].plain[0] if lines else ""
        raise InvalidProblemError(f"the line begins with {first!r}; programs are {', '.join(_programs(known))}")
    found = [_command(each, known, wanted) for each in commands]
    runtime = found[0][0].runtime
    if other := next((launch.runtime for launch, _ in found if launch.runtime is not runtime), None):
        raise InvalidProblemError(f"the lines are of {runtime.name} and {other.name}: give those of one runtime")
    models = list(dict.fromkeys(model for _, models in found for model in models))
    if len(models) > 1:
        raise InvalidProblemError(f"the line has two models: {' and '.join(map(repr, models))}")
    launch = _joined([launch for launch, _ in found], [start for start in starts if isinstance(start, Start)])
    lent = tuple(start for start in starts if isinstance(start, str))
    told = replace(launch, config=_config(launch, "\n".join(settings)), elsewhere=lent)
    return told, models[0] if models else None


def _programs(runtimes: Iterable[Runtime]) -> list[str]:
    return sorted({program for runtime in runtimes for program in runtime.typed.programs})


def _lines(text: str, runtimes: list[Runtime]) -> tuple[list[_Line], list[str]]:
    """Return the lines that start something, and those of a settings file behind them."""
    found: list[_Line] = []
    settings: list[str] = []
    exported: dict[str, str] = {}
    has_settings = {program for each in runtimes if each.settings for program in each.typed.programs}
    begins = [*_programs(runtimes), *(name for each in runtimes for name in each.typed.lenders)]
    begins += [each.starter for each in runtimes if each.starter]
    for raw in _whole_lines(text):
        line = _words(raw)
        if line.plain[:1] in (["cd"], ["set"], ["source"]):
            continue
        if line.plain[:1] == ["export"]:
            exported |= dict(word.split("=", 1) for word in line.plain[1:] if "=" in word)
        elif found and line.behind(begins) is None:
            if found[-1].behind(has_settings) is not None and (settings or _SETTING.match(raw)):
                settings.append(raw)
            else:
                found[-1].words.extend(line.words)
        elif line.words or line.environment:
            found.append(replace(line, environment={**exported, **line.environment}))
    return found, settings


def _whole_lines(text: str) -> Iterator[str]:
    """Yield the lines of a text; one that ends within quotes goes on in the next."""
    held = ""
    for raw in re.sub(r"\s+&&\s+", "\n", re.sub(r"\\\r?\n", " ", text)).splitlines():
        held = f"{held}\n{raw}" if held else raw
        try:
            shlex.split(held, comments=True)
        except ValueError as error:
            if "quotation" in str(error):
                continue
            raise InvalidProblemError(f"the line cannot be split into words: {error}") from None
        if held.strip():
            yield held
        held = ""
    if held:
        raise InvalidProblemError("the line cannot be split into words: No closing quotation")


def _words(raw: str) -> _Line:
    words = shlex.split(raw, comments=True)
    end = next((at for at, word in enumerate(words) if _BEHIND.fullmatch(word)), len(words))
    words, environment = words[:end], {}
    while words:
        found = re.fullmatch(r"([A-Z][A-Z0-9_]*)=(.*)", words[0], re.DOTALL)
        if found:
            environment[found[1]] = found[2]
        elif words[0] not in _BEFORE:
            break
        words.pop(0)
    node = re.search(r"\s#\s*on (\S+)\s*$", raw)
    return _Line(environment, words, node[1] if node else None)


def _start(line: _Line, runtimes: Iterable[Runtime]) -> Start | str | None:
    """Return what a line adds to a cluster, the line itself if it lends devices, or None for a program's own line."""
    for runtime in runtimes:
        if line.behind(runtime.typed.lenders) is not None:
            return " ".join(line.words)
        words = None if runtime.starter is None else line.behind([runtime.starter])
        if words is not None:
            parts = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
            return Start(line.node, line.environment, tuple(parts))
    return None


def _command(line: _Line, runtimes: list[Runtime], wanted: str | None) -> tuple[Launch, list[str]]:
    """Return the launch of a line of one machine, and the models that it names."""
    able = [runtime for runtime in runtimes if line.behind(runtime.typed.programs) is not None]
    if not able:
        first = line.plain[0] if line.words else ""
        raise InvalidProblemError(f"the line begins with {first!r}; programs are {', '.join(_programs(runtimes))}")
    words = line.behind(able[0].typed.programs) or []
    told: list[str] = []
    if able[0].program is not None and "{start}" in able[0].program:
        told, words = _torchrun(words)
        names = {word.partition("=")[0] for word in words}
        able.sort(key=lambda runtime: (runtime.name != wanted, -len(names & set(runtime.options.values()))))
    runtime = able[0]
    if runtime.read is None:
        raise UnsupportedProblemError(f"lines of {runtime.name} are not read")
    arguments, models = [], []
    for option, value in _pairs(runtime, words):
        if option in (None, "", runtime.typed.model):
            models.append(value)
        elif option in _NODE_OPTIONS:
            told += [option, value]
        elif option is not None:
            arguments += [option, value]
    starts = (Start(line.node, line.environment, tuple(told)),) if told else ()
    return Launch(runtime, {} if starts else line.environment, tuple(arguments), starts=starts), models


def _torchrun(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the options of torchrun, and what follows the script or module."""
    told = {"--nproc-per-node": "1"}  # its default
    at = 0
    while at < len(words) and words[at].startswith("-"):
        name, glued, value = words[at].partition("=")
        name = name.replace("_", "-")
        at += 1
        if name in ("-m", "--module"):
            break
        if name in _TORCHRUN_FLAGS:
            continue
        if not glued:
            value = words[at] if at < len(words) else ""
            at += 1
        if name in _TORCHRUN:
            told[name] = value
    return [word for pair in told.items() for word in pair], words[at + 1 :]


def _joined(launches: list[Launch], cluster: list[Start]) -> Launch:
    """Return the launch of the lines of several machines, in the order of their ranks.

    Raises `InvalidProblemError`: lines that differ in more than their machine.
    """
    first = launches[0]
    if cluster:
        cluster.sort(key=lambda start: "--head" not in start.arguments)
        return replace(first, starts=tuple(cluster))
    if len(launches) == 1:
        return first
    starts = sorted((start for each in launches for start in each.starts), key=_rank)
    if len(starts) != len(launches):
        raise InvalidProblemError(f"there are {len(launches)} lines of {first.runtime.name}: give those of one plan")
    same = {name: value for name, value in starts[0].environment.items()
            if all(start.environment.get(name) == value for start in starts)}  # fmt: skip
    for each in launches[1:]:
        if each.arguments != first.arguments:
            raise InvalidProblemError("the lines differ in more than their machine: options are "
                                      f"{' '.join(first.arguments)} and {' '.join(each.arguments)}")  # fmt: skip
    own = [
        replace(start, environment={name: value for name, value in start.environment.items() if name not in same})
        for start in starts
    ]
    return replace(first, environment=same, starts=tuple(own))


def _rank(start: Start) -> int:
    told = dict(zip(start.arguments, start.arguments[1:], strict=False)).get("--node-rank", "0")
    return int(told) if told.isdecimal() else 0


def _config(launch: Launch, settings: str) -> Mapping[str, Any]:
    """Return the settings of a launch: of the lines below it, or else of the file that it names."""
    runtime, option = launch.runtime, launch.runtime.typed.settings_file
    named = None if option is None else launch.values.get(option)
    if not settings and named is not None:
        try:
            settings = Path(named).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidFileError(
                f"{option} {named} cannot be read ({error}): write its lines below the line"
            ) from None
    if not settings:
        return {}
    try:
        if runtime.settings == "toml":
            return tomllib.loads(settings)
        return _yaml(settings)
    except ValueError as error:
        raise InvalidProblemError(f"the settings of {runtime.name} cannot be read: {error}") from None


def _yaml(text: str) -> dict[str, Any]:
    """Return settings in YAML: a value of JSON per line, as placekit writes them, or all else by PyYAML."""
    try:
        pairs = [line.split(": ", 1) for line in text.splitlines() if line.strip()]
        return {name: json.loads(value) for name, value in pairs}
    except ValueError:
        pass
    try:
        yaml = import_module("yaml")  # not needed for lines of placekit
    except ImportError:
        raise ValueError("it takes PyYAML: pip install pyyaml") from None
    try:
        read = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    if not isinstance(read, dict):
        raise ValueError("there are no names with values")
    return read


def _library(text: str, values: Mapping[str, Any], runtimes: list[Runtime], wanted: str | None) -> Launch:
    is_cards = all(type(value) is int or str(value).split(":")[0] in ("cpu", "cuda", "disk")
                   for value in (values.get("") or {"": ""}).values())  # fmt: skip
    names = {name or ("device_map" if is_cards else "affinities") for name in values}
    able = [runtime for runtime in runtimes if names <= set(runtime.typed.assigns)]
    able.sort(key=lambda runtime: runtime.name != wanted)
    if not able:
        told = sorted({name for runtime in runtimes for name in runtime.typed.assigns})
        raise InvalidProblemError(f"Python that assigns {', '.join(sorted(names))}: maps are called {', '.join(told)}")
    return Launch(able[0], code=tuple(text.strip().splitlines()))


def _pairs(runtime: Runtime, words: list[str]) -> Iterator[tuple[str | None, str]]:
    """Yield every option that counts, by its name in the record, with its value; None for a word without an option."""
    typed = runtime.typed
    known = {name: name for name in runtime.options.values()} | dict(typed.also)
    named = (typed.model, typed.settings_file, (typed.cache or (None,))[0])
    known |= {name: name for name in named if name is not None}
    known |= _NODE_OPTIONS if runtime.nodes is not None and runtime.starter is None and not typed.is_open else {}
    at = 0
    while at < len(words):
        word, glued, value = words[at].partition("=") if words[at].startswith("--") else (words[at], "", "")
        at += 1
        if not _OPTION.match(word):
            if typed.model is not None:
                raise InvalidProblemError(f"{word!r} follows no option of {runtime.name}")
            if not typed.is_open:
                yield None, word
            continue
        if word in typed.flags:
            yield from (pair for pair in [typed.flags[word]] if pair is not None)
            continue
        if word in typed.refused:
            raise UnsupportedProblemError(f"{runtime.name}: {word} is not read")
        if word not in known and word not in typed.ignored:
            near = get_close_matches(word, [*known, *typed.flags, *typed.ignored], 1, 0.9 if typed.is_open else 0.6)
            if typed.is_open and not near:
                continue
            nearest = f"; near is {near[0]}" if near else ""
            raise InvalidProblemError(f"{runtime.name} option {word!r} is not known{nearest}")
        if not glued:
            is_value = at < len(words) and not _OPTION.match(words[at])
            if not is_value and word in typed.optional:
                yield known.get(word, word), typed.optional[word]
                continue
            if not is_value:
                raise InvalidProblemError(f"{runtime.name} option {word!r} has no value")
            value = words[at]
            at += 1
        if word in known:
            yield known[word], value
