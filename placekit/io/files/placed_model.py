"""Placements of a model file: at the shapes they were made for, and of the same model with open shapes.

A language model is placed at the shapes of a step, and runs at any: prompts and single tokens go through the same
stages, which keep the states. With open shapes a model has more ops, since nothing about them is computed in advance.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np

from placekit.io.files.placement_json import PlacementFile
from placekit.io.models.model import ModelSource
from placekit.io.models.model_inputs import format_shapes
from placekit.io.models.read_model import read_model
from placekit.model.errors import InvalidFileError
from placekit.model.graph import DYNAMIC
from placekit.model.placement import Placement
from placekit.model.platform import Platform

logger = logging.getLogger(__name__)


def placement_of(file: PlacementFile, source: ModelSource, platform: Platform, default: str | None = None) -> Placement:
    """Return the placement of a model's ops on `platform`; see `PlacementFile.for_model`.

    If the model has open shapes and the placement was made for known ones, ops that the model has at open shapes only
    are where their first reader is, or else their first producer.
    """
    ops = set(source.graph.op_names)
    if default is not None or file.default_device is not None or ops <= file.ops.keys() or not _opens(file, source):
        return file.for_model(source.graph, platform, default)
    try:
        made_for = read_model(source.path, file.inputs)
    except InvalidFileError:
        return file.for_model(source.graph, platform, default)
    if set(made_for.graph.op_names) != file.ops.keys():
        return file.for_model(source.graph, platform, default)
    placed = file.for_model(made_for.graph, platform)
    logger.warning(
        "%s was made for input shapes %s; here they are open: pass --shape %s to have those",
        file.path,
        format_shapes(file.inputs),
        format_shapes(file.inputs),
    )
    index = dict(zip(placed.op_names, placed.device_of_op.tolist(), strict=True))
    return Placement(
        source.graph.op_names,
        placed.device_names,
        np.array(_spread(source, index), dtype=np.int64),
        team_of_device=placed.team_of_device,
    )


def _opens(file: PlacementFile, source: ModelSource) -> bool:
    """Return whether the inputs have the shapes of the file, or leave open what differs."""
    here = {each.name: each.shape for each in source.inputs}
    return bool(file.inputs) and all(
        name in here
        and len(here[name]) == len(shape)
        and all(mine in (DYNAMIC, its) for mine, its in zip(here[name], shape, strict=True))
        for name, shape in file.inputs.items()
    )


def _spread(source: ModelSource, index: Mapping[str, int]) -> list[int]:
    """``[num_ops]`` devices; those of ops that `index` does not have are their neighbours'."""
    graph = source.graph
    device: list[int | None] = [index.get(name) for name in graph.op_names]
    for op in range(graph.num_ops):  # a state stays with what reads it
        if device[op] is None:
            together = np.flatnonzero(source.colocation == source.colocation[op]).tolist()
            device[op] = next((device[each] for each in together if device[each] is not None), None)
    readers: dict[int, list[int]] = {}
    sources: dict[int, list[int]] = {}
    for sender, receiver in zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True):
        readers.setdefault(sender, []).append(receiver)
        sources.setdefault(receiver, []).append(sender)
    order, rank = graph.order.tolist(), graph.rank
    for neighbours, ops in ((readers, reversed(order)), (sources, order)):
        for op in ops:
            if device[op] is None:
                near = sorted(neighbours.get(op, ()), key=lambda each: int(rank[each]))
                device[op] = next((device[each] for each in near if device[each] is not None), None)
    anywhere = next(iter(index.values()))
    return [anywhere if each is None else each for each in device]
