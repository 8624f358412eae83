"""Names that runtimes give to accelerators, and variables that choose some of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from placekit.cost_models.sheets.cards import processors
from placekit.language.runtimes.values import whole_number
from placekit.model.errors import InvalidProblemError
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
    platform: Platform, names: Sequence[str], all_cards: Sequence[str] | None = None, nodes: Sequence[str] = ()
) -> dict[str, str]:
    """Return the variables that make ranks 0, 1, ... of a machine the named devices; empty where ranks are that anyway.

    Accelerators are numbered as in `all_cards`, the names of those of all machines, with the machine of each in
    `nodes`; as on the platform if None. Unequal CUDA cards are numbered by their place on the bus, as nvidia-smi does:
    CUDA's own order has the fastest first. Devices of several machines have no common numbers: then nothing is there.
    """
    cards = {name: card for card in platform.devices if not card.is_host for name in card.member_names}
    machines = {cards[name].node for name in names}
    if len(machines) != 1:
        return {}
    (node,) = machines
    node_of = dict(zip(all_cards or (), nodes, strict=False)) | {name: card.node for name, card in cards.items()}
    known = [name for name in all_cards or () if node_of.get(name) == node]
    numbered = known if set(known).issuperset(names) else [name for name, card in cards.items() if card.node == node]
    variable = _VISIBLE.get(backend_of(platform, cards[names[0]]), "CUDA_VISIBLE_DEVICES")
    there = [cards[name] for name in numbered if name in cards]
    order = [numbered.index(name) for name in names]
    chosen = {} if order == list(range(len(numbered))) else {variable: ",".join(map(str, order))}
    return ordered(platform, there) | chosen


def ordered(platform: Platform, cards: Sequence[Device]) -> dict[str, str]:
    """Return the variable that numbers unequal CUDA cards by their place on the bus; empty where nothing is to say."""
    own = [card for card in cards if backend_of(platform, card) == "CUDA"]
    kinds = {platform.spec_of_kind.get(card.kind, card.kind) for card in own}
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if len(kinds) > 1 else {}


def threads_of(platform: Platform, host: Device) -> int | None:
    """Return the cores of a host: of its group, or of the processor that is its kind or spec; None if not known.

    Examples
    --------
    >>> platform = Platform.of(cpu=1, host="cpu").replace(spec_of_kind={"cpu": "ryzen-9-7950x"})
    >>> threads_of(platform, platform.devices[0])
    16
    """
    if host.cores:
        return len(host.cores)
    named = platform.spec_of_kind.get(host.kind, host.kind)
    while "base" in platform.specs.get(named, {}):
        named = str(platform.specs[named]["base"])
    if found := re.fullmatch(r"cpu-(\d*)core-\w+", named):
        return int(found[1] or 1)
    return next((each.cores for each in processors().values() if each.spec_name == named), None)


def numbers_seen(environment: Mapping[str, str], num_cards: int) -> list[int]:
    """Return the cards of a machine that programs see, in their order.

    Raises `InvalidProblemError`: a number that is none, or of a card that is not there.
    """
    variable = next((name for name in environment if name in _VISIBLE.values()), None)
    if variable is None:
        return list(range(num_cards))
    found = [whole_number(variable, each) for each in environment[variable].split(",") if each]
    if max(found, default=0) >= num_cards:
        raise InvalidProblemError(f"{variable}={environment[variable]}: there are {num_cards} devices")
    return found
