"""The side-car for HETERO computes what the model computes; what HETERO cannot do is said before.

The CPU plugin is registered under more names, which HETERO takes for different devices.
"""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as opset
from pipelines import chain, chain_value

from placekit.cost_models.openvino.devices import core_groups, shared_core
from placekit.cost_models.openvino.inputs import random_inputs
from placekit.cost_models.openvino.machine import usable_cores
from placekit.exports.hetero_sidecar import check_sidecar, hetero_devices, write_sidecar
from placekit.io.models.model import ModelSource
from placekit.io.models.read_model import read_model
from placekit.model.errors import (
    DeviceUnavailableError,
    ExecutionError,
    PlacekitError,
    UnsupportedProblemError,
)
from placekit.model.placement import Placement
from placekit.model.platform import Device, Platform
from placekit.runtime.stages.openvino_tensors import run_once
from placekit.runtime.stages.plans import plan_stages
from placekit.runtime.tensor_checks import relative_errors

Saved = Callable[[ov.Model], ModelSource]
F32 = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "1"}
NAMES = ("CPUA", "CPUB", "CPUC")
PLATFORM = Platform(tuple(Device(name.lower(), "cpu", is_host=True, openvino=name, properties=F32) for name in NAMES))


@pytest.fixture(scope="module")
def core() -> ov.Core:
    """Return a core that knows the CPU under three more names."""
    core = shared_core()
    for name in NAMES:
        core.register_plugin("openvino_intel_cpu_plugin", name)
    return core


def placement_of(source: ModelSource, device_of: Mapping[str, int] | int) -> Placement:
    """Place ops by name, the others on the first device; or all at random from a seed."""
    names = source.graph.op_names
    if isinstance(device_of, int):
        chosen = np.random.default_rng(device_of).integers(0, len(NAMES), len(names))
    else:
        chosen = np.array([device_of.get(name, 0) for name in names])
    return Placement(names, PLATFORM.device_names, chosen)


def test_core_groups_are_refused(saved: Saved) -> None:
    """HETERO does not know them; nor two devices of one name."""
    source = saved(chain([2, 8]))
    groups = core_groups(1, cores=[usable_cores()[0].cpu])
    if len(usable_cores()) > 1:
        plan = plan_stages(
            source, Placement(source.graph.op_names, groups.device_names, np.zeros(6, dtype=int)), groups
        )
        with pytest.raises(UnsupportedProblemError, match=r"device 'CPU\[\d+\]' is a group of cores .* run the stages"):
            hetero_devices(plan)
    twins = Platform(tuple(Device(name, "cpu", openvino="CPU") for name in "AB"))
    plan = plan_stages(source, Placement(source.graph.op_names, twins.device_names, np.arange(6) % 2), twins)
    with pytest.raises(UnsupportedProblemError, match="devices 'B' and 'A' are both 'CPU' for HETERO"):
        hetero_devices(plan)


def named(source: ModelSource) -> list[str]:
    """Return the ops that a side-car names: a Result goes where its producer is."""
    graph = source.graph
    return [name for name, op_type in zip(graph.op_names, graph.op_types, strict=True) if op_type != "Result"]


def test_a_result_that_the_file_calls_otherwise_needs_no_model(
    saved: Saved, make_embedder: Callable[..., ov.Model], core: ov.Core, tmp_path: Path
) -> None:
    """Converters call the Result of ``y`` ``y/sink_port_0``; placekit calls it ``y``, and the user's file will do."""
    model = make_embedder()
    model.get_results()[0].set_friendly_name("y/sink_port_0")
    source = saved(model)
    assert "y" in source.graph.op_index
    cpu = Platform((Device("cpu", "cpu", openvino="CPU", properties=F32),))
    placement = Placement(source.graph.op_names, ("cpu",), np.zeros(source.graph.num_ops, dtype=int))
    files = write_sidecar(source, placement, cpu, tmp_path / "place.json")
    assert [each.name for each in files] == ["place.json", "place.py"]
    assert runpy.run_path(str(files[1]))["load"](core)


@pytest.mark.parametrize("seed", range(4))
def test_the_side_car_loads_without_placekit(
    saved: Saved, make_convnet: Callable[[], ov.Model], core: ov.Core, tmp_path: Path, seed: int
) -> None:
    """A random placement computes what the model computes, on exactly the devices that were asked for."""
    source = saved(make_convnet())
    placement = placement_of(source, seed)
    path = tmp_path / "sidecar.json"
    files = write_sidecar(source, placement, PLATFORM, path)
    assert files == (path, path.with_suffix(".py"))
    device_of_op = json.loads(path.read_text())
    assert list(device_of_op) == named(source)
    assert device_of_op["conv1"] == placement["conv1"].upper()
    script = files[1].read_text()
    assert "placekit" not in script.partition('"""\n')[2]
    compiled = runpy.run_path(str(files[1]))["load"](core)
    plan = plan_stages(source, placement, PLATFORM)
    assert compiled.get_property("HETERO_NUMBER_OF_SUBMODELS") >= len(plan.stages)
    assert sorted(compiled.get_property("EXECUTION_DEVICES")) == sorted(each.openvino or "" for each in plan.devices)
    inputs = random_inputs(plan.model, seed)
    for found, expected in zip(compiled(inputs).values(), run_once(plan.model, inputs), strict=True):
        assert relative_errors(expected, found)[0] <= 1e-5


