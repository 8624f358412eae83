"""Sources of other frameworks: what measures, cuts and runs them is what their class names."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import placekit as pk
from placekit.cost_models.base import backend_of
from placekit.io.readers import READERS, Reader
from placekit.model.errors import UnsupportedProblemError
from placekit.runtime.stages.plans import plan_stages


class FakeBackend:
    """Stands for a framework that measures."""

    name = "fake"


class FakeEngine:
    """Stands for a framework that runs."""

    def plan(self, source: pk.ModelSource, placement: pk.Placement, platform: pk.Platform) -> Any:
        """Return what it was given."""
        return source, placement, platform


class FakeSource(pk.ModelSource):
    """A model of that framework."""

    backend: ClassVar[str] = f"{__name__}:FakeBackend"
    engine: ClassVar[str] = f"{__name__}:FakeEngine"
    exports: ClassVar[tuple[str, ...]] = ()


def read_fake(path: Path, shapes: Any) -> FakeSource:
    """Read a chain of two ops."""
    graph = pk.OpGraph.from_edges(["a", "b"], [("a", "b")])
    return FakeSource(graph, np.arange(2), path, "0" * 32, 2, 1, (), shapes)


def test_a_source_of_another_framework_is_measured_and_cut_by_it(tmp_path: Path) -> None:
    """It comes from a registered reader, and OpenVINO, which does not run it, says so."""
    READERS.register("fake", Reader("model", read_fake, suffixes=(".fake",)))
    try:
        (tmp_path / "chain.fake").write_text("a b")
        source = pk.read_model(tmp_path / "chain.fake", {"x": [1, 2]})
    finally:
        READERS.unregister("fake")
    assert dict(source.shapes) == {"x": (1, 2)}
    assert isinstance(backend_of(source), FakeBackend)
    platform = pk.Platform.of(cpu=1)
    placement = pk.Placement(("a", "b"), platform.device_names, np.zeros(2, dtype=np.int64))
    planned: Any = plan_stages(source, placement, platform)
    assert planned == (source, placement, platform)
    with pytest.raises(UnsupportedProblemError, match="OpenVINO does not run it"):
        source.load()
