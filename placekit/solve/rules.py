"""Rules that narrow which placements are compared: a proof holds among placements that keep these rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placekit.model.contiguity import Contiguity
from placekit.objectives.offload_latency import OffloadLatency

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
    objective, platform = problem.objective, problem.platform
    if platform.num_devices == 1:
        return ""
    rules = [] if problem.contiguity is Contiguity.NONE else [f"contiguity {problem.contiguity}"]
    teams = objective.team_rule if "teams" in objective.to_dict() else "any"
    if teams == "off" or (teams == "equal" and len(platform.kinds) > 1):
        rules.append(f"teams {teams}")
    if isinstance(objective, OffloadLatency):
        calls = objective.calls_per_device
        rules.append(f"at most {calls} {'call' if calls == 1 else 'calls'} of each accelerator")
    return f" with {' and '.join(rules)}" if rules else ""
