"""Bundles: what is read is what was written, all or nothing, and no broken file gets through."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
from fuzz.mutations import mangle, mutate
from openvino import opset13 as opset
from pipelines import alternating_plan, chain, chain_value, placed_plan, random_plan, slow_model, whole

from placekit import runtime
from placekit.cost_models.openvino.inputs import random_inputs
from placekit.io.models.model import ModelSource
from placekit.model.errors import (
    DeviceUnavailableError,
    InvalidFileError,
    InvalidProblemError,
    PlacekitError,
)
from placekit.model.platform import Device, Platform
from placekit.runtime.bundles.bundle import MANIFEST, read_bundle, write_bundle
from placekit.runtime.stages.plans import plan_stages
from placekit.runtime.stages.stage_plan import StagePlan
from placekit.runtime.timing.contenders import on_one_device


@pytest.fixture
def convnet_plan(saved: Callable[[ov.Model], ModelSource], make_convnet: Callable[[], ov.Model]) -> StagePlan:
    """Return a random placement of a model with two outputs and a branch on three devices."""
    return random_plan(saved(make_convnet()), seed=5, devices=3)


@pytest.fixture
def bundle(saved: Callable[[ov.Model], ModelSource], tmp_path: Path) -> Path:
    """Return a bundle of four stages."""
    write_bundle(alternating_plan(saved(chain([2, 8]))), tmp_path / "bundle", queue_size=3)
    return tmp_path / "bundle"


def change(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest of a bundle."""
    manifest = json.loads((folder / MANIFEST).read_text())
    edit(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest))


def test_a_plan_reads_back(convnet_plan: StagePlan, tmp_path: Path) -> None:
    """Names, keys, devices, ops and cut tensors are the same; the model put together computes the same."""
    write_bundle(convnet_plan, tmp_path / "b", queue_size=3)
    plan, queue_size = read_bundle(tmp_path / "b")
    assert queue_size == 3
    for name in ("name", "input_keys", "output_keys", "input_names", "output_names", "cuts", "devices"):
        assert getattr(plan, name) == getattr(convnet_plan, name), name
    for read, written in zip(plan.stages, convnet_plan.stages, strict=True):
        assert (read.name, read.members, read.op_names) == (written.name, written.members, written.op_names)
        assert set(read.inputs) == set(written.inputs)
        assert set(read.outputs) == set(written.outputs)
    assert [port.get_names() for port in plan.model.inputs] == [port.get_names() for port in convnet_plan.model.inputs]
    inputs = [tensor.data.copy() for tensor in random_inputs(convnet_plan.model)]
    for read_value, value in zip(whole(plan.model, inputs), whole(convnet_plan.model, inputs), strict=True):
        np.testing.assert_allclose(read_value, value, rtol=1e-5, atol=1e-6)


def test_a_loaded_bundle_computes_what_the_model_does(convnet_plan: StagePlan, tmp_path: Path) -> None:
    """Sync, async and streamed, by output name."""
    write_bundle(convnet_plan, tmp_path / "b")
    inputs = [tensor.data.copy() for tensor in random_inputs(convnet_plan.model)]
    expected = dict(zip(convnet_plan.output_names, whole(convnet_plan.model, inputs), strict=True))
    with runtime.load(tmp_path / "b") as pipe:
        results = [pipe(inputs), pipe.submit(dict(zip(pipe.input_names, inputs, strict=True))).result(10)]
        results += pipe.stream([inputs] * 3)
    assert pipe.output_names == tuple(expected)
    for result in results:
        assert list(result) == list(expected)
        for name, value in expected.items():
            np.testing.assert_allclose(result[name], value, rtol=1e-5, atol=1e-6)


def test_names_of_tensors_are_names_of_inputs(saved: Callable[[ov.Model], ModelSource], tmp_path: Path) -> None:
    """An input can be given by its tensor's name, too, as OpenVINO allows."""
    model = chain([2, 8])
    model.inputs[0].set_names({"pixels"})
    write_bundle(alternating_plan(saved(model)), tmp_path / "b")
    good = np.ones((2, 8), dtype=np.float32)
    with runtime.load(tmp_path / "b") as pipe:
        np.testing.assert_array_equal(pipe({"pixels": good})["y"], chain_value(good))


