"""A sample command of placekit: how many ops stand at each depth of a graph."""

from __future__ import annotations

import numpy as np

from placekit.cli.console import tell
from placekit.cli.options import JsonOption, ProblemArgument
from placekit.cli.output.render import plain_table
from placekit.cli.parameters import option
from placekit.io.files.detect import kind_of_file, problem_of_file
from placekit.io.models.read_model import read_model


def widths(
    file: ProblemArgument, *, rows: int = option(10, "Depths to show.", "N", min=1), as_json: JsonOption = False
) -> None:
    """Count the ops that could run at once, by depth."""
    problem = problem_of_file(file, kind_of_file(file))
    graph = read_model(file).graph if problem is None else problem.graph
    depth = np.zeros(graph.num_ops, dtype=np.int64)
    for op in graph.order:
        depth[op] = max((depth[u] + 1 for u in graph.senders[graph.receivers == op]), default=0)
    found = np.bincount(depth).tolist()
    table = plain_table("depth", "ops")
    for at, count in enumerate(found[:rows]):
        table.add_row(str(at), str(count))
    tell(as_json, {"widths": found}, [table])
