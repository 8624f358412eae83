"""Files in the JSON format of Piper ("Multidimensional Planner for DNN Parallelization").

A file has ``maxDevices``, ``maxMemoryPerDevice`` (bytes), ``bandwidth`` (bytes/s), ``mbsInBatch``, ``nodes`` and
``edges``. A node has ``TMPCs``: by tensor-parallel degree a list of choices with ``timePerSample`` (of a microbatch),
``parameterSize``, ``memoryUsageA``, ``memoryUsageB``, ``syncTimeFw`` (bytes, by the id of a predecessor) and
``syncTimeBw`` (by the id of a successor). Reference: https://github.com/msr-fiddle/piper.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from placekit.io.atomic import write_json
from placekit.io.files.schema_fields import Label, NonNegative, Open, Positive, Text, Whole
from placekit.io.reading import blaming, read_json, validated
from placekit.model.errors import InvalidFileError
from placekit.training.problem import Choice, Layer, LayerEdge, TrainingProblem


class _ChoiceModel(Open):
    id: Text
    timePerSample: NonNegative  # noqa: N815  # the format's own words, also below
    parameterSize: NonNegative  # noqa: N815
    memoryUsageA: NonNegative  # noqa: N815
    memoryUsageB: NonNegative  # noqa: N815
    syncTimeFw: dict[str, NonNegative] = {}  # noqa: N815
    syncTimeBw: dict[str, NonNegative] = {}  # noqa: N815


class _NodeModel(Open):
    id: Label
    name: Text | None = None
    TMPCs: Annotated[dict[str, Annotated[list[_ChoiceModel], Field(min_length=1)]], Field(min_length=1)]


class _EdgeModel(Open):
    sourceId: Label  # noqa: N815
    destId: Label  # noqa: N815
    communicationCost: NonNegative  # noqa: N815


class PiperModel(Open):
    """File in Piper's format."""

    maxDevices: Annotated[Whole, Field(ge=1, le=1 << 20)]  # noqa: N815
    maxMemoryPerDevice: Positive  # noqa: N815
    bandwidth: Positive
    mbsInBatch: Annotated[Whole, Field(ge=1, le=1 << 30)]  # noqa: N815
    nodes: Annotated[list[_NodeModel], Field(min_length=1)]
    edges: list[_EdgeModel]


def read_piper(path: str | Path, **changes: Any) -> TrainingProblem:
    """Read a training problem from a file in Piper's format.

    Parameters
    ----------
    path
        The file.
    **changes
        ``num_devices``, ``memory_bytes``, ``bandwidth_bytes_per_s``, ``num_microbatches`` or `restrictions`, which
        replace the values in the file.

    Raises
    ------
    InvalidFileError
        The file is broken or contradicts itself; the message names the layer and the value.
    """
    model = validated(PiperModel, read_json(path), path)
    with blaming(path):
        return _problem(model, Path(path), changes)


def _problem(model: PiperModel, path: Path, changes: Mapping[str, Any]) -> TrainingProblem:
    at: dict[int, int] = {}
    for n, node in enumerate(model.nodes):
        if node.id in at:
            raise InvalidFileError(f"{path}: nodes {at[node.id]} and {n} both have id {node.id}")
        at[node.id] = n
    pairs: set[tuple[int, int]] = set()
    edges = []
    for edge in model.edges:
        for end, word in ((edge.sourceId, "sourceId"), (edge.destId, "destId")):
            if end not in at:
                raise InvalidFileError(f"{path}: an edge has {word} {end}, which no node has")
        pairs.add((edge.sourceId, edge.destId))
        edges.append(LayerEdge(at[edge.sourceId], at[edge.destId], edge.communicationCost))
    layers = []
    for node in model.nodes:
        name = node.name or f"node{node.id}"
        choices: dict[int, tuple[Choice, ...]] = {}
        for degree, listed in node.TMPCs.items():
            if not degree.isdecimal() or int(degree) < 1:
                raise InvalidFileError(f"{path}: layer {name!r} (id {node.id}) has degree {degree!r}; it must be >= 1")
            where = f"{path}: layer {name!r} (id {node.id}), degree {degree}"
            choices[int(degree)] = tuple(
                Choice(
                    choice.id, choice.timePerSample, choice.parameterSize, choice.memoryUsageA, choice.memoryUsageB,
                    _sync(choice.syncTimeFw, at, {u for u, v in pairs if v == node.id}, f"{where}: syncTimeFw"),
                    _sync(choice.syncTimeBw, at, {v for u, v in pairs if u == node.id}, f"{where}: syncTimeBw"),
                )
                for choice in listed
            )  # fmt: skip
        layers.append(Layer(name, choices))
    given: dict[str, Any] = {
        "num_devices": model.maxDevices,
        "memory_bytes": model.maxMemoryPerDevice,
        "bandwidth_bytes_per_s": model.bandwidth,
        "num_microbatches": model.mbsInBatch,
    }
    return TrainingProblem(path.stem, tuple(layers), tuple(edges), **(given | dict(changes)))


def _sync(table: Mapping[str, float], at: Mapping[int, int], neighbours: set[int], where: str) -> dict[int, float]:
    found: dict[int, float] = {}
    for key, num_bytes in table.items():
        try:
            other = int(key)
        except ValueError:
            raise InvalidFileError(f"{where} has key {key!r}; keys are ids of nodes") from None
        if other not in neighbours:
            raise InvalidFileError(f"{where} names node {other}, but there is no such edge")
        found[at[other]] = num_bytes
    missing = sorted(neighbours - {int(key) for key in table})
    if missing:
        raise InvalidFileError(f"{where} lacks the edge with node {missing[0]}")
    return found


def piper_to_dict(problem: TrainingProblem) -> dict[str, Any]:
    """Return `problem` as JSON values in Piper's format; ids are indices."""
    return {
        "maxDevices": problem.num_devices,
        "maxMemoryPerDevice": problem.memory_bytes,
        "bandwidth": problem.bandwidth_bytes_per_s,
        "mbsInBatch": problem.num_microbatches,
        "nodes": [
            {
                "id": v,
                "name": layer.name,
                "TMPCs": {
                    str(degree): [
                        {
                            "id": choice.name,
                            "timePerSample": choice.time_s,
                            "parameterSize": choice.parameter_bytes,
                            "memoryUsageA": choice.memory_per_microbatch_bytes,
                            "memoryUsageB": choice.memory_fixed_bytes,
                            "syncTimeFw": {str(u): value for u, value in choice.sync_in_bytes.items()},
                            "syncTimeBw": {str(w): value for w, value in choice.sync_out_bytes.items()},
                        }
                        for choice in choices
                    ]
                    for degree, choices in layer.choices.items()
                },
            }
            for v, layer in enumerate(problem.layers)
        ],
        "edges": [
            {"sourceId": edge.source, "destId": edge.target, "communicationCost": edge.num_bytes}
            for edge in problem.edges
        ],
    }


def write_piper(problem: TrainingProblem, path: str | Path) -> None:
    """Write `problem` in Piper's format; restrictions are not part of it. The write is atomic.

    Raises `PlacekitError`: the file cannot be written.
    """
    write_json(path, piper_to_dict(problem))
