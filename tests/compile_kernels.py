"""Compile the kernels of `kernels.json` before the tests, whose processes would otherwise each compile all of them."""

from __future__ import annotations

import os

from placekit.cli.warm_up import OBJECTIVES
from placekit.compile_ahead import kernels_of
from placekit.compile_worker import compile_kernel
from placekit.patience import MODE

if __name__ == "__main__":
    os.environ[MODE] = "inline"
    for objective in OBJECTIVES:
        for kernel in kernels_of(objective):
            compile_kernel(*kernel)
