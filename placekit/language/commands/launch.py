"""Lines that start the servers of a plan for a language model."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from placekit.exports.arguments import ARGUMENT_RUNTIMES, phase_arguments, runtime_arguments
from placekit.exports.device_map import device_map, device_map_line, module_affinities
from placekit.exports.runtime_arguments import RuntimeArguments
from placekit.language.planning.apart import PHASES, are_apart, of_phase
from placekit.language.read import is_program
from placekit.language.runtimes import RUNTIMES
from placekit.model.errors import UnsupportedProblemError
from placekit.model.placement import Placement
from placekit.model.platform import Device
from placekit.model.problem import Problem


def servers(runtime: str, problem: Problem[Any], placement: Placement) -> dict[str, RuntimeArguments]:
    """Return the arguments of every server: of one, called ``""``, or of one for each phase."""
    served = problem.costs.provenance.get("serving", {})
    if runtime in RUNTIMES:
        RUNTIMES[runtime].refuse_nodes(_used(problem, placement))
    if not are_apart(problem):
        return {"": runtime_arguments(runtime, problem.graph, problem.platform, placement, served)}
    refuse_apart(runtime, problem)
    return {phase: phase_arguments(runtime, phase, *of_phase(problem, placement, phase), served) for phase in PHASES}


_STARTS = {"vllm": "a Ray cluster", "sglang": "--nnodes, --node-rank", "megatron": "torchrun", "torchtitan": "torchrun"}
"""Words for the start of runtimes on several machines."""


def _used(problem: Problem[Any], placement: Placement) -> list[Device]:
    """Return the accelerators that hold ops."""
    held = set(placement.device_of_op.tolist())
    return [
        problem.platform.devices[member]
        for members in placement.teams
        if members[0] in held
        for member in members
        if not problem.platform.devices[member].is_host
    ]


def refuse_apart(runtime: str, problem: Problem[Any]) -> None:
    """Refuse a problem with the phases apart, unless the runtime has servers of one phase."""
    able = [name for name, each in RUNTIMES.items() if each.has_phases_apart]
    if are_apart(problem) and runtime not in able:
        raise UnsupportedProblemError(
            f"--to {runtime}: the plan has a server for prefill and one for decode, which {', '.join(able)} can be "
            "told: plan again without --apart"
        )


def launch_lines(runtime: str, model: str, problem: Problem[Any], placement: Placement) -> tuple[str, ...]:
    """Return lines of a shell, of Python or of a settings file that start the runtime with a placement."""
    graph, platform = problem.graph, problem.platform
    if runtime in ARGUMENT_RUNTIMES:
        model = "MODEL" if is_program(model) else model  # the file says the shapes, and the runtime has its own
        lines = [line for told in servers(runtime, problem, placement).values() for line in told.lines(model)]
        nodes = list(dict.fromkeys(str(device.node) for device in _used(problem, placement)))
        if len(nodes) > 1:
            lines.append(
                f"# devices are on {', '.join(nodes)}: the line has the stages in order, and how ranks start on "
                f"several machines is {runtime}'s own ({_STARTS.get(runtime, 'a process per machine')})"
            )
        return tuple(lines)
    if runtime == "accelerate":
        return (device_map_line(device_map(graph, platform, placement)),)
    if is_program(model):
        to = " --to torch-pipeline" if Path(model).suffix.lower() == ".pt2" else ""
        return (f"placekit export {shlex.quote(model)} PLACEMENT --platform PLATFORM{to}",)
    told_modules = module_affinities(graph, platform, placement)
    return (f'device = "{told_modules["device"]}"', device_map_line(told_modules["affinities"], "affinities"))
