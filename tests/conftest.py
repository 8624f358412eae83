"""Fixtures shared by the tests: small problems by name, and the public workloads where they are present."""

from __future__ import annotations

import gc
import os
import tty
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

import placekit as pk
from placekit.model.platform import Link

IN_FULL = os.environ.get("PLACEKIT_EXAMPLES") == "all"
"""True where the slow suite runs, with every random example."""

# for tests that do not set their number of examples: the same ones every time, and no example is too slow
settings.register_profile(
    "placekit",
    deadline=None,
    derandomize=True,
    max_examples=100 if IN_FULL else 5,
)
settings.load_profile("placekit")

collect_ignore = ["stand_in_server.py"]
"""A script that serves until it is stopped, in which no doctests are looked for."""
MEASURING = frozenset(
    ("cost_models", "runtime", "test_execute.py", "test_measure.py", "test_measured_reward.py", "test_time.py")
)
"""Folders and files whose tests time devices."""
COMPUTING = "test_placements_run.py"
"""A file among them whose tests compute for long, and time nothing."""
TESTS = Path(__file__).parent
EXPORTING = tuple(
    str(TESTS / name) for name in ("pytorch", "cli/test_llm.py", "io/test_tied.py", "language/test_model.py")
)
"""Folders and files whose tests export programs of torch: the first export of a process takes ten seconds."""
WORKLOADS = Path(__file__).parents[2] / "shared" / "workloads" / "msr"


@pytest.hookimpl(tryfirst=True)  # before slow tests are left out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let one process run what belongs together, and leave out what needs the public workloads where they are not.

    Where they are, they are an extra: workloads of our own have every behaviour of theirs.

    Tests that time devices take turns anyhow, and would wait for each other; some of them export programs, too. Those
    of a room of the solvers share kernels that nothing else calls, which two processes would both compile: that takes
    longer than a few examples, and not so long as all of them.
    """
    if not WORKLOADS.is_dir():
        extra = [item for item in items if "workloads" in getattr(item, "fixturenames", ())]
        items[:] = [item for item in items if item not in extra]
        config.hook.pytest_deselected(items=extra)
    for item in items:
        if "workloads" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
        if IN_FULL and item.path.name == COMPUTING:
            continue
        if not MEASURING.isdisjoint(item.path.parts) or str(item.path).startswith(EXPORTING):
            item.add_marker(pytest.mark.xdist_group("devices"))
        elif item.path.parent.parent == TESTS / "solvers" and not IN_FULL:
            item.add_marker(pytest.mark.xdist_group(item.path.parent.name))


def pytest_collection_finish() -> None:
    """Take what was imported out of the garbage collection: it stays, and to look at all of it takes 0.2 s."""
    gc.freeze()


@pytest.fixture
def diamond() -> pk.Problem:
    r"""Return four ops on a CPU and two equal accelerators; every number below is checked by hand in the tests.

    ::

              b        op times: 4 s on the CPU, 1 s on an accelerator
            /   \      tensors: 4 bytes each; an accelerator's link takes 1 s + bytes / 4 = 2 s, the CPU's nothing
          a       d    memory: 1 byte per op
            \   /
              c
    """
    graph = pk.OpGraph.from_edges(
        list("abcd"), [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")], name="diamond", output_bytes=[4, 4, 4, 4]
    )
    platform = pk.Platform.of(cpu=1, acc=2, host="cpu", links={"acc": Link(1.0, 4.0)})
    transfer = np.stack([np.zeros(3), platform.links["acc"].time_s(graph.tensor_bytes)], axis=1)
    return pk.Problem(graph, platform, pk.CostTable(("cpu", "acc"), np.array([[4.0, 1.0]] * 4), transfer, np.ones(4)))


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """Return a link to a device of the test's own, and what reads its content: root could harm the machine's."""
    reader, device = os.openpty()
    tty.setraw(device)
    link = tmp_path / "terminal"
    link.symlink_to(os.ttyname(device))
    yield link, reader
    os.close(reader)
    os.close(device)


@pytest.fixture(scope="session")
def workloads() -> Path:
    """Return the folder of the public workloads; tests that ask for it run only where it is."""
    return WORKLOADS
