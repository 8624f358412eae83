"""The split that llama.cpp chooses by itself, as predicted and as ``llama-fit-params`` of the real program says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from llama_models import Shape, write_model
from llama_plans import platform_text
from llama_programs import needs_llama, rpc_servers, run

from placekit.io.files.platform_toml import read_platform
from placekit.language.compared import own_choice
from placekit.language.planning.planner import Planner
from placekit.language.planning.question import GivenModel, Search, Wishes
from placekit.language.report import ServingReport
from placekit.language.runtimes import get_runtime
from placekit.language.runtimes.record import Runtime
from placekit.language.serving import Serving
from placekit.language.task import LanguageTask, TaskForm
from placekit.model.blocks.block_paths import block_numbers
from placekit.model.placement import Placement
from placekit.objectives import SerialLatency

pytestmark = [pytest.mark.slow, needs_llama]

DENSE = Shape(blocks=16, hidden=1024, ffn=2816, vocab=2048, heads=8, kv_heads=4)
MIXTURES = [
    Shape(blocks=12, hidden=512, ffn=1024, vocab=2048, heads=8, kv_heads=4, experts=16, experts_per_token=2),
    Shape(blocks=16, hidden=1024, ffn=512, vocab=4096, heads=8, kv_heads=4, experts=32, experts_per_token=4),
]
SHARES = [(0.5, 0.3), (0.3, 0.6), (0.3, 0.3), (0.2, 0.2), (0.12, 0.12)]
MIB, SPARE_MIB, CONTEXT, CHUNK = 2**20, 12, 512, 64


def chosen_there(model: Path, addresses: list[str], limits: list[int]) -> tuple[list[int], int]:
    """Return the layers of every server, the output included, and the blocks with experts on the host."""
    servers = ("--rpc", ",".join(addresses))
    free = re.findall(r"RPC\d: .*, (\d+) MiB free", run("llama-bench", *servers, "--list-devices"))
    targets = ",".join(str(int(each) - limit // MIB) for each, limit in zip(free, limits, strict=True))
    wanted = ("-m", str(model), "-c", str(CONTEXT), "-ub", str(CHUNK), "--fit-target", targets)
    words = shlex.split(run("llama-fit-params", *servers, "--device", "RPC0,RPC1", *wanted))
    told = dict(zip(words[::2], words[1::2], strict=False))
    return [int(each) for each in told["-ts"].split(",")], told.get("-ot", "").count("=CPU")


def chosen_here(model: Path, addresses: list[str], limits: list[int], monkeypatch: pytest.MonkeyPatch) -> object:
    """Return the same as predicted."""
    runtime, seen = get_runtime("llama.cpp"), []
    report_of = own_choice._report

    def reported(
        task: LanguageTask, hosted: np.ndarray, runtime: Runtime, placement: Placement
    ) -> ServingReport | None:
        report = report_of(task, hosted, runtime, placement)
        rank = block_numbers(task.problem.graph)
        homes = [int(placement.device_of_op[rank == each][0]) for each in range(int(rank.max()) + 1)]
        counts = [homes.count(at) + (at == placement.device_of_op[-1]) for at in (1, 2)]
        seen.append((report, (counts, int(hosted.sum()))))
        return report

    monkeypatch.setattr(own_choice, "FIT_TARGET_BYTES", 0.0)
    monkeypatch.setattr(own_choice, "_report", reported)
    file = model.with_suffix(".toml")
    file.write_text(platform_text(limits, addresses))
    wishes = Wishes(serving=Serving(64, 32, CONTEXT, chunk=CHUNK), headroom="0%")
    planner = Planner.of(GivenModel.read(str(model)), read_platform(file), runtime, wishes, Search())
    served, devices = wishes.served(runtime), runtime.devices(planner.usable)
    form = TaskForm(SerialLatency())
    assert own_choice.fitted(lambda each: planner.made(runtime, served, each, form=form), devices, runtime) is not None
    return next(found for report, found in reversed(seen) if report is not None)


@pytest.mark.parametrize("shares", SHARES, ids=str)
@pytest.mark.parametrize("shape", [DENSE, *MIXTURES], ids=["dense", "mixture", "wide mixture"])
def test_it_is_what_the_program_chooses(
    shape: Shape, shares: tuple[float, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dense models to the block; of mixtures as many blocks with experts on the host, or one less."""
    model = write_model(tmp_path / "model.gguf", shape, is_hollow=True)
    limits = [int(share * model.stat().st_size) + SPARE_MIB * MIB for share in shares]
    with rpc_servers((1, 1)) as addresses:
        counts, hosted = chosen_there(model, addresses, limits)
        mine = chosen_here(model, addresses, limits, monkeypatch)
    assert isinstance(mine, tuple)
    if not shape.experts:
        assert mine == (counts, 0)
    else:
        assert 0 <= hosted - mine[1] <= 1
        assert max(abs(one - other) for one, other in zip(mine[0], counts, strict=True)) <= 2
