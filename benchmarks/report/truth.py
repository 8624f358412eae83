"""The table `truth`: predictions of language models beside published measurements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

from placekit.benchmarks.published import Decision, Predicted, accuracy, decisions, read_predictions
from placekit.benchmarks.report.tables import Table, Titled

_WHAT = {"generated": "generated tokens/s", "prompt": "prompt tokens/s"}


def truth(paths: Iterable[Path]) -> Titled:
    """Predicted over measured by class of split, and the choices that follow from the predictions."""
    found = [each for path in paths for each in read_predictions(path)]
    for what, words in _WHAT.items():
        yield f"{words}: predicted / measured", _by_class(found, what)
    yield (
        "Choices: the split that the prediction ranks first, and the one with most on the fastest card",
        _choices(found),
    )


def _by_class(found: Sequence[Predicted], what: str) -> Table:
    members: dict[str, list[float]] = {}
    for each in found:
        ratio = each.ratio(what)
        if ratio is not None:
            members.setdefault(each.row.kind, []).append(ratio)
            members.setdefault("all", []).append(ratio)
            if each.row.host_memory_known is not False:
                members.setdefault("all, memory of the host known", []).append(ratio)
    shown = [
        accuracy(name, ratios) for name, ratios in sorted(members.items(), key=lambda item: item[0].startswith("all"))
    ]
    heads = ("class", "rows", "median", "10th to 90th percentile", "typical", "nine in ten")
    return Table(
        heads,
        tuple(
            (each.name, str(each.count), f"{each.median:.2f}", f"{each.tenth:.2f} to {each.ninetieth:.2f}",
             f"x{each.typical:.2f}", f"x{each.nine_in_ten:.2f}")
            for each in shown
        ),
    )  # fmt: skip


def _choices(found: Sequence[Predicted]) -> Table:
    lines = []
    for what, words in _WHAT.items():
        made = list(decisions(found, what))
        if made:
            hits, ruled = (sum(each <= 0 for each in regrets) for regrets in _regrets(made))
            mean, rule = (fmean(regrets) for regrets in _regrets(made))
            lines.append((words, str(len(made)), f"{hits}", f"{mean:.1%}", f"{ruled}", f"{rule:.1%}"))
    heads = ("what", "sweeps", "best picked", "mean regret", "best by the rule", "its mean regret")
    return Table(heads, tuple(lines))


def _regrets(made: Sequence[Decision]) -> tuple[list[float], list[float]]:
    return [each.regret for each in made], [each.rule_regret for each in made]
