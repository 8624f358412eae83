"""``placekit problem``, and the options that bind ops and memory in one go."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openvino as ov
import pytest
from openvino import opset13 as opset

import placekit as pk

Call = Callable[..., Any]


def test_diamond_file_solves_like_the_model(call: Call, model_file: Path, tmp_path: Path) -> None:
    """The file holds costs, devices and limits: it gives the same objective as the model itself."""
    platform = tmp_path / "two.toml"
    platform.write_text(
        '[[device]]\nname = "GPU"\nkind = "gpu"\ncount = 2\nspec = "gpu-discrete"\n'
        "[link.gpu]\nlatency_s = 1e-6\nbandwidth_bytes_per_s = 1e10\n"
    )
    how = ("--costs", "analytic", "--platform", platform, "--memory", "GPU=1GiB", "--pin", "type:Result=GPU.1")
    done = call("problem", model_file, *how, "-o", "saved.json", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["files"] == {"problem": "saved.json"}
    problem = pk.read_problem(tmp_path / "saved.json")
    assert [device.memory_bytes for device in problem.platform.devices] == [2**30, 2**30]
    results = [op for op, kind in enumerate(problem.graph.op_types) if kind == "Result"]
    assert results
    assert set(problem.pinned[results].tolist()) == {1}
    saved = json.loads(call("solve", "saved.json", "--json").stdout)
    direct = json.loads(call("solve", model_file, *how, "--json").stdout)
    assert saved["objective"] == direct["objective"]
    assert saved["status"] == direct["status"] == "optimal"


def test_unknown_dimensions_are_refused_with_the_option_to_give(call: Call, tmp_path: Path) -> None:
    """Analytic costs of a dynamic model would count an unknown dimension as 1."""
    image = opset.parameter([-1, 8], ov.Type.f32, name="image")
    weights = opset.constant([[1.0] * 8] * 8, ov.Type.f32)
    ov.save_model(ov.Model([opset.matmul(image, weights, False, False)], [image]), tmp_path / "dynamic.xml")
    platform = tmp_path / "one.toml"
    platform.write_text('[[device]]\nname = "GPU"\nkind = "gpu"\nspec = "gpu-discrete"\n')
    how = ("--costs", "analytic", "--platform", platform)
    assert "where every ? is 1 (sizes: solve --shape)" in " ".join(call("show", "dynamic.xml").stdout.split())
    done = call("solve", "dynamic.xml", *how)
    assert done.returncode == 2
    assert "--shape image[1,8]" in done.stderr
    assert call("solve", "dynamic.xml", *how, "--shape", "image[4,8]").returncode == 0


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--pin", "nothing.*=GPU.0", "has no op 'nothing.*'"),
        ("--memory", "TPU=1GiB", "no device or kind 'TPU'"),
        ("--gap", "-1", "gap"),
    ],
)
def test_bad_options_are_named(call: Call, diamond_file: Path, option: str, value: str, says: str) -> None:
    """One line, exit code 2."""
    done = call("solve", diamond_file, option, value)
    assert done.returncode == 2
    assert says in done.stderr


def test_missing_memory_is_told_in_units_of_people(call: Call, diamond_file: Path) -> None:
    """The message says the missing bytes in the largest unit that is exact."""
    done = call("solve", diamond_file, "--memory", "GPU=1", "--memory", "CPU=1")
    assert done.returncode == 3
    assert "999 B more" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("-m", "heft"), "heft serves makespan, not throughput"),
        (("--objective", "makespan", "-m", "dpl"), "dpl serves throughput, not makespan"),
        (("--memory", "CPU=8parsecs"), "8parsecs"),
        (("--memory", "TPU=1GiB"), "no device or kind 'TPU'"),
        (("--pin", "nothing.*=CPU"), "has no op 'nothing.*'"),
        (("--pin", "type:Result=TPU"), "no device 'TPU'"),
        (("-o", "missing/folder.json"), "there is no folder"),
    ],
)
def test_what_needs_no_measuring_is_said_before(
    call: Call, model_file: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], says: str
) -> None:
    """A misspelt option must not cost the minutes of a profile."""

    def refuse(*arguments: Any, **more: Any) -> None:
        raise AssertionError("it measured")

    monkeypatch.setattr("placekit.cli.inputs.task.cost_table", refuse)
    done = call("solve", model_file, *options)
    assert done.returncode == 2
    assert says in done.stderr


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("model.pt", "From PyTorch: torch.export.save(torch.export.export(module"),
        ("model.safetensors", "openvino.convert_model(module"),
        ("model.tflite", "OpenVINO converts it"),
        ("model.keras", "SavedModel"),
        ("model.xyz", "it reads .xml, .onnx, .pt2, .json, .toml, .graphml, .txt\n"),
    ],
)
def test_other_files_are_refused_with_the_way_to_convert_them(call: Call, tmp_path: Path, name: str, says: str) -> None:
    """Whoever has a checkpoint learns what to type."""
    (tmp_path / name).touch()
    done = call("solve", name)
    assert done.returncode == 2
    assert says in done.stderr


def test_a_partial_placement_with_a_default_device(call: Call, diamond_file: Path, tmp_path: Path) -> None:
    """Tools that write {op: device} for some ops: the others go where the user says."""
    problem = pk.read_problem(diamond_file)
    names = problem.platform.device_names
    (tmp_path / "partial.json").write_text(json.dumps({problem.graph.op_names[1]: names[1]}))
    refused = call("solve", diamond_file, "-m", "file:partial.json")
    assert refused.returncode == 2
    assert "no device for op" in refused.stderr
    done = call("solve", diamond_file, "-m", "file:partial.json", "--param", f"default_device={names[0]}", "--json")
    assert done.returncode == 0, done.stderr
    placed = json.loads(done.stdout)["placement"]
    assert list(placed.values()).count(names[1]) == 1
    wrong = call("solve", diamond_file, "-m", "file:partial.json", "--param", "default_device=TPU")
    assert "no device 'TPU'" in wrong.stderr
