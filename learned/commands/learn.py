"""``placekit learn``: train a policy on a problem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, ClassVar

import typer
from rich.console import RenderableType

from placekit.advice.verdict import with_verdict
from placekit.cli.commands.solve import report
from placekit.cli.console import check_writable, tell
from placekit.cli.inputs.objectives import GoalChoice, ObjectiveChoice
from placekit.cli.inputs.platforms import PlatformChoice
from placekit.cli.inputs.task import TaskOptions, read_placed, read_source, read_task
from placekit.cli.options import (
    CostsOption,
    DetailsOption,
    JsonOption,
    OptionsFile,
    ProblemArgument,
    SeedOption,
    ShapeOption,
    exit_code,
    output_option,
    parse_params,
)
from placekit.cli.output.files import OutputFiles
from placekit.cli.output.render import fact_lines
from placekit.cli.output.units import format_count, format_time
from placekit.cli.output.verdicts import all_cores_problem, answer_lines
from placekit.cli.parameters import COMMON, OUTPUT, option
from placekit.io.files.detect import kind_of_file
from placekit.learned.commands.learn_line import LearnLine
from placekit.model.errors import InvalidProblemError, UnknownNameError, UnsupportedProblemError
from placekit.solve.registry import METHODS, get_method
from placekit.solve.result import Result
from placekit.solve.solve import solve as solve_problem
from placekit.solve.stop import AnyOf, MaxIterations, MaxRuntime, Stop

if TYPE_CHECKING:
    from placekit.learned.method import LearnedMethod

_MAX_ERROR = 200
MOST_BOUND_S, BOUND_SHARE = 10.0, 0.1
"""Seconds for a lower bound unless the user says otherwise, and their largest share of a time limit."""


@dataclass(frozen=True)
class TrainingRun:
    """Method, limits and files of a training."""

    panel: ClassVar[str] = "Training"

    method: str | None = option(
        None, "Learned method. Default: the method of --policy, or hsdag.", "NAME", names="--method -m", panel=COMMON
    )
    time_limit: float | None = option(None, "Stop after this time.", "SECONDS", panel=COMMON)
    seed: SeedOption = 0
    episodes: int | None = option(None, "Stop after this number of updates.", "N")
    evaluations: int | None = option(None, "Stop after this number of scored or measured placements.", "N")
    reward: str = option("judge", "Score placements by their costs, or time them on the devices.", "judge|measured")
    param: list[str] | None = option(
        None, "Set a parameter of the method; repeatable (`placekit methods NAME`).", "NAME=VALUE"
    )
    policy: Path | None = option(None, "Policy to begin with, or 'pretrained'. --episodes 0 only applies it.", "FILE")
    resume: Path | None = option(None, "Checkpoint to resume from, written again without --policy-out.", "FILE")
    warm_start: Path | None = option(None, "Placement or result to begin with.", "FILE")
    bound_s: float | None = option(
        None,
        "Time for a lower bound after training; 0: none. Default: 10, but at most a tenth of --time-limit.",
        "SECONDS",
        names="--bound",
    )
    checkpoint_interval: float = option(30.0, "Time between checkpoints; 0: one after every update.", "SECONDS", min=0)
    policy_out: Path | None = option(None, "Policy and checkpoint (default STEM.policy.pt).", "FILE", panel=OUTPUT)
    log_dir: Path | None = option(None, "Folder for metrics.jsonl and TensorBoard events.", "DIR", panel=OUTPUT)

    @property
    def is_measured(self) -> bool:
        """True if placements are measured."""
        if self.reward not in ("judge", "measured"):
            raise UnknownNameError(f"no reward {self.reward!r}; rewards are judge, measured")
        return self.reward == "measured"

    @property
    def bound_limit_s(self) -> float:
        """Seconds for a lower bound after training."""
        most_s = MOST_BOUND_S if self.time_limit is None else min(MOST_BOUND_S, BOUND_SHARE * self.time_limit)
        return most_s if self.bound_s is None else self.bound_s

    @property
    def stop(self) -> Stop | None:
        """The limits; measurements are counted by what makes them."""
        criteria: list[Stop] = []
        if self.time_limit is not None:
            criteria.append(MaxRuntime(self.time_limit))
        if self.evaluations is not None and not self.is_measured:
            criteria.append(MaxIterations(self.evaluations))
        return AnyOf(tuple(criteria)) if criteria else None


@dataclass(frozen=True)
class LearnTask:
    """Everything beside the file that makes the problem of a training."""

    goal: GoalChoice = field(default_factory=GoalChoice)
    costs: CostsOption = None
    shape: ShapeOption = None
    platform: PlatformChoice = field(default_factory=PlatformChoice)

    def options(self) -> TaskOptions:
        """Return the options of the problem."""
        objective = ObjectiveChoice(self.goal.name, self.goal.contiguity)
        return TaskOptions(objective, self.costs, self.shape, self.platform)


def learn(
    model: ProblemArgument,
    *,
    run: TrainingRun,
    asked: LearnTask,
    output: Path | None = output_option("Placement file; the result goes beside it. `-` is standard output."),
    options: OptionsFile = None,  # noqa: ARG001  # acts in its callback
    details: DetailsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train a policy on a model; write the policy, its best placement and the result."""
    parts = _Parts()
    if run.is_measured and (kind := kind_of_file(model)) != "model":
        raise InvalidProblemError(f"--reward measured needs a model to run; {model} is a {kind} file")
    learner = _method(run.method or _method_of(run.policy), run)
    from placekit.learned.method import (
        Session,  # there is torch, or the line before has said what to install
        policy_path,
    )

    parts.end("imports")
    files = OutputFiles.of(model, output)
    kept = check_writable(run.policy_out or run.resume or files.policy_for(model))
    task = read_task(model, asked.options())
    whole = all_cores_problem(model, asked.options(), task.problem)
    start = read_placed(run.warm_start, task.problem.graph, task.problem.platform) if run.warm_start else None
    before = _file_state(kept)
    parts.end("model and costs")
    with LearnLine(run.time_limit) as line:
        measured = None
        if run.is_measured:
            from placekit.learned.measured_reward import MeasuredReward

            source = read_source(model, asked.shape)
            measured = MeasuredReward(
                source, task.problem, max_measurements=run.evaluations, on_measured=line.take_measured
            )
        learner.session = Session(
            kept,
            run.resume,
            None if run.policy is None else policy_path(run.policy),
            run.log_dir,
            line.take,
            checkpoint_every_s=run.checkpoint_interval,
            bound_s=run.bound_limit_s,
            measured=measured,
        )
        result = solve_problem(task.problem, learner, stop=run.stop, seed=run.seed, warm_start=start, on_progress=line)
    parts.end_solve(result)
    result = with_verdict(result, task.problem, whole)
    written = files.write(result, task.problem)
    if _file_state(kept) != before:  # where nothing is feasible, or the first answer is optimal, nothing was trained
        written["policy"] = str(kept)
    parts.end("comparison and files")
    answer = [*answer_lines(result.verdict, task.problem), *_learning_lines(result)]
    lines = report(task, result, answer, written, details=details)
    document = result.to_dict() | {"files": written, "parts_s": parts.seconds}
    tell(as_json, document, chain(lines, parts.lines() if details else ()))
    raise typer.Exit(exit_code(result.placement, result.status))


