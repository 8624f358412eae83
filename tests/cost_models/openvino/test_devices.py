"""Devices, core groups and the machine underneath."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from placekit.cost_models.openvino import devices, machine
from placekit.cost_models.openvino.devices import (
    available_devices,
    core_groups,
    default_platform,
    platform_from_devices,
    require_device,
)
from placekit.cost_models.openvino.machine import Core, format_cores, running_on, usable_cores
from placekit.model.errors import DeviceUnavailableError, InvalidProblemError

needs_affinity = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot bind threads")


@pytest.fixture
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend to have cores 0 to 7."""
    cores = tuple(Core(cpu, cpu // 4, cpu % 4) for cpu in range(8))
    monkeypatch.setattr(devices, "usable_cores", lambda: cores)
    monkeypatch.setattr(devices, "usable_cpus", lambda: list(range(8)))


@pytest.mark.usefixtures("eight_cores")
def test_two_equal_groups_are_of_one_kind() -> None:
    """Eight cores split into 0-3 and 4-7, which solvers may swap."""
    platform = core_groups()
    assert platform.device_names == ("CPU[0-3]", "CPU[4-7]")
    assert platform.kinds == ("CPU x4 f32",)
    first = platform.devices[0]
    assert first.is_host
    assert first.openvino == "CPU"
    assert first.cores == (0, 1, 2, 3)
    assert dict(first.properties) == {"INFERENCE_NUM_THREADS": "4", "INFERENCE_PRECISION_HINT": "f32"}


@pytest.mark.usefixtures("eight_cores")
def test_unequal_threads_and_precisions_are_different_kinds() -> None:
    """Threads and precision per group; cores that no group takes are left free."""
    platform = core_groups(threads=[2, 4, 1], precision=["f32", "bf16", "f32"])
    assert platform.device_names == ("CPU[0-1]", "CPU[2-5]", "CPU[6]")
    assert platform.kinds == ("CPU x2 f32", "CPU x4 bf16", "CPU x1 f32")


@pytest.mark.usefixtures("eight_cores")
@pytest.mark.parametrize("num_groups", range(1, 9))
def test_equal_split_takes_every_core_once(num_groups: int) -> None:
    """Groups differ by at most one core and cover all of them."""
    groups = [device.cores for device in core_groups(num_groups).devices]
    assert [core for group in groups for core in group] == list(range(8))
    assert max(map(len, groups)) - min(map(len, groups)) <= 1


@pytest.mark.usefixtures("eight_cores")
def test_given_cores_are_the_ones_that_are_divided() -> None:
    """Only the named cores are used."""
    assert core_groups(2, cores=[5, 6]).device_names == ("CPU[5]", "CPU[6]")


@pytest.mark.usefixtures("eight_cores")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_groups": 9}, r"9 groups need 9 cores, this process may use 8 \(0-7\)"),
        ({"threads": [4, 5]}, "2 groups of 4, 5 cores need 9 cores"),
        ({"threads": [4, 0]}, "2 groups of 4, 0 cores"),
        ({"num_groups": 0}, "give at least one group"),
        ({"num_groups": 3, "threads": [1, 1]}, "one entry for each"),
        ({"precision": "f8"}, "unknown precision 'f8'; one of f32, bf16, f16"),
        ({"cores": [1, 1]}, "every core can be given once"),
    ],
)
def test_impossible_groups_are_named_errors(arguments: dict[str, Any], message: str) -> None:
    """The message names what was asked and what there is."""
    with pytest.raises(InvalidProblemError, match=message):
        core_groups(**arguments)


@pytest.mark.usefixtures("eight_cores")
def test_a_core_outside_the_affinity_is_unavailable() -> None:
    """Core 9 is not ours."""
    with pytest.raises(DeviceUnavailableError, match="core 9 cannot be used; this process may use 0-7"):
        core_groups(1, cores=[9])


def test_one_usable_core_gives_one_group(monkeypatch: pytest.MonkeyPatch, fake_core: Callable[..., Any]) -> None:
    """The default platform of a single core does not ask for two groups."""
    monkeypatch.setattr(devices, "usable_cores", lambda: (Core(3, 0, 3),))
    assert default_platform(core=fake_core({})).device_names == ("CPU[3]",)


def test_the_cpu_is_available_with_its_properties() -> None:
    """OpenVINO always has a CPU; it tells its name and precisions."""
    cpu = next(device for device in available_devices() if device.name == "CPU")
    assert cpu.full_name
    assert "FP32" in cpu.properties["OPTIMIZATION_CAPABILITIES"]


