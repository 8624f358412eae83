"""A placement left to OpenVINO's HETERO plugin: run here, or written as a script that compiles the model for it.

Every node of the model has an OpenVINO device as its affinity, and HETERO cuts the model by itself. ``placekit export
--hetero`` writes the affinities, ``{op: OpenVINO device}``, beside the model, with a script that needs OpenVINO only::

    model.xml  model.bin     the model; only written where a plain reading of the user's file has other op names
    placement.json           {"conv1": "GPU.0", "relu1": "CPU", ...}
    placement.py             load(core) returns the compiled model; run it to see the devices that are used
"""

from __future__ import annotations

import logging
import runpy
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from placekit.cost_models.openvino.counters import compile_properties
from placekit.cost_models.openvino.devices import require_device, shared_core
from placekit.cost_models.openvino.inputs import random_inputs
from placekit.cost_models.openvino.machine import format_cores, usable_cores
from placekit.cost_models.openvino.split import TensorKey, split_model
from placekit.io.atomic import write_json, write_text
from placekit.io.model import ModelSource
from placekit.io.openvino_graph import short_reason
from placekit.model.errors import (
    DeviceUnavailableError,
    ExecutionError,
    OutputMismatchError,
    PlacekitError,
    UnsupportedProblemError,
)
from placekit.model.placement import Placement
from placekit.model.platform import Platform
from placekit.runtime.one_sample import run_once
from placekit.runtime.openvino_inputs import InputReader
from placekit.runtime.plans import plan_stages
from placekit.runtime.stages import Inputs, Outputs, PlacedStage, StagePlan
from placekit.runtime.tensor_checks import MOST_ERROR, relative_errors

if TYPE_CHECKING:
    import openvino

__all__ = ["HeteroExecutor", "check_sidecar", "explain_turns", "hetero_devices", "set_affinities", "write_sidecar"]

_LOGGER = logging.getLogger(__name__)

_LOADER = '''"""Compile {model!r} for HETERO, every op on the device that {sidecar!r} names. Written by placekit."""

import json
from pathlib import Path

import openvino as ov
from openvino.passes import ConstantFolding, Manager

HERE = Path(__file__).resolve().parent
PROPERTIES = {properties}


def load(core, model={model!r}):
    """Return the compiled model; constants and inputs go where their consumer is."""
    device = json.loads((HERE / {sidecar!r}).read_text(encoding="utf-8"))
    targets = list(dict.fromkeys(device.values()))
    model = core.read_model(HERE / model)
    folding = Manager()
    folding.register_pass(ConstantFolding())  # shapes, which HETERO cannot pass from one device to another
    folding.run_passes(model)
    for op in reversed(model.get_ordered_ops()):
        name = op.get_friendly_name()
        readers = [each.get_node().get_friendly_name() for port in op.outputs() for each in port.get_target_inputs()]
        if readers and (op.get_type_name() in ("Constant", "Parameter") or name not in device):
            device[name] = device[min(readers)]
        op.get_rt_info()["affinity"] = device[name]
    return core.compile_model(model, "HETERO:" + ",".join(targets), {{"DEVICE_PROPERTIES": PROPERTIES}})


if __name__ == "__main__":
    used = load(ov.Core()).get_property("EXECUTION_DEVICES")
    print("compiled for", *used)
'''


