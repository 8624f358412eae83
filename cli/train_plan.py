"""``placekit solve --objective training-plan``: from a file and options to a plan, and what to tell of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from placekit.cli.units import format_bytes, format_count, format_share, format_time
from placekit.model.errors import InvalidProblemError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from placekit.solve.stop import Stop
    from placekit.training.problem import TrainingProblem
    from placekit.training.result import PlanResult

__all__ = [
    "TRAINING_PLAN",
    "TrainingOptions",
    "draw_plan",
    "explain_training",
    "is_training_problem",
    "one_size",
    "plan_parts",
    "solve_training",
]

TRAINING_PLAN = "training-plan"
EXIT_INFEASIBLE, EXIT_NO_ANSWER = 3, 4


@dataclass(frozen=True)
class TrainingOptions:
    """What the user said about machine and plan; None for what the file says.

    Parameters
    ----------
    devices, microbatches
        Counts.
    memory, bandwidth
        Sizes such as ``8GiB``, per device, and per second.
    accelerator
        Named accelerator, for a transformer without a file.
    data_parallel, tensor_parallel, recomputation, powers_of_two
        As :class:`placekit.training.problem.Restrictions`.
    schedule
        ``"gpipe"``, ``"1f1b"`` or ``"interleaved"``: choose by the time of a step.
    """

    devices: int | None = None
    memory: str | None = None
    bandwidth: str | None = None
    microbatches: int | None = None
    accelerator: str | None = None
    data_parallel: bool = True
    tensor_parallel: bool = True
    recomputation: bool = True
    powers_of_two: bool = False
    schedule: str | None = None

    def changes(self) -> dict[str, Any]:
        """Return the fields of the problem that are given.

        Raises
        ------
        InvalidProblemError
            A size that is none.
        """
        from placekit.io.platform_toml import parse_memory
        from placekit.training.problem import Restrictions

        given: dict[str, Any] = {
            "num_devices": self.devices,
            "memory_bytes": None if self.memory is None else parse_memory(self.memory, "--memory"),
            "bandwidth_bytes_per_s": None if self.bandwidth is None else parse_memory(self.bandwidth, "--bandwidth"),
            "num_microbatches": self.microbatches,
        }
        rules = Restrictions(self.data_parallel, self.tensor_parallel, self.recomputation, self.powers_of_two)
        return {name: value for name, value in given.items() if value is not None} | {"restrictions": rules}


def is_training_problem(path: Path) -> bool:
    """Return whether `path` is a training problem, without complaining about what else it is."""
    from placekit.io.detect import kind_of_file
    from placekit.model.errors import PlacekitError

    try:
        return path.suffix.lower() == ".json" and kind_of_file(path) == "training-problem"
    except PlacekitError:
        return False


def one_size(option: str, values: list[str] | None) -> str | None:
    """Return the one value of a repeatable option.

    Raises
    ------
    InvalidProblemError
        There are several.
    """
    if values is not None and len(values) > 1:
        raise InvalidProblemError(f"{option} is given {len(values)} times; all devices of a training plan are equal")
    return values[0] if values else None


def read_training(source: Path, options: TrainingOptions) -> tuple[TrainingProblem, list[str]]:
    """Return the problem of a file or of a named transformer, and the assumptions that went into it.

    Raises
    ------
    PlacekitError
        Bad input.
    """
    from placekit.training.transformer import is_transformer, transformer_problem

    if not source.exists() and is_transformer(str(source)):
        return transformer_problem(str(source), options.accelerator or "a100-80gb", options.changes())
    from placekit.training.piper_json import read_piper

    if options.accelerator is not None:
        raise InvalidProblemError(f"--accelerator goes with a named transformer; {source} has its own costs")
    return read_piper(source, **options.changes()), []


def solve_training(
    source: Path,
    options: TrainingOptions,
    *,
    method: str,
    stop: Stop,
    seed: int,
    params: dict[str, Any],
    time_limit_s: float,
    output: Path | None,
    as_json: bool,
) -> NoReturn:
    """Plan, print, write; ends with the exit code of `solve`."""
    from placekit.cli.console import check_writable, print_json, show_parts
    from placekit.cli.progress import SolveLine
    from placekit.solvers.training_plan.solve import plan_method, solve_plan
    from placekit.training.plan_json import write_plan
    from placekit.training.schedule import best_by_step

    plan_method(method, params)
    problem, assumptions = read_training(source, options)
    target = output or Path(f"{source.stem}.plan.json")
    if target.exists() and source.exists() and target.samefile(source):
        raise InvalidProblemError(f"-o {target}: it is the input; it would be overwritten")
    check_writable(target)
    with SolveLine(time_limit_s) as line:
        result = solve_plan(problem, method, stop=stop, seed=seed, params=params, on_progress=line)
        if options.schedule is not None and result.plan is not None:
            result = best_by_step(problem, result, options.schedule, solve_plan)
    if assumptions:
        result = result.with_info("assumptions", assumptions)
    write_plan(result, target)
    if as_json:
        print_json(result.to_dict() | {"files": {"plan": str(target)}})
    else:
        show_parts([*plan_parts(result), "", f"wrote plan  {target}"])
    raise typer.Exit(exit_code(result))


def explain_training(plan: Path, source: Path | None, time_limit_s: float, *, as_json: bool) -> None:
    """Say why a plan is as good as it is; `source` is what it was made from, a file or a named transformer.

    Machine and batch are those of the plan; questions are asked without restrictions.

    Raises
    ------
    InvalidProblemError
        No source, or one that the plan is not of.
    """
    from placekit.cli.console import print_json, print_line
    from placekit.solve.stop import MaxRuntime
    from placekit.solvers.training_plan.solve import solve_plan
    from placekit.training.evaluate import evaluate_plan
    from placekit.training.explain import explain_plan
    from placekit.training.plan_json import read_plan

    result = read_plan(plan)
    if source is None:
        raise InvalidProblemError(f"{plan}: give the file or the transformer that it plans after it")
    problem, _ = read_training(source, TrainingOptions())
    problem = problem.replace(
        num_devices=result.num_devices,
        memory_bytes=result.memory_bytes,
        bandwidth_bytes_per_s=result.bandwidth_bytes_per_s,
        num_microbatches=result.num_microbatches,
    )
    if result.plan is not None:
        judged = evaluate_plan(problem, result.plan)
        if judged.objective is None or abs(judged.objective - (result.objective or 0.0)) > 1e-9 * judged.objective:
            raise InvalidProblemError(f"{plan}: it is no plan of {source}: the judge says {judged.objective} s for it")
    stop = MaxRuntime(time_limit_s)
    told = explain_plan(problem, result, (lambda p: solve_plan(p, stop=stop)) if time_limit_s > 0 else None)
    if as_json:
        print_json({"plan": str(plan), "explanation": told})
    else:
        for line in told:
            print_line(f"- {line}")


def exit_code(result: PlanResult) -> int:
    """Return 0 for a plan, 3 for a proof that there is none, 4 for neither."""
    from placekit.solve.result import Status

    if result.plan is not None:
        return 0
    return EXIT_INFEASIBLE if result.status is Status.INFEASIBLE else EXIT_NO_ANSWER


def plan_parts(result: PlanResult) -> Iterator[RenderableType]:
    """Return what a plan says: machine, stages, objective, bound; or why there is none."""
    from placekit.cli.render import fact_lines, violation_lines
    from placekit.solve.result import Status

    assumptions = result.info.get("assumptions")
    if assumptions:
        yield "assumed:"
        yield from (f"- {told}" for told in assumptions)
        yield ""
    machine = (
        f"{format_count(result.num_devices, 'device')}, {format_bytes(result.memory_bytes)} each, "
        f"{format_bytes(result.bandwidth_bytes_per_s)}/s, {_microbatches(result)}"
    )
    yield fact_lines({"model": f"{result.problem_name}, {len(result.layer_names)} layers", "machine": machine})
    yield ""
    if result.plan is not None:
        yield _stage_table(result)
        yield ""
    objective = format_time(result.objective)
    if result.objective:
        objective += f" per microbatch, {format_time(result.objective * result.num_microbatches)} per batch"
    facts = {
        "method": f"{result.method}, objective {TRAINING_PLAN}",
        "objective": objective,
        "bound": format_time(result.lower_bound) + (f" ({result.bound_name})" if result.bound_name else ""),
        "gap": format_share(result.gap),
        "status": f"{result.status} (stopped: {result.stop_reason})",
        "time": f"{format_time(round(result.runtime_s, 3))}, {format_count(result.evaluations, 'plan')} scored",
    }
    step = result.info.get("step")
    if step is not None:
        told = f"{step['schedule']}: {format_time(step['step_s'])}, {format_share(step['bubble'])} of it idle (bubble)"
        facts["step"] = f"{told}; bound {format_time(step['bound_s'])}, gap {format_share(step['gap'])}"
        if step["over_memory"]:
            facts["memory"] = f"{step['schedule']} holds more than the limit on {', '.join(step['over_memory'])}"
    yield fact_lines(facts)
    if result.violations:
        yield (
            "infeasible because:" if result.status is Status.INFEASIBLE else "the nearest plan that was found breaks:"
        )
        yield from violation_lines(result.violations)


def _microbatches(result: PlanResult) -> str:
    return "1 microbatch" if result.num_microbatches == 1 else f"{result.num_microbatches} microbatches"


def draw_plan(what: str, result: PlanResult, path: Path, schedule: str) -> None:
    """Draw a plan (``plot``) or one of its steps (``gantt``), or write the step as a trace (``trace``).

    Steps are drawn for as many microbatches as show the pipeline filling and draining.

    Raises
    ------
    PlacekitError
        There is no plan, or the schedule does not go with it.
    """
    from placekit.io.trace import write_trace
    from placekit.plotting.canvas import figure_of
    from placekit.plotting.plot_schedule import plot_schedule
    from placekit.plotting.plot_training_plan import plot_training_plan
    from placekit.plotting.save import save_figure
    from placekit.training.schedule import simulate_step, step_as_result

    if result.plan is None:
        raise InvalidProblemError(f"{result.problem_name!r} has status {result.status}: there is no plan to draw")
    if what == "plot":
        save_figure(figure_of(plot_training_plan(result)), path)
        return
    replicas = sum(load.data_degree for load in result.stages)
    num_shown = min(result.num_microbatches, 3 * replicas)
    if schedule == "interleaved":
        num_shown = min(result.num_microbatches, 2 * replicas)
    step = step_as_result(result, simulate_step(result.stages, num_shown, schedule))
    if what == "gantt":
        save_figure(figure_of(plot_schedule(step)), path)
    else:
        write_trace(step, path)


def _stage_table(result: PlanResult) -> RenderableType:
    from placekit.cli.render import plain_table

    assert result.plan is not None
    table = plain_table("stage", "layers", "data", "tensor", "load ms", "in flight", "memory")
    table.add_column("choices", overflow="fold", min_width=30)
    for at, (stage, load) in enumerate(zip(result.plan.stages, result.stages, strict=True)):
        counts: dict[str, int] = {}
        for v in stage.layers:
            counts[result.choice_names[v]] = counts.get(result.choice_names[v], 0) + 1
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
