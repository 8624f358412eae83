"""Devices, links and platforms."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from placekit.model.errors import InvalidProblemError, UnknownNameError
from placekit.model.platform import Device, DirectLink, Link, Platform


def test_kinds_are_numbered_by_first_appearance() -> None:
    """kind_of_device indexes kinds."""
    platform = Platform((Device("x", "gpu"), Device("y", "cpu", is_host=True), Device("z", "gpu")))
    assert platform.kinds == ("gpu", "cpu")
    assert platform.kind_of_device.tolist() == [0, 1, 0]
    assert platform.devices_of_kind(0) == [0, 2]


def test_link_time_is_latency_plus_size_over_bandwidth() -> None:
    """Four bytes at two bytes per second and one second of latency take three seconds."""
    assert Link(1.0, 2.0).time_s(np.array([4.0])).tolist() == [3.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Platform(()), "at least one device"),
        (lambda: Platform((Device("a", "x"), Device("a", "x"))), "'a' appears 2 times"),
        (lambda: Platform((Device("a", "x", 1.0), Device("b", "x", 2.0))), "differ in memory_bytes: 1.0 and 2.0"),
        (lambda: Platform((Device("a", "x"),), {"y": Link(0, 1)}), "unknown kind 'y'; kinds are x"),
        (lambda: Device("a", "x", 0.0), "'a' has memory_bytes 0.0"),
        (lambda: Device("", "x"), "must not be empty"),
        (lambda: Platform.of(gpu=10**9), "a platform of 1000000000 devices; the limit is 8192"),
        (lambda: Device("a", "x", node=""), "'a' has an empty node"),
        (
            lambda: Platform((Device("a", "x", node="n"), Device("b", "x"))),
            "'b' has no node, but 'a' is on 'n'",
        ),
        (
            lambda: Platform((Device("a", "x", node="n"), Device("b", "x", node="m"))),
            "'a' on node 'n' and 'b' on node 'm' have no direct link between nodes",
        ),
        (
            lambda: Platform(
                (Device("a", "x", node="n"), Device("b", "y", node="m")), {}, (DirectLink(0, 1, ("x", "x"), True),)
            ),
            "'a' on node 'n' and 'b' on node 'm' have no direct link between nodes",
        ),
        (lambda: Platform((Device("a", "x"),), {}, (DirectLink(0, 1, ("x", "z")),)), "'x-z' of unknown kind 'z'"),
        (lambda: Platform((Device("a", "x"),), {}, (DirectLink(0, 1), DirectLink(1, 1))), "link 'any' appears 2 times"),
        (
            lambda: Platform((Device("a", "x"),), {}, (DirectLink(0, 1, None, True),)),
            "'any between nodes': no device has a node",
        ),
        (lambda: Link(-1.0, 1.0), "latency_s is -1.0"),
        (lambda: Link(0.0, 0.0), "bandwidth_bytes_per_s is 0.0"),
        (lambda: Link(float("nan"), 1.0), "latency_s is nan"),
    ],
)
def test_bad_input_is_named(make: object, message: str) -> None:
    """Every wrong value is refused with its name."""
    with pytest.raises(InvalidProblemError, match=message):
        make()  # type: ignore[operator]


def test_unknown_device_lists_those_there_are() -> None:
    """The error of a lookup names the devices."""
    with pytest.raises(UnknownNameError, match=r"no device 'tpu'.*devices are cpu.0, gpu.0"):
        Platform.of(cpu=1, gpu=1).index("tpu")


def test_platform_survives_pickling() -> None:
    """Properties and links come back equal."""
    device = Device("CPU[0]", "core", 1e9, True, "CPU", (0,), {"INFERENCE_PRECISION_HINT": "f32"})
    platform = Platform((device,), {"core": Link(0, 1e9)})
    assert pickle.loads(pickle.dumps(platform)) == platform
    with pytest.raises(TypeError):
        device.properties["x"] = "y"  # type: ignore[index]


def test_a_pair_takes_the_link_of_its_kinds_else_of_any_else_none() -> None:
    """Inside a node GPUs have a link of their own; between nodes all pairs share one, but the CPUs'."""
    devices = [
        Device(f"{kind}.{node}{i}", kind, node=node) for node in "xy" for kind, i in (("g", 0), ("g", 1), ("c", 0))
    ]
    links = (DirectLink(1, 1, ("g", "g")), DirectLink(2, 1, None, True), DirectLink(3, 1, ("c", "c"), True))
    platform = Platform(tuple(devices), {"g": Link(5, 1)}, links)
    assert platform.direct_link_names == ("g-g", "any between nodes", "c-c between nodes")
    table = platform.direct_link(np.arange(6)[:, None], np.arange(6))
    off_diagonal = ~np.eye(6, dtype=bool)
    expected = np.full((6, 6), -1)
    expected[:2, :2] = expected[3:5, 3:5] = 0
    expected[:3, 3:] = expected[3:, :3] = 1
    expected[2, 5] = expected[5, 2] = 2
    assert (table == expected)[off_diagonal].all()
    assert platform.group_of_device.tolist() == [0, 0, 1, 2, 2, 3]
    assert platform.direct_times_s(np.array([4.0])).tolist() == [[5.0, 6.0, 7.0]]
    assert pickle.loads(pickle.dumps(platform)) == platform


def test_without_direct_links_all_pairs_go_through_host_memory() -> None:
    """The groups of equals are the kinds."""
    platform = Platform.of(gpu=2, cpu=1)
    assert platform.direct_link(0, [1, 2]).tolist() == [-1, -1]
    assert platform.group_of_device.tolist() == platform.kind_of_device.tolist()
    assert platform.direct_times_s(np.ones((3, 2))).shape == (3, 2, 0)