def computed_shape(kind: str, size: int | str = 2) -> ov.Model:
    """Return a model in which an op is told its shape by numbers that come from the shape of a tensor."""
    x = opset.parameter([size, 6, 4], ov.Type.f32, name="x")
    act = opset.relu(x, name="act")
    shape = opset.shape_of(act, name="shape")
    first, second = (opset.gather(shape, [at], 0, name=f"dim{at}") for at in (0, 1))
    half = opset.divide(second, np.array([2]), name="half")
    if kind == "reshape":
        made = opset.reshape(act, opset.concat([first, half, [8]], 0, name="sizes"), special_zero=False)
    elif kind == "range":
        stop = opset.squeeze(second, [0], name="stop")
        steps = opset.unsqueeze(opset.range(0, stop, 1, output_type="f32", name="steps"), [0, 2], name="column")
        made = opset.add(act, steps)
    elif kind == "tile":
        made = opset.tile(act, opset.concat([[1], half, [1]], 0, name="repeats"))
    elif kind == "broadcast":
        made = opset.broadcast(opset.reduce_max(act, [1], keep_dims=True, name="most"), shape)
    elif kind == "interpolate":
        sizes = opset.multiply(second, np.array([2]), name="sizes")
        made = opset.interpolate(act, sizes, "nearest", "sizes", axes=[1])
    elif kind == "lstm":
        states = [
            opset.broadcast(np.float32(0.5), opset.concat([first, [1, 3]], 0, name=f"sizes{at}")) for at in range(2)
        ]
        lengths = opset.broadcast(opset.squeeze(second, [0], name="steps"), first, name="lengths")
        numbers = np.random.default_rng(0).standard_normal
        weights = [numbers(each).astype(np.float32) for each in ((1, 12, 4), (1, 12, 3), (1, 12))]
        made = opset.lstm_sequence(act, *states, lengths, *weights, 3, "forward")
    else:
        made = opset.slice(act, [0], half, [1], [1])
    made.set_friendly_name("made")
    y = opset.result(opset.exp(made.output(0), name="exp"))
    return ov.Model([y, opset.result(half)], [x], kind)


SHAPED = ["reshape", "range", "tile", "broadcast", "interpolate", "lstm", "slice"]


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, "?"])
@pytest.mark.parametrize("kind", SHAPED)
def test_a_shape_of_another_stage_is_known(
    saved: Callable[[ov.Model], ModelSource], tmp_path: Path, kind: str, size: int | str
) -> None:
    """Wherever its ops are: the bundle loads and computes, and what has a fixed shape in the model has it there."""
    source = saved(computed_shape(kind, size))
    inputs = [np.random.default_rng(1).standard_normal((2, 6, 4), dtype=np.float32)]
    expected = whole(source.load(), inputs)
    each_alone = np.arange(source.graph.num_ops) % 3
    for seed in range(4):
        random_ones = np.random.default_rng(seed).integers(0, 3, source.graph.num_ops)
        plan = placed_plan(source, random_ones if seed else each_alone, 3)
        if size != "?":
            assert all(port.get_partial_shape().is_static for each in plan.stages for port in each.model.outputs)
        write_bundle(plan, tmp_path / "b")
        with runtime.load(tmp_path / "b") as pipe:
            for found, value in zip(pipe(inputs).values(), expected, strict=True):
                np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-6)


def test_dynamic_shapes_are_kept(saved: Callable[[ov.Model], ModelSource], tmp_path: Path) -> None:
    """A bundle of a model with a dynamic dimension takes samples of any size."""
    write_bundle(alternating_plan(saved(chain(["?", 8]))), tmp_path / "b")
    with runtime.load(tmp_path / "b") as pipe:
        for size in (1, 5, 2):
            array = np.full((size, 8), size, dtype=np.float32)
            np.testing.assert_array_equal(pipe([array])["y"], chain_value(array))


def test_state_is_kept_from_sample_to_sample(saved: Callable[[ov.Model], ModelSource], tmp_path: Path) -> None:
    """A model with state is one stage, and remembers."""
    x = opset.parameter([1, 2], ov.Type.f32, name="x")
    before = opset.read_value(opset.constant(np.zeros((1, 2), np.float32)), "total", ov.Type.f32, [1, 2])
    total = opset.add(x, before, name="total_sum")
    assign = opset.assign(total, "total")
    model = ov.Model([opset.result(total)], [assign], [x], "running_sum")
    source = saved(model)
    write_bundle(placed_plan(source, [0] * source.graph.num_ops), tmp_path / "b")
    with runtime.load(tmp_path / "b") as pipe:
        sums = [next(iter(pipe([np.ones((1, 2), np.float32)]).values()))[0, 0] for _ in range(3)]
    assert sums == [1, 2, 3]


