"""What was executed for real: predicted against measured, with the spread, and whether other load got in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from placekit.benchmarks.report.formats import NOTHING, milliseconds, percent
from placekit.benchmarks.report.groups import Group
from placekit.benchmarks.report.tables import Table
from placekit.benchmarks.store import Row

__all__ = ["error_sentence", "measured_table"]


def measured_table(groups: Sequence[Group], measured: Mapping[str, Row]) -> Table | None:
    """Return one row per measured placement, with the methods that found it; None if nothing was measured."""
    rows = []
    for group in groups:
        methods: dict[tuple[tuple[int, ...], tuple[int, ...], str], list[Row]] = {}
        for row in group.all_rows:
            if row["case"] in measured and row["objective_s"] is not None:  # what has no answer was not measured
                devices = tuple(row.get("device_of_op") or ())
                placed = devices, tuple(row.get("team_of_device") or ()), "" if devices else row["case"]
                methods.setdefault(placed, []).append(row)
        for found in sorted(methods.values(), key=lambda each: float(each[0]["objective_s"])):
            timed, predicted_s = measured[found[0]["case"]], found[0]["objective_s"]
            labels = ", ".join(dict.fromkeys(row["shown"] for row in found))
            if timed["error"] is not None:
                told = (milliseconds(predicted_s), NOTHING, NOTHING, NOTHING, NOTHING, f"failed: {timed['error']}")
            else:
                speedup = timed.get("speedup")
                told = (
                    milliseconds(predicted_s),
                    milliseconds(timed["measured_s"]),
                    milliseconds(timed["measured_iqr_s"]),
                    percent(timed["prediction_error"]),
                    NOTHING if speedup is None else f"{speedup:.2f}x",
                    "disturbed" if timed.get("is_noisy") else "",
                )
            rows.append((group.model, group.objective, labels, *told))
    if not rows:
        return None
    columns = (
        "model", "objective", "found by", "predicted ms", "measured ms", "IQR", "predicted off by", "speedup", "",
    )  # fmt: skip
    return Table(columns, tuple(rows), num_text=3)


def error_sentence(measured: Mapping[str, Row]) -> str:
    """Return the mean absolute error of the predictions that can be compared, and how many were disturbed."""
    timed = [row for row in measured.values() if row["prediction_error"] is not None]
    quiet = [abs(row["prediction_error"]) for row in timed if not row.get("is_noisy")]
    told = f"{len(timed) - len(quiet)} of {len(timed)} were disturbed by other load or drifted"
    if not quiet:
        return f"{told}: the error of the predictions is not known. bench --retry measures those again."
    again = "; bench --retry measures those again" if len(quiet) < len(timed) else ""
    return f"{told}{again}. The others were predicted with a mean absolute error of {percent(fmean(quiet))}."
