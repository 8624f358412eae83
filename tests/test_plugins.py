"""What others add to placekit: by functions in one process, by an installed package in all of them."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

import placekit as pk
from placekit.arrays import sum_by
from placekit.cli.main import main
from placekit.cost_models.registry import COST_MODELS, get_cost_model
from placekit.model.errors import InvalidProblemError, UnknownNameError, UnsupportedProblemError
from placekit.objectives import OBJECTIVES, fastest_class_s, get_objective
from placekit.solve.registry import METHODS, get_method

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class LastFinish(pk.Objective):
    """A stranger's objective, in forty lines: every device works through its ops, one hop costs a fixed time."""

    name: ClassVar[str] = "last-finish"
    summary: ClassVar[str] = "work of the busiest device, and a fixed time for every edge between devices"

    hop_s: float = 0.25

    def score(
        self,
        problem: pk.Problem,
        device_of_op: NDArray[np.int64],
        step_of_op: NDArray[np.int64] | None = None,  # noqa: ARG002  # no clock
    ) -> pk.Score:
        """Score a placement."""
        graph, platform = problem.graph, problem.platform
        times = problem.costs.op_time_s[np.arange(graph.num_ops), platform.kind_of_device[device_of_op]]
        work = sum_by(device_of_op, times, platform.num_devices)
        hops = int((device_of_op[graph.senders] != device_of_op[graph.receivers]).sum())
        nothing = np.zeros(platform.num_devices)
        return pk.Score(float(work.max()) + hops * self.hop_s, work, nothing, work)


class First(pk.Method):
    """A stranger's method: everything on the first device."""

    name = "first-device"

    def run(self, run: pk.Run) -> pk.StopReason:
        """Offer it."""
        run.offer(np.zeros(run.problem.graph.num_ops, dtype=np.int64))
        return pk.StopReason.FINISHED


@pytest.fixture
def stranger() -> Iterator[None]:
    """Register the objective and the method, and take them away again."""
    pk.register_objective(LastFinish)
    pk.register_method(First)
    yield
    OBJECTIVES.unregister(LastFinish.name)
    METHODS.unregister(First.name)


@pytest.fixture
def problem(stranger: None, diamond: pk.Problem) -> pk.Problem:
    """Return the diamond under the stranger's objective: 2.5 s at best, two ops and two hops for each accelerator."""
    return diamond.replace(objective=LastFinish(), contiguity=None)


GENERIC = ["single", "random:300", "round-robin", "greedy", "pipedream", "local-search", "auto"]
LEARNED = ["hsdag", "gdp", "placeto", "rnn", "doppler"]


@pytest.mark.slow
@pytest.mark.parametrize("method", [*GENERIC, "first-device", "first-device+local-search:5"])
def test_generic_methods_serve_any_objective(method: str, problem: pk.Problem) -> None:
    """Feasible, and scored by the objective itself; the searches find the optimum."""
    result = pk.solve(problem, method, seed=1)
    assert result.placement is not None
    assert result.objective == pk.evaluate(problem, result.placement).objective
    assert result.objective_name == "last-finish"
    if method in ("random:300", "local-search", "auto", "first-device+local-search:5"):
        assert result.objective == 2.5
    assert pk.solve(problem, method, seed=1).placement == result.placement


def test_bounds_are_the_objectives_own(problem: pk.Problem) -> None:
    """Method ``bound`` and ``auto`` report what the objective offers, and `bound` says so if it offers none."""

    @dataclass(frozen=True)
    class Bounded(LastFinish):
        """Some device does the largest op."""

        def quick_bound(self, problem: pk.Problem) -> tuple[float, str]:
            return float(fastest_class_s(problem).max()), "largest op"

    bounded = problem.replace(objective=Bounded())
    for method in ("bound", "auto"):
        result = pk.solve(bounded, method, stop=pk.MaxRuntime(0.5))
        assert (result.lower_bound, result.bound_name) == (1.0, "largest op")
    with pytest.raises(UnsupportedProblemError, match="last-finish offers no bound"):
        pk.solve(problem, "bound")


def test_partitioners_serve_any_objective(problem: pk.Problem) -> None:
    """Parts of equal work are a placement."""
    pytest.importorskip("pymetis")
    result = pk.solve(problem, "metis")
    assert sorted(load.load_s for load in result.device_loads) == [0, 2, 2]
    assert result.objective == 2.5


@pytest.mark.parametrize("method", LEARNED)
def test_learned_placers_serve_any_objective(method: str, problem: pk.Problem) -> None:
    """One placement at a time is scored by the objective."""
    pytest.importorskip("torch")
    result = pk.solve(problem, method, params={"updates": 2}, stop=pk.MaxRuntime(20))
    assert result.objective is not None
    assert result.objective <= 4.0


