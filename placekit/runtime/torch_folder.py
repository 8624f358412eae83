"""A pipeline of torch as a folder, read back: what its manifest may say, and its stages as a plan that runs here.

Nothing of the folder is executed: stages are read as other ``.pt2`` files are (:mod:`placekit.pytorch.archive`), and
built out of registered operators. A tensor that a stage of the chain only hands on goes straight to its readers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from placekit.cost_models.openvino.split import TensorKey
from placekit.io.file_hash import Digest, require_hash
from placekit.io.reading import read_json, validated
from placekit.io.schema_fields import Count, Name, Text
from placekit.model.errors import InvalidFileError
from placekit.model.platform import Device
from placekit.pytorch.program import TorchProgram, TorchTensor
from placekit.pytorch.source import TorchSource, read_pt2
from placekit.runtime.stages import PlacedStage, StagePlan, cut_tensors
from placekit.runtime.torch_stages import TorchModel, TorchPart

__all__ = ["FORMAT", "MANIFEST", "is_torch_pipeline", "read_torch_pipeline"]

FORMAT: Literal["placekit/torch-pipeline/1"] = "placekit/torch-pipeline/1"
"""Value of ``format`` in the manifest."""

MANIFEST = "manifest.json"
"""Name of the file that says what the folder is."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class InputEntry(_Strict):
    """An input of the model."""

    name: Name
    dtype: Name
    shape: list[Count]


class StageEntry(_Strict):
    """A stage: where it runs, its file and the hash of that, and the tensors before and behind it."""

    name: Name
    device: Name
    torch: Annotated[str, Field(pattern=r"^(cpu|mps|cuda:\d{1,4})$")]
    cores: list[Count]
    file: Annotated[str, Field(pattern=r"^stages/\d{1,9}\.pt2$")]  # no path that leads out of the folder
    hash: Digest
    inputs: list[Name]
    outputs: list[Name]


class PipelineManifest(_Strict):
    """The whole file; stages form a chain."""

    format: Literal["placekit/torch-pipeline/1"] = FORMAT
    model: Text
    torch: Text
    inputs: list[InputEntry]
    outputs: list[Name]
    stages: Annotated[list[StageEntry], Field(min_length=1)]


def is_torch_pipeline(folder: str | Path) -> bool:
    """Whether the manifest of a folder says that it is a pipeline of torch.

    Raises
    ------
    InvalidFileError
        The manifest cannot be read.
    """
    told = read_json(Path(folder) / MANIFEST)
    return isinstance(told, dict) and told.get("format") == FORMAT


def read_torch_pipeline(folder: str | Path) -> StagePlan:
    """Return the stages in a folder that ``export --to torch-pipeline`` wrote.

    Parameters
    ----------
    folder
        The folder.

    Raises
    ------
    InvalidFileError
        A manifest that contradicts itself or its files, or a file that is missing or not the one that was written.
    """
    path = Path(folder) / MANIFEST
    manifest = validated(PipelineManifest, read_json(path), path)
    _check_chain(path, manifest)
    devices = _devices(path, manifest)
    known = {each.name: (each.dtype, tuple(each.shape)) for each in manifest.inputs}
    stages = []
    sizes: dict[TensorKey, int | None] = {}
    for entry in manifest.stages:
        part = _read_part(path, entry, known)
        program = _program(part.source)
        read = {ref for node in program.nodes for ref in node.refs()}
        again = next((key for key in entry.outputs if key in known and key not in entry.inputs), None)
        if again is not None:
            raise InvalidFileError(f"{path}: stage {entry.name!r} gives {again!r} again")
        outputs = {key: name for key, name in zip(entry.outputs, part.outputs, strict=True) if key not in known}
        # what is only handed on is neither read nor given: it goes from its maker to its readers
        read |= set(outputs.values())
        inputs = {key: name for key, name in zip(entry.inputs, part.inputs, strict=True) if name in read}
        known |= {key: _meta(program.tensors[name]) for key, name in outputs.items()}
        sizes |= {(key, 0): int(program.tensors[name].num_bytes) for key, name in outputs.items()}
        read_keys, given_keys = (tuple((key, 0) for key in each) for each in (inputs, outputs))
        own = TorchPart(part.source, part.ops, tuple(inputs.values()), tuple(outputs.values()))
        names, members = part.source.graph.op_names, (devices[entry.device],)
        stages.append(PlacedStage(entry.name, members, own, read_keys, given_keys, names))
    first = _program(stages[0].model.source)
    metas = {each.name: first.tensors[name] for each, name in zip(manifest.inputs, first.inputs, strict=True)}
    return StagePlan(
        name=manifest.model,
        model=TorchModel(metas),
        stages=tuple(stages),
        input_keys=tuple((name, 0) for name in metas),
        output_keys=tuple((name, 0) for name in manifest.stages[-1].outputs),
        input_names=tuple(metas),
        output_names=tuple(manifest.outputs),
        cuts=cut_tensors(stages, sizes),
    )


