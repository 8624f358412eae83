"""Graphs of researchers, as networkx writes them: GraphML (``.graphml``), and JSON of nodes and links.

Costs are attributes, in seconds and bytes; KIND stands for a kind of devices, which are called ``KIND.0``, ...:

- of a node: ``time_s.KIND`` (without it the op does not run there), ``memory_bytes``, ``type``, ``flops``,
  ``weight_bytes``, ``is_backward``, ``device`` (of this op), ``colocation`` (ops with one label share a device);
- of edges: ``bytes`` and ``transfer_s.KIND`` of the tensor, which is the only one of its node, and may have them there;
- of the graph: ``devices.KIND`` (how many; 1), ``memory_bytes.KIND`` (of each), ``bandwidth_bytes_per_s.KIND`` and
  ``latency_s.KIND`` (for tensors without ``transfer_s.KIND``), ``host`` (a kind; ``cpu``), ``objective``.

Others are left alone.
"""

from __future__ import annotations

import reprlib
import sys
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from placekit.io.reading import blaming, read_json, read_text
from placekit.model.costs import CostTable
from placekit.model.errors import InvalidFileError, InvalidProblemError
from placekit.model.graph import OpGraph
from placekit.model.platform import Link, Platform
from placekit.model.problem import UNPINNED, Problem
from placekit.objectives import get_objective

if TYPE_CHECKING:
    import networkx

_OF_TENSOR = ("bytes", "transfer_s")
_NUMBERS = (
    *_OF_TENSOR, "time_s", "memory_bytes", "flops", "weight_bytes", "devices", "bandwidth_bytes_per_s", "latency_s",
)  # fmt: skip
_TEXTS = {"type", "device", "colocation", "host", "objective", "name"}


def read_graph(path: str | Path) -> Problem:
    """Read a graph with its costs; the names of attributes are those of the page on files.

    Raises
    ------
    InvalidFileError
        The file is broken, or an attribute is missing or wrong; the message names node, attribute and value.
    """
    path = Path(path)
    digraph = _digraph(path)
    with blaming(path):
        _check(digraph.graph, "the graph")
        for node, data in digraph.nodes(data=True):
            _check(data, f"node {str(node)!r}")
            if not any(key.startswith("time_s.") for key in data):
                raise InvalidProblemError(f"node {str(node)!r} has no attribute time_s.KIND, its seconds on a device")
        for sender, receiver, data in digraph.edges(data=True):
            what = f"edge {str(sender)!r} -> {str(receiver)!r}"
            _check(data, what)
            for key in [each for each in data if each.partition(".")[0] in _OF_TENSOR]:
                if (known := digraph.nodes[sender].setdefault(key, data[key])) != data[key]:
                    raise InvalidProblemError(
                        f"{what} has {key} {data[key]}; {str(sender)!r} or another of its out-edges has {known}, and a "
                        "node has one tensor"
                    )
        graph = OpGraph.from_networkx(digraph, name=digraph.name or path.stem)
        return _problem(graph, [data for _, data in digraph.nodes(data=True)], digraph.graph)


def _digraph(path: Path) -> networkx.DiGraph[Any]:
    import networkx as nx

    is_json = path.suffix.lower() == ".json"
    content: Any = read_json(path) if is_json else read_text(path)
    found: Any  # directed or not
    try:
        with warnings.catch_warnings(action="ignore"):
            if is_json:
                links = content.get("links", content.get("edges"))  # the name depends on the version of networkx
                both = {"links": links, "edges": links, "graph": dict(content.get("graph", {}))}
                found = nx.node_link_graph({"directed": True, **content, **both})
            else:
                found = nx.parse_graphml(content)
    except (ET.ParseError, nx.NetworkXException, LookupError, TypeError, ValueError, AttributeError) as error:
        raise InvalidFileError(f"{path}: networkx cannot read it: {type(error).__name__}: {error}") from None
    digraph: networkx.DiGraph[Any] = found
    return digraph


def _check(data: dict[str, Any], what: str) -> None:
    """Refuse attributes that are no numbers, or negative, or infinite; of the others some are text."""
    for key, value in data.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if key.partition(".")[0] in _NUMBERS and not (is_number and 0 <= value <= sys.float_info.max):
            raise InvalidProblemError(f"{what}: {key} is {reprlib.repr(value)}; it must be a finite number >= 0")
        if key == "is_backward" and not isinstance(value, bool):
            raise InvalidProblemError(f"{what}: {key} is {reprlib.repr(value)}; it must be true or false")
    data.update({key: str(data[key]) for key in _TEXTS & data.keys()})


def _problem(graph: OpGraph, nodes: list[dict[str, Any]], told: Mapping[str, Any]) -> Problem:
    kinds = list(dict.fromkeys(key[7:] for data in nodes for key in data if key.startswith("time_s.")))
    if told.get("host", "cpu") not in (*kinds, "cpu"):
        raise InvalidProblemError(f"the graph: host is {told['host']!r}; kinds are {', '.join(kinds)}")
    speeds = {kind: told[f"bandwidth_bytes_per_s.{kind}"] for kind in kinds if f"bandwidth_bytes_per_s.{kind}" in told}
    links = {kind: Link(told.get(f"latency_s.{kind}", 0.0), speed) for kind, speed in speeds.items()}
    platform = Platform.of(
        host=told.get("host", "cpu"),
        memory_bytes={kind: told[f"memory_bytes.{kind}"] for kind in kinds if f"memory_bytes.{kind}" in told},
        links=links,
        **{kind: int(told.get(f"devices.{kind}", 1)) for kind in kinds},
    )
    transfer_s = np.zeros((graph.num_tensors, len(kinds)))
    for tensor, op in enumerate(graph.tensor_producer.tolist()):
        for at, kind in enumerate(kinds):
            by_link = links[kind].time_s(graph.tensor_bytes[tensor]) if kind in links else 0.0
            transfer_s[tensor, at] = nodes[op].get(f"transfer_s.{kind}", by_link)
    costs = CostTable(
        tuple(kinds),
        np.array([[data.get(f"time_s.{kind}", 0.0) for kind in kinds] for data in nodes]),
        transfer_s,
        np.array([data.get("memory_bytes", 0.0) for data in nodes]),
        supported=np.array([[f"time_s.{kind}" in data for kind in kinds] for data in nodes]),
        provenance={"source": "graph file"},
    )
    placed = {op: data["device"] for op, data in enumerate(nodes) if "device" in data}
    for op, device in placed.items():
        if device not in platform.device_names:
            known = ", ".join(platform.device_names)
            raise InvalidProblemError(f"node {graph.op_names[op]!r}: device is {device!r}; devices are {known}")
    labels = [data.get("colocation", op) for op, data in enumerate(nodes)]
    number = {label: at for at, label in enumerate(dict.fromkeys(labels))}
    return Problem(
        graph,
        platform,
        costs.for_kinds(platform.kinds),
        get_objective(told["objective"]) if "objective" in told else None,
        colocation=np.array([number[label] for label in labels]),
        pinned=np.array([platform.index(placed[op]) if op in placed else UNPINNED for op in range(len(nodes))]),
    )