def test_state_is_kept_by_every_stage(saved: Callable[[ov.Model], ModelSource], tmp_path: Path) -> None:
    """Sums of sums, each on a device of its own, one sample after the other and many in flight."""
    value = x = opset.parameter([1, 2], ov.Type.f32, name="x")
    assigns = []
    for name in ("once", "twice"):
        zero = opset.constant(np.zeros((1, 2), np.float32))
        value = opset.add(value, opset.read_value(zero, name, ov.Type.f32, [1, 2], name=f"{name} read"), name=name)
        assigns.append(opset.assign(value, name))
        assigns[-1].set_friendly_name(f"{name} write")
    source = saved(ov.Model([opset.result(value)], assigns, [x], "sums"))
    placed = [int(name.startswith("twice")) for name in source.graph.op_names]
    write_bundle(placed_plan(source, placed), tmp_path / "b")
    with runtime.load(tmp_path / "b") as pipe:
        futures = [pipe.submit([np.ones((1, 2), np.float32)]) for _ in range(4)]
        assert [next(iter(each.result().values()))[0, 0] for each in futures] == [1, 3, 6, 10]


def test_a_model_without_ops_can_be_bundled(saved: Callable[[ov.Model], ModelSource], tmp_path: Path) -> None:
    """No stage and no device: the input is handed through."""
    x = opset.parameter([2, 8], ov.Type.f32, name="x")
    write_bundle(alternating_plan(saved(ov.Model([opset.result(x)], [x], "nothing"))), tmp_path / "b")
    with runtime.load(tmp_path / "b") as pipe:
        (same,) = pipe([np.ones((2, 8), np.float32)]).values()
    np.testing.assert_array_equal(same, 1)


