"""Public graphs of DOPPLER (github.com/xinyuyao/Doppler, ``compute_graph/*.txt``), on several equal devices.

Line 1 has the number of nodes, line 2 the inputs, which are left out below; the others count from 0. Lines 3 and 4 have
the senders and receivers of the edges, all others the times to compute a node and to transfer its output, in 1e-10 s.

A transfer takes the same time between any two devices, and does not wait for other transfers; half of it is the cost of
leaving a device, half that of entering one.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from placekit.io.reading import blaming, read_text
from placekit.model.contiguity import Contiguity
from placekit.model.costs import CostTable
from placekit.model.errors import InvalidFileError
from placekit.model.graph import OpGraph
from placekit.model.platform import Platform
from placekit.model.problem import Problem
from placekit.objectives import Makespan, Objective

TICKS_PER_S = 1e10


def read_compute_graph(
    path: str | Path,
    *,
    objective: Objective | None = None,
    contiguity: Contiguity | str | None = None,
    name: str | None = None,
) -> Problem:
    """Read the graph in `path`; ops are called ``0``, ``1``, ..., the problem by default as the file is.

    There are 8 equal devices ``gpu.0``, ... if the file's name begins with ``8gpu``, else 4, as published. The
    objective is `Makespan` by default.
    """
    stem = Path(path).stem
    lines = [line for line in read_text(path).splitlines() if line.strip()]
    if len(lines) < 4 or re.search(r"[^\d,\s]", "".join(lines[:4])):
        raise InvalidFileError(f"{path}: no graph of DOPPLER: lines 1 to 4 should hold whole numbers only")
    count, inputs, senders, receivers = ([int(each) for each in re.findall(r"\d+", line)] for line in lines[:4])
    num_ops = (count[0] if len(count) == 1 else 0) - len(inputs)
    rows = [re.fullmatch(r"\s*(\d+)\s*,\s*(\d+)\s*(?:,\s*([A-Za-z_]\w*)\s*)?,?\s*", line) for line in lines[4:]]
    wrong = next((number for number, row in enumerate(rows, 5) if row is None), None)
    if wrong is not None:
        raise InvalidFileError(f"{path}, line {wrong}: {lines[wrong - 1]!r} is no pair of compute and transfer time")
    if num_ops < 1 or num_ops != len(rows) or len(senders) != len(receivers):
        raise InvalidFileError(
            f"{path}: {num_ops} nodes beside the inputs with {len(rows)} lines of costs, and {len(senders)} senders "
            f"with {len(receivers)} receivers"
        )
    if max(senders + receivers, default=0) >= num_ops:
        raise InvalidFileError(f"{path}: an edge of node {max(senders + receivers)}; the last node is {num_ops - 1}")
    read = [row for row in rows if row is not None]
    with blaming(path):
        edges = [(str(u), str(v)) for u, v in zip(senders, receivers, strict=True)]  # repeated ones count once
        types = [row[3] or "Op" for row in read]
        graph = OpGraph.from_edges([str(op) for op in range(num_ops)], edges, name=name or stem, op_types=types)
        seconds = np.array([[float(row[1]), float(row[2])] for row in read]) / TICKS_PER_S
        transfer_s = seconds[graph.tensor_producer, 1:] / 2
        costs = CostTable(("gpu",), seconds[:, :1], transfer_s, np.zeros(num_ops), provenance={"source": "DOPPLER"})
        platform = Platform.of(gpu=8 if stem.startswith("8gpu") else 4)
        return Problem(graph, platform, costs, Makespan() if objective is None else objective, contiguity)  # type: ignore[arg-type]  # names are converted
