"""Answers of the page as JSON values: a plan, a split that was dragged, and a launch line that was pasted."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from placekit.language.commands.answer_parts import verdict_text
from placekit.language.planning.answer import Answer
from placekit.language.planning.plan import first_card
from placekit.language.planning.planner import plan_serving
from placekit.language.planning.question import Search
from placekit.language.planning.read_line import read_line
from placekit.language.report import ServingReport, serving_report
from placekit.language.runtimes.launch import launch_lines
from placekit.language.task import LanguageTask
from placekit.model.blocks.block_paths import BEFORE, BEHIND, block_numbers
from placekit.model.errors import PlacekitError
from placekit.model.placement import Placement
from placekit.page.questions import DroppedModels, Question, QuestionError, blamed_on
from placekit.solve.stop import MaxRuntime, is_wanted, wanted_until
from placekit.solvers.chain.dynamic_program import StoppedError

MAX_SECONDS = 20.0
"""Time to solve all cases of a question."""
SEARCH = Search(stop=lambda spent_s: MaxRuntime(max(MAX_SECONDS - spent_s, 0.0)))
MAX_ANSWERS = 32
"""Answers that are kept for splits of them."""


class GoneError(Exception):
    """The page that asked is gone."""


class Answers:
    """Answers to questions, of which the last ones are kept."""

    def __init__(self, dropped: DroppedModels) -> None:
        self._dropped = dropped
        self._kept: OrderedDict[Question, Answer] = OrderedDict()
        self._lock = threading.Lock()

    def answer(self, document: Any, gone: threading.Event) -> dict[str, Any]:
        """Return the best plan of a question, or what its ``split`` or its ``line`` delivers.

        With ``compares`` the plan is also compared with the runtime's own choice and with fewer cards.
        """
        more = dict(document) if isinstance(document, dict) else {}
        split, line, compares = more.pop("split", None), more.pop("line", None), bool(more.pop("compares", False))
        question = Question.of(more if isinstance(document, dict) else document)
        try:
            with wanted_until(gone.is_set):
                if line is not None:
                    return self._line(question, line)
                return self._plan(question, compares=compares) if split is None else self._split(question, split)
        except StoppedError:
            raise GoneError from None

    def _plan(self, question: Question, *, compares: bool) -> dict[str, Any]:
        answer = self._answer(question, compares=compares)
        plan, placement = answer.plan, answer.result.placement
        told = {
            "verdict": verdict_text(answer).plain,
            "status": str(answer.result.status),
            "launch": list(answer.launch),
            "command": question.command,
            "python": question.python,
            "context": asdict(answer.context),
            "rivals": [each.to_dict(plan) for each in answer.rivals],
        }
        if placement is None or plan.report is None:
            return told
        return told | _delivered(answer, plan.task, plan.report, placement)

    def _split(self, question: Question, devices: Any) -> dict[str, Any]:
        """Return what a split delivers that gives every block a device, by its index."""
        answer = self._answer(question)
        best = answer.result.placement
        if best is None:
            raise QuestionError("split", "nothing fits, so there is no split to change")
        problem = answer.plan.task.problem
        number, home = block_numbers(problem.graph), best.device_of_op.copy()
        blocks, most = int(number.max()) + 1, problem.platform.num_devices
        is_list = isinstance(devices, list) and all(type(each) is int and 0 <= each < most for each in devices)
        if not is_list or len(devices) != blocks:
            raise QuestionError("split", f"a split has a device from 0 to {most - 1} for each of {blocks} blocks")
        first, last = (int(home[number == at][0]) for at in (0, blocks - 1))
        home[number >= 0] = np.asarray(devices)[number[number >= 0]]
        for outside, block, end in ((BEFORE, first, devices[0]), (BEHIND, last, devices[-1])):
            home[(number == outside) & (best.device_of_op == block)] = end  # what stood with a block stays with it
        placement = Placement(best.op_names, best.device_names, home)
        task = _task_for(answer, placement)
        with blamed_on("split"):
            told = _delivered(answer, task, serving_report(task, placement), placement)
        told["launch"] = []
        if answer.plan.runtime is not None and told["loads"]:
            try:
                told["launch"] = launch_lines(answer.plan.runtime.name, answer.model.name, problem, placement)
            except PlacekitError as error:
                told["why_no_line"] = str(error)
        return told

    def _line(self, question: Question, line: Any) -> dict[str, Any]:
        """Return what a launch line does, and how many times as fast the best plan is."""
        if not isinstance(line, str) or not line.strip() or len(line) > 8000:
            raise QuestionError("line", "a launch line is a text of at most 8000 characters")
        given, platform = question.given(self._dropped), question.platform
        with blamed_on("line"):
            read = read_line(line, given, platform, wishes=question.wishes, search=SEARCH)
        told = _delivered(read.best, read.task, read.report, read.placement)
        return told | {"gain": read.gain, "runtime": read.launch.runtime.name, "launch": list(read.best.launch)}

    def _answer(self, question: Question, *, compares: bool = False) -> Answer:
        with self._lock:
            kept = self._kept.get(question)
        if kept is not None and (kept.rivals or not compares):
            return kept
        given, platform = question.given(self._dropped), question.platform
        wishes = replace(question.wishes, compares=compares)
        with blamed_on("cards"):
            answer = plan_serving(given, platform, question.runtime or None, wishes=wishes, search=SEARCH)
        if not is_wanted():
            raise GoneError
        with self._lock:
            self._kept[question] = answer
            while len(self._kept) > MAX_ANSWERS:
                self._kept.popitem(last=False)
        return answer


def _task_for(answer: Answer, placement: Placement) -> LanguageTask:
    """Return the task with the costs that hold for a placement: those of its first card."""
    task = answer.plan.task
    kind = first_card(task, placement)
    if task.first_kind in (None, kind):
        return task
    same = (plan.task for plan in answer.tried if plan.task.hosted_blocks == task.hosted_blocks)
    return next((other for other in same if other.first_kind == kind), task)


def _delivered(answer: Answer, task: LanguageTask, report: ServingReport, placement: Placement) -> dict[str, Any]:
    """Return speeds, memory and the device of every block."""
    number, devices = block_numbers(task.problem.graph), task.problem.platform.devices
    blocks = [int(placement.device_of_op[number == at][0]) for at in range(int(number.max()) + 1)]
    held = {each.device: each for each in report.memory}
    total = {each.name: each.memory_bytes for each in answer.machine.devices}
    usable = {name: each for each in task.platform.devices for name in each.member_names}
    memory: list[dict[str, Any]] = []
    for name, device in usable.items():
        here = held.get(name)
        limit = None if device.memory_bytes is None else device.memory_bytes / device.degree
        limit = limit if here is None else here.limit_bytes
        used = (here.weight_bytes, here.cache_bytes, here.activation_bytes) if here else (0.0, 0.0, 0.0)
        memory.append({
            "device": name, "is_host": device.is_host, "weights": used[0], "cache": used[1], "buffers": used[2],
            "limit": limit, "total": total.get(name), "free": None if limit is None else limit - sum(used),
        })  # fmt: skip
    factors = {what: each.factor for what, each in answer.speeds.items()}
    rates = {"prompt": report.prompt_tokens_per_s, "generated": report.generated_tokens_per_s}
    return {
        "speeds": {
            what: {"rate": rate, "least": factor and rate / factor, "most": factor and rate * factor}
            for what, rate in rates.items()
            if rate is not None
            for factor in (factors.get(what),)
        },
        "tokens_per_s": report.tokens_per_s,
        "blocks": blocks,
        "teams": [list(device.member_names) for device in devices],
        "memory": memory,
        "hosted": f"{task.hosted_layers} of {task.hosted_blocks} blocks" if task.hosted_blocks else "",
        "loads": all(each["free"] is None or each["free"] > -1 for each in memory),
    }