def test_loading_needs_no_solver_and_no_framework(bundle: Path) -> None:
    """What a deployed program loads: OpenVINO, numpy and pydantic; no solver, torch, compiler or method."""
    program = f"""
import sys
import numpy as np
from placekit import runtime
with runtime.load({str(bundle)!r}) as pipe:
    assert pipe([np.ones((2, 8), np.float32)])["y"][0, 0] == 10
heavy = ("torch", "ortools", "pulp", "highspy", "scipy", "numba", "networkx", "matplotlib", "typer",
         "placekit.solvers", "placekit.learned", "placekit.cli")
print([name for name in heavy if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_queue_size_is_the_bundles_unless_given(bundle: Path) -> None:
    """The bundle says how much fits between stages, the caller may say otherwise."""
    with runtime.load(bundle) as own, runtime.load(bundle, queue_size=1) as given:
        assert (own._wiring.depth[0], given._wiring.depth[0]) == (3, 1)
    with pytest.raises(InvalidProblemError, match="queue_size is 0"):
        runtime.load(bundle, queue_size=0)


@pytest.mark.parametrize("name", ["0.xml", "2.bin"])
def test_a_changed_file_is_named_with_its_hash(bundle: Path, name: str) -> None:
    """One changed byte of a stage is found before it runs."""
    content = bytearray((bundle / name).read_bytes())
    content[len(content) // 2] ^= 1
    (bundle / name).write_bytes(content)
    written = json.loads((bundle / MANIFEST).read_text())["stages"][int(name[0])]["files"][name]
    with pytest.raises(InvalidFileError, match=rf"{name}: has hash [0-9a-f]{{32}}, and .* written with {written}"):
        runtime.load(bundle)


def test_a_missing_file_is_named_with_its_hash(bundle: Path) -> None:
    """A stage that is gone is named, and so is a folder that is no bundle."""
    (bundle / "1.xml").unlink()
    with pytest.raises(InvalidFileError, match=r"1\.xml: cannot be read \(No such file.* hash should be [0-9a-f]{32}"):
        runtime.load(bundle)
    (bundle / MANIFEST).unlink()
    with pytest.raises(InvalidFileError, match=r"bundle: no bundle, it has no manifest\.json"):
        runtime.load(bundle)
    with pytest.raises(InvalidFileError, match="elsewhere: no bundle"):
        runtime.load(bundle / "elsewhere")


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda m: m.update(schema="placekit/bundle/4"), "schema is 'placekit/bundle/4'"),
        (lambda m: m.pop("outputs"), "outputs is missing"),
        (lambda m: m.update(queue_size=0), "queue_size is 0"),
        (lambda m: m["stages"][0]["files"].update({"../0.bin": "0" * 32}), "files"),
        (lambda m: m["stages"][0]["files"].pop("0.xml"), r"stage '0:cpu0' does not list its file 0\.xml"),
        (lambda m: m["stages"][0].update(members=["npu"]), "on device 'npu', which it does not list"),
        (lambda m: m["stages"][0].update(members=[]), "members is"),
        (lambda m: m["stages"][0].update(members=["cpu0", "cpu0"]), "names member 'cpu0' twice"),
        (lambda m: m["stages"][0]["members"].append("cpu1"), r"device 'cpu1' is in two teams, 'cpu0\+cpu1' and 'cpu1'"),
        (lambda m: m["stages"][0]["inputs"][0].update(node="z"), "stage '0:cpu0' lists"),
        (lambda m: m["stages"][1]["inputs"][0].update(op="op3"), "needs .'op3', 0., which nothing before it gives"),
        (lambda m: m["stages"][1]["outputs"][0].update(op="op0"), "gives .'op0', 0. again"),
        (lambda m: m["stages"][1].update(name="0:cpu0"), "'0:cpu0' stands there twice"),
        (lambda m: m["outputs"][0].update(op="nowhere"), "which no stage gives"),
        (lambda m: m["tensors"].pop(), "tensors are not the ones between its stages"),
        (lambda m: m["inputs"].append(m["inputs"][0]), "two inputs are the same tensor"),
        (lambda m: m["inputs"][0].update(type="f33"), "do not fit together"),
        (lambda m: m["inputs"][0].update(shape="[2"), "do not fit together"),
        (lambda m: m["devices"][0].update(kind=""), "kind"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(
    bundle: Path, edit: Callable[[dict[str, Any]], object], message: str
) -> None:
    """Whatever is wrong in it, the message names the manifest and the place."""
    change(bundle, edit)
    with pytest.raises(InvalidFileError, match=rf"manifest\.json: .*{message}"):
        runtime.load(bundle)


def test_devices_of_another_machine_are_named(bundle: Path) -> None:
    """A bundle for a device that is not here, or for cores that are not, does not start."""
    change(bundle, lambda manifest: manifest["devices"][0].update(cores=[4095]))
    with pytest.raises(DeviceUnavailableError, match="device 'cpu0' needs cores 4095"):
        runtime.load(bundle)
    change(bundle, lambda manifest: manifest["devices"][0].update(cores=[], openvino="XPU"))
    with pytest.raises(DeviceUnavailableError, match="device 'XPU' is not available"):
        runtime.load(bundle)


def test_a_bundle_is_replaced_but_nothing_else(bundle: Path, convnet_plan: StagePlan, tmp_path: Path) -> None:
    """Writing again leaves no file of the old bundle; a folder with other things in it is refused."""
    write_bundle(convnet_plan, bundle)
    assert {path.name for path in bundle.iterdir()} == {MANIFEST} | {
        f"{index}.{suffix}" for index in range(len(convnet_plan.stages)) for suffix in ("xml", "bin")
    }
    empty = tmp_path / "empty"
    empty.mkdir()
    write_bundle(convnet_plan, empty)
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").touch()
    with pytest.raises(PlacekitError, match="exists and is no bundle"):
        write_bundle(convnet_plan, other)
    with pytest.raises(PlacekitError, match="exists and is no bundle"):
        write_bundle(convnet_plan, other / "mine.txt")
    with pytest.raises(PlacekitError, match=r"cannot write .*: No such file or directory"):
        write_bundle(convnet_plan, tmp_path / "no" / "folder")
    with pytest.raises(InvalidProblemError, match="queue_size is 0"):
        write_bundle(convnet_plan, empty, queue_size=0)


def test_a_failed_write_leaves_the_old_bundle(
    bundle: Path, convnet_plan: StagePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error before or at the last step changes nothing, and leaves nothing behind."""
    before = {path.name: path.read_bytes() for path in bundle.iterdir()}
    rename = Path.rename

    def fail(path: Path, target: Path) -> Path:
        if path.name == "new":
            raise OSError(28, "No space left on device")
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fail)
        with pytest.raises(PlacekitError, match="No space left on device"):
            write_bundle(convnet_plan, bundle)
    with monkeypatch.context() as patch:
        patch.setattr(ov, "save_model", lambda *_, **__: (_ for _ in ()).throw(RuntimeError("disk is full")))
        with pytest.raises(PlacekitError, match=r"^cannot write stage '0:cpu\d': disk is full"):
            write_bundle(convnet_plan, bundle)
    assert {path.name: path.read_bytes() for path in bundle.iterdir()} == before
    assert {path.name for path in bundle.parent.iterdir() if path.name.startswith(".")} == set()


