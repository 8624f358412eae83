"""Llama.cpp's rule of layers: which device each is on, from the arguments of its programs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

import numpy as np


def devices_of_layers(arguments: Sequence[str], num_layers: int) -> list[str]:
    """Return the device of every layer, and of the output, as llama.cpp's `load_tensors` chooses it.

    Layer i of n goes to the CPU before n + 1 - (offloaded), and else to the first device whose part of the running sum
    of the split, in single precision, is above (i - first) / (offloaded).
    """
    values = dict(pairwise(arguments))
    offloaded = int(values["--n-gpu-layers"])
    first, active = max(num_layers + 1 - offloaded, 0), min(offloaded, num_layers + 1)
    names = values.get("--device", "").split(",")
    sums, total = [], np.float32(0)
    for share in values.get("--tensor-split", "1").split(","):
        total = np.float32(total + np.float32(share))
        sums.append(total)
    ends = [np.float32(each / total) for each in sums]
    return [
        names[bisect_right(ends, np.float32(np.float32(layer - first) / np.float32(active)))]
        if first <= layer < first + active
        else "CPU"
        for layer in range(num_layers + 1)
    ]
