"""Links by name, such as ``pcie4x16`` or ``10gbe``, for platform files and the command line.

Rates are those of standards, for one direction; what a copy sustains of them is a share:

- PCI Express, Thunderbolt and USB4 tunnels of it: 65 %, latency 10 us (copies to and from pinned memory).
- NVLink: 80 %, 5 us. Per direction: 2 (V100) 150 GB/s, 3 (A100) 300, 4 (H100) 450, 5 (B200) 900; the bridge of an RTX
  3090 56 GB/s.
- Ethernet: 90 % with TCP, 100 us up to 2.5 Gbit/s and 50 us above. InfiniBand: 90 %, 5 us.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from placekit.model.errors import UnknownNameError, did_you_mean
from placekit.model.platform import Link

_LANE = {3: 0.985e9, 4: 1.969e9, 5: 3.938e9}
_NVLINK = {"nvlink2": 150e9, "nvlink3": 300e9, "nvlink4": 450e9, "nvlink5": 900e9, "nvlink-bridge": 56.25e9}
_TUNNEL = {"thunderbolt3": 2.75e9, "thunderbolt4": 4e9, "usb4": 4e9, "thunderbolt5": 8e9, "oculink": 4 * _LANE[4]}
_GBIT = {"1gbe": 1, "2.5gbe": 2.5, "10gbe": 10, "25gbe": 25, "100gbe": 100}
_INFINIBAND = {"infiniband-hdr": 200, "infiniband-ndr": 400}

LINKS: Mapping[str, Link] = MappingProxyType(
    {
        **{f"pcie{v}x{n}": Link(10e-6, 0.65 * n * lane) for v, lane in _LANE.items() for n in (1, 4, 8, 16)},
        **{name: Link(10e-6, 0.65 * rate) for name, rate in _TUNNEL.items()},
        **{name: Link(5e-6, 0.8 * rate) for name, rate in _NVLINK.items()},
        **{name: Link(100e-6 if rate < 10 else 50e-6, 0.9 * rate / 8 * 1e9) for name, rate in _GBIT.items()},
        **{name: Link(5e-6, 0.9 * rate / 8 * 1e9) for name, rate in _INFINIBAND.items()},
    }
)
"""Links by name."""


def is_between_cards(name: str) -> bool:
    """Return True if a link of this name joins cards with each other, not a card with its host."""
    return name in _NVLINK


def get_link(name: str) -> Link:
    """Return the link called `name`.

    Raises `UnknownNameError`: none is; the message lists all of them.

    Examples
    --------
    >>> get_link("pcie4x16").bandwidth_bytes_per_s / 1e9
    20.4776
    """
    if name not in LINKS:
        raise UnknownNameError(f"no link {name!r}{did_you_mean(name, LINKS)}; links are {', '.join(LINKS)}")
    return LINKS[name]
