"""Random placements of real models, executed: whether all tensors agree, and whether a corruption is seen.

    python -m placekit.benchmarks.openvino_outputs --seeds 5 --resume

Every placement is cut into stages, the stages run one after another in f32 on devices that are the CPU under several
names, and every tensor between stages is compared with the whole model. One row per model and kind of placement is
appended to ``rows/outputs.jsonl``; ``--table`` prints them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placekit.benchmarks.circumstances import ROOT, circumstances
from placekit.benchmarks.markdown import markdown_line
from placekit.benchmarks.rows import append_row, read_lines
from placekit.cost_models.openvino.compiled_plan import compile_plan
from placekit.cost_models.openvino.output_check import check_placement
from placekit.cost_models.openvino.stages import StagePlan, plan_stages
from placekit.errors import PlacekitError
from placekit.graph import OpGraph
from placekit.io.model import ModelSource, read_model
from placekit.placement import Placement
from placekit.platform import Device, Platform

if TYPE_CHECKING:
    import openvino

__all__ = [
    "EVERY_OP",
    "KINDS",
    "LIGHT_MODELS",
    "Case",
    "corrupt_stage",
    "light_model",
    "markdown_table",
    "measure",
    "random_plan",
]

EVERY_OP = "every-op"
KINDS: tuple[int | str, ...] = (1, 3, 10, 30, EVERY_OP)
"""Number of cuts along a topological order, or a random device for every op."""

LIGHT_MODELS = ("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet",
                "vgg19", "zfnet512")  # fmt: skip
"""Models that the onnx package brings without weights."""

_F32 = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "1"}

_CORRUPTED = 2  # placements of each kind that are corrupted, too

_COUNTED = ("num_seeds", "num_tensors", "num_mismatches", "num_corrupted", "num_corrupted_seen")

# smaller tensors and two transformer layers, so that many placements can be run
SMALL: dict[str, dict[str, Any]] = {
    "resnet50": {"width": 8, "image_size": 64},
    "inception_v3": {"width_multiplier": 0.125, "image_size": 75},
    "mobilenet_v2": {"width_multiplier": 0.25, "image_size": 64},
    "bert_base": {"width": 48, "heads": 4, "sequence": 16, "vocabulary": 100, "layers": 2},
    "gpt2": {"width": 48, "heads": 4, "sequence": 16, "vocabulary": 100, "layers": 2},
    "decoder": {"width": 48, "heads": 4, "sequence": 16, "vocabulary": 100, "layers": 2},
}
"""Parameters of the zoo models."""


def random_plan(source: ModelSource, kind: int | str, seed: int) -> StagePlan:
    """Place a model at random on two to four devices, and cut it.

    Parameters
    ----------
    source
        The model.
    kind
        Number of cuts between consecutive ops of a topological order, behind each of which the device is another; or
        `EVERY_OP`.
    seed
        Seed of devices and cuts.
    """
    rng = np.random.default_rng(seed)
    num_devices = int(rng.integers(2, 5))
    platform = Platform(
        tuple(Device(f"cpu{i}", "cpu", is_host=True, openvino="CPU", properties=_F32) for i in range(num_devices))
    )
    device_of_op = _random_devices(source.graph, kind, num_devices, rng)
    return plan_stages(source, Placement(source.graph.op_names, platform.device_names, device_of_op), platform)


def _random_devices(graph: OpGraph, kind: int | str, num_devices: int, rng: np.random.Generator) -> NDArray[np.int64]:
    if kind == EVERY_OP:
        return rng.integers(0, num_devices, graph.num_ops)
    is_cut = np.zeros(graph.num_ops, dtype=bool)
    is_cut[1 + rng.permutation(graph.num_ops - 1)[: int(kind)]] = True
    steps = np.where(is_cut, rng.integers(1, num_devices, graph.num_ops), 0)  # to another device, never the same
    device_of_op = np.empty(graph.num_ops, dtype=np.int64)
    device_of_op[graph.order] = np.cumsum(steps) % num_devices
    return device_of_op


def corrupt_stage(plan: StagePlan, stage: int, by: float = 0.1) -> StagePlan:
    """Return the plan with a stage of which one f32 output is ``(1 + by) * value + by``.

    Both, because adding alone vanishes in a tensor of large numbers, and scaling alone in one of zeros.

    Raises
    ------
    StopIteration
        The stage has none.
    """
    from openvino import Type
    from openvino import opset13 as opset

    model = plan.stages[stage].model.clone()
    result = next(each for each in model.get_results() if each.get_output_element_type(0) == Type.f32)
    scaled = opset.multiply(result.input_value(0), opset.constant(np.float32(1 + by)))
    wrong = opset.add(scaled, opset.constant(np.float32(by)))
    result.input(0).replace_source_output(wrong.output(0))
    stages = list(plan.stages)
    stages[stage] = replace(stages[stage], model=model)
    return replace(plan, stages=tuple(stages))


def light_model(name: str, folder: Path, seed: int = 0) -> ModelSource:
    """Return a model of the onnx package as IR in `folder`, with random weights for its constant ones.

    With constant weights all elements of a tensor are equal, and whatever is compared agrees.
    """
    import onnx
    import openvino as ov

    path = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"
    model = ov.convert_model(path)
    _randomise(model, np.random.default_rng(seed))
    written = folder / f"light_{name}.xml"
    ov.save_model(model, written, compress_to_fp16=False)
    return read_model(written)


def _randomise(model: openvino.Model, rng: np.random.Generator) -> None:
    """Replace the real-valued constants of a model, scalars excepted, by random ones. In place."""
    from openvino import opset13 as opset

    for node in model.get_ordered_ops():
        if node.get_type_name() != "Constant" or node.get_element_type().get_type_name() != "f32":
            continue
        shape = tuple(node.get_output_shape(0))
        size = int(np.prod(shape))
        if size == 1:
            continue
        fan_in = size // max(shape)
        # a bias or scale per channel has no fan-in; weights keep the variance of what they are applied to
        drawn = rng.standard_normal(shape, dtype=np.float32) * np.float32(0.5 if fan_in == 1 else np.sqrt(2 / fan_in))
        fresh = opset.constant(drawn + np.float32(fan_in == 1))
        for target in node.output(0).get_target_inputs():
            target.replace_source_output(fresh.output(0))


@dataclass(frozen=True)
class Case:
    """A model by name, and how to get it."""

    name: str
    load: Callable[[Path], ModelSource]


def cases(names: Iterable[str] | None = None) -> Iterator[Case]:
    """Yield the zoo models and the light ones, or those of `names`."""
    from placekit.zoo import build

    def zoo(name: str) -> Case:
        return Case(name, lambda folder: build(name, folder / f"{name}.xml", **SMALL[name]).source)

    def light(name: str) -> Case:
        return Case(f"light_{name}", lambda folder: light_model(name, folder))

    known = [zoo(name) for name in SMALL] if find_spec("transformers") else []
    known += [light(name) for name in LIGHT_MODELS] if find_spec("onnx") else []
    wanted = None if names is None else set(names)
    yield from (case for case in known if wanted is None or case.name in wanted)


def measure(source: ModelSource, kind: int | str, seeds: Iterable[int]) -> dict[str, Any]:
    """Run the placements of one kind, and return what they have shown."""
    start, worst, worst_tensor = time.perf_counter(), 0.0, None
    num_stages, num_tensors, num_seeds, num_mismatches = [], 0, 0, 0
    crashes: list[str] = []
    num_corrupted = num_seen = 0
    for seed in seeds:
        num_seeds += 1
        try:
            plan = random_plan(source, kind, seed)
            check = check_placement(compile_plan(plan), seed=seed)
            num_stages.append(len(plan.stages))
            num_tensors += len(check.cuts) + len(check.outputs)
            for each in (*check.cuts, *check.outputs):
                num_mismatches += not each.is_equal
                if each.max_error > worst:
                    worst, worst_tensor = each.max_error, each.name
            if num_corrupted < _CORRUPTED:
                num_corrupted += 1
                num_seen += _sees_corruption(plan, seed)
        except (PlacekitError, RuntimeError) as error:
            crashes.append(f"seed {seed}: {type(error).__name__}: {str(error)[:300]}")
    return {
        "model": source.name,
        "num_ops": source.graph.num_ops,
        "kind": kind,
        "num_seeds": num_seeds,
        "num_stages": {"median": float(np.median(num_stages)), "max": max(num_stages)} if num_stages else None,
        "num_tensors": num_tensors,
        "worst_error": worst,
        "worst_tensor": worst_tensor,
        "num_mismatches": num_mismatches,
        "num_corrupted": num_corrupted,
        "num_corrupted_seen": num_seen,
        "crashes": crashes,
        "runtime_s": time.perf_counter() - start,
    }


def _sees_corruption(plan: StagePlan, seed: int) -> bool:
    """Corrupt a random stage, and return whether the check blames it."""
    has_real = [
        any(port.get_element_type().get_type_name() == "f32" for port in stage.model.outputs) for stage in plan.stages
    ]
    chosen = int(np.random.default_rng(seed).choice(np.flatnonzero(has_real)))
    found = check_placement(compile_plan(corrupt_stage(plan, chosen)), seed=seed).first_mismatch
    return found is not None and found.stage == plan.stages[chosen].name


def markdown_table(rows: Iterable[Mapping[str, Any]], num_seeds: int) -> str:
    """Return the worst error by model and kind, of the latest rows with so many seeds, and a line that sums them up."""
    latest = {(row["model"], str(row["kind"])): row for row in rows if row["num_seeds"] == num_seeds}
    kinds = [str(kind) for kind in KINDS]
    models = sorted({model for model, _ in latest})
    lines = [markdown_line(["model", *kinds]), markdown_line(["---"] * (1 + len(kinds)))]
    for model in models:
        found = (latest.get((model, kind)) for kind in kinds)
        lines.append(markdown_line([model, *("-" if row is None else f"{row['worst_error']:.1e}" for row in found)]))
    total = {name: sum(row.get(name, 0) for row in latest.values()) for name in _COUNTED}
    crashes = sum(len(row["crashes"]) for row in latest.values())
    lines.append(
        f"\n{total['num_seeds']:,} placements, {total['num_tensors']:,} tensors, {total['num_mismatches']} mismatches, "
        f"{crashes} crashes, {total['num_corrupted_seen']} of {total['num_corrupted']} corruptions seen"
    )
    return "\n".join(lines)


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", help="names such as bert_base or light_resnet50; all by default")
    parser.add_argument("--kinds", nargs="+", default=[str(kind) for kind in KINDS], help="cuts, or every-op")
    parser.add_argument("--seeds", type=int, default=50, help="placements of each kind")
    parser.add_argument("--rows", type=Path, default=ROOT / "benchmarks" / "rows" / "outputs.jsonl")
    parser.add_argument("--resume", action="store_true", help="leave out what has a row with as many seeds")
    parser.add_argument("--table", action="store_true", help="only print the table of the rows that are there")
    args = parser.parse_args()
    if args.table:
        print(markdown_table((row for _, row in read_lines(args.rows)), args.seeds))  # a command
        return
    done = (
        {(row["model"], str(row["kind"]), row["num_seeds"]) for _, row in read_lines(args.rows)} if args.resume else ()
    )
    context = circumstances()
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(args.models):
            left = [kind for kind in args.kinds if (case.name, kind, args.seeds) not in done]
            if not left:
                continue
            source = case.load(Path(folder))
            for text in left:
                kind = int(text) if text.isdigit() else text
                row = measure(source, kind, range(args.seeds))
                append_row(args.rows, row | context)
                print(  # a command
                    f"{case.name:20} {text:>8}  {row['num_tensors']:6} tensors  worst error {row['worst_error']:.1e}  "
                    f"corruptions seen {row['num_corrupted_seen']}/{row['num_corrupted']}  "
                    f"crashes {len(row['crashes'])}  {row['runtime_s']:.0f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
