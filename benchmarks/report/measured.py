"""Tables about placements that were executed: times, predictions, outputs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from placekit.benchmarks.report.formats import NOTHING, count, milliseconds, percent, seconds, spread, times
from placekit.benchmarks.report.sources import Source
from placekit.benchmarks.report.tables import Table, Titled
from placekit.benchmarks.store import Row
from placekit.solve.split_verdict import NOT_KNOWN


def outputs(source: Source) -> Titled:
    """Largest difference of any tensor from the whole model's, by model and kind of placement."""
    rows = [row for row in source.measured if row.get("num_tensors") is not None or row["error"] is not None]
    kinds = list(dict.fromkeys(str(row["contiguity"]) for row in rows))
    lines = []
    for model in dict.fromkeys(row["model"] for row in rows):
        mine = [row for row in rows if row["model"] == model]
        worst = [[row["max_error"] for row in mine if row["contiguity"] == kind and not row["error"]] for kind in kinds]
        lines.append(
            (
                model,
                f"{len(mine)}",
                count(sum(row.get("num_tensors") or 0 for row in mine)),
                *(f"{max(each):.1e}" if each else NOTHING for each in worst),
                f"{sum(row.get('num_mismatches') or 0 for row in mine)}",
                f"{sum(row['error'] is not None for row in mine)}",
            )
        )
    names = {"none": "any parts", "acyclic": "blocks"}
    largest = (f"largest difference, {names.get(kind, kind)}" for kind in kinds)
    heads = ("model", "placements", "tensors", *largest, "beyond the tolerance", "crashes")
    yield None, Table(heads, tuple(lines))


def timing(source: Source) -> Titled:
    """Speedup of the best placement over what stands above the column, measured in the same turns."""
    rows = [row for row in source.measured if row["error"] is None and source.shows(row) and row.get("speedup_over")]
    for platform in dict.fromkeys(row["platform"] for row in rows):
        here = [row for row in rows if row["platform"] == platform]
        mine = [row for row in here if not _is_random(row)]
        over = [dict(row["speedup_over"]) for row in mine]
        for row, ratios in zip(mine, over, strict=True):
            cuts = [
                cut["speedup"] for cut in here if _is_random(cut) and cut["model"] == row["model"] and cut["speedup"]
            ]
            if cuts and row.get("speedup"):  # both over the same single device, each in turns with it
                ratios[f"best of {len(cuts)} random cuts"] = row["speedup"] / max(cuts)
        others = list(dict.fromkeys(name for ratios in over for name in ratios))
        lines = [
            (
                row["model"],
                f"{row['label']}, {row['executor']}",
                *(times(ratios.get(name)) for name in others),
                _noise(row),
            )
            for row, ratios in zip(mine, over, strict=True)
        ]
        yield f"{platform}", Table(("model", "placement", *others, ""), tuple(lines), num_text=2)


def measured(source: Source) -> Titled:
    """Time per sample of every method and of the runtime's own ways, measured in turns; search time over the runs.

    A method is there with the best of its runs; ``found`` are the times of all of its runs as the learner measured
    them, briefly, and ``measured`` is how many placements a run measured. Less time than all cores is counted as in
    the HSDAG paper: (t_cpu - t) / t_cpu.
    """
    rows = [row for row in source.measured if row.get("references") and source.shows(row)]
    for problem in dict.fromkeys((row["model"], row["platform"], row["objective"]) for row in rows):
        mine = [row for row in rows if (row["model"], row["platform"], row["objective"]) == problem]
        references = dict(mine[0]["references"])
        alone_s = min((each[0] for name, each in references.items() if name.startswith("single ")), default=None)
        whole_s = references.get("all cores", (None,))[0]

        lines = [
            (name, *_compared(each[0], each[1], alone_s, whole_s), NOTHING, NOTHING, NOTHING)
            for name, each in references.items()
        ]
        for row in mine:
            found, counts, search = row.get("found_s"), row.get("measurements"), row.get("search_s")
            lines.append(
                (
                    row["label"] + (" (failed)" if row["error"] else ""),
                    *_compared(row["measured_s"], row["measured_iqr_s"], alone_s, whole_s),
                    spread(found) if found else NOTHING,
                    count(median(counts)) if counts else NOTHING,
                    seconds(median(search)) if search else NOTHING,
                )
            )
        heads = (
            "method", "ms per sample", "IQR", "over one device", "over all cores", "less time than all cores",
            "found, ms", "measured", "search",
        )  # fmt: skip
        disturbed = ", disturbed by other load" if any(row.get("is_noisy") for row in mine) else ""
        yield f"{problem[0]}, {problem[2]} on {problem[1]}{disturbed}", Table(heads, tuple(lines))


