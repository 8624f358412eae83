"""Language models in whole blocks: all cuts into runs, orders of devices and teams, by formulas of their own.

A plan gives every device, or team of equal ones, one run of blocks. The judge here knows nothing of placekit's: it adds
up op times, tensors that cross, and weights, which count once per device, from the tables of the problem.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from placekit.cost_models.analytic import Analytic
from placekit.language.decoder import Decoder
from placekit.language.serving import Serving
from placekit.language.task import TaskForm, decoder_task
from placekit.model.contiguity import Contiguity
from placekit.model.platform import Device, Link, Platform
from placekit.model.problem import UNPINNED, Problem
from placekit.objectives import Objective, SerialLatency, Throughput
from placekit.solve.solve import solve
from placekit.solve.stop import MaxRuntime
from placekit.solvers.chain.method import Chain

from .checks import Asked, Finding, check, check_result
from .links import with_links

METHODS = ("chain", "auto", "dp", "bound", "ilp")
"""Methods that prove something about a chain."""
KINDS = ("l4", "t4", "cpu-8core-f32")


def random_chain_problem(seed: int, case: int) -> Problem:
    """Return problem number `case` of `seed`: up to three layers on two to four devices, most of them equal."""
    rng = np.random.default_rng([seed, case, 6])
    model = Decoder(
        int(rng.integers(1, 4)), 64, int(rng.integers(64, 512)), int(rng.integers(100, 4000)), heads=4,
        tied=bool(rng.integers(2)),
    )  # fmt: skip
    kinds = sorted(rng.choice(KINDS, int(rng.integers(2, 5)), p=[0.6, 0.25, 0.15]).tolist())
    size = model.num_parameters * 2.0
    limits = {kind: float(rng.uniform(0.1, 0.9)) * size if rng.random() < 0.6 else None for kind in KINDS}
    devices = tuple(
        Device(f"{kind}.{at}", kind, limits[kind], is_host=kind.startswith("cpu")) for at, kind in enumerate(kinds)
    )
    links = {kind: Link(1e-6, 10.0 ** float(rng.uniform(7, 10))) for kind in set(kinds) if not kind.startswith("cpu")}
    platform = Platform(devices, links)
    serving = Serving(int(rng.integers(1, 64)), int(rng.integers(1, 16)), sequences=2, batch=int(rng.integers(1, 3)))
    try:
        problem = decoder_task(
            model, serving, platform, lambda graph: Analytic().cost_table(graph, platform),
            form=TaskForm(objective=_objective(rng), contiguity=Contiguity.ACYCLIC),
        ).problem  # fmt: skip
    except ValueError:  # activations that do not fit into a device
        return random_chain_problem(seed, case + 1_000_003)
    if rng.random() < 0.4:
        chosen = rng.random(problem.num_classes) < 0.3
        pin = np.where(chosen, rng.integers(0, len(kinds), problem.num_classes), UNPINNED)
        problem = problem.replace(pinned=pin[problem.op_class])
    if problem.objective.team_rule == "off" and rng.random() < 0.25:
        scale_s = float(problem.costs.transfer_time_s.max(initial=1e-6))
        problem = with_links(rng, problem, lambda shape: rng.uniform(0.0, 2.0, shape) * scale_s)
    return problem


def _objective(rng: np.random.Generator) -> Objective:
    draw = rng.random()
    if draw < 0.3:
        return SerialLatency()
    return Throughput() if draw < 0.6 else Throughput(teams="equal")


def best_cut(problem: Problem) -> float | None:
    """Return the seconds of the best plan over all cuts, orders of devices and teams; None if none fits."""
    judge = _Judge(problem)
    best = math.inf
    for runs in _cuts(len(judge.blocks)):
        for teams in _orders(problem, len(runs)):
            best = min(best, judge.seconds(runs, teams))
    return None if math.isinf(best) else best


def _cuts(num_blocks: int) -> Iterator[list[range]]:
    for count in range(num_blocks):
        for ends in itertools.combinations(range(1, num_blocks), count):
            yield [range(a, b) for a, b in itertools.pairwise([0, *ends, num_blocks])]


def _orders(problem: Problem, count: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yield disjoint devices, or teams of devices of one kind, one for every run."""
    devices = problem.platform.devices
    most = len(devices) if problem.objective.team_rule == "equal" else 1
    teams = [
        team
        for size in range(1, most + 1)
        for team in itertools.combinations(range(len(devices)), size)
        if len({devices[d].kind for d in team}) == 1
    ]

    def extend(chosen: tuple[tuple[int, ...], ...]) -> Iterator[tuple[tuple[int, ...], ...]]:
        if len(chosen) == count:
            yield chosen
            return
        taken = {d for team in chosen for d in team}
        for team in teams:
            if not taken & set(team):
                yield from extend((*chosen, team))

    return extend(())


