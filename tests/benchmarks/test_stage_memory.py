"""The benchmark of stages' memory: its prediction is a sum of named parts, and holds for a zoo model."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("openvino")

from placekit.benchmarks.stage_memory import StageMemoryRow, measure_split, packed_bytes, tables, worker_bytes
from placekit.cost_models.openvino.machine import usable_cores
from placekit.io.model import read_model
from placekit.zoo.builder import build


def test_prediction_is_the_sum_of_its_parts() -> None:
    """The error is relative to what was measured; the table says all parts in MiB."""
    row = StageMemoryRow("m", 0.3, 0, 2.0**20, 2.0**21, 2.0**20, 0.0, 2.0**20, 4 * 2.0**20)
    assert row.predicted == 5 * 2**20
    assert row.error == 0.25
    told = tables([row]).splitlines()
    assert told[2] == "| m, 30%, 0 | 1.0 | 2.0 | 1.0 | 0.0 | 1.0 | 5.0 | 4.0 | +25.0% |"
    assert told[-1] == "1 stages: errors from +25.0% to +25.0%, mean 25.0%"


@pytest.mark.slow
@pytest.mark.skipif(len(usable_cores()) < 2, reason="needs two cores")
def test_resident_memory_is_what_was_predicted(tmp_path: Path) -> None:
    """Within 15 %, and never below by more than 5 %."""
    path = tmp_path / "mobilenet_v2.xml"
    build("mobilenet_v2", path)
    source = read_model(path)
    assert 0 < packed_bytes(source, range(source.graph.num_ops)) <= source.graph.op_weight_bytes.sum()
    for row in measure_split(source, 0.4, worker_bytes()):
        assert -0.05 < row.error < 0.15
