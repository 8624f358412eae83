"""One thread for the networks of the learners.

Their layers take microseconds, and the members of a team of threads wait for each other at the end of every one. Two
threads on two idle cores are 1.1 to 1.3 times as fast as one; where another process keeps one of the cores busy, they
are 4 to 25 times slower. One thread also adds in one order, so that an answer does not depend on the number of cores.
Several seeds at once are the better use of more cores: ``placekit bench --workers``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute in the calling thread alone, and give back the threads that it had."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
