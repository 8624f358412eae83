"""Answers that commands print: the verdict comes first, and no figure stands there with two values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from placekit.io.files.problem_json import write_problem
from placekit.model.problem import Problem
from placekit.training.generate import chain_problem
from placekit.training.piper_json import write_piper

Call = Callable[..., Any]

_SCALES = {"us": ("s", 1e-6), "ms": ("s", 1e-3), "s": ("s", 1.0), "x": ("x", 1.0), "%": ("%", 1.0)}
_SCALES |= {f"{prefix}iB": ("B", 1024.0 ** (at + 1)) for at, prefix in enumerate("KMGT")}
_NUMBER = r"(?<![\w.#])(\d+(?:\.\d+)?(?:e[-+]?\d+)?)"
_QUANTITY = re.compile(rf"{_NUMBER} ?({'|'.join(_SCALES)}|samples/s|tokens/s)(?![\w/])")
_CHANGE = re.compile(rf"{_NUMBER} -> {_NUMBER} (us|ms|s)\b")
NEAR = 0.02
"""Relative difference below which two figures are taken for those of one thing, unless one is the other, rounded."""


WALL_TIME = "time "
"""Begin of the line that says how long a solve took, which may be close to anything."""


class Figure(NamedTuple):
    """A number that a command printed, with its rounding."""

    unit: str
    value: float
    half_digit: float
    text: str


def figure(number: str, unit: str) -> Figure:
    """Return a number in base units; `half_digit` is half of its last digit."""
    base, scale = _SCALES.get(unit, (unit, 1.0))
    mantissa, _, exponent = number.partition("e")
    digit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return Figure(base, float(number) * scale, 0.5 * digit * scale * (1 + 1e-9), f"{number} {unit}")


def figures(text: str) -> Iterator[Figure]:
    """Yield the figures of a printed answer: with their unit behind them, or in a column whose name ends with it."""
    for match in _CHANGE.finditer(text):
        yield figure(match[1], match[3])
    for match in _QUANTITY.finditer(text):
        yield figure(match[1], match[2])
    columns: list[tuple[int, str]] = []  # where columns end, and their unit
    for line in text.splitlines():
        if not line.strip() or set(line.strip()) <= {"─"}:
            columns = columns if line.strip() else []
            continue
        found = [(each.end(), each[1]) for each in re.finditer(r"\b(ms)\b(?=  |$)", line)]
        if found and "  " in line:
            columns = found
            continue
        for end, unit in columns:
            cell = re.search(rf"{_NUMBER}$", line[:end])
            if cell is not None:
                yield figure(cell[1], unit)


def conflicts(text: str, but: tuple[str, ...] = ()) -> list[str]:
    """Return pairs of figures that are almost equal, and neither is the other, rounded; none of the units `but`."""
    told = sorted(set(figures("\n".join(line for line in text.splitlines() if not line.startswith(WALL_TIME)))))
    return [
        f"{one.text} and {other.text}"
        for one, other in combinations(told, 2)
        if one.unit == other.unit
        and one.unit not in but
        and abs(one.value - other.value) < NEAR * max(one.value, other.value)
        and abs(one.value - other.value) > one.half_digit + other.half_digit + 1e-9 * one.value
    ]


def test_conflicts_are_seen() -> None:
    """Roundings of one figure pass in prose and columns; another figure close by does not."""
    table = "device  load ms  memory\n────────\nGPU       1.287  8 GiB"
    assert not conflicts(f"1.28682 ms per sample, 2.2x (2.79 -> 1.29 ms)\n{table}\n777.1 samples/s, 2.17x")
    assert conflicts(f"1.28 ms per sample\n{table}") == ["1.28 ms and 1.287 ms"]
    assert conflicts("2.17x over GPU, speedup 2.15x") == ["2.15 x and 2.17 x"]
    assert conflicts("1000 samples/s, 1010 samples/s") == ["1000 samples/s and 1010 samples/s"]


def first_line(text: str) -> str:
    """Return the first sentence of an answer, which the console may have folded."""
    return " ".join(text.partition("\n\n")[0].split())


@pytest.mark.parametrize("objective", ["throughput", "serial-latency", "makespan", "offload-latency"])
def test_answers_begin_with_the_verdict(call: Call, diamond_file: Path, tmp_path: Path, objective: str) -> None:
    """Solve and explain begin with the sentence of the result; figures have one value in every printed answer."""
    options = (
        ("--objective", objective) if objective == "makespan" else ("--objective", objective, "--contiguity", "none")
    )
    answers = [call("solve", diamond_file, *options, "-o", "d.json", *more).stdout for more in ((), ("--details",))]
    answers += [call("explain", "d.json", "--time-limit", "0", *more).stdout for more in ((), ("--details",))]
    sentence = json.loads((tmp_path / "d.result.json").read_text())["verdict"]["sentence"]
    for text in answers:
        assert first_line(text).startswith(sentence)
    answers += [call("show", "d.result.json").stdout, call("verify", "d.json").stdout]
    for text in answers:
        assert not conflicts(text), text


def test_what_is_printed_by_default_is_part_of_the_details(call: Call, diamond_file: Path) -> None:
    """`--details` adds the stages of the search and how the file was read."""
    short = call("solve", diamond_file, "-o", "d.json").stdout
    long = call("solve", diamond_file, "-o", "d.json", "--details").stdout
    for words in ("stage ", "file "):
        assert not any(line.startswith(words) for line in short.splitlines())
        assert any(line.startswith(words) for line in long.splitlines())
    assert set(short.splitlines()) - set(long.splitlines()) <= {line for line in short.splitlines() if "time" in line}


def test_a_heuristic_says_that_it_proves_nothing(call: Call, diamond: Problem, tmp_path: Path) -> None:
    """Without a bound the first line says so; with one it says how far the answer is from the best at most."""
    write_problem(diamond, tmp_path / "f.problem.json")
    greedy = call("solve", "f.problem.json", "-m", "greedy", "--contiguity", "none", "-o", "g.json").stdout
    assert "not proven" in first_line(greedy)
    proven = call("solve", "f.problem.json", "--contiguity", "none", "-o", "p.json").stdout
    assert "is faster (proven)" in first_line(proven)


def test_training_plans_begin_with_the_answer(call: Call, tmp_path: Path) -> None:
    """Plan, show and explain begin with one sentence, which compares the plan with one that is made by hand."""
    write_piper(chain_problem(6, num_devices=6, memory_bytes=2 * 2**30, tensor_degrees=(1, 2)), tmp_path / "c.json")
    solved = call("train-plan", "c.json", "--devices", "6", "--memory", "2GiB").stdout
    answer = first_line(solved)
    assert re.match(r"Train in \d stages? on \d of 6 devices: .* per batch, .*equal stages.*(proven)", answer), answer
    shown = call("show", "c.plan.json").stdout
    explained = call("explain", "c.plan.json", "c.json", "--time-limit", "0").stdout
    assert first_line(shown) == answer
    assert explained.splitlines()[0] == answer
    for text in (solved, shown, explained):
        assert not conflicts(text), text


def test_learned_answers_begin_with_the_verdict(call: Call, diamond_file: Path, tmp_path: Path) -> None:
    """Learn begins with the sentence of its result."""
    pytest.importorskip("torch")
    text = call("learn", diamond_file, "--episodes", "1", "--param", "hidden=8", "-o", "l.json").stdout
    assert first_line(text).startswith(json.loads((tmp_path / "l.result.json").read_text())["verdict"]["sentence"])
    assert not conflicts(text), text


@pytest.mark.parametrize("sequences", [1, 8])
def test_plans_for_language_models_begin_with_the_answer(call: Call, sequences: int) -> None:
    """The first line says what to do and how fast; use and limit of a card may be close, all else is one figure."""
    cards = ("--cards", "RTX 4090, RTX 3060", "--ram", "64 GB DDR5-5600 x2")
    for more in ((), ("--details",))[
        : 3 - min(sequences, 2)
    ]:  # of a batch, details have times of parts close to its own
        told = call(
            "llm", "llama3-70b", "--precision", "int4", *cards, "--for", "llama.cpp", "--sequences", sequences, *more
        )
        assert re.match(r"(Split|Run) llama3-70b.* tokens/s", first_line(told.stdout)), told.stdout
        assert not conflicts(told.stdout, ("B",)), told.stdout
