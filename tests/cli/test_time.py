"""``placekit time`` and ``placekit calibrate`` on a small model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from placekit.io.files.costs_json import read_costs
from placekit.io.models.read_model import read_model

Call = Callable[..., Any]


@pytest.fixture
def platform_file(tmp_path: Path) -> Path:
    """Return a platform of two CPUs that share all cores, so that the tests run on any machine."""
    device = (
        '[[device]]\nname = "{}"\nkind = "cpu"\nhost = true\nopenvino = "CPU"\n'
        'properties = {{INFERENCE_NUM_THREADS = "1", INFERENCE_PRECISION_HINT = "f32"}}\n'
    )
    path = tmp_path / "two.toml"
    path.write_text("".join(device.format(name) for name in ("left", "right")))
    return path


@pytest.fixture
def placement_file(model_file: Path, tmp_path: Path) -> Path:
    """Return a placement that gives one branch of the model to each device."""
    ops = {name: "right" if "v1" in name or "u1" in name else "left" for name in read_model(model_file).graph.op_names}
    path = tmp_path / "tiny.placement.json"
    path.write_text(json.dumps(ops))
    return path


@pytest.fixture(autouse=True)
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure at once, whatever else is measured: these numbers do not matter."""
    monkeypatch.setattr("placekit.runtime.timing.timing.lock_path", lambda: tmp_path / "lock")


@pytest.mark.slow
def test_time_reports_placement_singles_and_stages(
    call: Call, model_file: Path, placement_file: Path, platform_file: Path
) -> None:
    """The table has every contender, the stages stand with their predictions, and a trace is written."""
    arguments = ("--platform", platform_file, "--rounds", "3", "--burst", "0.02", "--no-cache")
    done = call("time", model_file, placement_file, *arguments, "--no-baselines", "--trace", "t.json", "--details")
    assert done.returncode == 0, done.stderr
    texts = ("placement", "single left", "single right", "0:right", "1:left", "samples/s measured", "t.json")
    for text in (*texts, "equal to right: 3 tensors"):
        assert text in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    events = json.loads(Path("t.json").read_text())["traceEvents"]
    assert {event["cat"] for event in events if event["ph"] == "X"} == {"measured", "predicted"}


def test_time_as_json_has_the_promised_keys(
    call: Call, model_file: Path, placement_file: Path, platform_file: Path
) -> None:
    """Medians with spread, speedup over the best single device, baselines, predictions with their errors."""
    done = call(
        "time", model_file, placement_file, "--platform", platform_file, "--rounds", "3", "--burst", "0.02",
        "--executor", "serial", "--costs", "analytic", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    for key in ("latency_s", "throughput_per_s", "speedup"):
        assert printed[key] > 0
        assert printed[f"{key}_iqr"] > 0  # no two rounds take the same nanoseconds
    for key in ("predicted_latency_s", "predicted_throughput_per_s", "prediction_error", "latency_prediction_error"):
        assert isinstance(printed[key], float)
    assert printed["best_single_device"] in ("left", "right")
    assert [stage["device"] for stage in printed["stages"]] == ["right", "left"]
    names = [each["name"] for each in printed["contenders"]]
    assert names[:5] == ["placement", "single left", "single right", "AUTO:CPU", "MULTI:CPU"]
    assert printed["executor"] == "serial"
    over, half_iqr = printed["over_runtime"], printed["over_runtime_iqr"] / 2
    assert printed["outcome"] == ("wins" if over - half_iqr > 1 else "loses" if over + half_iqr < 1 else "draws")
    assert printed["verdict"]["sentence"].endswith(".")
    assert {each["form"] for each in printed["verdict"]["alternatives"]} >= {"device", "runtime"}
    per_s = {each["name"]: each["throughput_per_s"] for each in printed["contenders"] if each["throughput_per_s"]}
    assert printed["best_of_runtime"] == max(per_s.keys() & set(names[3:]), key=per_s.__getitem__)
    assert printed["speedup"] == per_s["placement"] / max(per_s["single left"], per_s["single right"])
    assert 0 <= printed["max_relative_error"] < 1e-5


@pytest.mark.slow
def test_time_of_a_team_shows_members_and_says_whether_it_beats_the_runtime(
    call: Call, model_file: Path, placement_file: Path, platform_file: Path
) -> None:
    """A whole copy on each device: one line compares it with the best way of the runtime, every member has a row."""
    ops = dict.fromkeys(json.loads(placement_file.read_text()), "left+right")
    placement_file.write_text(json.dumps(ops))
    arguments = ("--platform", platform_file, "--rounds", "3", "--burst", "0.02", "--no-cache", "--costs", "analytic")
    done = call("time", model_file, placement_file, *arguments, "--trace", "t.json", "--details")
    assert done.returncode == 0, done.stderr
    told = re.search(r"plan +(wins|draws|loses): (\d\.\d+)x \(IQR .*\) of", done.stdout)
    assert told is not None
    assert (told[1] == "draws") or ((float(told[2]) >= 1) if told[1] == "wins" else (float(told[2]) <= 1))
    assert "ways of the runtime" in " ".join(done.stdout.split())
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("0:left+right")] == [
        "left",
        "right",
    ]
    assert max(map(len, done.stdout.splitlines())) <= 80
    events = json.loads(Path("t.json").read_text())["traceEvents"]
    measured = {event["pid"] for event in events if event["ph"] == "X" and event["cat"] == "measured"}
    names = [event["args"]["name"] for event in events if event["name"] == "process_name" and event["pid"] in measured]
    assert names == ["measured: left+right"]  # equal members share a compiled model, and which one ran is not known
    refused = call("time", model_file, placement_file, *arguments, "--executor", "serial")
    assert refused.returncode == 2
    assert "one sample at a time, so that team 'left+right'" in " ".join(refused.stderr.split())


