"""A placement as a small file beside the model, ``{op: OpenVINO device}``, with a script that loads both for HETERO.

The script needs OpenVINO and nothing else. It is written next to the JSON file::

    model.xml  model.bin     the model; only written where a plain reading of the user's file has other op names
    placement.json           {"conv1": "GPU.0", "relu1": "CPU", ...}
    placement.py             load(core) returns the compiled model; run it to see the devices that are used
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from placekit.cost_models.openvino.affinity import fold_constants, hetero_devices, set_affinities
from placekit.cost_models.openvino.devices import shared_core
from placekit.cost_models.openvino.stages import plan_stages
from placekit.errors import PlacekitError, UnsupportedProblemError
from placekit.io.atomic import write_json, write_text
from placekit.io.model import ModelSource
from placekit.placement import Placement
from placekit.platform import Platform

if TYPE_CHECKING:
    import openvino

__all__ = ["write_sidecar"]

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


def write_sidecar(source: ModelSource, placement: Placement, platform: Platform, path: str | Path) -> tuple[Path, ...]:
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
    model_path, written = source.path, []
    if source.shapes or not _names(shared_core().read_model(source.path)).issuperset(source.graph.op_names):
        from openvino import save_model

        model_path = path.with_suffix(".xml")
        if model_path.resolve() == source.path.resolve():
            raise PlacekitError(f"{path}: its model would replace the one that was read; choose another name")
        try:
            save_model(plan.model, model_path, compress_to_fp16=False)
        except RuntimeError as error:
            raise PlacekitError(f"cannot write {model_path}: {error}") from error
        written = [model_path, model_path.with_suffix(".bin")]
    folded = plan.model.clone()
    fold_constants(folded)
    of_stage = {op: targets[stage.device.name] for stage in plan.stages for op in stage.op_names}
    # Parameters and Results by their neighbours; what is folded away has a device in the file nevertheless
    target_of_op = dict.fromkeys(source.graph.op_names, next(iter(targets.values())))
    target_of_op |= of_stage | set_affinities(folded, of_stage)
    write_json(path, {op: target_of_op[op] for op in source.graph.op_names})
    properties = {targets[each.name]: dict(each.properties) for each in plan.devices if each.properties}
    model_name = _relative(model_path, path.parent)
    text = _LOADER.format(model=model_name, sidecar=path.name, properties=repr(properties))
    loader = path.with_suffix(".py")
    write_text(loader, text)
    return (path, loader, *written)


def _names(model: openvino.Model) -> set[str]:
    return {op.get_friendly_name() for op in model.get_ops()}


def _relative(model: Path, folder: Path) -> str:
    """Return the model's name from `folder`: relative where it is inside, so that the folder can be moved."""
    model, folder = model.resolve(), folder.resolve()
    return str(model.relative_to(folder)) if model.is_relative_to(folder) else str(model)
