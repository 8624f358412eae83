"""Decide on which device every operator of a neural network runs, and prove how good the decision is.

>>> import placekit as pk
>>> graph = pk.OpGraph.from_edges(["embed", "encode", "decode"], [("embed", "encode"), ("encode", "decode")])
>>> costs = pk.CostTable(("cpu",), [[2e-3], [3e-3], [4e-3]], [[0.0], [0.0]], [0, 0, 0])
>>> problem = pk.Problem(graph, pk.Platform.of(cpu=2, host="cpu"), costs)
>>> result = pk.solve(problem, stop=pk.MaxRuntime(10))
>>> result.objective, dict(result.placement)
(0.005, {'embed': 'cpu.0', 'encode': 'cpu.0', 'decode': 'cpu.1'})

Readers, writers and cost models are imported on first use, so that ``import placekit`` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import placekit.interrupts  # noqa: F401  # before all that takes its time
from placekit.advice.explain import Explanation as Explanation
from placekit.advice.explain import explain as explain
from placekit.advice.verdict import verdict as verdict
from placekit.model import errors as errors
from placekit.model.contiguity import Contiguity as Contiguity
from placekit.model.costs import CostTable as CostTable
from placekit.model.errors import PlacekitError as PlacekitError
from placekit.model.graph import OpGraph as OpGraph
from placekit.model.memory import MemoryBlocks as MemoryBlocks
from placekit.model.memory import Pool as Pool
from placekit.model.placement import Placement as Placement
from placekit.model.placement import Violation as Violation
from placekit.model.platform import Device as Device
from placekit.model.platform import DirectLink as DirectLink
from placekit.model.platform import Link as Link
from placekit.model.platform import Platform as Platform
from placekit.model.problem import Problem as Problem
from placekit.objectives import Loads as Loads
from placekit.objectives import Makespan as Makespan
from placekit.objectives import Objective as Objective
from placekit.objectives import OffloadLatency as OffloadLatency
from placekit.objectives import Schedule as Schedule
from placekit.objectives import Score as Score
from placekit.objectives import SerialLatency as SerialLatency
from placekit.objectives import Throughput as Throughput
from placekit.objectives import register_objective as register_objective
from placekit.objectives.evaluate import Evaluation as Evaluation
from placekit.objectives.evaluate import evaluate as evaluate
from placekit.solve.method import Method as Method
from placekit.solve.method import Run as Run
from placekit.solve.result import Result as Result
from placekit.solve.result import Status as Status
from placekit.solve.solve import solve as solve
from placekit.solve.split_verdict import Verdict as Verdict
from placekit.solve.stop import MaxIterations as MaxIterations
from placekit.solve.stop import MaxMemory as MaxMemory
from placekit.solve.stop import MaxRuntime as MaxRuntime
from placekit.solve.stop import NoImprovement as NoImprovement
from placekit.solve.stop import StopReason as StopReason
from placekit.solve.stop import TargetGap as TargetGap

if TYPE_CHECKING:
    from placekit.benchmarks.generators.shops import parse_job_shop as parse_job_shop
    from placekit.cost_models.analytic import Analytic as Analytic
    from placekit.cost_models.openvino.devices import core_groups as core_groups
    from placekit.cost_models.profiled import Profiled as Profiled
    from placekit.cost_models.registry import register_cost_model as register_cost_model
    from placekit.io.files.costs_json import read_costs as read_costs
    from placekit.io.files.costs_json import write_costs as write_costs
    from placekit.io.files.graph_file import read_graph as read_graph
    from placekit.io.files.placement_json import read_placement as read_placement
    from placekit.io.files.placement_json import write_placement as write_placement
    from placekit.io.files.platform_toml import read_platform as read_platform
    from placekit.io.files.problem_json import read_problem as read_problem
    from placekit.io.files.problem_json import write_problem as write_problem
    from placekit.io.files.result_json import read_result as read_result
    from placekit.io.files.result_json import write_result as write_result
    from placekit.io.files.workload_json import read_workload as read_workload
    from placekit.io.files.workload_json import write_workload as write_workload
    from placekit.io.models.model import ModelSource as ModelSource
    from placekit.io.models.read_model import read_model as read_model
    from placekit.language.decoder import Decoder as Decoder
    from placekit.language.model import model_task as model_task
    from placekit.language.planning.answer import Answer as Answer
    from placekit.language.planning.planner import plan_serving as plan_serving
    from placekit.language.planning.question import Search as Search
    from placekit.language.planning.question import Wishes as Wishes
    from placekit.language.planning.read_line import read_line as read_line
    from placekit.language.report import ServingReport as ServingReport
    from placekit.language.report import serving_report as serving_report
    from placekit.language.runtimes import register_runtime as register_runtime
    from placekit.language.runtimes.record import Runtime as Runtime
    from placekit.language.serving import Serving as Serving
    from placekit.language.task import TaskForm as TaskForm
    from placekit.language.task import decoder_task as decoder_task
    from placekit.pytorch.source import read_torch as read_torch
    from placekit.runtime.timing.compare import time_placement as time_placement
    from placekit.runtime.timing.timing import Timing as Timing
    from placekit.runtime.timing.timing import TimingSettings as TimingSettings
    from placekit.solve.builder import Model as Model
    from placekit.solve.registry import register_method as register_method
    from placekit.solvers.training_plan.solve import solve_plan as solve_plan
    from placekit.training.generate import chain_problem as chain_problem
    from placekit.training.piper_json import read_piper as read_piper
    from placekit.verification.verify import verify as verify

__all__ = [
    "Analytic",
    "Answer",
    "Contiguity",
    "CostTable",
    "Decoder",
    "Device",
    "DirectLink",
    "Evaluation",
    "Explanation",
    "Link",
    "Loads",
    "Makespan",
    "MaxIterations",
    "MaxMemory",
    "MaxRuntime",
    "MemoryBlocks",
    "Method",
    "Model",
    "ModelSource",
    "NoImprovement",
    "Objective",
    "OffloadLatency",
    "OpGraph",
    "PlacekitError",
    "Placement",
    "Platform",
    "Pool",
    "Problem",
    "Profiled",
    "Result",
    "Run",
    "Runtime",
    "Schedule",
    "Score",
    "Search",
    "SerialLatency",
    "Serving",
    "ServingReport",
    "Status",
    "StopReason",
    "TargetGap",
    "TaskForm",
    "Throughput",
    "Timing",
    "TimingSettings",
    "Verdict",
    "Violation",
    "Wishes",
    "__version__",
    "chain_problem",
    "core_groups",
    "decoder_task",
    "errors",
    "evaluate",
    "explain",
    "model_task",
    "parse_job_shop",
    "plan_serving",
    "read_costs",
    "read_graph",
    "read_line",
    "read_model",
    "read_piper",
    "read_placement",
    "read_platform",
    "read_problem",
    "read_result",
    "read_torch",
    "read_workload",
    "register_cost_model",
    "register_method",
    "register_objective",
    "register_runtime",
    "serving_report",
    "solve",
    "solve_plan",
    "time_placement",
    "verdict",
    "verify",
    "write_costs",
    "write_placement",
    "write_problem",
    "write_result",
    "write_workload",
]

__version__ = "0.6.0"

_HOMES = {
    "benchmarks.generators.shops": ("parse_job_shop",),
    "cost_models.analytic": ("Analytic",),
    "cost_models.openvino.devices": ("core_groups",),
    "cost_models.profiled": ("Profiled",),
    "cost_models.registry": ("register_cost_model",),
    "io.files.costs_json": ("read_costs", "write_costs"),
    "io.models.model": ("ModelSource",),
    "io.models.read_model": ("read_model",),
    "io.files.graph_file": ("read_graph",),
    "io.files.placement_json": ("read_placement", "write_placement"),
    "io.files.platform_toml": ("read_platform",),
    "io.files.problem_json": ("read_problem", "write_problem"),
    "io.files.result_json": ("read_result", "write_result"),
    "io.files.workload_json": ("read_workload", "write_workload"),
    "language.decoder": ("Decoder",),
    "language.planning.answer": ("Answer",),
    "language.planning.planner": ("plan_serving",),
    "language.planning.read_line": ("read_line",),
    "language.planning.question": ("Search", "Wishes"),
    "language.report": ("ServingReport", "serving_report"),
    "language.runtimes": ("register_runtime",),
    "language.runtimes.record": ("Runtime",),
    "language.serving": ("Serving",),
    "language.model": ("model_task",),
    "language.task": ("TaskForm", "decoder_task"),
    "pytorch.source": ("read_torch",),
    "runtime.timing.compare": ("time_placement",),
    "runtime.timing.timing": ("Timing", "TimingSettings"),
    "solve.builder": ("Model",),
    "solve.registry": ("register_method",),
    "solvers.training_plan.solve": ("solve_plan",),
    "training.generate": ("chain_problem",),
    "training.piper_json": ("read_piper",),
    "verification.verify": ("verify",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'placekit' has no attribute {name!r}")
    value = getattr(import_module(f"placekit.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
