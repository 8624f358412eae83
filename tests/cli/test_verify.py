"""``placekit verify``: exit codes, lines and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


def test_verify_tells_good_from_bad(call: Callable[..., Any], diamond_file: Path, tmp_path: Path) -> None:
    """0 for what `solve` wrote, 5 for a changed objective, 2 for a broken file."""
    solved = call("solve", diamond_file, "-m", "ilp", "--certificate", "-o", "d.placement.json")
    assert solved.returncode == 0
    good = call("verify", "d.result.json", diamond_file)
    assert good.returncode == 0
    assert "objective  checked  0.0025 s; the result says 0.0025 s" in good.stdout
    assert all(line.split()[1] == "checked" for line in good.stdout.splitlines())
    said = json.loads(call("verify", "d.result.json", diamond_file, "--json").stdout)
    assert said["is_consistent"]
    result = tmp_path / "d.result.json"
    document = json.loads(result.read_text())
    result.write_text(json.dumps(document | {"objective": document["objective"] * 1.5}))
    bad = call("verify", "d.result.json", diamond_file)
    assert bad.returncode == 5
    assert "objective  failed   0.0025 s; the result says 0.00375 s" in bad.stdout
    result.write_text(json.dumps(document | {"certificate": {"schema": "placekit/certificate/1", "kind": "magic"}}))
    broken = call("verify", "d.result.json", diamond_file)
    assert broken.returncode == 2
    assert len(broken.stderr.splitlines()) == 1
    assert "d.result.json: certificate is " in broken.stderr


def test_result_alone_is_verified(call: Call, diamond_file: Path, tmp_path: Path) -> None:
    """The problem is the kept one, wherever the file of the problem is by then; the options are its own."""
    call("solve", diamond_file, "--contiguity", "acyclic", "--memory", "gpu=3000B", "-o", "best.json")
    diamond_file.unlink()
    for file in ("best.result.json", "best.json"):
        done = call("verify", file)
        assert done.returncode == 0, done.stderr
        assert "the parts are acyclic" in done.stdout


OTHER = {
    "contiguity is none in the result, acyclic in the problem": ["--contiguity", "acyclic"],
    "device GPU.0 is gpu, 4000.0 bytes in the result, gpu, 3000.0 bytes in the problem": ["--memory", "gpu=3000B"],
    "pin of conv is not given in the result, GPU.1 in the problem": ["--pin", "conv=GPU.1"],
    "objective is throughput in the result, makespan in the problem": ["--objective", "makespan"],
    "objective overlap is False in the result, True in the problem": ["--overlap"],
}


@pytest.mark.parametrize("command", ["verify", "explain"])
@pytest.mark.parametrize("difference", OTHER)
def test_another_problem_is_bad_input(call: Call, diamond_file: Path, command: str, difference: str) -> None:
    """What differs is named with both values, on one line: that is no proof that failed."""
    call("solve", diamond_file, "-m", "enumerate", "--contiguity", "none")
    done = call(command, "diamond.result.json", diamond_file, *OTHER[difference])
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert difference in line


def test_other_costs_are_named(call: Call, diamond_file: Path) -> None:
    """Costs are compared by a digest, and a file of an older version by the hash of the whole problem."""
    call("solve", diamond_file, "-m", "enumerate")
    diamond_file.write_text(diamond_file.read_text().replace("0.004", "0.005"))
    done = call("verify", "diamond.result.json", diamond_file)
    assert done.returncode == 2
    assert "another problem than diamond.problem.json with these options: costs is " in done.stderr.replace(
        str(diamond_file), diamond_file.name
    )
    result = diamond_file.with_name("diamond.result.json")
    document = json.loads(result.read_text())
    del document["problem_terms"]
    result.write_text(json.dumps(document))
    done = call("verify", "diamond.result.json", diamond_file)
    assert done.returncode == 2
    assert f"the result is of problem {document['problem_hash']}" in done.stderr


def test_a_forged_gap_ends_the_command_with_5(call: Call, diamond_file: Path, tmp_path: Path) -> None:
    """A gap of 13.6 % that the file calls 0 is a failed check, and so is a negative runtime bad input."""
    assert call("solve", diamond_file, "-o", "d.json").returncode == 0
    path = tmp_path / "d.result.json"
    document = json.loads(path.read_text())
    forged_gap = {"lower_bound": document["objective"] * 0.864, "status": "feasible", "stop_reason": "time", "gap": 0.0}
    path.write_text(json.dumps(document | forged_gap | {"trace": [], "info": {}}))
    done = call("verify", "d.result.json", diamond_file)
    assert done.returncode == 5
    assert "fields     failed   gap is 0.0, objective and bound give 0.136" in done.stdout.splitlines()
    path.write_text(json.dumps(document | {"runtime_s": -1.0}))
    assert call("verify", "d.result.json", diamond_file).returncode == 2