def test_the_side_car_runs_as_a_script_from_a_folder_that_was_moved(
    saved: Saved, make_embedder: Callable[..., ov.Model], tmp_path: Path
) -> None:
    """A model in the same folder is found by its relative name."""
    source = saved(make_embedder())
    cpu = Platform((Device("cpu", "cpu", openvino="CPU", properties=F32),))
    placement = Placement(source.graph.op_names, ("cpu",), np.zeros(len(source.graph.op_names), dtype=int))
    folder = source.path.parent / "before"
    folder.mkdir()
    for suffix in (".xml", ".bin"):
        source.path.with_suffix(suffix).rename(folder / f"net{suffix}")
    write_sidecar(read_model(folder / "net.xml"), placement, cpu, folder / "place.json")
    moved = folder.rename(tmp_path / "after")
    done = subprocess.run([sys.executable, moved / "place.py"], capture_output=True, text=True, check=True)
    assert done.stdout == "compiled for CPU\n"


def test_the_side_car_of_shapes_that_were_given_brings_its_model(saved: Saved, core: ov.Core, tmp_path: Path) -> None:
    """The user's file has other shapes, so the model is written, too."""
    source = read_model(saved(chain([-1, 8])).path, {"x": (3, 8)})
    files = write_sidecar(source, placement_of(source, {"op1": 1}), PLATFORM, tmp_path / "fixed.json")
    assert [each.name for each in files] == ["fixed.json", "fixed.py", "fixed.xml", "fixed.bin"]
    compiled = runpy.run_path(str(files[1]))["load"](core)
    x = np.ones((3, 8), dtype=np.float32)
    np.testing.assert_array_equal(compiled([x])["y"], chain_value(x))
    assert compiled.inputs[0].get_shape() == ov.Shape([3, 8])


def test_a_device_with_nothing_but_shapes_is_refused(saved: Saved, core: ov.Core, tmp_path: Path) -> None:
    """Its ops are computed in advance, so that nothing would run there; beside other ops they are in the file."""
    x = opset.parameter([2, 6], ov.Type.f32, name="x")
    act = opset.relu(x, name="act")
    swapped = opset.gather(opset.shape_of(act, name="shape"), [1, 0], 0, name="swapped")
    model = ov.Model([opset.result(opset.reshape(act, swapped, special_zero=False))], [x], "turned")
    source = saved(model)
    with pytest.raises(
        UnsupportedProblemError, match=r"HETERO: device '.*' has 2 ops .* none in the export \(shape, swa"
    ):
        write_sidecar(source, placement_of(source, {"shape": 1, "swapped": 1}), PLATFORM, tmp_path / "turned.json")
    assert not list(tmp_path.glob("turned.json"))
    placement = placement_of(source, {name: 1 for name in named(source) if name != "act"})
    files = write_sidecar(source, placement, PLATFORM, tmp_path / "turned.json")
    assert list(json.loads(files[0].read_text())) == named(source)
    compiled = runpy.run_path(str(files[1]))["load"](core)
    array = np.arange(12, dtype=np.float32).reshape(2, 6)
    np.testing.assert_array_equal(compiled([array])[0], array.reshape(6, 2))


def test_a_side_car_that_cannot_be_written_says_why(saved: Saved, tmp_path: Path) -> None:
    """Another suffix, the model's own name, and core groups."""
    source = saved(chain([2, 8]))
    placement = placement_of(source, {})
    with pytest.raises(PlacekitError, match="go to a JSON file"):
        write_sidecar(source, placement, PLATFORM, tmp_path / "a.toml")
    given = read_model(source.path, {"x": (1, 8)})
    with pytest.raises(PlacekitError, match="its model would replace the one that was read"):
        write_sidecar(given, placement, PLATFORM, source.path.with_suffix(".json"))
    twins = Platform(tuple(Device(name, "cpu", openvino="CPU") for name in "AB"))
    shared = Placement(source.graph.op_names, twins.device_names, np.arange(6) % 2)
    with pytest.raises(UnsupportedProblemError, match="are both 'CPU' for HETERO"):
        write_sidecar(source, shared, twins, tmp_path / "a.json")


def test_a_device_without_a_name_of_openvino_is_refused(saved: Saved) -> None:
    """HETERO finds devices by these names."""
    source = saved(chain([2, 8]))
    nameless = Platform((Device("tpu", "cpu", is_host=True),))
    plan = plan_stages(source, Placement(source.graph.op_names, ("tpu",), np.zeros(6, dtype=int)), nameless)
    with pytest.raises(DeviceUnavailableError, match="device 'tpu' names no OpenVINO device"):
        hetero_devices(plan)


def test_a_script_whose_model_does_not_run_is_an_error(saved: Saved, tmp_path: Path) -> None:
    """The reason of OpenVINO stands in it, with the devices."""
    source = saved(chain([2, 8]))
    plan = plan_stages(source, placement_of(source, {}), PLATFORM)
    script = tmp_path / "broken.py"
    script.write_text("PROPERTIES = {}\ndef load(core, model):\n    raise RuntimeError('no kernel')\n")
    with pytest.raises(ExecutionError, match=f"HETERO:{NAMES[0]} does not run the model: no kernel"):
        check_sidecar(plan, script, source.path)


def test_a_model_that_computes_nothing_has_no_side_car(saved: Saved, tmp_path: Path) -> None:
    """An input that is the output leaves nothing to place."""
    x = opset.parameter([2], ov.Type.f32, name="x")
    source = saved(ov.Model([opset.result(x, name="out")], [x], "empty"))
    with pytest.raises(UnsupportedProblemError, match="model 'empty' computes nothing; HETERO has nothing to place"):
        write_sidecar(source, placement_of(source, {}), PLATFORM, tmp_path / "empty.json")
