"""Trainers with pipelines of whole blocks: Megatron-LM and torchtitan.

References
----------
Megatron-LM: ``--pipeline-model-parallel-layout``, ``E`` embedding, ``t`` block, ``m`` block of multi-token prediction,
``L`` head and loss, ``x*n`` for n times x, ``|`` between stages (`PipelineParallelLayerLayout.parse_str_to_list`).
torchtitan: ``parallelism.module_fqns_per_model_part``, a list of module paths per stage.
"""

from __future__ import annotations

from placekit.language.runtimes.machines import torchrun_starts
from placekit.language.runtimes.record import Launch, Placed, Runtime, Typed
from placekit.language.runtimes.stage_lines import read_megatron, read_torchtitan
from placekit.language.runtimes.stages import pipeline
from placekit.model.errors import UnsupportedProblemError

TORCHRUN = ("torchrun", "python -m torch.distributed.run", "python3 -m torch.distributed.run")


def write_megatron(runtime: Runtime, placed: Placed) -> Launch:
    """Return the options of Megatron's programs."""
    found, options = pipeline(runtime.name, placed), runtime.options  # it derives replicas from the number of ranks
    stages, predicting = found.stages, placed.served.predicting_blocks
    if predicting > len(stages[-1].blocks):
        raise UnsupportedProblemError(
            f"{runtime.name} has all {predicting} blocks of multi-token prediction on the last stage"
        )

    def letters(letter: str, count: int) -> str:
        return f"{letter}*{count}" if count > 1 else letter * count

    layout = []
    for at, stage in enumerate(stages):
        is_last = at == len(stages) - 1
        more = predicting if is_last else 0  # blocks of multi-token prediction are the last ones, beside the head
        layout.append("E" * (at == 0) + letters("t", len(stage.blocks) - more) + letters("m", more) + "L" * is_last)
    # a stage with nothing would shift the ranks; the ends always have embedding and head
    arguments = (
        *([options["predicting"], str(predicting)] if predicting else []),
        options["stages"], str(len(stages)), options["layout"], "|".join(layout), *found.degrees(options["degree"]),
    )  # fmt: skip
    devices = found.by_stage()
    return Launch(runtime, arguments=arguments, devices=devices, starts=torchrun_starts(runtime.name, placed, devices))


def write_torchtitan(runtime: Runtime, placed: Placed) -> Launch:
    """Return the options of torchtitan, and its settings."""
    found, options = pipeline(runtime.name, placed), runtime.options
    stages, replicas = found.stages, found.replicas
    parts = [
        ["tok_embeddings"] * (at == 0)
        + [f"layers.{block}" for block in stage.blocks]
        + ["norm", "output"] * (at == len(stages) - 1)
        for at, stage in enumerate(stages)
    ]
    arguments = [options["stages"], str(len(stages))]
    arguments += [options["replicas"], str(replicas)] if replicas > 1 else []
    arguments += found.degrees(options["degree"])
    devices = found.by_stage()  # pp is the outermost dimension, tp the innermost
    starts = torchrun_starts(runtime.name, placed, devices)
    config = {"parallelism": {"pipeline_parallel_degree": len(stages), "module_fqns_per_model_part": parts}}
    return Launch(runtime, {}, tuple(arguments), devices, config, "settings.toml", starts=starts)


MEGATRON = Runtime(
    name="megatron",
    version="megatron-core 0.16.1",
    pages=("megatron/training/arguments.py", "megatron/core/transformer/moe/README.md"),
    host="none",
    headroom=0.10,
    chunk=None,
    goal="throughput",
    kernels="general",
    is_parallel=True,
    trains_prediction=True,
    nodes="torchrun",
    program="torchrun {start} pretrain_gpt.py",
    options={
        "stages": "--pipeline-model-parallel-size",
        "layout": "--pipeline-model-parallel-layout",
        "degree": "--tensor-model-parallel-size",
        "predicting": "--mtp-num-layers",
    },
    write=write_megatron,
    read=read_megatron,
    typed=Typed(
        programs=TORCHRUN,
        is_open=True,
        refused=frozenset(
            {
                "--num-layers-per-virtual-pipeline-stage",
                "--num-virtual-stages-per-pipeline-rank",
                "--decoder-first-pipeline-num-layers",
                "--decoder-last-pipeline-num-layers",
                "--expert-model-parallel-size",
                "--context-parallel-size",
                "--standalone-embedding-stage",
            }
        ),
    ),
    not_searched=("expert parallelism", "interleaved stages", "context parallelism"),
)

TORCHTITAN = Runtime(
    name="torchtitan",
    version="0.2.2, with settings in TOML; 0.3 takes Python",
    pages=("torchtitan/config/job_config.py",),
    host="none",
    headroom=0.10,
    chunk=None,
    goal="throughput",
    kernels="general",
    is_parallel=True,
    nodes="torchrun",
    program="torchrun {start} -m torchtitan.train --job.config_file {file}",
    options={
        "stages": "--parallelism.pipeline_parallel_degree",
        "replicas": "--parallelism.data_parallel_replicate_degree",
        "degree": "--parallelism.tensor_parallel_degree",
    },
    settings="toml",
    write=write_torchtitan,
    read=read_torchtitan,
    typed=Typed(
        programs=TORCHRUN,
        is_open=True,
        refused=frozenset(
            {
                "--parallelism.data_parallel_shard_degree",
                "--parallelism.context_parallel_degree",
                "--parallelism.expert_parallel_degree",
                "--parallelism.pipeline_parallel_layers_per_stage",
            }
        ),
        settings_file="--job.config_file",
    ),
    not_searched=("expert parallelism", "interleaved stages", "sharded data parallelism", "context parallelism"),
)
