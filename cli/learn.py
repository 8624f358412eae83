"""``placekit learn``: train a policy on a problem, keep it, and write what it found; or one policy on a data set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placekit.cli.choices import with_choices
from placekit.cli.learn_policy import (
    ExecutorChoice,
    GenerateOption,
    LabelTimeOption,
    MaxOpsOption,
    ProblemsOption,
    SplitOption,
    TrainOption,
    WorkersOption,
)
from placekit.cli.objectives import ContiguityOption, ObjectiveChoice, ObjectiveOption
from placekit.cli.options import (
    CostsOption,
    JsonOption,
    ParamOption,
    SeedOption,
    ShapeOption,
    output_option,
    parse_params,
)
from placekit.cli.platforms import PlatformChoice
from placekit.cli.task import TaskOptions, read_placed, read_source, read_task

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import RenderableType

    from placekit.cli.progress import LearnLine
    from placekit.learned.measured_reward import MeasuredReward
    from placekit.learned.method import LearnedMethod
    from placekit.model.problem import Problem
    from placekit.solve.result import Result
    from placekit.solve.stop import Stop

__all__ = ["learn"]

_MAX_ERROR = 200


@with_choices
def learn(
    model: Annotated[
        Path | None, typer.Argument(help="Model (.xml, .onnx, .pt2), problem or workload (.json).", show_default=False)
    ] = None,
    method: Annotated[
        str | None,
        typer.Option("--method", "-m", metavar="NAME", help="A learned method; default: that of --policy, or hsdag."),
    ] = None,
    objective: ObjectiveOption = None,
    contiguity: ContiguityOption = None,
    costs: CostsOption = None,
    *,
    devices: PlatformChoice,
    shape: ShapeOption = None,
    episodes: Annotated[int | None, typer.Option(metavar="N", help="Stop after so many updates.")] = None,
    time_limit: Annotated[float | None, typer.Option(metavar="SECONDS", help="Stop after this time.")] = None,
    evaluations: Annotated[
        int | None, typer.Option(metavar="N", help="Stop after scoring so many placements, or measuring so many.")
    ] = None,
    reward: Annotated[
        str, typer.Option(metavar="judge|measured", help="Score placements by the costs, or time them on the devices.")
    ] = "judge",
    seed: SeedOption = 0,
    param: ParamOption = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Trained policy, or 'pretrained', to begin with; --episodes 0 only applies it."
        ),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Checkpoint to go on from, and to write unless --policy-out.")
    ] = None,
    policy_out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the policy and checkpoint goes (STEM.policy.pt).")
    ] = None,
    checkpoint_interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="Time between two checkpoints; 0: after every update.")
    ] = 30.0,
    log_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for metrics.jsonl and TensorBoard events.")
    ] = None,
    warm_start: Annotated[Path | None, typer.Option(metavar="FILE", help="Placement or result to learn first.")] = None,
    bound_s: Annotated[
        float, typer.Option("--bound", metavar="SECONDS", help="Time for a lower bound after training; 0: none.")
    ] = 10.0,
    output: Annotated[
        Path | None,
        output_option("Placement file; the result goes beside it; - for stdout."),
    ] = None,
    generate: GenerateOption = None,
    train: TrainOption = None,
    problems: ProblemsOption = 1000,
    label_time: LabelTimeOption = 1.0,
    max_ops: MaxOpsOption = 500,
    split: SplitOption = "train",
    workers: WorkersOption = 1,
    executor: ExecutorChoice = "process",
    as_json: JsonOption = False,
) -> None:
    """Train a policy on a model; write the policy, its best placement and the result.

    --generate makes a data set of labelled problems instead, --train one policy for any platform from it.
    """
    if generate is not None or train is not None or model is None:
        from placekit.cli import learn_policy

        _check_one_task(model, generate, train)
        if generate is not None:
            learn_policy.generate(
                generate,
                split=split,
                problems=problems,
                max_ops=max_ops,
                label_s=label_time,
                seed=seed,
                workers=workers,
                executor=executor,
                time_limit_s=time_limit,
                as_json=as_json,
            )
        if train is not None:
            learn_policy.train(
                train,
                policy_out or output or Path("policy.pt"),
                params=dict(parse_params(param)),
                steps=episodes,
                seed=seed,
                device=devices.devices or "cpu",
                policy=policy,
                resume=resume,
                checkpoint_every_s=checkpoint_interval,
                log_dir=log_dir,
                time_limit_s=time_limit,
                as_json=as_json,
            )
        return
    assert model is not None  # one of the three is given
    from placekit.cli.console import check_writable, print_json, show_parts
    from placekit.cli.files import OutputFiles
    from placekit.cli.progress import LearnLine
    from placekit.cli.solve import exit_code, report
    from placekit.solve.solve import solve as solve_problem

    is_measured = _is_measured(reward, model)
    learner = _method(method or _method_of(policy), parse_params(param), episodes, is_measured=is_measured)
    from placekit.learned.method import Session  # there is torch, or the line before has said what to install
    from placekit.learned.policy import policy_path

    files = OutputFiles.of(model, output)
    begin = None if policy is None else policy_path(policy)
    kept = policy_out or resume or files.policy_for(model)
    check_writable(kept)
    task = read_task(model, TaskOptions(ObjectiveChoice(objective, contiguity), costs, devices, shape))
    start = read_placed(warm_start, task.problem.graph, task.problem.platform) if warm_start else None
    before = _file_state(kept)
    with LearnLine(time_limit) as line:
        measured = _measured(model, shape, task.problem, evaluations, line) if is_measured else None
        learner.session = Session(
            kept,
            resume,
            begin,
            log_dir,
            line.take,
            checkpoint_every_s=checkpoint_interval,
            bound_s=bound_s,
            measured=measured,
        )
        result = solve_problem(
            task.problem,
            learner,
            stop=_stop(time_limit, None if is_measured else evaluations),
            seed=seed,
            warm_start=start,
            on_progress=line,
        )
    written = files.write(result, task.problem)
    if _file_state(kept) != before:  # where nothing is feasible, nothing was trained
        written["policy"] = str(kept)
    if as_json:
        print_json(result.to_dict() | {"files": written})
    else:
        show_parts([*report(task, result, written), *_measured_lines(result)])
    raise typer.Exit(exit_code(result))


def _file_state(path: Path) -> tuple[int, int] | None:
    """Return what changes when a file is written; None if there is no file."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_ino, state.st_mtime_ns


