r"""Training of a policy for all problems: draw problems, solve them, and learn from the answers.

    python examples/train_policy.py DATA policy.pt --problems 1500 --updates 2000
    placekit solve model.xml --method policy:policy.pt

DATA is a folder of problem files and of results as `placekit solve` writes them; problems that are not there yet are
drawn and solved by `auto`, a second each. Training is a learner in the loop of all learners: `--resume policy.pt` goes
on, `--log-dir` keeps metrics, `--policy pretrained` begins with the weights of another policy.

The loss of a problem is

    w * cross-entropy of the devices + 4 * squared error of the starts + 2 * log(relaxed objective / objective)

with ``w = 1 / (1 + 4 gap)``, so that proven placements weigh most (half as much for throughput, where a balanced load
has many equally good placements). Exchanging two devices of one kind changes nothing, so a placement stands for many:
it is rewritten such that, among the devices of a kind, the one whose ops come first has the first rank (`canonical`).

The *relaxed objective* lets every op choose its device on its own, with probability :math:`p_{v,d}`. By linearity the
expected load of a device is exact,

.. math:: E[load(d)] = \sum_v p_{v,d} t_{v,d} + \sum_u c_{u,d} \Big( p_{u,d} \big(1 - \prod_r p_{r,d}\big)
    + (1 - p_{u,d}) \big(1 - \prod_r (1 - p_{r,d})\big) \Big)

over tensors u with producer u and readers r: a tensor leaves its device if a reader is elsewhere, and enters every
other device that has a reader. Then

* serial latency: the sum of the loads, exact;
* throughput: their p-norm, which is close to the largest;
* makespan: the p-norm of the loads of compute and of the longest path at expected times and transfers (a path that is
  longest at the present scores; its gradient is that of the longest path wherever there is only one).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import placekit as pk
from placekit.benchmarks.generators.drawn import draw_problem
from placekit.io.files.problem_json import read_problem, write_problem
from placekit.io.files.result_json import read_result, write_result
from placekit.learned.environment import Environment
from placekit.learned.imitation.inputs import OBJECTIVES, Batch, Inputs, collate, inputs_of
from placekit.learned.imitation.method import Imitation, ImitationLearner, ImitationMethodParams
from placekit.learned.imitation.network import Scores, sum_rows
from placekit.learned.learner import Lessons
from placekit.learned.method import apply_weights, policy_path, seeded_learner
from placekit.learned.training.checkpoint import ANY_DEVICES, Checkpoint, read_checkpoint, write_checkpoint
from placekit.learned.training.journal import Journal
from placekit.learned.training.loop import Metrics, Training, train
from placekit.learned.training.threads import one_thread
from placekit.model.errors import InvalidProblemError
from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.objectives.evaluate import evaluate
from placekit.objectives.makespan.instance import instance_of
from placekit.objectives.makespan.simulate import simulate_fifo, simulate_steps

SAVE_EVERY_S = 60.0
_WARM_UP = 50
_NORM = 8.0
_LEAST = 1e-6
_OF_DEVICES = (1.0, 1.0, 0.5)  # by objective
_OF_START, _OF_RELAXED, _DOUBT = 4.0, 2.0, 4.0


@dataclass(frozen=True)
class CurriculumParams(ImitationMethodParams):
    """Parameters of the training: those of the method, of which `rounds` is the most that an update draws.

    Parameters
    ----------
    states
        States of a batch, about: pairs of op and device.
    """

    updates: int = 2000
    patience: int = 0
    learning_rate: float = 2e-3
    states: int = 3000

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("states", least=1)

    def rate(self, update: int) -> float:
        """Return the step size: it rises over the first updates, then falls along a cosine to zero."""
        cosine = 0.5 * (1 + math.cos(math.pi * min(update / max(self.updates, 1), 1.0)))
        return self.learning_rate * min(1.0, (update + 1) / _WARM_UP) * cosine


class Example(NamedTuple):
    """One solved problem.

    Parameters
    ----------
    problem, inputs
        The problem, and what the policy sees of it.
    state
        ``[num_ops]`` state of every op in the canonical placement, ``op * num_devices + device``.
    start
        ``[num_ops]`` start of every op over the makespan; NaN where the objective has no order.
    objective
        Objective over `Inputs.unit_s`.
    gap
        Gap to the bound; infinity without a bound.
    """

    problem: Problem
    inputs: Inputs
    state: NDArray[np.int64]
    start: NDArray[np.float64]
    objective: float
    gap: float


def canonical(problem: Problem, device_of_op: NDArray[np.int64]) -> NDArray[np.int64]:
    """``[num_ops]`` the placement with equal devices in the order of the mean position of their ops; empty ones last.

    Devices of a kind that an op is pinned to stay as they are.

    Examples
    --------
    >>> import placekit as pk
    >>> graph = pk.OpGraph.from_edges(["a", "b"], [("a", "b")])
    >>> costs = pk.CostTable(("cpu",), [[1.0], [2.0]], [[0.0]], [0, 0])
    >>> canonical(pk.Problem(graph, pk.Platform.of(cpu=3), costs), np.array([2, 1]))
    array([0, 1])
    """
    instance = instance_of(problem)
    kind = instance.kind
    count = np.bincount(device_of_op, minlength=len(kind))
    position = np.bincount(device_of_op, weights=instance.rank, minlength=len(kind)) / np.maximum(count, 1)
    position[count == 0] = np.inf
    renamed = np.arange(len(kind))
    pinned_kinds = set(kind[problem.pinned[problem.pinned >= 0]].tolist())
    for each in np.unique(kind).tolist():
        devices = np.flatnonzero(kind == each)
        if each not in pinned_kinds:
            renamed[devices[np.argsort(position[devices], kind="stable")]] = devices
    return renamed[device_of_op]


def example_of(problem: Problem, placement: Placement, bound_s: float | None) -> Example:
    """Return a solved problem as an example.

    Raises
    ------
    InvalidProblemError
        A placement that breaks a constraint.
    """
    scored = evaluate(problem, placement)
    if scored.objective is None or scored.violations:
        raise InvalidProblemError(
            f"problem {problem.name!r}: its placement breaks a constraint: {scored.violations[0]}"
        )
    inputs, device_of_op, step_of_op = inputs_of(problem), placement.device_of_op, placement.step_of_op
    start = np.full(inputs.num_ops, np.nan)
    if problem.objective.name == "makespan":
        instance = instance_of(problem)
        timeline = simulate_fifo(instance, device_of_op)
        if step_of_op is not None:
            ordered = simulate_steps(instance, device_of_op, step_of_op)
            assert not isinstance(ordered, int)  # the judge has run it: no device waits for ever
            timeline = ordered
        start = timeline.start_s / max(timeline.makespan_s, 1e-30)
    return Example(
        problem,
        inputs,
        np.arange(inputs.num_ops) * inputs.num_devices + canonical(problem, device_of_op),
        start,
        scored.objective / inputs.unit_s,
        scored.objective / bound_s - 1 if bound_s else math.inf,
    )


class Curriculum(ImitationLearner):
    """Learner whose lessons are examples of many problems, in an order drawn anew for every update."""

    params: CurriculumParams
    examples: Sequence[Example]

    def lesson(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return the loss of some examples, and the log-probabilities of their devices."""
        params = self.params
        drawn: list[Example] = []
        for at in torch.randperm(len(self.examples), generator=generator).tolist():
            drawn.append(self.examples[at])
            if sum(len(each.inputs.allowed) for each in drawn) >= params.states:
                break
        least = max(1, 2 * params.rounds // 3)
        rounds = int(torch.randint(least, params.rounds + 1, (1,), generator=generator))
        batch = collate([each.inputs for each in drawn])
        return imitation_loss(batch, self.policy(batch, rounds), drawn)


def imitation_loss(batch: Batch, scores: Scores, examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
    """Return the loss of a batch of `examples`, and the log-probabilities ``[O]`` of their devices."""
    begins = np.cumsum([0, *(len(each.inputs.allowed) for each in examples[:-1])])
    states = np.concatenate([each.state + begin for each, begin in zip(examples, begins, strict=True)])
    starts = torch.from_numpy(np.concatenate([each.start for each in examples])).float()
    objective = torch.tensor([each.objective for each in examples], dtype=torch.float32)
    gap = torch.tensor([each.gap for each in examples], dtype=torch.float32)
    graph, num_graphs = batch.graph_of_op, len(examples)
    per_graph = sum_rows(torch.ones_like(scores.start), graph, num_graphs)
    log_probs = scores.log_probs[torch.from_numpy(states)]
    surprise = sum_rows(-log_probs, graph, num_graphs) / per_graph
    weight = torch.tensor(_OF_DEVICES)[batch.objective] / (1 + _DOUBT * gap.clamp(0, 10))
    error = torch.where(starts.isnan(), torch.zeros_like(starts), scores.start - starts.nan_to_num()) ** 2
    start = sum_rows(error, graph, num_graphs) / per_graph
    # not the logarithm of the ratio: its gradient would be rounded by the objective, and Adam enlarges that
    promised = relaxed_objective(batch, scores.log_probs).log() - objective.clamp_min(_LEAST).log()
    return (weight * surprise + _OF_START * start + _OF_RELAXED * promised).mean(), log_probs


def relaxed_objective(batch: Batch, log_probs: Tensor) -> Tensor:
    """``[G]`` relaxed objective of every problem, in its unit; see the module docstring.

    Parameters
    ----------
    batch
        ``G`` problems.
    log_probs
        ``[N]`` log-probabilities of the states.
    """
    probs = torch.where(batch.allowed, log_probs.exp(), torch.zeros_like(log_probs))
    num_devices, num_graphs = len(batch.graph_of_device), len(batch.objective)
    of_rows = batch.producer_state
    log_here = sum_rows(probs.clamp_min(_LEAST).log()[batch.pair_reader], batch.pair_tensor, len(of_rows))
    log_away = sum_rows((1 - probs).clamp_min(_LEAST).log()[batch.pair_reader], batch.pair_tensor, len(of_rows))
    home = probs[of_rows]
    moved = batch.transfer * (home * (1 - log_here.exp()) + (1 - home) * (1 - log_away.exp()))
    work = sum_rows(probs * batch.time, batch.device_of_state, num_devices)
    load = work + sum_rows(moved, batch.device_of_state[of_rows], num_devices)
    serial = sum_rows(load, batch.graph_of_device, num_graphs)
    throughput = _norm(load, batch.graph_of_device, num_graphs)
    path = _longest_path(batch, probs)
    makespan = (_norm(work, batch.graph_of_device, num_graphs) ** 4 + path**4 + _LEAST) ** 0.25
    by_name = {"serial-latency": serial, "makespan": makespan, "throughput": throughput}
    chosen: Tensor = torch.stack([by_name[name] for name in OBJECTIVES]).gather(0, batch.objective[None])[0]
    return chosen


def _norm(load: Tensor, graph: Tensor, num_graphs: int) -> Tensor:
    """``[G]`` p-norm of the loads of each problem: at least the largest."""
    largest = load.detach().new_zeros(num_graphs).scatter_reduce(0, graph, load.detach(), "amax").clamp_min(_LEAST)
    total = sum_rows((load / largest[graph]).clamp_min(0) ** _NORM, graph, num_graphs)
    return largest * total ** (1 / _NORM)


def _longest_path(batch: Batch, probs: Tensor) -> Tensor:
    """``[G]`` longest path at expected times and transfers, with the gradient of the path that is longest now."""
    num_ops, num_graphs = len(batch.graph_of_op), len(batch.objective)
    time = sum_rows(probs * batch.time, batch.op_of_state, num_ops)
    home, there = probs[batch.producer_state[batch.pair_tensor]], probs[batch.pair_reader]
    cost = batch.transfer[batch.pair_tensor] * (home * (1 - there) + there * (1 - home))
    transfer = sum_rows(cost, batch.edge_of_pair, len(batch.edge_from))
    ops, edges = (torch.tensor(found, dtype=torch.int64) for found in _trace(batch, time, transfer))
    total = sum_rows(time[ops], batch.graph_of_op[ops], num_graphs)
    return total + sum_rows(transfer[edges], batch.graph_of_op[batch.edge_from[edges]], num_graphs)


def _trace(batch: Batch, time: Tensor, transfer: Tensor) -> tuple[list[int], list[int]]:
    """Return the ops and the edges of a longest path in every problem. O(ops + edges)."""
    times, transfers = time.tolist(), transfer.tolist()
    senders, receivers = batch.edge_from.tolist(), batch.edge_to.tolist()
    end = list(times)  # producers come in topological order: what enters an op is final before it is read
    through = [-1] * len(times)
    for edge, (u, v) in enumerate(zip(senders, receivers, strict=True)):
        reached = end[u] + transfers[edge] + times[v]
        if reached > end[v]:
            end[v], through[v] = reached, edge
    graph = batch.graph_of_op.numpy()
    by_end = np.lexsort((end, graph))
    last = by_end[np.append(np.diff(graph[by_end]) > 0, True)]
    ops: list[int] = []
    edges: list[int] = []
    for op in last.tolist():
        ops.append(op)
        while through[ops[-1]] >= 0:
            edges.append(through[ops[-1]])
            ops.append(senders[edges[-1]])
    return ops, edges


class _Method(Imitation):
    learner_type = Curriculum


def solved_problems(folder: Path, count: int, seed: int, max_ops: int, limit_s: float) -> list[Example]:
    """Draw and solve the problems that `folder` lacks, and return all results in it that have a placement."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        path = folder / f"train-{max_ops}-{seed}-{number:05d}.result.json"
        if not path.exists():
            problem = draw_problem("train", seed, number, max_ops=max_ops)
            write_problem(problem, _problem_of(path))
            write_result(pk.solve(problem, stop=pk.MaxRuntime(limit_s), seed=number), path)
    found = [(read_problem(_problem_of(path)), read_result(path)) for path in sorted(folder.glob("*.result.json"))]
    return [example_of(problem, each.placement, each.lower_bound) for problem, each in found if each.placement]


def _problem_of(path: Path) -> Path:
    return path.with_name(path.name.replace(".result.json", ".problem.json"))


@one_thread()
def train_policy(
    examples: Sequence[Example],
    output: Path,
    params: CurriculumParams,
    seed: int = 0,
    policy: Path | None = None,
    resume: Path | None = None,
    log_dir: Path | None = None,
) -> list[Metrics]:
    """Train on `examples` and write `output` now and then; return the metrics of all updates."""
    environment = Environment(examples[0].problem)
    learner = seeded_learner(_Method(params), environment, seed)
    assert isinstance(learner, Curriculum)
    learner.examples = examples
    learner.lessons = Lessons(params.updates, -1.0, params.rate(0), 0)  # no loss is low enough to end it
    if policy is not None:
        apply_weights(learner, read_checkpoint(policy), Imitation.name, environment.problem)
    training = Training.begin(learner, environment, params, seed)
    if resume is not None:
        training.restore(dict(read_checkpoint(resume).training or {}))
    told: list[Metrics] = []
    written = perf_counter()

    def write() -> None:
        nonlocal written
        weights = learner.transferable()
        write_checkpoint(output, Checkpoint(Imitation.name, asdict(params), ANY_DEVICES, "", weights, training.state()))
        written = perf_counter()

    with ExitStack() as stack:
        resumed_at = None if resume is None else training.update
        journal = None if log_dir is None else stack.enter_context(Journal(log_dir, resumed_at))

        def report(metrics: Metrics) -> None:
            told.append(metrics)
            if journal is not None:
                journal(metrics)
            if metrics.update % 50 == 0:
                print(metrics)
            training.set_rate(params.rate(training.update))
            if perf_counter() - written >= SAVE_EVERY_S:
                write()

        training.set_rate(params.rate(training.update))
        stack.callback(write)  # also after Ctrl-C
        train(training, lambda: None, report)
    return told


def main() -> None:
    """Read the options, make the data, and train."""
    parser = argparse.ArgumentParser(description="Train a policy for all problems on drawn, solved problems.")
    parser.add_argument("data", type=Path, help="Folder of problems and their results.")
    parser.add_argument("output", type=Path, help="Policy file to write.")
    parser.add_argument("--problems", type=int, default=1500, help="Number of drawn problems. Default: 1500.")
    parser.add_argument("--max-ops", type=int, default=150, help="Largest number of ops. Default: 150.")
    parser.add_argument("--label-time", type=float, default=1.0, help="Seconds to solve each problem. Default: 1.")
    parser.add_argument("--updates", type=int, default=2000, help="Number of updates. Default: 2000.")
    parser.add_argument("--seed", type=int, default=0, help="Seed of problems and training. Default: 0.")
    parser.add_argument("--policy", type=policy_path, help="Policy whose weights to begin with, or 'pretrained'.")
    parser.add_argument("--resume", type=Path, help="Policy of an earlier training on the same data to go on from.")
    parser.add_argument("--log-dir", type=Path, help="Folder for metrics.jsonl and TensorBoard events.")
    asked = parser.parse_args()
    examples = solved_problems(asked.data, asked.problems, asked.seed, asked.max_ops, asked.label_time)
    params = CurriculumParams(updates=asked.updates)
    train_policy(examples, asked.output, params, asked.seed, asked.policy, asked.resume, asked.log_dir)


if __name__ == "__main__":
    main()
