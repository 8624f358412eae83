"""Latency, rate and memory of a served language model under a placement, and the limit that breaks first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from placekit.language.planning.reserved import buffer_bytes
from placekit.language.task import LanguageTask
from placekit.model.blocks.block_paths import BEFORE, block_numbers
from placekit.model.costs import CostTable
from placekit.model.errors import InvalidProblemError
from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.model.reprs import short_repr
from placekit.objectives import SerialLatency, Throughput
from placekit.objectives.base import moved_tensors
from placekit.objectives.evaluate import evaluate


@dataclass(frozen=True)
class DeviceMemory:
    """Memory that a device holds."""

    device: str
    # weight_bytes, cache_bytes, activation_bytes: weights, keys and values of all sequences in flight, and what is set
    # aside for activations
    weight_bytes: float
    cache_bytes: float
    activation_bytes: float
    limit_bytes: float | None  # of the device; None for no limit
    most_sequences: int | None  # sequences in flight that fit beside the weights; None for any number


@dataclass(frozen=True)
class ServingReport:
    """Latency, rate and memory of a placement.

    Parameters
    ----------
    time_to_first_token_s
        Seconds in which a batch of prompts passes all stages, nothing else in the way; None without a prompt.
    time_per_token_s
        Seconds in which a step of decoding passes all stages, for every sequence of its batch; None without.
    request_s
        Both together, for all tokens of a request.
    steady_requests_per_s
        Requests per second if there is always a batch for every stage.
    requests_per_s, tokens_per_s
        With the sequences in flight: no more batches are under way than there are. Tokens are those generated, or
        those of prompts if nothing is generated.
    prompt_tokens_per_s, generated_tokens_per_s
        Of each phase alone, as llama-bench counts them, of all sequences in flight together; None without the phase.
    batches, batches_to_fill
        Batches in flight, and how many the slowest stage needs so as never to wait.
    memory
        What every device that holds weights or a cache holds.
    most_sequences, next_breaks
        Sequences in flight that fit on all devices, and the device that one more breaks; None for any number.
    """

    time_to_first_token_s: float | None
    time_per_token_s: float | None
    request_s: float
    steady_requests_per_s: float
    requests_per_s: float
    tokens_per_s: float
    batches: int
    batches_to_fill: int
    memory: tuple[DeviceMemory, ...]
    most_sequences: int | None
    next_breaks: str | None
    prompt_tokens_per_s: float | None = None
    generated_tokens_per_s: float | None = None

    __repr__ = short_repr

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return asdict(self) | {"memory": [asdict(each) for each in self.memory]}


def serving_report(task: LanguageTask, placement: Placement) -> ServingReport:
    """Return what `placement` delivers.

    Parameters
    ----------
    task
        What is served.
    placement
        A placement of its problem.

    Raises
    ------
    InvalidProblemError
        A placement that puts an op on a device that cannot run it.
    """
    problem, serving = task.problem, task.serving
    pipeline = problem.objective if problem.objective.has_pipeline else Throughput()
    judged = evaluate(problem.replace(objective=pipeline), placement)
    if judged.objective is None:
        raise InvalidProblemError(f"{problem.name!r}: {judged.violations[0]}")
    passage = {name: _passage_s(problem, placement, table) for name, table in task.costs_of_phase.items()}
    seconds = {phase.name: phase.count * passage[phase.name] for phase in serving.phases}
    if "prefill" in seconds and task.overlaps_prompt and not task.hosted_blocks:
        seconds["prefill"] = _overlapped_s(task, placement, passage["prefill"])
    request_s = sum(seconds.values())
    first_token = seconds.get("prefill")
    batches = serving.sequences // serving.batch
    steady = serving.batch / judged.objective if judged.objective > 0 else np.inf
    reached = min(steady, batches * serving.batch / request_s) if request_s > 0 else steady
    memory = tuple(_memory(task, placement))
    limited = [each for each in memory if each.most_sequences is not None]
    tightest = min(limited, key=lambda each: each.most_sequences or 0, default=None)
    return ServingReport(
        time_to_first_token_s=first_token,
        time_per_token_s=passage.get("decode"),
        request_s=request_s,
        steady_requests_per_s=steady,
        requests_per_s=reached,
        tokens_per_s=reached * (serving.generated or serving.prompt),
        batches=batches,
        batches_to_fill=int(np.ceil(request_s / judged.objective * (1 - 1e-9))) if judged.objective > 0 else 1,
        memory=memory,
        most_sequences=None if tightest is None else tightest.most_sequences,
        next_breaks=None if tightest is None else tightest.device,
        prompt_tokens_per_s=_phase_tokens_per_s(task, placement, "prefill", seconds, batches),
        generated_tokens_per_s=_phase_tokens_per_s(task, placement, "decode", seconds, batches),
    )


def _phase_tokens_per_s(
    task: LanguageTask, placement: Placement, phase: str, seconds: Mapping[str, float], batches: int
) -> float | None:
    """Return the tokens per second of a phase alone: of one batch, or of several that follow each other."""
    serving, passage_s = task.serving, seconds.get(phase)
    if not passage_s:
        return None
    tokens = serving.batch * (serving.prompt if phase == "prefill" else serving.generated)
    if batches == 1:
        return tokens / passage_s
    count = next(each.count for each in serving.phases if each.name == phase)
    slowest_s = count * _slowest_s(task, placement, phase)
    return tokens * min(1 / slowest_s if slowest_s else math.inf, batches / passage_s)


def _overlapped_s(task: LanguageTask, placement: Placement, passage_s: float) -> float:
    """Return the seconds of a prompt whose chunks follow one another through the cards.

    The first chunk passes all stages, and each further one ends when the slowest stage is done with it. With blocks on
    the host the chunks wait for each other.
    """
    problem = task.problem
    count = next(phase.count for phase in task.serving.phases if phase.name == "prefill")
    blocks = block_numbers(problem.graph)
    on_host = np.array([device.is_host for device in problem.platform.devices])[placement.device_of_op]
    if count == 1 or bool((on_host & (blocks != BEFORE)).any()):
        return count * passage_s
    return passage_s + (count - 1) * _slowest_s(task, placement, "prefill")


def _slowest_s(task: LanguageTask, placement: Placement, phase: str) -> float:
    """Return the seconds of the slowest device in one step of a phase."""
    problem = task.problem
    costs = task.costs_of_phase[phase].for_kinds(problem.platform.kinds)
    costs = costs.for_links(problem.platform.direct_link_names)
    pipeline = problem.objective if problem.objective.has_pipeline else Throughput()
    slowest_s = evaluate(problem.replace(costs=costs, objective=pipeline), placement).objective
    assert slowest_s is not None  # the placement was judged before
    return slowest_s


def _passage_s(problem: Problem[Any], placement: Placement, costs: CostTable) -> float:
    """Return the seconds of one step through all stages, one after the other; of a team through its slowest member."""
    costs = costs.for_kinds(problem.platform.kinds).for_links(problem.platform.direct_link_names)
    if problem.has_direct_links:  # then there are no teams
        step = problem.replace(costs=costs, objective=SerialLatency())
        return float(step.objective.score(step, placement.device_of_op).objective_s)
    tensor, home = moved_tensors(problem, placement.device_of_op)
    total = 0.0
    for members in placement.teams:
        kinds = np.unique(problem.platform.kind_of_device[list(members)])
        busy = costs.op_time_s[placement.device_of_op == members[0]][:, kinds].sum(axis=0)
        total += float((busy + costs.transfer_time_s[tensor[home == members[0]]][:, kinds].sum(axis=0)).max())
    return total


def _memory(task: LanguageTask, placement: Placement) -> list[DeviceMemory]:
    found, of_device = [], {} if task.buffers is None else buffer_bytes(task, placement)
    for members in placement.teams:
        held = placement.device_of_op == members[0]
        is_host = task.problem.platform.devices[members[0]].is_host
        weights, of_one = task.held_bytes(held), float(task.cache_bytes[held].sum())
        hosted, cached = (task.hosted_bytes, task.host_cache_bytes) if is_host else (0.0, 0.0)
        of_one += cached
        for device in members if weights or of_one or hosted else ():
            joined = task.problem.platform.devices[device]
            left, share = joined.memory_bytes, 1 / joined.degree
            activations = of_device.get(joined.name, task.activation_bytes)
            taken = task.serving.sequences * cached  # is not in the limit of the problem
            free = math.inf if left is None else left + taken + task.activation_bytes - activations - weights
            most = None if left is None or of_one == 0 else max(0, int(free / of_one * (1 + 1e-12)))
            found += [
                DeviceMemory(
                    name, weights * share + hosted, of_one * task.serving.sequences * share, activations,
                    None if left is None else left * share + task.activation_bytes + hosted + taken, most,
                )
                for name in joined.member_names
            ]  # fmt: skip
    return found
