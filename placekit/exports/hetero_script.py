"""Compile a model for OpenVINO's HETERO, every op on the device that a JSON file names. Needs OpenVINO alone.

``placekit export --hetero`` writes this script beside the JSON file of the same name, ``{op: OpenVINO device}``.
``load(core)`` returns the compiled model; run the script to see the devices that are used.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import openvino

MODEL = ""
PROPERTIES: dict[str, Any] = {}


def load(core: openvino.Core, model: str = MODEL) -> openvino.CompiledModel:
    """Return the compiled model."""
    here = Path(__file__).resolve()
    device = json.loads(here.with_suffix(".json").read_text(encoding="utf-8"))
    loaded = core.read_model(here.parent / model)
    fold_constants(loaded)
    set_affinities(loaded, device)
    targets = ",".join(dict.fromkeys(device.values()))
    return core.compile_model(loaded, f"HETERO:{targets}", {"DEVICE_PROPERTIES": PROPERTIES})


def fold_constants(model: openvino.Model) -> None:
    """Compute in advance what depends on no input, shapes above all. In place.

    HETERO cuts a model where the device changes. Behind a cut the shape that an op is given is data, so that its
    output has no known shape, and HETERO cannot connect it with the next submodel: inference fails.
    """
    from openvino.passes import ConstantFolding, Manager

    manager = Manager()
    manager.register_pass(ConstantFolding())
    manager.run_passes(model)


def set_affinities(model: openvino.Model, device: Mapping[str, str]) -> dict[str, str]:
    """Give every node of a model its affinity, in place, and return the device of every node.

    `device` has the OpenVINO device of every op that computes, by friendly name. Constants and inputs go where their
    (alphabetically first) reader is, and outputs where their producer is, so that no submodel consists of them alone.
    HETERO itself copies a constant that several of its submodels read.
    """
    nodes = [(node.get_friendly_name(), node) for node in model.get_ordered_ops() if node.get_type_name() != "Result"]
    ends = ("Parameter", "Constant")
    found = {name: device[name] for name, node in nodes if name in device and node.get_type_name() not in ends}
    anywhere = next(iter(found.values()), next(iter(device.values())))  # of an input that nobody reads
    for name, node in reversed(nodes):
        readers = {each.get_node().get_friendly_name() for port in node.outputs() for each in port.get_target_inputs()}
        known = readers & found.keys()
        found.setdefault(name, found[min(known)] if known else anywhere)
    for result in model.get_results():
        found[result.get_friendly_name()] = found[result.input_value(0).get_node().get_friendly_name()]
    for node in model.get_ops():
        node.get_rt_info()["affinity"] = found[node.get_friendly_name()]
    return found


if __name__ == "__main__":
    from openvino import Core

    sys.stdout.write(" ".join(["compiled for", *load(Core()).get_property("EXECUTION_DEVICES")]) + "\n")
