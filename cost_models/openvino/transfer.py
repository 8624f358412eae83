"""Measured links: seconds to move a tensor between host memory and a device, fitted as ``a + b * bytes``."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from placekit.cost_models.openvino.inputs import filled_request, idle_model
from placekit.cost_models.openvino.machine import running_on
from placekit.model.errors import ProfileError
from placekit.model.platform import Device, Link

if TYPE_CHECKING:
    import openvino

_LOGGER = logging.getLogger(__name__)

TRANSFER_SIZES_BYTES: tuple[int, ...] = tuple(1 << power for power in range(12, 25, 2))
"""Sizes that are timed: 4 KiB to 16 MiB."""

_REPETITIONS = 9


def measure_link(device: Device, core: openvino.Core, sizes_bytes: Sequence[int] = TRANSFER_SIZES_BYTES) -> Link:
    """Measure the link between host memory and `device`.

    A device is measured through its remote tensors, both directions averaged; one without remote tensors through a
    model that hardly computes, half of each call, which includes half the cost of a call and is thus an upper bound.
    `sizes_bytes` are timed, each divisible by 4.

    Raises
    ------
    ProfileError
        The device cannot be measured in any of these ways.
    """
    with running_on(device.cores):
        name = device.openvino or device.name
        try:
            context = core.get_default_context(name)
            return fit_link(sizes_bytes, [_remote_time_s(context, size) for size in sizes_bytes])
        except RuntimeError as error:
            _LOGGER.info("device %s has no remote tensors, its link is timed through a model: %s", name, error)
        try:
            return fit_link(sizes_bytes, [_call_time_s(core, name, size) / 2 for size in sizes_bytes])
        except RuntimeError as error:
            raise ProfileError(f"the link of device {device.name!r} cannot be measured: {error}") from error


def fit_link(sizes_bytes: Sequence[int], times_s: Sequence[float]) -> Link:
    """Return the link with the least sum of squared relative errors, latency and bandwidth not negative.

    Parameters
    ----------
    sizes_bytes, times_s
        At least two different sizes, and the seconds that they took.

    Examples
    --------
    >>> link = fit_link([1000, 2000, 4000], [3e-6, 4e-6, 6e-6])
    >>> round(link.latency_s * 1e6, 6), round(link.bandwidth_bytes_per_s / 1e9, 6)
    (2.0, 1.0)
    """
    from scipy.optimize import nnls

    weights = 1 / np.asarray(times_s, dtype=np.float64)
    # relative errors, so that the largest size does not decide alone; megabytes, so that both columns are of one scale
    columns = np.stack([np.ones(len(sizes_bytes)), np.asarray(sizes_bytes) / 1e6], axis=1) * weights[:, None]
    latency_s, s_per_megabyte = nnls(columns, np.ones(len(weights)))[0]
    return Link(float(latency_s), float(1e6 / s_per_megabyte) if s_per_megabyte > 0 else float("inf"))


def _median_time_s(action: Callable[[], Any]) -> float:
    action()  # touches the pages
    samples = []
    for _ in range(_REPETITIONS):
        start = time.perf_counter()
        action()
        samples.append(time.perf_counter() - start)
    return float(np.median(samples))


def _remote_time_s(context: Any, num_bytes: int) -> float:
    from openvino import Shape, Tensor, Type

    host = Tensor(np.ones(num_bytes // 4, dtype=np.float32))
    remote = context.create_tensor(Type.f32, Shape([num_bytes // 4]), {})
    there = _median_time_s(lambda: remote.copy_from(host))
    back = _median_time_s(lambda: remote.copy_to(host))
    return (there + back) / 2


def _call_time_s(core: openvino.Core, device: str, num_bytes: int) -> float:
    model, numbers = idle_model(num_bytes // 4)
    return _median_time_s(filled_request(core.compile_model(model, device), [numbers]).infer)
