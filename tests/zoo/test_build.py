"""Zoo models: built, read back and run."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placekit.cost_models.openvino.devices import shared_core
from placekit.model.errors import InvalidProblemError
from placekit.zoo import ZOO, ZooModel, build

pytestmark = [
    pytest.mark.zoo,
    pytest.mark.xdist_group("zoo"),  # one process builds the tiny models, once
    # importing them here would slow the collection of all tests
    pytest.mark.skipif(not (find_spec("torch") and find_spec("transformers")), reason="the zoo extra is not installed"),
]
ov = pytest.importorskip("openvino")

Tiny = Callable[[str], ZooModel]
FEW = pytest.mark.parametrize(
    "name", [name if name in ("resnet50", "decoder") else pytest.param(name, marks=pytest.mark.slow) for name in ZOO]
)
"""All models in `make test-slow`, an image and a language model otherwise."""


def outputs(model: ZooModel, seed: int, **sizes: int) -> np.ndarray[Any, Any]:
    """Run the model in f32 on random inputs and return its first output; `sizes` settle unknown dimensions."""
    rng = np.random.default_rng(seed)
    compiled = shared_core().compile_model(model.source.load(), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    feeds = []
    for (name, dims), port in zip(ZOO[model.name].inputs.items(), compiled.inputs, strict=True):
        shape = [
            sizes.get(str(dim), value) if value == -1 else value
            for dim, value in zip(dims, next(i.shape for i in model.source.inputs if i.name == name), strict=True)
        ]
        assert name in port.get_names()
        if name == "attention_mask":
            feeds.append(np.ones(shape, np.int64))
        elif name == "input_ids":
            feeds.append(rng.integers(0, int(str(model.values["vocabulary"])), shape))
        else:
            feeds.append(rng.standard_normal(shape).astype(np.float32))
    result: np.ndarray[Any, Any] = compiled(feeds)[0]
    return result


@pytest.mark.slow
@FEW
def test_outputs_depend_on_inputs(name: str, tiny: Tiny) -> None:
    """Two inputs give outputs that differ by a good part of the outputs' own spread, at a sane scale."""
    first, second = outputs(tiny(name), 1), outputs(tiny(name), 2)
    assert np.isfinite(first).all()
    assert 0.05 < first.std() < 50
    assert (first - second).std() > 0.2 * first.std()


@pytest.mark.slow
@FEW
def test_model_is_static_and_has_the_inputs_of_the_table(name: str, tiny: Tiny) -> None:
    """The file's inputs are those that the table promises, with every dimension known."""
    model = tiny(name)
    model.source.require_static()
    promised = ZOO[name].input_shapes(model.values)
    assert {each.name: each.shape for each in model.source.inputs} == promised
    facts = model.facts()
    assert facts["nodes"] > facts["ops"] > 10
    assert facts["edges"] > facts["op_edges"]
    assert facts["flops"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet50", "gpt2"])
def test_same_seed_same_bytes_and_the_global_seed_untouched(name: str, tiny: Tiny, tmp_path: Path) -> None:
    """A second build gives the same two files and leaves torch's generator as it was; another seed, other weights."""
    import torch

    model = tiny(name)
    params: dict[str, Any] = dict(model.values)
    state = torch.random.get_rng_state()
    again = build(name, tmp_path / "again.xml", seed=0, **params)
    assert torch.equal(torch.random.get_rng_state(), state)
    for suffix in (".bin", ".xml"):
        assert again.source.path.with_suffix(suffix).read_bytes() == model.source.path.with_suffix(suffix).read_bytes()
    other = build(name, tmp_path / "other.xml", seed=1, **params)
    assert other.source.graph.op_names == model.source.graph.op_names
    assert other.source.content_hash != model.source.content_hash
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.bin", "again.xml", "other.bin", "other.xml"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert_base", "decoder", "mobilenet_v2"])
def test_dynamic_model_runs_at_other_sizes(name: str, tiny: Tiny, tmp_path: Path) -> None:
    """Built with open sizes, a model takes another number of samples and tokens than it was traced with."""
    params: dict[str, Any] = dict(tiny(name).values)
    model = build(name, tmp_path / "model.xml", dynamic=True, **params)
    assert model.source.dynamic_inputs
    result = outputs(model, 1, batch=3, sequence=5)
    sizes = {"bert_base": (3, 5, params.get("width")), "decoder": (3, 5, params.get("vocabulary"))}
    assert result.shape == sizes.get(name, (3, params.get("classes")))


