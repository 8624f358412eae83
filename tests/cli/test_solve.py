"""``placekit solve``: answers, files, exit codes, limits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from limits import SOON_S
from signals import wait_until_it_solves

from placekit.io.files.placement_json import read_placement, write_placement
from placekit.io.files.problem_json import read_problem, write_problem
from placekit.io.files.result_json import read_result
from placekit.io.files.workload_json import write_workload
from placekit.model.contiguity import Contiguity
from placekit.model.costs import CostTable
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement
from placekit.model.platform import Platform
from placekit.model.problem import Problem
from placekit.objectives.evaluate import evaluate
from placekit.solve.solve import solve

Call = Callable[..., Any]


# diamond, best: read and add on the CPU (2 ms), conv on a GPU (1 ms + in and out 0.5 ms), pool on the other GPU
# (2 ms + 0.5 ms): the largest load is 2.5 ms
BEST_S = 2.5e-3


def test_solve_prints_loads_objective_bound_gap_and_files(call: Call, diamond_file: Path) -> None:
    """The report names everything that a user needs, in 80 columns."""
    done = call("solve", diamond_file)
    assert done.returncode == 0, done.stderr
    for text in (
        "diamond",
        "GPU.0",
        "GPU.1",
        "2.5 ms per sample",
        "400 samples/s",
        "optimal",
        "all placements",
        "gap",
        "speedup",
    ):
        assert text in done.stdout
    assert "diamond.placement.json" in done.stdout
    assert "diamond.result.json" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_solve_writes_placement_and_result(call: Call, diamond_file: Path, tmp_path: Path, diamond: Problem) -> None:
    """Both files are written to the current folder, under the name of the input, and read back."""
    call("solve", diamond_file)
    result = read_result(tmp_path / "diamond.result.json")
    assert result.objective == pytest.approx(BEST_S)
    placement = read_placement(tmp_path / "diamond.placement.json").for_problem(diamond)
    assert placement.as_dict() == result.placement.as_dict()  # type: ignore[union-attr]  # a placement was found


def test_output_option_names_both_files(call: Call, diamond_file: Path, tmp_path: Path) -> None:
    """``-o out/x.json`` writes out/x.json and out/x.result.json, and nothing else."""
    (tmp_path / "out").mkdir()
    assert call("solve", diamond_file, "-o", "out/x.json").returncode == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["x.json", "x.result.json"]
    assert not (tmp_path / "diamond.placement.json").exists()


def test_json_is_one_object_of_the_result(call: Call, diamond_file: Path, tmp_path: Path) -> None:
    """With ``--json`` stdout holds the result file's object and the names of the files, nothing else."""
    done = call("solve", diamond_file, "--json", "--seed", "7")
    printed = json.loads(done.stdout)
    files = printed.pop("files")
    assert files == {"placement": "diamond.placement.json", "result": "diamond.result.json"}
    assert printed == json.loads((tmp_path / "diamond.result.json").read_text())
    assert printed["seed"] == 7
    assert printed["device_loads"].keys() == {"CPU", "GPU.0", "GPU.1"}


@pytest.mark.parametrize("method", ["single:CPU", "single", "round-robin", "random:200", "random", "ilp"])
def test_every_method_answers(call: Call, diamond_file: Path, method: str) -> None:
    """All registered methods run from the command line, and none beats the optimum."""
    printed = json.loads(call("solve", diamond_file, "-m", method, "--json", "--time-limit", "0.5").stdout)
    assert printed["method"] == method
    if printed["objective"] is not None:
        assert printed["objective"] >= BEST_S * (1 - 1e-9)


def test_objective_options_reach_the_problem(call: Call, diamond_file: Path, diamond: Problem) -> None:
    """Objective, variant and contiguity given as options give the same answer as in Python."""
    from placekit.objectives import SerialLatency

    done = call(
        "solve", diamond_file, "--objective", "serial-latency", "--subgraph-cost", "1e-4", "--contiguity", "convex",
        "--json",
    )  # fmt: skip
    expected = solve(diamond.replace(objective=SerialLatency(1e-4), contiguity="convex"))
    assert json.loads(done.stdout)["objective"] == expected.objective


