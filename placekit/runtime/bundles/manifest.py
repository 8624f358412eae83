"""Manifest of a bundle as pydantic models, the same for OpenVINO and PyTorch; `bundle` writes and reads it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from placekit.cost_models.openvino.split import TensorKey
from placekit.io.file_hash import Digest, file_hash, require_hash
from placekit.io.files.schema_fields import Count, Name, Strict, Text
from placekit.io.files.schemas import DeviceModel
from placekit.model.errors import InvalidFileError
from placekit.model.platform import Device
from placekit.runtime.stages.stage_plan import CutTensor, PlacedStage, StagePlan

MAX_QUEUE_SIZE = 1 << 16
"""Longer queues are refused: their slots are made before the first sample comes."""

FileName = Annotated[str, Field(pattern=r"^\d{1,9}\.(xml|bin|pt2)$")]  # no path that leads out of the folder


class _Key(Strict):
    """A tensor: the friendly name of the op that computes it, and the op's output port."""

    op: Name
    port: Count

    @property
    def key(self) -> TensorKey:
        """The two as one value."""
        return self.op, self.port


class InputModel(_Key):
    """An input of the whole model."""

    name: Name
    tensor_names: list[Text]
    type: Name
    shape: Text


class OutputModel(_Key):
    """An output of the whole model."""

    name: Name


class PortModel(_Key):
    """An input or output of a stage, by its Parameter or Result, as an IR may hold them in another order."""

    node: Name


class TensorModel(_Key):
    """A tensor between stages, the stages by number; bytes are null for a shape that is not known in advance."""

    producer: Count
    consumers: list[Count]
    num_bytes: Count | None

    @classmethod
    def of(cls, cut: CutTensor) -> TensorModel:
        """Return the entry of a cut tensor."""
        op, port = cut.key
        return cls(op=op, port=port, producer=cut.producer, consumers=list(cut.consumers), num_bytes=cut.num_bytes)


class StageModel(Strict):
    """A stage: the devices that run it, and its files with the hash of each (blake2b, 16 bytes), one set for all."""

    name: Name
    members: Annotated[list[Name], Field(min_length=1)]
    files: dict[FileName, Digest]
    inputs: list[PortModel]
    outputs: list[PortModel]
    op_names: list[Name]

    @classmethod
    def of(cls, stage: PlacedStage, files: list[Path], inputs: list[PortModel], outputs: list[PortModel]) -> StageModel:
        """Return the entry of a stage that was written to `files`."""
        return cls(
            name=stage.name,
            members=[device.name for device in stage.members],
            files={path.name: file_hash(path) for path in files},
            inputs=inputs,
            outputs=outputs,
            op_names=list(stage.op_names),
        )

    def file(self, path: Path, name: str) -> Path:
        """Return the file `name` beside the manifest `path`, once all files have the hashes that are listed."""
        if name not in self.files:
            raise InvalidFileError(f"{path}: stage {self.name!r} does not list its file {name}")
        for each, digest in self.files.items():
            require_hash(path.with_name(each), digest, "bundle")
        return path.with_name(name)


class Manifest(Strict):
    """The whole file; stages stand in an order in which they can run, those of PyTorch in a chain."""

    format: Annotated[Literal["placekit/bundle/3"], Field(alias="schema")] = "placekit/bundle/3"
    framework: Literal["openvino", "torch"]
    model: Text
    made_with: dict[str, str]
    queue_size: Annotated[int, Field(ge=1, le=MAX_QUEUE_SIZE)]
    devices: list[DeviceModel]
    inputs: list[InputModel]
    outputs: list[OutputModel]
    stages: list[StageModel]
    tensors: list[TensorModel]

    @classmethod
    def of(
        cls,
        plan: StagePlan,
        framework: Literal["openvino", "torch"],
        *,
        inputs: list[InputModel],
        devices: Sequence[Device] | None = None,
        stages: list[StageModel],
        queue_size: int,
        version: str,
    ) -> Manifest:
        """Return the manifest of a plan whose stages were written; `devices` are the plan's unless given."""
        from placekit import __version__

        same = ("name", "kind", "memory_bytes", "is_host", "openvino")
        return cls(
            framework=framework,
            model=plan.name,
            made_with={"placekit": __version__, framework: version},
            queue_size=queue_size,
            devices=[
                DeviceModel(
                    **{name: getattr(each, name) for name in same},
                    cores=list(each.cores),
                    properties=portable_properties(each.properties),
                )
                for each in (plan.devices if devices is None else devices)
            ],
            inputs=inputs,
            outputs=[
                OutputModel(op=op, port=port, name=name)
                for (op, port), name in zip(plan.output_keys, plan.output_names, strict=True)
            ],
            stages=stages,
            tensors=[TensorModel.of(cut) for cut in plan.cuts],
        )


def upgraded(data: Any) -> Any:
    """Return a manifest of an earlier version (for OpenVINO; in the first with one device per stage) as a current one.

    Examples
    --------
    >>> upgraded({"schema": "placekit/bundle/1", "stages": [{"name": "0:CPU", "device": "CPU"}]})
    {'schema': 'placekit/bundle/3', 'stages': [{'name': '0:CPU', 'members': ['CPU']}], 'framework': 'openvino'}
    """
    if not isinstance(data, dict) or data.get("schema") not in ("placekit/bundle/1", "placekit/bundle/2"):
        return data
    data = data | {"schema": "placekit/bundle/3", "framework": "openvino"}
    if isinstance(data.get("stages"), list):
        data["stages"] = [dict(each) if isinstance(each, dict) else each for each in data["stages"]]
        for stage in data["stages"]:
            if isinstance(stage, dict) and "device" in stage:
                stage["members"] = [stage.pop("device")]
    return data


_PATH_WORDS = frozenset({"DIR", "DIRECTORY", "PATH", "FILE", "FILENAME", "DUMP", "BLOB", "LIBRARY", "EXTENSION"})


def portable_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a device that name no place in a file system.

    Paths are of a machine, and a bundle goes to others: one from a stranger must not decide where OpenVINO makes
    folders (``CACHE_DIR``) or what it loads. Whoever loads a bundle says where compiled models are kept.

    Examples
    --------
    >>> portable_properties({"NUM_STREAMS": "1", "CACHE_DIR": "cache", "WEIGHTS": "/etc/x"})
    {'NUM_STREAMS': '1'}
    """

    def is_path(text: str) -> bool:
        return bool(_PATH_WORDS.intersection(re.split(r"[^A-Z]+", text.upper()))) or "/" in text or "\\" in text

    return {name: value for name, value in properties.items() if not (is_path(name) or is_path(value))}
