"""Placements of PyTorch programs as folders that torch runs by itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placekit.cost_models.pytorch.pipeline_export import chain_of, write_torch_pipeline
from placekit.cost_models.pytorch.stages import TorchPlan, plan_torch_stages
from placekit.errors import PlacekitError, UnsupportedProblemError
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
