"""Functions on flat arrays."""

from __future__ import annotations

import numpy as np
import pytest

from placekit import arrays


def test_components_are_the_same_by_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few nodes are joined in Python, many by scipy; labels follow the first node of each component."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        count = int(rng.integers(1, 30))
        senders, receivers = rng.integers(0, count, (2, int(rng.integers(0, 40))))
        found = []
        for few in (10**6, -1):
            monkeypatch.setattr(arrays, "FEW", few)
            found.append(arrays.components(count, senders, receivers).tolist())
        assert found[0] == found[1]
        assert found[0][0] == 0