@pytest.mark.parametrize("contiguity", list(pk.Contiguity))
def test_searches_keep_the_contiguity(contiguity: pk.Contiguity, problem: pk.Problem) -> None:
    """Also for an objective that nobody knows."""
    result = pk.solve(problem.replace(contiguity=contiguity), "local-search:5")
    assert result.placement is not None
    assert pk.evaluate(problem.replace(contiguity=contiguity), result.placement).is_feasible


def test_methods_of_other_objectives_say_why_not(problem: pk.Problem) -> None:
    """The table says what a method serves."""
    for method, message in (
        ("dp", "dp serves throughput and offload-latency, not last-finish"),
        ("mincut", "mincut serves serial-latency, not last-finish"),
        ("heft", "heft serves makespan, not last-finish"),
        ("ilp", "ilp serves throughput, serial-latency and offload-latency, not last-finish"),
    ):
        with pytest.raises(UnsupportedProblemError, match=message):
            pk.solve(problem, method)


def test_files_hold_any_objective(problem: pk.Problem, tmp_path: Path) -> None:
    """A problem and a result go to files and come back, with the variant."""
    problem = problem.replace(objective=LastFinish(hop_s=0.5))
    pk.write_problem(problem, tmp_path / "problem.json")
    assert pk.read_problem(tmp_path / "problem.json") == problem
    result = pk.solve(problem, "greedy")
    pk.write_result(result, tmp_path / "result.json")
    assert pk.read_result(tmp_path / "result.json") == result
    with pytest.raises(InvalidProblemError, match="objective 'last-finish' has no parameter 'hops'"):
        get_objective("last-finish", {"hops": 1})


def test_explain_reads_any_objective(problem: pk.Problem) -> None:
    """Moves are scored by it, and more of everything is tried."""
    found = pk.explain(problem, pk.solve(problem, "single"), time_limit_s=0.5)
    assert found.objective_name == "last-finish"
    assert found.moves[0].change_s < 0


