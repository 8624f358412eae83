"""Views of files of training plans: shown and explained."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from placekit.cli.console import print_json, print_line
from placekit.cli.output.render import fact_lines
from placekit.cli.output.views import View
from placekit.model.errors import InvalidProblemError
from placekit.model.sizes import format_bytes
from placekit.plotting.canvas import figure_of
from placekit.solve.result import Result
from placekit.solve.stop import MaxRuntime
from placekit.solvers.training_plan.solve import solve_plan
from placekit.training.commands.plot_training_plan import plot_training_plan
from placekit.training.commands.train_plan import TrainingOptions, plan_parts, plan_sentence, read_training
from placekit.training.evaluate import evaluate_plan
from placekit.training.explain import explain_plan
from placekit.training.piper_json import piper_to_dict, read_piper
from placekit.training.plan_json import read_plan
from placekit.training.result import PlanResult
from placekit.training.schedule import simulate_step, step_as_result

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class PlanView(View):
    """View of a training plan; its schedule is that of a few microbatches of one step."""

    plan: PlanResult

    @property
    def has_answer(self) -> bool:
        """True; raises an `InvalidProblemError` if no plan was found."""
        if self.plan.plan is None:
            told = f"{self.plan.problem_name!r} has status {self.plan.status}"
            raise InvalidProblemError(f"{told}: there is no plan to draw")
        return True

    def timed(self, schedule: str) -> Result:
        """Return one step for as many microbatches as show the pipeline filling and draining."""
        rounds = 2 if schedule == "interleaved" else 3
        stages = self.plan.stages
        num_shown = min(self.plan.num_microbatches, rounds * sum(load.data_degree for load in stages))
        return step_as_result(self.plan, simulate_step(stages, num_shown, schedule))

    def plot(self) -> Figure:
        """Draw the loads and the memory of the stages."""
        return figure_of(plot_training_plan(self.plan))


def view_plan(path: Path) -> View:
    """Return the view of a training plan."""
    plan = read_plan(path)
    return PlanView(plan.to_dict(), list(plan_parts(plan)), plan=plan)


def view_training(path: Path) -> View:
    """Return the view of a training problem."""
    problem = read_piper(path)
    facts = {
        "model": f"{problem.name}, {problem.num_layers} layers, {len(problem.edges)} edges (training problem)",
        "tensor degrees": ", ".join(map(str, problem.tensor_degrees)),
        "machine": f"{problem.num_devices} devices, {format_bytes(problem.memory_bytes)} each, "
        f"{format_bytes(problem.bandwidth_bytes_per_s)}/s",
        "microbatches": str(problem.num_microbatches),
    }
    return View(piper_to_dict(problem), [fact_lines(facts)])


def explain_training(plan: Path, source: Path | None, time_limit_s: float, *, as_json: bool) -> None:
    """Explain a training plan; `source` is its problem file or named transformer.

    Machine and batch are those of the plan; questions are asked without restrictions.
    """
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
        print_line(plan_sentence(result))
        for line in told:
            print_line(f"- {line}")
