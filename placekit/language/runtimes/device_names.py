"""Names that runtimes give to accelerators, and variables that choose some of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from placekit.model.platform import Device, Platform

_BACKENDS = (
    ("ROCm", r"mi-?\d|rx-?\d|radeon|instinct|rocm|pro-[vw]?\d|pro-w|ai-pro|strix"),
    ("SYCL", r"arc|iris|gpu-integrated|igpu|xe|sycl|data-center-gpu-max"),
    ("Metal", r"m\d|metal|mps"),
    ("Vulkan", r"vulkan"),
)
"""Backend of llama.cpp by the beginning of the spec or kind of a device; CUDA for all others."""
_OWN_NAME = re.compile(r"(CUDA|ROCm|SYCL|Vulkan|MUSA|CANN|OpenCL|MTL)\d+|Metal|RPC.*")
ADDRESS = "RPC_ADDRESS"
"""Property of a device of another machine: the address of its llama.cpp server."""
_VISIBLE = {"CUDA": "CUDA_VISIBLE_DEVICES", "ROCm": "HIP_VISIBLE_DEVICES", "SYCL": "ZE_AFFINITY_MASK"}


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
