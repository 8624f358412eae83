"""A launch line as somebody typed it: its runtime, and its options by the names that placekit writes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path

from placekit.language.runtimes.record import Launch, Runtime
from placekit.model.errors import InvalidProblemError, UnsupportedProblemError


def parse_line(text: str, runtimes: Iterable[Runtime]) -> tuple[Launch, str | None]:
    """Return the launch of a line, and the model that it names.

    Options have the names of the record, each with its value; what changes neither places nor memory is left out.

    Raises
    ------
    InvalidProblemError
        No program that is known, an option that is unknown or lacks its value, or two models; the message names it.
    UnsupportedProblemError
        A runtime whose lines are not read.
    """
    try:
        words = shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise InvalidProblemError(f"the line cannot be split into words: {error}") from None
    environment = {}
    while words and (found := re.fullmatch(r"([A-Z][A-Z0-9_]*)=(.*)", words[0], re.DOTALL)):
        environment[found[1]] = found[2]
        words.pop(0)
    runtime, rest = _runtime(words, list(runtimes))
    arguments, models = [], []
    for option, value in _pairs(runtime, rest):
        if option in (None, runtime.typed.model):
            models.append(value)
        elif option is not None:
            arguments += [option, value]
    if len(models) > 1:
        raise InvalidProblemError(f"the line has two models: {' and '.join(map(repr, models))}")
    return Launch(runtime, environment, tuple(arguments)), models[0] if models else None


def _runtime(words: list[str], runtimes: list[Runtime]) -> tuple[Runtime, list[str]]:
    """Return the runtime whose program begins some words, and the words behind it."""
    plain = [Path(words[0]).name.removesuffix(".exe"), *words[1:]] if words else []
    programs = {program: runtime for runtime in runtimes for program in runtime.typed.programs}
    for program, runtime in programs.items():
        parts = program.split()
        if plain[: len(parts)] == parts:
            if runtime.read is None:
                raise UnsupportedProblemError(f"lines of {runtime.name} are not read")
            return runtime, plain[len(parts) :]
    raise InvalidProblemError(
        f"the line begins with {plain[0] if plain else ''!r}; programs are {', '.join(sorted(programs))}"
    )


def _pairs(runtime: Runtime, words: list[str]) -> Iterator[tuple[str | None, str]]:
    """Yield every option that counts, by its name in the record, with its value; None for a word without an option."""
    typed = runtime.typed
    known = {name: name for name in runtime.options.values()} | dict(typed.also)
    if typed.model is not None:
        known |= {typed.model: typed.model}
    at = 0
    while at < len(words):
        word, glued, value = words[at].partition("=") if words[at].startswith("--") else (words[at], "", "")
        at += 1
        if not re.match(r"--?[a-zA-Z]", word):
            if typed.model is not None:
                raise InvalidProblemError(f"{word!r} follows no option of {runtime.name}")
            yield None, word
            continue
        if word in typed.flags:
            yield from (pair for pair in [typed.flags[word]] if pair is not None)
            continue
        if word not in known and word not in typed.ignored:
            near = get_close_matches(word, [*known, *typed.flags, *typed.ignored], 1)
            nearest = f"; near is {near[0]}" if near else ""
            raise InvalidProblemError(f"{runtime.name} option {word!r} is not known{nearest}")
        if not glued:
            is_value = at < len(words) and not re.match(r"--?[a-zA-Z]", words[at])
            if not is_value and word in typed.optional:
                yield known.get(word, word), typed.optional[word]
                continue
            if not is_value:
                raise InvalidProblemError(f"{runtime.name} option {word!r} has no value")
            value = words[at]
            at += 1
        if word in known:
            yield known[word], value


def whole_number(option: str, told: str) -> int:
    """Return the value of an option that is a whole number.

    Raises `InvalidProblemError`: it is none.
    """
    if not re.fullmatch(r"\d+", told):
        raise InvalidProblemError(f"{option} {told!r}: it is a whole number from 0 on")
    return int(told)
