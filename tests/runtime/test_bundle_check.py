"""Checks of what an export has written, before it takes its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as opset
from pipelines import alternating_plan, chain, placed_plan, random_plan

from placekit.exports.hetero_sidecar import check_sidecar, write_sidecar
from placekit.io.models.model import ModelSource
from placekit.model.errors import OutputMismatchError
from placekit.model.placement import Placement
from placekit.model.platform import Device, Platform
from placekit.runtime.bundles.bundle import MANIFEST, write_bundle
from placekit.runtime.bundles.bundle_check import check_bundle
from placekit.runtime.stages.plans import plan_stages
from placekit.runtime.stages.stage_plan import StagePlan

Saved = Callable[[ov.Model], ModelSource]


def swapped(plan: StagePlan, at: int) -> StagePlan:
    """Return a plan of which a stage computes something else."""
    stages = list(plan.stages)
    model = stages[at].model.clone()
    source = model.get_results()[0].input_value(0)
    model.get_results()[0].input(0).replace_source_output(opset.negative(opset.add(source, np.float32(1))).output(0))
    stages[at] = replace(stages[at], model=model)
    return replace(plan, stages=tuple(stages))


def test_a_bundle_is_run_before_it_is_there(saved: Saved, make_convnet: Callable[[], ov.Model], tmp_path: Path) -> None:
    """Every stage, with progress; the devices of the bundle need not be here."""
    plan = random_plan(saved(make_convnet()), seed=5, devices=3)
    elsewhere = tuple(
        replace(each, members=tuple(Device(one.name, "npu", openvino="NPU") for one in each.members))
        for each in plan.stages
    )
    steps: list[tuple[int, int]] = []
    told: list[str] = []
    write_bundle(
        replace(plan, stages=elsewhere),
        tmp_path / "b",
        check=lambda new: told.append(check_bundle(plan, new, lambda done, total, _: steps.append((done, total)))),
    )
    assert told == [
        f"read back, one sample run through {len(plan.stages)} stages on the CPU: outputs as the whole model's"
    ]
    assert steps[-1] == (len(plan.stages) + 1, len(plan.stages) + 1)


def test_a_bundle_that_computes_something_else_is_not_written(saved: Saved, tmp_path: Path) -> None:
    """The stage is named, the bundle that was there stays, and nothing else does."""
    plan = alternating_plan(saved(chain([2, 8])))
    write_bundle(plan, tmp_path / "b")
    before = (tmp_path / "b" / MANIFEST).read_bytes()
    left = sorted(tmp_path.iterdir())
    with pytest.raises(
        OutputMismatchError, match=r"stage '1:cpu1': its output '\w+' differs from the whole model's by"
    ):
        write_bundle(swapped(plan, 1), tmp_path / "b", check=lambda new: check_bundle(plan, new))
    assert (tmp_path / "b" / MANIFEST).read_bytes() == before
    assert sorted(tmp_path.iterdir()) == left


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_an_export_that_is_interrupted_leaves_what_was_there(
    saved: Saved, tmp_path: Path, error: BaseException
) -> None:
    """Ctrl-C or a full disk while a bundle or affinities are written."""
    source = saved(chain([2, 8]))
    plan = alternating_plan(source)
    cpu = Platform((Device("CPU", "cpu", is_host=True, openvino="CPU"),))
    placement = Placement(source.graph.op_names, cpu.device_names, np.zeros(source.graph.num_ops, dtype=np.int64))
    write_bundle(plan, tmp_path / "b")
    write_sidecar(source, placement, cpu, tmp_path / "a.json")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def stop(*_: Path) -> None:
        raise error

    for write in (
        lambda: write_bundle(plan, tmp_path / "b", check=stop),
        lambda: write_sidecar(source, placement, cpu, tmp_path / "a.json", check=stop),
    ):
        with pytest.raises(BaseException, match=r"^$|No space left on device"):
            write()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_what_cannot_be_run_is_compiled(saved: Saved, tmp_path: Path) -> None:
    """Unknown dimensions have no seeded sample; numbers of chance are no difference."""
    told: list[str] = []
    plan = alternating_plan(saved(chain(["?", 8])))
    write_bundle(plan, tmp_path / "b", check=lambda new: told.append(check_bundle(plan, new)))
    assert "stages compiled on the CPU; not run: input 'x' has type f32 and shape [?,8]" in told[0]
    x = opset.parameter([64], ov.Type.f32, name="x")
    chance = opset.random_uniform([64], np.float32(0), np.float32(1), "f32", 0, 0, name="chance")
    source = saved(ov.Model([opset.result(opset.exp(opset.add(x, chance, name="sum"), name="e"))], [x], "dice"))
    plan = placed_plan(source, [at % 2 for at in range(source.graph.num_ops)])
    write_bundle(plan, tmp_path / "b", check=lambda new: told.append(check_bundle(plan, new)))
    assert told[1].startswith("read back, one sample run")


def test_affinities_are_loaded_by_their_script(saved: Saved, tmp_path: Path) -> None:
    """Before they are there; outputs are those of the model, and of another model are not."""
    source = saved(chain([2, 8]))
    cpu = Platform((Device("CPU", "cpu", is_host=True, openvino="CPU"),))
    placement = Placement(source.graph.op_names, cpu.device_names, np.zeros(source.graph.num_ops, dtype=np.int64))
    plan = plan_stages(source, placement, cpu)
    told: list[str] = []
    write_sidecar(
        source, placement, cpu, tmp_path / "a.json", check=lambda *files: told.append(check_sidecar(plan, *files))
    )
    assert told == ["script read back, one sample run on HETERO:CPU: outputs as the whole model's"]
    other = replace(plan, model=swapped(plan, 0).stages[0].model)
    with pytest.raises(OutputMismatchError, match="of HETERO:CPU differs from"):
        check_sidecar(other, tmp_path / "a.py", source.path)
