"""What stages take of memory, predicted and measured: ``python -m placekit.benchmarks.stage_memory``.

A model is cut in two, each part runs in a process of its own, and the largest resident memory of the process, over
compiling and some samples, stands beside the prediction:

- what a worker takes for models of a few kilobytes that use the kernels of convolutions and matrix products, as a
  constant (the interpreter and the libraries) and a share of every op (its compiled code);
- what the judge counts (:mod:`placekit.memory_blocks`): weights, live tensors, queues;
- the copies of weights that OpenVINO packs for its kernels, of convolutions and matrix products. The pages of the model
  file stay mapped beside them; the system takes them back when it needs to, so that no limit counts them twice.

Resident memory does not depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placekit.benchmarks.circumstances import circumstances
from placekit.benchmarks.markdown import markdown_line
from placekit.benchmarks.rows import append_row
from placekit.cost_models.analytic import Analytic
from placekit.cost_models.op_classes import DENSE_TYPES, DEPTHWISE_TYPES
from placekit.cost_models.openvino.devices import core_groups
from placekit.cost_models.openvino.pipeline_processes import ProcessPipeline
from placekit.cost_models.openvino.stages import plan_stages
from placekit.cost_models.splits import split_placement
from placekit.errors import UnsupportedProblemError
from placekit.io.model import ModelSource, read_model
from placekit.placement import Placement
from placekit.problem import Problem

__all__ = ["StageMemoryRow", "measure_split", "packed_bytes", "tables", "worker_bytes"]

MODELS = ("resnet50", "mobilenet_v2", "inception_v3", "bert_base", "decoder")
SHARES = (0.3, 0.6)
SAMPLES = 6
LITTLE = (4, 40)
"""Layers of the models whose workers tell what an op takes."""
_DTYPES = {"i64": np.int64, "i32": np.int32, "f32": np.float32, "f16": np.float16, "boolean": np.bool_}


@dataclass(frozen=True, slots=True)
class StageMemoryRow:
    """One stage, in bytes.

    Parameters
    ----------
    model, share, stage
        Name, part of the work before the cut, and index of the stage.
    worker, weights, activations, queues, packed
        Parts of the prediction.
    measured
        Largest resident memory of the process.
    """

    model: str
    share: float
    stage: int
    worker: float
    weights: float
    activations: float
    queues: float
    packed: float
    measured: float

    @property
    def predicted(self) -> float:
        """Sum of the parts."""
        return self.worker + self.weights + self.activations + self.queues + self.packed

    @property
    def error(self) -> float:
        """``predicted / measured - 1``."""
        return self.predicted / self.measured - 1


def packed_bytes(source: ModelSource, inside: Iterable[int]) -> float:
    """Return the bytes of weights that OpenVINO's CPU plugin packs, of the ops `inside`."""
    packs = DENSE_TYPES | DEPTHWISE_TYPES
    return float(sum(source.graph.op_weight_bytes[op] for op in inside if source.graph.op_types[op] in packs))


def _peaks(source: ModelSource, problem: Problem, placement: Placement) -> list[float]:
    """Return the largest resident memory of the process of every device."""
    sample: list[NDArray[Any]] = [np.ones(each.shape, dtype=_DTYPES[each.dtype]) for each in source.inputs]
    with ProcessPipeline(plan_stages(source, placement, problem.platform)) as pipe:
        for _ in pipe.stream(sample for _ in range(SAMPLES)):
            pass
        return [_peak_of(process.pid) for process in pipe._processes]


