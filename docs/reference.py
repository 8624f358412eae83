"""Writes docs/reference/api.md: every name of `import placekit as pk`, functions with their parameters."""

from __future__ import annotations

import inspect
import re
from itertools import groupby
from pathlib import Path

import placekit as pk

PAGE = Path(__file__).parent / "reference" / "api.md"
HEAD = """# Python

These are all names of `import placekit as pk`; nothing else is public. Units are seconds, bytes and bytes per second.
`help(pk.NAME)` shows the docstring.
"""
SECTIONS = {
    "Solving": (
        "solve",
        "evaluate",
        "Result",
        "Evaluation",
        "Loads",
        "Schedule",
    ),
    "Problems": (
        "Model",
        "OpGraph",
        "Device",
        "Link",
        "Pool",
        "DirectLink",
        "Platform",
        "CostTable",
        "MemoryBlocks",
        "Problem",
        "Placement",
        "Violation",
    ),
    "Objectives": (
        "Throughput",
        "SerialLatency",
        "OffloadLatency",
        "Makespan",
        "Contiguity",
    ),
    "Files": (
        "read_problem",
        "write_problem",
        "read_result",
        "write_result",
        "read_placement",
        "write_placement",
        "read_costs",
        "write_costs",
        "read_platform",
        "read_workload",
        "write_workload",
        "read_graph",
        "parse_job_shop",
    ),
    "When to stop": (
        "MaxRuntime",
        "MaxMemory",
        "MaxIterations",
        "NoImprovement",
        "TargetGap",
        "StopReason",
        "Status",
    ),
    "Models and costs": (
        "read_model",
        "read_torch",
        "ModelSource",
        "Profiled",
        "Analytic",
        "core_groups",
    ),
    "Language models": (
        "Decoder",
        "Serving",
        "plan_serving",
        "Wishes",
        "Search",
        "Answer",
        "read_line",
        "Runtime",
        "register_runtime",
        "decoder_task",
        "TaskForm",
        "model_task",
        "serving_report",
        "ServingReport",
    ),
    "Reading an answer": (
        "explain",
        "verdict",
        "Verdict",
        "Explanation",
        "verify",
        "time_placement",
        "Timing",
        "TimingSettings",
    ),
    "Training plans": (
        "solve_plan",
        "chain_problem",
        "read_piper",
    ),
    "Methods, objectives and cost models of your own": (
        "Method",
        "Run",
        "register_method",
        "Objective",
        "Score",
        "register_objective",
        "register_cost_model",
    ),
    "Errors": (
        "PlacekitError",
        "errors",
    ),
}
"""Names by the heading under which they stand."""
_MEMBERS = "\n    options:\n      show_root_heading: false\n      members_order: source"


def page() -> str:
    """Return the page: names by heading, functions with their call, other names that stand together on one line."""
    parts = [HEAD]
    for heading, names in SECTIONS.items():
        parts.append(f"## {heading}")
        for is_function, group in groupby(names, key=lambda name: inspect.isfunction(getattr(pk, name))):
            calls = [f"`{call_of(name)}`" for name in group]
            parts += [f"- {call}" for call in (calls if is_function else [", ".join(calls)])]
        parts.append("")
    return "\n".join(parts)


def call_of(name: str) -> str:
    """Return how a name is called: a function with its parameters, anything else by its name."""
    value = getattr(pk, name)
    if not inspect.isfunction(value):
        return name
    return f"{name}({', '.join(inspect.signature(value).parameters)})"


def path_of(name: str) -> str:
    """Return the module and the name that a public name stands for."""
    value = getattr(pk, name)
    return value.__name__ if inspect.ismodule(value) else f"{value.__module__}.{value.__qualname__}"


def with_docstrings(text: str) -> str:
    """Return the page for the site: a directive of mkdocstrings in the place of each name."""
    lines = []
    for line in text.splitlines():
        names = re.findall(r"`(\w+)", line) if line.startswith("- `") else []
        told = [f"\n::: {path_of(name)}{_MEMBERS * inspect.ismodule(getattr(pk, name))}\n" for name in names]
        lines += told or [line]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
