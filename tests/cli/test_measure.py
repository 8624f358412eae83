"""``placekit devices``, ``profile`` and ``zoo``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


def test_devices_names_the_cpu_and_a_platform(call: Call) -> None:
    """The CPU is always there, and a platform is suggested."""
    printed = json.loads(call("devices", "--json").stdout)
    assert "CPU" in [device["name"] for device in printed["devices"]]
    assert printed["suggested_platform"]
    assert printed["machine"]["memory_bytes"] > 0
    done = call("devices")
    assert "Suggested platform" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_suggested_platform_can_be_written_and_used(call: Call, model_file: Path) -> None:
    """``devices -o`` writes a platform file that ``solve --platform`` takes."""
    assert call("devices", "-o", "here.toml").returncode == 0
    assert call("solve", model_file, "--platform", "here.toml", "--costs", "analytic").returncode == 0


def test_absent_device_is_named(call: Call, model_file: Path) -> None:
    """A device that is not there is an error that lists those that are."""
    done = call("profile", model_file, "-d", "CPU,XPU")
    assert done.returncode == 2
    offered = ", ".join(pytest.importorskip("openvino").Core().available_devices)
    assert done.stderr == f"error: device 'XPU' is not available; OpenVINO offers {offered} here\n"


def test_precision_is_checked(call: Call, model_file: Path) -> None:
    """An unknown precision is an error that lists the known ones."""
    done = call("profile", model_file, "--precision", "f64")
    assert done.returncode == 2
    assert "f32, bf16, f16" in done.stderr


def test_profile_reports_and_writes_costs(call: Call, model_file: Path) -> None:
    """The report has sum, whole model, mapped share, spread and the slowest ops; the file reads back."""
    from placekit.io.files.costs_json import read_costs
    from placekit.io.models.read_model import read_model

    done = call("profile", model_file, "--groups", "1", "--no-cache")
    assert done.returncode == 0, done.stderr
    for text in ("sum of ops ms", "mapped", "100 %", "conv", "tiny.costs.json"):
        assert text in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    costs = read_costs("tiny.costs.json", read_model(model_file).graph)
    assert costs.op_time_s.sum() > 0


def test_profile_json_has_the_provenance(call: Call, model_file: Path) -> None:
    """With ``--json`` stdout holds sums per kind, provenance and the file's name."""
    printed = json.loads(call("profile", model_file, "--groups", "1", "--json").stdout)
    assert printed["files"] == {"costs": "tiny.costs.json"}
    kind, total = next(iter(printed["op_time_sum_s"].items()))
    assert total > 0
    assert printed["provenance"]["kinds"][kind]["mapped_share"] >= 0.95


def test_core_groups_of_two_precisions_are_two_kinds(call: Call, model_file: Path) -> None:
    """``--precision f32,bf16`` makes one group of each."""
    from placekit.cost_models.openvino.machine import usable_cores

    if len(usable_cores()) < 2:
        pytest.skip("needs two cores")
    printed = json.loads(call("profile", model_file, "--precision", "f32,bf16", "--json").stdout)
    assert len(printed["op_time_sum_s"]) == 2


def test_zoo_lists_models(call: Call) -> None:
    """All models are listed, with their parameters; the table fits the terminal."""
    done = call("zoo")
    assert "resnet50" in done.stdout
    assert "decoder" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "bert_base" in json.loads(call("zoo", "--json").stdout)


@pytest.mark.zoo
def test_zoo_builds_a_model(call: Call) -> None:
    """A small ResNet is built, counted, and can be shown and solved."""
    done = call("zoo", "resnet50", "-o", "small.xml", "--param", "depths=[1,1,1,1]", "--param", "image_size=32",
                "--param", "width=8", "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed["files"] == {"model": "small.xml", "weights": "small.bin"}
    assert printed["nodes"] > printed["ops"] > 10
    assert call("show", "small.xml").returncode == 0


def test_costs_of_other_devices_are_named(call: Call, model_file: Path) -> None:
    """Costs of the whole CPU are none of core groups; a calibration needs several devices. Both say what to give."""
    assert call("profile", model_file, "-d", "CPU", "--repetitions", "3", "-o", "c.json").returncode == 0
    for command in ("calibrate", "solve", "problem"):
        done = call(command, model_file, "--costs", "c.json", "--groups", "2")
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert "give the -d, --groups or --precision that the costs were measured with" in line
    done = call("calibrate", model_file, "--costs", "c.json", "-d", "CPU")
    assert done.returncode == 2
    assert "there is one, CPU; give several by -d, or --groups 2" in done.stderr


def test_devices_that_are_not_here_are_modelled_in_sight(call: Call, model_file: Path) -> None:
    """Profile and solve say which kinds are measured and which are modelled, and what anchors them."""
    laptop = Path(__file__).parents[2] / "examples" / "laptop.toml"
    done = call("profile", model_file, "--platform", str(laptop), "-o", "laptop.costs.json")
    assert done.returncode == 0, done.stderr
    for command in (["profile"], ["solve", "--costs", "laptop.costs.json"], ["show"]):
        target = "laptop.costs.json" if command == ["show"] else str(model_file)
        done = call(*command, target, *([] if command == ["show"] else ["--platform", str(laptop)]))
        told = " ".join(done.stdout.split())
        assert done.returncode == 0, done.stderr
        assert "ms measured, igpu" in told or "us measured, igpu" in told
        assert "igpu, npu: not on this machine" in told
