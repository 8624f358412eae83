"""Bytes of weights as a folder of transformers stores them: from the headers of its safetensors files.

A header says the bytes of every tensor. Checkpoints name tensors otherwise than modules do: quantised ones have packed
weights and scales in the place of a weight, and transformers stacks experts that files have one by one. So bytes are
compared by group: experts and all else of every block, towers, embeddings, and the head.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from placekit.model.errors import InvalidFileError

_INDEX = "model.safetensors.index.json"
_BLOCK = re.compile(r"(?:^|\.)(?:layers|h|blocks?)\.(\d+)\.")
_TOWER = re.compile(r"vision|visual|audio|image|speech|multi_?modal|projector|tower", re.I)
MAX_HEADER = 100 * 2**20
"""Bytes of a header: the limit of the format."""

Group = tuple[str, int]
"""Key under which tensors are compared: `_group`."""


def stored_bytes(folder: Path) -> tuple[dict[Group, float], str] | None:
    """Return the bytes of every group of tensors, and words for their types; None without safetensors files.

    Raises `InvalidFileError`: a header that is cut off or damaged, or a file that the index names and that is not
    there.
    """
    index = folder / _INDEX
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise InvalidFileError(f"{index} is no index of safetensors files: {error}") from None
        files = [folder / str(name) for name in names]
        there = [file for file in files if file.is_file()]
        if not there:  # an index alone: the configuration tells the bytes
            return None
        if len(there) < len(files):
            missing = next(file for file in files if file not in there)
            raise InvalidFileError(f"{missing}: there is no such file, and {index.name} names it")
    else:
        there = sorted(folder.glob("model*.safetensors"))
    if not there:
        return None
    found: dict[Group, float] = {}
    types: Counter[str] = Counter()
    for file in there:
        for name, kind, num_bytes in _tensors(file):
            group = _group(name)
            found[group] = found.get(group, 0.0) + num_bytes
            types[kind] += num_bytes
    return found, f"{' and '.join(kind for kind, _ in types.most_common(2))} as stored"


def _tensors(file: Path) -> Iterable[tuple[str, str, int]]:
    """Return name, type and bytes of the tensors of a safetensors file."""
    try:
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            text = opened.read(length) if 2 <= length <= MAX_HEADER else b""
        header = json.loads(text.decode("utf-8"))
        return [
            (name, str(each["dtype"]), int(each["data_offsets"][1]) - int(each["data_offsets"][0]))
            for name, each in header.items()
            if name != "__metadata__"
        ]
    except (OSError, ValueError, KeyError, AttributeError, TypeError, IndexError, RecursionError):
        raise InvalidFileError(f"{file}: the header of the safetensors file is cut off or damaged") from None


def _group(name: str) -> Group:
    """Return what a tensor or a parameter belongs to.

    Examples
    --------
    >>> _group("model.layers.3.mlp.experts.7.up_proj.weight"), _group("model.layers.3.mlp.experts.gate_up_proj")
    (('experts', 3), ('experts', 3))
    >>> _group("lm_head.weight"), _group("model.norm.weight")
    (('head', 0), ('other', 0))
    """
    if _TOWER.search(name):
        return "tower", 0
    block = _BLOCK.search(name)
    if block:
        has_experts = re.search(r"\.experts?\.|\.block_sparse_moe\.experts", name) and "shared" not in name
        return ("experts" if has_experts else "block"), int(block[1])
    if re.search(r"lm_head|embed_out|^output\.", name):
        return "head", 0
    return ("embedding" if re.search(r"embed|wte|wpe", name) else "other"), 0


def scaled_to_files(
    bytes_of: Callable[[str, Any], float], parameters: Iterable[tuple[str, Any]], stored: dict[Group, float]
) -> Callable[[str, Any], float]:
    """Return bytes of parameters that add up, in every group, to those of the files.

    `parameters` are given with their paths, tied ones once. A group that is not in `stored` keeps the expected bytes.
    """
    expected: dict[Group, float] = {}
    for name, parameter in parameters:
        group = _group(name)
        expected[group] = expected.get(group, 0.0) + bytes_of(name, parameter)
    scale = {group: stored[group] / each for group, each in expected.items() if group in stored and each > 0}
    return lambda name, parameter: bytes_of(name, parameter) * scale.get(_group(name), 1.0)
