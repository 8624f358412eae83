"""A cache of their own for tests of language models, so that none reads what another version kept."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Set the folder of the cache for the whole session."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLACEKIT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
