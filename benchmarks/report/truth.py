"""The table `truth`: predictions of language models beside published measurements."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from placekit.benchmarks.published import Decision, Predicted, accuracy, decisions
from placekit.benchmarks.report.tables import Table, Titled
from placekit.io.visible import device_color
from placekit.plotting.canvas import COLORS, axes_or_new, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WHAT = {"generated": "generated tokens/s", "prompt": "prompt tokens/s"}


def truth(found: Sequence[Predicted]) -> Titled:
    """Predicted over measured by class of split, and the choices that follow from the predictions."""
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


def plot_truth(found: Sequence[Predicted]) -> Figure:
    """Draw predicted against measured tokens per second on logarithmic axes, one point per row, coloured by class.

    Between the dashed lines a prediction is within a factor of 1.5.
    """
    classes = list(dict.fromkeys(each.row.kind for each in found))
    figure = new_figure(8.0, 4.2)
    for ax, (what, words) in zip(figure.subplots(1, 2), _WHAT.items(), strict=True):
        axes_or_new(ax)
        points = [(each.row.kind, getattr(each.row, f"{what}_tokens_per_s"), each.ratio(what)) for each in found]
        known = [(kind, measured, measured * ratio) for kind, measured, ratio in points if ratio is not None]
        for at, kind in enumerate(classes):
            of_class = [(measured, predicted) for each, measured, predicted in known if each == kind]
            if of_class:
                x, y = zip(*of_class, strict=True)
                ax.scatter(x, y, s=16, marker="os^Dv"[at % 5], color=device_color(at), alpha=0.75, label=kind)
        ends = [min(min(point[1:]) for point in known) / 1.3, max(max(point[1:]) for point in known) * 1.3]
        for factor, style in ((1.0, "-"), (1.5, "--"), (1 / 1.5, "--")):
            ax.plot(ends, [end * factor for end in ends], style, color=COLORS["text"], linewidth=0.7, zorder=0)
        ax.set(xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel=f"measured {words}", ylabel="predicted")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=len(labels), frameon=False, fontsize=8)
    return figure
