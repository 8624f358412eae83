"""Options from a TOML file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]

PLATFORM = '[[device]]\nname = "GPU"\nkind = "rtx4090"\ncount = 2\n'
OPTIONS = """
platform = "p.toml"
method = "greedy"
layers = 2
hidden = 256
kv_heads = 2
head-dim = 64
heads = 4
ffn = 512
vocab = 1000
gated = false
phase = ["prefill:64", "decode:16"]
time-limit = 5
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Return a folder with a platform and options of `llm`."""
    (tmp_path / "p.toml").write_text(PLATFORM)
    (tmp_path / "o.toml").write_text(OPTIONS)
    return tmp_path


@pytest.mark.usefixtures("files")
def test_a_file_of_options_does_what_the_options_do(call: Call) -> None:
    """Numbers, texts, flags and lists, with dashes or underscores in their names."""
    named = [word for line in OPTIONS.strip().splitlines() for word in _spelt(*line.split(" = "))]
    told = [json.loads(call("llm", *words, "--json").stdout) for words in (["--options", "o.toml"], named)]
    assert told[0]["placement"] == told[1]["placement"]
    assert told[0]["serving"] == told[1]["serving"]
    assert told[0]["method"] == "greedy"


def _spelt(key: str, value: str) -> list[str]:
    """Return an option of the file as words of the command line."""
    option, values = f"--{key.replace('_', '-')}", json.loads(value)
    if values is False:
        return [f"--no-{key}"]
    return [word for each in (values if isinstance(values, list) else [values]) for word in (option, str(each))]


@pytest.mark.usefixtures("files")
def test_the_command_line_comes_first(call: Call) -> None:
    """An option that is given twice has the value of the command line."""
    told = json.loads(call("llm", "--layers", "3", "--options", "o.toml", "--json").stdout)
    blocks = {op.split(".")[2] for op in told["placement"] if op.startswith("model.layers.")}
    assert blocks == {"0", "1", "2"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("layrs = 2", "o.toml: no option 'layrs'; options are "),
        ("layrs = 2", "did you mean 'layers'?"),
        ("gated = 1", "gated is 1; it should be true or false"),
        ("layers = [1, 2]", "layers is [1, 2]; it should be a text or a number"),
        ("layers = true", "layers is True; it should be a text or a number"),
        ("layers = 'two'", "--layers 'two': it should be a valid integer"),
        ("help = true", "no option 'help'"),
        ("layers =", "o.toml: not TOML"),
    ],
)
def test_what_a_file_gets_wrong_is_named(call: Call, files: Path, text: str, message: str) -> None:
    """One line with the file, the key and the value; exit code 2."""
    (files / "o.toml").write_text(text)
    done = call("llm", "--platform", "p.toml", "--options", "o.toml")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert message in done.stderr


@pytest.mark.parametrize("command", ["llm", "learn", "bench"])
def test_commands_with_many_options_take_a_file(call: Call, command: str) -> None:
    """The help says how."""
    assert "--options FILE.toml" in call(command, "--help").stdout
