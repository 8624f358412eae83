"""Placements of PyTorch programs as folders that torch runs by itself."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dask_processes import free_port

from placekit import runtime
from placekit.model.errors import (
    DeviceUnavailableError,
    InvalidFileError,
    InvalidProblemError,
    OutputMismatchError,
    PlacekitError,
    UnsupportedProblemError,
)
from placekit.model.placement import Placement
from placekit.model.platform import Device, Platform
from placekit.pytorch.module import random_inputs
from placekit.pytorch.source import TorchSource, read_torch
from placekit.runtime.bundles.bundle import read_bundle, write_bundle
from placekit.runtime.bundles.bundle_check import check_bundle
from placekit.runtime.bundles.torch_bundle import PORT, chain_of, start_lines
from placekit.runtime.stages.plans import plan_stages
from placekit.runtime.stages.stage_plan import StagePlan

torch = pytest.importorskip("torch")
nn = torch.nn

import torch_modules as modules  # noqa: E402  # torch is there


def plan_of(name: str, seed: int | None = 0, teams: Any = None) -> tuple[TorchSource, StagePlan]:
    """Return the stages of a random placement of a shared module, or of its first half on one device."""
    module, args = modules.examples()[name]
    source = read_torch(module, args, name=name)
    platform = Platform(tuple(Device(f"cpu{i}", "cpu", is_host=True, openvino="CPU") for i in range(2)))
    num_ops = source.graph.num_ops
    rank = np.argsort(source.graph.order)
    device = (rank >= num_ops // 2).astype(np.int64)
    if seed is not None:
        device = np.random.default_rng(seed).integers(0, 2, num_ops)
    if source.lowered.states:  # what shares a buffer stays together
        device[:] = 0
    placement = Placement(source.graph.op_names, platform.device_names, device, team_of_device=teams)
    return source, plan_stages(source, placement, platform)


@pytest.mark.parametrize("name", ["tied", "views"])
def test_stages_form_a_chain(name: str, tmp_path: Path) -> None:
    """What is written, loaded by torch alone and called one after another, gives the whole program's outputs."""
    source, plan = plan_of(name)
    write_bundle(plan, tmp_path / "pipeline")
    manifest = json.loads((tmp_path / "pipeline" / "manifest.json").read_text())
    chain = chain_of(plan)
    assert [[each["op"] for each in stage["inputs"]] for stage in manifest["stages"]] == [
        list(each) for each in chain[:-1]
    ]
    assert len(plan.stages) >= 2
    inputs = random_inputs(plan.model.lowered.program, seed=5)
    values: Any = inputs
    for at in range(len(manifest["stages"])):
        values = torch.export.load(tmp_path / "pipeline" / f"{at}.pt2").module()(*values)
    for expected, found in zip(source.builder().whole()(*inputs), values, strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tied", "counter"])
def test_the_runtime_runs_it(name: str, tmp_path: Path) -> None:
    """With the calling interface of bundles, and the whole program's outputs; what is handed on makes no detour."""
    source, plan = plan_of(name)
    write_bundle(plan, tmp_path / "pipeline")
    found, _ = read_bundle(tmp_path / "pipeline")
    assert [set(stage.outputs) for stage in found.stages] == [set(stage.outputs) for stage in plan.stages]
    whole = source.builder().whole()
    with runtime.load(tmp_path / "pipeline", queue_size=3) as pipe:
        assert (pipe.input_names, pipe.output_names) == (plan.input_names, plan.output_names)
        samples = [random_inputs(plan.model.lowered.program, seed) for seed in range(4)]
        for sample, outputs in zip(samples, pipe.stream(samples), strict=True):
            for key, expected in zip(plan.output_names, whole(*sample), strict=True):
                torch.testing.assert_close(torch.from_numpy(outputs[key]), expected)
        with pytest.raises(InvalidProblemError, match="0 inputs given, it has 1"):
            pipe([])
    with pytest.raises(UnsupportedProblemError, match="cache_dir is OpenVINO's; this is a bundle of PyTorch"):
        runtime.load(tmp_path / "pipeline", cache_dir=tmp_path)


def _port(name: str) -> dict[str, Any]:
    return {"op": name, "port": 0, "node": name}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"files": {"../0.pt2": "0" * 32}}, r"stages\[0\] .*\.files"),
        ({"files": {"0.pt2": "0" * 32}}, r"0\.pt2: has hash \w+, and the bundle was written with 0{32}"),
        ({"files": {"1.pt2": "0" * 32}}, r"stage '0:cpu0' does not list its file 0\.pt2"),
        ({"members": ["cpu7"]}, r"stage '0:cpu0' is on device 'cpu7', which it does not list"),
        ({"inputs": [_port("z")]}, r"stage '0:cpu0' reads \['z'\], and the model takes \['input'\]"),
        ({"outputs": [_port("y")]}, r"reads \[.*\], and stage '0:cpu0' gives \['y'\]"),
        ({"code": "import os"}, "code is an unknown field"),
    ],
)
def test_a_manifest_is_checked(change: dict[str, Any], says: str, tmp_path: Path) -> None:
    """Before a stage is opened: no path leaves the folder, files are those that were written, stages fit together."""
    _, plan = plan_of("perceptron", seed=None)
    write_bundle(plan, tmp_path / "pipeline")
    path = tmp_path / "pipeline" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["stages"][0] |= change
    path.write_text(json.dumps(manifest))
    with pytest.raises(InvalidFileError, match=says):
        runtime.load(tmp_path / "pipeline")


