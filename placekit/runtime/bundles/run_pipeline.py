"""Runs the pipeline in this folder, one process per stage, by torch.distributed.pipelining. Needs torch alone.

    python run.py --samples 16
    python run.py --inputs inputs.pt --outputs outputs.pt
    torchrun --nnodes 2 --node-rank 0 --nproc-per-node 1 --master-addr HOST --master-port 29500 run.py ...
    torchrun --nnodes 2 --node-rank 1 ...        (the same on several machines, in the order of their stages)

Inputs are a dictionary of tensors by name, saved by torch.save: those of the model with one more dimension in front,
the samples. Outputs are saved alike. Without inputs, seeded random ones are used. The files beside this script are
loaded by torch.export.load: trust them as you trust the script.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Run as a stage if a launcher says which; else launch one process per stage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=16, help="number of random samples, without --inputs")
    parser.add_argument("--inputs", type=Path, help="inputs (.pt)")
    parser.add_argument("--outputs", type=Path, help="where the outputs go (.pt)")
    parser.add_argument("--seed", type=int, default=0, help="seed of random inputs")
    options = parser.parse_args()
    manifest = json.loads((HERE / "manifest.json").read_text())
    if "RANK" in os.environ:
        run(manifest, options)
        return
    count = str(len(manifest["stages"]))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", count, __file__]
    raise SystemExit(subprocess.call([*launch, *sys.argv[1:]]))  # noqa: S603  # this script, by this interpreter


def run(manifest: dict[str, Any], options: argparse.Namespace) -> None:
    """Be the stage of this process's rank."""
    rank, stages = int(os.environ["RANK"]), manifest["stages"]
    mine = stages[rank]
    devices = {each["name"]: each for each in manifest["devices"]}
    names = [devices[each["members"][0]]["properties"]["torch"] for each in stages]
    cores = devices[mine["members"][0]]["cores"]
    if int(os.environ["WORLD_SIZE"]) != len(stages):
        raise SystemExit(f"{os.environ['WORLD_SIZE']} processes for {len(stages)} stages; start as many as stages")
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)  # before torch starts threads
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    if cores:
        torch.set_num_threads(len(cores))
    device = torch.device(names[rank])
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if all(each.startswith("cuda") for each in names) else "gloo")

    inputs = read_inputs(manifest, options, torch)
    samples = len(inputs[0])
    with torch.no_grad():
        stage = PipelineStage(load_stage(mine, device, rank == len(stages) - 1), rank, len(stages), device)
        schedule = ScheduleGPipe(stage, samples)
        given = [each.to(device) for each in inputs] if rank == 0 else []
        outputs = schedule.step(*given)
        dist.barrier()
        start = time.perf_counter()
        outputs = schedule.step(*given)
        dist.barrier()
        if rank == len(stages) - 1:
            rate = samples / (time.perf_counter() - start)
            sys.stdout.write(f"{rate:.1f} samples/s, {len(stages)} stages\n")
            outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
            if options.outputs is not None:
                named = zip(manifest["outputs"], outputs, strict=True)
                torch.save({told["name"]: each.cpu() for told, each in named}, options.outputs)
    dist.destroy_process_group()


def load_stage(entry: dict[str, Any], device: Any, is_last: bool) -> Any:
    """Return a stage of the manifest as a module that is called with one sample, whose dimension is in front."""
    import torch

    program = torch.export.load(HERE / next(iter(entry["files"])))
    nodes = {node.name: node for node in program.graph.nodes}
    is_complex = [nodes[name].meta["val"].is_complex() for name in program.graph_signature.user_inputs]

    class Sample(torch.nn.Module):
        """A stage that sends what every backend of torch.distributed can: contiguous real numbers."""

        def __init__(self) -> None:
            super().__init__()
            self.program = program.module().to(device)

        def forward(self, *inputs: Any) -> tuple[Any, ...]:
            """Return the outputs of the stage, each with a dimension in front."""
            given = zip(inputs, is_complex, strict=True)
            read = [torch.view_as_complex(each) if pair and not each.is_complex() else each for each, pair in given]
            made = [each.unsqueeze(0) for each in self.program(*(each.squeeze(0) for each in read))]
            made = [each.resolve_conj().resolve_neg() for each in made]
            if not is_last:
                made = [torch.view_as_real(each) if each.is_complex() else each for each in made]
            return tuple(each.contiguous() for each in made)

    return Sample()


def read_inputs(manifest: dict[str, Any], options: argparse.Namespace, torch: Any) -> list[Any]:
    """Return one tensor per input of the model, with the samples in front."""
    if options.inputs is not None:
        given = torch.load(options.inputs, weights_only=True)
        missing = [each["name"] for each in manifest["inputs"] if each["name"] not in given]
        if missing:
            raise SystemExit(f"{options.inputs}: no input {missing[0]!r}")
        return [given[each["name"]] for each in manifest["inputs"]]
    generator = torch.Generator().manual_seed(options.seed)
    found = []
    for each in manifest["inputs"]:
        dtype, shape = getattr(torch, each["type"]), (options.samples, *json.loads(each["shape"]))
        if dtype.is_floating_point:
            found.append(torch.randn(shape, generator=generator).to(dtype))
        else:  # ids of any table, masks, flags
            found.append(torch.ones(shape, dtype=dtype))
    return found


if __name__ == "__main__":
    main()
