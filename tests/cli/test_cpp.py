"""A C++ program without placekit runs the stages of a bundle: examples/cpp, against the headers of OpenVINO's wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placekit.cost_models.openvino.devices import shared_core

PROGRAM = Path(__file__).parents[2] / "examples" / "cpp" / "run_bundle.cpp"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two groups of cores need two cores")
def test_a_program_in_cpp_runs_the_stages_of_a_bundle(
    call: Callable[..., Any], model_file: Path, tmp_path: Path
) -> None:
    """It compiles with headers and library of the wheel, and its outputs are those of the whole model."""
    ov = pytest.importorskip("openvino")
    wheel = Path(ov.__file__).parent
    (library,) = (wheel / "libs").glob("libopenvino.so.*")
    pins = ("--pin", "conv0?=CPU[0]", "--pin", "conv1?=CPU[1]")
    solve = ("solve", model_file, "--groups", "2", "--teams", "off", "--costs", "analytic", *pins, "-o", "m.json")
    for command in (solve, ("export", model_file, "m.json", "--groups", "2", "-o", "m.bundle")):
        done = call(*command)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "m.bundle" / "1.xml").exists()
    build: list[str | Path] = [
        "g++",
        "-std=c++17",
        f"-I{wheel / 'include'}",
        PROGRAM,
        library,
        f"-Wl,-rpath,{wheel / 'libs'}",
    ]
    subprocess.run([*build, "-o", tmp_path / "run_bundle"], check=True)
    sample = np.random.default_rng(0).standard_normal((1, 8, 32, 32), dtype=np.float32)
    sample.tofile(tmp_path / "in.f32")
    subprocess.run([tmp_path / "run_bundle", "m.bundle", "in.f32", "out.f32", "CPU", "CPU"], cwd=tmp_path, check=True)
    whole = shared_core().compile_model(model_file, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(sample)[0]
    found = np.fromfile(tmp_path / "out.f32", dtype=np.float32).reshape(whole.shape)
    np.testing.assert_allclose(found, whole, rtol=0, atol=1e-5 * whole.std())
