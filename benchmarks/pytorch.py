"""PyTorch programs, measured: ``python -m placekit.benchmarks.pytorch``.

``sums``
    Ten models on one core: the measured times of their ops, added up, against the whole module.
``pipelines``
    ResNet-50, BERT and GPT-2 on two cores, a pipeline of threads with checked outputs, against one core.
``prediction``
    Four models, five random cuts each: what the costs predict, without a calibration, and what is measured.
``unequal``
    Two devices of unequal speed: the plan against equal shares of the layers. With three cores or more one device has
    one core and the other all others; with two cores a busy process shares the second.
``memory``
    Five models on one core: freed memory kept by the process, as placekit does it, against given back to the system.

One row per case is appended to ``benchmarks/rows/pytorch.jsonl``; what has a row there is left out, and a case that
failed is tried again. All contenders of a case are measured in turns, and ratios are within a round.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from placekit.benchmarks.circumstances import ROOT
from placekit.benchmarks.part_driver import PartBenchmark, Row
from placekit.cost_models.openvino.devices import core_groups
from placekit.cost_models.openvino.machine import usable_cores
from placekit.cost_models.openvino.timing import Timing, TimingSettings
from placekit.cost_models.openvino.timing_contenders import Contender, Placed, singles
from placekit.cost_models.openvino.timing_process import TimedProcess
from placekit.cost_models.openvino.timing_series import Timings
from placekit.cost_models.openvino.timing_worker import Order
from placekit.cost_models.profiled import Profiled
from placekit.cost_models.pytorch.allocator import KEEP_MEMORY
from placekit.cost_models.pytorch.baselines import equal_layers, random_cuts
from placekit.cost_models.pytorch.check import require_equal_torch_outputs
from placekit.cost_models.pytorch.devices import TORCH
from placekit.cost_models.pytorch.stages import plan_torch_stages
from placekit.cost_models.stage_costs import predict
from placekit.errors import DeviceUnavailableError, InvalidFileError
from placekit.io.model import read_model
from placekit.placement import Placement
from placekit.platform import Platform
from placekit.problem import Problem
from placekit.pytorch.needs import require_torch
from placekit.pytorch.source import TorchSource
from placekit.solve import solve
from placekit.stop import MaxRuntime

__all__ = ["BENCHMARK", "PARTS", "TorchCase", "describe", "run_case", "summary", "torch_cases"]

ROWS = ROOT / "benchmarks" / "rows" / "pytorch.jsonl"
ZOO = ("resnet50", "inception_v3", "mobilenet_v2", "bert_base", "gpt2", "decoder")
_TEXT = {"hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "intermediate_size": 2048}
TRANSFORMERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "qwen2": ("Qwen2Model", {**_TEXT, "num_key_value_heads": 2, "vocab_size": 8000}),
    "mistral": ("MistralModel", {**_TEXT, "num_key_value_heads": 2, "vocab_size": 8000}),
    "vit": ("ViTModel", _TEXT),
    "clip_vision": ("CLIPVisionModel", _TEXT),
}
"""Class and configuration, with random weights, of models that the zoo does not have."""
_FEW = {
    "pipelines": ("resnet50", "bert_base", "gpt2"),
    "prediction": ("resnet50", "mobilenet_v2", "bert_base", "gpt2"),
    "unequal": ("resnet50", "bert_base", "gpt2"),
    "memory": ("resnet50", "mobilenet_v2", "gpt2", "vit", "qwen2"),
}
_SOLVE_S = 20.0
_NUM_SPLITS = 5
_PLAN, _LAYERS = "plan", "equal layers"


@dataclass(frozen=True, slots=True)
class TorchCase:
    """What is measured: one of `PARTS`, and the name of a model."""

    part: str
    model: str


def torch_cases(parts: Sequence[str], models: Sequence[str] | None) -> list[TorchCase]:
    """Return the cases of the `parts`, of all their models or of those given."""
    return [
        TorchCase(part, model)
        for part in parts
        for model in _FEW.get(part, (*ZOO, *TRANSFORMERS))
        if models is None or model in models
    ]


def run_case(case: TorchCase, folder: Path, *, is_quick: bool = False) -> Row:
    """Measure a case and return its row.

    Parameters
    ----------
    case
        The case.
    folder
        Where the models are, or are built first.
    is_quick
        True for a smoke run, of small models and short bursts, whose numbers mean nothing.

    Raises
    ------
    PlacekitError
        A model that cannot be had, or whatever keeps the case from running.
    """
    burst_s, rounds = (0.02, 3) if is_quick else (0.8, 7)
    settings = TimingSettings(
        rounds=rounds,
        max_rounds=rounds if is_quick else 2 * rounds,
        warm_up_s=burst_s / 2,
        latency_s=0.0,
        throughput_s=burst_s,
        # a neighbour is what one of the parts is about
        max_foreign_load=1.0 if is_quick or case.part == "unequal" else 0.1,
    )
    # a busy neighbour stays busy however often one measures
    retries = 0 if is_quick or case.part == "unequal" else 2
    profiled = Profiled(cache=None, noise_retries=retries, repetitions=4 if is_quick else 15)
    return PARTS[case.part](_source(case.model, folder, is_quick=is_quick), profiled, Timing(settings, cache=None))


def _source(name: str, folder: Path, *, is_quick: bool) -> TorchSource:
    path = folder / f"{name}{'.small' if is_quick else ''}.pt2"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        if name in ZOO:
            _build_zoo(name, path, is_quick=is_quick)
        else:
            _build_transformer(name, path, is_quick=is_quick)
    source = read_model(path)
    assert isinstance(source, TorchSource)
    return source


def _build_zoo(name: str, path: Path, *, is_quick: bool) -> None:
    from placekit.zoo.builder import build

    small: Mapping[str, Mapping[str, Any]] = {
        "resnet50": {"width": 8, "image_size": 64},
        "inception_v3": {"width_multiplier": 0.125, "image_size": 75},
        "mobilenet_v2": {"width_multiplier": 0.25, "image_size": 64},
    }
    text = {"layers": 2, "width": 64, "heads": 4, "vocabulary": 100, "sequence": 16}
    build(name, path, **(small.get(name, text) if is_quick else {}))


def _build_transformer(name: str, path: Path, *, is_quick: bool) -> None:
    """Write a model of the package transformers.

    Raises
    ------
    InvalidFileError
        The package is not installed.
    """
    torch = require_torch(f"building {name}")
    try:
        import transformers
    except ModuleNotFoundError:
        raise InvalidFileError(f"model {name!r} is made by the package transformers, which is not installed") from None
    kind, config = TRANSFORMERS[name]
    changed = {"num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 128} if is_quick else {}
    settings = getattr(transformers, kind.replace("Model", "Config"))(**{**config, **changed})
    torch.manual_seed(0)  # weights of a module come from the global generator; this process is the benchmark's own
    module = getattr(transformers, kind)(settings).eval()
    inputs = {"pixel_values": torch.zeros(1, 3, 224, 224)}
    if "vocab_size" in config:
        inputs = {"input_ids": torch.zeros(1, 128, dtype=torch.long), "use_cache": False}
    with torch.no_grad():
        torch.export.save(torch.export.export(module, (), inputs), path)


def _first_cores(count: int) -> list[int]:
    """Return the first usable cores.

    Raises
    ------
    DeviceUnavailableError
        There are fewer.
    """
    cores = [core.cpu for core in usable_cores()]
    if len(cores) < count:
        raise DeviceUnavailableError(f"{count} cores are needed, this process may use {len(cores)}")
    return cores[:count]


def _sums(source: TorchSource, profiled: Profiled, _: Timing) -> Row:
    costs = profiled.cost_table(source, core_groups(1, cores=_first_cores(1)))
    (told,) = costs.provenance["kinds"].values()
    return {
        "sum_of_op_times_s": told["sum_of_op_times_s"],
        "model_latency_s": told["model_latency_s"],
        "sum_error": told["sum_of_op_times_s"] / told["model_latency_s"] - 1,
        "num_distinct_ops": told["num_distinct_ops"],
        "noisy": bool(told["noisy"]),
    }


def _planned(source: TorchSource, profiled: Profiled, platform: Platform) -> tuple[Problem, Placement, Row]:
    """Return the problem with costs measured right now, its best placement, and what is known of that."""
    problem = source.problem(platform, profiled.cost_table(source, platform))
    result = solve(problem, "auto", stop=MaxRuntime(_SOLVE_S))
    if result.placement is None:
        raise InvalidFileError(f"{problem.name}: no placement was found in {_SOLVE_S:g} s")
    checked = require_equal_torch_outputs(plan_torch_stages(source, result.placement, platform))
    told = {"status": str(result.status), "gap": result.gap, "max_relative_error": checked.max_relative_error}
    return problem, result.placement, told


def _measured(timings: Timings, problem: Problem, placement: Placement, other: str) -> Row:
    over, rate = timings.ratio(_PLAN, other), timings[_PLAN].throughput
    predicted = predict(problem, placement, is_serial=False).throughput_per_s
    return {
        "other": other,
        "over_other": over and over.median,
        "over_other_iqr": over and over.iqr,
        "prediction_error": rate and predicted / rate.median - 1,
        "contenders": [each.to_dict() for each in timings.used],
        "flags": list(timings.flags()),
        "noisy": timings.is_noisy,
    }


def _pipelines(source: TorchSource, profiled: Profiled, timing: Timing) -> Row:
    platform = core_groups(2, cores=_first_cores(2))
    problem, placement, told = _planned(source, profiled, platform)
    alone = singles(source.graph, platform, "threads")
    timings = timing.measure(source, [Placed(_PLAN, placement, platform), *alone])
    best = timings.best(each.name for each in alone)
    return told | _measured(timings, problem, placement, str(best))


def _prediction(source: TorchSource, profiled: Profiled, timing: Timing) -> Row:
    platform = core_groups(2, cores=_first_cores(2))
    problem = source.problem(platform, profiled.cost_table(source, platform))
    splits = {f"cut {at}": each for at, each in enumerate(random_cuts(source, problem, 0, _NUM_SPLITS))}
    contenders: list[Contender] = [Placed(name, each, platform) for name, each in splits.items()]
    timings = timing.measure(source, contenders)
    errors = []
    for name, each in splits.items():
        rate = timings[name].throughput
        if rate is not None:
            errors.append(predict(problem, each, is_serial=False).throughput_per_s / rate.median - 1)
    return {
        "errors": errors,
        "mean_error": float(np.abs(errors).mean()),
        "contenders": [each.to_dict() for each in timings.used],
        "flags": list(timings.flags()),
        "noisy": timings.is_noisy or bool(problem.costs.provenance["noisy"]),
    }


def _unequal(source: TorchSource, profiled: Profiled, timing: Timing) -> Row:
    count = len(usable_cores())
    if count >= _CORES_FOR_THREADS:
        platform, how = core_groups(threads=[1, count - 1]), f"1 and {count - 1} threads"
        return _over_layers(source, profiled, timing, platform, how)
    cores = _first_cores(2)
    free, shared = core_groups(2, cores=cores).devices
    # kinds of the same hardware are measured once, unless their properties differ
    shared = shared.replace(kind="a core with a neighbour", properties={**shared.properties, TORCH: "cpu"})
    platform = Platform((free.replace(kind="a core"), shared))
    with _neighbour(cores[1]):
        return _over_layers(source, profiled, timing, platform, "a core, and a core that a busy process shares")


_CORES_FOR_THREADS = 3


def _over_layers(source: TorchSource, profiled: Profiled, timing: Timing, platform: Platform, how: str) -> Row:
    problem, placement, told = _planned(source, profiled, platform)
    contenders = [
        Placed(_PLAN, placement, platform),
        Placed(_LAYERS, equal_layers(source, problem), platform),
        *singles(source.graph, platform, "threads"),
    ]
    return told | {"devices": how} | _measured(timing.measure(source, contenders), problem, placement, _LAYERS)


def _memory(source: TorchSource, _: Profiled, timing: Timing) -> Row:
    (alone,) = singles(source.graph, core_groups(1, cores=_first_cores(1)), "serial")
    settings = timing.settings
    with ExitStack() as stack:
        processes = []
        for value in ("1", "0"):
            with mock.patch.dict(os.environ, {KEEP_MEMORY: value}):
                processes.append(stack.enter_context(TimedProcess(source, alone)))
        for each in processes:
            each.burst(Order("throughput", settings.warm_up_s))
        order = Order("throughput", settings.throughput_s)
        rates = [[each.burst(order).throughput_per_s for each in processes] for _ in range(settings.rounds)]
    kept, given_back = np.array(rates).T
    low, median, high = np.percentile(kept / given_back, (25, 50, 75)).tolist()
    rate = float(np.median(kept))
    return {"over_other": median, "over_other_iqr": high - low, "rate": rate, "rounds": len(rates), "noisy": False}


@contextmanager
def _neighbour(core: int) -> Iterator[None]:
    """Keep a core busy with another process."""
    program = f"import os\nos.sched_setaffinity(0, [{core}])\nparent = os.getppid()\nwhile os.getppid() == parent: pass"
    process = subprocess.Popen([sys.executable, "-c", program])  # noqa: S603  # this interpreter, and a program from above
    try:
        yield
    finally:
        process.kill()
        process.wait()


PARTS: Mapping[str, Callable[[TorchSource, Profiled, Timing], Row]] = {
    "sums": _sums,
    "pipelines": _pipelines,
    "prediction": _prediction,
    "unequal": _unequal,
    "memory": _memory,
}
"""What is measured, by name."""


def describe(row: Row) -> str:
    """Return what a row says, in a few words."""
    if row["part"] == "sums":
        return f"sum of ops {row['sum_error']:+.1%} of the module, {row['num_distinct_ops']} distinct ops"
    if row["part"] == "prediction":
        return f"mean error {row['mean_error']:.1%} of {len(row['errors'])} splits"
    if row["part"] == "memory":
        return f"{row['over_other']:.2f}x, {row['rate']:.1f} samples/s"
    return f"{row['over_other']:.2f}x of {row['other']} ({row['status']})"


def summary(rows: Sequence[Row]) -> list[str]:
    """Return what the rows say together, one line per part."""
    lines = []
    for part in PARTS:
        mine = [row for row in rows if row["part"] == part and row["error"] is None]
        if not mine:
            continue
        if part == "sums":
            near = sum(abs(row["sum_error"]) <= _NEAR for row in mine)
            lines.append(f"{part}: within {_NEAR:.0%} of the module on {near} of {len(mine)} models")
        elif part == "prediction":
            errors = np.abs([error for row in mine for error in row["errors"]])
            lines.append(f"{part}: mean error {errors.mean():.1%} of {len(errors)} splits of {len(mine)} models")
        else:
            ratios = [row["over_other"] for row in mine]
            what = "models" if part == "memory" else "plans"
            lines.append(f"{part}: {len(mine)} {what}, median {np.median(ratios):.2f}x, least {min(ratios):.2f}x")
    return lines


_NEAR = 0.1

_HEADS: dict[str, tuple[str, ...]] = {
    "sums": ("model", "whole module", "sum of ops", "difference"),
    "pipelines": ("model", "over one core", "IQR", "error of prediction"),
    "prediction": ("model", "splits", "mean error", "largest"),
    "unequal": ("model", "over equal layers", "IQR", "error of prediction"),
    "memory": ("model", "over given back", "IQR", "samples/s"),
}


def _cells(row: Row) -> list[str]:
    if row["part"] == "sums":
        times = [f"{1e3 * row[name]:.1f} ms" for name in ("model_latency_s", "sum_of_op_times_s")]
        return [row["model"], *times, f"{row['sum_error']:+.1%}"]
    if row["part"] == "prediction":
        worst = max(row["errors"], key=abs)
        return [row["model"], str(len(row["errors"])), f"{row['mean_error']:.1%}", f"{worst:+.1%}"]
    last = f"{row['rate']:.1f}" if row["part"] == "memory" else f"{row['prediction_error']:+.1%}"
    return [row["model"], f"{row['over_other']:.2f}x", f"{row['over_other_iqr']:.3f}", last]


BENCHMARK = PartBenchmark(
    "pytorch", "Measure PyTorch programs on this machine.", ROWS, TorchCase, _HEADS, torch_cases, run_case, describe,
    summary, _cells,
)  # fmt: skip

if __name__ == "__main__":
    BENCHMARK.main()