def _compared(
    time_s: float | None, iqr_s: float | None, alone_s: float | None, whole_s: float | None
) -> tuple[str, ...]:
    """Return a time, its spread, and how it compares with one device alone and with all cores."""
    over = [times(base / time_s if base and time_s else None) for base in (alone_s, whole_s)]
    saved = 1 - time_s / whole_s if whole_s and time_s else None
    return milliseconds(time_s, 4), milliseconds(iqr_s, 2), *over, percent(saved)


def verdicts(source: Source) -> Titled:
    """Verdict on every model, and what it advises as measured over the simplest way (one device, or all cores)."""
    lines = []
    for row in source.measured:
        told = row.get("verdict")
        if told is None or row["error"] is not None or not source.shows(row):
            continue
        advises_more, measured = told["choice"] in ("split", "copies"), told["measured_gain"]
        if measured is None:
            held = NOTHING
        elif told["choice"] == NOT_KNOWN:
            held = "yes" if abs(measured - 1) <= told["error"] else "no"
        elif advises_more:
            held = "yes" if measured >= 1 - told["error"] else "no"
        else:
            held = "yes" if measured <= 1 + told["error"] else "missed a gain"
        lines.append(
            (
                row["model"], told["choice"] or "none", times(told["gain"]), percent(told["error"]), times(measured),
                NOTHING if told["measured_iqr"] is None else f"{told['measured_iqr']:.2f}", held, _noise(row),
            )
        )  # fmt: skip
    heads = ("model", "verdict", "promised", "error of the costs", "measured", "IQR", "held", "")
    yield None, Table(heads, tuple(lines), num_text=2)


def _is_random(row: Row) -> bool:
    return str(row["label"]).startswith("random")


def prediction(source: Source) -> Titled:
    """Errors of the predicted times over all measured placements of all models."""
    rows = [row for row in source.measured if row["prediction_error"] is not None and row["measured_s"]]
    lines = []
    for executor, platform in dict.fromkeys((row["executor"], row["platform"]) for row in rows):
        mine = [row for row in rows if (row["executor"], row["platform"]) == (executor, platform)]
        errors = [abs(row["prediction_error"]) for row in mine]
        models = list(dict.fromkeys(row["model"] for row in mine))
        ranks = [_rank_correlation([row for row in mine if row["model"] == model]) for model in models]
        known = [rank for rank in ranks if rank is not None]
        lines.append(
            (
                executor,
                str(platform),
                f"{len(models)}",
                f"{len(mine)}",
                percent(fmean(errors)),
                percent(median(errors)),
                percent(max(errors)),
                f"{fmean(known):.3f}" if known else NOTHING,
            )
        )
    heads = ("executor", "platform", "models", "placements", "mean error", "median", "largest", "rank within a model")
    yield None, Table(heads, tuple(lines), num_text=2)


def _noise(row: Row) -> str:
    return "disturbed" if row.get("is_noisy") else ""


def _rank_correlation(rows: Sequence[Row]) -> float | None:
    """Return Spearman's rank correlation of predicted and measured times of a model; None for fewer than three."""
    from scipy.stats import spearmanr

    if len(rows) < 3:
        return None
    told = [[row["measured_s"] * (1 + row["prediction_error"]), row["measured_s"]] for row in rows]
    return float(spearmanr(told).statistic)
