"""The one judge: what a placement costs, and which constraints it breaks.

Every method's answer is rescored here before anyone sees it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import topological_order
from placekit.model.contiguity import Contiguity, escaping_op, quotient_cycle
from placekit.model.device_groups import forbidden_teams
from placekit.model.errors import InvalidProblemError
from placekit.model.memory import MemoryUse
from placekit.model.placement import Placement, Violation
from placekit.model.reprs import short_repr
from placekit.objectives.base import Score

if TYPE_CHECKING:
    from placekit.model.problem import Problem
from placekit.model.sizes import format_bytes_exactly


@dataclass(frozen=True, slots=True)
class DeviceLoad:
    """Load of one device per sample."""

    device: str
    kind: str
    # load_s, compute_s, transfer_s: seconds per sample: combined as the objective says, of ops, and of transfers
    load_s: float
    compute_s: float
    transfer_s: float
    # memory_bytes, memory_limit_bytes: bytes occupied, and the limit (None for no limit)
    memory_bytes: float
    memory_limit_bytes: float | None
    num_ops: int  # number of ops
    # name of the device's team; None if it is by itself. Times are those of its share of the samples, memory and ops
    # are all that the team holds.
    team: str | None = None
    # activation_bytes, queue_bytes: of the bytes occupied, those of live tensors when they are most, and of queues;
    # None if costs know only sums
    activation_bytes: float | None = None
    queue_bytes: float | None = None

    @property
    def weight_bytes(self) -> float | None:
        """Bytes of weights: all but activations and queues; None if these are not known apart."""
        if self.activation_bytes is None:
            return None
        return self.memory_bytes - self.activation_bytes - (self.queue_bytes or 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Return the load as JSON values; what is None only if it may be."""
        values = asdict(self)
        for name in ("team", "activation_bytes", "queue_bytes"):
            if values[name] is None:
                del values[name]
        return values


@dataclass(frozen=True)
class Evaluation:
    """The judge's word on a placement.

    Parameters
    ----------
    objective
        Value to minimise, in seconds; None if some op is not supported where it stands, or if the placement cannot be
        executed under the objective's model.
    device_loads
        One entry per device of the platform.
    violations
        Every broken constraint; empty means feasible.
    score
        The objective's own account (schedule, arrays); None with `objective`.
    """

    objective: float | None
    device_loads: tuple[DeviceLoad, ...]
    violations: tuple[Violation, ...]
    score: Score | None = None

    __repr__ = short_repr

    @property
    def is_feasible(self) -> bool:
        """True if no constraint is broken."""
        return not self.violations


def evaluate(problem: Problem, placement: Placement) -> Evaluation:
    """Score `placement` under `problem`'s objective, from the original edges, and check every constraint.

    Parameters
    ----------
    problem
        The problem.
    placement
        A device for each of its ops.

    Raises
    ------
    InvalidProblemError
        The placement is of other ops or other devices than the problem's.

    Notes
    -----
    O(ops + edges log edges); convexity takes O(devices * edges).
    """
    graph, platform, costs = problem.graph, problem.platform, problem.costs
    if placement.device_names != platform.device_names or placement.op_names != graph.op_names:
        raise InvalidProblemError(
            f"the placement is of {len(placement)} ops on {', '.join(placement.device_names)}; problem "
            f"{problem.name!r} has {graph.num_ops} ops on {', '.join(platform.device_names)}, "
            "and names and order must agree (Placement.from_mapping does that)"
        )
    device, teams = placement.device_of_op, placement.team_of_device
    use = problem.stage_memory.use(device, platform.num_devices)
    counts = np.bincount(device, minlength=platform.num_devices)
    if teams is not None:  # every member holds everything
        use, counts = MemoryUse(*(part[teams] for part in use)), counts[teams]
    memory = use.total
    violations = _support_violations(problem, placement)
    is_supported = not violations
    violations += _memory_violations(problem, memory)
    violations += _binding_violations(problem, placement)
    forbidden = () if teams is None else forbidden_teams(teams, platform, problem.objective.team_rule)
    violations += [Violation("team", message, None, name) for name, message in forbidden]
    violations += _contiguity_violations(problem, placement)
    score = None
    if is_supported and teams is None:
        score = problem.objective.score(problem, device, placement.step_of_op)
    elif is_supported and teams is not None and problem.objective.team_rule != "off":
        score = problem.objective.team_score(problem, device, teams)
    if score is not None and score.violations:
        violations += score.violations
        score = None
    unknown = np.zeros(platform.num_devices)
    load_s, compute_s, transfer_s = (score.load_s, score.compute_s, score.transfer_s) if score else (unknown,) * 3
    in_team = [False] * platform.num_devices if teams is None else (np.bincount(teams)[teams] > 1).tolist()
    has_blocks = costs.blocks is not None
    loads = tuple(
        DeviceLoad(
            target.name,
            target.kind,
            load_s=float(load_s[d]),
            compute_s=float(compute_s[d]),
            transfer_s=float(transfer_s[d]),
            memory_bytes=float(memory[d]),
            memory_limit_bytes=target.memory_bytes,
            num_ops=int(counts[d]),
            team=placement.team_name(d) if in_team[d] else None,
            activation_bytes=float(use.activations[d]) if has_blocks else None,
            queue_bytes=float(use.queues[d]) if has_blocks else None,
        )
        for d, target in enumerate(platform.devices)
    )
    return Evaluation(None if score is None else score.objective_s, loads, tuple(violations), score)


