"""A package that adds a family of language models, installed as a stranger's would be."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "contributing" / "family.md").read_text()
CONFIG = {
    "model_type": "olmo2", "architectures": ["Olmo2ForCausalLM"], "hidden_size": 4096, "intermediate_size": 11008,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 100352,
    "max_position_embeddings": 4096, "pad_token_id": 0, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
"""Of OLMo-2-1124-7B."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the sample package installed."""
    folder = tmp_path_factory.mktemp("site")
    source, target = folder / "source", folder / "target"
    shutil.copytree(ROOT / "examples" / "family", source, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(target), str(source)], check=True, capture_output=True)
    return target


def told(code: str, site: Path, folder: Path) -> str:
    """Run Python with the package, and return what it prints."""
    (folder / "config.json").write_text(json.dumps(CONFIG))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_an_installed_family_is_read_without_its_model_class(site: Path, tmp_path: Path) -> None:
    """Torch and transformers cannot be imported, and a plan has a line."""
    code = """
import sys
sys.modules.update(dict.fromkeys(("torch", "transformers")))
import placekit as pk
card = pk.Platform.of(l4=1, memory_bytes={"l4": 24e9}, links={"l4": pk.Link(2e-5, 2e10)})
plan = pk.plan_serving("config.json", card, "vllm")
print(plan.to_dict()["model"]["parameters"], plan.context.limit, plan.launch[0].split(" --")[0])
"""
    parameters, limit, line = told(code, site, tmp_path).split(" ", 2)
    assert (int(parameters), int(limit)) == (7298617344, 4096)
    assert "vllm serve" in line


@pytest.mark.slow
def test_it_equals_the_model_class_of_transformers(site: Path, tmp_path: Path) -> None:
    """The whole description."""
    pytest.importorskip("transformers", minversion="5")
    code = """
import json
from pathlib import Path
from placekit.language.config import from_config
from placekit.language.config.families import outlined
path = Path("config.json")
values = json.loads(path.read_text())
model = outlined(values)
mine = from_config._describe(path, values, None, "m", None, (model, model.config))
print(mine == from_config._describe(path, values, None, "m", None, from_config._built(path, values)))
"""
    assert told(code, site, tmp_path) == "True"


def test_the_page_is_short_and_shows_the_package() -> None:
    """At most 40 lines, and its code is that of the example."""
    assert len(PAGE.splitlines()) <= 40
    source = (ROOT / "examples" / "family" / "src" / "placekit_olmo.py").read_text()
    settings = (ROOT / "examples" / "family" / "pyproject.toml").read_text()
    (shown,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert 'OLMO2 = Family("olmo2", block, {"max_position_embeddings": 2048})' in shown
    assert all(line.strip() in source for line in shown.splitlines()[2:] if "attention(fields)" not in line)
    (entry,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert entry in settings