def hetero_devices(plan: StagePlan) -> dict[str, str]:
    """Return the OpenVINO device string of every device that runs a stage, by its name.

    Raises
    ------
    UnsupportedProblemError
        HETERO knows devices by OpenVINO's names only: a core group, which is part of ``CPU``, or two devices of one
        name cannot be told apart by it. And it runs one sample at a time, to which a team brings nothing.
    DeviceUnavailableError
        A device that names no OpenVINO device.
    """
    plan.require_no_teams("HETERO runs one sample at a time")
    remedy = "HETERO tells devices apart by OpenVINO's names; run the stages one after another or as a pipeline instead"
    whole_cpu = {core.cpu for core in usable_cores()}
    name_of_target: dict[str, str] = {}
    for device in plan.devices:
        if device.openvino is None:
            raise DeviceUnavailableError(f"device {device.name!r} names no OpenVINO device, so HETERO cannot use it")
        if device.cores and set(device.cores) != whole_cpu:
            raise UnsupportedProblemError(
                f"device {device.name!r} is a group of cores ({format_cores(device.cores)}) of "
                f"{device.openvino!r}, which HETERO cannot use; {remedy}"
            )
        other = name_of_target.setdefault(device.openvino, device.name)
        if other != device.name:
            raise UnsupportedProblemError(
                f"devices {other!r} and {device.name!r} are both {device.openvino!r} for HETERO; {remedy}"
            )
    return {name: target for target, name in name_of_target.items()}


def fold_constants(model: openvino.Model) -> None:
    """Compute in advance what depends on no input, shapes above all. In place.

    HETERO cuts a model where the device changes. Behind a cut the shape that an op is given is data, so that its
    output has no known shape, and HETERO cannot connect it with the next submodel: inference fails.
    """
    from openvino.passes import ConstantFolding, Manager

    manager = Manager()
    manager.register_pass(ConstantFolding())
    manager.run_passes(model)


def set_affinities(model: openvino.Model, target_of_op: Mapping[str, str]) -> dict[str, str]:
    """Give every node of `model` its affinity. In place.

    Constants and Parameters go where their (alphabetically first) consumer is, Results where their producer is, so
    that no submodel consists of them alone. HETERO itself copies a constant that several of its submodels read.

    Parameters
    ----------
    model
        The model.
    target_of_op
        OpenVINO device string of every op that computes, by friendly name.

    Returns
    -------
    dict[str, str]
        OpenVINO device string of every node.
    """
    order = model.get_ordered_ops()
    target: dict[str, str] = {}
    for node in order:
        name = node.get_friendly_name()
        if name in target_of_op and node.get_type_name() not in {"Parameter", "Constant", "Result"}:
            target[name] = target_of_op[name]
    # of an input that nobody reads
    anywhere = next(iter(target.values()), next(iter(target_of_op.values())))
    for node in reversed(order):
        name = node.get_friendly_name()
        if name not in target and node.get_type_name() != "Result":
            readers = sorted(_reader_names(node) & target.keys())
            target[name] = target[readers[0]] if readers else anywhere
    for result in model.get_results():
        target[result.get_friendly_name()] = target[result.input_value(0).get_node().get_friendly_name()]
    for node in model.get_ops():
        node.get_rt_info()["affinity"] = target[node.get_friendly_name()]
    return target


def _reader_names(node: Any) -> set[str]:
    return {each.get_node().get_friendly_name() for port in node.outputs() for each in port.get_target_inputs()}