def test_placement_that_computes_something_else_is_an_error(
    call: Call, model_file: Path, placement_file: Path, platform_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is timed that is wrong: the error names the tensor."""
    from placekit.runtime import tensor_checks

    monkeypatch.setattr(tensor_checks, "TOLERANCES", {"f32": -1.0})
    arguments = ("--platform", platform_file, "--costs", "analytic")
    done = call("time", model_file, placement_file, *arguments)
    assert done.returncode == 2
    assert "of stage '0:right' differs by" in done.stderr


def test_unknown_executor_is_refused_before_anything_is_measured(
    call: Call, model_file: Path, placement_file: Path
) -> None:
    """The message lists the executors."""
    for command in (("time", model_file, placement_file), ("calibrate", model_file)):
        done = call(*command, "--executor", "rayon")
        assert done.returncode == 2
        assert "no executor 'rayon'; executors are" in done.stderr


@pytest.mark.slow
def test_calibrate_says_whether_it_helps(call: Call, model_file: Path, platform_file: Path) -> None:
    """The costs file carries what was found; analytic costs of a tiny model can only become better."""
    done = call(
        "calibrate", model_file, "--platform", platform_file, "--costs", "analytic", "--rounds", "3",
        "--burst", "0.02", "--executor", "serial", "-o", "c.json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for text in ("all on left", "held-out splits", "c.json"):
        assert text in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    told = read_costs("c.json", read_model(model_file).graph).provenance["calibration"]
    assert told["executor"] == "serial"
    assert told["applied"] == (told["error_after"] < told["error_before"])
    assert told["standard_error"]["op_scale"].keys() == {"cpu"}


@pytest.fixture
def program_file(tmp_path: Path) -> Path:
    """Return a saved PyTorch program of four layers."""
    torch = pytest.importorskip("torch")
    layers = [torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()) for _ in range(4)]
    path = tmp_path / "layers.pt2"
    torch.export.save(torch.export.export(torch.nn.Sequential(*layers).eval(), (torch.zeros(8, 64),)), path)
    return path


@pytest.mark.slow
def test_a_pytorch_program_is_solved_and_timed(call: Call, program_file: Path) -> None:
    """Measured costs by default, outputs checked, and the ways that need no plan beside the placement."""
    solved = call("solve", program_file, "-d", "cpu")
    assert solved.returncode == 0, solved.stderr
    assert "profiled" in solved.stdout
    done = call("time", program_file, "layers.placement.json", "-d", "cpu", "--rounds", "3", "--burst", "0.02")
    assert done.returncode == 0, done.stderr
    assert re.search(r"outputs +equal to cpu: \d+ tensors?", done.stdout)
    written = call("export", program_file, "layers.placement.json", "-d", "cpu", "--to", "torch-pipeline")
    assert written.returncode == 0, written.stderr
    assert (Path("layers.pipeline") / "run.py").is_file()
    for arguments, says in (
        (("--to", "vllm2"), "no such runtime; runtimes are openvino, torch-pipeline"),
        (("--to", "openvino"), "OpenVINO does not run it. Export with --to torch-pipeline"),
        (("--to", "torch-pipeline", "--hetero"), "--hetero and --queue-size go with --to openvino"),
    ):
        wrong = call("export", program_file, "layers.placement.json", "-d", "cpu", *arguments)
        assert wrong.returncode == 2
        assert says in " ".join(wrong.stderr.split())
    precise = call("profile", program_file, "--precision", "bf16")
    assert precise.returncode == 2
    assert "computes in the types that it was exported with" in " ".join(precise.stderr.split())
