"""Weights, cache and compute buffer of every device, as llama.cpp reckons them for models of real size."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from llama_models import Shape, write_model
from llama_plans import placekit, platform_text
from llama_programs import needs_llama, rpc_servers, run

pytestmark = [pytest.mark.slow, needs_llama]

MIB, GIB = 2**20, 2**30
MODELS = {
    "8b": Shape(32, 4096, 14336, 128256, 32, 8),
    "70b": Shape(80, 8192, 28672, 128256, 64, 8),
    "8x7b": Shape(32, 4096, 14336, 32000, 32, 8, experts=8, experts_per_token=2),
    "predicting": Shape(46, 4096, 1408, 151552, 32, 8, experts=128, experts_per_token=8, predicting=1),
}
CASES = [
    *(("8b", limits, context, cache, sequences)
      for limits in ((80,), (2.5,), (3, 3), (80, 80)) for context in (1000, 8192, 32768)
      for cache, sequences in (("f16", 1),)),
    *(("8b", (3, 4), 4096, cache, 2) for cache in ("int8", "int4")),
    *(("70b", limits, 8192, "f16", 1) for limits in ((80,), (30, 24), (10, 12))),
    *(("8x7b", limits, 8192, "f16", 1) for limits in ((40,), (16, 14), (6, 9))),
    *(("predicting", limits, 8192, "f16", 1) for limits in ((80,), (36, 40), (12, 16))),
]  # fmt: skip


@pytest.fixture(scope="module")
def addresses() -> Iterator[list[str]]:
    """Start two servers of devices."""
    with rpc_servers([1, 1]) as found:
        yield found


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write the headers of the models; nothing reads a weight."""
    folder = tmp_path_factory.mktemp("models")
    return {name: write_model(folder / f"{name}.gguf", shape, is_hollow=True) for name, shape in MODELS.items()}


@pytest.mark.parametrize(("model", "limits", "context", "cache", "sequences"), CASES)
def test_buffers_are_as_predicted(
    model: str, limits: tuple[float, ...], context: int, cache: str, sequences: int,
    models: dict[str, Path], addresses: list[str], tmp_path: Path,
) -> None:  # fmt: skip
    """Within 5 % or 32 MiB, each of weights, cache and compute buffer; of the host's weights the program tells none."""
    (tmp_path / "p.toml").write_text(platform_text([int(each * GIB) for each in limits], addresses))
    asked = ("--context", str(context), "--cache-precision", cache, "--sequences", str(sequences))
    answer = placekit(tmp_path, "llm", models[model], "--platform", "p.toml", "--for", "llama.cpp", *asked)
    _, *arguments = shlex.split(answer["launch"][-1])
    arguments.insert(0, arguments.pop(arguments.index("--rpc") + 1) if "--rpc" in arguments else addresses[0])
    if "--rpc" in arguments:
        arguments.remove("--rpc")
    order = arguments[0].split(",")
    told = run("llama-fit-params", "--rpc", *arguments, "--fit-print", "on")
    found = {name: tuple(map(float, sizes)) for name, *sizes in map(str.split, told.splitlines())}
    seen = 0
    for each in answer["serving"]["memory"]:
        name = "Host" if each["device"] == "CPU" else f"RPC{order.index(each['device'][4:-1])}"
        predicted = (each["weight_bytes"], each["cache_bytes"], each["activation_bytes"])
        for what, mine, theirs in zip(("weights", "cache", "compute"), predicted, found[name], strict=True):
            if (name, what) != ("Host", "weights"):
                close = pytest.approx(theirs, rel=0.05, abs=32)
                assert mine / MIB == close, f"{what} of {name}: {mine / MIB:.1f}, {theirs} in {told}"
                seen += 1
    assert seen >= 2
