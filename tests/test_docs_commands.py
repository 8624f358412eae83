"""Commands of the readme and of every page run in the order of their page, in one folder, on small models.

`NOT_RUN` lists every command that does not run here, with the reason.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from fuzz.training_plans import random_training_problem
from table_rows import pages as texts_of_pages

from placekit.cli.main import main
from placekit.training.piper_json import piper_to_dict

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OTHER_TESTS = {
    "docs/deploy.md": "tests/test_docs_deploy.py::test_page_runs",
    "docs/tutorial.md": "tests/test_docs_tutorial.py::test_page_runs_from_top_to_bottom",
    "docs/verify.md": "tests/test_docs_verify.py::test_page_runs",
    "docs/pytorch.md": "tests/test_docs_pages.py::test_commands_on_the_page_about_pytorch_run",
    "docs/language_models.md": "tests/test_docs_pages.py::test_commands_on_the_page_about_language_models_run",
}
"""Pages whose commands run, in their order, in a test of their own."""
NOT_RUN = {
    r"zoo (resnet50|unet|decoder)": "needs torch; the tutorial runs it; here a small model has that name",
    r".* -d CPU,GPU": "needs a GPU of OpenVINO",
    r"solve problem.json --objective shared-bus": "needs the plugin of examples/plugin (tests/test_plugins.py)",
    r"report benchmarks/rows/": "tests/benchmarks/test_named_tables.py compares its table with the page",
    r"learn .* --reward measured": "times 200 placements",
    r"page$": "answers until Ctrl-C (tests/page)",
    r"bench (?!quick)": "takes minutes to an hour, or needs files of others",
    r"report (results|predictions)/ --table": "reads rows of a suite that does not run here, or not in full",
}
"""Beginnings of commands that do not run, with the reason."""
SHORT = {
    "time": ["--rounds", "3", "--burst", "0.02", "--no-baselines"],
    "calibrate": ["--rounds", "3", "--burst", "0.02"],
    "profile": ["--repetitions", "3"],
    "learn": ["--episodes", "1", "--bound", "0"],
    "llm": ["--time-limit", "5"],
    "bench": ["--time-limit", "0.1", "-m", "local-search", "-m", "greedy"],
    "explain": ["--time-limit", "0"],
}
"""Options that make a command short; they say how long, not what."""


def pages() -> dict[str, list[str]]:
    """Return the placekit commands of every page in their order, without the program and comments."""
    found = {}
    for page, text in texts_of_pages().items():
        lines = [line for kind, block in BLOCK.findall(text) if kind == "console" for line in block.splitlines()]
        commands = [line.removeprefix("$ placekit ").partition(" #")[0].strip() for line in lines
                    if line.startswith("$ placekit ")]  # fmt: skip
        if commands:
            found[page] = commands
    return found


def reason_not_to_run(command: str) -> str | None:
    """Return why a command does not run here; None if it runs."""
    return next((why for pattern, why in NOT_RUN.items() if re.match(pattern, command)), None)


RUN = {
    page: [command for command in commands if reason_not_to_run(command) is None]
    for page, commands in pages().items()
    if page not in OTHER_TESTS
}


def write_readers_files() -> None:
    """Write what the pages take for the files of the reader: models, a workload, problems."""
    for name in ("examples", "benchmarks"):
        Path(name).symlink_to(ROOT / name)
    for name in ("resnet50.xml", "unet.xml"):
        save_small_model(Path(name))
    save_small_model(Path("model.xml"), side_by_side=True)
    (workload,) = (text for kind, text in BLOCK.findall((ROOT / "docs/workloads.md").read_text()) if kind == "json")
    Path("workload.json").write_text(workload)
    Path("mine.json").write_text('{"embed": "ACC.0", "block": "ACC.1", "head": "ACC.1"}')
    problem = next(text for kind, text in BLOCK.findall((ROOT / "docs/makespan.md").read_text()) if kind == "json")
    Path("join.problem.json").write_text(problem)
    snippet = next(text for kind, text in BLOCK.findall((ROOT / "docs/own_graph.md").read_text()) if kind == "python")
    exec(compile(snippet.partition("problem =")[0], "own_graph.md", "exec"), {})
    (questions,) = (text for kind, text in BLOCK.findall((ROOT / "docs/page.md").read_text()) if kind == "json")
    Path("questions.json").write_text(questions)
    Path("bert.json").write_text(json.dumps(piper_to_dict(random_training_problem(np.random.default_rng(0)))))


def save_small_model(path: Path, *, side_by_side: bool = False) -> None:
    """Write three convolutions as IR: in a row, or `side_by_side`, where no answer meets a bound without a search."""
    ov = pytest.importorskip("openvino")
    ops = pytest.importorskip("openvino.opset13")
    y = x = ops.parameter([1, 8, 32, 32], np.float32, name="pixel_values")
    for layer in range(3):
        source = x if side_by_side else y
        weights = np.full((8, 8, 3, 3), 0.1, dtype=np.float32)
        conv = ops.convolution(source, ops.constant(weights), [1, 1], [1, 1], [1, 1], [1, 1], name=f"conv{layer}")
        y = ops.add(y, ops.relu(conv)) if side_by_side else ops.relu(conv)
    ov.save_model(ov.Model([ops.result(y)], [x], path.stem), path, compress_to_fp16=False)


LONG = (
    "docs/suites.md", "docs/timing.md", "docs/concepts/links.md", "docs/learning.md", "docs/platforms.md"
)  # fmt: skip
"""Pages whose commands take half a minute or more."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow) if page in LONG else page
        for page, commands in RUN.items()
        if commands
    ],
)
def test_commands_run_in_the_order_of_their_page(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command ends well in one folder, which has the files of the reader and what earlier commands wrote."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLACEKIT_CACHE", str(tmp_path / "cache"))
    write_readers_files()
    for command in RUN[page]:
        words = shlex.split(command)
        if words[0] == "learn" and find_spec("torch") is None:
            continue
        words = [word.replace("model.onnx", "model.xml") for word in words]
        monkeypatch.setattr(sys, "argv", ["placekit", *words, *SHORT.get(words[0], [])])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code, f"{page}: {command}: {capsys.readouterr().err}"


def test_every_reason_is_needed() -> None:
    """No entry of the lists stands for a page or a command that is gone."""
    everything = [command for commands in pages().values() for command in commands]
    assert [page for page in OTHER_TESTS if page not in pages()] == []
    assert [pattern for pattern in NOT_RUN if not any(re.match(pattern, command) for command in everything)] == []
