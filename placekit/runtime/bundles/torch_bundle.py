"""PyTorch's stages as files of a bundle, which ``torch.distributed.pipelining`` runs without placekit, too.

Stages form a chain, as a pipeline of torch does: a tensor that skips stages is handed on by each of them. Read back,
it goes straight to its readers. Nothing of the folder is executed here: stages are read as other ``.pt2`` files are
(:mod:`placekit.pytorch.archive`), and built out of registered operators.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from placekit.cost_models.openvino.split import TensorKey
from placekit.cost_models.pytorch.devices import TORCH, first_line, torch_device
from placekit.io.atomic import SteadyFile, write_text
from placekit.io.needs import require_torch
from placekit.model.errors import InvalidFileError, PlacekitError, UnsupportedProblemError
from placekit.model.platform import Device
from placekit.pytorch.module import random_inputs
from placekit.pytorch.program import TorchTensor
from placekit.pytorch.source import TorchSource, read_pt2
from placekit.runtime.bundles.manifest import InputModel, Manifest, PortModel, StageModel
from placekit.runtime.stages.stage_plan import PlacedStage, StagePlan
from placekit.runtime.stages.torch_stages import TorchModel, TorchPart

SCRIPT = "run.py"
"""Name of the script that runs the stages without placekit."""
PORT = 29500
"""Port at which the processes of a pipeline find each other, as torchrun has it."""


def chain_of(plan: StagePlan) -> list[tuple[str, ...]]:
    """Return ``[num_stages + 1]`` names of the tensors before, between and after the stages.

    The first are the model's inputs, the last its outputs; between are all that a later stage reads.
    """
    program = plan.model.lowered.program
    later = [{name for name, _ in stage.inputs} for stage in plan.stages]
    found = [tuple(program.inputs)]
    available = list(program.inputs)
    for at, stage in enumerate(plan.stages[:-1]):
        available += [name for name, _ in stage.outputs]
        needed = set(program.outputs).union(*later[at + 1 :])
        found.append(tuple(name for name in available if name in needed))
    return [*found, tuple(program.outputs)]


def start_lines(plan: StagePlan, script: str) -> dict[str, str]:
    """Return what starts a pipeline on its machines: a line for each node, or for each stage if they alternate.

    Nodes are called by their addresses; the script lies at the same place on each. Nothing is needed on one machine.
    """
    nodes = [stage.device.node for stage in plan.stages]
    if None in nodes or len(set(nodes)) < 2:
        return {}
    names = [str(node) for node in dict.fromkeys(nodes)]
    if nodes == sorted(nodes, key=nodes.index):
        common = f"torchrun --nnodes {len(names)} --master-addr {names[0]} --master-port {PORT}"
        return {
            node: f"{common} --node-rank {at} --nproc-per-node {nodes.count(node)} {script}"
            for at, node in enumerate(names)
        }
    common = f"WORLD_SIZE={len(nodes)} MASTER_ADDR={names[0]} MASTER_PORT={PORT}"
    return {f"{node}, stage {at}": f"{common} RANK={at} python {script}" for at, node in enumerate(nodes)}


def refuse_teams(plan: StagePlan) -> None:
    """Raise unless every stage of a PyTorch program is on one device, and there is one."""
    for stage in plan.stages:
        if len(stage.members) > 1:
            raise UnsupportedProblemError(
                f"stage {stage.name!r} is on team {stage.team_name!r}: a pipeline of torch has one device per stage; "
                "use executor threads, or solve with --teams off"
            )
    if not plan.stages:
        raise UnsupportedProblemError(f"model {plan.name!r} has no ops to run")


def write_torch_stages(plan: StagePlan, folder: Path, queue_size: int) -> Manifest:
    """Write the program of every stage, and the script; return the manifest."""
    torch = require_torch("writing a PyTorch program")
    program, chain, builder = plan.model.lowered.program, chain_of(plan), plan.model.builder
    tensors: dict[str, Any] = dict(zip(program.inputs, random_inputs(program), strict=True))
    entries, named = [], {}
    for at, stage in enumerate(plan.stages):
        module = builder.part(stage.model.ops, chain[at], chain[at + 1])
        given = tuple(tensors[name].clone() for name in chain[at])  # no views, which torch.export cannot copy
        file = folder / f"{at}.pt2"
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's about tied weights of one stage
            try:
                with SteadyFile(file) as stream:
                    torch.export.save(torch.export.export(module, given), stream)
            except Exception as error:  # torch.export raises everything there is
                raise UnsupportedProblemError(
                    f"stage {stage.name!r} cannot be written by torch.export: {first_line(error)}"
                ) from error
            if stream.error is not None:
                raise PlacekitError(f"cannot write {file} ({stream.num_bytes:,} bytes): {stream.error.strerror}")
            tensors = dict(zip(chain[at + 1], module.forward(*given), strict=True))
        # the script looks nowhere else for what torch calls the device
        own = {**stage.device.properties, TORCH: torch_device(stage.device)}
        named[stage.device.name] = stage.device.replace(properties=own)
        ends = ([PortModel(op=name, port=0, node=name) for name in names] for names in chain[at : at + 2])
        entries.append(StageModel.of(stage, [file], *ends))
    write_text(folder / SCRIPT, files("placekit.runtime.bundles").joinpath("run_pipeline.py").read_text())
    inputs = [
        InputModel(op=name, port=0, name=name, tensor_names=[], type=meta.dtype, shape=json.dumps(list(meta.shape)))
        for name, meta in plan.model.inputs.items()
    ]
    return Manifest.of(
        plan,
        "torch",
        devices=[named[device.name] for device in plan.devices],
        inputs=inputs,
        stages=entries,
        queue_size=queue_size,
        version=str(torch.__version__),
    )


def read_torch_stages(
    path: Path, manifest: Manifest, devices: Mapping[str, Device]
) -> tuple[TorchModel, tuple[PlacedStage, ...], dict[TensorKey, int | None]]:
    """Return the inputs of the program, its stages, and the sizes of what they give."""
    if not manifest.stages:
        raise InvalidFileError(f"{path}: stages is empty; a program has one at least")
    chain = [[each.op for each in manifest.inputs]]
    for entry in manifest.stages:
        if [each.op for each in entry.inputs] != chain[-1]:
            whose = "the model takes" if len(chain) == 1 else f"stage {manifest.stages[len(chain) - 2].name!r} gives"
            raise InvalidFileError(
                f"{path}: stage {entry.name!r} reads {[each.op for each in entry.inputs]}, and {whose} {chain[-1]}"
            )
        if len(set(chain[-1])) < len(chain[-1]):
            raise InvalidFileError(f"{path}: stage {entry.name!r} reads a tensor twice: {chain[-1]}")
        chain.append([each.op for each in entry.outputs])
    named = [re.sub(r"#\d+$", "", each.name) for each in manifest.outputs]
    if not named == [each.op for each in manifest.outputs] == chain[-1]:
        raise InvalidFileError(f"{path}: the outputs are {named}, and the last stage gives {chain[-1]}")
    sources = [_read_program(path, index, entry) for index, entry in enumerate(manifest.stages)]
    first = sources[0].lowered.program
    metas = dict(zip(chain[0], (first.tensors[name] for name in first.inputs), strict=True))
    for each in manifest.inputs:
        told = (each.type, each.shape)
        if told != (meta := _described(metas[each.op])):
            raise InvalidFileError(f"{path}: input {each.name!r} is {told}, and the first stage reads it as {meta}")
    known = {name: _described(meta) for name, meta in metas.items()}
    stages: list[PlacedStage] = []
    num_bytes: dict[TensorKey, int | None] = {}
    for entry, source in zip(manifest.stages, sources, strict=True):
        stages.append(_stage(path, entry, source, devices, known))
        tensors = source.lowered.program.tensors
        for key, name in zip(stages[-1].outputs, stages[-1].model.outputs, strict=True):
            known[key[0]], num_bytes[key] = _described(tensors[name]), int(tensors[name].num_bytes)
    return TorchModel(metas), tuple(stages), num_bytes


def _read_program(path: Path, index: int, entry: StageModel) -> TorchSource:
    source = read_pt2(entry.file(path, f"{index}.pt2"))
    program = source.lowered.program
    for what, names, told in (("inputs", program.inputs, entry.inputs), ("outputs", program.outputs, entry.outputs)):
        if len(names) != len(told):
            raise InvalidFileError(
                f"{path}: stage {entry.name!r} lists {len(told)} {what}; its program has {len(names)}"
            )
    return source


def _stage(
    path: Path,
    entry: StageModel,
    source: TorchSource,
    devices: Mapping[str, Device],
    known: Mapping[str, tuple[str, str]],
) -> PlacedStage:
    """Return a stage without the tensors that it only hands on: they go from their maker to their readers."""
    program = source.lowered.program
    given, made = [each.op for each in entry.inputs], [each.op for each in entry.outputs]
    for key, name in zip(given, program.inputs, strict=True):
        if _described(program.tensors[name]) != known[key]:
            raise InvalidFileError(
                f"{path}: stage {entry.name!r} reads {key!r} as {_described(program.tensors[name])}; it is {known[key]}"
            )
    again = next((key for key in made if key in known and key not in given), None)
    if again is not None:
        raise InvalidFileError(f"{path}: stage {entry.name!r} gives {again!r} again")
    outputs = {key: name for key, name in zip(made, program.outputs, strict=True) if key not in known}
    read = {ref for node in program.nodes for ref in node.refs()} | set(outputs.values())
    inputs = {key: name for key, name in zip(given, program.inputs, strict=True) if name in read}
    part = TorchPart(source, range(source.graph.num_ops), tuple(inputs.values()), tuple(outputs.values()))
    read_keys, given_keys = (tuple((key, 0) for key in each) for each in (inputs, outputs))
    members = tuple(devices[each] for each in entry.members)
    return PlacedStage(entry.name, members, part, read_keys, given_keys, tuple(entry.op_names))


def _described(tensor: TorchTensor) -> tuple[str, str]:
    """Return type and shape as the manifest has them."""
    return tensor.dtype, json.dumps(list(tensor.shape))
