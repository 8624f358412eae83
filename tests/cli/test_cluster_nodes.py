"""``profile --cluster`` and ``time --cluster``: two workers on cores of their own stand for two machines."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dask_processes import ROOT, DaskProcesses, end, wait_until

from placekit.cluster.engine import Cluster
from placekit.cluster.links import measure_link
from placekit.io.files.placement_json import write_placement
from placekit.io.files.platform_toml import read_platform
from placekit.io.models.read_model import read_model
from placekit.model.placement import Placement
from placekit.model.platform import DirectLink, Link

pytest.importorskip("openvino")
from test_docs_commands import save_small_model  # after the check

pytestmark = pytest.mark.xdist_group("devices")

DEVICE = """
[[device]]
name = "{name}"
kind = "core"
host = true
openvino = "CPU"
cores = [{core}]
properties = {{ INFERENCE_NUM_THREADS = "1", INFERENCE_PRECISION_HINT = "f32" }}
{node}
"""
LINK = """
[[direct_link]]
between_nodes = true
name = "10gbe"
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskProcesses]:
    """Start a scheduler and two workers on cores of their own."""
    with DaskProcesses(tmp_path_factory.mktemp("dask")) as made:
        made.start_worker("one", 0)
        made.start_worker("two", 1)
        made.wait_for(2)
        yield made


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a small model and a platform of two nodes."""
    folder = tmp_path_factory.mktemp("files")
    save_small_model(folder / "model.xml")
    (folder / "two.toml").write_text(platform("one", "two") + LINK)
    return folder


def platform(*nodes: str | None) -> str:
    """Return a device for each node, each on a core of its own."""
    cores = sorted(os.sched_getaffinity(0))
    return "".join(
        DEVICE.format(name=f"d{at}", core=cores[at % len(cores)], node=f'node = "{node}"' if node else "")
        for at, node in enumerate(nodes)
    )


def write_halves(files: Path, folder: Path) -> None:
    """Write a placement of the first half of the model on one node, and of the second on the other."""
    names = read_model(files / "model.xml").graph.op_names
    half = np.arange(len(names)) >= len(names) // 2
    write_placement(Placement(names, ("d0", "d1"), half.astype(np.int64)), folder / "split.json")


def test_two_machines_give_one_costs_file_and_a_platform_with_measured_links(
    cluster: DaskProcesses, files: Path, tmp_path: Path, call: Callable[..., Any]
) -> None:
    """Each node measures its own device, the link has latency, bandwidth and spread, and both files solve and time."""
    done = call(
        "profile", files / "model.xml", "--platform", files / "two.toml", "--cluster", cluster.address,
        "--repetitions", "3", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["files"] == {"costs": "model.costs.json", "platform": "model.platform.toml"}
    assert told["provenance"]["kinds"]["core"]["total_s_of_nodes"].keys() == {"one", "two"}
    found = told["provenance"]["links_between_nodes"]["one - two"]
    assert 1e7 < found["bandwidth_bytes_per_s"] < 1e11
    assert 0 < found["latency_s"] < 0.1
    read, given = read_platform(tmp_path / "model.platform.toml"), read_platform(files / "two.toml")
    link = DirectLink(found["latency_s"], found["bandwidth_bytes_per_s"], None, between_nodes=True)
    assert read == given.replace(direct_links=(link,))
    assert read.direct_links[0].spread == pytest.approx(found["spread"])

    both = ["--platform", "model.platform.toml", "--costs", "model.costs.json"]
    done = call("solve", files / "model.xml", *both, "-o", "found.json", "-m", "random", "--time-limit", "0.2")
    assert done.returncode == 0, done.stderr
    write_halves(files, tmp_path)
    done = call(
        "time", files / "model.xml", "split.json", *both, "--cluster", cluster.address,
        "--rounds", "3", "--burst", "0.02", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [stage["device"] for stage in told["stages"]] == ["d0", "d1"]
    assert all(stage["measured_s"] > 0 for stage in told["stages"])
    assert told["max_relative_error"] < 1e-5
    assert [each["name"] for each in told["contenders"]] == ["placement", "single d0", "single d1", "empty stages"]
    assert all(each["throughput_per_s"] > 0 for each in told["contenders"])
    stages_s = [stage["predicted_s"] for stage in told["stages"]]
    assert told["predicted_latency_s"] > link.latency_s + max(stages_s), "the link counts"


def test_what_a_cluster_lacks_is_told(cluster: DaskProcesses, files: Path, call: Callable[..., Any]) -> None:
    """A device without a node, a node without a worker, and a worker with fewer threads than devices."""
    (files / "none.toml").write_text(platform(None))
    (files / "gone.toml").write_text(platform("one", "gone") + LINK)
    command = ["profile", files / "model.xml", "--cluster", cluster.address, "--platform"]
    assert "device 'd0' has no node; name the machine of every device" in call(*command, files / "none.toml").stderr
    done = call(*command, files / "gone.toml")
    assert done.returncode == 2
    assert f"no worker at {cluster.address} is called 'gone'; workers are one, two. Start one" in done.stderr
    assert "--cluster measures; --costs analytic does not" in call(
        *command, files / "two.toml", "--costs", "analytic"
    ).stderr  # fmt: skip
    (files / "both.toml").write_text(platform("one", "one"))
    done = call("solve", files / "model.xml", "--platform", files / "both.toml", "-m", "greedy", "-o", "p.json")
    assert done.returncode == 0, done.stderr
    done = call("time", files / "model.xml", "p.json", "--platform", files / "both.toml", "--cluster", cluster.address)
    assert "worker 'one' has 1 threads for 2 devices; start it with --nthreads 2" in done.stderr


@pytest.mark.slow
def test_without_costs_time_measures_first(
    cluster: DaskProcesses, files: Path, tmp_path: Path, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the nodes, with the links, whose time is in the prediction; and it prints for people, too."""
    monkeypatch.setattr("placekit.cluster.links.measure_link", lambda *_: (Link(7.0, 1e9), 0.0))
    write_halves(files, tmp_path)
    done = call(
        "time", files / "model.xml", "split.json", "--platform", files / "two.toml", "--cluster", cluster.address,
        "--rounds", "3", "--burst", "0.02",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "its engine takes" in done.stdout
    assert re.search(r"^latency .* 7\.\d+ s predicted", done.stdout, re.MULTILINE)


@pytest.mark.slow
def test_a_worker_killed_while_it_measures_may_come_back(cluster: DaskProcesses, files: Path, tmp_path: Path) -> None:
    """The node measures again by the new worker of its name; the other node's measurement stays."""
    inputs = [str(files / "model.xml"), "--platform", str(files / "two.toml"), "--cluster", cluster.address]
    process = subprocess.Popen(
        [sys.executable, "-m", "placekit", "profile", *inputs, "--no-cache", "--repetitions", "2000"],
        cwd=tmp_path, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    with Cluster(cluster.address) as watched:
        wait_until(lambda: any(watched._client.processing().values()))
    end(cluster.workers["two"])
    cluster.start_worker("two", 1)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "the worker of node 'two' left; waiting for one that comes back" in err
    assert "link one - two" in out
    cluster.wait_for(2)


HAND = """
import os, socket, sys, time
role, core, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
os.sched_setaffinity(0, [core])
if role == "receive":
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    taken, buffer = listener.accept()[0], bytearray(1 << 20)
    while taken.recv_into(buffer):
        pass
else:
    sent, data, begin, count = socket.create_connection(("127.0.0.1", port)), b"1" * (1 << 20), time.perf_counter(), 0
    while time.perf_counter() - begin < 0.5:
        sent.sendall(data)
        count += len(data)
    print(count / (time.perf_counter() - begin))
"""


@pytest.mark.slow
def test_the_bandwidth_between_workers_is_that_of_a_stream_by_hand(cluster: DaskProcesses) -> None:
    """In turns with a plain socket between the same cores; within a half, as the machine may be busy."""
    cores = sorted(os.sched_getaffinity(0))
    by_hand, measured = [], []
    with Cluster(cluster.address) as connected:
        workers = connected.by_node(["one", "two"])
        for _ in range(5):
            command = [sys.executable, "-c", HAND]
            receiver = subprocess.Popen(
                [*command, "receive", str(cores[-1]), "0"], stdout=subprocess.PIPE, text=True, start_new_session=True
            )  # fmt: skip
            assert receiver.stdout is not None
            port = receiver.stdout.readline().strip()
            sender = subprocess.run(  # in a session of its own, as the workers: Linux gives each a share of the cores
                [*command, "send", str(cores[0]), port], capture_output=True, text=True, check=True,
                start_new_session=True,
            )  # fmt: skip
            receiver.wait()
            by_hand.append(float(sender.stdout))
            measured.append(measure_link(connected, workers["one"], workers["two"])[0].bandwidth_bytes_per_s)
    assert statistics.median(measured) == pytest.approx(statistics.median(by_hand), rel=0.5)
