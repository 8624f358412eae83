r"""Growth of a cost with size: the exponent :math:`b` of :math:`y = a n^b`, by least squares on logarithms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import linregress

__all__ = ["FIT_FROM", "growth_of"]

FIT_FROM = 1000
"""Smallest size that a fit looks at: below it, fixed costs hide the growth."""


def growth_of(rows: Sequence[Mapping[str, Any]], quantity: str) -> str | None:
    """Return the exponent of `quantity` over the number of ops, with its standard error; None below two sizes.

    Parameters
    ----------
    rows
        Rows of one method on one family; those that did not come to their end are left out.
    quantity
        ``"time_s"`` or ``"memory_bytes"``.

    Examples
    --------
    >>> growth_of([{"num_ops": n, "ended": "done", "time_s": 2 * n**2} for n in (1000, 2000, 4000)], "time_s")
    '2.00 ± 0.00'
    """
    used = [row for row in rows if row["ended"] == "done" and row["num_ops"] >= FIT_FROM and (row[quantity] or 0) > 0]
    sizes = [float(row["num_ops"]) for row in used]
    if len(set(sizes)) < 2:
        return None
    line = linregress(np.log(sizes), np.log([float(row[quantity]) for row in used]))
    return f"{line.slope:.2f}" + (f" ± {line.stderr:.2f}" if len(sizes) > 2 else "")  # every line fits two points
