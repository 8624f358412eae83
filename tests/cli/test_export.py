"""``placekit export``: from a model and a placement to a folder that runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placekit import runtime
from placekit.cost_models.openvino.devices import shared_core
from placekit.io.models.read_model import read_model
from placekit.runtime import tensor_checks
from placekit.runtime.bundles import bundle_check

Call = Callable[..., Any]


@pytest.fixture
def platform_file(tmp_path: Path) -> Path:
    """Return a platform of two CPUs that share all cores, so that the tests run on any machine."""
    device = '[[device]]\nname = "{}"\nkind = "cpu"\nhost = true\nopenvino = "CPU"\n'
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


def test_a_bundle_runs(call: Call, model_file: Path, placement_file: Path, platform_file: Path) -> None:
    """The folder is called after the model, the report names the stages, and the bundle computes."""
    done = call("export", model_file, placement_file, "--platform", platform_file)
    assert done.returncode == 0, done.stderr
    for text in ("0:right", "1:left", "tiny.bundle", "1 tensor, 32 KiB", "one sample run through 2 stages"):
        assert text in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    sample = np.random.default_rng(0).standard_normal((1, 8, 32, 32), dtype=np.float32)
    expected = shared_core().compile_model(model_file, "CPU")(sample)[0]
    with runtime.load("tiny.bundle") as pipe:
        np.testing.assert_allclose(pipe([sample]).popitem()[1], expected, rtol=0, atol=0.05 * expected.std())


def test_json_names_stages_and_files(call: Call, model_file: Path, placement_file: Path, platform_file: Path) -> None:
    """One object: stages, bytes between them, queue size, and where the bundle is."""
    done = call(
        "export", model_file, placement_file, "--platform", platform_file, "-o", "b", "--queue-size", "3", "--json"
    )
    printed = json.loads(done.stdout)
    assert [stage["device"] for stage in printed["stages"]] == ["right", "left"]
    assert sum(stage["num_ops"] for stage in printed["stages"]) == 13
    assert printed["cut_bytes"] == 4 * 8 * 32 * 32
    assert printed["files"] == {"bundle": "b"}
    assert json.loads(Path("b/manifest.json").read_text())["queue_size"] == 3


def test_a_bundle_has_no_command_per_node(
    call: Call, model_file: Path, placement_file: Path, platform_file: Path
) -> None:
    """One process runs it; commands that start a process per machine are for programs of torch."""
    text = platform_file.read_text()
    for name in ("left", "right"):
        text = text.replace(f'name = "{name}"', f'name = "{name}"\nnode = "{name}"')
    link = "[[direct_link]]\nbetween_nodes = true\nlatency_s = 1e-4\nbandwidth_bytes_per_s = 1e9\n"
    platform_file.write_text(text + link)
    done = call("export", model_file, placement_file, "--platform", platform_file, "--no-check", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["start"] == {}


def test_results_are_placements_too(call: Call, model_file: Path) -> None:
    """The result that ``solve`` writes can be exported, at other shapes as well."""
    devices = ("-d", "CPU")
    assert call("solve", model_file, *devices, "--costs", "analytic", "--method", "single").returncode == 0
    assert call("export", model_file, "tiny.result.json", *devices, "--shape", "image[2,8,16,16]").returncode == 0
    whole = shared_core().read_model(model_file)
    whole.reshape([2, 8, 16, 16])
    sample = np.random.default_rng(0).standard_normal((2, 8, 16, 16), dtype=np.float32)
    expected = shared_core().compile_model(whole, "CPU")(sample)[0]
    with runtime.load("tiny.bundle") as pipe:
        np.testing.assert_allclose(pipe([sample]).popitem()[1], expected, rtol=0, atol=0.05 * expected.std())


def test_affinities_for_hetero(call: Call, model_file: Path, tmp_path: Path) -> None:
    """With ``--hetero``: the device of every op, and a script that compiles the model with them."""
    graph = read_model(model_file).graph
    (tmp_path / "all.json").write_text(json.dumps(dict.fromkeys(graph.op_names, "CPU")))
    done = call("export", model_file, "all.json", "-d", "CPU", "--hetero", "--json")
    assert done.returncode == 0, done.stderr
    files = json.loads(done.stdout)["files"]
    assert files == {"affinities": "tiny.hetero.json", "loader": "tiny.hetero.py"}
    assert "one sample run on HETERO:CPU" in json.loads(done.stdout)["checked"]
    # an output goes where its producer is, whatever the file calls it
    ops = [name for name, kind in zip(graph.op_names, graph.op_types, strict=True) if kind != "Result"]
    assert json.loads(Path(files["affinities"]).read_text()) == dict.fromkeys(ops, "CPU")
    loaded = subprocess.run([sys.executable, files["loader"]], check=True, capture_output=True, text=True)
    assert loaded.stdout == "compiled for CPU\n"


def test_a_copy_for_netron(call: Call, model_file: Path, placement_file: Path, platform_file: Path) -> None:
    """The report names the copy and ends with it, as there is no command; ``--json`` prints one object."""
    arguments = ("export", model_file, placement_file, "--platform", platform_file, "--to", "netron")
    done = call(*arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split()[-1] == "tiny.netron.xml"
    assert Path("tiny.netron.xml").read_text().count('device="right"') > 0
    assert json.loads(call(*arguments, "--json").stdout)["files"] == {"model": "tiny.netron.xml"}


def test_model_explorer_shows_the_times_of_a_problem(call: Call) -> None:
    """In milliseconds, of every op on its device."""
    subprocess.run([sys.executable, "-c", PIPELINE], check=True)
    Path("chain.json").write_text(json.dumps({"layers.0": "gpu.0", "layers.1": "tpu.0"}))
    assert call("export", "chain.problem.json", "chain.json", "--to", "model-explorer", "-o", "m.json").returncode == 0
    assert {each["value"] for each in json.loads(Path("m.json").read_text())["results"].values()} == {4.0}


def test_a_check_that_fails_is_one_line(
    call: Call, model_file: Path, placement_file: Path, platform_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code says so and nothing is written; without the check the bundle is there."""
    monkeypatch.setattr(tensor_checks, "MOST_ERROR", -1.0)
    monkeypatch.setattr(bundle_check, "_is_repeatable", lambda *_: True)
    arguments = ("export", model_file, placement_file, "--platform", platform_file)
    before = sorted(Path().iterdir())
    done = call(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "stage '0:right': its output " in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert sorted(Path().iterdir()) == before
    done = call(*arguments, "--no-check", "--json")
    assert json.loads(done.stdout)["checked"] == "nothing (--no-check)"
    assert Path("tiny.bundle").is_dir()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["MODEL", "PLACEMENT", "-d", "CPU"], "no device 'left' on this platform"),
        (["MODEL", "PLATFORM", "--platform", "PLATFORM"], "a platform file places no ops"),
        (["MODEL", "PLACEMENT", "--platform", "PLATFORM", "-o", "."], "exists and is no bundle"),
        (["MODEL", "PLACEMENT", "--platform", "PLATFORM", "--queue-size", "0"], "queue_size is 0; it must be >= 1"),
        (["MODEL", "PLACEMENT", "--platform", "PLATFORM", "-o", "no/where"], "cannot write no/where"),
        (["MODEL", "PLACEMENT", "--platform", "PLATFORM", "--hetero"], "HETERO"),
        (["MODEL", "PLACEMENT", "--hetero", "--queue-size", "2"], "--queue-size goes with a bundle"),
        (["MODEL", "PLACEMENT", "--hetero", "-o", "tiny.placement.json"], "it is an input; it would be overwritten"),
        (["MODEL", "PLACEMENT", "--hetero", "--to", "vllm"], "go with --to openvino, not with --to vllm"),
        (
            ["MODEL", "PLACEMENT", "--platform", "PLATFORM", "--to", "torch-pipeline"],
            "tiny.xml is no PyTorch program (.pt2)",
        ),
        (["MODEL", "PLACEMENT", "--to", "vlm"], "--to vlm: no such runtime; runtimes are"),
    ],
)
def test_bad_input_is_one_line(
    call: Call, model_file: Path, placement_file: Path, platform_file: Path, arguments: list[str], message: str
) -> None:
    """Exit code 2, and a line that says what is wrong."""
    files = {"MODEL": model_file, "PLACEMENT": placement_file, "PLATFORM": platform_file}
    done = call("export", *(files.get(each, each) for each in arguments))
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


