"""A disk that is full: every export names the file and its bytes, and leaves what was there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

ov = pytest.importorskip("openvino")

CODE = """
import resource
from placekit.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (MOST, resource.RLIM_INFINITY))
main()
""".replace("MOST", "65536")
"""The command with a limit on the bytes of a file, to which programs have the errors of a full disk."""
PLATFORM = '[[device]]\nname = "CPU"\nkind = "cpu"\nhost = true\nopenvino = "CPU"\n'
SIZE = 256


def save_ir(folder: Path) -> Path:
    """Save a product with 256 KiB of weights."""
    from openvino import opset13 as ops

    weights = ops.constant(np.ones((SIZE, SIZE), np.float32))
    x = ops.parameter([-1, SIZE], np.float32, name="x")
    result = ops.result(ops.relu(ops.matmul(x, weights, False, False, name="product"), name="relu"), name="out")
    ov.save_model(ov.Model([result], [x], "wide"), folder / "wide.xml", compress_to_fp16=False)
    return folder / "wide.xml"


def save_onnx(folder: Path) -> Path:
    """Save a product whose weights are in a file beside it."""
    onnx = pytest.importorskip("onnx")
    weights = onnx.numpy_helper.from_array(np.ones((SIZE, SIZE), np.float32), "w")
    ends = [[onnx.helper.make_tensor_value_info(end, onnx.TensorProto.FLOAT, [1, SIZE])] for end in ("x", "y")]
    nodes = [onnx.helper.make_node("MatMul", ["x", "w"], ["y"], name="product")]
    model = onnx.helper.make_model(
        onnx.helper.make_graph(nodes, "wide", *ends, [weights]),
        ir_version=10,
        opset_imports=[onnx.helper.make_opsetid("", 18)],
    )
    onnx.save(model, folder / "wide.onnx", save_as_external_data=True, location="wide.bin", size_threshold=0)
    return folder / "wide.onnx"


def save_program(folder: Path) -> Path:
    """Save a product as a PyTorch program."""
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(SIZE, SIZE, bias=False)
    torch.export.save(torch.export.export(module, (torch.ones(1, SIZE),)), folder / "wide.pt2")
    return folder / "wide.pt2"


@pytest.mark.parametrize(
    ("save", "arguments", "file"),
    [
        (save_ir, ["--shape", "x[1,256]"], "0.bin"),
        (save_ir, ["--hetero", "--shape", "x[1,256]"], "wide.hetero.bin"),
        (save_onnx, ["--to", "onnxruntime"], "wide.onnxruntime.onnx.data"),
        (save_onnx, ["--to", "netron"], "wide.netron.onnx.data"),
        pytest.param(save_program, ["--to", "torch-pipeline"], "0.pt2", marks=pytest.mark.zoo),
    ],
)
def test_a_full_disk_is_named_and_nothing_is_left(
    save: Callable[[Path], Path], arguments: list[str], file: str, tmp_path: Path
) -> None:
    """The error has the file and its bytes; the folder is as it was."""
    from placekit.io.models.read_model import read_model

    (tmp_path / "models").mkdir()
    work = tmp_path / "work"
    work.mkdir()
    model = save(tmp_path / "models")
    (work / "cpu.toml").write_text(PLATFORM)
    graph = read_model(model, {"x": (1, SIZE)} if "--shape" in arguments else None).graph
    (work / "all.json").write_text(json.dumps(dict.fromkeys(graph.op_names, "CPU")))
    before = sorted(work.iterdir())
    done = subprocess.run(
        [sys.executable, "-c", CODE, "export", str(model), "all.json", "--platform", "cpu.toml", *arguments],
        cwd=work, env=os.environ | {"PLACEKIT_CACHE": str(tmp_path / "cache")}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: cannot write "), done.stderr
    told = re.search(rf"{re.escape(file)} \((\S+) bytes\): File too large", done.stderr)
    assert told, done.stderr
    assert 4 * SIZE * SIZE <= int(told[1].replace(",", "")) <= 4 * SIZE * SIZE + 65536  # weights, and what torch adds
    assert ".tmp" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert sorted(work.iterdir()) == before
