"""The entry point: start-up, errors, exit codes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from limits import seconds_to_end

from placekit.cli.command_table import COMMANDS
from placekit.cli.parameters import COMMON, OBJECTIVE, OUTPUT, PLATFORM, SEARCH

Call = Callable[..., Any]


def test_help_lists_the_commands(placekit: Call) -> None:
    """``placekit --help`` names every command and the exit codes."""
    done = placekit("--help")
    assert done.returncode == 0
    for command in ("devices", "profile", "solve", "show", "zoo"):
        assert command in done.stdout
    assert "3 infeasible" in done.stdout


def test_help_answers_at_once() -> None:
    """Its CPU takes under half a second; a slow machine gets four times as much."""
    command = [sys.executable, "-m", "placekit.cli.main", "--help"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert seconds_to_end(process) < 2
    assert process.returncode == 0


def test_importing_the_cli_imports_nothing_heavy() -> None:
    """Only the commands themselves import solvers, torch, openvino, pydantic or matplotlib."""
    heavy = ("openvino", "torch", "pulp", "highspy", "ortools", "scipy", "pydantic", "matplotlib", "rich")
    code = f"import sys, placekit.cli.main; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_version(placekit: Call) -> None:
    """``--version`` prints the version of the package."""
    from placekit import __version__

    assert placekit("--version").stdout == f"placekit {__version__}\n"


def test_the_package_is_the_command_line() -> None:
    """``python -m placekit`` does what the script does."""
    done = subprocess.run([sys.executable, "-m", "placekit", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("placekit ")


def test_no_command_is_a_usage_error(placekit: Call) -> None:
    """Without a command the help is shown and the exit code is 2."""
    assert placekit().returncode == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["solve", "missing.json"], "cannot read missing.json: No such file"),
        (["solve", "missing.xml"], "missing.xml"),
        (["solve", "."], "a folder; give a file"),
        (["solve", "folder.json"], "Is a directory"),
        (["solve", "garbage.json"], "not JSON"),
        (["solve", "binary.json"], "not UTF-8"),
        (["solve", "garbage.xml"], "garbage.xml"),
        (["solve", "garbage.onnx"], "garbage.onnx"),
        (["solve", "list.json"], "list.json"),
        (["solve", "plain.json"], "a placement file cannot be solved"),
        (["solve", "notes.rst"], "is nothing that placekit reads"),
        (["solve", "diamond.problem.json", "--method", "magic"], "methods are auto, single, "),
        (["solve", "diamond.problem.json", "--method", "hsdagg"], "did you mean 'hsdag'?"),
        (["solve", "diamond.problem.json", "--objective", "makespan", "--contiguity", "convex"], "use 'none'"),
        (["solve", "diamond.problem.json", "--calls", "2"], "which offload-latency has; its parameters are overlap"),
        (["solve", "diamond.problem.json", "--objective", "speed"], "objectives are throughput, "),
        (["solve", "diamond.problem.json", "--contiguity", "round"], "one of none, convex, acyclic"),
        (["solve", "diamond.problem.json", "--schedule", "magic"], "1f1b"),
        (["solve", "diamond.problem.json", "--objective", "serial-latency", "--overlap"], "serial-latency"),
        (["solve", "diamond.problem.json", "--subgraph-cost", "-1"], "throughput"),
        (["solve", "diamond.problem.json", "--time-limit", "-1"], "time limit in seconds is -1.0"),
        (["solve", "diamond.problem.json", "--gap", "nan"], "gap is nan"),
        (["solve", "diamond.problem.json", "--param", "threads"], "NAME=VALUE"),
        (["solve", "diamond.problem.json", "-m", "ilp", "--param", "thraeds=1"], "no parameter 'thraeds'"),
        (["solve", "diamond.problem.json", "-m", "ilp", "--param", "threads=0"], "threads is 0"),
        (["solve", "diamond.problem.json", "--pin", "conv"], "OP=DEVICE"),
        (["solve", "diamond.problem.json", "--pin", "cnv=CPU"], "no op 'cnv'; did you mean 'conv'?"),
        (["solve", "diamond.problem.json", "--pin", "conv=TPU"], "devices are CPU, GPU.0, GPU.1"),
        (["solve", "diamond.problem.json", "--memory", "TPU=8GiB"], "kinds are cpu, gpu"),
        (["solve", "diamond.problem.json", "--memory", "gpu=much"], "'much'"),
        (["solve", "diamond.problem.json", "--memory", "GPU.0=8GiB"], "differ in memory_bytes"),
        (["solve", "diamond.problem.json", "--costs", "analytic"], "--costs"),
        (["solve", "diamond.problem.json", "-d", "CPU"], "has its own devices"),
        (["solve", "diamond.problem.json", "-d", "CPU", "--groups", "2"], "-d and --groups"),
        (["solve", "diamond.problem.json", "--warm-start", "garbage.json"], "not JSON"),
        (["solve", "diamond.problem.json", "--warm-start", "plain.json"], "plain.json"),
        (["solve", "diamond.problem.json", "--warm-start", "diamond.problem.json"], "places no ops"),
        (["solve", "diamond.problem.json", "-o", "nowhere/out.json"], "there is no folder"),
        (["solve", "diamond.problem.json", "-o", "folder.json"], "it is a folder"),
        (["solve", "diamond.problem.json", "-o", "diamond.problem.json"], "would be overwritten"),
        (["solve", "diamond.problem.json", "-m", "single:TPU"], "devices are CPU, GPU.0, GPU.1"),
        (["explain", "diamond.problem.json"], "a problem file is no result"),
        (["show", "garbage.json"], "not JSON"),
        (["show"], "show needs a FILE"),
        (["show", "--schema", "poem"], "formats are"),
        (["show", "plain.json", "--plot", "a.png"], "--plot needs a result"),
        (["profile", "missing.xml"], "missing.xml"),
        (["profile", "diamond.problem.json"], "diamond.problem.json"),
        (["zoo", "resnet"], "resnet50"),
        (["zoo", "resnet50", "-o", "nowhere/a.xml"], "nowhere"),
        (["zoo", "resnet50", "--param", "depth=3"], "depth"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    call: Call, diamond_file: Path, arguments: list[str], message: str
) -> None:
    """Whatever is wrong with the input: one line on stderr that says what, no traceback, nothing on stdout."""
    folder = diamond_file.parent
    (folder / "folder.json").mkdir()
    (folder / "garbage.json").write_text("{nodes")
    (folder / "binary.json").write_bytes(b"\xff\xfe\x00")
    (folder / "garbage.xml").write_text("<net><layers>")
    (folder / "garbage.onnx").write_bytes(b"\x00\x01\x02")
    (folder / "list.json").write_text("[1, 2]")
    (folder / "plain.json").write_text('{"no such op": "CPU"}')
    (folder / "notes.rst").write_text("hello")
    done = call(*arguments)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("error: ")
    assert message in lines[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("solve", "placekit solve: MODEL is missing"),
        ("solve P --fast", "placekit solve: no option --fast"),
        ("solve P --grups 2", "placekit solve: no option --grups; did you mean '--groups'?"),
        ("solve P --time-limit soon", "placekit solve: --time-limit 'soon': it should be a valid number"),
        ("solve P --seed -1", "placekit solve: --seed '-1': it should be greater than or equal to 0"),
        ("solve P --gap", "placekit: option '--gap' requires an argument"),
        ("solve P more", "placekit solve: got unexpected extra argument(s) (more)"),
        ("llm", "which devices? Give --cards "),
        ("bench quick nowhere", "dir 'nowhere' does not exist"),
        ("slove P", "no command 'slove'; commands are devices, "),
        ("slove P", "did you mean 'solve'?"),
        ("--fast", "placekit: no option --fast"),
    ],
)
def test_usage_errors_are_one_line_that_names_object_and_value(
    call: Call, diamond_file: Path, arguments: str, message: str
) -> None:
    """Errors of the parser look like all others: one line on stderr, exit code 2."""
    done = call(*(diamond_file if word == "P" else word for word in arguments.split()))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert message in done.stderr


def test_summaries_of_commands_fit_a_line(placekit: Call) -> None:
    """At 80 columns no summary is broken or cut, and three commands to try stand below them."""
    shown = placekit("--help").stdout.splitlines()
    for name, command in COMMANDS.items():
        assert f"  {name:<12}{command.summary}" in shown
    assert sum(line.startswith("  placekit ") for line in shown) == 3


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_fits_two_screens(call: Call, command: str) -> None:
    """100 lines at 80 columns; panels are in their order."""
    lines = call(command, "--help").stdout.splitlines()
    assert len(lines) <= 100
    assert all(len(line) <= 80 for line in lines)
    panels = [line.rstrip(":") for line in lines if line.rstrip(":") in (COMMON, PLATFORM, OBJECTIVE, SEARCH, OUTPUT)]
    assert panels == sorted(panels, key=[COMMON, PLATFORM, OBJECTIVE, SEARCH, OUTPUT].index)


def test_help_of_solve_names_no_training_option(call: Call) -> None:
    """Options of training plans belong to `placekit train-plan`."""
    shown = call("solve", "--help").stdout
    for option in ("train", "microbatch", "parallel", "recomputation", "accelerator NAME", "--devices", "--bandwidth"):
        assert option not in shown


def test_closed_pipe_is_no_traceback(placekit: Call, diamond_file: Path) -> None:
    """A reader that leaves early (``placekit show ... | head -1``) causes no traceback."""
    command = f"{sys.executable} -m placekit.cli.main show --schema problem | head -1"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout == "{\n"
    assert "Traceback" not in done.stderr


def test_bad_input_is_exit_code_2_from_the_shell_too(placekit: Call) -> None:
    """The same as a process of its own: one line, exit code 2."""
    done = placekit("solve", "missing.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: cannot read missing.json: No such file or directory\n"


def test_output_without_unicode_does_not_fail(placekit: Call, diamond_file: Path) -> None:
    """A terminal that knows only ASCII shows the table with other characters."""
    done = placekit("solve", diamond_file, env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert "?" not in done.stdout
    assert re.search(r"^GPU\.1 .*#{10}", done.stdout, re.MULTILINE)