def _check_one_task(model: Path | None, generate: Path | None, train: Path | None) -> None:
    """Refuse a model together with a data set, and neither.

    Raises
    ------
    InvalidProblemError
        With what was given.
    """
    from placekit.model.errors import InvalidProblemError

    given = [name for name, value in (("a model", model), ("--generate", generate), ("--train", train)) if value]
    if len(given) != 1:
        raise InvalidProblemError(
            f"learn takes one of a model, --generate and --train; got {' and '.join(given) or 'none of them'}"
        )


def _method_of(policy: Path | None) -> str:
    """Return the method that a policy belongs to; ``hsdag`` without one."""
    if policy is None:
        return "hsdag"
    from placekit.solve.registry import get_method

    get_method("gdp")  # without torch the error says what to install
    from placekit.learned.checkpoint import read_checkpoint
    from placekit.learned.policy import policy_path

    return read_checkpoint(policy_path(policy)).method


def _is_measured(reward: str, model: Path) -> bool:
    """Return whether placements are measured.

    Raises
    ------
    UnknownNameError
        No such reward.
    InvalidProblemError
        Measured rewards of what is no model.
    """
    from placekit.io.detect import kind_of_file
    from placekit.model.errors import InvalidProblemError, UnknownNameError

    if reward not in ("judge", "measured"):
        raise UnknownNameError(f"no reward {reward!r}; rewards are judge, measured")
    if reward == "judge":
        return False
    kind = kind_of_file(model)
    if kind != "model":
        raise InvalidProblemError(f"--reward measured needs a model to run; {model} is a {kind} file")
    return True


def _measured(
    model: Path, shape: str | None, problem: Problem, max_measurements: int | None, line: LearnLine
) -> MeasuredReward:
    from placekit.learned.measured_reward import MeasuredReward

    return MeasuredReward(
        read_source(model, shape), problem, max_measurements=max_measurements, on_measured=line.take_measured
    )


def _measured_lines(result: Result) -> Iterator[RenderableType]:
    """Return what was measured, beside what the judge says; nothing for a training that measured nothing."""
    from placekit.cli.render import fact_lines
    from placekit.cli.units import format_count, format_time

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
    yield ""
    yield fact_lines(facts)


def _method(name: str, params: Mapping[str, object], episodes: int | None, *, is_measured: bool) -> LearnedMethod:
    """Return the learned method called `name`, with small batches for placements that are measured.

    Raises
    ------
    UnsupportedProblemError
        A method that does not learn.
    """
    from placekit.model.errors import UnsupportedProblemError
    from placekit.solve.registry import METHODS, get_method

    if is_measured and "fidelity" not in params:  # a published form says its own numbers
        get_method(name, params)  # without torch the error says what to install
        from placekit.learned.measured_reward import SMALL_BATCHES

        params = dict(SMALL_BATCHES.get(name, {})) | dict(params)
    method = get_method(name, params)
    entry = METHODS.get(name.partition(":")[0])
    if entry is None or entry.family != "learned" or entry.argument:
        learned = ", ".join(key for key, entry in METHODS.items() if entry.family == "learned" and not entry.argument)
        raise UnsupportedProblemError(f"method {name!r} does not learn; learned methods are {learned}")
    from placekit.learned.method import LearnedMethod  # torch is there: the method has asked for it

    assert isinstance(method, LearnedMethod)
    if episodes is not None:
        method.params = replace(method.params, updates=episodes, patience=0)
    return method


def _stop(time_limit_s: float | None, evaluations: int | None) -> Stop | None:
    from placekit.solve.stop import AnyOf, MaxIterations, MaxRuntime

    criteria: list[Stop] = []
    if time_limit_s is not None:
        criteria.append(MaxRuntime(time_limit_s))
    if evaluations is not None:
        criteria.append(MaxIterations(evaluations))
    return AnyOf(tuple(criteria)) if criteria else None