def test_weights_survive(saved: Callable[[ov.Model], ModelSource], tmp_path: Path) -> None:
    """Weights are written as they are, in full precision."""
    source = saved(slow_model())
    plan = alternating_plan(source)
    write_bundle(plan, tmp_path / "b")
    x = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    with runtime.load(tmp_path / "b") as pipe:
        np.testing.assert_allclose(pipe([x])["y"], whole(plan.model, [x])[0], rtol=1e-5, atol=1e-5)


def test_paths_in_a_bundle_are_ignored_and_the_callers_cache_is_used(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger's CACHE_DIR makes no folder; that of whoever loads the bundle does."""
    evil, told = tmp_path / "evil", []
    monkeypatch.setattr("placekit.runtime.bundles.bundle._LOGGER.warning", lambda *args: told.append(args))
    change(bundle, lambda m: [each["properties"].update(CACHE_DIR=str(evil)) for each in m["devices"]])
    with runtime.load(bundle):
        assert not evil.exists()
    assert "CACHE_DIR" in str(told)
    with runtime.load(bundle, cache_dir=tmp_path / "mine"):
        assert (tmp_path / "mine").is_dir()
    assert not evil.exists()


def test_paths_of_a_platform_are_not_written_into_a_bundle(
    saved: Callable[[ov.Model], ModelSource], make_convnet: Callable[[], ov.Model], tmp_path: Path
) -> None:
    """They are of the machine that the bundle was made on."""
    source = saved(make_convnet())
    device = Device("CPU", "cpu", openvino="CPU", properties={"CACHE_DIR": str(tmp_path / "c"), "NUM_STREAMS": "1"})
    platform = Platform((device,))
    plan = plan_stages(source, on_one_device(source.graph, platform, 0), platform)
    write_bundle(plan, tmp_path / "made.bundle")
    manifest = json.loads((tmp_path / "made.bundle" / MANIFEST).read_text())
    assert manifest["devices"][0]["properties"] == {"NUM_STREAMS": "1"}


@pytest.mark.parametrize("count", [15, pytest.param(1000, marks=pytest.mark.slow)])
def test_mutated_manifests_are_read_or_refused_by_name(bundle: Path, count: int) -> None:
    """Types, numbers and names of every sort, in every place."""
    valid = (bundle / MANIFEST).read_text()
    refused = 0
    for seed in range(count):
        rng = random.Random(seed)
        document = mutate(json.loads(valid), rng)
        content = json.dumps(document).encode()
        (bundle / MANIFEST).write_bytes(mangle(content, rng) if rng.random() < 0.3 else content)
        try:
            read_bundle(bundle)
        except PlacekitError as error:
            refused += 1
            assert 0 < len(str(error)) < 20_000  # noqa: PT017  # every error is one of these
    assert refused > count // 2


def test_queues_of_any_length_are_refused(bundle: Path, convnet_plan: StagePlan, tmp_path: Path) -> None:
    """Their slots would be made at once."""
    change(bundle, lambda m: m.update(queue_size=10**9))
    with pytest.raises(InvalidFileError, match=r"manifest\.json: queue_size is 1000000000"):
        runtime.load(bundle)
    with pytest.raises(InvalidProblemError, match="queue_size is 1000000000"):
        write_bundle(convnet_plan, tmp_path / "long.bundle", queue_size=10**9)
