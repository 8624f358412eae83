"""Random placements of real models run, and every tensor between stages is what the whole model computes."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pipelines import corrupt_stage
from random_plans import KINDS, LIGHT_MODELS, SMALL, light_model, random_plan

from placekit.io.models.model import ModelSource
from placekit.runtime.output_check import check_placement
from placekit.runtime.stages.plans import compile_plan
from placekit.runtime.stages.stage_plan import StagePlan
from placekit.zoo import ZOO, build

TINY: dict[str, dict[str, Any]] = {
    "resnet50": {"width": 4, "image_size": 32, "depths": (1, 1, 1, 1), "classes": 10},
    "bert_base": {"layers": 1, "width": 16, "heads": 2, "sequence": 8, "vocabulary": 50},
    "decoder": {"layers": 1, "width": 16, "heads": 4, "kv_heads": 2, "sequence": 8, "vocabulary": 50},
}

needs_onnx = pytest.mark.skipif(find_spec("onnx") is None, reason="the light models come with onnx")


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelSource]:
    """Return tiny variants of the zoo's models."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("models")
    return {name: build(name, folder / f"{name}.xml", **values).source for name, values in TINY.items()}


NUM_CORRUPTED = 2
"""Placements of each kind that are corrupted, too."""


def assert_right(source: ModelSource, kind: int | str, seeds: range) -> None:
    """Assert that nothing crashes, all is equal, and what is corrupted is blamed."""
    for seed in seeds:
        plan = random_plan(source, kind, seed)
        check = check_placement(compile_plan(plan), seed=seed)
        assert check.first_mismatch is None
        assert len(check.cuts) + len(check.outputs) > 0
        if seed < NUM_CORRUPTED:
            assert_corruption_is_seen(plan, seed)


def assert_corruption_is_seen(plan: StagePlan, seed: int) -> None:
    """Corrupt a random stage, and assert that the check blames it."""
    has_real = [
        any(port.get_element_type().get_type_name() == "f32" for port in stage.model.outputs) for stage in plan.stages
    ]
    chosen = int(np.random.default_rng(seed).choice(np.flatnonzero(has_real)))
    found = check_placement(compile_plan(corrupt_stage(plan, chosen)), seed=seed).first_mismatch
    assert found is not None
    assert found.stage == plan.stages[chosen].name


@pytest.mark.slow
@pytest.mark.zoo
@pytest.mark.parametrize(
    "kind", [KINDS[1], *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS if kind != KINDS[1])]
)
@pytest.mark.parametrize("name", TINY)
def test_tiny_models_compute_the_same_however_they_are_placed(
    models: dict[str, ModelSource], name: str, kind: int | str
) -> None:
    """One placement of each kind, two with a single cut, on two to four devices."""
    assert_right(models[name], kind, range(2 if kind == 1 else 1))


@pytest.mark.slow
@pytest.mark.zoo
def test_placements_have_as_many_cuts_as_asked_for(models: dict[str, ModelSource]) -> None:
    """A cut is a change of device along a topological order."""
    graph = models["bert_base"].graph
    for kind in (1, 3, 10, 30):
        plan = random_plan(models["bert_base"], kind, seed=kind)
        device = {op: stage.device.name for stage in plan.stages for op in stage.op_names}
        along = [device[graph.op_names[op]] for op in graph.order.tolist() if graph.op_names[op] in device]
        changes = int(np.sum(np.array(along[:-1]) != np.array(along[1:])))
        # a cut can fall on one of the model's ends, which are in no stage
        assert kind - 4 <= changes <= kind
        assert 1 <= len(plan.devices) <= 4


@pytest.mark.slow
@needs_onnx
def test_light_models_are_compared_with_weights_that_differ(tmp_path: Path) -> None:
    """Their own are constant, and all elements of a tensor would be equal."""
    assert_right(light_model("squeezenet", tmp_path), 3, range(1))


@pytest.mark.slow
@pytest.mark.zoo
@pytest.mark.parametrize("name", ZOO)
def test_zoo_models_compute_the_same_however_they_are_placed(name: str, tmp_path: Path) -> None:
    """Five placements of each kind."""
    source = build(name, tmp_path / f"{name}.xml", **SMALL[name]).source
    for kind in KINDS:
        assert_right(source, kind, range(5))


@pytest.mark.slow
@pytest.mark.timeout(7200)
@needs_onnx
@pytest.mark.parametrize("name", LIGHT_MODELS)
def test_light_models_compute_the_same_however_they_are_placed(name: str, tmp_path: Path) -> None:
    """Five placements of each kind, weights randomised."""
    source = light_model(name, tmp_path)
    for kind in KINDS:
        assert_right(source, kind, range(5))
