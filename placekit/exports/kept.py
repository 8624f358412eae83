"""Count of the ops of every device before and after an export: none of them may be lost, and none may be elsewhere."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from placekit.model.errors import UnsupportedProblemError
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement
from placekit.model.reprs import short_list

_ENDS = ("Parameter", "Result")
"""Types of ops that compute nothing: exports put them beside their neighbours."""


def require_kept(
    runtime: str,
    graph: OpGraph,
    placement: Placement,
    found: Iterable[tuple[int, str]],
    counted: NDArray[np.bool_] | None = None,
) -> None:
    """Refuse an export to `runtime` that does not run the ops where the placement has them.

    `found` are the ops of the export, by index, each with its device or team there: read from what is exported, not
    from the placement. Of the ops that are `counted`, ``[num_ops]``, every device of the placement has to keep some;
    all but inputs and outputs if None. An op that is not in the export, such as one that was computed in advance, is on
    no device at all.

    Raises `UnsupportedProblemError`: an op is elsewhere, or a device has lost all of its ops.

    Examples
    --------
    >>> graph = OpGraph.from_edges(["a", "b"], [("a", "b")])
    >>> placement = Placement(("a", "b"), ("cpu", "gpu"), [0, 1])
    >>> require_kept("netron", graph, placement, [(0, "cpu"), (1, "gpu")])
    >>> require_kept("netron", graph, placement, [(0, "cpu")])
    Traceback (most recent call last):
    placekit.model.errors.UnsupportedProblemError: netron: device 'gpu' has 1 op in the placement and none in the ...
    """
    has_work = np.array([op_type not in _ENDS for op_type in graph.op_types], dtype=bool)
    counted = has_work if counted is None else counted & has_work
    device, kept = placement.device_of_op, set[int]()
    for op, place in found:
        planned = placement.team_name(int(device[op]))
        if place != planned and counted[op]:
            raise UnsupportedProblemError(
                f"{runtime}: op {graph.op_names[op]!r} is on {planned!r} in the placement and would be on {place!r} in "
                "the export: this runtime cannot have it elsewhere than what it belongs to; --pin both to one device"
            )
        if counted[op]:
            kept.add(int(device[op]))
    for lost in sorted(set(device[counted].tolist()) - kept):
        ops = [graph.op_names[op] for op in np.flatnonzero(counted & (device == lost)).tolist()]
        count = f"{len(ops)} {'op' if len(ops) == 1 else 'ops'}"
        raise UnsupportedProblemError(
            f"{runtime}: device {placement.team_name(lost)!r} has {count} in the placement and none in the export "
            f"({short_list(ops)}): what depends on constants and known shapes alone is computed in advance, and what "
            "nobody reads is left out; place these ops on another device with --pin"
        )
