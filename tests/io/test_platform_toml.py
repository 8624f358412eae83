"""Platform files: what they say, exact round trips, named errors; and which kind of file is which."""

from __future__ import annotations

import pickle
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import NAMES, linked_platforms, platforms

import placekit as pk
from placekit.cost_models.sheets.device_table import DeviceSpec
from placekit.io.files.detect import kind_of_file
from placekit.io.files.platform_toml import parse_memory, read_platform, write_platform
from placekit.io.files.schemas import SpecModel
from placekit.model.errors import InvalidFileError, PlacekitError
from placekit.model.platform import Link, Platform

EXAMPLE = """
[[device]]
name = "CPU"
kind = "cpu"
host = true
openvino = "CPU"
memory = "16 GiB"
cores = [0, 1]
properties = { INFERENCE_NUM_THREADS = 2, ENABLE_CPU_PINNING = false }

[[device]]
name = "ACC"
kind = "accelerator"
count = 3
memory = 8e9
spec = "mychip"

[link.accelerator]
latency_s = 1e-5
bandwidth_bytes_per_s = 12e9

[spec.mychip]
base = "gpu-discrete"
dense_flops_per_s = 1e12
"""


def write(folder: Path, text: str) -> Path:
    """Write a platform file."""
    path = folder / "platform.toml"
    path.write_text(text)
    return path


def test_example_says_what_it_should(tmp_path: Path) -> None:
    """Counts, sizes with units, OpenVINO's spelling of booleans, links, specs."""
    platform = read_platform(write(tmp_path, EXAMPLE))
    assert platform.device_names == ("CPU", "ACC.0", "ACC.1", "ACC.2")
    cpu, acc = platform.devices[:2]
    assert cpu.is_host
    assert (cpu.memory_bytes, cpu.openvino, cpu.cores) == (16 * 2**30, "CPU", (0, 1))
    assert dict(cpu.properties) == {"INFERENCE_NUM_THREADS": "2", "ENABLE_CPU_PINNING": "NO"}
    assert (acc.memory_bytes, acc.is_host, acc.openvino) == (8e9, False, None)
    assert dict(platform.links) == {"accelerator": Link(1e-5, 12e9)}
    assert dict(platform.spec_of_kind) == {"accelerator": "mychip"}
    assert dict(platform.specs["mychip"]) == {"base": "gpu-discrete", "dense_flops_per_s": 1e12}
    assert kind_of_file(tmp_path / "platform.toml") == "platform"


def test_link_without_bandwidth_does_not_depend_on_size(tmp_path: Path) -> None:
    """Left out or infinite, it is the same."""
    device = '[[device]]\nname = "A"\nkind = "acc"\n[link.acc]\nlatency_s = 1.0\n'
    for text in (device, device + "bandwidth_bytes_per_s = inf\n"):
        assert read_platform(write(tmp_path, text)).links["acc"] == Link(1.0, float("inf"))


SPECS = st.dictionaries(
    NAMES,
    st.fixed_dictionaries(
        {"base": st.just("npu")},
        optional={
            "other_flops_per_s": st.floats(1, 1e15),
            "op_overhead_s": st.floats(0, 1),
            "unsupported_op_types": st.lists(NAMES, max_size=2),
        },
    ),
    max_size=2,
)


def test_platform_of_a_file_is_one_for_a_problem(tmp_path: Path) -> None:
    """What `pk.read_platform` returns goes into a problem, with costs by the specs of the file."""
    graph = pk.OpGraph.from_edges(["a", "b"], [("a", "b")])
    platform = pk.read_platform(write(tmp_path, EXAMPLE))
    problem = pk.Problem(graph, platform, pk.Analytic.from_platform_file(platform).cost_table(graph, platform))
    assert pk.solve(problem, "enumerate").objective is not None
    pk.write_problem(problem, tmp_path / "p.problem.json")
    assert pk.read_problem(tmp_path / "p.problem.json") == problem


@given(platform=platforms() | linked_platforms(platforms()), specs=SPECS, data=st.data())
def test_platform_comes_back_exactly(
    tmp_path_factory: pytest.TempPathFactory,
    platform: Platform,
    specs: dict[str, dict[str, object]],
    data: st.DataObject,
) -> None:
    """read(write(platform)) == platform, for every name and property."""
    named = data.draw(st.dictionaries(st.sampled_from(platform.kinds), NAMES, max_size=2))
    platform = platform.replace(spec_of_kind=named, specs=specs)
    path = tmp_path_factory.getbasetemp() / "platform.toml"
    write_platform(platform, path)
    back = read_platform(path)
    for read in (back, pickle.loads(pickle.dumps(back))):
        assert (read, read.spec_of_kind, read.specs) == (platform, named, specs)


