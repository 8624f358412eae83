"""Names of other programs: those of the table, and those that a line or a file has."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

PROGRAMS = tomllib.loads((Path(__file__).parent / "exports" / "names_of_programs.toml").read_text())
"""Names by program, with the version and the pages that define them."""
DRIVERS = frozenset(PROGRAMS["drivers"]["variables"])
"""Variables that go before the command of any program."""


@dataclass
class Written:
    """Names that stand in lines and files."""

    commands: set[str] = field(default_factory=set)
    options: set[str] = field(default_factory=set)
    variables: set[str] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)
    values: set[tuple[str, str]] = field(default_factory=set)
    settings: set[tuple[str, str | bool]] = field(default_factory=set)  # words by key, with N for numbers in them
    lines: list[list[str]] = field(default_factory=list)  # words behind the variables

    def read_line(self, line: str) -> None:
        """Read a line of a shell: variables, the command, then options, whose values may be JSON."""
        words = shlex.split(line, comments=True)
        while words and (found := re.match(r"([A-Za-z_]\w*)=", words[0])):
            self.variables.add(found[1])
            words.pop(0)
        self.lines.append(words)
        start = 3 if words[:2] == ["python", "-m"] else 0
        names = [word for word in words[start:] if re.fullmatch(r"--?[A-Za-z][\w.-]*", word)]
        self.commands.add(" ".join(words[: words.index(names[0], start)] if names else words))
        self.options.update(names)
        for name, value in pairwise(words):
            if name in names and value not in names:
                self.values.add((name, value))
                if value.startswith("{"):
                    self.read_keys(json.loads(value))

    def read_keys(self, document: object, key: str = "") -> None:
        """Read the keys of a file, at all depths, and the words that they have."""
        if isinstance(document, dict):
            self.keys.update(document)
            for name, value in document.items():
                self.read_keys(value, name)
        elif isinstance(document, list):
            for value in document:
                self.read_keys(value, key)
        elif isinstance(document, bool):
            self.settings.add((key, document))
        elif isinstance(document, str):
            self.settings.add((key, re.sub(r"\d+", "N", document)))
