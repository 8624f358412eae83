"""Learners leave torch's threads as they were, and use one."""

from __future__ import annotations

import pytest
import torch

import placekit as pk
from placekit.learned.hsdag.learner import HsdagLearner
from placekit.learned.training.threads import one_thread


def test_threads_are_given_back() -> None:
    """Also after an error, here of a division by one thread less one."""
    seen: list[int] = []
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with pytest.raises(ZeroDivisionError), one_thread():
            seen.append(1 // (torch.get_num_threads() - 1))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_learners_compute_in_one_thread(toy: pk.Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the process is set to."""
    seen: list[int] = []
    rollout = HsdagLearner.rollout

    def watched(learner: HsdagLearner, generator: torch.Generator) -> object:
        seen.append(torch.get_num_threads())
        return rollout(learner, generator)

    monkeypatch.setattr(HsdagLearner, "rollout", watched)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        pk.solve(toy, "hsdag", params={"updates": 2})
        assert (set(seen), torch.get_num_threads()) == ({1}, 2)
    finally:
        torch.set_num_threads(before)
