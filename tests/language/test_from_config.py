"""Models of ten families from their config.json: counts as published, and what is refused."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import placekit as pk
from placekit.language.config.from_config import read_config
from placekit.language.description import ModelDescription
from placekit.language.serving import Serving
from placekit.language.task import TaskForm, decoder_task
from placekit.model.errors import InvalidFileError, UnsupportedProblemError

pytest.importorskip("transformers", minversion="5")

CONFIGS = Path(__file__).parent / "configs"


@dataclass(frozen=True)
class Published:
    """Billions of parameters and of active ones, with the embedding table or without as the publisher counts them."""

    total: float
    active: float
    cache: int
    """Numbers per token: 2 x key-value heads x head size x blocks with attention, or latent size x blocks."""
    is_without_table: bool = False
    state: float = 0.0
    """Bytes per sequence."""


TABLE = {
    "llama-3.1-8b": Published(8.030, 8.030, 2 * 8 * 128 * 32),
    "qwen2.5-7b": Published(7.616, 7.616, 2 * 4 * 128 * 28),
    "qwen3-30b-a3b": Published(30.53, 3.35, 2 * 4 * 128 * 48),
    "deepseek-v3": Published(671.0, 37.55, (512 + 64) * 61),
    "gpt-oss-120b": Published(116.83, 5.13, 2 * 8 * 64 * 36, is_without_table=True),
    "gemma-3-27b": Published(27.43, 27.43, 2 * 16 * 128 * 62),
    "phi-3-mini": Published(3.821, 3.821, 2 * 32 * 96 * 32),
    "mixtral-8x7b": Published(46.70, 12.88, 2 * 8 * 128 * 32),
    "gpt2": Published(0.12444, 0.12444, 2 * 768 * 12),
    "jamba-mini": Published(51.57, 12.11, 2 * 8 * 128 * 4, state=28 * 8192 * (16 * 4 + 3 * 2)),
}


@pytest.fixture(scope="module")
def models() -> dict[str, ModelDescription]:
    """Return the description of every model of the table."""
    return {name: read_config(CONFIGS / f"{name}.json") for name in TABLE}


@pytest.mark.parametrize("name", TABLE)
def test_counts_are_the_published_ones(models: dict[str, ModelDescription], name: str) -> None:
    """Parameters within 0.5 %, numbers kept per token exactly."""
    model, known = models[name], TABLE[name]
    assert model.parameters / 1e9 == pytest.approx(known.total, rel=5e-3)
    active = model.active_parameters - (model.lookup_parameters if known.is_without_table else 0)
    assert active / 1e9 == pytest.approx(known.active, rel=5e-3)
    assert model.cache_values == known.cache
    assert model.state_bytes == known.state
    read = [part for part in model.parts if part.is_lookup]
    assert all(part.flops == 0 and part.width < 10_000 for part in read), "a lookup is a row, not a product"
    towers = sum(part.parameters for part in model.parts if part.is_tower)
    products = model.active_parameters - model.lookup_parameters - towers
    assert sum(part.flops for part in model.parts) == pytest.approx(2 * products, rel=5e-3)


def test_kinds_of_blocks(models: dict[str, ModelDescription]) -> None:
    """Leading dense layers, shared experts, windows and states are told apart."""
    dense, mixture = models["deepseek-v3"].kinds().items()
    assert dense == ("latent attention + dense feed-forward", 3)
    assert mixture == ("latent attention + 256 experts, 8 active and shared ones", 58)
    windows = [block.window for block in models["gemma-3-27b"].blocks]
    assert (windows.count(1024), windows.count(None)) == (52, 10)
    assert [block.state_bytes > 0 for block in models["jamba-mini"].blocks].count(True) == 28
    assert models["gpt2"].blocks[0].path == "transformer.h.0"
    assert models["deepseek-v3"].speculative[0].path == "model.layers.61"


def test_windows_limit_the_cache(models: dict[str, ModelDescription]) -> None:
    """Gemma's local blocks keep 1,024 tokens of 32,768."""
    of_block = 2 * 16 * 128 * 2
    assert models["gemma-3-27b"].cache_bytes(32768) == of_block * (52 * 1024 + 10 * 32768)


