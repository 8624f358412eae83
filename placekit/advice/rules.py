"""Rules that narrow which placements are compared: a proof holds among placements that keep these rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placekit.model.contiguity import Contiguity

if TYPE_CHECKING:
    from placekit.model.problem import Problem


def rules_of(problem: Problem) -> str:
    """Return the rules of a problem in words that stand behind "placement"; empty if nothing is left out.

    Memory, support, pins and colocation are the question itself. Contiguity, teams and calls narrow the answers.

    Examples
    --------
    >>> import placekit as pk
    >>> graph = pk.OpGraph.from_edges(["a", "b"], [("a", "b")])
    >>> costs = pk.CostTable(("cpu", "gpu"), [[2.0, 1.0], [1.0, 1.0]], [[0.0, 0.0]], [0, 0])
    >>> rules_of(pk.Problem(graph, pk.Platform.of(cpu=1, gpu=1), costs))
    ' with contiguity acyclic and teams off'
    """
    if problem.platform.num_devices == 1:
        return ""
    rules = [] if problem.contiguity is Contiguity.NONE else [f"contiguity {problem.contiguity}"]
    rules += problem.objective.rules
    return f" with {' and '.join(rules)}" if rules else ""
