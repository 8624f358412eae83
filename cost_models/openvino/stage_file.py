"""Stages of OpenVINO as files, for processes that share tensors of fixed shape in memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.openvino.counters import compile_properties
from placekit.cost_models.openvino.devices import shared_core
from placekit.cost_models.openvino.pipeline_memory import TensorSpec
from placekit.cost_models.openvino.pipeline_stage import StageRunner
from placekit.cost_models.openvino.split import TensorKey
from placekit.cost_models.openvino.stages import StagePlan
from placekit.model.errors import UnsupportedProblemError
from placekit.model.platform import Device

if TYPE_CHECKING:
    import openvino

__all__ = ["StageFile", "openvino_view", "specs_of", "write_stages"]


@dataclass(frozen=True)
class StageFile:
    """A stage as a file.

    Parameters
    ----------
    node
        The stage's number.
    name, path
        Its name, and its model.
    inputs, outputs
        Key of each input and output.
    input_names, output_names
        Friendly name of the Parameter or Result of each; a file may hold them in another order.
    """

    node: int
    name: str
    path: str
    inputs: tuple[TensorKey, ...]
    outputs: tuple[TensorKey, ...]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]

    def open(self, device: Device) -> _Compiled:
        """Compile it for a device."""
        core = shared_core()
        model = core.read_model(self.path)
        target = device.openvino or device.name
        compiled = core.compile_model(model, target, compile_properties(target, device.properties))
        read = [node.get_friendly_name() for node in model.get_parameters()]
        written = [node.get_friendly_name() for node in model.get_results()]
        return _Compiled(
            compiled,
            _in_order(read, self.input_names, self.inputs),
            _in_order(written, self.output_names, self.outputs),
        )

    def view(self, data: NDArray[np.uint8], spec: TensorSpec) -> openvino.Tensor:
        """Return the tensor over the bytes of a slot."""
        return openvino_view(data, spec)


class _Compiled(StageRunner):
    """A compiled stage, and what its inputs and outputs are."""

    def __init__(self, compiled: openvino.CompiledModel, inputs: list[TensorKey], outputs: list[TensorKey]) -> None:
        super().__init__(compiled)
        self.inputs, self.outputs = inputs, outputs


def _in_order(found: Sequence[str], names: Sequence[str], keys: Sequence[TensorKey]) -> list[TensorKey]:
    """Return the `keys` in the order in which the file has the inputs or outputs called `names`."""
    key_of_name = dict(zip(names, keys, strict=True))
    return [key_of_name[name] for name in found]


def write_stages(plan: StagePlan, folder: Path) -> list[StageFile]:
    """Write the model of every stage into a folder."""
    from openvino import save_model

    files = []
    for node, stage in enumerate(plan.stages):
        path = folder / f"{node}.xml"
        save_model(stage.model, path, compress_to_fp16=False)
        files.append(
            StageFile(
                node=node,
                name=stage.name,
                path=str(path),
                inputs=stage.inputs,
                outputs=stage.outputs,
                input_names=tuple(each.get_friendly_name() for each in stage.model.get_parameters()),
                output_names=tuple(each.get_friendly_name() for each in stage.model.get_results()),
            )
        )
    return files


def specs_of(ports: Mapping[TensorKey, Any]) -> dict[TensorKey, TensorSpec]:
    """Return what every tensor is, from its port.

    Raises
    ------
    UnsupportedProblemError
        A tensor of dynamic shape, whose size is not known before it runs.
    """
    specs = {}
    for key, port in ports.items():
        if port.get_partial_shape().is_dynamic:
            raise UnsupportedProblemError(
                f"tensor {key[0]!r} has the dynamic shape {port.get_partial_shape()}, and processes share tensors of "
                "known size only; give the model fixed shapes, or use threads"
            )
        kind, shape = port.get_element_type(), tuple(port.get_shape())
        specs[key] = TensorSpec(kind.get_type_name(), shape, math.ceil(math.prod(shape) * int(kind.bitwidth) / 8))
    return specs


def openvino_view(data: NDArray[np.uint8], spec: TensorSpec) -> openvino.Tensor:
    """Return the tensor over the bytes of a slot."""
    from openvino import Tensor, Type

    return Tensor(data, list(spec.shape), getattr(Type, spec.kind))
