"""Placements of PyTorch programs as folders that torch runs by itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from placekit import runtime
from placekit.cost_models.pytorch.pipeline_export import chain_of, write_torch_pipeline
from placekit.cost_models.pytorch.pipeline_folder import read_torch_pipeline
from placekit.cost_models.pytorch.stages import TorchPlan, plan_torch_stages
from placekit.errors import InvalidFileError, InvalidProblemError, PlacekitError, UnsupportedProblemError
from placekit.placement import Placement
from placekit.platform import Device, Platform
from placekit.pytorch.inputs import random_inputs
from placekit.pytorch.source import TorchSource, read_torch

torch = pytest.importorskip("torch")
nn = torch.nn

import torch_modules as modules  # noqa: E402  # torch is there


def plan_of(name: str, seed: int | None = 0, teams: Any = None) -> tuple[TorchSource, TorchPlan]:
    """Return the stages of a random placement of a shared module, or of its first half on one device."""
    module, args = modules.examples()[name]
    source = read_torch(module, args, name=name)
    platform = Platform(tuple(Device(f"cpu{i}", "cpu", is_host=True, openvino="CPU") for i in range(2)))
    num_ops = source.graph.num_ops
    rank = np.argsort(source.graph.order)
    device = (rank >= num_ops // 2).astype(np.int64)
    if seed is not None:
        device = np.random.default_rng(seed).integers(0, 2, num_ops)
    if source.lowered is not None and source.lowered.states:  # what shares a buffer stays together
        device[:] = 0
    placement = Placement(source.graph.op_names, platform.device_names, device, team_of_device=teams)
    return source, plan_torch_stages(source, placement, platform)


@pytest.mark.parametrize("name", ["tied", "views"])
def test_stages_form_a_chain(name: str, tmp_path: Path) -> None:
    """What is written, loaded by torch alone and called one after another, gives the whole program's outputs."""
    source, plan = plan_of(name)
    write_torch_pipeline(plan, tmp_path / "pipeline")
    manifest = json.loads((tmp_path / "pipeline" / "manifest.json").read_text())
    chain = chain_of(plan)
    assert [stage["inputs"] for stage in manifest["stages"]] == [list(each) for each in chain[:-1]]
    assert len(plan.stages) >= 2
    inputs = random_inputs(plan.lowered.program, seed=5)
    values: Any = inputs
    for stage in manifest["stages"]:
        values = torch.export.load(tmp_path / "pipeline" / stage["file"]).module()(*values)
    for expected, found in zip(source.builder().whole()(*inputs), values, strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("executor", ["threads", "processes"])
@pytest.mark.parametrize("name", ["tied", "counter"])
def test_the_runtime_runs_it(name: str, executor: Literal["threads", "processes"], tmp_path: Path) -> None:
    """With the calling interface of bundles, and the whole program's outputs; what is handed on makes no detour."""
    source, plan = plan_of(name)
    write_torch_pipeline(plan, tmp_path / "pipeline")
    found = read_torch_pipeline(tmp_path / "pipeline")
    assert [set(stage.outputs) for stage in found.stages] == [set(stage.outputs) for stage in plan.stages]
    whole = source.builder().whole()
    with runtime.load(tmp_path / "pipeline", executor=executor, queue_size=3) as pipe:
        assert (pipe.input_names, pipe.output_names) == (plan.input_names, plan.output_names)
        samples = [random_inputs(plan.lowered.program, seed) for seed in range(4)]
        for sample, outputs in zip(samples, pipe.stream(samples), strict=True):
            for key, expected in zip(plan.output_names, whole(*sample), strict=True):
                torch.testing.assert_close(torch.from_numpy(outputs[key]), expected)
        with pytest.raises(InvalidProblemError, match="0 inputs given, it has 1"):
            pipe([])
    with pytest.raises(UnsupportedProblemError, match="cache_dir is OpenVINO's; this is a pipeline of torch"):
        runtime.load(tmp_path / "pipeline", executor=executor, cache_dir=tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"file": "../0.pt2"}, r"stages\[0\] .*\.file is '\.\./0\.pt2'; it should be"),
        ({"hash": "0" * 32}, r"0\.pt2: has hash \w+, and the pipeline was written with 0{32}"),
        ({"torch": "meta"}, r"\.torch is 'meta'; it should be"),
        ({"inputs": ["z"]}, r"stage '0:cpu0' reads \['z'\], and the model takes \['input'\]"),
        ({"outputs": ["y"]}, r"reads \[.*\], and stage '0:cpu0' gives \['y'\]"),
        ({"device": "cpu1", "cores": [7]}, "device 'cpu1' of stage '1:cpu1' was another one before"),
        ({"code": "import os"}, "code is an unknown field"),
    ],
)
def test_a_manifest_is_checked(change: dict[str, Any], says: str, tmp_path: Path) -> None:
    """Before a stage is opened: no path leaves the folder, files are those that were written, stages fit together."""
    _, plan = plan_of("perceptron", seed=None)
    write_torch_pipeline(plan, tmp_path / "pipeline")
    path = tmp_path / "pipeline" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["stages"][0] |= change
    path.write_text(json.dumps(manifest))
    with pytest.raises(InvalidFileError, match=says):
        runtime.load(tmp_path / "pipeline")


def test_the_script_runs_two_processes(tmp_path: Path) -> None:
    """Over gloo, on samples of a file, with the outputs of the whole program in the same order."""
    source, plan = plan_of("tied", seed=None)
    assert len(plan.stages) == 2
    folder = tmp_path / "pipeline"
    write_torch_pipeline(plan, folder)
    samples = [random_inputs(plan.lowered.program, seed) for seed in range(3)]
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


def test_folders_of_others_are_left_alone(tmp_path: Path) -> None:
    """A pipeline is replaced; a bundle, or anything else, is not."""
    _, plan = plan_of("perceptron", seed=None)
    folder = tmp_path / "pipeline"
    write_torch_pipeline(plan, folder)
    write_torch_pipeline(plan, folder)
    (folder / "manifest.json").write_text('{"schema": "placekit/bundle/2"}')
    with pytest.raises(PlacekitError, match=r"is no pipeline of torch \(its manifest\.json is another's\)"):
        write_torch_pipeline(plan, folder)
    (folder / "manifest.json").unlink()
    with pytest.raises(PlacekitError, match=r"it has no manifest\.json"):
        write_torch_pipeline(plan, folder)


def test_a_team_is_no_stage_of_torch(tmp_path: Path) -> None:
    """With the name of the team, and what to do."""
    _, plan = plan_of("perceptron", seed=None, teams=np.array([0, 0]))
    with pytest.raises(UnsupportedProblemError, match=r"on team 'cpu0\+cpu1': a pipeline of torch has one device"):
        write_torch_pipeline(plan, tmp_path / "pipeline")
