"""Device maps: accelerate takes them, and every parameter ends up where the placement has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import placekit as pk
from placekit.errors import UnsupportedProblemError
from placekit.exports.device_map import device_map
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
    """Random placements of modules; accelerate finds a device for every parameter."""
    checked = pytest.importorskip("accelerate.utils").check_device_map
    rng = np.random.default_rng(seed)
    device = {path: int(rng.integers(3)) for path in dict.fromkeys(source.module_of_op)}
    at = np.array([device[path] for path in source.module_of_op])
    placement = pk.Placement(source.graph.op_names, PLATFORM.device_names, at)
    found = device_map(source.graph, PLATFORM, placement, source.module_of_op)
    checked(module, found)
    for path, _ in module.named_parameters():
        assert home_of(path, found) == ("cpu", 0, 1)[device[path.rpartition(".")[0]]]


def test_dispatched_module_gives_the_same_output(module: torch.nn.Module, source: TorchSource) -> None:
    """What is mapped runs in accelerate, here from one CPU to another."""
    accelerate = pytest.importorskip("accelerate")
    platform = pk.Platform.of(cpu=2, host="cpu")
    half = np.array([path.split(".")[0] in ("0", "1", "2") for path in source.module_of_op])
    placement = pk.Placement(source.graph.op_names, platform.device_names, np.where(half, 0, 1))
    found = device_map(source.graph, platform, placement, source.module_of_op)
    tokens = torch.tensor([[3, 1, 2]])
    expected = module(tokens)
    dispatched = accelerate.dispatch_model(module, found, main_device="cpu")
    assert torch.equal(dispatched(tokens), expected)


def test_blocks_that_agree_are_one_entry(source: TorchSource) -> None:
    """The shortest paths that tell devices apart."""
    names, modules = source.graph.op_names, source.module_of_op
    at = np.array([1 if path[:1] in {"0", "1", "2", ""} else 2 for path in modules])
    at[modules.index("3.norm")] = 1
    found = device_map(source.graph, PLATFORM, pk.Placement(names, PLATFORM.device_names, at), modules)
    assert found == {"0": 0, "1": 0, "2": 0, "3.norm": 0, "3.up": 1, "3.down": 1, "4": 1, "5": 1}
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
