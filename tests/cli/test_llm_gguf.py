"""``placekit llm`` on GGUF files: from a file to a plan, and to the line that starts llama.cpp."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

gguf = pytest.importorskip("gguf")

PC = """
[[device]]
name = "CPU"
kind = "cpu-8core-bf16"
host = true
memory = "64 GiB"

[[device]]
name = "GPU"
kind = "rtx4090"
"""


@pytest.fixture
def pc(tmp_path: Path) -> Path:
    """Return a platform file: a card and a CPU."""
    path = tmp_path / "pc.toml"
    path.write_text(PC)
    return path


def write(path: Path, more: dict[str, tuple[int, ...]] | None = None) -> None:
    """Write the header of a small model; `more` are further tensors."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_embedding_length(4096)
    writer.add_head_count(32)
    writer.add_head_count_kv(8)
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (4096, 32000), "output_norm": (4096,), "output": (4096, 32000)}
    for block in range(2):
        shapes |= {
            f"blk.{block}.{name}": shape
            for name, shape in {
                "attn_norm": (4096,), "attn_q": (4096, 4096), "attn_k": (4096, 1024), "attn_v": (4096, 1024),
                "attn_output": (4096, 4096), "ffn_norm": (4096,), "ffn_up": (4096, 14336), "ffn_down": (14336, 4096),
            }.items()
        }  # fmt: skip
    for name, shape in {**shapes, **(more or {})}.items():
        data = shape[::-1]
        writer.add_tensor_info(f"{name}.weight", data, gguf.np.dtype("float16"), 2 * int(gguf.np.prod(shape)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"embeddings": (4096, 4096), "output_": (4096, 4096), "position_embd": (4096, 50)},
        {f"blk.1.{name}": (4096, 4096) for name in ("attn", "attn_add", "ffn_add", "ffn_add_", "state")},
    ],
)
def test_names_of_a_file_never_collide_with_ours(
    call: Callable[..., Any], pc: Path, tmp_path: Path, more: dict[str, tuple[int, ...]]
) -> None:
    """A file may call its tensors as it likes: there is a plan, and the line of llama.cpp has all blocks."""
    write(tmp_path / "small.gguf", more)
    done = call("llm", "small.gguf", "--platform", pc, "--for", "llama.cpp", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["status"] == "optimal"
    values = dict(pairwise(shlex.split(told["launch"][0])))
    assert values["-m"] == "small.gguf"
    assert values["--n-gpu-layers"] == "3"
    apart = call("llm", "small.gguf", "--platform", pc, "--apart", "--sequences", "2", "--json")
    assert apart.returncode == 0, apart.stderr
