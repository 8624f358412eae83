"""Fit the shares of llama.cpp's kernels on half of the published threads, and report them on the other half.

    python examples/fit_shares.py

Rows of a thread come from one machine or one person, so a thread is
in one half as a whole: the one that the hash of its name says. Each share is chosen by the rows that it decides, as the
value of a grid with the least mean of ``|log(predicted / measured)|``:

1. the share of bandwidth of GDDR, HBM and unified memory: generated tokens of cards with that memory;
2. the share of matrix rates, then of plain rates: prompts of cards with matrix units, and of those without.

Both directions are printed: fitted on the even half and judged on the odd one, and the other way round; then the
constants of the product on either half, and hosts that are known by processor and memory. Rows whose host memory was
assumed judge no prediction: each half is also told without them.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from placekit.benchmarks.published import (
    Measurement,
    Predicted,
    accuracy,
    decisions,
    kept_rows,
    predictions,
    read_measurements,
)
from placekit.cost_models.sheets.cards import LLAMA_CPP, MEMORIES, Kernels, get_card

GRID = tuple(0.28 * 1.06**step for step in range(21))
"""Shares that are tried: 0.28 to 0.90 in steps of 6 %."""
FEWEST = 3
"""Rows that decide a share, at least; else it stays what it is."""


def half_of(row: Measurement) -> int:
    """Return the half of the threads that a row belongs to."""
    return hashlib.sha256(row.thread.encode()).digest()[-1] % 2


def mean_error(rows: Sequence[Measurement], kernels: Kernels, what: str) -> float:
    """Return the mean of ``|log(predicted / measured)|`` of ``"prompt"`` or ``"generated"`` tokens per second."""
    ratios = [each.ratio(what) for each in predictions(rows, kernels)]
    known = [abs(math.log(ratio)) for ratio in ratios if ratio is not None]
    return sum(known) / len(known)


def _best(
    rows: Sequence[Measurement], what: str, old: Kernels, changed: Callable[[float], Kernels]
) -> tuple[Kernels, int]:
    """Return the kernels with the share that fits the rows best, and how many rows have decided."""
    rows = [row for row in rows if getattr(row, f"{what}_tokens_per_s") is not None and not row.flag]
    if len(rows) < FEWEST:
        return old, len(rows)
    return min((changed(share) for share in GRID), key=lambda each: mean_error(rows, each, what)), len(rows)


def fitted(rows: Sequence[Measurement]) -> tuple[Kernels, Mapping[str, int]]:
    """Return the shares that fit some rows best, and the number of rows that decided each."""
    kernels, counts = LLAMA_CPP, {}
    on_cards = [row for row in rows if row.devices and not row.blocks_on_host]
    on_cards = [row for row in on_cards if not row.experts_on_host_of_first_blocks]

    def with_bandwidth(kernels: Kernels, memory: str, share: float) -> Kernels:
        return replace(kernels, bandwidth={**kernels.bandwidth, memory: share})

    def with_share(kernels: Kernels, name: str, share: float) -> Kernels:
        return replace(kernels, matrix=share) if name == "matrix" else replace(kernels, plain=share)

    for memory in MEMORIES:
        some = [row for row in on_cards if {get_card(name).memory for name in row.devices} == {memory}]
        kernels, counts[memory] = _best(some, "generated", kernels, partial(with_bandwidth, kernels, memory))
    for name, has_units in (("matrix", True), ("plain", False)):
        some = [row for row in on_cards if {get_card(card).has_matrix_units for card in row.devices} == {has_units}]
        kernels, counts[name] = _best(some, "prompt", kernels, partial(with_share, kernels, name))
    return kernels, counts


def report(rows: Sequence[Measurement], kernels: Kernels, what: str) -> str:
    """Return the accuracy of prompt or generated tokens, and the mean regret of decisions, in words."""
    found = list(predictions(rows, kernels))
    regrets = [each.regret for each in decisions(found, what)]
    regret = f", mean regret {sum(regrets) / len(regrets):.1%} of {len(regrets)} sweeps" if regrets else ""
    known = [each for each in found if each.row.host_memory_known is not False]
    return f"{_told(found, what)}; host memory known: {_told(known, what)}{regret}"


def _told(found: Sequence[Predicted], what: str) -> str:
    told = accuracy("all", [ratio for each in found if (ratio := each.ratio(what)) is not None])
    return f"typical x{told.typical:.2f}, nine in ten x{told.nine_in_ten:.2f} of {told.count}"


def main() -> None:
    """Print the shares and figures."""
    out = sys.stdout.write
    rows = read_measurements(kept_rows())
    halves = [[row for row in rows if half_of(row) == half] for half in (0, 1)]
    names = ("even", "odd")
    for half, (name, other) in enumerate((names, names[::-1])):
        kernels, counts = fitted(halves[half])
        shares = {**kernels.bandwidth, "matrix": kernels.matrix, "plain": kernels.plain}
        out(f"fitted on the {name} half ({len(halves[half])} rows): ")
        out(", ".join(f"{key} {share:.2f} ({counts[key]} rows)" for key, share in shares.items()) + "\n")
        for what in ("generated", "prompt"):
            out(f"  {what}, {name} half: {report(halves[half], kernels, what)}\n")
            out(f"  {what}, {other} half, held out: {report(halves[1 - half], kernels, what)}\n")
    for what in ("generated", "prompt"):
        for half, name in enumerate(names):
            out(f"the product's shares, {what}, {name} half: {report(halves[half], LLAMA_CPP, what)}\n")
    known = [row for row in rows if row.host_memory_known and (row.blocks_on_host or not row.devices)]
    out(f"hosts by processor and memory name, generated: {report(known, LLAMA_CPP, 'generated')}\n")


if __name__ == "__main__":
    main()
