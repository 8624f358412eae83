"""HiGHS in a process of its own."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import numpy as np
from scipy.sparse import csr_array
from placekit.solvers.backends.arrays import Arrays
from placekit.solvers.backends.highs import Highs
ones = np.ones(2)
print("before", end="")
Highs(Arrays(ones, 0 * ones, ones, ones > 0, csr_array(np.ones((1, 2))), ones[:1], ones[:1]))
print("behind", end="")
"""


def test_the_first_solver_of_a_process_prints_nothing() -> None:
    """HiGHS 1.16 has a banner for stdout, which is where `solve --json` writes its answer."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("beforebehind", "")
