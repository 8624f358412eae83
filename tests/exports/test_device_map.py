"""Device maps: accelerate takes them, and every parameter ends up where the placement has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import placekit as pk
from placekit.exports.blocks import block_placement
from placekit.exports.device_map import device_map
from placekit.model.errors import UnsupportedProblemError
from placekit.pytorch.source import TorchSource

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")

PLATFORM = pk.Platform.of(cpu=1, gpu=2, host="cpu")


class Block(torch.nn.Module):
    """A residual block of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(8), torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the layers' output to `x`."""
        added: torch.Tensor = self.down(torch.relu(self.up(self.norm(x))))
        return x + added


@pytest.fixture(scope="module")
def module() -> torch.nn.Module:
    """Return four blocks between an embedding and a head."""
    return torch.nn.Sequential(torch.nn.Embedding(20, 8), *(Block() for _ in range(4)), torch.nn.Linear(8, 20)).eval()


@pytest.fixture(scope="module")
def source(module: torch.nn.Module) -> TorchSource:
    """Return its graph."""
    return pk.read_torch(module, (torch.zeros(1, 3, dtype=torch.long),))


def home_of(path: str, found: dict[str, int | str]) -> int | str:
    """Return what the longest prefix of a parameter's path says, as accelerate reads a map."""
    parts = path.split(".")
    return next(found[key] for n in range(len(parts), -1, -1) if (key := ".".join(parts[:n])) in found)


@pytest.mark.parametrize("seed", range(10))
def test_every_parameter_is_where_the_placement_has_it(module: torch.nn.Module, source: TorchSource, seed: int) -> None:
    """Random placements of blocks; accelerate finds a device for every parameter."""
    checked = pytest.importorskip("accelerate.utils").check_device_map
    rng = np.random.default_rng(seed)
    of_block = rng.integers(3, size=7)
    device = {path: int(of_block[int(path[:1] or 6)]) for path in source.module_of_op}
    at = np.array([device[path] for path in source.module_of_op])
    placement = pk.Placement(source.graph.op_names, PLATFORM.device_names, at)
    found = device_map(source.graph, PLATFORM, placement, source.module_of_op)
    checked(module, found)
    for path, _ in module.named_parameters():
        assert home_of(path, found) == ("cpu", 0, 1)[device[path.rpartition(".")[0]]]


def test_dispatched_module_gives_the_same_output(module: torch.nn.Module, source: TorchSource) -> None:
    """What is mapped runs in accelerate, here on one CPU in the place of both devices."""
    accelerate = pytest.importorskip("accelerate")
    half = np.array([path.split(".")[0] in ("0", "1", "2") for path in source.module_of_op])
    placement = pk.Placement(source.graph.op_names, PLATFORM.device_names, np.where(half, 0, 1))
    mapped = device_map(source.graph, PLATFORM, placement, source.module_of_op)
    assert set(mapped.values()) == {"cpu", 0}
    found = dict.fromkeys(mapped, "cpu")
    tokens = torch.tensor([[3, 1, 2]])
    expected = module(tokens)
    dispatched = accelerate.dispatch_model(module, found, main_device="cpu")
    assert torch.equal(dispatched(tokens), expected)


def test_blocks_that_agree_are_one_entry(source: TorchSource) -> None:
    """The shortest paths that tell devices apart."""
    names, modules = source.graph.op_names, source.module_of_op
    at = np.array([1 if path[:1] in {"0", "1", "2", "3", ""} else 2 for path in modules])
    at[modules.index("3.norm")] = at[modules.index("3.up")] = 2
    found = device_map(source.graph, PLATFORM, pk.Placement(names, PLATFORM.device_names, at), modules)
    assert found == {"0": 0, "1": 0, "2": 0, "3.norm": 1, "3.up": 1, "3.down": 0, "4": 1, "5": 1}
    alone = pk.Placement(names, PLATFORM.device_names, np.zeros(len(names), dtype=int))
    assert device_map(source.graph, PLATFORM, alone, modules) == {"": "cpu"}


def test_what_a_map_cannot_say_is_refused(source: TorchSource) -> None:
    """Replicas, and weights of one module on two devices."""
    names = source.graph.op_names
    team = pk.Placement(names, PLATFORM.device_names, np.full(len(names), 1), team_of_device=np.array([0, 1, 1]))
    with pytest.raises(UnsupportedProblemError, match=r"no replicas, as 'gpu.0\+gpu.1' is"):
        device_map(source.graph, PLATFORM, team, source.module_of_op)
    split = pk.Placement(names, PLATFORM.device_names, np.arange(len(names)) % 2)
    with pytest.raises(UnsupportedProblemError, match="weights of 'm' are on"):
        device_map(source.graph, PLATFORM, split, ["m"] * len(names))


