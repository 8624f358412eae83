"""PyTorch programs measured op by op."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placekit.cost_models.measured.cache import ProfileCache
from placekit.cost_models.openvino.devices import core_groups
from placekit.cost_models.profiled import Profiled
from placekit.cost_models.pytorch import profile
from placekit.cost_models.pytorch.devices import platform_from_devices, torch_device
from placekit.model.errors import DeviceUnavailableError, InvalidProblemError, ProfileError
from placekit.model.platform import Device, Platform
from placekit.pytorch.source import TorchSource, read_torch

torch = pytest.importorskip("torch")
nn = torch.nn

QUICK = Profiled(repetitions=4, budget_s=0, max_foreign_load=1.0, cache=None)


class Uneven(nn.Module):  # type: ignore[misc,name-defined]
    """Two equal layers, and one of four times the work."""

    def __init__(self) -> None:
        super().__init__()
        self.small = nn.ModuleList(nn.Linear(256, 256) for _ in range(2))
        self.large = nn.Linear(256, 1024)

    def forward(self, x: Any) -> Any:
        """Return the last layer's output."""
        for layer in self.small:
            x = torch.relu(layer(x))
        return self.large(x)


@pytest.fixture
def source() -> TorchSource:
    """Return a program of equal and unequal layers."""
    return read_torch(Uneven().eval(), (torch.zeros(64, 256),))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the number of calls that took turns in every measurement so far."""
    found: list[int] = []
    timed = profile.time_calls

    def counting(turns: Any, *args: Any) -> Any:
        found.append(len(turns))
        return timed(turns, *args)

    monkeypatch.setattr(profile, "time_calls", counting)
    return found


@pytest.mark.parametrize("in_context", [True, False])
def test_every_distinct_op_is_measured_once(
    source: TorchSource, calls: list[int], in_context: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal layers share a measurement; by itself, as on accelerators, an op takes the weights of both in turn."""
    monkeypatch.setattr(profile, "_runs_in_context", lambda _: in_context)
    costs = QUICK.cost_table(source, core_groups(1))
    assert calls == [1] if in_context else [2, 1, 1, 1, 1]  # linear, relu, large linear; whole; an empty module
    time_s = dict(zip(source.graph.op_names, costs.op_time_s[:, 0].tolist(), strict=True))
    assert time_s["small.0.linear"] == time_s["small.1.linear"] > 0
    assert time_s["large.linear"] not in (0, time_s["small.0.linear"])
    assert time_s["x"] == time_s["output"] == 0


def test_times_add_up_to_the_whole_module(source: TorchSource) -> None:
    """The scale, and the sum before it, stand in the provenance."""
    costs = QUICK.cost_table(source, core_groups(1))
    (told,) = costs.provenance["kinds"].values()
    (call_s,) = costs.provenance["stage_call_s"].values()
    assert costs.op_time_s.sum() == pytest.approx(told["model_latency_s"] + call_s)
    assert told["scale"] == pytest.approx(told["model_latency_s"] / told["sum_of_op_times_s"])
    assert told["num_distinct_ops"] == 3
    assert "torch" in costs.provenance
    assert len(np.unique(costs.op_group)) == source.graph.num_ops
    assert costs.op_time_spread is not None
    spread = costs.op_time_spread[source.graph.op_index["large.linear"]]
    assert spread.shape == (1,)
    assert spread[0] >= 0


def test_measurements_are_kept_by_content(source: TorchSource, calls: list[int], tmp_path: Path) -> None:
    """The same program, whatever its weights, is not measured again; one of other shapes is."""
    kept = Profiled(repetitions=4, budget_s=0, max_foreign_load=1.0, cache=ProfileCache(tmp_path))
    first = kept.cost_table(source, core_groups(1))
    count = len(calls)
    again = kept.cost_table(read_torch(Uneven().eval(), (torch.zeros(64, 256),)), core_groups(1))
    assert len(calls) == count
    np.testing.assert_array_equal(first.op_time_s, again.op_time_s)
    kept.cost_table(read_torch(Uneven().eval(), (torch.zeros(32, 256),)), core_groups(1))
    assert len(calls) == 2 * count


def test_state_is_measured_on_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repetitions of what changes a buffer, by itself, leave the program's numbers alone."""
    monkeypatch.setattr(profile, "_LEAST_BATCH_S", 0.0)
    monkeypatch.setattr(profile, "_runs_in_context", lambda _: False)

    class Counting(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("index", torch.zeros(1, dtype=torch.long))

        def forward(self, x: Any) -> Any:
            self.index += 1
            return x[self.index]

    # the program counts in two walks, and in 2 + 1 + 4 calls as a whole: up to 9, the last of ten rows
    QUICK.cost_table(read_torch(Counting(), (torch.zeros(10, 2),)), core_groups(1))
    with pytest.raises(ProfileError, match=r"cannot be run again and again: index 9 is out of bounds"):
        QUICK.cost_table(read_torch(Counting(), (torch.zeros(9, 2),)), core_groups(1))


def test_a_failing_op_is_named_by_its_module() -> None:
    """With what torch says, in one line."""

    class Picking(nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any, at: Any) -> Any:
            return x[at + 7]

    class Outer(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.picking = Picking()

        def forward(self, x: Any, at: Any) -> Any:
            return self.picking(x, at) + 1

    source = read_torch(Outer(), (torch.zeros(4, 2), torch.zeros(1, dtype=torch.long)))
    with pytest.raises(ProfileError, match=r"module 'picking': aten\.index\.Tensor does not run on cpu: index .*"):
        QUICK.cost_table(source, core_groups(1))


@pytest.mark.parametrize(
    ("device", "error", "says"),
    [
        (Device("a", "a10"), DeviceUnavailableError, "names no torch device"),
        (Device("a", "x", properties={"torch": "cuda:7"}), DeviceUnavailableError, "torch offers cpu"),
        (
            Device("a", "x", openvino="CPU", properties={"INFERENCE_PRECISION_HINT": "bf16"}),
            InvalidProblemError,
            "precision bf16 is OpenVINO's",
        ),
    ],
)
def test_devices_that_cannot_be_measured(
    device: Device, error: type[Exception], says: str, source: TorchSource
) -> None:
    """Before anything is run."""
    with pytest.raises(error, match=says):
        QUICK.cost_table(source, Platform((device,)))


def test_devices_by_the_names_of_torch() -> None:
    """All cores are one device; what is not there is told."""
    (cpu,) = platform_from_devices("CPU").devices
    assert torch_device(cpu) == "cpu"
    assert cpu.name == "cpu"
    if not torch.cuda.is_available():
        with pytest.raises(DeviceUnavailableError, match="torch offers cpu"):
            platform_from_devices("cpu,cuda")
    with pytest.raises(InvalidProblemError, match="name at least one"):
        platform_from_devices(" , ")
