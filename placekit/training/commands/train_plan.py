"""``placekit train-plan``: pipeline stages, parallel degrees and recomputation for the training of a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from rich.console import RenderableType
from rich.text import Text

from placekit.cli.console import check_writable, refuse_overwriting, tell
from placekit.cli.options import DetailsOption, JsonOption, SearchOptions, exit_code, output_option
from placekit.cli.output.progress import SolveLine
from placekit.cli.output.render import evidence_facts, fact_lines, paragraphs, plain_table, violation_lines
from placekit.cli.output.units import format_count, format_time
from placekit.cli.parameters import OBJECTIVE, PLATFORM, option
from placekit.io.files.platform_toml import parse_memory
from placekit.model.errors import InvalidProblemError
from placekit.model.sizes import format_bytes, format_share
from placekit.solve.result import SOLVER_TOLERANCE, Status
from placekit.solve.stop import MaxRuntime
from placekit.solvers.training_plan.solve import plan_method, solve_plan
from placekit.training.piper_json import read_piper
from placekit.training.plan_json import write_plan
from placekit.training.problem import Restrictions, TrainingProblem
from placekit.training.result import PlanResult
from placekit.training.schedule import best_by_step
from placekit.training.transformer import is_transformer, transformer_problem

BY_HAND, BY_HAND_S = "equal-split", 2.0
"""Plan that a person makes without a search, and the most seconds for it."""


@dataclass(frozen=True)
class TrainingOptions:
    """Machine and restrictions of a training plan; None for what the file says."""

    panel: ClassVar[str] = OBJECTIVE

    devices: int | None = option(None, "Number of devices.", "N", panel=PLATFORM)
    memory: str | None = option(None, "Memory of each device.", "8GiB", panel=PLATFORM)
    bandwidth: str | None = option(None, "Bandwidth of each device per second.", "25GiB", panel=PLATFORM)
    accelerator: str | None = option(
        None,
        "Accelerator of a named transformer: v100-32gb, a100-40gb, a100-80gb (default), h100-80gb.",
        "NAME",
        panel=PLATFORM,
    )
    microbatches: int | None = option(None, "Number of microbatches in a batch.", "N")
    data_parallel: bool = option(True, "Allow replicas of stages that share the microbatches.")
    tensor_parallel: bool = option(True, "Allow devices that share the layers of a stage.")
    recomputation: bool = option(True, "Allow activations that are computed again instead of kept.")
    powers_of_two: bool = option(False, "Allow numbers of replicas that are powers of two only.")
    schedule: str | None = option(None, "Choose by the time of a simulated step: gpipe, 1f1b or interleaved.", "NAME")

    def changes(self) -> dict[str, Any]:
        """Return the fields of the problem that are given."""
        given: dict[str, Any] = {
            "num_devices": self.devices,
            "memory_bytes": None if self.memory is None else parse_memory(self.memory, "--memory"),
            "bandwidth_bytes_per_s": None if self.bandwidth is None else parse_memory(self.bandwidth, "--bandwidth"),
            "num_microbatches": self.microbatches,
        }
        rules = Restrictions(self.data_parallel, self.tensor_parallel, self.recomputation, self.powers_of_two)
        return {name: value for name, value in given.items() if value is not None} | {"restrictions": rules}


def train_plan(
    source: Annotated[
        Path,
        typer.Argument(
            help="Training problem (.json of Piper), or a named transformer: 1.5b, 7b, 13b, 70b, 175b, "
            "transformer:hidden=4096,blocks=32,...",
            show_default=False,
        ),
    ],
    *,
    search: SearchOptions,
    training: TrainingOptions,
    output: Path | None = output_option("Plan file (default STEM.plan.json); - for stdout."),
    details: DetailsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Plan the training of a model: stages, data and tensor parallel degrees, and recomputation.

    `placekit show` draws the plan file, and `placekit explain` says what limits the plan.
    """
    plan_method(search.method, search.params)
    problem, assumptions = read_training(source, training)
    target = check_writable(output or Path(f"{source.stem}.plan.json"))
    refuse_overwriting(target, source)
    with SolveLine(search.time_limit) as line:
        result = solve_plan(
            problem, search.method, stop=search.stop(), seed=search.seed, params=search.params, on_progress=line
        )
        if training.schedule is not None and result.plan is not None:
            result = best_by_step(problem, result, training.schedule, solve_plan)
    by_hand = solve_plan(problem, BY_HAND, stop=MaxRuntime(BY_HAND_S))
    result = result.with_info("by_hand_s", by_hand.objective)
    if assumptions:
        result = result.with_info("assumptions", assumptions)
    write_plan(result, target)
    document = result.to_dict() | {"files": {"plan": str(target)}}
    parts = plan_parts(result, fact_lines({"wrote plan": str(target)}), details=details)
    tell(as_json, document, parts)
    raise typer.Exit(exit_code(result.plan, result.status))