class _Parts:
    """Wall seconds of the parts of a training, of which a time limit counts the learning."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since_s = perf_counter()

    def end(self, part: str) -> None:
        """Count the seconds since the part before as those of `part`."""
        now_s = perf_counter()
        self.seconds[part], self._since_s = now_s - self._since_s, now_s

    def end_solve(self, result: Result) -> None:
        """Divide the seconds since the part before among kernels, learning and the lower bound."""
        bound_s = float(result.info.get("bound_time_s", 0.0))
        self.end("kernels")
        in_all_s = self.seconds.pop("kernels")
        learning_s = result.runtime_s - bound_s
        self.seconds |= {
            "kernels": max(in_all_s - result.runtime_s, 0.0),
            "learning": learning_s,
            "lower bound": bound_s,
        }

    def lines(self) -> Iterator[RenderableType]:
        """Return a line per part."""
        in_all_s = sum(self.seconds.values())
        told = {part: f"{format_time(round(seconds, 3))}" for part, seconds in self.seconds.items()}
        yield from ("", fact_lines(told | {"in all": format_time(round(in_all_s, 3))}))


def _file_state(path: Path) -> tuple[int, int] | None:
    """Return a state of a file that changes when the file is written; None without a file."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_ino, state.st_mtime_ns


def _method_of(policy: Path | None) -> str:
    """Return the method that a policy belongs to; ``hsdag`` without one."""
    if policy is None:
        return "hsdag"
    get_method("gdp")  # without torch the error says what to install
    from placekit.learned.method import policy_path
    from placekit.learned.training.checkpoint import read_checkpoint

    return read_checkpoint(policy_path(policy)).method


def _learning_lines(result: Result) -> Iterator[RenderableType]:
    """Return lines on what was learned, and on measured times beside the judge's where there are any."""
    if result.placement is not None and "updates" not in result.info:
        yield "Nothing was learned: an answer that needs no search is as good as a lower bound."
    told = result.info.get("measured")
    if told is None:
        return
    failed = f", {told['failures']} could not run" if told["failures"] else ""
    facts = {
        "measured": f"{format_count(told['measurements'], 'placement')} in {format_time(told['measuring_s'])}, "
        f"{told['cache_hits']} of {told['evaluations']} known before{failed}"
    }
    if told["last_error"]:
        facts["last error"] = " ".join(told["last_error"].split())[:_MAX_ERROR]
    if told.get("sample_s") is not None:
        judged = f"{format_time(result.objective)} judged"
        facts["per sample"] = f"{format_time(told['sample_s'])} measured ({told['executor']}), {judged}"
    if told.get("speedup") is not None:
        noisy = "; NOISY: other load disturbed it" if told["is_noisy"] else ""
        facts["speedup"] = (
            f"{told['speedup']:.2f}x (IQR {told['speedup_iqr']:.2g}) over {told['best_single_device']} alone, "
            f"{format_time(told['best_single_s'])}{noisy}"
        )
    yield fact_lines(facts)


def _method(name: str, run: TrainingRun) -> LearnedMethod:
    """Return the learned method called `name`, with small batches for placements that are measured."""
    params = parse_params(run.param)
    if run.is_measured and "fidelity" not in params:  # a published form says its own numbers
        get_method(name, params)  # without torch the error says what to install
        from placekit.learned.measured_reward import SMALL_BATCHES

        params = dict(SMALL_BATCHES.get(name, {})) | params
    method = get_method(name, params)
    entry = METHODS.get(name.partition(":")[0])
    if entry is None or entry.family != "learned" or entry.argument:
        learned = ", ".join(key for key, entry in METHODS.items() if entry.family == "learned" and not entry.argument)
        raise UnsupportedProblemError(f"method {name!r} does not learn; learned methods are {learned}")
    from placekit.learned.method import LearnedMethod  # torch is there: the method has asked for it

    assert isinstance(method, LearnedMethod)
    if run.episodes is not None:
        method.params = replace(method.params, updates=run.episodes, patience=0)
    return method