def test_variant_of_the_files_own_objective_is_kept(call: Call, diamond: Problem, tmp_path: Path) -> None:
    """An option changes its part of the objective in the file; the other parts stay as they are."""
    from placekit.objectives import Throughput

    path = tmp_path / "overlapped.problem.json"
    write_problem(diamond.replace(objective=Throughput(overlap=True)), path)
    kept = json.loads(call("solve", path, "--schedule", "gpipe", "--json").stdout)["objective"]
    assert kept == solve(diamond.replace(objective=Throughput(overlap=True, schedule="gpipe"))).objective
    changed = json.loads(call("solve", path, "--no-overlap", "--json").stdout)["objective"]
    assert changed == pytest.approx(BEST_S)


def test_pins_and_memory_limits_bind(call: Call, diamond_file: Path) -> None:
    """``--pin`` puts an op where it is told, ``--memory`` keeps ops away."""
    pinned = json.loads(call("solve", diamond_file, "--pin", "pool=GPU.1", "--json").stdout)
    assert pinned["placement"]["pool"] == "GPU.1"
    small = json.loads(call("solve", diamond_file, "--memory", "gpu=999B", "--json").stdout)
    assert set(small["placement"].values()) == {"CPU"}


def test_op_names_with_equals_signs_can_be_pinned(call: Call, tmp_path: Path) -> None:
    """The last ``=`` separates op and device."""
    graph = OpGraph.from_edges(["x=1", "y"], [("x=1", "y")])
    costs = CostTable(("cpu",), np.ones((2, 1)), np.zeros((1, 1)), np.zeros(2))
    write_problem(Problem(graph, Platform.of(cpu=2), costs), tmp_path / "named.json")
    printed = json.loads(call("solve", "named.json", "--pin", "x=1=cpu.1", "--json").stdout)
    assert printed["placement"]["x=1"] == "cpu.1"


def test_infeasible_is_exit_code_3_and_says_why(call: Call, diamond_file: Path, tmp_path: Path) -> None:
    """A proof that nothing fits: exit code 3, the reason on stdout, a result file, no placement file."""
    done = call("solve", diamond_file, "--pin", "read=GPU.0")
    assert done.returncode == 3
    assert "infeasible because" in done.stdout
    assert "'read'" in done.stdout
    assert str(read_result(tmp_path / "diamond.result.json").status) == "infeasible"
    assert not (tmp_path / "diamond.placement.json").exists()


def test_no_answer_is_exit_code_4(call: Call, diamond_file: Path) -> None:
    """A method that ends without a feasible placement, and without a proof: exit code 4, with the reason."""
    done = call("solve", diamond_file, "-m", "single:GPU.0")
    assert done.returncode == 4
    assert "the nearest placement breaks" in done.stdout
    assert json.loads(call("solve", diamond_file, "-m", "single:GPU.0", "--json").stdout)["status"] == "unknown"


@pytest.mark.parametrize("kind", ["placement", "plain", "result"])
def test_warm_start_from_every_kind_of_file(
    call: Call, diamond_file: Path, diamond: Problem, tmp_path: Path, kind: str
) -> None:
    """A placement file, a plain ``{op: device}`` and a result file are all good starts."""
    answer = solve(diamond)
    assert answer.placement is not None
    if kind == "result":
        (tmp_path / "start.json").write_text(json.dumps(answer.to_dict()))
    else:
        write_placement(answer.placement, tmp_path / "start.json", problem=diamond, is_plain=kind == "plain")
    done = call("solve", diamond_file, "-m", "single:CPU", "--warm-start", "start.json", "--json")
    # single:CPU alone reaches 9 ms; the start is better and is kept
    assert json.loads(done.stdout)["objective"] == pytest.approx(BEST_S)


