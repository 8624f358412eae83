"""``placekit explain``: explain a placement in sentences."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from placekit.advice.changes import WhatIf
from placekit.advice.explain import Explanation, Move
from placekit.advice.explain import explain as explain_answer
from placekit.advice.worth import Worth
from placekit.cli.console import tell
from placekit.cli.inputs.answers import answered_problem, result_file
from placekit.cli.inputs.task import TaskOptions
from placekit.cli.options import DetailsOption, JsonOption, QuestionArgument
from placekit.cli.output.progress import StepBar
from placekit.cli.output.render import paragraphs
from placekit.cli.output.units import format_count, format_time
from placekit.cli.output.verdicts import answer_lines
from placekit.cli.parameters import SEARCH, option
from placekit.io.files.detect import kind_of_file
from placekit.io.files.result_json import read_result
from placekit.model.device_groups import JOINT
from placekit.model.problem import Problem
from placekit.model.reprs import short_list
from placekit.model.sizes import format_bytes, format_seconds, format_share
from placekit.solve.result import SOLVER_TOLERANCE
from placekit.solve.stop import relative_gap

EXPLAINED = {"training-plan": "placekit.training.commands.shown:explain_training"}
"""Functions that explain files of a product, by their kind."""


def explain(
    file: Annotated[Path, typer.Argument(help="Result, placement or training plan (.json).", show_default=False)],
    model: QuestionArgument = None,
    *,
    asked: TaskOptions,
    time_limit: float = option(2.0, "Time for each question that needs a solve; 0 asks none.", "SECONDS", panel=SEARCH),
    details: DetailsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Explain a result: bottleneck, cuts, moves, constraints, and what each device, or one more, brings.

    placekit keeps the problem of every result that was solved on this machine. For other results give the model, and
    the options of `placekit solve` that shaped the problem; both are checked.
    """
    own = EXPLAINED.get(kind_of_file(file))
    if own is not None:
        pkgutil.resolve_name(own)(file, model, time_limit, as_json=as_json)
        return
    file = result_file(file)
    result = read_result(file)
    problem = answered_problem(file, result, model, asked)
    with StepBar() as bar:
        found = explain_answer(problem, result, time_limit_s=time_limit, on_step=bar)
    tell(as_json, found.to_dict(), explanation_parts(found, problem, details=details))


MAX_CUTS = 5
DETAILS = ("cut tensors", "single moves", "more search")
"""Headings that `--details` prints."""
_NOT_SEARCHED = "Not searched (--time-limit 0)."


def explanation_parts(found: Explanation, problem: Problem, *, details: bool) -> Iterator[RenderableType]:
    """Yield the verdict, and the paragraphs of an explanation, each under its heading."""
    told: list[list[RenderableType]] = [
        [Text(heading, style="bold"), *(Padding(Text(line), (0, 0, 0, 2)) for line in lines)]
        for heading, lines in sentences(found).items()
        if details or heading not in DETAILS
    ]
    yield from paragraphs(answer_lines(found.verdict, problem), *told)


def sentences(found: Explanation) -> dict[str, list[str]]:
    """Return the sentences of an explanation by heading."""
    return {
        "bottleneck": _bottleneck(found),
        "cut tensors": _cuts(found),
        "single moves": _moves(found),
        "more search": _searching_on(found),
        "constraints": _constraints(found),
        "what each device brings": [_worth(each) for each in found.worths] or [_NOT_SEARCHED],
        "what more would bring": _more(found),
    }