def _peak_of(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return float(line.split()[1]) * 1024
    raise UnsupportedProblemError("this system does not tell what a process holds")


def worker_bytes() -> tuple[float, float]:
    """Return what a worker takes for next to nothing, and for every op more, in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        sizes, peaks = zip(*(_little(Path(folder), layers) for layers in LITTLE), strict=True)
    each = max(0.0, (peaks[1] - peaks[0]) / (sizes[1] - sizes[0]))
    return peaks[0] - each * sizes[0], each


def _little(folder: Path, num_layers: int) -> tuple[int, float]:
    """Return ops and peak of the larger half of so many convolutions and matrix products of 8 channels."""
    import openvino as ov
    from openvino import opset13 as ops

    data = ops.parameter([1, 8, 8, 8], np.float32, name="x")
    last: Any = data
    for _ in range(num_layers):
        kernel = ops.constant(np.ones((8, 8, 3, 3), dtype=np.float32))
        last = ops.relu(ops.convolution(last, kernel, [1, 1], [1, 1], [1, 1], [1, 1]))
        last = ops.softmax(ops.matmul(last, ops.constant(np.ones((8, 8), dtype=np.float32)), False, True), 1)
    path = folder / f"little{num_layers}.xml"
    ov.save_model(ov.Model([last], [data], "little"), path)
    source = read_model(path)
    problem, num_ops = _problem(source), source.graph.num_ops
    halves = Placement.of(problem, [int(op > num_ops // 2) for op in range(num_ops)])
    return num_ops // 2, max(_peaks(source, problem, halves))


def _problem(source: ModelSource) -> Problem:
    platform = core_groups(2)
    return source.problem(
        platform, Analytic(dict.fromkeys(platform.kinds, "cpu-core-f32")).cost_table(source, platform)
    )


def measure_split(source: ModelSource, share: float, worker: tuple[float, float]) -> list[StageMemoryRow]:
    """Return the two stages of a model that is cut at a share of its work.

    Parameters
    ----------
    source
        The model.
    share
        Part of the work of the first stage.
    worker
        Bytes of a worker for next to nothing, and for every op.
    """
    problem = _problem(source)
    placement = split_placement(problem, [0, 1], [share, 1 - share])
    use = problem.stage_memory.use(placement.device_of_op, 2)
    return [
        StageMemoryRow(
            model=source.name,
            share=share,
            stage=d,
            worker=worker[0] + worker[1] * int((placement.device_of_op == d).sum()),
            weights=float(use.weights[d]),
            activations=float(use.activations[d]),
            queues=float(use.queues[d]),
            packed=packed_bytes(source, np.flatnonzero(placement.device_of_op == d).tolist()),
            measured=measured,
        )
        for d, measured in enumerate(_peaks(source, problem, placement))
    ]


def tables(rows: Sequence[StageMemoryRow]) -> str:
    """Return the rows as a Markdown table, in MiB, and what they say together."""
    heads = (
        "model, cut, stage",
        "worker",
        "weights",
        "activations",
        "queues",
        "packed",
        "predicted",
        "measured",
        "error",
    )
    lines = [markdown_line(heads), markdown_line([":--"] + ["--:"] * (len(heads) - 1))]
    for row in rows:
        parts = (row.worker, row.weights, row.activations, row.queues, row.packed, row.predicted, row.measured)
        name = f"{row.model}, {row.share:.0%}, {row.stage}"
        lines.append(markdown_line([name, *(f"{part / 2**20:.1f}" for part in parts), f"{row.error:+.1%}"]))
    errors = [row.error for row in rows]
    if errors:
        told = f"{len(rows)} stages: errors from {min(errors):+.1%} to {max(errors):+.1%}"
        lines += ["", f"{told}, mean {np.abs(errors).mean():.1%}"]
    return "\n".join(lines)


def main() -> None:
    """Measure the splits and print the table."""
    from placekit.zoo.builder import build

    parser = argparse.ArgumentParser(description="Compare predicted with resident memory of stages in processes.")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, metavar="MODEL")
    parser.add_argument(
        "--folder", type=Path, default=Path("benchmark-models"), help="where zoo models are, or are built"
    )
    parser.add_argument("--rows", type=Path, help="append the rows to this file (.jsonl)")
    options = parser.parse_args()
    worker, rows = worker_bytes(), []
    for model in options.models:
        path = options.folder / f"{model}.xml"
        if not path.is_file():
            options.folder.mkdir(parents=True, exist_ok=True)
            build(model, path)
        for share in SHARES:
            rows += measure_split(read_model(path), share, worker)
    if options.rows is not None:
        for row in rows:
            told: dict[str, Any] = asdict(row) | {"predicted": row.predicted, "error": row.error}
            append_row(options.rows, told | circumstances())
    print(tables(rows))


if __name__ == "__main__":
    main()
