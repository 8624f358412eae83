"""Arguments that start a runtime, and the names that runtimes give to accelerators."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from placekit.model.platform import Device, Platform

_BACKENDS = (
    ("ROCm", r"mi-?\d|rx-?\d|radeon|instinct|rocm|pro-[vw]?\d|pro-w|ai-pro|strix"),
    ("SYCL", r"arc|iris|gpu-integrated|igpu|xe|sycl|data-center-gpu-max"),
    ("Metal", r"m\d|metal|mps"),
    ("Vulkan", r"vulkan"),
)
"""Backend of llama.cpp by the beginning of the spec or kind of a device; CUDA for all others."""
_OWN_NAME = re.compile(r"(CUDA|ROCm|SYCL|Vulkan|MUSA|CANN|OpenCL|MTL)\d+|Metal|RPC.*")
_PROGRAMS = {
    "vllm": "vllm serve {model}",
    "sglang": "python -m sglang.launch_server --model-path {model}",
    "tensorrt-llm": "trtllm-serve {model} --extra_llm_api_options {file}",
    "llama.cpp": "llama-server -m {model}",
}
ADDRESS = "RPC_ADDRESS"
"""Property of a device of another machine: the address of its llama.cpp server."""
_VISIBLE = {"CUDA": "CUDA_VISIBLE_DEVICES", "ROCm": "HIP_VISIBLE_DEVICES", "SYCL": "ZE_AFFINITY_MASK"}


@dataclass(frozen=True)
class RuntimeArguments:
    """Arguments that start a runtime."""

    runtime: str
    environment: Mapping[str, str] = field(default_factory=dict)  # environment variables
    arguments: tuple[str, ...] = ()  # arguments of its command
    # devices of the stages, first to last: start the ranks, or list the devices, in this order
    devices: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)  # settings that go into a file of the runtime's
    file: str = "settings.yaml"  # name of that file
    elsewhere: tuple[str, ...] = ()  # lines that start servers on other machines, before its own

    @property
    def command(self) -> str:
        """As typed in a shell, without the program."""
        return self._typed("")

    def line(self, model: str) -> str:
        """Return the whole line as typed in a shell, for a model given by its name or its file.

        A runtime of transformers' models takes the folder of a ``config.json``; llama.cpp takes a GGUF file.
        """
        named = shlex.quote(_as_served(self.runtime, model))
        return self._typed(_PROGRAMS.get(self.runtime, "").format(model=named, file=self.file))

    def lines(self, model: str) -> tuple[str, ...]:
        """Return the lines of other machines, the whole line, and those of the settings file."""
        return (*self.elsewhere, self.line(model), *self.settings.splitlines())

    def _typed(self, program: str) -> str:
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        return " ".join([*variables, *filter(None, [program]), *map(shlex.quote, self.arguments)])

    @property
    def settings(self) -> str:
        """Lines for the runtime's file: TOML of torchtitan, YAML of TensorRT-LLM; empty if it takes none."""
        if self.runtime == "torchtitan":
            tables = [
                "\n".join([f"[{table}]", *(f"{name} = {json.dumps(value)}" for name, value in values.items())])
                for table, values in self.config.items()
            ]
            return "\n".join(tables)
        return "\n".join(f"{name}: {json.dumps(value)}" for name, value in self.config.items())

    def to_dict(self) -> dict[str, Any]:
        """Return the arguments as JSON values."""
        config: dict[str, Any] = {"config": dict(self.config)} if self.config else {}
        config |= {"elsewhere": list(self.elsewhere)} if self.elsewhere else {}
        return {
            "runtime": self.runtime,
            "environment": dict(self.environment),
            "arguments": list(self.arguments),
            "devices": list(self.devices),
            **config,
        }


def backend_of(platform: Platform, device: Device) -> str:
    """Return the backend of an accelerator, by its spec or kind.

    Examples
    --------
    >>> platform = Platform.of(rtx4090=1, mi300x=1)
    >>> [backend_of(platform, device) for device in platform.devices]
    ['CUDA', 'ROCm']
    """
    named = platform.spec_of_kind.get(device.kind, device.kind).lower()
    return next((backend for backend, pattern in _BACKENDS if re.match(pattern, named)), "CUDA")


def buffer_names(platform: Platform) -> dict[str, str]:
    """Return llama.cpp's name of every device: its own if the platform file has one, such as ``Vulkan0``.

    Examples
    --------
    >>> buffer_names(Platform.of(cpu=1, rtx4090=2, host="cpu"))
    {'cpu.0': 'CPU', 'rtx4090.0': 'CUDA0', 'rtx4090.1': 'CUDA1'}
    """
    found, counts = {}, Counter[str]()
    for device in platform.devices:
        if device.is_host:
            found[device.name] = "CPU"
        elif ADDRESS in device.properties:  # numbered apart, by what a plan uses
            found[device.name] = f"RPC[{device.properties[ADDRESS]}]"
        elif _OWN_NAME.fullmatch(device.name):
            found[device.name] = device.name
        else:
            backend = backend_of(platform, device)
            found[device.name] = f"{'MTL' if backend == 'Metal' else backend}{counts[backend]}"
            counts[backend] += 1
    return found


def visible_devices(
    platform: Platform, names: tuple[str, ...], all_cards: Sequence[str] | None = None
) -> dict[str, str]:
    """Return the environment variable that makes ranks 0, 1, ... the named devices; empty where ranks are that already.

    Accelerators are numbered as in `all_cards`, the names of those of the machine; as on the platform if None.

    Machines of their own start their own ranks: then the order of the devices is all there is to tell.
    """
    cards = [device for device in platform.devices if not device.is_host]
    if len({device.node for device in cards}) > 1 or not names:
        return {}
    on_platform = [name for card in cards for name in card.member_names]
    numbered = list(all_cards) if all_cards and set(all_cards).issuperset(names) else on_platform
    order = [numbered.index(name) for name in names]
    if order == list(range(len(numbered))):
        return {}
    first = next(card for card in cards if names[0] in card.member_names)
    return {_VISIBLE.get(backend_of(platform, first), "CUDA_VISIBLE_DEVICES"): ",".join(map(str, order))}


def _as_served(runtime: str, model: str) -> str:
    path = Path(model)
    path = path.parent if path.name == "config.json" else path
    if runtime != "llama.cpp" or path.suffix == ".gguf":
        return str(path)
    return f"{path.resolve().name}.gguf"