def _bottleneck(found: Explanation) -> list[str]:
    load, total = found.bottleneck, found.objective_s
    gap = relative_gap(total, found.bound_s)
    how_good = "no bound is known"
    if gap is not None:
        how_good = f"gap {format_share(gap)} to the best bound known of a placement{found.rules}"
    if gap is not None and gap <= SOLVER_TOLERANCE:
        how_good = f"no placement{found.rules} is better (proven)"
    lines = [f"{found.problem_name}: {found.objective_name} {format_time(total)}, {how_good}."]
    parts = f"{format_time(load.compute_s)} of ops and {format_time(load.transfer_s)} of transfers"
    if found.objective_name == "throughput":
        who, member = (f"Team {load.team}", f" on {load.device}") if load.team else (load.device, "")
        lines.append(f"{who} is the bottleneck: {format_time(load.load_s)} per sample, {parts}{member}.")
        place = load.team or load.device
        idle = [each for each in found.loads if each.num_ops and (each.team or each.device) != place]
        if idle and total > 0:
            least = min(idle, key=lambda each: each.load_s)
            lines.append(
                f"{least.device} is the least busy other device, at {format_share(least.load_s / total)} of that load."
            )
    else:
        share = format_share(load.load_s / total) if total > 0 else "all"
        lines.append(f"{load.device} is the busiest device: {format_time(load.load_s)} ({share} of it), {parts}.")
    unused = [each.device for each in found.loads if not each.num_ops]
    if unused:
        lines.append(f"Without any op: {', '.join(unused)}.")
    return lines


def _cuts(found: Explanation) -> list[str]:
    if not found.cuts:
        return ["No tensor crosses devices."]
    total = sum(cut.cost_s for cut in found.cuts)
    lines = [
        f"{format_count(len(found.cuts), 'tensor')} cross devices; moving them costs all devices together "
        f"{format_time(total)}, {found.bottleneck.device} {format_time(sum(c.bottleneck_cost_s for c in found.cuts))}."
    ]
    for cut in found.cuts[:MAX_CUTS]:
        size = f" ({format_bytes(cut.num_bytes)})" if cut.num_bytes else ""
        lines.append(
            f"{cut.op}{size} from {cut.source} to {', '.join(cut.targets)}: {format_time(cut.cost_s)}, "
            f"of it {format_time(cut.bottleneck_cost_s)} on {found.bottleneck.device}"
        )
    if len(found.cuts) > MAX_CUTS:
        lines.append(f"and {len(found.cuts) - MAX_CUTS} more")
    return lines


def _moves(found: Explanation) -> list[str]:
    if found.num_moves == 0:
        return ["No op can move: all are pinned, or there is one device, or one team of all devices."]
    scored = f"{found.num_moves_tried} of {found.num_moves} moves were scored"
    every = "single move" if found.num_moves_tried == found.num_moves else "single move of these"
    if not found.moves:
        return [f"No {every} keeps the placement feasible ({scored})."]
    best = found.moves[0]
    if best.change_s < 0:
        first = f"A single move would help: {_moved(best)} ({scored})."
    elif best.change_s == 0:
        first = f"Other placements are equal; the move that hurts least costs nothing: {_moved(best)} ({scored})."
    else:
        first = f"Every {every} hurts; the least: {_moved(best)} ({scored})."
    lines = [first, *(f"next: {_moved(move)}" for move in found.moves[1:])]
    if found.off_bottleneck is not None and found.off_bottleneck not in found.moves:
        lines.append(f"The least harmful move away from {found.bottleneck.device}: {_moved(found.off_bottleneck)}")
    return lines


def _moved(move: Move) -> str:
    what = move.op if move.num_ops == 1 else f"{move.op} and {move.num_ops - 1} more"
    sign = "-" if move.change_s < 0 else "+"
    return f"{what} from {move.source} to {move.target}, {sign}{format_time(abs(move.change_s))}"


def _searching_on(found: Explanation) -> list[str]:
    now = found.unchanged
    if now is None or now.objective_s is None:
        return [_NOT_SEARCHED]
    took = f"{now.method}, {format_time(now.time_s)}"
    if now.objective_s < found.objective_s * (1 - SOLVER_TOLERANCE):
        better = format_share(1 - now.objective_s / found.objective_s)
        return [
            f"A search that starts at this placement finds {format_time(now.objective_s)}, {better} better ({took}). "
            "The changes below are compared with that."
        ]
    return [f"A search that starts at this placement finds no better one ({took})."]


