"""``placekit solve``: read, cost, solve, print, write."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from placekit.cli.choices import with_choices
from placekit.cli.options import JsonOption, MemoryLimitOption, ParamOption, SeedOption, output_option, parse_params
from placekit.cli.task import TaskOptions, read_placed, read_task, read_tasks
from placekit.cli.train_plan import TRAINING_PLAN, TrainingOptions, is_training_problem, one_size, solve_training
from placekit.model.errors import InvalidProblemError, UnsupportedProblemError
from placekit.solve.registry import METHODS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import RenderableType

    from placekit.cli.task import Task
    from placekit.solve.result import Result
    from placekit.solve.stop import Stop

__all__ = ["EXIT_INFEASIBLE", "EXIT_NO_ANSWER", "exit_code", "report", "solve", "stop_of"]

EXIT_INFEASIBLE = 3
"""Proven: no placement satisfies the constraints."""
EXIT_NO_ANSWER = 4
"""Stopped without a feasible placement, and without a proof that there is none."""

WRITE_S_PER_OP = 2e-5
"""Set aside of the limit for writing the answer; a core that does nothing else takes about half of it."""


@with_choices
def solve(
    model: Annotated[
        Path, typer.Argument(help="Model (.xml, .onnx, .pt2), problem or workload (.json).", show_default=False)
    ],
    method: Annotated[
        str,
        typer.Option(
            "--method", "-m", metavar="NAME", help=f"One of {', '.join(METHODS)}; or single:DEVICE, random:N."
        ),
    ] = "auto",
    *,
    asked: TaskOptions,
    devices: Annotated[int | None, typer.Option(metavar="N", help="training-plan: number of devices.")] = None,
    bandwidth: Annotated[str | None, typer.Option(metavar="25GiB", help="training-plan: bytes per second.")] = None,
    microbatches: Annotated[
        int | None, typer.Option(metavar="N", help="training-plan: microbatches of a batch.")
    ] = None,
    accelerator: Annotated[
        str | None, typer.Option(metavar="NAME", help="training-plan of a named transformer (7b): a100-80gb, ...")
    ] = None,
    data_parallel: Annotated[
        bool, typer.Option("--data-parallel/--no-data-parallel", help="training-plan: replicas of stages.")
    ] = True,
    tensor_parallel: Annotated[
        bool, typer.Option("--tensor-parallel/--no-tensor-parallel", help="training-plan: devices that share a layer.")
    ] = True,
    recomputation: Annotated[
        bool, typer.Option("--recomputation/--no-recomputation", help="training-plan: compute activations again.")
    ] = True,
    powers_of_two: Annotated[
        bool, typer.Option("--powers-of-two", help="training-plan: replicas in powers of two.")
    ] = False,
    time_limit: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Stop after this solving time. Imports and compilation come before it."),
    ] = 60.0,
    gap: Annotated[
        float | None, typer.Option(metavar="RATIO", help="Stop at this proven gap, for example 0.01.")
    ] = None,
    memory_limit: MemoryLimitOption = None,
    seed: SeedOption = 0,
    param: ParamOption = None,
    mps: Annotated[Path | None, typer.Option(metavar="FILE", help="ilp: write the program as MPS, too.")] = None,
    warm_start: Annotated[Path | None, typer.Option(metavar="FILE", help="Placement or result to start from.")] = None,
    output: Annotated[
        Path | None,
        output_option("Placement file; the result goes beside it; - for stdout."),
    ] = None,
    certificate: Annotated[
        bool, typer.Option("--certificate", help="Write what the bound was proven with into the result, for verify.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Place the ops of a model on devices, and say how good the placement is."""
    from placekit.cli.console import print_json, show_parts
    from placekit.cli.files import OutputFiles
    from placekit.cli.progress import SolveLine
    from placekit.cli.scattered import with_num_stages
    from placekit.io.model import MODEL_SUFFIXES
    from placekit.solve.registry import get_method
    from placekit.solve.solve import finishing
    from placekit.solve.solve import solve as solve_problem
    from placekit.solvers.sequence.choice import solve_best

    objective = asked.objective.name
    if objective == TRAINING_PLAN or is_training_problem(model):
        if objective not in (None, TRAINING_PLAN):
            raise InvalidProblemError(
                f"{model} is a training problem; its objective is {TRAINING_PLAN}, not {objective}"
            )
        options = TrainingOptions(
            devices, one_size("--memory", asked.memory), bandwidth, microbatches, accelerator, data_parallel,
            tensor_parallel, recomputation, powers_of_two, asked.objective.schedule,
        )  # fmt: skip
        solve_training(
            model, options, method=method, stop=stop_of(time_limit, gap, memory_limit), seed=seed,
            params=parse_params(param), time_limit_s=time_limit, output=output, as_json=as_json,
        )  # fmt: skip
    params = parse_params(param) | ({"mps": str(mps)} if mps else {})
    get_method(method, params, objective)  # a misspelt method should not wait for a profile
    _refuse_unserved(method, objective or "throughput", model)
    stop = stop_of(time_limit, gap, memory_limit)
    files = OutputFiles.of(model, output)
    if asked.platform.is_open:
        if warm_start is not None:
            raise InvalidProblemError("--warm-start and --groups auto: a start is for one way of cutting the cores")
        tasks = read_tasks(model, asked)
        problems = {name: each.problem for name, each in tasks.items()}
        with SolveLine(time_limit) as line:
            chosen, result = solve_best(problems, method, stop=stop, seed=seed, params=params, on_progress=line)
        task = tasks[chosen]
    else:
        begin_s = perf_counter()
        task = read_task(model, asked)
        if model.suffix.lower() not in MODEL_SUFFIXES:
            # reading the file and writing the answer are part of the limit
            spent_s = perf_counter() - begin_s + WRITE_S_PER_OP * task.problem.graph.num_ops
            stop = stop_of(max(time_limit - spent_s, 0.0), gap, memory_limit)
        start = read_placed(warm_start, task.problem.graph, task.problem.platform) if warm_start else None
        if start is not None:
            start.require_teams(task.problem)
        with SolveLine(time_limit) as line:
            result = solve_problem(
                task.problem, method, stop=stop, seed=seed, params=params, warm_start=start, on_progress=line
            )
    with finishing():
        result = with_num_stages(result, task.problem)
        written = files.write(result, task.problem, certificate=certificate)
    if as_json:
        print_json(result.to_dict() | {"files": written})
    else:
        show_parts(report(task, result, written))
    raise typer.Exit(exit_code(result))


