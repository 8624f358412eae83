"""Files that load a model for OpenVINO's HETERO, for programs without placekit.

``placekit export --hetero`` writes the device of every op beside the model, with a script that needs OpenVINO only::

    model.xml  model.bin     the model; only written where a plain reading of the user's file has other op names
    placement.json           {"conv1": "GPU.0", "relu1": "CPU", ...}
    placement.py             load(core) returns the compiled model; run it to see the devices that are used
"""

from __future__ import annotations

import runpy
from collections.abc import Callable
from importlib.resources import files as package_files
from pathlib import Path

from placekit.cost_models.openvino.devices import require_device, shared_core
from placekit.cost_models.openvino.inputs import random_inputs
from placekit.cost_models.openvino.machine import format_cores, usable_cores
from placekit.exports.hetero_script import fold_constants, set_affinities
from placekit.exports.kept import require_kept
from placekit.io.atomic import write_json, write_text
from placekit.io.folders import written_together
from placekit.io.models.model import ModelSource
from placekit.io.models.openvino_graph import short_reason
from placekit.model.errors import DeviceUnavailableError, ExecutionError, PlacekitError, UnsupportedProblemError
from placekit.model.placement import Placement
from placekit.model.platform import Platform
from placekit.runtime.stages.openvino_tensors import run_once, save_model
from placekit.runtime.stages.plans import plan_stages
from placekit.runtime.stages.stage_plan import StagePlan
from placekit.runtime.tensor_checks import require_alike


def hetero_devices(plan: StagePlan) -> dict[str, str]:
    """Return the OpenVINO device string of every device that runs a stage, by its name.

    HETERO knows devices by OpenVINO's names only: a core group, which is part of ``CPU``, and two devices of one name
    are refused. So are teams, because HETERO runs one sample at a time.
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


def write_sidecar(
    source: ModelSource,
    placement: Placement,
    platform: Platform,
    path: str | Path,
    *,
    check: Callable[[Path, Path], object] | None = None,
) -> tuple[Path, ...]:
    """Write the affinities of a placement as JSON, and the script that loads the model with them.

    Where OpenVINO would not find the op names in the user's file (ONNX, where it makes up some, or shapes that were
    given to placekit), the model is written as IR next to the JSON file, too. `check` is called with the new script and
    its model before the files take their places; what it raises leaves everything as it was. The files that were
    written are returned.
    """
    path = Path(path)
    if path.suffix != ".json":
        raise PlacekitError(f"{path}: HETERO's devices go to a JSON file; pass `-o {path}.json`")
    plan = plan_stages(source, placement, platform)
    targets = hetero_devices(plan)
    if not targets:
        raise UnsupportedProblemError(f"model {source.name!r} computes nothing; HETERO has nothing to place")
    folded = plan.model.clone()
    fold_constants(folded)
    of_stage = {op: targets[stage.device.name] for stage in plan.stages for op in stage.op_names}
    graph = source.graph
    target_of_node = set_affinities(folded, of_stage)
    device_of_target = {target: name for name, target in targets.items()}
    computing = [op.get_friendly_name() for op in folded.get_ops() if op.get_type_name() != "Constant"]
    places = {name: device_of_target[target_of_node[name]] for name in computing if name in graph.op_index}
    require_kept("HETERO", graph, placement, ((graph.op_index[name], place) for name, place in places.items()))
    # Parameters and Results by their neighbours; what is folded away has a device in the file nevertheless
    target_of_op = dict.fromkeys(graph.op_names, next(iter(targets.values())))
    target_of_op |= of_stage | target_of_node
    properties = {targets[each.name]: dict(each.properties) for each in plan.devices if each.properties}
    # the script gives a Result the device of its producer, whatever the file calls it
    ops = [each for each in zip(graph.op_names, graph.op_types, strict=True) if each[1] != "Result"]
    # shapes that were given to placekit are in no file
    plain = () if source.shapes else shared_core().read_model(source.path).get_ops()
    brings_model = not {(op.get_friendly_name(), op.get_type_name()) for op in plain}.issuperset(ops)
    model_path = (path.with_suffix(".xml") if brings_model else source.path).resolve()
    if brings_model and model_path == source.path.resolve():
        raise PlacekitError(f"{path}: its model would replace the one that was read; choose another name")
    folder = path.parent.resolve()
    # relative where it is inside, so that the folder can be moved
    written = model_path.relative_to(folder) if model_path.is_relative_to(folder) else model_path
    with written_together(path) as folder:
        new = folder / path.name
        if brings_model:
            save_model(plan.model, new.with_suffix(".xml"), f"{new.stem}.xml")
        text = package_files("placekit.exports").joinpath("hetero_script.py").read_text(encoding="utf-8")
        text = text.replace('MODEL = ""', f"MODEL = {str(written)!r}")
        text = text.replace("Any] = {}", f"Any] = {properties!r}")
        write_text(new.with_suffix(".py"), text)
        write_json(new, {op: target_of_op[op] for op, _ in ops})
        if check is not None:
            check(new.with_suffix(".py"), new.with_suffix(".xml") if brings_model else source.path)
    suffixes = (".json", ".py", ".xml", ".bin") if brings_model else (".json", ".py")
    return tuple(path.with_suffix(suffix) for suffix in suffixes)


def check_sidecar(plan: StagePlan, script: Path, model: Path) -> str:
    """Load a model by a script of `write_sidecar`, run one seeded sample in f32, and return what was checked.

    The script is beside its JSON file; `plan` has the whole model.
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
        require_alike(f"output {name!r} of HETERO:{','.join(targets)}", one, other)
    return f"script read back, one sample run on HETERO:{','.join(targets)}: outputs as the whole model's"
