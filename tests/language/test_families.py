"""Families of models by the fields of their configurations, and the published models: as transformers builds them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import placekit as pk
from placekit.language.config import from_config
from placekit.language.config.families import FAMILIES, outlined
from placekit.language.config.published import published, published_name
from placekit.language.description import ModelDescription
from placekit.language.read import called, read_description
from placekit.model.errors import PlacekitError

CONFIGS = Path(__file__).parent / "configs"
SMALL: dict[str, dict[str, Any]] = {
    "gemma2": {"architectures": ["Gemma2ForCausalLM"], "sliding_window": 128},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": True, "sliding_window": 64,
              "max_window_layers": 2},
    "llama": {"architectures": ["LlamaForCausalLM"], "attention_bias": True, "mlp_bias": True,
              "tie_word_embeddings": True},
}  # fmt: skip
SHAPE = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 100, "pad_token_id": 0}  # fmt: skip
BILLIONS = {
    "qwen3-0.6b": 0.596, "qwen3-1.7b": 1.721, "qwen3-4b": 4.022, "qwen3-8b": 8.191, "qwen3-14b": 14.768,
    "qwen3-32b": 32.762, "qwen3-30b-a3b": 30.532, "qwen3-235b-a22b": 235.094, "qwen3-coder-30b-a3b": 30.532,
    "qwen3-coder-480b-a35b": 480.155, "qwen3-next-80b-a3b": 79.7, "qwen2.5-7b": 7.616, "qwen2.5-14b": 14.770,
    "qwen2.5-32b": 32.764, "qwen2.5-72b": 72.706, "gpt-oss-20b": 20.915, "gpt-oss-120b": 116.829,
    "llama-3.1-8b": 8.030, "llama-3.1-70b": 70.554, "llama-3.1-405b": 405.853, "llama-3.2-1b": 1.236,
    "llama-3.2-3b": 3.213, "llama-3.3-70b": 70.554, "deepseek-v3": 671.026, "deepseek-r1": 671.026,
    "gemma-3-1b": 1.000, "gemma-3-4b": 3.880, "gemma-3-12b": 11.766, "gemma-3-27b": 27.009, "glm-4.5": 352.8,
    "glm-4.5-air": 106.85, "glm-4.6": 352.8, "mistral-7b-v0.3": 7.248, "mistral-nemo-12b": 12.248,
    "mistral-small-3": 23.572, "mistral-small-3.1": 23.572, "mistral-small-3.2": 23.572, "mistral-large-2": 122.610,
    "mixtral-8x22b": 140.63, "phi-4": 14.660, "phi-4-mini": 3.836,
}  # fmt: skip
"""Parameters of the published weights (text alone, without blocks of multi-token prediction)."""


def both(values: dict[str, Any]) -> tuple[ModelDescription, ModelDescription]:
    """Return the descriptions by fields and by the model class."""
    path, model = Path("m.json"), outlined(values)
    assert model is not None
    mine = from_config._describe(path, values, None, "m", None, (model, model.config))
    return mine, from_config._describe(path, values, None, "m", None, from_config._built(path, values))


FIRST = {str(published()[name]["model_type"]): name for name in reversed(list(published()))}


@pytest.mark.parametrize("kind", [each.replace("-", "_") for each in FAMILIES])
def test_a_family_has_the_modules_of_its_class(kind: str) -> None:
    """Parts, edges, sizes, caches, windows, tied weights, quantised ones and limits are equal."""
    pytest.importorskip("transformers", minversion="5")
    values = dict(published()[FIRST[kind]], num_hidden_layers=8) if kind in FIRST else {}
    if kind in SMALL:
        values = {"model_type": kind, **SHAPE, **SMALL[kind]}
    mine, theirs = both(values)
    assert mine == theirs


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted(path.name for path in CONFIGS.glob("*.json")))
def test_whole_configurations_are_equal(file: str) -> None:
    """As they are published, with all blocks, where the family is known."""
    values = json.loads((CONFIGS / file).read_text())
    if outlined(values) is None:
        pytest.skip("no known family")
    mine, theirs = both(values)
    assert mine == theirs


@pytest.mark.parametrize("name", BILLIONS)
def test_published_models_have_their_parameters(name: str) -> None:
    """Each name of the table, also in the spelling of its repository."""
    model = read_description(name)
    assert model.parameters / 1e9 == pytest.approx(BILLIONS[name], rel=2e-3)
    assert model.trained_tokens == published()[name]["max_position_embeddings"]
    repository = str(published()[name]["_name_or_path"])
    assert published_name(repository) == called(repository) == called(name) == name


def test_every_published_model_is_checked() -> None:
    """The table of this test is that of the names."""
    assert set(BILLIONS) == set(published())


def test_names_are_served_by_their_repository() -> None:
    """VLLM takes the repository, llama.cpp a file that is called as it; numbers do not go with a published model."""
    card = pk.Platform.of(h100=1, memory_bytes={"h100": 80e9}, links={"h100": pk.Link(2e-5, 5e10)})
    lines = [pk.plan_serving("Qwen3-8B-Instruct", card, each).launch[0] for each in ("vllm", "llama.cpp")]
    assert "vllm serve Qwen/Qwen3-8B " in lines[0]
    assert "-m Qwen3-8B.gguf " in lines[1]
    with pytest.raises(PlacekitError, match="--layers goes with numbers of a model; qwen3-8b is"):
        read_description("qwen3-8b", {"layers": 3})
    with pytest.raises(PlacekitError, match=r"no model 'qwen3-9b'.*did you mean 'qwen3-"):
        read_description("qwen3-9b")


def test_fields_that_lack_a_part_are_left_to_the_model_class() -> None:
    """Which has values of its own for them, or says what is wrong."""
    values = dict(published()["qwen3-8b"])
    assert outlined(values) is not None
    assert outlined({name: value for name, value in values.items() if name != "intermediate_size"}) is None
    assert outlined(values | {"hidden_size": "big"}) is None
    assert outlined(values | {"num_hidden_layers": 10**9}) is None


def test_a_configuration_of_a_known_family_needs_no_heavy_package(tmp_path: Path) -> None:
    """Neither transformers nor torch can be imported."""
    (tmp_path / "config.json").write_text(json.dumps(published()["deepseek-v3"]))
    code = f"""
import sys
sys.modules.update(dict.fromkeys(("torch", "transformers", "gguf")))
from placekit.language.read import read_description
print(read_description({str(tmp_path)!r}).parameters)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert int(done.stdout) == pytest.approx(671.026e9, rel=1e-5)