PIPELINE = """
import placekit as pk
names = ["layers.0", "layers.1"]
graph = pk.OpGraph.from_edges(names, [names], name="chain").replace(op_weight_bytes=[1.0, 1.0])
costs = pk.CostTable(("gpu", "tpu"), [[4e-3, 9e-3], [9e-3, 4e-3]], [[1e-3, 1e-3]], [1, 1])
pk.write_problem(pk.Problem(graph, pk.Platform.of(gpu=1, tpu=1), costs), "chain.problem.json")
"""


@pytest.mark.parametrize("runtime", ["device-map", "accelerate"])
def test_a_pipeline_is_not_exported_to_what_runs_one_part_after_another(call: Call, runtime: str) -> None:
    """The message has the time there, that of one device, and the command that solves for it; --force exports."""
    subprocess.run([sys.executable, "-c", PIPELINE], check=True)
    export = ("export", "chain.problem.json", "chain.placement.json", "--to", runtime)
    assert call("solve", "chain.problem.json", "-m", "enumerate").returncode == 0
    refused = call(*export)
    assert refused.returncode == 2
    for text in ("accelerate runs the parts", "10 ms per sample, not the 5 ms of throughput", "13 ms on gpu.0 alone",
                 "placekit solve chain.problem.json --objective serial-latency", "--force"):  # fmt: skip
        assert text in refused.stderr
    assert call(*export, "--force").returncode == 0
    for objective in ("serial-latency", "makespan"):  # the second takes as long there as it promises
        assert call("solve", "chain.problem.json", "--objective", objective).returncode == 0
        assert call(*export).returncode == 0