def test_what_a_map_would_lose_is_refused(source: TorchSource) -> None:
    """A second host, which accelerate does not know, and work of a module away from its weights."""
    names, modules = source.graph.op_names, source.module_of_op
    hosts = pk.Platform.of(cpu=2, host="cpu")
    half = np.array([path[:1] in {"0", "1", "2"} for path in modules])
    with pytest.raises(UnsupportedProblemError, match=r"is on 'cpu.1' .* would be on 'cpu.0'"):
        device_map(source.graph, hosts, pk.Placement(names, hosts.device_names, np.where(half, 0, 1)), modules)
    graph = pk.OpGraph.from_edges(["0.up", "0.act", "1.up"], [("0.up", "0.act"), ("0.act", "1.up")])
    graph = graph.replace(op_weight_bytes=np.array([1.0, 0, 1]), op_flops=np.ones(3))
    away = pk.Placement(graph.op_names, PLATFORM.device_names, np.array([1, 2, 2]))
    with pytest.raises(UnsupportedProblemError, match=r"op '0.act' is on 'gpu.1' .* would be on 'gpu.0'"):
        device_map(graph, PLATFORM, away, ["0", "0", "1"])


def test_what_accelerate_would_load_but_not_run_is_refused(source: TorchSource) -> None:
    """The sum of a residual connection has no module whose inputs are moved; weights on the host stay there only."""
    names, modules = source.graph.op_names, source.module_of_op
    for card, is_refused in ((2, True), (0, False)):  # the host's part runs on the first accelerator, where the rest is
        at = np.array([card if path == "3.down" else 1 for path in modules])
        placement = pk.Placement(names, PLATFORM.device_names, at)
        if is_refused:
            with pytest.raises(UnsupportedProblemError, match=r"which '3' computes itself, takes inputs from 0 and 1"):
                device_map(source.graph, PLATFORM, placement, modules)
        else:
            assert device_map(source.graph, PLATFORM, placement, modules)["3.down"] == "cpu"
    graph = pk.OpGraph.from_edges(("h.0.attn", "h.0.mlp"), [("h.0.attn", "h.0.mlp")]).replace(
        op_weight_bytes=[1.0, 1.0]
    )
    apart = pk.Placement(graph.op_names, PLATFORM.device_names, np.array([1, 2]))
    with pytest.raises(UnsupportedProblemError, match=r"whole blocks, but 'h.0' is on 'gpu.0' and 'gpu.1'; place"):
        device_map(graph, PLATFORM, apart)


CARDS = """
[[device]]
name = "GPU.0"
kind = "rtx4090"
memory = "1100 KiB"

[[device]]
name = "GPU.1"
kind = "l4"
memory = "700 KiB"

[link.rtx4090]
latency_s = 20e-6
bandwidth_bytes_per_s = 20e9

[link.l4]
latency_s = 20e-6
bandwidth_bytes_per_s = 20e9
"""


@pytest.mark.zoo
def test_transformers_loads_what_llm_placed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By numbers, over two cards: parameters of each leave the headroom free, and the loaded model computes."""
    transformers = pytest.importorskip("transformers")
    utils = pytest.importorskip("accelerate.utils")
    from placekit.cli.main import main

    monkeypatch.chdir(tmp_path)
    Path("cards.toml").write_text(CARDS)
    shape = "--layers 6 --hidden 64 --heads 4 --kv-heads 2 --ffn 128 --vocab 500 --precision f32"
    serving = "--phase prefill:16 --phase decode:8 --sequences 2"
    for command in (
        f"llm {shape} {serving} --platform cards.toml --memory-headroom 20% --problem llm.problem.json",
        "export llm.problem.json llm.placement.json --to device-map --force -o map.json",
    ):
        monkeypatch.setattr("sys.argv", ["placekit", *command.split()])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code, capsys.readouterr().err
    found = json.loads(Path("map.json").read_text())
    assert set(found.values()) == {0, 1}
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=500, hidden_size=64, intermediate_size=128, num_hidden_layers=6, num_attention_heads=4,
        num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    utils.check_device_map(model, found)
    sizes = utils.compute_module_sizes(model)
    sizes = sizes[0] if isinstance(sizes, tuple) else sizes
    in_all = sum(each.nbytes for each in model.parameters())
    assert sum(sizes[path] for path in found) == in_all  # nothing is lost, and nothing is there twice
    for card, limit in enumerate((1100 * 1024, 700 * 1024)):
        assert 0 < sum(sizes[path] for path, at in found.items() if at == card) < 0.8 * limit
    model.save_pretrained(tmp_path / "model")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "model", device_map=dict.fromkeys(found, "cpu")
    )
    tokens = torch.tensor([[1, 7, 99, 42]])
    assert torch.equal(loaded(tokens).logits, model(tokens).logits)


def test_blocks_run_from_0_without_a_gap() -> None:
    """A runtime counts blocks, and would take another one for the second."""
    for names in (["h.0", "h.2"], ["h.1", "h.2"]):
        with pytest.raises(UnsupportedProblemError, match=rf"its blocks are numbered {names[0][-1]} to 2 with gaps"):
            block_placement(pk.OpGraph.from_edges(names, [(names[0], names[1])]))
