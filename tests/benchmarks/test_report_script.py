"""The script of the report: cells are sorted as the numbers that they say."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib import resources

import pytest

NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None, reason="node is not installed: the script of the report is not run")
def test_cells_sort_by_their_numbers() -> None:
    """Units compare, thousands are read, and cells without a number come last both ways."""
    assert NODE is not None
    script = resources.files("placekit.benchmarks.report").joinpath("tables.js").read_text(encoding="utf-8")
    functions = script[: script.index("for (const table of document")]
    cells = ["1.5 s", "", "20 ms", "-", "3 min", "<0.01 %", "1,200", "\u22120.5 %"]
    program = f"""{functions}
    const cells = {json.dumps(cells)};
    const sorted = (sign) => [...cells].sort((a, b) => compare(a, b, sign));
    console.log(JSON.stringify([sorted(1), sorted(-1)]));"""
    done = subprocess.run([NODE, "-e", program], capture_output=True, text=True, check=True)  # our script
    up, down = json.loads(done.stdout)
    assert up == ["\u22120.5 %", "<0.01 %", "20 ms", "1.5 s", "3 min", "1,200", "-", ""]
    assert down == ["1,200", "3 min", "1.5 s", "20 ms", "<0.01 %", "\u22120.5 %", "-", ""]