@pytest.mark.parametrize("arguments", [[], ["--hetero"]])
def test_a_device_that_would_lose_its_ops_is_refused(call: Call, tmp_path: Path, arguments: list[str]) -> None:
    """Shapes are computed in advance, so nothing would be left for it; without it, the plan is one stage."""
    ov = pytest.importorskip("openvino")
    ops = pytest.importorskip("openvino.opset13")
    x = ops.parameter([2, 6], np.float32, name="x")
    act = ops.relu(x, name="act")
    swapped = ops.gather(ops.shape_of(act, name="shape"), [1, 0], 0, name="swapped")
    model = ov.Model([ops.result(ops.reshape(act, swapped, special_zero=False, name="turn"), name="out")], [x], "m")
    ov.save_model(model, tmp_path / "turned.xml")
    device = '[[device]]\nname = "{0}"\nkind = "x"\nhost = true\nopenvino = "{0}"\n'
    (tmp_path / "two.toml").write_text(device.format("CPU") + device.format("GPU"))
    placed = dict.fromkeys(read_model(tmp_path / "turned.xml").graph.op_names, "CPU")
    for lost in (["shape", "swapped"], []):
        (tmp_path / "p.json").write_text(json.dumps(placed | dict.fromkeys(lost, "GPU")))
        done = call("export", "turned.xml", "p.json", "--platform", "two.toml", *arguments)
        if lost:
            assert done.returncode == 2
            assert "device 'GPU' has 2 ops in the placement and none in the export (shape, swapped)" in done.stderr
            assert not list(tmp_path.glob("turned.bundle")) + list(tmp_path.glob("turned.hetero*"))
        else:
            assert done.returncode == 0, done.stderr
            assert "one stage: all runs on CPU" in done.stdout
