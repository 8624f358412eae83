"""Lines that start the servers of a plan for a language model."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from placekit.language.planning.apart import are_apart, of_phase
from placekit.language.read import is_program
from placekit.language.runtimes import get_runtime, loadable, refuse_nodes
from placekit.language.runtimes.record import PHASES, Launch, Placed, Runtime
from placekit.model.errors import UnsupportedProblemError
from placekit.model.placement import Placement
from placekit.model.platform import Device
from placekit.model.problem import Problem
from placekit.model.served import Served


def launch(runtime: str | Runtime, placed: Placed) -> Launch:
    """Return what `runtime` is started with to follow a plan.

    Raises `UnknownNameError`: no such runtime; `UnsupportedProblemError`: a placement that the runtime cannot be told;
    the message says what it takes.

    Examples
    --------
    >>> from placekit.model.graph import OpGraph
    >>> from placekit.model.platform import Platform
    >>> names = ("embed", "layers.0.mlp", "layers.1.mlp", "layers.2.mlp", "head")
    >>> graph = OpGraph.from_edges(names, list(zip(names, names[1:]))).replace(op_flops=[1.0] * 5)
    >>> platform = Platform.of(gpu=2)
    >>> placed = Placed(graph, platform, Placement(names, platform.device_names, [0, 0, 1, 1, 1]))
    >>> for name in ("vllm", "megatron", "llama.cpp"):
    ...     print(launch(name, placed).command)
    VLLM_PP_LAYER_PARTITION=1,2 --pipeline-parallel-size 2
    --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et|t*2L'
    --n-gpu-layers 4 --split-mode layer --fit off --device CUDA0,CUDA1 --tensor-split 1,3
    """
    record = get_runtime(runtime) if isinstance(runtime, str) else runtime
    if placed.served.predicting_blocks and not record.trains_prediction:
        able = ", ".join(each.name for each in loadable() if each.trains_prediction)
        raise UnsupportedProblemError(
            f"the plan has blocks of multi-token prediction, as {able} trains them: plan again with --for {record.name}"
        )
    for is_there, option, what in (
        (placed.served.hosted_blocks, "hosted", "feed-forward layers on the host, and their blocks on cards"),
        (placed.served.hosts_cache, "host_cache", "the cache on the host"),
    ):
        if is_there and option not in record.options:
            able = ", ".join(each.name for each in loadable() if option in each.options)
            raise UnsupportedProblemError(
                f"the plan has {what}, which {able} can be told: plan again with --for {record.name}"
            )
    return record.write(record, placed)


def servers(runtime: str, problem: Problem[Any], placement: Placement) -> dict[str, Launch]:
    """Return the launch of every server: of one, called ``""``, or of one for each phase."""
    record, served = get_runtime(runtime), problem.served or Served()
    refuse_nodes(record, _used(problem, placement))
    if not are_apart(problem):
        return {"": launch(record, Placed(problem.graph, problem.platform, placement, served))}
    refuse_apart(runtime, problem)
    return {
        phase: _for_phase(launch(record, Placed(*of_phase(problem, placement, phase), served)), phase)
        for phase in PHASES
    }


def _for_phase(told: Launch, phase: str) -> Launch:
    """Return the launch of a server that serves one phase."""
    more = told.runtime.phases[phase]
    return replace(
        told,
        environment={**told.environment, **more.environment},
        arguments=(*told.arguments, *more.arguments),
        config={**told.config, **more.config},
        file=f"{phase}.yaml",
    )


def _used(problem: Problem[Any], placement: Placement) -> list[Device]:
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
    able = [record.name for record in loadable() if record.has_phases_apart]
    if are_apart(problem) and runtime not in able:
        raise UnsupportedProblemError(
            f"--to {runtime}: the plan has a server for prefill and one for decode, which {', '.join(able)} can be "
            "told: plan again without --apart"
        )


def launch_lines(runtime: str, model: str, problem: Problem[Any], placement: Placement) -> tuple[str, ...]:
    """Return lines of a shell, of Python or of a settings file that start the runtime with a placement."""
    record = get_runtime(runtime)
    if is_program(model):
        if record.runs_programs:
            to = " --to torch-pipeline" if Path(model).suffix.lower() == ".pt2" else ""
            return (f"placekit export {shlex.quote(model)} PLACEMENT --platform PLATFORM{to}",)
        model = "MODEL"  # the file says the shapes, and the runtime has its own
    lines = [line for told in servers(runtime, problem, placement).values() for line in told.lines(model)]
    return tuple(lines)