def read_training(source: Path, options: TrainingOptions) -> tuple[TrainingProblem, list[str]]:
    """Return the problem of a file or of a named transformer, and its assumptions."""
    if not source.exists() and is_transformer(str(source)):
        return transformer_problem(str(source), options.accelerator or "a100-80gb", options.changes())
    if options.accelerator is not None:
        raise InvalidProblemError(f"--accelerator goes with a named transformer; {source} has its own costs")
    return read_piper(source, **options.changes()), []


def plan_sentence(result: PlanResult) -> str:
    """Return what to do in one sentence: the plan, its gain over equal stages by hand, and how sure that is."""
    if result.plan is None or not result.objective:
        lacks = f": {result.violations[0]}" if result.violations else ""
        told = "No plan satisfies the constraints" if result.status is Status.INFEASIBLE else "No plan was found"
        return f"{told}{lacks}."
    stages = format_count(len(result.plan.stages), "stage")
    takes = format_time(result.objective * result.num_microbatches)
    devices = f"{result.plan.num_devices} of {format_count(result.num_devices, 'device')}"
    told = f"Train in {stages} on {devices}: {takes} per batch"
    by_hand_s = result.info.get("by_hand_s")
    if by_hand_s and by_hand_s > result.objective * (1 + SOLVER_TOLERANCE):
        told += f", {by_hand_s / result.objective:.3g}x as fast as the best plan of equal stages and degrees"
    elif by_hand_s:
        told += ", no faster than equal stages and degrees"
    elif "by_hand_s" in result.info:
        told += "; no plan of equal stages and degrees was found that fits"
    if result.status is Status.OPTIMAL:
        return f"{told}; no plan is faster (proven)."
    if not result.gap or result.gap >= 1:
        return f"{told}; not proven."
    return f"{told}; at most {format_share(result.gap)} from the best plan."


def plan_parts(
    result: PlanResult, written: RenderableType | None = None, *, details: bool = True
) -> Iterator[RenderableType]:
    """Return the parts of a plan: answer, file, stages, objective, bound, machine; or the reason for no plan."""
    assumptions = result.info.get("assumptions")
    machine = (
        f"{format_count(result.num_devices, 'device')}, {format_bytes(result.memory_bytes)} each, "
        f"{format_bytes(result.bandwidth_bytes_per_s)}/s, {format_count(result.num_microbatches, 'microbatch', 'es')}"
    )
    facts = evidence_facts(result, "training-plan", "plan")
    if result.objective:
        batch = format_time(result.objective * result.num_microbatches)
        facts["objective"] = f"{facts['objective']} per microbatch, {batch} per batch"
    step = result.info.get("step")
    if step is not None:
        told = f"{step['schedule']}: {format_time(step['step_s'])}, {format_share(step['bubble'])} of it idle (bubble)"
        facts["step"] = f"{told}; bound {format_time(step['bound_s'])}, gap {format_share(step['gap'])}"
        if step["over_memory"]:
            facts["memory"] = f"{step['schedule']} holds more than the limit on {', '.join(step['over_memory'])}"
    yield from paragraphs(
        Text(plan_sentence(result), style="bold"),
        written,
        None if result.plan is None else _plan_table(result),
        fact_lines(facts),
        fact_lines({"model": f"{result.problem_name}, {len(result.layer_names)} layers", "machine": machine}),
        _assumed(assumptions, details) if assumptions else None,
    )
    untold = result.violations[1:] if result.plan is None else result.violations  # the first line tells the first
    if untold:
        yield ("other reasons:" if result.plan is None else "the nearest plan that was found breaks:")
        yield from violation_lines(untold)


def _assumed(assumptions: Sequence[str], details: bool) -> list[RenderableType]:
    """Return what was assumed of a named transformer and its machine, or how many lines say that."""
    if not details:
        return [f"{len(assumptions)} assumptions about model and machine: --details"]
    return ["assumed:", *(f"- {told}" for told in assumptions)]


def _plan_table(result: PlanResult) -> RenderableType:
    assert result.plan is not None
    table = plain_table("stage", "layers", "data", "tensor", "load ms", "in flight", "memory")
    table.add_column("choices", overflow="fold", min_width=30)
    for at, (stage, load) in enumerate(zip(result.plan.stages, result.stages, strict=True)):
        counts = Counter(result.choice_names[v] for v in stage.layers)
        table.add_row(
            str(at),
            str(len(stage.layers)),
            str(stage.data_degree),
            str(stage.tensor_degree),
            f"{load.load_s * 1e3:.5g}",
            str(load.in_flight),
            format_bytes(load.memory_bytes),
            ", ".join(f"{count} {name}" for name, count in counts.items()),
        )
    return table