def test_a_device_that_torch_does_not_have_is_refused(tmp_path: Path) -> None:
    """A manifest cannot name what torch does not list as a device here."""
    _, plan = plan_of("perceptron", seed=None)
    write_bundle(plan, tmp_path / "pipeline")
    path = tmp_path / "pipeline" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["devices"][0]["properties"]["torch"] = "meta"
    path.write_text(json.dumps(manifest))
    with pytest.raises(DeviceUnavailableError, match=r"device 'cpu0': torch offers cpu.* here, not 'meta'"):
        runtime.load(tmp_path / "pipeline")


@pytest.mark.slow
def test_the_script_runs_two_processes(tmp_path: Path) -> None:
    """Over gloo, on samples of a file, with the outputs of the whole program in the same order."""
    source, plan = plan_of("tied", seed=None)
    assert len(plan.stages) == 2
    folder = tmp_path / "pipeline"
    write_bundle(plan, folder)
    samples = [random_inputs(plan.model.lowered.program, seed) for seed in range(3)]
    torch.save({"ids": torch.stack([each for (each,) in samples])}, tmp_path / "inputs.pt")
    files: list[str | Path] = ["--inputs", tmp_path / "inputs.pt", "--outputs", tmp_path / "outputs.pt"]
    done = subprocess.run(
        [sys.executable, folder / "run.py", *files], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "samples/s, 2 stages" in done.stdout
    outputs = torch.load(tmp_path / "outputs.pt", weights_only=True)
    whole = source.builder().whole()
    for at, sample in enumerate(samples):
        for name, expected in zip(plan.output_names, whole(*sample), strict=True):
            torch.testing.assert_close(outputs[name][at], expected)


@pytest.mark.slow
def test_the_lines_of_an_export_start_it_on_two_addresses(tmp_path: Path) -> None:
    """One torchrun for each machine, here two addresses of this one; the outputs are those of the whole program."""
    source, plan = plan_of("tied", seed=None)
    nodes = ("127.0.0.1", "127.0.0.2")
    stages = (
        replace(stage, members=(stage.device.replace(node=node),))
        for stage, node in zip(plan.stages, nodes, strict=True)
    )
    folder = tmp_path / "pipeline"
    write_bundle(plan, folder)
    samples = [random_inputs(plan.model.lowered.program, seed) for seed in range(3)]
    torch.save({"ids": torch.stack([each for (each,) in samples])}, tmp_path / "inputs.pt")
    files = ["--inputs", str(tmp_path / "inputs.pt"), "--outputs", str(tmp_path / "outputs.pt")]
    started = []
    port = str(free_port())
    for node, line in start_lines(replace(plan, stages=tuple(stages)), f"{folder}/run.py").items():
        words = line.replace(str(PORT), port).split()
        command = [sys.executable, "-m", "torch.distributed.run", "--local-addr", node, *words[1:], *files]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    told = [process.communicate(timeout=240) for process in started]
    assert [process.returncode for process in started] == [0, 0], told
    assert "samples/s, 2 stages" in told[1][0]
    outputs = torch.load(tmp_path / "outputs.pt", weights_only=True)
    whole = source.builder().whole()
    for at, sample in enumerate(samples):
        for name, expected in zip(plan.output_names, whole(*sample), strict=True):
            torch.testing.assert_close(outputs[name][at], expected)


class Views(nn.Module):  # type: ignore[misc,name-defined]  # torch may be missing
    """Tensors of every kind, all made before the op `middle.linear` and read behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        """Make views, complex and conjugate numbers, a tensor without dimensions, flags and ids."""
        h = self.first(x)
        z = torch.view_as_complex(h.reshape(2, 4, 4, 2))
        across, part, wide, one = h.transpose(1, 2), h[..., :4], h[:, :1].expand(2, 4, 8), h[:, :, 0]
        turned, conjugate, pairs, imag = z.transpose(0, 1), z.conj(), torch.view_as_real(z), z.imag
        total, flags, ids, half = h.sum(), (h > 0).transpose(1, 2), h.argmax(-1), h.half().permute(2, 0, 1)
        found = self.middle(h) + across.transpose(1, 2) * total + torch.cat([part, imag], -1) + wide
        found = torch.where(flags.transpose(1, 2), found, -found) + (one * ids).unsqueeze(-1)
        product = torch.view_as_real(turned.transpose(0, 1) * conjugate * z) + pairs
        return self.last(found + product.reshape(2, 4, 8) + half.permute(1, 2, 0).to(h.dtype)), conjugate


@pytest.mark.slow
def test_the_script_sends_tensors_of_every_kind(tmp_path: Path) -> None:
    """What is not contiguous, complex or conjugate arrives as it was, and is an output like any other."""
    module, x = Views().eval(), torch.randn(2, 4, 8)
    source = read_torch(module, (x,), name="views")
    names = source.graph.op_names
    platform = Platform(tuple(Device(f"cpu{i}", "cpu", is_host=True, openvino="CPU") for i in range(2)))
    behind = (np.arange(len(names)) >= names.index("middle.linear")).astype(np.int64)
    plan = plan_stages(source, Placement(names, platform.device_names, behind), platform)
    assert (len(plan.stages), len(plan.cuts)) == (2, 14)
    told: list[str] = []
    write_bundle(plan, tmp_path / "pipeline", check=lambda new: told.append(check_bundle(plan, new)))
    assert told[0].startswith("read back, one sample run through 2 stages")
    torch.save({"x": x[None]}, tmp_path / "inputs.pt")
    files: list[str | Path] = ["--inputs", tmp_path / "inputs.pt", "--outputs", tmp_path / "outputs.pt"]
    done = subprocess.run(
        [sys.executable, tmp_path / "pipeline" / "run.py", *files],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    sent = torch.load(tmp_path / "outputs.pt", weights_only=True)
    with runtime.load(tmp_path / "pipeline") as pipe:
        handed_on = pipe([x])
    with torch.no_grad():
        for name, expected in zip(plan.output_names, module(x), strict=True):
            torch.testing.assert_close(sent[name][0], expected.resolve_conj())
            torch.testing.assert_close(torch.from_numpy(handed_on[name]), expected.resolve_conj())


def test_a_pipeline_that_computes_something_else_is_not_written(tmp_path: Path) -> None:
    """The stage is named, and the pipeline that was there stays."""
    _, plan = plan_of("perceptron", seed=None)
    folder = tmp_path / "pipeline"
    write_bundle(plan, folder)
    before = (folder / "manifest.json").read_bytes()

    def check(new: Path) -> None:
        script = new / "run.py"
        script.write_text(script.read_text().replace("each.contiguous() for", "each.contiguous() * 2 for"))
        check_bundle(plan, new)

    with pytest.raises(OutputMismatchError, match=r"stage '0:cpu0': its output '\w+' differs from"):
        write_bundle(plan, folder, check=check)
    assert [each.name for each in tmp_path.iterdir()] == ["pipeline"]
    assert (folder / "manifest.json").read_bytes() == before


def test_folders_of_others_are_left_alone(tmp_path: Path) -> None:
    """A bundle is replaced; anything else is not."""
    _, plan = plan_of("perceptron", seed=None)
    folder = tmp_path / "pipeline"
    write_bundle(plan, folder)
    write_bundle(plan, folder)
    (folder / "manifest.json").unlink()
    with pytest.raises(PlacekitError, match=r"it has no manifest\.json"):
        write_bundle(plan, folder)


def test_a_team_is_no_stage_of_torch(tmp_path: Path) -> None:
    """With the name of the team, and what to do."""
    _, plan = plan_of("perceptron", seed=None, teams=np.array([0, 0]))
    with pytest.raises(UnsupportedProblemError, match=r"on team 'cpu0\+cpu1': a pipeline of torch has one device"):
        write_bundle(plan, tmp_path / "pipeline")