@pytest.mark.slow
def test_command_line_takes_any_objective(
    problem: pk.Problem, diamond: pk.Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """By ``--objective``, for a file that has another one; ``explain`` reads the result."""
    monkeypatch.chdir(tmp_path)
    pk.write_problem(diamond.replace(contiguity="none"), "problem.json")
    told = run_cli(
        monkeypatch,
        capsys,
        "solve",
        "problem.json",
        "--objective",
        "last-finish",
        "--method",
        "local-search",
        "--json",
        "-o",
        "placed.json",
    )
    assert json.loads(told)["objective_name"] == "last-finish"
    assert json.loads(told)["objective"] == 2.5
    assert "no objective 'last'" in run_cli(monkeypatch, capsys, "solve", "problem.json", "--objective", "last", code=2)


def run_cli(monkeypatch: pytest.MonkeyPatch, capsys: Any, *words: str, code: int = 0) -> str:
    """Run a command in this process, and return what it prints."""
    monkeypatch.setattr(sys, "argv", ["placekit", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    assert (ended.value.code or 0) == code, printed.err
    return str(printed.out + printed.err if code else printed.out)


# what is refused


def test_names_that_are_taken_or_malformed_are_refused(stranger: None) -> None:
    """Of methods, objectives and cost models alike."""

    class Taken(First):
        name = "ilp"

    class Malformed(First):
        name = "My Method"

    class NoName(pk.Method):
        def run(self, run: pk.Run) -> pk.StopReason:  # noqa: ARG002
            return pk.StopReason.FINISHED

    for method, message in (
        (Taken, "cannot register method 'ilp': the name is taken"),
        (First, "cannot register method 'first-device': the name is taken"),
        (Malformed, "'My Method': a name is made of lower-case letters, digits and single hyphens"),
        (NoName, "no class attribute 'name'"),
        (int, "is no class derived from placekit.Method"),
    ):
        with pytest.raises(InvalidProblemError, match=message):
            pk.register_method(method)  # type: ignore[arg-type]  # some are wrong on purpose
    with pytest.raises(InvalidProblemError, match="cannot register objective 'last-finish': the name is taken"):
        pk.register_objective(LastFinish)
    with pytest.raises(InvalidProblemError, match="is no class derived from placekit"):
        pk.register_objective(int)  # type: ignore[arg-type]
    with pytest.raises(InvalidProblemError, match="is no class with a method 'cost_table'"):
        pk.register_cost_model(int)  # type: ignore[arg-type]


def test_a_method_for_one_objective_joins_the_others(problem: pk.Problem, diamond: pk.Problem) -> None:
    """``mincut`` may be a stranger's for a stranger's objective, and stays what it is elsewhere; once."""

    class MyCut(First):
        name = "mincut"

    before = METHODS["mincut"]
    pk.register_method(MyCut, objective="last-finish")
    try:
        assert pk.solve(problem, "mincut").objective == 16.0
        serial = diamond.replace(objective=pk.SerialLatency(), contiguity=None)
        assert pk.solve(serial, "mincut").status is pk.Status.OPTIMAL
        with pytest.raises(InvalidProblemError, match="'mincut': it serves last-finish already"):
            pk.register_method(MyCut, objective="last-finish")
    finally:
        METHODS.replace("mincut", before)


def test_cost_models_are_found_by_name(diamond: pk.Problem) -> None:
    """A registered one is made by its own constructor; an unknown name lists what there is."""

    class Flat:
        """One second for everything."""

        name = "flat"

        def cost_table(self, *_: Any, **__: Any) -> pk.CostTable:
            return diamond.costs

    pk.register_cost_model(Flat)
    try:
        assert get_cost_model("flat", None).cost_table(None, diamond.platform) == diamond.costs  # type: ignore[arg-type]
        with pytest.raises(UnknownNameError, match="cost models are analytic, profiled, flat"):
            get_cost_model("flot", None)  # type: ignore[arg-type]
    finally:
        COST_MODELS.unregister("flat")


# packages


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the sample packages installed, and beside them one that is broken and one that is greedy."""
    folder = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    target = folder / "target"
    for name in ("plugin", "reader", "command"):
        shutil.copytree(ROOT / "examples" / name, folder / name, ignore=shutil.ignore_patterns("build", "*.egg-info"))
        subprocess.run([*pip, "--target", str(target), str(folder / name)], check=True, capture_output=True)
    missing = "no_such_module_at_all"
    for name, lines in {
        "broken": "".join(
            f"[placekit.{group}s]\nbroken = {missing}:Broken\n" for group in ("method", "reader", "command")
        ),
        "grasping": "[placekit.methods]\nilp = placekit_shared_bus.by_depth:ByDepth\n",
        "mistaken": "[placekit.objectives]\nnot-one = placekit_shared_bus.by_depth:ByDepth\n",
    }.items():
        info = target / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(lines)
    return target


def in_new_process(site: Path, *words: str, cwd: Path, code: int = 0) -> str:
    """Run ``python`` with the folder on its path, and return what it prints."""
    path = os.pathsep.join([str(site), str(ROOT)])
    done = subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_an_installed_package_brings_names(site: Path, diamond: pk.Problem, tmp_path: Path) -> None:
    """Its method and its objective, in rows of methods and on the command line; the file of the page's command."""
    pk.write_problem(diamond, tmp_path / "problem.json")
    command = re.findall(r"^\$ placekit (.*)$", (ROOT / "docs" / "plugins.md").read_text(), re.MULTILINE)[0]
    told = in_new_process(site, "-m", "placekit", *command.split(), "--time-limit", "5", "--json", cwd=tmp_path)
    result = json.loads(told[told.index("{") : told.rindex("}") + 1])
    assert (result["objective_name"], result["method"]) == ("shared-bus", "by-depth+local-search")
    assert result["objective"] == 4.0  # the bus takes 2 s for every tensor that an accelerator sends or receives
    listed = in_new_process(site, "-m", "placekit", "methods", cwd=tmp_path)
    assert "by-depth" in re.sub(r"\s+|│", "", listed)


TASKS = """4
1 1 0
2 2 1 1
3 3 1 1
# the last task waits for both
4 1 2 2 3
"""
"""A diamond of 1, 2, 3 and 1 s in the format of the Standard Task Graph Set."""


@pytest.mark.slow
def test_an_installed_reader_and_an_installed_command(site: Path, tmp_path: Path) -> None:
    """The reader's files are solved, verified and shown, and read by the command of the other package."""
    (tmp_path / "diamond.stg").write_text(TASKS)
    (tmp_path / "broken.stg").write_text("1\n1 x 0\n")

    def called(*words: str, code: int = 0) -> str:
        return in_new_process(site, "-m", "placekit", *words, cwd=tmp_path, code=code)

    def result(*words: str) -> Any:
        told = called(*words, "--json")
        return json.loads(told[told.index("{") : told.rindex("}") + 1])

    assert result("solve", "diamond.stg", "-o", "p.json")["objective"] == 5.0  # the branch of 2 s beside that of 3 s
    called("verify", "p.result.json", "diamond.stg")
    assert "4 ops" in called("show", "diamond.stg")
    assert result("widths", "diamond.stg")["widths"] == [1, 2, 1]
    assert result("widths", "diamond.stg", "--rows", "1")["widths"] == [1, 2, 1]
    told = called("--help")
    assert "  widths      Count the ops that could run at once, by depth." in told
    assert "  broken      Of a package that cannot be loaded." in told
    wrong = called("solve", "broken.stg", code=2)
    assert "broken.stg, line 2: '1 x 0' is no task" in wrong
    assert "plugin 'broken': its entry point 'broken = no_such_module_at_all:Broken'" in called("broken", code=2)


@pytest.mark.parametrize("name", ["reader", "command"])
def test_pages_quote_the_sample_packages(name: str) -> None:
    """In forty lines at most."""
    page = (ROOT / "docs" / "contributing" / f"{name}.md").read_text()
    files = {
        path.suffix: path.read_text()
        for path in (ROOT / "examples" / name).rglob("*")
        if path.suffix in (".py", ".toml")
    }
    quoted = re.findall(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert [language for language, _ in quoted] == ["python", "toml"]
    assert quoted[0][1] in files[".py"]
    assert quoted[1][1] in files[".toml"]
    assert len(page.splitlines()) <= 40


@pytest.mark.slow
def test_a_package_in_suites_and_reports(site: Path, diamond: pk.Problem, tmp_path: Path) -> None:
    """Rows of its method and objective, in the workers of the suite and in the report."""
    pk.write_problem(diamond, tmp_path / "diamond.json")
    (tmp_path / "suite.toml").write_text(
        'name = "strangers"\n\n[[model]]\nfile = "diamond.json"\n\n[[objective]]\nname = "shared-bus"\n\n'
        '[[method]]\nname = "by-depth"\n\n[[method]]\nname = "greedy"\n'
    )
    in_new_process(site, "-m", "placekit", "bench", "suite.toml", "-o", "rows", cwd=tmp_path)
    in_new_process(site, "-m", "placekit", "report", "rows", cwd=tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "rows" / "rows.jsonl").read_text().splitlines()]
    assert [row["method"] for row in rows] == ["by-depth", "greedy"]
    assert all(row["objective_s"] >= 4.0 for row in rows), "the optimum, as above"
    report = (tmp_path / "rows" / "report.html").read_text()
    assert "by-depth" in report
    assert "shared-bus" in report


@pytest.mark.slow
def test_packages_that_are_wrong_are_named_and_stop_nobody(site: Path, diamond: pk.Problem, tmp_path: Path) -> None:
    """An import that fails, a name that is taken, a class of another kind: the message says whose it is."""
    pk.write_problem(diamond, tmp_path / "problem.json")
    solve = ("-m", "placekit", "solve", "problem.json")
    broken = in_new_process(site, *solve, "--method", "broken", cwd=tmp_path, code=2)
    assert "plugin 'broken'" in broken
    assert "no_such_module_at_all" in broken
    mistaken = in_new_process(site, *solve, "--objective", "not-one", cwd=tmp_path, code=2)
    assert "'mistaken'" in mistaken
    ilp = in_new_process(site, *solve, "--method", "ilp", "--json", cwd=tmp_path)
    assert '"all placements"' in ilp
    told = in_new_process(
        site,
        "-c",
        "import logging; logging.basicConfig(); from placekit.solve.registry import METHODS; list(METHODS)",
        cwd=tmp_path,
    )
    assert "plugin 'grasping': its method 'ilp' is left out: the name is taken" in told


# the page


@pytest.mark.slow
def test_snippets_of_the_page_print_what_stands_below_them() -> None:
    """They run in order, each in the names of those before it."""
    page = (ROOT / "docs" / "plugins.md").read_text()
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = ""
    try:
        for language, text in re.findall(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
            if language == "python":
                output = io.StringIO()
                with contextlib.redirect_stdout(output):
                    exec(compile(text, "plugins.md", "exec", dont_inherit=True), names)
                printed = output.getvalue()
            elif language == "text":
                assert printed == text
            elif language == "toml":
                assert text.strip() in (ROOT / "examples" / "plugin" / "pyproject.toml").read_text()
    finally:
        METHODS.unregister("by-depth")
        OBJECTIVES.unregister("busiest-device")


def test_registered_methods_are_made_like_all_others(stranger: None) -> None:
    """Parameters and arguments that they do not have are refused."""
    with pytest.raises(InvalidProblemError, match="method 'first-device' has no parameters"):
        get_method("first-device:3")
    with pytest.raises(InvalidProblemError, match="method 'first-device' has no parameter 'x'"):
        get_method("first-device", {"x": 1})
