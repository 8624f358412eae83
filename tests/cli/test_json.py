"""``--json``: one JSON object on stdout and nothing else, for every command."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from placekit.cli.command_table import COMMANDS

Call = Callable[..., Any]

SHORT = "--rounds 3 --burst 0.02"
LINES = {
    "devices": ["devices"],
    "profile": ["profile M --groups 2 --repetitions 3 -o m.costs.json"],
    "problem": ["problem M --costs analytic -o m.problem.json", "problem P -o p.problem.json"],
    "solve": [
        "solve M --groups 2 --costs m.costs.json -m greedy -o m.json",
        "solve P -m enumerate -o p.json",
    ],
    "train-plan": ["train-plan 7b --devices 8 --time-limit 5"],
    "calibrate": [f"calibrate M --groups 2 --costs m.costs.json {SHORT} -o n.costs.json"],
    "time": [f"time M m.json --groups 2 --costs m.costs.json --no-baselines {SHORT}"],
    "learn": ["learn P --episodes 1 --param hidden=8 --bound 0 -o l.json"],
    "llm": ["llm gpt2 --platform T -m greedy --problem g.problem.json -o g.json"],
    "page": ["page Q --static site"],
    "export": [
        "export M m.json --groups 2 -o bundle",
        "export g.problem.json g.json --to device-map --force -o map.json",
    ],
    "explain": ["explain p.result.json --time-limit 0", "explain 7b.plan.json 7b --time-limit 0"],
    "verify": ["verify p.result.json"],
    "show": [
        "show p.result.json",
        "show p.json",
        "show P",
        "show M",
        "show T",
        "show m.costs.json",
        "show 7b.plan.json",
    ],
    "zoo": ["zoo"],
    "bench": ["bench S -o r --dry-run", "bench S -o r"],
    "report": ["report r --table instances", "report r"],
    "methods": ["methods", "methods ilp"],
}
SUITE = """
name = "s"
[[model]]
family = "chains"
params = { num_ops = 20, num_devices = 2 }
[[method]]
name = "greedy"
"""


@pytest.mark.usefixtures("threads")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two groups of cores need two cores")
def test_every_command_prints_one_object(call: Call, diamond_file: Path, model_file: Path, tmp_path: Path) -> None:
    """What is printed beside goes to stderr, whatever the exit code of an answer."""
    (tmp_path / "p.toml").write_text('[[device]]\nname = "GPU"\nkind = "rtx4090"\n')
    (tmp_path / "s.toml").write_text(SUITE)
    (tmp_path / "q.json").write_text('[{"model": "gpt2", "cards": "RTX 4090"}]')
    places = {"Q": "q.json", "P": diamond_file, "M": model_file, "T": "p.toml", "S": "s.toml"}
    printed: dict[str, set[str]] = {}
    for line in (line for lines in LINES.values() for line in lines):
        if line.startswith("learn") and find_spec("torch") is None:
            continue
        done = call(*(places.get(word, word) for word in line.split()), "--json")
        assert done.returncode == 0, f"{line}: {done.stderr}"
        told = json.loads(done.stdout)
        assert isinstance(told, dict), line
        printed.setdefault(line.split()[0], set()).update(told)
    assert not page_differs(printed)


FORMATS = {"result": "result", "plan": "training-plan"}
"""Formats whose keys a row of the page means by their name."""
OPEN_ROWS = ("and more", "one entry per name", "other keys", "facts as", "the file as", "[more]")
"""Words of rows that do not name every key."""


def page_differs(printed: dict[str, set[str]]) -> list[str]:
    """Return the rows of docs/files.md that name keys which no command printed, or leave some out."""
    page = (Path(__file__).parents[2] / "docs" / "files.md").read_text().partition("with `--json`")[2]
    known = {name: set(json.loads(schema_of(kind))["properties"]) for name, kind in FORMATS.items()}
    found = []
    for names, keys in re.findall(r"^\| (`.*?) \| (.*) \|$", page, re.MULTILINE):
        named = {word for word in re.findall(r"`([^`]+)`", keys) if re.fullmatch(r"[\w ]+", word)}
        for command in re.findall(r"`([a-z-]+)`", names):
            got = printed.pop(command, None)
            if got is None:
                continue
            meant = named.union(*(each for name, each in known.items() if re.search(rf"\b{name}\b", keys)))
            found += [f"{command}: {key} is not printed" for key in named - got]
            if not any(words in keys for words in OPEN_ROWS):
                found += [f"{command}: {key} is not on the page" for key in got - meant]
    return found + [f"{command} is not on the page" for command in printed]


def schema_of(kind: str) -> str:
    """Return the JSON Schema of a format, as text."""
    from placekit.io.files.schemas import json_schema
    from placekit.training.plan_json import TrainingPlanModel

    model = TrainingPlanModel.model_json_schema(by_alias=True) if kind == "training-plan" else json_schema(kind)
    return json.dumps(model)


def test_no_command_is_left_out() -> None:
    """`warm-up`, whose run takes minutes, and `serve`, which needs a server, have tests of their own."""
    assert COMMANDS.keys() - LINES.keys() == {"warm-up", "serve"}
