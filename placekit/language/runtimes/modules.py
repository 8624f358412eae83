"""Libraries that take the device of every module: accelerate, OpenVINO, and placekit's own runtime.

References
----------
accelerate: modules on ``cpu`` are kept there, and copied to the first card whenever they run; `infer_auto_device_map`
fills cards first, and transformers leaves 10 % of them free.
"""

from __future__ import annotations

from placekit.exports.device_map import device_map, device_map_line, module_affinities
from placekit.language.runtimes.device_names import ordered
from placekit.language.runtimes.module_lines import read_affinities, read_device_map
from placekit.language.runtimes.record import Launch, Placed, Runtime, Typed


def write_device_map(runtime: Runtime, placed: Placed) -> Launch:
    """Return the device map as a line of Python."""
    mapped = device_map(placed.graph, placed.platform, placed.placement)
    cards = [device for device in placed.platform.devices if not device.is_host]
    told = "".join(f"  # with {name}={value}" for name, value in ordered(placed.platform, cards).items())
    return Launch(runtime, code=(device_map_line(mapped) + told,))


def write_affinities(runtime: Runtime, placed: Placed) -> Launch:
    """Return the device string of HETERO and the device of every module as lines of Python."""
    told = module_affinities(placed.graph, placed.platform, placed.placement)
    return Launch(runtime, code=(f'device = "{told["device"]}"', device_map_line(told["affinities"], "affinities")))


ACCELERATE = Runtime(
    name="accelerate",
    version="1.15",
    pages=("https://huggingface.co/docs/accelerate/concept_guides/big_model_inference",),
    host="last",
    headroom=0.10,
    chunk=None,
    goal="latency",
    kernels="general",
    program=None,
    options={},
    write=write_device_map,
    read=read_device_map,
    typed=Typed(assigns=("device_map",)),
    exports="device map",
    is_serial=True,
    not_searched=("weights on a disk", "parts of blocks on other devices"),
)

OPENVINO = Runtime(
    name="openvino",
    version="2026.4",
    pages=(
        "https://docs.openvino.ai/2026/openvino-workflow/running-inference/inference-devices-and-modes/hetero-execution.html",
    ),
    host="any",
    headroom=0.10,
    chunk=256,
    goal="latency",
    kernels="general",
    program=None,
    options={},
    write=write_affinities,
    read=read_affinities,
    typed=Typed(assigns=("device", "affinities")),
    exports="affinities",
    runs_programs=True,
    has_any_type=True,
    not_searched=("parts of blocks on other devices", "tensor parallelism of its GPU plugin"),
)

PLACEKIT = Runtime(
    name="placekit",
    version="this one",
    pages=("docs/deploy.md",),
    host="any",
    headroom=0.10,
    chunk=2048,
    goal="throughput",
    kernels="general",
    program=None,
    options={},
    write=write_affinities,
    read=read_affinities,
    typed=Typed(assigns=("device", "affinities")),
    exports="affinities",
    runs_programs=True,
    has_any_type=True,
    not_searched=("parts of blocks on other devices",),
)
