"""Tables and figures of a training plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rich.console import RenderableType

from placekit.cli.render import fact_lines, plain_table, violation_lines
from placekit.cli.units import format_bytes, format_count, format_share, format_time
from placekit.model.errors import InvalidProblemError
from placekit.solve.result import Status
from placekit.training.result import PlanResult

__all__ = ["draw_plan", "plan_parts"]


def plan_parts(result: PlanResult) -> Iterator[RenderableType]:
    """Return the parts of a plan: machine, stages, objective, bound; or the reason for no plan."""
    assumptions = result.info.get("assumptions")
    if assumptions:
        yield "assumed:"
        yield from (f"- {told}" for told in assumptions)
        yield ""
    machine = (
        f"{format_count(result.num_devices, 'device')}, {format_bytes(result.memory_bytes)} each, "
        f"{format_bytes(result.bandwidth_bytes_per_s)}/s, {format_count(result.num_microbatches, 'microbatch', 'es')}"
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
        "method": f"{result.method}, objective training-plan",
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


def draw_plan(what: str, result: PlanResult, path: Path, schedule: str) -> None:
    """Draw a plan (``plot``) or one of its steps (``gantt``), or write the step as a trace (``trace``).

    Steps are drawn for as many microbatches as show the pipeline filling and draining.
    """
    from placekit.io.trace import write_trace
    from placekit.plotting.canvas import figure_of, save_figure
    from placekit.plotting.plot_schedule import plot_schedule
    from placekit.plotting.plot_training_plan import plot_training_plan
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
