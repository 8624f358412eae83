"""How long kernels are worth waiting for, and how long work is to go on."""

from __future__ import annotations

import threading

import pytest

from placekit.patience import MODE, is_patient, is_wanted, waiting_while


def test_a_part_may_work_longer_than_it_waits_for_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage with others behind it gives up on kernels soon, and is interrupted no earlier for it."""
    monkeypatch.setenv(MODE, "background")
    goes_on = True
    with waiting_while(lambda: goes_on):
        with waiting_while(lambda: False, for_kernels_only=True):
            says = is_patient()
            assert says is not None
            assert not says()
            assert is_wanted()
            seen: list[bool] = []
            thread = threading.Thread(target=lambda: seen.append(is_wanted()))
            thread.start()
            thread.join()
            assert seen == [True]
            with waiting_while(lambda: False):
                assert not is_wanted()
        goes_on = False
        assert not is_wanted()
    assert is_wanted()