def test_workload_file_is_solved(call: Call, tmp_path: Path) -> None:
    """A workload file needs no other option."""
    graph = OpGraph.from_edges(["a", "b"], [("a", "b")])
    costs = CostTable(("acc", "cpu"), np.array([[1e-3, 9e-3]] * 2), np.array([[1e-4, 0.0]]), np.ones(2))
    write_workload(Problem(graph, Platform.of(acc=2, cpu=1, host="cpu"), costs), tmp_path / "w.json")
    printed = json.loads(call("solve", "w.json", "--json").stdout)
    assert printed["objective"] == pytest.approx(1.1e-3)


def test_the_integer_program_can_be_kept(call: Call, diamond_file: Path, tmp_path: Path) -> None:
    """--mps writes it for another solver; a method without a program says so."""
    assert call("solve", diamond_file, "-m", "ilp", "--mps", "model.mps").returncode == 0
    assert "ROWS" in (tmp_path / "model.mps").read_text()
    done = call("solve", diamond_file, "-m", "dp", "--mps", "model.mps")
    assert done.returncode == 2
    assert "method 'dp' has no parameter 'mps'" in done.stderr


def test_machine_in_a_line(call: Call, model_file: Path, tmp_path: Path) -> None:
    """`solve` and `profile` take cards as `llm` does: a chip is a CPU and a GPU with one memory, costs are analytic."""
    done = call("solve", model_file, "--cards", "M4 Max", "--memory", "ram=1GiB", "--json", "-o", tmp_path / "p.json")
    result = json.loads(done.stdout)
    assert result["status"] == "optimal"
    assert result["device_loads"].keys() == {"CPU", "m4-max"}
    told = call("solve", model_file, "--cards", "M4 Max", "-o", tmp_path / "p.json").stdout
    assert "CPU, m4-max share 128 GiB" in " ".join(told.split())
    costs = tmp_path / "costs.json"
    assert call("profile", model_file, "--cards", "M4 Max", "--costs", "analytic", "-o", costs).returncode == 0
    assert json.loads(costs.read_text())["costs"]["kinds"] == ["CPU", "m4-max"]
    both = call("solve", model_file, "--cards", "M4 Max", "--platform", "x.toml")
    assert both.returncode == 2
    assert "--platform and --cards or --ram both choose the devices" in both.stderr


def test_analytic_costs_need_no_device(call: Call, model_file: Path) -> None:
    """A model, a platform file of absent devices and analytic costs give a proven placement."""
    platform = Path(__file__).parents[2] / "examples" / "platform_1cpu_3acc.toml"
    done = call("solve", model_file, "--costs", "analytic", "--platform", platform, "--json")
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed["status"] == "optimal"
    assert printed["device_loads"].keys() == {"CPU", "ACC.0", "ACC.1", "ACC.2"}
    assert "conv00" in printed["placement"]


def test_profiled_costs_are_the_default_for_a_model(call: Call, model_file: Path) -> None:
    """A bare ``solve model.xml`` measures the model on this machine and says so."""
    done = call("solve", model_file, "--groups", "1")
    assert done.returncode == 0, done.stderr
    assert "profiled" in done.stdout
    assert "tiny.placement.json" in done.stdout


def test_costs_file_is_used_instead_of_measuring(call: Call, model_file: Path) -> None:
    """The costs that ``profile`` wrote are those that ``solve --costs`` uses."""
    assert call("profile", model_file, "--groups", "1", "-o", "c.json").returncode == 0
    printed = json.loads(call("solve", model_file, "--groups", "1", "--costs", "c.json", "--json").stdout)
    costs = json.loads(Path("c.json").read_text())["costs"]
    assert printed["objective"] == pytest.approx(sum(next(iter(costs["op_time_s"].values()))))