def _refuse_unserved(method: str, objective: str, path: Path) -> None:
    """Say before minutes of measuring that a method does not serve the objective of a model."""
    from placekit.io.model import MODEL_SUFFIXES
    from placekit.solve.registry import why_not_served

    why_not = why_not_served(method, objective) if path.suffix.lower() in MODEL_SUFFIXES else None
    if why_not is not None:
        raise UnsupportedProblemError(f"method {method!r} cannot solve {path}: {why_not}")


def stop_of(time_limit_s: float, gap: float | None, memory_limit: str | None) -> Stop:
    """Return when to stop, as ``--time-limit``, ``--gap`` and ``--memory-limit`` say."""
    from placekit.io.platform_toml import parse_memory
    from placekit.solve.stop import AnyOf, MaxMemory, MaxRuntime, TargetGap

    stop: Stop = MaxRuntime(time_limit_s)
    if gap is not None:
        stop = AnyOf((stop, TargetGap(gap)))
    if memory_limit is not None:
        stop = AnyOf((stop, MaxMemory(parse_memory(memory_limit, "--memory-limit"))))
    return stop


def exit_code(result: Result) -> int:
    """Return 0 for an answer, 3 for a proof that there is none, 4 for neither."""
    from placekit.solve.result import Status

    if result.placement is not None:
        return 0
    return EXIT_INFEASIBLE if result.status is Status.INFEASIBLE else EXIT_NO_ANSWER


def report(task: Task, result: Result, written: Mapping[str, str]) -> Iterator[RenderableType]:
    """Return what to tell of a result: the task, loads, bound and gap, single devices, and the files by kind."""
    from placekit.cli.comparison import choice_lines, single_device_table
    from placekit.cli.files import file_facts
    from placekit.cli.render import fact_lines, result_lines

    yield fact_lines(task.facts)
    yield ""
    yield from result_lines(result)
    if "compared" in result.info:
        yield ""
        yield from choice_lines(result)
    if result.placement is not None:
        yield ""
        yield single_device_table(task.problem, result)
    yield ""
    yield fact_lines(file_facts(written))
