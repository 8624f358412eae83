"""The table of readers: which files each takes, and whether it makes a model or a problem of them."""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from placekit.model.errors import PluginError
from placekit.plugins import OpenTable, load, whose

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


logger = logging.getLogger(__name__)

Document = Mapping[str, Any]
"""Content of a JSON file."""


@dataclass(frozen=True)
class Reader:
    """Reader of files of one kind.

    Parameters
    ----------
    gives
        ``"model"``: a graph without costs, which can be measured and run; or ``"problem"``: all that a method needs.
    read
        The function, or ``"module:function"``, which is imported when it is used. It makes a
        :class:`~placekit.io.models.model.ModelSource` of a path and the shapes that the user gives to inputs, by name;
        or a :class:`~placekit.model.problem.Problem` of a path.
    suffixes
        Suffixes of the files, in lower case with their dot.
    takes
        For files that end in ``.json``: whether an object is of this kind.
    """

    gives: Literal["model", "problem"]
    read: Callable[..., Any] | str
    suffixes: tuple[str, ...] = ()
    takes: Callable[[Document], bool] | None = None

    def __call__(self, path: Path, *shapes: Mapping[str, Sequence[int]]) -> Any:
        """Read a file."""
        read = pkgutil.resolve_name(self.read) if isinstance(self.read, str) else self.read
        return read(path, *shapes)


def _has_schema(data: Document) -> bool:
    return str(data.get("schema")).startswith("placekit/problem/")


def _is_node_link(data: Document) -> bool:
    return "nodes" in data and ("links" in data or "directed" in data)


def _is_workload(data: Document) -> bool:
    return "maxFPGAs" in data or {"nodes", "edges"} <= data.keys()  # what it lacks, its reader says


OWN: Mapping[str, Reader] = {
    "openvino": Reader("model", "placekit.io.models.openvino_ir:read_ir", (".xml",)),
    "onnx": Reader("model", "placekit.io.models.onnx:read_onnx", (".onnx",)),
    "torch": Reader("model", "placekit.pytorch.source:read_pt2", (".pt2",)),
    "problem": Reader("problem", "placekit.io.files.problem_json:read_problem", takes=_has_schema),
    "graph": Reader("problem", "placekit.io.files.graph_file:read_graph", (".graphml",), _is_node_link),
    "workload": Reader("problem", "placekit.io.files.workload_json:read_workload", takes=_is_workload),
    "compute-graph": Reader("problem", "placekit.io.files.compute_graph:read_compute_graph", (".txt",)),
}
"""Placekit's own readers, by name; the first that takes a JSON file reads it."""

OTHER_KINDS = ("model", "costs", "placement", "result", "training-problem", "training-plan", "platform")
"""Kinds of files beside problems, and so no names of readers."""


def _load(point: EntryPoint) -> Reader:
    brought = load(point)
    if not isinstance(brought, Reader):
        raise PluginError(f"{whose(point)} is no placekit.io.readers.Reader")
    if point.name in OTHER_KINDS:
        raise PluginError(f"{whose(point)}: a kind of files is called {point.name!r}; the reader needs another name")
    return brought


READERS: OpenTable[Reader] = OpenTable("reader", OWN, _load)
"""Readers by name: placekit's own, and those of plugins."""


def suffixes(gives: Literal["model", "problem"]) -> tuple[str, ...]:
    """Return the suffixes of all files that give a model, or a problem."""
    return tuple(suffix for _, reader in _each() if reader.gives == gives for suffix in reader.suffixes)


def reader_of_suffix(suffix: str) -> str | None:
    """Return the name of the reader of files with a suffix; None if there is none."""
    return _first(lambda reader: suffix.lower() in reader.suffixes)


def is_model(path: str | Path) -> bool:
    """Return whether the suffix of a file is that of a model."""
    name = reader_of_suffix(Path(path).suffix)
    return name is not None and READERS[name].gives == "model"


def reader_of_document(data: Document) -> str | None:
    """Return the name of the reader of a JSON object; None if there is none."""
    return _first(lambda reader: reader.takes is not None and reader.takes(data))


def _first(is_it: Callable[[Reader], bool]) -> str | None:
    """Return the name of the first reader that is it; no plugin is imported if one of placekit's own is."""
    return next((name for name, reader in _each() if is_it(reader)), None)


def _each() -> Iterator[tuple[str, Reader]]:
    """Yield the readers, placekit's own first; one that cannot be imported stops no other."""
    yield from OWN.items()
    for name in READERS:
        if name not in OWN:
            try:
                yield name, READERS[name]
            except PluginError as error:
                logger.warning("%s", error)
