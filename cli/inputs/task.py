"""From a file and options to a problem, which ``placekit problem`` writes.

This is the one place that knows which option goes with which kind of file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, ClassVar

from placekit.cli.console import check_writable, tell
from placekit.cli.inputs.kept_problems import kept_problem
from placekit.cli.inputs.objectives import ObjectiveChoice
from placekit.cli.inputs.platforms import MemoryLimits, PlatformChoice
from placekit.cli.options import CostsOption, JsonOption, ProblemArgument, ShapeOption, output_option, parse_pairs
from placekit.cli.output.facts import cost_facts, model_facts, problem_facts
from placekit.cli.output.progress import StepBar
from placekit.cli.output.render import fact_lines
from placekit.cli.output.units import format_count
from placekit.cli.parameters import PLATFORM, shared
from placekit.cost_models.sheets.sheet_memory import warn_of_unlimited
from placekit.io.files.costs_json import read_costs
from placekit.io.files.detect import kind_of_file, problem_of_file
from placekit.io.files.placed_model import placement_of
from placekit.io.files.placement_json import PlacementFile, read_placement
from placekit.io.files.problem_json import write_problem
from placekit.io.files.result_json import read_result
from placekit.io.models.model import ModelSource
from placekit.io.models.model_inputs import format_shapes, input_shapes, parse_shapes
from placekit.io.models.openvino_graph import STATEFUL
from placekit.io.models.read_model import read_model
from placekit.model.costs import CostTable
from placekit.model.errors import InvalidFileError, InvalidProblemError
from placekit.model.graph import DYNAMIC, OpGraph
from placekit.model.op_patterns import matching_ops
from placekit.model.placement import Placement
from placekit.model.platform import Platform
from placekit.model.problem import Problem

PinOption = Annotated[
    list[str] | None,
    shared(
        "Bind ops to a device, by name, 'layers.[0-9].*', type:Conv* or re:REGEX; repeatable.",
        "OP=DEVICE",
        names="--pin",
        panel=PLATFORM,
    ),
]


@dataclass(frozen=True)
class TaskOptions:
    """Everything beside the file that makes a problem."""

    panel: ClassVar[str] = PLATFORM

    objective: ObjectiveChoice = field(default_factory=ObjectiveChoice)
    costs: CostsOption = None
    shape: ShapeOption = None
    platform: PlatformChoice = field(default_factory=PlatformChoice)
    memory: MemoryLimits = field(default_factory=MemoryLimits)
    pins: PinOption = None


def parse_pins(pins: list[str] | None) -> dict[str, str]:
    """Return the device of each op or pattern that ``--pin`` names."""
    return parse_pairs("--pin", pins, "OP=DEVICE or PATTERN=DEVICE")


@dataclass(frozen=True)
class Task:
    """Problem with facts about its source."""

    problem: Problem
    facts: dict[str, str]


def read_source(path: Path, shape: list[str] | None) -> ModelSource:
    """Read a model file, with the shapes that ``--shape`` gives."""
    return read_model(path, parse_shapes(shape) if shape else None)


def cost_table(source: ModelSource, platform: Platform, costs: str | None) -> CostTable:
    """Return the costs of a model: measured (the default), analytic, or from a file."""
    from placekit.cost_models.registry import COST_MODELS, get_cost_model

    name = "profiled" if costs is None else costs
    if name not in COST_MODELS:
        if not Path(name).exists():
            known = ", ".join(map(repr, COST_MODELS))
            raise InvalidFileError(f"--costs {name}: no such file; it is a costs file or one of {known}")
        table = read_costs(name, source.graph)
        if not set(platform.kinds) <= set(table.kinds):
            raise InvalidProblemError(
                f"--costs {name} is of kinds {', '.join(table.kinds)}; the devices here are of kinds "
                f"{', '.join(platform.kinds)}: give the -d, --groups or --precision that the costs were measured with"
            )
        return table.for_kinds(platform.kinds)
    if name != "profiled":
        source.require_static()  # unknown dimensions would count as 1
    model = get_cost_model(name, platform)
    with StepBar() as bar:
        return model.cost_table(source, platform, progress=bar)


def read_task(
    path: Path, options: TaskOptions, kept: Problem | None = None, *, platform: Platform | None = None
) -> Task:
    """Read the problem in `path`: a model, a workload or a problem file.

    Costs of a problem that was `kept` take the place of measured ones, if it is of the model; `platform` that of the
    devices that the options choose.
    """
    kind = kind_of_file(path)
    pins = parse_pins(options.pins)
    if kind == "model":
        problem, facts = _from_model(path, options, pins, kept, platform)
    elif (given := problem_of_file(path, kind)) is not None:
        _refuse_model_options(path, kind, options)
        problem, facts = _for_objective(given, options.objective), {"file": f"{path} ({kind})"}
        if options.memory:
            problem = problem.replace(platform=options.memory.apply(problem.platform))
        problem = problem.pin(pins)
    elif kind == "training-problem":
        raise InvalidFileError(f"{path}: a training problem; `placekit train-plan {path}` plans it")
    else:
        raise InvalidFileError(f"{path}: a {kind} file cannot be solved; give a model, a problem or a workload")
    return Task(problem, facts | problem_facts(problem, pins) | cost_facts(problem.costs))


def read_tasks(path: Path, options: TaskOptions) -> dict[str, Task]:
    """Read the problem in `path` for every open way of cutting the CPU into groups, by name."""
    kind = kind_of_file(path)
    if kind != "model":
        _refuse_model_options(path, kind, options)
    tasks = {}
    for cut in options.platform.cuts():
        count, size = cut.num_devices, len(cut.devices[0].cores)
        name = f"{format_count(count, 'group')} of {format_count(size, 'core')}"
        tasks[name] = read_task(path, replace(options, platform=replace(options.platform, groups=str(count))))
    return tasks


def _from_model(
    path: Path, options: TaskOptions, pins: Mapping[str, str], kept: Problem | None, platform: Platform | None = None
) -> tuple[Problem, dict[str, str]]:
    source = read_source(path, options.shape)
    # members of a team would each remember something else
    platform = platform or options.platform.resolve(source)
    is_stateful = bool(STATEFUL.intersection(source.graph.op_types))
    choice = options.objective if is_stateful else options.objective.for_model(platform)
    objective, contiguity = choice.objective(), choice.contiguity_or_none()
    chosen = {"contiguity": contiguity} | ({"objective": objective} if objective else {})
    platform = options.memory.apply(platform)
    if options.platform.file is not None:
        warn_of_unlimited(platform)
    for pattern, device in pins.items():  # what is wrong is said before minutes of measuring
        matching_ops(source.graph, pattern)
        platform.index(device)
    if options.costs is None and kept is not None and kept.graph.content_hash == source.graph.content_hash:
        costs = kept.costs.for_kinds(platform.kinds)
    else:
        # machines in a line are not here to be measured
        unmeasured = "analytic" if options.platform.line.is_given else None
        costs = cost_table(source, platform, unmeasured if options.costs is None else options.costs)
    return source.problem(platform, costs, **chosen).pin(pins), model_facts(source)


def _for_objective(problem: Problem, choice: ObjectiveChoice) -> Problem:
    objective, contiguity = choice.objective(problem.objective), choice.contiguity_or_none()
    if objective is not None and (objective.name != problem.objective.name or contiguity is not None):
        problem = problem.replace(objective=objective, contiguity=contiguity)  # None: the new objective's default
    elif objective is not None:
        problem = problem.replace(objective=objective)
    return problem


def _refuse_model_options(path: Path, kind: str, options: TaskOptions) -> None:
    given = {
        "--costs": options.costs is not None,
        "--shape": bool(options.shape),
        "-d, --platform, --cards, --groups and --precision": options.platform.is_given,
    }
    for option, is_given in given.items():
        if is_given:
            raise InvalidProblemError(f"{option} go with a model; the {kind} file {path} has its own devices and costs")


def read_placed(
    path: Path, model: ModelSource | OpGraph, platform: Platform, default_device: str | None = None
) -> Placement:
    """Read a placement of a model on `platform`: a placement file of either shape, or a result file.

    Ops that a placement file leaves out go to `default_device`, or to the file's own.
    """
    file = placement_file(path)
    if isinstance(model, OpGraph):
        return file.for_model(model, platform, default_device)
    return placement_of(file, model, platform, default_device)


def placement_file(path: Path) -> PlacementFile:
    """Return what a placement file says, or a result file and the problem that was kept of it."""
    kind = kind_of_file(path)
    if kind == "placement":
        return read_placement(path)
    if kind != "result":
        raise InvalidFileError(f"{path}: a {kind} file places no ops; give a placement or a result file")
    result = read_result(path)
    found = result.placement
    if found is None:
        raise InvalidFileError(f"{path}: this result has no placement")
    kept = kept_problem(result.problem_hash)
    inputs = {} if kept is None else input_shapes(kept.graph)
    return PlacementFile(str(path), found.as_dict(), found.device_names, inputs=inputs)


def require_known_shapes(source: ModelSource, placement: Path) -> None:
    """Refuse a model with open shapes, where they have to be known; the message has those that were placed."""
    shapes = placement_file(placement).inputs
    if source.dynamic_inputs and shapes and not any(DYNAMIC in shape for shape in shapes.values()):
        asked = format_shapes(shapes)
        raise InvalidProblemError(
            f"{placement} was made for input shapes {asked}, and {source.path} leaves them open; every dimension must "
            f"be known here: pass --shape {asked}"
        )


def problem(
    model: ProblemArgument,
    *,
    asked: TaskOptions,
    output: Path | None = output_option("Problem file (default STEM.problem.json); - for stdout."),
    as_json: JsonOption = False,
) -> None:
    """Write the problem of placing a model: graph, devices, costs, objective and limits in one file.

    `placekit solve`, `learn`, `bench` and `explain` take the file like a model, without the model and its devices.
    """
    target = check_writable(output or Path(f"{model.stem}.problem.json"))
    task = read_task(model, asked)
    write_problem(task.problem, target)
    document = task.facts | {"files": {"problem": str(target)}}
    tell(as_json, document, [fact_lines(task.facts), "", fact_lines({"wrote problem": str(target)})])