def test_an_absent_device_is_named_with_what_is_there() -> None:
    """A user who asks for a device that is not there reads which ones are."""
    with pytest.raises(DeviceUnavailableError, match=r"device 'TPU' is not available; OpenVINO offers .*CPU"):
        platform_from_devices("CPU,TPU")
    with pytest.raises(InvalidProblemError, match="name at least one"):
        platform_from_devices(" , ")
    with pytest.raises(InvalidProblemError, match="appears 2 times"):
        platform_from_devices("CPU,CPU")


def test_gpu_and_npu_become_devices_with_their_own_precision(fake_core: Callable[..., Any]) -> None:
    """Memory and precision are those that the device reports; it is no host."""
    core = fake_core({"GPU": "Arc", "NPU": "AI Boost"})
    platform = platform_from_devices("CPU,GPU,NPU", core=core)
    assert platform.kinds[1:] == ("GPU", "NPU")
    gpu = platform.devices[1]
    assert (gpu.memory_bytes, gpu.is_host, gpu.openvino) == (8 << 30, False, "GPU")
    assert dict(gpu.properties) == {"INFERENCE_PRECISION_HINT": "f16"}
    assert platform.devices[2].memory_bytes is None
    assert default_platform(core=core).device_names == ("CPU", "GPU", "NPU")


def test_two_different_cards_are_two_kinds(fake_core: Callable[..., Any]) -> None:
    """Equal cards share a kind, different ones must not."""
    same = fake_core({"GPU.0": "Arc", "GPU.1": "Arc"})
    assert platform_from_devices("GPU.0,GPU.1", core=same).kinds == ("GPU",)
    mixed = fake_core({"GPU.0": "UHD", "GPU.1": "Arc"})
    assert platform_from_devices("GPU.0,GPU.1", core=mixed).kinds == ("GPU UHD", "GPU Arc")
    assert require_device("GPU", mixed) == "GPU"


def test_hardware_threads_of_one_core_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sockets of two cores with two threads each, and one core that is masked out; E-cores are told apart."""
    monkeypatch.setattr(machine, "usable_cpus", lambda: [0, 1, 2, 4, 5, 6])
    for cpu in range(8):
        folder = tmp_path / "system" / "cpu" / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(str(cpu % 2))
        (folder / "core_id").write_text(str(cpu % 4 // 2))
    (tmp_path / "cpu_atom").mkdir()
    (tmp_path / "cpu_atom" / "cpus").write_text("1,3-7\n")
    assert usable_cores(tmp_path) == (Core(0, 0, 0), Core(2, 0, 1), Core(1, 1, 0, "E"))


def test_hybrid_groups_say_which_cores_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group of performance cores is another kind than one of efficiency cores."""
    cores = tuple(Core(cpu, 0, cpu, "P" if cpu < 2 else "E") for cpu in range(6))
    monkeypatch.setattr(devices, "usable_cores", lambda: cores)
    assert core_groups(2).kinds == ("CPU x2P+1E f32", "CPU x3E f32")


@needs_affinity
def test_running_on_moves_every_thread_and_puts_it_back() -> None:
    """A thread that existed before is moved too, and one born inside does not stay bound."""
    home = os.sched_getaffinity(0)
    target = {min(home)}
    stop, born = threading.Event(), threading.Event()
    older = threading.Thread(target=stop.wait)
    older.start()

    def wait() -> None:
        born.set()
        stop.wait()

    younger = threading.Thread(target=wait)
    try:
        with running_on(sorted(target)):
            younger.start()
            born.wait()
            inside = [os.sched_getaffinity(int(thread.native_id or 0)) for thread in (older, younger)]
            assert [*inside, os.sched_getaffinity(0)] == [target] * 3
        outside = [os.sched_getaffinity(int(thread.native_id or 0)) for thread in (older, younger)]
        assert [*outside, os.sched_getaffinity(0)] == [home] * 3
    finally:
        stop.set()
        older.join()
        younger.join()


@needs_affinity
def test_a_thread_that_has_ended_since_it_was_listed_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process of this machine has so high a number."""
    listed = machine.cores_of_threads
    monkeypatch.setattr(machine, "cores_of_threads", lambda: listed() | {2**30: {0}})
    home = os.sched_getaffinity(0)
    with running_on(sorted(home)):
        pass
    assert os.sched_getaffinity(0) == home


@needs_affinity
def test_running_on_a_core_that_does_not_exist_is_refused() -> None:
    """The message names the core and those that may be used; nothing has moved."""
    home = os.sched_getaffinity(0)
    with pytest.raises(DeviceUnavailableError, match="cores 1000 cannot be used"), running_on([1000]):
        pass
    assert os.sched_getaffinity(0) == home


def test_cores_are_written_as_ranges() -> None:
    """Neighbours are joined, in any order of arrival."""
    assert format_cores([7, 3, 1, 2]) == "1-3,7"
    assert format_cores([]) == ""