def hard_problem() -> Problem:
    """Return a random layered problem of 400 ops whose optimality takes far longer to prove than a test lasts."""
    rng = np.random.default_rng(5)
    names = [f"op{i}" for i in range(400)]
    edges = {(int(rng.integers(max(0, i - 25), i)), i) for i in range(1, 400) for _ in range(3)}
    graph = OpGraph.from_edges(names, [(names[u], names[v]) for u, v in sorted(edges)], name="hard")
    times = rng.lognormal(-7, 1, (400, 1)) * rng.lognormal(0, 0.5, (400, 3))
    transfers = rng.lognormal(-8, 1, (graph.num_tensors, 3))
    costs = CostTable(("a", "b", "c"), times, transfers, rng.uniform(1, 2, 400))
    return Problem(graph, Platform.of(a=2, b=2, c=2), costs, contiguity=Contiguity.NONE)


def test_interrupt_returns_the_best_so_far(tmp_path: Path) -> None:
    """Ctrl-C during a long solve: the best placement and its bound are printed and written, exit code 0."""
    write_problem(hard_problem(), tmp_path / "hard.json")
    process = subprocess.Popen(
        [sys.executable, "-m", "placekit.cli.main", "solve", "hard.json", "--time-limit", "600", "--json"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "80"},
    )
    wait_until_it_solves(process, 2.0)
    assert process.poll() is None, "the problem was solved too soon to be interrupted"
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=SOON_S)
    assert process.returncode == 0, stderr
    printed = json.loads(stdout)
    assert printed["stop_reason"] == "user"
    assert printed["objective"] is not None
    assert 0 < printed["lower_bound"] <= printed["objective"]
    problem = read_problem(tmp_path / "hard.json")
    assert not evaluate(problem, Placement.from_mapping(problem, printed["placement"])).violations


def test_time_limit_returns_the_best_so_far(call: Call, tmp_path: Path) -> None:
    """The limit ends a long solve with an answer, a bound and the reason."""
    write_problem(hard_problem(), tmp_path / "hard.json")
    printed = json.loads(call("solve", "hard.json", "--time-limit", "1", "--json").stdout)
    assert printed["stop_reason"] == "time"
    assert printed["gap"] > 0
    assert printed["runtime_s"] < 30


def test_pins_that_override_each_other_are_told(call: Call, diamond_file: Path) -> None:
    """Which of two patterns counts, for which ops; and that a team which has the device will do."""
    done = call("solve", diamond_file, "--pin", "*=CPU", "--pin", "conv=GPU.0", "--contiguity", "none")
    assert done.returncode == 0, done.stderr
    told = " ".join(done.stdout.split())
    assert "'conv=GPU.0' overrides '*=CPU' for 1 op (conv)" in told
    assert "to a team" not in told
    done = call("solve", diamond_file, "--pin", "conv=GPU.1", "--teams", "equal")
    assert "1 op, to a team that has the device" in " ".join(done.stdout.split())
    done = call("solve", diamond_file, "--pin", "conv=CPU", "-o", "-")
    assert "standard output" in done.stderr


def test_reading_a_problem_file_is_part_of_the_limit_and_so_is_writing(
    call: Call, diamond_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What reading took is not there for solving, nor what writing will take; an answer there is."""
    limits_s: list[float] = []

    def read_slowly(path: Path) -> Problem:
        time.sleep(0.3)
        return read_problem(path)

    def solve_within(problem: Problem, method: str, **given: Any) -> Any:
        limits_s.append(given["stop"].time_limit_s)
        return solve(problem, method, **given)

    monkeypatch.setattr("placekit.io.files.problem_json.read_problem", read_slowly)
    monkeypatch.setattr("placekit.cli.commands.solve.solve_problem", solve_within)
    monkeypatch.setattr("placekit.cli.commands.solve.WRITE_S_PER_OP", 5.0)
    num_ops = read_problem(diamond_file).graph.num_ops
    for limit in ("100", "0.2"):
        assert call("solve", diamond_file, "--time-limit", limit).returncode == 0
    assert 50 < limits_s[0] <= 100 - 0.3 - 5.0 * num_ops
    assert limits_s[1] == 0