def test_rotary_positions_need_heads_of_even_size(tmp_path: Path) -> None:
    """A decoder whose heads cannot be rotated, or shared, is refused by name."""
    with pytest.raises(InvalidProblemError, match="width / heads is 3; rotary positions need it even"):
        build("decoder", tmp_path / "model.xml", width=12, heads=4)
    with pytest.raises(InvalidProblemError, match="kv_heads is 3; it must divide heads, which is 4"):
        build("decoder", tmp_path / "model.xml", width=16, heads=4, kv_heads=3)


@pytest.mark.slow
def test_decoder_of_experts(tiny: Tiny, tmp_path: Path) -> None:
    """Eight experts of three products in every layer, and a router."""
    params: dict[str, Any] = dict(tiny("decoder").values)
    mixed = build("decoder", tmp_path / "mixed.xml", **params | {"experts": 8})
    products = [list(model.source.graph.op_types).count("MatMul") for model in (tiny("decoder"), mixed)]
    assert products[1] - products[0] == params["layers"] * (8 * 3 + 1 - 3)
    assert np.isfinite(outputs(mixed, 1, batch=1, sequence=params["sequence"])).all()
    with pytest.raises(InvalidProblemError, match="experts_per_token is 3; it must be at most experts, which is 2"):
        build("decoder", tmp_path / "m.xml", **params | {"experts": 2, "experts_per_token": 3})


def test_experts_that_a_token_does_not_count_add_nothing() -> None:
    """The mixture is the sum over the best experts of a token, weighted by the softmax of their scores."""
    import torch

    from placekit.zoo.language import Mixture

    torch.manual_seed(0)
    mixture, x = Mixture(8, 16, 4, 2), torch.randn(5, 8)
    for token, made in zip(x, mixture(x), strict=True):
        best, chosen = mixture.gate(token).topk(2)
        expected = torch.zeros(8)
        for share, number in zip(best.softmax(-1), chosen.tolist(), strict=True):
            expected += share * mixture.experts[number](token)
        torch.testing.assert_close(made, expected)


@pytest.mark.slow
def test_resnet50_graph_is_that_of_the_hsdag_paper(tmp_path: Path) -> None:
    """With f16 constants the graph has the 396 nodes and 411 edges that the HSDAG paper reports."""
    model = build("resnet50", tmp_path / "m.xml", half=True, width=4, image_size=32, classes=10)
    assert (model.facts()["nodes"], model.facts()["edges"]) == (396, 411)


@pytest.mark.slow
def test_inception_v3_graph_is_that_of_the_hsdag_paper(tmp_path: Path) -> None:
    """The f32 graph plus one Convert for each of its 196 constants has the paper's 728 nodes and 764 edges."""
    params: dict[str, Any] = {"width_multiplier": 0.0625, "image_size": 75, "classes": 10, "transform_input": True}
    model = build("inception_v3", tmp_path / "m.xml", **params)
    floats = sum(
        node.get_type_name() == "Constant" and node.get_element_type() == ov.Type.f32
        for node in model.source.load().get_ops()
    )
    assert floats == 196
    assert (model.facts()["nodes"] + floats, model.facts()["edges"] + floats) == (728, 764)


@pytest.mark.parametrize(
    ("name", "gflop", "tolerance"),
    [("resnet50", 8.19, 0.01), ("inception_v3", 11.46, 0.01), ("bert_base", 22.39, 0.01)],
)
@pytest.mark.slow
def test_full_size_flops_are_the_known_ones(name: str, gflop: float, tolerance: float, tmp_path: Path) -> None:
    """At full size the products and convolutions cost what the literature says."""
    graph = build(name, tmp_path / "model.xml").source.graph
    products = {"Convolution", "GroupConvolution", "MatMul", "ScaledDotProductAttention"}
    counted = sum(f for f, kind in zip(graph.op_flops, graph.op_types, strict=True) if kind in products)
    assert counted / 1e9 == pytest.approx(gflop, rel=tolerance)
