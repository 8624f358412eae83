"""A placement as a folder that can be deployed: a file for every stage, and a manifest that says how they connect.

The manifest is the same for OpenVINO and PyTorch. It names the members of the team that runs a stage; all of them load
the same file.

::

    bundle/
      manifest.json     schema, devices, inputs, outputs, stages, tensors between them, queue size, hashes
      0.xml  0.bin      the stages of OpenVINO, in an order in which they can run
      1.xml  1.bin

    pipeline/
      manifest.json     the same
      0.pt2  1.pt2      the programs of PyTorch's stages with their weights, see `placekit.runtime.bundles.torch_bundle`
      run.py            runs them by torch.distributed.pipelining, without placekit
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placekit.cost_models.openvino.devices import shared_core
from placekit.cost_models.openvino.split import TensorKey
from placekit.io.atomic import write_json
from placekit.io.files.schemas import DeviceModel
from placekit.io.folders import write_folder
from placekit.io.models.model import ModelSource
from placekit.io.models.openvino_graph import short_reason
from placekit.io.models.openvino_ir import check_ir
from placekit.io.reading import blaming, read_json, validated
from placekit.model.errors import InvalidFileError, InvalidProblemError, UnsupportedProblemError
from placekit.model.platform import Device
from placekit.pytorch.source import TorchSource
from placekit.runtime.bundles.manifest import (
    MAX_QUEUE_SIZE,
    InputModel,
    Manifest,
    PortModel,
    StageModel,
    TensorModel,
    portable_properties,
    upgraded,
)
from placekit.runtime.bundles.torch_bundle import read_torch_stages, refuse_teams, write_torch_stages
from placekit.runtime.stages.openvino_stages import bytes_of_outputs
from placekit.runtime.stages.openvino_tensors import save_model
from placekit.runtime.stages.stage_plan import PlacedStage, StagePlan, cut_tensors
from placekit.runtime.stages.torch_stages import TorchModel, TorchPart

if TYPE_CHECKING:
    import openvino

MANIFEST = "manifest.json"
"""Name of the file that makes a folder a bundle."""

_LOGGER = logging.getLogger(__name__)


def write_bundle(
    plan: StagePlan, folder: str | Path, *, queue_size: int = 2, check: Callable[[Path], object] | None = None
) -> None:
    """Write `plan` as a bundle, which appears complete or not at all; one that is there already is replaced.

    `queue_size` samples fit between a stage and the next, unless the user of the bundle says otherwise. `check` is
    called with the new folder before it takes its place; what it raises leaves everything as it was.

    Raises
    ------
    InvalidProblemError
        A queue size below 1 or above `MAX_QUEUE_SIZE`.
    UnsupportedProblemError
        A PyTorch program with a team of several devices, or a stage that torch.export cannot write.
    PlacekitError
        The folder exists and is no bundle, or cannot be written.
    """
    if not 1 <= queue_size <= MAX_QUEUE_SIZE:
        raise InvalidProblemError(
            f"bundle of {plan.name!r}: queue_size is {queue_size}; it must be >= 1 and at most {MAX_QUEUE_SIZE}"
        )
    is_torch = isinstance(plan.model, TorchModel)
    if is_torch:
        refuse_teams(plan)

    def write(new: Path) -> None:
        manifest = write_torch_stages(plan, new, queue_size) if is_torch else _write_stages(plan, new, queue_size)
        write_json(new / MANIFEST, manifest.model_dump(by_alias=True))
        if check is not None:
            check(new)

    write_folder(folder, "bundle", lambda old: None if (old / MANIFEST).is_file() else f"it has no {MANIFEST}", write)


def _write_stages(plan: StagePlan, folder: Path, queue_size: int) -> Manifest:
    import openvino

    stages = []
    for index, stage in enumerate(plan.stages):
        paths = [folder / f"{index}{suffix}" for suffix in (".xml", ".bin")]
        save_model(stage.model, paths[0], f"stage {stage.name!r}")
        inputs, outputs = (
            [
                PortModel(op=op, port=port, node=node.get_friendly_name())
                for (op, port), node in zip(keys, nodes, strict=True)
            ]
            for keys, nodes in (
                (stage.inputs, stage.model.get_parameters()),
                (stage.outputs, stage.model.get_results()),
            )
        )
        stages.append(StageModel.of(stage, [path for path in paths if path.exists()], inputs, outputs))
    ends = [
        InputModel(
            op=op,
            port=port,
            name=name,
            tensor_names=sorted(tensor.get_names()),
            type=tensor.get_element_type().get_type_name(),
            shape=str(tensor.get_partial_shape()),
        )
        for (op, port), name, tensor in zip(plan.input_keys, plan.input_names, plan.model.inputs, strict=True)
    ]
    return Manifest.of(
        plan, "openvino", inputs=ends, stages=stages, queue_size=queue_size, version=openvino.__version__
    )


def read_manifest(folder: str | Path) -> Manifest:
    """Return the manifest of a bundle."""
    path = Path(folder) / MANIFEST
    if not path.is_file():
        raise InvalidFileError(f"{folder}: no bundle, it has no {MANIFEST}")
    return validated(Manifest, upgraded(read_json(path)), path)


def read_bundle(folder: str | Path, *, cache_dir: str | Path | None = None) -> tuple[StagePlan, int]:
    """Return the stages in a bundle, and its queue size.

    OpenVINO's whole model is put together again from the stages; nothing of a PyTorch bundle is executed. Properties of
    devices that are paths are not taken from a bundle, which is said in the log. Compiled models are kept in
    `cache_dir`, if it is given.

    Raises
    ------
    InvalidFileError
        No bundle, a manifest that contradicts itself or its files, or a file that is missing or not the one that was
        written; the message has both hashes.
    UnsupportedProblemError
        `cache_dir` for a bundle of PyTorch.
    """
    path = Path(folder) / MANIFEST
    manifest = read_manifest(folder)
    with blaming(path):
        devices = {each.name: _device(each, path, cache_dir) for each in manifest.devices}
    for entry in manifest.stages:
        for member in entry.members:
            if member not in devices:
                raise InvalidFileError(f"{path}: stage {entry.name!r} is on device {member!r}, which it does not list")
            if entry.members.count(member) > 1:
                raise InvalidFileError(f"{path}: stage {entry.name!r} names member {member!r} twice")
    model: Any
    engine = ModelSource.engine
    if manifest.framework == "torch":
        if cache_dir is not None:
            raise UnsupportedProblemError(f"{folder}: cache_dir is OpenVINO's; this is a bundle of PyTorch")
        model, stages, num_bytes = read_torch_stages(path, manifest, devices)
        engine = TorchSource.engine
        _check(path, manifest, stages, num_bytes)
    else:
        stages = tuple(_read_stage(path, index, entry, devices) for index, entry in enumerate(manifest.stages))
        num_bytes = bytes_of_outputs(stages)
        _check(path, manifest, stages, num_bytes)
        model = _join(path, manifest, stages)
    plan = StagePlan(
        name=manifest.model,
        model=model,
        stages=stages,
        input_keys=tuple(each.key for each in manifest.inputs),
        output_keys=tuple(each.key for each in manifest.outputs),
        input_names=tuple(each.name for each in manifest.inputs),
        output_names=tuple(each.name for each in manifest.outputs),
        cuts=cut_tensors(stages, num_bytes),
        engine=engine,
    )
    return plan, manifest.queue_size


def _device(entry: DeviceModel, path: Path, cache_dir: str | Path | None) -> Device:
    properties = portable_properties(entry.properties)
    for name in entry.properties.keys() - properties.keys():
        _LOGGER.warning("%s: property %s of device %r is a path and is ignored", path, name, entry.name)
    if cache_dir is not None:
        properties["CACHE_DIR"] = str(cache_dir)
    return Device(**entry.model_dump(exclude={"properties"}), properties=properties)


def _read_stage(path: Path, index: int, entry: StageModel, devices: Mapping[str, Device]) -> PlacedStage:
    file = entry.file(path, f"{index}.xml")
    check_ir(file)
    try:
        model = shared_core().read_model(file)
    except Exception as error:  # OpenVINO raises RuntimeError and types of its own
        raise InvalidFileError(f"{file}: OpenVINO cannot read it: {short_reason(error)}") from error
    return PlacedStage(
        entry.name,
        tuple(devices[member] for member in entry.members),
        model,
        _keys(path, entry.name, entry.inputs, model.get_parameters()),
        _keys(path, entry.name, entry.outputs, model.get_results()),
        tuple(entry.op_names),
    )


def _keys(path: Path, stage: str, ports: Sequence[PortModel], nodes: Sequence[Any]) -> tuple[TensorKey, ...]:
    """Return the key of every input or output in the order of the file."""
    key_of_node = {port.node: port.key for port in ports}
    names = [node.get_friendly_name() for node in nodes]
    if sorted(key_of_node) != sorted(names):
        raise InvalidFileError(f"{path}: stage {stage!r} lists {sorted(key_of_node)}; its model has {sorted(names)}")
    return tuple(key_of_node[name] for name in names)


def _check(
    path: Path, manifest: Manifest, stages: Sequence[PlacedStage], num_bytes: Mapping[TensorKey, int | None]
) -> None:
    """Raise unless everything that is read was written before, by one stage only, and no device is in two teams."""
    known = {each.key for each in manifest.inputs}
    if len(known) != len(manifest.inputs):
        raise InvalidFileError(f"{path}: two inputs are the same tensor")
    names: set[str] = set()
    team_of: dict[str, str] = {}
    for stage in stages:
        for key in stage.inputs:
            if key not in known:
                raise InvalidFileError(f"{path}: stage {stage.name!r} needs {key}, which nothing before it gives")
        twice = known.intersection(stage.outputs)
        if twice or stage.name in names:
            what = f"gives {min(twice)} again" if twice else "stands there twice"
            raise InvalidFileError(f"{path}: stage {stage.name!r} {what}")
        known |= set(stage.outputs)
        names.add(stage.name)
        is_torch = isinstance(stage.model, TorchPart)
        has_state = stage.model.source.lowered.states if is_torch else stage.model.get_variables()
        if has_state and len(stage.members) > 1:
            raise InvalidFileError(f"{path}: stage {stage.name!r} keeps state, which no team can")
        for device in stage.members:
            team = team_of.setdefault(device.name, stage.team_name)
            if team != stage.team_name:
                raise InvalidFileError(
                    f"{path}: device {device.name!r} is in two teams, {team!r} and {stage.team_name!r}"
                )
    for output in manifest.outputs:
        if output.key not in known:
            raise InvalidFileError(f"{path}: output {output.name!r} is {output.key}, which no stage gives")
    if manifest.tensors != [TensorModel.of(cut) for cut in cut_tensors(stages, num_bytes)]:
        raise InvalidFileError(f"{path}: tensors are not the ones between its stages")


def _join(path: Path, manifest: Manifest, stages: Sequence[PlacedStage]) -> openvino.Model:
    """Return the whole model: every stage's Parameters replaced by what other stages compute."""
    from openvino import Model, PartialShape, Type
    from openvino import opset13 as opset

    parameters, sinks, value = [], [], {}
    try:
        for entry in manifest.inputs:
            element = getattr(Type, entry.type, None)
            if not isinstance(element, Type):
                raise ValueError(f"input {entry.name!r} has type {entry.type!r}, which is none")
            parameter = opset.parameter(PartialShape(entry.shape), element, name=entry.name)
            parameter.output(0).set_names(set(entry.tensor_names))
            parameters.append(parameter)
            value[entry.key] = parameter.output(0)
        for stage in stages:
            part = stage.model.clone()
            for parameter, key in zip(part.get_parameters(), stage.inputs, strict=True):
                for target in parameter.output(0).get_target_inputs():
                    target.replace_source_output(value[key])
            sinks += part.get_sinks()
            for result, key in zip(part.get_results(), stage.outputs, strict=True):
                value[key] = result.input(0).get_source_output()
        results = [opset.result(value[each.key]) for each in manifest.outputs]
        joined = Model(results, sinks, parameters, manifest.model)
        joined.validate_nodes_and_infer_types()
        # a clone, so that no output keeps the Results of the stages as consumers
        return joined.clone()
    except Exception as error:  # OpenVINO raises what it likes for a shape that is none or a type that does not fit
        raise InvalidFileError(f"{path}: inputs and stages do not fit together: {short_reason(error)}") from error
