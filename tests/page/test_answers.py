"""What the page answers is what the command line and Python answer, and a split of one's own is judged alike."""

from __future__ import annotations

import json
import shlex
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from placekit.cli.main import main
from placekit.page.answers import Answers
from placekit.page.questions import DroppedModels, QuestionError

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "tests" / "language" / "configs"
CARDS = {"model": "llama3-8b", "precision": "int4", "cards": "RTX 3060, GTX 1080", "runtime": "llama.cpp"}
QUESTIONS: list[dict[str, Any]] = [
    CARDS,
    CARDS | {"ram": "32 GB DDR4-3200 x2", "processor": "Ryzen 7 5800X", "link": "pcie3x8,pcie3x4", "context": 16384},
    CARDS | {"runtime": "vllm", "cards": "2x RTX 3090", "sequences": 8, "prompt": 1000, "generated": 50},
    CARDS | {"cache_precision": "int8", "goal": "latency"},
]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """Return what answers, with no model dropped yet."""
    return Answers(DroppedModels(tmp_path_factory.mktemp("dropped")))


def ask(answers: Answers, question: dict[str, Any]) -> dict[str, Any]:
    """Return an answer."""
    return answers.answer(question, threading.Event())


@pytest.mark.parametrize("question", QUESTIONS)
def test_command_and_python_under_an_answer_give_the_same(
    answers: Answers,
    question: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The same line, speeds and context."""
    told = ask(answers, question)
    assert told["launch"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [*shlex.split(told["command"]), "--json"])
    with pytest.raises(SystemExit):
        main()
    document = json.loads(capsys.readouterr().out)
    assert document["launch"] == told["launch"]
    assert {what: each["tokens_per_s"] for what, each in document["speed"].items()} == {
        what: pytest.approx(each["rate"]) for what, each in told["speeds"].items()
    }
    assert document["context"] == told["context"]
    exec(compile(told["python"], "python", "exec"), {})
    assert capsys.readouterr().out.startswith("\n".join(told["launch"]))


def test_the_best_split_as_ones_own_is_the_best(answers: Answers) -> None:
    """Same speeds, memory and line; and every other border of two cards is no faster."""
    best = ask(answers, CARDS)
    mine = ask(answers, CARDS | {"split": best["blocks"]})
    assert {key: mine[key] for key in ("speeds", "memory", "blocks")} == {
        key: best[key] for key in ("speeds", "memory", "blocks")
    }
    assert list(mine["launch"]) == best["launch"]
    first, last = best["blocks"][0], 1 - best["blocks"][0]
    for border in (8, 16, 24):
        other = ask(answers, CARDS | {"split": [first] * border + [last] * (32 - border)})
        assert other["tokens_per_s"] <= best["tokens_per_s"] * (1 + 1e-9)


def test_a_split_that_its_line_cannot_say_has_none(answers: Answers) -> None:
    """With the reason; its speed is told all the same."""
    told = ask(answers, CARDS | {"split": [0, 1] * 16})
    assert told["launch"] == []
    assert told["why_no_line"]
    assert told["tokens_per_s"] > 0


def test_the_best_line_read_back_has_no_gain(answers: Answers) -> None:
    """And an even split has some, or none."""
    line = "llama-server -m x.gguf -ngl 99 -ts 1,1 -c 8192"
    told = ask(answers, CARDS | {"line": line})
    again = ask(answers, CARDS | {"line": told["launch"][-1]})
    assert (again["gain"], again["loads"]) == (pytest.approx(1.0), True)
    assert told["gain"] >= 1.0


def test_comparing_tells_the_gain(answers: Answers) -> None:
    """In the verdict, and over each rival."""
    told = ask(answers, CARDS | {"compares": True})
    assert {each["kind"] for each in told["rivals"]} >= {"own choice", "fastest card alone"}
    assert "--fit" in told["verdict"]


@pytest.mark.parametrize("name", ["qwen2.5-7b.json", "..", "a/b\\c.json"])
def test_a_dropped_config_has_a_plain_name(answers: Answers, tmp_path: Path, name: str) -> None:
    """Nothing of its name is a path; the same file has the same id, and another precision another plan."""
    pytest.importorskip("transformers")
    dropped = DroppedModels(tmp_path)
    content = (CONFIGS / "qwen2.5-7b.json").read_bytes()
    model = dropped.add(name, content)
    assert dropped.add(name, content) == model
    assert set(model.partition("@")[0]).isdisjoint("/\\ ")
    own = Answers(dropped)
    lines = [
        ask(own, {"model": model, "precision": each, "cards": "RTX 4090", "runtime": "llama.cpp"})["memory"]
        for each in ("int4", "int8")
    ]
    assert lines[0] != lines[1]


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    """In one line without the folder of the server."""
    dropped = DroppedModels(tmp_path)
    for content in (b"GGUF", b"GGUF" + bytes(100), b"{}", b"\x00", b""):
        with pytest.raises(QuestionError) as told:
            dropped.add("x.gguf", content)
        assert told.value.field == "model"
        assert str(tmp_path) not in str(told.value)