class _Judge:
    """Seconds of plans in runs of blocks, from the tables of a problem."""

    def __init__(self, problem: Problem) -> None:
        graph, costs = problem.graph, problem.costs
        self.problem = problem
        members: dict[int, list[int]] = {}
        for op in graph.order.tolist():
            members.setdefault(int(problem.op_class[op]), []).append(op)
        self.blocks = list(members.values())
        self.block_of = {op: at for at, ops in enumerate(self.blocks) for op in ops}
        self.readers = [graph.consumers_of(t).tolist() for t in range(graph.num_tensors)]
        self.producer = graph.tensor_producer.tolist()
        self.kind = [problem.platform.kinds.index(device.kind) for device in problem.platform.devices]
        self.shared: list[tuple[float, set[int]]] = []
        if costs.blocks is not None:
            assert costs.blocks.is_weight.all()
            ends = itertools.pairwise(costs.blocks.offsets.tolist())
            users = [set(costs.blocks.ops[a:b].tolist()) for a, b in ends]
            self.shared = list(zip(costs.blocks.num_bytes.tolist(), users, strict=True))

    def seconds(self, runs: list[range], teams: tuple[tuple[int, ...], ...]) -> float:
        """Return the seconds of a plan; infinity if it breaks a rule."""
        problem, costs = self.problem, self.problem.costs
        of_op = [0] * problem.graph.num_ops
        for at, run in enumerate(runs):
            for op in (op for block in run for op in self.blocks[block]):
                of_op[op] = at
        for op, stage in enumerate(of_op):
            pin = int(problem.pinned[op])
            if (pin != UNPINNED and pin not in teams[stage]) or not costs.supported[op, self.kind[teams[stage][0]]]:
                return math.inf
        for stage, team in enumerate(teams):
            limit = problem.platform.devices[team[0]].memory_bytes
            held = {op for op, own in enumerate(of_op) if own == stage}
            used = math.fsum(costs.op_memory_bytes[op] for op in held)
            used += math.fsum(size for size, users in self.shared if users & held)
            if limit is not None and used > limit * (1 + 1e-12):
                return math.inf
        load = [0.0] * len(runs)
        for op, stage in enumerate(of_op):
            load[stage] += costs.op_time_s[op, self.kind[teams[stage][0]]]
        self._move(of_op, [team[0] for team in teams], load)
        if isinstance(problem.objective, SerialLatency):
            return math.fsum(load)
        return max(own / len(team) for own, team in zip(load, teams, strict=True))

    def _move(self, of_op: list[int], device: list[int], load: list[float]) -> None:
        """Add what every stage pays for tensors that cross."""
        costs = self.problem.costs
        for t, producer in enumerate(self.producer):
            source, by_host = of_op[producer], set[int]()
            for target in {of_op[reader] for reader in self.readers[t]} - {source}:
                link = self._link(device[source], device[target])
                if link is None:
                    by_host |= {source, target}
                    continue
                load[target] += costs.direct_time_s[t, link]
                if not isinstance(self.problem.objective, SerialLatency):
                    load[source] += costs.direct_time_s[t, link]
            for stage in by_host:
                load[stage] += costs.transfer_time_s[t, self.kind[device[stage]]]

    def _link(self, a: int, b: int) -> int | None:
        one, other = self.problem.platform.devices[a], self.problem.platform.devices[b]
        names = tuple(sorted((one.kind, other.kind)))
        found = [
            (link.kinds is not None, at)
            for at, link in enumerate(self.problem.platform.direct_links)
            if link.between_nodes == (one.node != other.node) and link.kinds in (None, names)
        ]
        return max(found)[1] if found else None


def check_chain(problem: Problem, optimum_s: float | None, asked: Asked) -> Finding | None:
    """Solve `problem` and return what is wrong with the result; None if nothing is."""
    if asked.method != "chain":
        return check(problem, optimum_s, asked)
    if Chain().supports(problem) is not None:
        return None
    result = solve(problem, "chain", stop=MaxRuntime(asked.time_s), seed=asked.seed)
    return check_result(problem, optimum_s, result, must_prove=True)
