"""Suites: which methods run on which problems, with which seeds and limits. Read from TOML.

See docs/suites.md for the format. Suites that come with placekit are known by their name, others by their path.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from placekit.benchmarks.cases.suite_schema import SuiteModel
from placekit.io.reading import inside, read_text, validated
from placekit.model.contiguity import Contiguity
from placekit.model.errors import InvalidFileError, InvalidProblemError, UnknownNameError

_RULES = ", ".join(Contiguity)
_FOLDER = Path(__file__).parents[1] / "suites"


@dataclass(frozen=True)
class Suite:
    """A suite, and where its files are."""

    content: SuiteModel  # the suite file
    source: str  # what to ask for to get it again: a shipped name, or the name of the file
    home: Path  # where it lies, and the platform files that it names
    folder: Path  # where the other files that it names lie: models, costs, parameters of methods

    @property
    def name(self) -> str:
        """Name of the suite."""
        return self.content.name

    def path(self, named: str) -> Path:
        """Return where a file that the suite names is, or would be: the folder may be laid out as its origin is."""
        begin = max(filter(named.startswith, self.content.elsewhere), key=len, default="")
        other = self.folder / (self.content.elsewhere.get(begin, "") + named.removeprefix(begin))
        return other if begin and not (self.folder / named).is_file() and other.is_file() else self.folder / named

    def at_most(self, time_limit_s: float) -> Suite:
        """Return the suite with no case allowed more than `time_limit_s`; what is shorter stays as it is."""
        if not 0 <= time_limit_s < math.inf:
            raise InvalidProblemError(f"time limit {time_limit_s} s of a suite; it must be finite and at least 0")
        methods = tuple(
            entry
            if entry.time_limit_s is None
            else entry.model_copy(update={"time_limit_s": min(entry.time_limit_s, time_limit_s)})
            for entry in self.content.method
        )
        lowered = {"time_limit_s": min(self.content.time_limit_s, time_limit_s), "method": methods}
        return replace(self, content=self.content.model_copy(update=lowered))


def shipped_suites() -> tuple[str, ...]:
    """Return the names of the suites that come with placekit."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def read_suite(
    source: str,  # name or path
    # where the files that it names lie, but for platforms, which lie beside the suite. By default beside the suite,
    # too; for a shipped suite the current folder.
    folder: Path | None = None,
) -> Suite:
    """Read a suite: the name of a shipped one, or the path of a TOML file."""
    is_shipped = source in shipped_suites()
    path = _FOLDER / f"{source}.toml" if is_shipped else Path(source)
    if path.suffix != ".toml":
        raise UnknownNameError(
            f"no suite {source!r}; shipped suites are {', '.join(shipped_suites())}; others are files ending in .toml"
        )
    text = read_text(path)
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a TOMLDecodeError; an integer with thousands of digits
        raise InvalidFileError(f"{path}: not TOML: {error}") from error
    content = validated(SuiteModel, data, path)
    _check_names(content, path)
    _check_paths(content, path)
    return Suite(
        content, source if is_shipped else path.name, path.parent, folder or (Path() if is_shipped else path.parent)
    )


def _check_paths(content: SuiteModel, path: Path) -> None:
    """Refuse paths that leave the folder: whoever runs a suite says where its files are, the suite only which."""
    named = [entry.file for entry in content.model] + [entry.file for entry in content.platform]
    named += list(content.elsewhere.values())
    named += [entry.costs for entry in content.platform]
    named += [file for entry in content.method for file in entry.files.values()]
    for method in [name for entry in content.method for name in (entry.name, entry.warm_start) if name is not None]:
        named += [stage.partition(":")[2] for stage in method.split("+")]  # policy:FILE
    for name in named:
        if name:
            inside(path.parent, name, path)


def _check_names(content: SuiteModel, path: Path) -> None:
    """Refuse objectives that the suite does not have and unknown rules: their cases would be silently missing."""
    for entry in content.method:
        for rule in entry.contiguity or ():
            if rule not in set(Contiguity):
                raise InvalidFileError(f"{path}: {entry.name} names contiguity {rule!r}; it is one of {_RULES}")
    known = {objective.name for objective in content.objective}
    asked = [(entry.name or entry.file or "a model", entry.objectives) for entry in content.model]
    asked += [(entry.name, entry.objectives) for entry in content.method]
    for who, objectives in asked:
        for name in objectives or ():
            if known and name not in known:
                there = ", ".join(sorted(known))
                raise InvalidFileError(f"{path}: {who} names objective {name!r}; the suite has {there}")