def _support_violations(problem: Problem, placement: Placement) -> list[Violation]:
    """Return ops that a member of their team does not support, the first such member of each."""
    graph, platform, supported = problem.graph, problem.platform, problem.costs.supported
    device, kinds = placement.device_of_op, platform.kind_of_device
    alone = np.flatnonzero(~supported[np.arange(graph.num_ops), kinds[device]]).tolist()
    found = {op: int(device[op]) for op in alone}
    for members in () if placement.team_of_device is None else placement.teams:
        of_team = np.flatnonzero(device == members[0])
        for d in members[1:]:
            for op in of_team[~supported[of_team, kinds[d]]].tolist():
                found.setdefault(op, d)
    return [
        Violation(
            "support",
            f"op {graph.op_names[op]!r} ({graph.op_types[op]}) is not supported on device "
            f"{platform.device_names[found[op]]!r}",
            graph.op_names[op],
            platform.device_names[found[op]],
        )
        for op in sorted(found)
    ]


def _memory_violations(problem: Problem, used: NDArray[np.float64]) -> list[Violation]:
    found = []
    platform = problem.platform
    for target, num_bytes, most in zip(platform.devices, used.tolist(), platform.memory_limits_bytes, strict=True):
        limit = target.memory_bytes
        if limit is not None and num_bytes > most:
            message = (
                f"device {target.name!r} needs {format_bytes_exactly(num_bytes)}, it has {format_bytes_exactly(limit)}"
            )
            found.append(Violation("memory", message, None, target.name, num_bytes - limit, "bytes"))
    for pool in platform.pools:
        num_bytes = float(used[platform.members_of(pool)].sum())
        if num_bytes > pool.most_bytes:
            message = (
                f"devices {', '.join(pool.devices)} need {format_bytes_exactly(num_bytes)} together, their memory "
                f"{pool.name!r} has {format_bytes_exactly(pool.memory_bytes)}"
            )
            found.append(Violation("memory", message, None, None, num_bytes - pool.memory_bytes, "bytes"))
    return found


def _binding_violations(problem: Problem, placement: Placement) -> list[Violation]:
    graph, names, device = problem.graph, problem.platform.device_names, placement.device_of_op
    found = []
    is_pinned = problem.pinned >= 0
    home = problem.pinned if placement.team_of_device is None else placement.team_of_device[problem.pinned]
    for op in np.flatnonzero(is_pinned & (home != device)):
        there = placement.team_name(device[op])
        message = f"op {graph.op_names[op]!r} is pinned to {names[problem.pinned[op]]!r} but placed on {there!r}"
        found.append(Violation("pin", message, graph.op_names[op], there))
    leader = np.unique(problem.op_class, return_index=True)[1][problem.op_class]
    for op in np.flatnonzero(device != device[leader]):
        message = (
            f"op {graph.op_names[op]!r} on {placement.team_name(device[op])!r} must share a device with "
            f"{graph.op_names[leader[op]]!r} on {placement.team_name(device[leader[op]])!r}"
        )
        found.append(Violation("colocation", message, graph.op_names[op], placement.team_name(device[op])))
    return found


def _contiguity_violations(problem: Problem, placement: Placement) -> list[Violation]:
    device, num_devices = placement.device_of_op, problem.platform.num_devices
    if problem.contiguity is Contiguity.NONE:
        return []
    senders, receivers = problem.order_edges
    if problem.contiguity is Contiguity.ACYCLIC:
        stuck = quotient_cycle(senders, receivers, device, num_devices)
        if not stuck:
            return []
        cycle = ", ".join(repr(placement.team_name(d)) for d in stuck)
        return [Violation("contiguity", f"devices {cycle} wait for each other: their graph has a cycle")]
    # forward edges and mirrored backward edges never meet in one op, so the order graph is acyclic like its two halves
    order, _ = topological_order(problem.graph.num_ops, senders, receivers)
    found = []
    for d in np.unique(device).tolist():
        op = escaping_op(senders, receivers, order, device == d)
        if op is not None:
            name = problem.graph.op_names[op]
            there = placement.team_name(d)
            message = f"device {there!r} is not convex: a path leaves it and returns through op {name!r}"
            found.append(Violation("contiguity", message, name, there))
    return found