def _constraints(found: Explanation) -> list[str]:
    limited = [load for load in found.loads if load.memory_limit_bytes]
    lines = []
    if limited:
        fullest = max(limited, key=lambda load: load.memory_bytes / (load.memory_limit_bytes or 1.0))
        share = fullest.memory_bytes / (fullest.memory_limit_bytes or 1.0)
        lines.append(
            f"{fullest.device} is the fullest device: {format_bytes(fullest.memory_bytes)} of "
            f"{format_bytes(fullest.memory_limit_bytes)} ({format_share(share)})."
        )
    dropped = [each for each in found.what_ifs if each.constraint is not None]
    lines += [_answer(found, each) for each in dropped]
    if dropped and not found.binding:
        lines.append("None of these constraints was found to bind.")
    return lines or ["There are no constraints, or none was tested (--time-limit 0)."]


def _worth(each: Worth) -> str:
    """Return a sentence on the worth of one device."""
    if each.why_not is not None:
        return f"{each.device}: not known, {each.why_not}."
    if not each.is_used:
        return f"{each.device}: nothing, the placement does not use it."
    if each.is_needed:
        return f"{each.device}: needed, no placement{each.rules} is feasible without it (proven)."
    if each.objective_s is None or each.factor is None:
        return f"{each.device}: without it no placement was found in the time."
    without = f"without it {format_seconds(each.objective_s)}"
    if each.factor <= 1 + SOLVER_TOLERANCE:
        return f"{each.device}: nothing, {without}."
    times = f"{each.factor:.3g}x"
    if each.is_proven:
        return f"{each.device}: {times}, {without}, and no placement{each.rules} is better (proven)."
    below = "" if each.bound_s is None else f", at best {format_seconds(each.bound_s)} (bound)"
    return f"{each.device}: {times}, {without} was the best found{below}."


def _more(found: Explanation) -> list[str]:
    asked = [each for each in found.what_ifs if each.constraint is None]
    if not asked:
        return [_NOT_SEARCHED]
    lines = [_answer(found, each) for each in asked]
    lines.append("Each line is a short search that starts at this placement; a longer search may find more.")
    return lines


def _answer(found: Explanation, what_if: WhatIf) -> str:
    """Return a sentence on a change. Copies that the rules leave out are named where they gain by the change."""
    change = what_if.change[0].upper() + what_if.change[1:]
    if what_if.method is None:
        return f"{change}: no method supports that."
    told, by_copies_s = _placed(found, what_if), found.copies_gain_s(what_if)
    if by_copies_s > 0 and what_if.copies is not None and what_if.copies_s is not None:
        copies = f"a copy on each of {short_list(what_if.copies.split(JOINT))}"
        told += f"; {copies}: {_better(what_if.copies_s, by_copies_s)}"
    return f"{change}: {told}."


def _placed(found: Explanation, what_if: WhatIf) -> str:
    took = f"{what_if.method}, {format_time(what_if.time_s)}"
    gain_s = found.gain_s(what_if)
    if gain_s > 0 and what_if.objective_s is not None:
        return f"{_better(what_if.objective_s, gain_s)} ({took})"
    if what_if.bound_s is not None and what_if.bound_s >= found.now_s * (1 - SOLVER_TOLERANCE):
        return f"no placement{what_if.rules} is better ({took}, proven)"
    at_best = "" if what_if.bound_s is None else f"; lower bound {format_time(what_if.bound_s)}"
    return f"no better placement was found ({took}){at_best}"


def _better(seconds: float, gain_s: float) -> str:
    return f"{format_time(seconds)}, {format_time(gain_s)} ({format_share(gain_s / (seconds + gain_s))}) better"
