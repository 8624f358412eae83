"""The picture of a plan: blocks by device, and the memory of each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import placekit as pk
from placekit.cost_models.sheets.machines import machine_of
from placekit.language.commands.answer_plot import plot_answer
from placekit.model.errors import InvalidProblemError


def labels(model: str, cards: str, **wishes: Any) -> tuple[list[str], pk.Answer]:
    """Return the labels of the blocks, and the plan."""
    answer = pk.plan_serving(model, machine_of(cards, "64 GB DDR5-6000 x2").platform(), "llama.cpp", **wishes)
    blocks, memory = plot_answer(answer).axes
    assert answer.report is not None
    assert [each.get_text() for each in memory.get_yticklabels()] == [each.device for each in answer.report.memory]
    return [str(each.get_label()) for each in blocks.containers], answer


def test_blocks_and_memory_are_those_of_the_plan() -> None:
    """One bar per device with blocks and one per memory; widths are bytes."""
    told, answer = labels("llama3-70b", "RTX 4090, RTX 3060", precision="int4")
    assert told == [f"{each.device}: {each.blocks}" for each in answer.places]
    _, memory = plot_answer(answer).axes
    assert answer.report is not None
    weights = [patch.get_width() for patch in memory.containers[1]]
    assert weights == pytest.approx([each.weight_bytes / 2**30 for each in answer.report.memory])


def test_experts_on_the_host_are_halves_of_their_blocks() -> None:
    """The host computes the experts of first blocks; the card has the other half of these, and the rest whole."""
    told, answer = labels("gpt-oss-120b", "RTX 5090")
    hosted = answer.plan.task.hosted_blocks
    assert hosted > 0
    assert told == ["rtx-5090: 36", f"CPU: experts of {hosted}"]
    blocks, _ = plot_answer(answer).axes
    heights = [patch.get_height() for patch in blocks.containers[0]]
    assert heights == [0.5] * hosted + [1.0] * (36 - hosted)


def test_nothing_to_draw_is_an_error(call: Callable[..., Any], tmp_path: Path) -> None:
    """A plan that does not exist has no picture, and `serve` draws none."""
    small = machine_of("RTX 3060", "8 GB DDR4-3200 x2").platform()
    with pytest.raises(InvalidProblemError, match="llama3-70b does not fit: there is no plan to draw"):
        plot_answer(pk.plan_serving("llama3-70b", small, "llama.cpp"))
    done = call("serve", "x.gguf", "--plot", "x.png")
    assert (done.returncode, done.stderr.strip()) == (2, "error: --plot goes with placekit llm, not with serve")
    drawn = call("llm", "llama3-8b", "--precision", "int4", "--cards", "RTX 3060", "--plot", "x.svg")
    assert drawn.returncode == 0, drawn.stderr
    assert "wrote plot" in drawn.stdout
    assert (tmp_path / "x.svg").read_text().startswith("<?xml")