def test_blocks_on_the_cache_of_earlier_ones(tmp_path: Path) -> None:
    """The last 15 blocks of Gemma 3n have no keys and values, and see those of others."""
    (tmp_path / "config.json").write_text('{"model_type": "gemma3n_text"}')
    model = read_config(tmp_path)
    assert [block.cache_values for block in model.blocks] == [2 * 2 * 256] * 20 + [0] * 15
    assert all(sum(part.pair_flops[1] for part in block.parts) == 4 * 8 * 256 for block in model.blocks)


def test_stored_precisions(models: dict[str, ModelDescription]) -> None:
    """DeepSeek-V3 is stored in 8 bits, gpt-oss's experts in 4 bits with scales: 65.2 GB."""
    assert models["deepseek-v3"].weight_bytes / 671e9 == pytest.approx(1.0, rel=0.01)
    assert models["gpt-oss-120b"].weight_bytes == pytest.approx(65.2e9, rel=0.01)


def test_tied_heads_count_once_per_device(models: dict[str, ModelDescription]) -> None:
    """One card holds the table once; a card that holds only the head holds all of it."""
    model = models["gpt2"]
    platform = pk.Platform.of(t4=1, memory_bytes={"t4": 10 * 2.0**30})
    task = decoder_task(model, Serving(8, 8), platform, lambda graph: pk.Analytic().cost_table(graph, platform))
    result = pk.solve(task.problem)
    assert result.placement is not None
    assert (
        pk.serving_report(task, result.placement).memory[0].weight_bytes == model.weight_bytes == 2 * model.parameters
    )


def test_graph_is_solved(models: dict[str, ModelDescription]) -> None:
    """Blocks of every kind are placed whole; groups of four stay together."""
    platform = pk.Platform.of(h100=2, l4=1)
    for name in ("deepseek-v3", "jamba-mini", "gemma-3-27b"):
        task = decoder_task(
            models[name],
            Serving(64, 16),
            platform,
            lambda graph: pk.Analytic().cost_table(graph, platform),
            form=TaskForm(together=4),
        )
        problem = task.problem
        assert problem.num_classes <= -(-len(models[name].blocks) // 4) + 8
        result = pk.solve(problem, stop=pk.MaxRuntime(20))
        assert result.status is pk.Status.OPTIMAL


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no JSON"),
        ("[]", "no JSON object"),
        ("{}", "no model_type"),
        ('{"_class_name": "UNet2DConditionModel"}', r"configuration of a diffusion model \(UNet2DConditionModel\)"),
        ('{"model_type": "bert", "architectures": ["BertForMaskedLM"]}', "BertForMaskedLM is an encoder"),
        ('{"model_type": "bert", "architectures": ["BertModel"]}', "BertModel is an encoder"),
        ('{"model_type": "t5"}', "t5 is an encoder with a decoder"),
        ('{"model_type": "vit", "architectures": ["ViTForImageClassification"]}', "is an encoder"),
        ('{"model_type": "llama", "hidden_size": "big"}', "transformers cannot build 'llama'"),
        ('{"model_type": "llama", "num_hidden_layers": 1000000}', "num_hidden_layers is 1000000; it must be"),
    ],
)
def test_what_is_no_language_model_is_named(tmp_path: Path, text: str, message: str) -> None:
    """One line with the file and what is wrong."""
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(InvalidFileError, match=message) as raised:
        read_config(path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_folder_of_a_diffusion_model_is_named(tmp_path: Path) -> None:
    """Its file is called otherwise."""
    (tmp_path / "model_index.json").write_text('{"_class_name": "FluxPipeline"}')
    with pytest.raises(InvalidFileError, match=r"model_index\.json: .* diffusion model \(FluxPipeline\)"):
        read_config(tmp_path)


def test_what_is_not_understood_is_named(tmp_path: Path) -> None:
    """A family that is unknown, and a module that keeps something unknown, with its path."""
    values: dict[str, Any] = {"model_type": "rwkv", "num_hidden_layers": 2}
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(UnsupportedProblemError, match=r"rwkv\.blocks\.0\.attention \(RwkvSelfAttention\): it is not"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama99"}')
    with pytest.raises(UnsupportedProblemError, match="does not know model_type 'llama99'"):
        read_config(tmp_path)
