"""The page on deploying tells the truth: its commands and its snippet run, and print what it says."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as opset

from placekit.cli.main import main

PAGE = (Path(__file__).parents[1] / "docs" / "deploy.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
(COMMANDS,) = (text for language, text in BLOCKS if language == "console")
(SNIPPET,) = (text for language, text in BLOCKS if language == "python")
(OUTPUT,) = (text for language, text in BLOCKS if language == "text")


def save_classifier(path: Path) -> None:
    """Write a small model from ``image`` [1,3,32,32] to ``scores`` [1,10]."""
    rng = np.random.default_rng(0)
    image = node = opset.parameter([1, 3, 32, 32], ov.Type.f32, name="image")
    for inputs in (3, 8, 8):
        weights = opset.constant(rng.standard_normal((8, inputs, 3, 3)).astype(np.float32) / 4)
        node = opset.relu(opset.convolution(node, weights, [2, 2], [1, 1], [1, 1], [1, 1]))
    flat = opset.reshape(node, opset.constant(np.array([1, -1])), False)
    node = opset.matmul(flat, opset.constant(rng.standard_normal((128, 10)).astype(np.float32)), False, False)
    node.output(0).set_names({"scores"})
    ov.save_model(ov.Model([opset.result(node)], [image], "classifier"), path)


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two groups of cores need two cores")
def test_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands, one after the other, make the bundle that the snippet runs; the output is the one shown."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLACEKIT_CACHE", str(tmp_path / "cache"))
    save_classifier(Path("model.xml"))
    for command in COMMANDS.splitlines():
        monkeypatch.setattr(sys, "argv", shlex.split(command.removeprefix("$ ")))
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(SNIPPET, "deploy.md", "exec"), {})
    assert printed.getvalue() == OUTPUT