class HeteroExecutor:
    """Runs a placement as one compiled model on ``HETERO:...``, with affinities by friendly name.

    Before anything is compiled it is checked that HETERO can tell the devices apart, that every device supports the
    ops placed on it, and that the shapes on both sides of every cut agree. Devices that wait for each other in a
    circle (`explain_turns`) run as several submodels each; they are logged as a warning.

    Parameters
    ----------
    plan
        The stages. HETERO cuts anew, in places of its own where a device has several turns.
    core
        OpenVINO core; the shared one if None.

    Raises
    ------
    UnsupportedProblemError
        A core group, two devices of one OpenVINO name, an op that its device does not support, a shape that is
        computed on another device, or a model that computes nothing.
    DeviceUnavailableError
        A device that is not there.
    ExecutionError
        HETERO refuses the model, or cannot connect its parts.
    """

    def __init__(self, plan: StagePlan, core: openvino.Core | None = None) -> None:
        core = core or shared_core()
        self.plan = plan
        targets = hetero_devices(plan)
        if not targets:
            raise UnsupportedProblemError(f"model {plan.name!r} computes nothing; HETERO has nothing to place")
        for target in targets.values():
            require_device(target, core)
        model = plan.model.clone()
        fold_constants(model)
        names = {op.get_friendly_name() for op in model.get_ops() if op.get_type_name() != "Constant"}
        for stage in plan.stages:
            _check_supported(stage, names, targets[stage.device.name], core)
        _check_shapes(plan, model)
        turns = explain_turns(plan)
        if turns:
            _LOGGER.warning("%s", turns)
        set_affinities(model, {op: targets[stage.device.name] for stage in plan.stages for op in stage.op_names})
        self.target = f"HETERO:{','.join(targets.values())}"
        properties = {
            targets[each.name]: compile_properties(targets[each.name], each.properties) for each in plan.devices
        }
        try:
            self._compiled = core.compile_model(model, self.target, {"DEVICE_PROPERTIES": properties})
        except RuntimeError as error:
            raise ExecutionError(
                f"model {plan.name!r} cannot be compiled for {self.target}: {error} {turns}"
            ) from error
        try:
            self._request = self._compiled.create_infer_request()  # connects the submodels
        except RuntimeError as error:
            raise ExecutionError(
                f"HETERO cannot connect the {self.num_submodels} parts of model {plan.name!r}, probably because shapes "
                f"are computed from data that comes from another part; give the inputs fixed shapes, or run the stages "
                f"one after another: {error}"
            ) from error
        self._reader = InputReader(plan.model, plan.name)
        self._lock = threading.Lock()
        self._is_closed = False

    @property
    def num_submodels(self) -> int:
        """Number of parts into which HETERO has cut the model."""
        return int(self._compiled.get_property("HETERO_NUMBER_OF_SUBMODELS"))

    @property
    def execution_devices(self) -> tuple[str, ...]:
        """OpenVINO's names of the devices that really run a part."""
        return tuple(self._compiled.get_property("EXECUTION_DEVICES"))

    def __call__(self, inputs: Inputs) -> Outputs:
        """Run one sample, and return a copy of every output by name.

        Parameters
        ----------
        inputs
            One array per input, by name or in the model's order, of the input's type and shape.

        Raises
        ------
        InvalidProblemError
            A missing or unknown input, or one of another type or shape.
        ExecutionError
            The inference fails, or the executor is closed.
        """
        with self._lock:
            if self._is_closed:
                raise ExecutionError(f"the executor of {self.plan.name!r} is closed")
            try:
                for index, tensor in enumerate(self._reader.read(inputs)):
                    self._request.set_input_tensor(index, tensor)
                self._request.infer(share_outputs=True)
            except RuntimeError as error:
                raise ExecutionError(f"model {self.plan.name!r} failed on {self.target}: {error}") from error
            tensors = [self._request.get_output_tensor(index) for index in range(len(self.plan.output_names))]
            return {name: np.array(each.data) for name, each in zip(self.plan.output_names, tensors, strict=True)}

    def close(self) -> None:
        """Give the model back. Closing again does nothing."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                del self._request, self._compiled

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def explain_turns(plan: StagePlan) -> str:
    """Say why a device cannot do its work in one go; empty if all can.

    Devices that wait for each other in a circle are cut into several submodels by HETERO, each with a fixed cost.
    Versions of OpenVINO before the fix of https://github.com/openvinotoolkit/openvino/issues/35750 fail on some.
    """
    first_of: dict[str, int] = {}
    writer = {key: stage for stage in plan.stages for key in stage.outputs}
    for index, stage in enumerate(plan.stages):
        first = first_of.setdefault(stage.device.name, index)
        if first == index:
            continue
        foreign = (key for key in stage.inputs if key in writer and writer[key].device.name != stage.device.name)
        key = next(foreign, None)
        if key is None:
            continue
        repeated = len(plan.stages) - len(plan.devices)
        return (
            f"devices wait for each other in a circle: stage {stage.name!r} (op {stage.op_names[0]!r}) needs "
            f"{key[0]!r} of stage {writer[key].name!r}, but {stage.device.name!r} has already worked in stage "
            f"{plan.stages[first].name!r}; {len(plan.devices)} devices take {repeated} more turns than one each"
        )
    return ""


def _check_supported(stage: PlacedStage, names: set[str], target: str, core: openvino.Core) -> None:
    """Refuse an op (one of `names`: the others are folded away) that the device says it does not support."""
    try:
        accepted = core.query_model(stage.model, target)
    except RuntimeError:  # a device that cannot be asked
        return
    refused = [op for op in stage.op_names if op in names and op not in accepted]
    if refused:
        more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
        raise UnsupportedProblemError(
            f"op {refused[0]!r}{more} is placed on {stage.device.name!r}, but {target} does not support it"
        )


def _check_shapes(plan: StagePlan, model: openvino.Model) -> None:
    """Refuse a cut tensor of which the stage behind knows a dimension that the stage before does not.

    HETERO gives each submodel's input the shape that the whole model has there, and connects it before the first
    inference, when a tensor of unknown shape is empty.

    Parameters
    ----------
    plan
        The stages.
    model
        The whole model with constants folded.
    """
    stage_of_op = {op: index for index, stage in enumerate(plan.stages) for op in stage.op_names}
    kinds = {op.get_friendly_name(): op.get_type_name() for op in model.get_ops()}
    left = {op: index for op, index in stage_of_op.items() if kinds.get(op, "Constant") != "Constant"}
    if not left:
        return
    shapes: dict[TensorKey, Any] = {}
    for part in split_model(model, left):
        part.model.validate_nodes_and_infer_types()  # without what was known in the whole model
        for key, port in zip(part.inputs, part.model.inputs, strict=True):
            known = shapes.get(key)
            if known is None:
                continue
            wanted = port.get_partial_shape()
            if known.rank.is_dynamic or any(
                before.is_dynamic and behind.is_static for before, behind in zip(known, wanted, strict=True)
            ):
                raise UnsupportedProblemError(
                    f"op {key[0]!r} in stage {plan.stages[stage_of_op[key[0]]].name!r} gets its shape from another "
                    f"device: its output is {known} there and {wanted} in the whole model, which HETERO cannot "
                    "connect; place what computes the shape on the same device, or run the stages one after another"
                )
        shapes |= {key: port.get_partial_shape() for key, port in zip(part.outputs, part.model.outputs, strict=True)}


def write_sidecar(
    source: ModelSource,
    placement: Placement,
    platform: Platform,
    path: str | Path,
    *,
    check: Callable[[Path, Path], object] | None = None,
) -> tuple[Path, ...]:
    """Write the affinities of a placement as JSON, and the script that loads the model with them.

    Where OpenVINO would not find the op names in the user's file (ONNX, where it makes them up, or shapes that were
    given to placekit), the model is written as IR next to the JSON file, too.

    Parameters
    ----------
    source
        The model.
    placement
        Device of every op.
    platform
        The devices; each that is used must be one of OpenVINO's own, no core group.
    path
        The ``.json`` file. The script has the same name with the suffix ``.py``, the model with ``.xml``.
    check
        Called with the new script and its model before the files take their places; what it raises leaves everything
        as it was.

    Returns
    -------
    tuple[Path, ...]
        The files that were written.

    Raises
    ------
    UnsupportedProblemError
        A placement that HETERO cannot run, see `hetero_devices`; a model that computes nothing.
    PlacekitError
        Another suffix than ``.json``, or a file that cannot be written.
    """
    path = Path(path)
    if path.suffix != ".json":
        raise PlacekitError(f"{path}: a side-car is a .json file")
    plan = plan_stages(source, placement, platform)
    targets = hetero_devices(plan)
    if not targets:
        raise UnsupportedProblemError(f"model {source.name!r} computes nothing; HETERO has nothing to place")
    folded = plan.model.clone()
    fold_constants(folded)
    of_stage = {op: targets[stage.device.name] for stage in plan.stages for op in stage.op_names}
    # Parameters and Results by their neighbours; what is folded away has a device in the file nevertheless
    target_of_op = dict.fromkeys(source.graph.op_names, next(iter(targets.values())))
    target_of_op |= of_stage | set_affinities(folded, of_stage)
    properties = {targets[each.name]: dict(each.properties) for each in plan.devices if each.properties}
    brings_model = bool(source.shapes) or not _names(shared_core().read_model(source.path)).issuperset(
        source.graph.op_names
    )
    model_path = path.with_suffix(".xml") if brings_model else source.path
    if brings_model and model_path.resolve() == source.path.resolve():
        raise PlacekitError(f"{path}: its model would replace the one that was read; choose another name")
    try:
        # beside the target, because a rename does not cross file systems
        with tempfile.TemporaryDirectory(prefix=f".{path.name[:64]}.", suffix=".tmp", dir=path.parent) as work:
            new = Path(work) / path.name
            if brings_model:
                _save_model(plan.model, new.with_suffix(".xml"))
            text = _LOADER.format(
                model=_relative(model_path, path.parent), sidecar=path.name, properties=repr(properties)
            )
            write_text(new.with_suffix(".py"), text)
            write_json(new, {op: target_of_op[op] for op in source.graph.op_names})
            if check is not None:
                check(new.with_suffix(".py"), new.with_suffix(".xml") if brings_model else source.path)
            files = [new, new.with_suffix(".py")]
            files += [new.with_suffix(".xml"), new.with_suffix(".bin")] if brings_model else []
            for file in reversed(files):
                file.replace(path.with_name(file.name))
    except OSError as error:
        raise PlacekitError(f"cannot write {path}: {error.strerror or error}") from error
    return tuple(path.with_name(file.name) for file in files)


def _save_model(model: openvino.Model, path: Path) -> None:
    from openvino import save_model

    try:
        save_model(model, path, compress_to_fp16=False)
    except RuntimeError as error:  # a full disk
        raise OSError(f"{path.name}: {error}") from error


def check_sidecar(plan: StagePlan, script: Path, model: Path) -> str:
    """Load a model by a script of `write_sidecar`, run one seeded sample in f32, and return what was checked.

    Parameters
    ----------
    plan
        The stages, with the whole model.
    script, model
        The script, beside its JSON file, and the model.

    Raises
    ------
    ExecutionError
        HETERO does not take the model or the sample.
    OutputMismatchError
        An output that is not the whole model's.
    """
    core = shared_core()
    load = runpy.run_path(str(script), run_name="check")["load"]
    targets = tuple(hetero_devices(plan).values())
    try:
        for target in targets:
            require_device(target, core)
    except DeviceUnavailableError as error:
        return f"script read back; not run: {error}"
    properties = load.__globals__["PROPERTIES"]
    for target in targets:
        properties[target] = properties.get(target, {}) | {"INFERENCE_PRECISION_HINT": "f32"}
    try:
        inputs = random_inputs(plan.model)
        expected = run_once(plan.model, inputs)
    except (UnsupportedProblemError, RuntimeError) as error:
        return f"script read back; not run: {short_reason(error)}"
    try:
        found = list(load(core, model=str(model.resolve()))(inputs).values())
    except RuntimeError as error:
        raise ExecutionError(f"HETERO:{','.join(targets)} does not run the model: {short_reason(error)}") from error
    for name, one, other in zip(plan.output_names, expected, found, strict=True):
        error_of_output = relative_errors(one, other)[1]
        if error_of_output > MOST_ERROR:
            raise OutputMismatchError(
                f"output {name!r} of HETERO:{','.join(targets)} differs from the whole model's by "
                f"{error_of_output:.2g} of its spread; {MOST_ERROR:g} is allowed"
            )
    return f"script read back, one sample run on HETERO:{','.join(targets)}: outputs as the whole model's"


def _names(model: openvino.Model) -> set[str]:
    return {op.get_friendly_name() for op in model.get_ops()}


def _relative(model: Path, folder: Path) -> str:
    """Return the model's name from `folder`: relative where it is inside, so that the folder can be moved."""
    model, folder = model.resolve(), folder.resolve()
    return str(model.relative_to(folder)) if model.is_relative_to(folder) else str(model)