DEVICE = '[[device]]\nname = "A"\nkind = "acc"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "device is missing"),
        ("device = 3", "device is 3; it should be a valid list"),
        ("[[device]\n", "not TOML: "),
        ('[[device]]\nname = "A"\n', r"device\[0\] \(name 'A'\)\.kind is missing"),
        (DEVICE + "colour = 1\n", r"device\[0\] \(name 'A'\)\.colour is an unknown field"),
        (DEVICE + '[[direct_link]]\nkinds = ["acc"]\n', r"direct_link\[0\].kinds"),
        (DEVICE + '[[direct_link]]\nkinds = ["acc", "gpu"]\n', "'acc-gpu' of unknown kind 'gpu'; kinds are acc"),
        (DEVICE + "[[direct_link]]\nnodes = true\n", "nodes is an unknown field"),
        (DEVICE + "[links.acc]\nlatency_s = 1.0\n", "links is an unknown field"),
        (
            DEVICE + "[link.acc]\nlatency = 1.0\n",
            r"link\.acc\.latency is an unknown field; fields are lat",
        ),
        (DEVICE + "[link.gpu]\nlatency_s = 1.0\n", "link of unknown kind 'gpu'; kinds are acc"),
        (DEVICE + "[link.acc]\nlatency_s = nan\n", r"link\.acc\.latency_s is nan; it should be a finite number"),
        (
            DEVICE + "[link.acc]\nbandwidth_bytes_per_s = 0\n",
            "bandwidth_bytes_per_s is 0; it should be greater",
        ),
        (
            DEVICE + 'memory = "16 bytes"\n',
            r"device\[0\] \('A'\): memory is '16 bytes'; it should be a positive",
        ),
        (
            DEVICE + f'memory = "{"[" * 100_000}"\n',
            r"memory is '\[+\.\.\.\[+'; it should be a positive number",
        ),
        (DEVICE + 'memory = "0 GB"\n', "memory is '0 GB'; it must be more than 0"),
        (
            DEVICE + "memory = -1\n",
            r"device\[0\] \('A'\): memory is -1; it must be more than 0: a number of bytes, or a",
        ),
        (DEVICE + "memory = inf\n", r"memory is inf; it must be more than 0"),
        (DEVICE + "memory = true\n", r"memory is True; it must be more than 0"),
        (DEVICE + "memory = [8]\n", r"memory is \[8\]; it must be more than 0"),
        (DEVICE + "count = 0\n", r"count is 0; it should be greater than or equal to 1"),
        (DEVICE + "count = 1000000\n", r"count is 1000000; it should be less than or equal to 4096"),
        (DEVICE + "count = 2\ncores = [1]\n", r"device\[0\] has count 2 and cores; 2 devices cannot share them"),
        (DEVICE + DEVICE, "device name 'A' appears 2 times"),
        (DEVICE + DEVICE.replace('"A"', '"B"') + 'memory = "1 GB"\n', "'A' and 'B' are both of kind 'acc' but differ"),
        (
            DEVICE + 'spec = "npu"\n' + DEVICE.replace('"A"', '"B"') + 'spec = "gpu"\n',
            r"device\[1\] \('B'\) has spec 'gpu', but its kind 'acc' has 'npu'",
        ),
        (DEVICE + "[spec.x]\nspeed = 1\n", r"spec\.x\.speed is an unknown field; fields are base, dense_flops_per_s"),
    ],
)
def test_broken_platform_is_a_named_error(tmp_path: Path, text: str, message: str) -> None:
    """The message names the file, the place, the value and the bound."""
    with pytest.raises(InvalidFileError, match=message) as caught:
        read_platform(write(tmp_path, text))
    assert "platform.toml" in str(caught.value)


def test_a_missing_platform_is_said_once(tmp_path: Path) -> None:
    """A file that cannot be read is not also called bad TOML."""
    with pytest.raises(InvalidFileError, match=r"^cannot read .*gone\.toml: No such file or directory$"):
        read_platform(tmp_path / "gone.toml")


def test_too_many_devices_in_all_are_a_named_error(tmp_path: Path) -> None:
    """Each entry alone would be fine."""
    text = "".join(f'[[device]]\nname = "{n}"\nkind = "acc"\ncount = 4000\n' for n in range(3))
    with pytest.raises(InvalidFileError, match="describes 12000 devices; the limit is 8192"):
        read_platform(write(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [("5", 5), ("5 B", 5), ("2kB", 2000), ("2 KiB", 2048), ("1.5 MB", 1.5e6), ("1 GiB", 2**30), ("3 TB", 3e12)],
)
def test_memory_sizes_have_units(text: str, num_bytes: float) -> None:
    """Powers of 1000 and of 1024 are told apart."""
    assert parse_memory(text) == num_bytes


def test_spec_fields_are_the_device_table_s() -> None:
    """The file format (core) and the cost model name the same fields, though neither imports the other."""
    table = {field.name for field in fields(DeviceSpec)} - {"name", "source", "link", "memory_bytes"}
    assert set(SpecModel.model_fields) == table | {"base"}


def test_unwritable_platform_is_a_named_error(tmp_path: Path) -> None:
    """As every writer."""
    with pytest.raises(PlacekitError, match="cannot write"):
        write_platform(Platform.of(cpu=1), tmp_path / "no" / "p.toml")