def _program(source: TorchSource) -> TorchProgram:
    assert source.lowered is not None  # every reader sets it
    return source.lowered.program


def _meta(tensor: TorchTensor) -> tuple[str, tuple[int, ...]]:
    return tensor.dtype, tensor.shape


def _check_chain(path: Path, manifest: PipelineManifest) -> None:
    """Raise unless every stage reads what the one before it gives, and names are unique where they have to be."""
    before, whose = [each.name for each in manifest.inputs], "the model takes"
    for stage in manifest.stages:
        if stage.inputs != before:
            raise InvalidFileError(f"{path}: stage {stage.name!r} reads {stage.inputs}, and {whose} {before}")
        if len(set(before)) < len(before):
            raise InvalidFileError(f"{path}: stage {stage.name!r} reads a tensor twice: {before}")
        before, whose = stage.outputs, f"stage {stage.name!r} gives"
    names = [stage.name for stage in manifest.stages]
    for what, each in (("stage", names), ("output", manifest.outputs)):
        twice = next((name for name in each if each.count(name) > 1), None)
        if twice is not None:
            raise InvalidFileError(f"{path}: {what} {twice!r} stands there twice")
    if [re.sub(r"#\d+$", "", name) for name in manifest.outputs] != before:
        raise InvalidFileError(f"{path}: the outputs are {manifest.outputs}, and {whose} {before}")


def _devices(path: Path, manifest: PipelineManifest) -> dict[str, Device]:
    found: dict[str, Device] = {}
    for stage in manifest.stages:
        is_cpu = stage.torch == "cpu"
        device = Device(
            stage.device,
            stage.torch,
            is_host=is_cpu,
            openvino="CPU" if is_cpu else None,
            cores=tuple(stage.cores),
            properties={"torch": stage.torch},
        )
        if found.setdefault(stage.device, device) != device:
            raise InvalidFileError(f"{path}: device {stage.device!r} of stage {stage.name!r} was another one before")
    return found


def _read_part(path: Path, entry: StageEntry, known: Mapping[str, tuple[str, tuple[int, ...]]]) -> TorchPart:
    """Return the whole program of a stage, whose inputs are as what is known of them."""
    file = path.parent / entry.file
    require_hash(file, entry.hash, "pipeline")
    source = read_pt2(file)
    program = _program(source)
    for what, names, told in (("inputs", program.inputs, entry.inputs), ("outputs", program.outputs, entry.outputs)):
        if len(names) != len(told):
            raise InvalidFileError(
                f"{path}: stage {entry.name!r} lists {len(told)} {what}; its program has {len(names)}"
            )
    for key, name in zip(entry.inputs, program.inputs, strict=True):
        if _meta(program.tensors[name]) != known[key]:
            raise InvalidFileError(
                f"{path}: stage {entry.name!r} reads {key!r} as {_meta(program.tensors[name])}; it is {known[key]}"
            )
    return TorchPart(source, range(source.graph.num_ops), program.inputs, program.outputs)
