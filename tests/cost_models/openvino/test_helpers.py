"""OpenVINO's helper threads: a group of several cores has them, whatever was measured before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import json, os, time
from pathlib import Path
import numpy as np
import placekit as pk
from openvino import Model, Type, save_model, opset13 as opset
from placekit.cost_models.openvino.counters import compile_properties
from placekit.cost_models.openvino.devices import core_groups, shared_core
from placekit.cost_models.openvino.machine import running_on

cores = [int(each) for each in os.environ["CORES"].split(",")]
x = opset.parameter([512, 512], Type.f32)
y = x
for _ in range(4):
    y = opset.matmul(y, opset.constant(np.ones((512, 512), np.float32) / 512), False, False)
model = Model([opset.result(y)], [x], "wide")
save_model(model, "wide.xml")
source = pk.read_model("wide.xml")
profiled = pk.Profiled(cache=None, repetitions=3, noise_retries=0)
for size in (1, 2):
    profiled.cost_table(source, core_groups(threads=[size], cores=cores[:size]))

def busy():
    return {each.name: sum(map(int, (each / "stat").read_text().rsplit(")", 1)[1].split()[11:13]))
            for each in Path("/proc/self/task").iterdir()}

(device,) = core_groups(threads=[2], cores=cores).devices
with running_on(device.cores):
    compiled = shared_core().compile_model(model, "CPU", compile_properties("CPU", device.properties))
    request = compiled.create_infer_request()
    before, end = busy(), time.perf_counter() + 1.5
    while time.perf_counter() < end:
        request.infer({0: np.ones((512, 512), np.float32)})
    after = busy()
print(json.dumps(sorted(after[each] - before.get(each, 0) for each in after)[-2:]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the times of threads from /proc")
def test_a_larger_group_is_measured_on_all_of_its_cores(tmp_path: Path) -> None:
    """After a group of one core, whose measurement is the first that OpenVINO compiles for."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        pytest.skip("needs two cores")
    environment = {**os.environ, "CORES": ",".join(map(str, cores))}
    command = [sys.executable, "-c", _PROGRAM]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    second, first = json.loads(done.stdout)
    assert second > 0.2 * first > 0
