"""Which OpenVINO device every node gets as its affinity, when a placement is left to the HETERO plugin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from placekit.cost_models.openvino.machine import format_cores, usable_cores
from placekit.model.errors import DeviceUnavailableError, UnsupportedProblemError
from placekit.runtime.stages import StagePlan

if TYPE_CHECKING:
    import openvino

__all__ = ["fold_constants", "hetero_devices", "set_affinities"]


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
