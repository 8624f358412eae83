"""Programs and bounds prove small problems here, although the enumeration would be quicker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

ENUMERATING = ("generic", "sequence")
"""Rooms whose tests are about the enumeration, or about what it is a part of."""


@pytest.fixture(autouse=True, scope="module")
def _every_method_proves_by_itself(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let `enumerate_first` pass over all problems: small ones are what exact methods are compared on."""
    with pytest.MonkeyPatch.context() as patch:
        if request.path.parent.name not in ENUMERATING:
            patch.setattr("placekit.solvers.generic.enumeration.method.ENUMERATE_FIRST_UP_TO", 0)
        yield
