"""Memory that several devices share: the judge counts it, and no method ignores it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fuzz.checks import Asked, check
from fuzz.optimum import enumerated_optimum
from fuzz.pools import with_pools
from fuzz.problems import random_problem

import placekit as pk
from placekit.cost_models.sheets.machines import machine_of
from placekit.io.files.platform_toml import write_platform
from placekit.io.files.problem_json import read_problem, write_problem
from placekit.language.planning.question import Wishes
from placekit.model.contiguity import Contiguity
from placekit.model.errors import InvalidProblemError
from placekit.objectives import Makespan, Objective, OffloadLatency, SerialLatency, Throughput
from placekit.solve.result import Status
from placekit.verification.exact import ExactProblem
from placekit.verification.judge import broken_constraints
from placekit.verification.verify import verify

OF_OBJECTIVE = {
    "throughput": ("auto", "enumerate", "bound", "dp", "dpl", "ilp", "cpsat", "greedy", "local-search", "random"),
    "serial-latency": ("auto", "enumerate", "bound", "mincut", "ilp", "cpsat", "greedy", "local-search", "chain"),
    "offload-latency": ("auto", "enumerate", "bound", "dp", "ilp", "cpsat", "local-search"),
    "makespan": ("auto", "enumerate", "bound", "heft", "m-etf", "cpsat", "local-search"),
}


@pytest.mark.parametrize("case", range(3))
@pytest.mark.parametrize("objective", OF_OBJECTIVE)
def test_every_method_against_enumeration(objective: str, case: int) -> None:
    """Answers keep the pools, bounds are below the enumerated optimum, and proofs name it."""
    rng = np.random.default_rng([case, 7])
    number = 100 * case
    while (problem := random_problem(3, number, objective)).platform.num_devices < 2 or problem.platform.pools:
        number += 1
    problem = with_pools(rng, problem)
    optimum_s = enumerated_optimum(problem)
    for method in OF_OBJECTIVE[objective]:
        params = {"patience": 2, "steps": 50} if method == "local-search" else {}
        # methods that know no pools are lifted, and take what time they get
        found = check(
            problem, optimum_s, Asked(method, params, 0, 1.0, may_be_slow=True)
        )  # what is lifted takes its time
        assert found is None, (method, found)


def _laptop(limit_bytes: float, objective: Objective | None = None) -> pk.Problem:
    """Four ops of 4 bytes in a chain: a host and a faster accelerator share a memory, a slow card has its own.

    host 2 s, acc 1 s, card 3 s an op; 0.5 s for a tensor to or from acc and card.
    """
    graph = pk.OpGraph.from_edges(["a", "b", "c", "d"], [("a", "b"), ("b", "c"), ("c", "d")])
    platform = pk.Platform(
        (pk.Device("host", "host", is_host=True), pk.Device("acc", "acc"), pk.Device("card", "card")),
        pools=(pk.Pool("ram", limit_bytes, ("host", "acc")),),
    )
    costs = pk.CostTable(
        ("host", "acc", "card"), np.array([[2.0, 1.0, 3.0]] * 4), np.array([[0.0, 0.5, 0.5]] * 3), np.full(4, 4.0)
    )
    return pk.Problem(graph, platform, costs, objective or SerialLatency(), Contiguity.NONE)


def test_devices_share_the_limit() -> None:
    """Of 16 bytes 8 fit into the pool, however they are divided: two ops go to the card."""
    result = pk.solve(_laptop(8.0))
    assert result.placement is not None
    assert result.status is Status.OPTIMAL
    assert result.objective == pytest.approx(2 * 1.0 + 2 * 3.0 + 2 * 0.5)
    assert sorted(result.placement.device_of_op.tolist()) == [1, 1, 2, 2]


@pytest.mark.parametrize("method", ["ilp", "cpsat", "enumerate"])
def test_programs_prove_it(method: str) -> None:
    """The rows of a pool close the gap that the limits of single devices leave."""
    apart = pk.Placement.of(_laptop(8.0), np.array([0, 0, 1, 1]))
    broken = pk.evaluate(_laptop(8.0), apart).violations
    assert [each.constraint for each in broken] == ["memory"]
    assert "host, acc need 16 bytes together, their memory 'ram' has 8 bytes" in broken[0].message
    result = pk.solve(_laptop(8.0, Throughput()), method)
    assert result.status is Status.OPTIMAL
    assert result.objective == pytest.approx(6.5)  # two ops on the card


@pytest.mark.parametrize("objective", [Throughput(), SerialLatency(), OffloadLatency(), Makespan()])
def test_too_little_memory_is_proven(objective: Objective) -> None:
    """Where all memories together are too small, the certificate counts a pool once, and verify accepts it."""
    problem = _laptop(6.0, objective)
    card = problem.platform.devices[2].replace(memory_bytes=8.0)
    platform = problem.platform.replace(devices=(*problem.platform.devices[:2], card))
    problem = problem.replace(platform=platform)
    result = pk.solve(problem, "single")
    assert result.status is Status.INFEASIBLE
    assert all(str(each.outcome) == "checked" for each in verify(result, problem).checks)


def test_verify_refuses_a_placement_that_exceeds_a_pool() -> None:
    """A placement that fits under a larger pool breaks the memory of a smaller one, exactly counted."""
    result = pk.solve(_laptop(16.0))
    assert result.objective == pytest.approx(4.0)  # all on acc
    assert not list(broken_constraints(ExactProblem.of(_laptop(16.0)), [1] * 4, None))
    broken = list(broken_constraints(ExactProblem.of(_laptop(8.0)), [0, 0, 1, 1], None))
    assert broken == [("memory", "devices 'host', 'acc' hold more than the memory that they share")]


def test_files_keep_pools(tmp_path: Path) -> None:
    """Problem files and platform files name the devices of a pool; two nodes with one pool are two pools."""
    problem = _laptop(8.0)
    path = tmp_path / "problem.json"
    write_problem(problem, path)
    again = read_problem(path)
    assert again.platform.pools == problem.platform.pools
    assert again.content_hash == problem.content_hash != _laptop(9.0).content_hash
    toml = tmp_path / "platform.toml"
    devices = "".join(
        f'[[device]]\nname = "{kind}-{node}"\nkind = "{kind}"\nnode = "{node}"\npool = "ram"\n'
        for node in ("a", "b")
        for kind in ("cpu", "gpu")
    )
    toml.write_text(devices + '[pool.ram]\nmemory = "8 GB"\n[[direct_link]]\nbetween_nodes = true\n')
    platform = pk.read_platform(toml)
    assert [(pool.name, pool.devices) for pool in platform.pools] == [
        ("ram on a", ("cpu-a", "gpu-a")),
        ("ram on b", ("cpu-b", "gpu-b")),
    ]
    assert {device.memory_bytes for device in platform.devices} == {8e9}
    write_platform(platform, toml)
    assert pk.read_platform(toml) == platform


@pytest.mark.parametrize(
    ("pools", "message"),
    [
        ((pk.Pool("ram", 8.0, ("host", "gpu")),), "names 'gpu', which is no device"),
        ((pk.Pool("a", 8.0, ("host",)), pk.Pool("b", 8.0, ("host",))), "names 'host', which is in two pools"),
    ],
)
def test_pools_that_do_not_add_up(pools: tuple[pk.Pool, ...], message: str) -> None:
    """A pool names devices of the platform, each device is in one pool at most."""
    with pytest.raises(InvalidProblemError, match=message):
        _laptop(8.0).platform.replace(pools=pools)


def test_a_language_model_on_one_chip() -> None:
    """CPU and GPU of a chip have 128 GiB together, not each: 131 GiB of weights are proven not to fit, 70 GiB do."""
    chip = machine_of("M4 Max").platform()
    whole = pk.plan_serving("llama3-70b", chip, wishes=Wishes(compares=False))
    assert whole.result.status is Status.INFEASIBLE
    assert "more than all devices have together" in whole.result.violations[0].message
    halved = pk.plan_serving("llama3-70b", chip, precision="int8", wishes=Wishes(goal="latency", compares=False))
    assert halved.result.status is Status.OPTIMAL
