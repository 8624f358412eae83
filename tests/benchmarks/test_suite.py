"""Suites: what is refused, which cases come out, and what their addresses depend on."""

from __future__ import annotations

from pathlib import Path

import pytest

import placekit as pk
from placekit.benchmarks.cases.plan import SuitePlan, make_plan
from placekit.benchmarks.cases.solve_case import best_single_device
from placekit.benchmarks.cases.suite import read_suite, shipped_suites
from placekit.benchmarks.cases.suite_problems import problem_address
from placekit.benchmarks.generators.families import generate
from placekit.io.files.problem_json import read_problem, write_problem
from placekit.model.errors import InvalidFileError, InvalidProblemError, UnknownNameError
from placekit.model.problem import Problem
from placekit.training.piper_json import write_piper
from placekit.training.problem import TrainingProblem

TINY = """
name = "tiny"
time_limit_s = 5.0
[[model]]
family = "chains"
params = { num_ops = 20, num_devices = 2 }
[[objective]]
name = "throughput"
contiguity = ["acyclic", "none"]
[[objective]]
name = "makespan"
[[method]]
name = "random:20"
seeds = [0, 1]
[[method]]
name = "heft"
"""


def plan_of(text: str, folder: Path, results: str = "results") -> SuitePlan:
    """Return the plan of a suite given as text."""
    path = folder / "suite.toml"
    path.write_text(text)
    return make_plan(read_suite(str(path)), folder / results)


def test_every_model_meets_every_objective_method_and_seed(tmp_path: Path) -> None:
    """Two contiguities and another objective, two seeds; what a method does not support is left out and told."""
    plan = plan_of(TINY, tmp_path)
    found = [(j.facts["objective"], j.facts["contiguity"], j.case.method, j.case.seed) for j in plan.jobs]
    assert found == [
        ("throughput", "acyclic", "random:20", 0),
        ("throughput", "acyclic", "random:20", 1),
        ("throughput", "none", "random:20", 0),
        ("throughput", "none", "random:20", 1),
        ("makespan", "none", "random:20", 0),
        ("makespan", "none", "random:20", 1),
        ("makespan", "none", "heft", 0),
    ]
    assert len(plan.left_out) == 2
    assert all("heft" in reason for reason in plan.left_out)


def test_addresses_are_the_same_in_another_folder(tmp_path: Path) -> None:
    """The address of a case depends on its content, not on where its files lie."""
    first, second = (plan_of(TINY, tmp_path, results) for results in ("one", "two"))
    assert [job.case.address for job in first.jobs] == [job.case.address for job in second.jobs]
    assert len({job.case.address for job in first.jobs}) == len(first.jobs)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("num_ops = 20", "num_ops = 21"),
        ("time_limit_s = 5.0", "time_limit_s = 6.0"),
        ("time_limit_s = 5.0", "time_limit_s = 5.0\ngap = 0.1"),
        ("time_limit_s = 5.0", "time_limit_s = 5.0\nmax_evaluations = 10"),
        ('name = "random:20"', 'name = "random:20"\nwarm_start = "greedy"'),
    ],
)
def test_whatever_decides_the_result_changes_the_address(tmp_path: Path, old: str, new: str) -> None:
    """Another size, limit, gap, budget or warm start is another case."""
    before, after = (plan_of(text, tmp_path).jobs[0].case.address for text in (TINY, TINY.replace(old, new)))
    assert before != after


def test_what_is_isolated_is_no_other_case(tmp_path: Path) -> None:
    """Isolated cases warm up on the smallest problem of their method, objective and contiguity."""
    before = plan_of(TINY, tmp_path).jobs
    alone = plan_of(TINY.replace("time_limit_s", "isolate = true\ntime_limit_s"), tmp_path).jobs
    assert [job.case.address for job in alone] == [job.case.address for job in before]
    larger = TINY.replace('[[objective]]\nname = "makespan"', "").replace("num_ops = 20", "num_ops = 30")
    model = '[[model]]\nfamily = "chains"\nparams = { num_ops = 20, num_devices = 2 }\n'
    text = larger.replace("[[objective]]", model + "[[objective]]").replace(
        "time_limit_s", "isolate = true\ntime_limit_s"
    )
    jobs = plan_of(text, tmp_path).jobs
    assert {job.facts["num_ops"] for job in jobs} == {20, 30}
    for job in jobs:
        assert job.warm_up_problem is not None
        assert not isinstance(job.warm_up_problem, TrainingProblem)
        assert job.warm_up_problem.graph.num_ops == 20
        assert job.warm_up_problem.contiguity == job.facts["contiguity"]


TRAINING = """
name = "plans"
time_limit_s = 5.0
[[model]]
family = "training-chain"
params = { num_blocks = 4 }
machines = [[4, 8.0], [8, 2.0]]
[[method]]
name = "dp"
[[method]]
name = "equal-split"
[[method]]
name = "heft"
"""


def test_training_plans_are_cases_like_others(tmp_path: Path) -> None:
    """A problem per machine; methods of placements are left out; the file that is kept gives the same problem."""
    plan = plan_of(TRAINING, tmp_path)
    found = [(job.facts["model"], job.facts["platform"], job.case.method) for job in plan.jobs]
    machines = ("4 x 8 GiB", "8 x 2 GiB")
    assert found == [("training-chain", machine, method) for machine in machines for method in ("dp", "equal-split")]
    assert plan.left_out == ("heft on training-chain: it plans no training",)
    assert {job.facts["objective"] for job in plan.jobs} == {"training-plan"}
    again = plan_of(TRAINING, tmp_path)
    assert [job.case.address for job in again.jobs] == [job.case.address for job in plan.jobs]
    write_piper(plan.jobs[0].problem, tmp_path / "chain.json")  # type: ignore[arg-type]  # a training problem, as above
    file = TRAINING.replace('family = "training-chain"\nparams = { num_blocks = 4 }', 'file = "chain.json"')
    (small, *_) = plan_of(file, tmp_path).jobs
    assert (small.facts["model"], small.facts["num_devices"]) == ("chain", 4)
    with pytest.raises(UnknownNameError, match="no family 'training-tree'"):
        plan_of(TRAINING.replace("training-chain", "training-tree"), tmp_path)


def test_a_draw_is_forty_models(tmp_path: Path) -> None:
    """Eight of each family, every graph with a seed of its own; another seed is another draw."""
    text = (
        'name = "d"\n[[draw]]\nname = "drawn"\nseed = 3\n[[objective]]\nname = "makespan"\n[[method]]\nname = "heft"\n'
    )
    names = [job.facts["model"] for job in plan_of(text, tmp_path).jobs]
    assert names[0].startswith("drawn 300: transformer ")
    assert [name.partition(":")[0] for name in names] == [f"drawn {seed}" for seed in range(300, 340)]
    assert names == [job.facts["model"] for job in plan_of(text, tmp_path).jobs]
    other = [job.facts["model"] for job in plan_of(text.replace("seed = 3", "seed = 5"), tmp_path).jobs]
    assert not set(names) & set(other)


def test_a_method_may_be_for_some_models_and_rules_only(tmp_path: Path) -> None:
    """`models` with wildcards and `contiguity` choose; a pattern that matches nothing is told."""
    some = 'name = "random:20"\ncontiguity = ["none"]\nmodels = ["chains-*", "resnet*"]'
    plan = plan_of(TINY.replace('name = "random:20"', some), tmp_path)
    found = [(job.facts["objective"], job.facts["contiguity"]) for job in plan.jobs if job.case.method == "random:20"]
    assert found == [("throughput", "none")] * 2 + [("makespan", "none")] * 2
    assert "random:20 on resnet*: no model of the suite is called so" in plan.left_out


def test_lowered_limits(tmp_path: Path) -> None:
    """No case has a longer limit than asked for, shorter ones stay; a negative limit is refused."""
    path = tmp_path / "suite.toml"
    path.write_text(TINY.replace('name = "heft"', 'name = "heft"\ntime_limit_s = 0.5'))
    suite = read_suite(str(path)).at_most(1.0)
    limits = {job.case.method: job.case.time_limit_s for job in make_plan(suite, tmp_path / "results").jobs}
    assert limits == {"random:20": 1.0, "heft": 0.5}
    with pytest.raises(InvalidProblemError, match=r"time limit -1.0 s"):
        suite.at_most(-1.0)


def test_names_and_labels_do_not_change_the_address(tmp_path: Path) -> None:
    """What the report calls a case decides nothing."""
    renamed = TINY.replace('"tiny"', '"other"').replace('name = "random:20"', 'name = "random:20"\nlabel = "luck"')
    before, after = (plan_of(text, tmp_path).jobs[0] for text in (TINY, renamed))
    assert before.case.address == after.case.address
    assert after.facts["label"] == "luck"


def test_a_problem_is_made_once(tmp_path: Path) -> None:
    """The second plan reads the problem files of the first, and gets the same problems."""
    first = plan_of(TINY, tmp_path)
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "results" / "problems").iterdir()}
    second = plan_of(TINY, tmp_path)
    assert len(files) == 3
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "results" / "problems").iterdir()} == files
    assert [job.problem for job in first.jobs] == [job.problem for job in second.jobs]


def test_problem_address_survives_the_file_and_forgets_provenance(tmp_path: Path, diamond: Problem) -> None:
    """Writing and reading keeps the address; where costs come from does not matter, what they are does."""
    write_problem(diamond, tmp_path / "d.problem.json")
    assert problem_address(read_problem(tmp_path / "d.problem.json")) == problem_address(diamond)
    told = diamond.replace(costs=diamond.costs.replace(provenance={"source": "hearsay"}))
    assert problem_address(told) == problem_address(diamond)
    dearer = diamond.replace(costs=diamond.costs.replace(op_time_s=diamond.costs.op_time_s * 2))
    assert problem_address(dearer) != problem_address(diamond)


def test_files_of_the_folder(tmp_path: Path, diamond: Problem) -> None:
    """Wildcards, parameter files with the model's name, and their content in the address."""
    from placekit.io.files.placement_json import write_placement
    from placekit.model.placement import Placement

    write_problem(diamond, tmp_path / "d1.problem.json")
    write_problem(diamond.replace(contiguity="none"), tmp_path / "d2.problem.json")
    text = 'name = "files"\n[[model]]\nfile = "d*.problem.json"\n[[method]]\nname = "file"\n'
    text += 'files = { path = "{model}.placement" }\n'
    write_placement(Placement.of(diamond, [0, 0, 0, 0]), tmp_path / "d1.placement", problem=diamond)
    plan = plan_of(text, tmp_path)
    assert [job.facts["model"] for job in plan.jobs] == ["d1"]
    assert plan.jobs[0].facts["objective"] == "throughput"  # the problem's own
    assert "no file" in plan.left_out[0]
    write_placement(Placement.of(diamond, [0, 1, 0, 0]), tmp_path / "d1.placement", problem=diamond)
    assert plan_of(text, tmp_path).jobs[0].case.address != plan.jobs[0].case.address
    text = text.replace("{model}", "{model}-{seed}") + "seeds = [3, 4]\n"
    for seed, devices in ((3, [0, 0, 0, 0]), (4, [1, 1, 1, 1])):
        assert not plan_of(text, tmp_path).jobs  # one of them is not there
        write_placement(Placement.of(diamond, devices), tmp_path / f"d2-{seed}.placement", problem=diamond)
    jobs = plan_of(text, tmp_path).jobs
    assert [(job.case.seed, Path(job.files["path"]).name) for job in jobs] == [
        (3, "d2-3.placement"),
        (4, "d2-4.placement"),
    ]
    assert jobs[0].case.file_hashes != jobs[1].case.file_hashes


def test_best_single_device_is_the_best_feasible_one(diamond: Problem) -> None:
    """Four ops of 1 s on an accelerator beat four of 4 s on the CPU; a memory of 3 bytes leaves only the CPU."""
    assert best_single_device(diamond) == ("acc.0", 4.0)
    devices = tuple(d if d.is_host else d.replace(memory_bytes=3.0) for d in diamond.platform.devices)
    small = diamond.replace(platform=diamond.platform.replace(devices=devices))
    assert best_single_device(small) == ("cpu.0", 16.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = 3", "name is 3"),
        (TINY.replace("family", "familly"), "familly is an unknown field"),
        (
            TINY.replace('family = "chains"', 'family = "chains"\nzoo = "resnet50"'),
            "exactly one of file, zoo and family",
        ),
        (TINY.replace("5.0", "-1.0"), "time_limit_s is -1.0"),
        (TINY.replace('name = "heft"', 'name = "heft"\nobjectives = ["latency"]'), "names objective 'latency'"),
        (TINY.replace('name = "heft"', 'name = "heft"\ncontiguity = ["cyclic"]'), "heft names contiguity 'cyclic'"),
        (
            TINY + '[[platform]]\nname = "p"\ngroups = 2\ncosts = "published"\n',
            "published costs bring their own devices",
        ),
        (TINY + '[[platform]]\nname = "p"\ngroups = 2\nprecision = ["f32"]\n', "has 1 precisions for 2 groups"),
        ('name = "n"\n[[method]]\nname = "heft"\n', "neither a model nor a draw"),
        (TRAINING.replace("machines = [[4, 8.0], [8, 2.0]]", ""), "needs machines"),
        ("name = ", "not TOML"),
    ],
)
def test_broken_suites_are_refused(tmp_path: Path, text: str, message: str) -> None:
    """The message names the place, the value and what is expected."""
    with pytest.raises(InvalidFileError, match=message):
        plan_of(text, tmp_path)


def test_unknown_names_are_errors(tmp_path: Path) -> None:
    """A method, family, contiguity or suite that does not exist is no case that is left out."""
    for old, new in (('"heft"', '"hefty"'), ('"chains"', '"chain"'), ('"none"', '"nun"')):
        with pytest.raises(UnknownNameError, match=new.strip('"')):
            plan_of(TINY.replace(old, new), tmp_path)
    with pytest.raises(
        UnknownNameError,
        match="shipped suites are fine-tuning",
    ):
        read_suite("swift")


def test_a_missing_file_is_an_error_unless_it_is_optional(tmp_path: Path) -> None:
    """``optional = true`` leaves the model out."""
    text = 'name = "m"\n[[model]]\nfile = "absent.json"\n[[model]]\nfamily = "chains"\nparams = { num_ops = 20 }\n'
    text += '[[method]]\nname = "greedy"\n'
    with pytest.raises(InvalidFileError, match=r"there is no file absent\.json"):
        plan_of(text, tmp_path)
    assert len(plan_of(text.replace('"absent.json"', '"absent.json"\noptional = true'), tmp_path).jobs) == 1


def test_files_in_the_folders_of_their_origin_are_found_and_checked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Either layout gives the same cases; what is missing, and what has another content, is said with the origin."""
    text = (
        'name = "o"\norigin = "https://example.org/public"\n[elsewhere]\n"a/" = "theirs/"\n"a/second" = "other/2nd"\n'
        '[[model]]\nfile = "a/first.json"\nsha256 = "0123456789abcdef"\noptional = true\n'
        '[[model]]\nname = "second"\nfile = "a/second.json"\noptional = true\n'
        '[[model]]\nfile = "a/third.json"\noptional = true\n'
        '[[method]]\nname = "greedy"\n[[method]]\nname = "file"\nfiles = { path = "a/{model}.split.json" }\n'
    )
    problem = generate("chains", 20, seed=1, num_devices=2)
    other = generate("chains", 20, seed=2, num_devices=2)
    for name, each in (("theirs/first.json", problem), ("other/2nd.json", other)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pk.write_problem(each, tmp_path / name)
    placement = pk.solve(problem, "single").placement
    assert placement is not None
    pk.write_placement(placement, tmp_path / "theirs/first.split.json")
    jobs = plan_of(text, tmp_path).jobs
    assert [(job.facts["model"], job.case.method) for job in jobs] == [
        *(("first", "greedy"), ("first", "file"), ("second", "greedy"))
    ]
    told = "needs 1 of 3 files of https://example.org/public, which are not in"
    assert sum(told in record.getMessage() for record in caplog.records) == 1
    assert sum("sha256 differs" in record.getMessage() for record in caplog.records) == 1
    (tmp_path / "theirs").rename(tmp_path / "a")
    assert [job.facts["model"] for job in plan_of(text, tmp_path).jobs] == ["first", "first", "second"]


@pytest.mark.parametrize("is_theirs", [False, True])
def test_all_public_workloads_are_in_the_suite_of_papers(
    workloads: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, *, is_theirs: bool
) -> None:
    """In both layouts all 24 files are there, with their hashes, and the six splits of experts."""
    suite = read_suite("papers")
    folder = workloads
    if is_theirs:
        folder = tmp_path / "clone"
        names = [entry.file for entry in suite.content.model if entry.file]
        for name in (*names, *(f"experts/{path.name}" for path in (workloads / "experts").iterdir())):
            begin = max(filter(name.startswith, suite.content.elsewhere), key=len)
            target = folder / (suite.content.elsewhere[begin] + name.removeprefix(begin))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(workloads / name)
    plan = make_plan(read_suite("papers", folder), tmp_path / "results")
    ours = {(job.facts["model"], job.facts["objective"]) for job in plan.jobs}
    assert len([1 for _, objective in ours if objective == "throughput"]) == 16
    assert len([1 for _, objective in ours if objective == "offload-latency"]) == 8
    assert len({job.facts["model"] for job in plan.jobs if job.facts["label"] == "expert"}) == 6
    assert not [record for record in caplog.records if "sha256" in record.getMessage() or "left out" in record.message]


@pytest.mark.slow
@pytest.mark.zoo
def test_published_costs_are_those_of_the_two_kinds(tmp_path: Path) -> None:
    """A zoo model meets a CPU and an accelerator that is as much faster as published; other models are refused."""
    text = (
        'name = "p"\n[[model]]\nzoo = "resnet50"\nparams = { depths = [1, 1, 1, 1], width = 16 }\n'
        'objectives = ["serial-latency"]\n[[platform]]\nname = "pair"\ncosts = "published"\n'
        '[[objective]]\nname = "serial-latency"\n[[method]]\nname = "mincut"\n'
    )
    (job,) = plan_of(text, tmp_path).jobs
    assert isinstance(job.problem, Problem)
    assert job.problem.platform.device_names == ("cpu", "accelerator")
    cpu, accelerator = job.problem.costs.op_time_s.sum(axis=0)
    assert cpu / accelerator == pytest.approx(2.05, rel=0.01)
    other = text.replace("resnet50", "gpt2").replace("depths = [1, 1, 1, 1]", "layers = 1, heads = 2, vocabulary = 50")
    with pytest.raises(UnknownNameError, match="no published ratio for model 'gpt2'"):
        plan_of(other, tmp_path)


@pytest.mark.slow
@pytest.mark.zoo
def test_zoo_models_are_programs_too(tmp_path: Path) -> None:
    """``format = "pt2"`` builds the PyTorch program, whose ops have module paths; other models have no format."""
    text = (
        'name = "p"\n[[model]]\nzoo = "gpt2"\nformat = "pt2"\n'
        "params = { layers = 1, width = 32, heads = 2, vocabulary = 50 }\n"
        '[[platform]]\nname = "two"\nfile = "two.toml"\ncosts = "analytic"\n[[method]]\nname = "greedy"\n'
    )
    (tmp_path / "two.toml").write_text('[[device]]\nname = "GPU"\nkind = "t4"\ncount = 2\n')
    (job,) = plan_of(text, tmp_path).jobs
    assert isinstance(job.problem, Problem)
    assert any(".0." in name for name in job.problem.graph.op_names)
    (file,) = tmp_path.rglob("*.pt2")
    assert file.stem.startswith("gpt2-")
    with pytest.raises(InvalidFileError, match="format goes with zoo"):
        plan_of('name = "p"\n[[model]]\nfile = "a.xml"\nformat = "pt2"\n[[method]]\nname = "greedy"\n', tmp_path)


@pytest.mark.parametrize("name", shipped_suites())
def test_shipped_suites_are_valid(name: str) -> None:
    """Every shipped suite reads, says what it is, and names methods of the registry."""
    from placekit.solve.registry import METHODS
    from placekit.solvers.training_plan.solve import PLAN_METHODS

    suite = read_suite(name)
    assert suite.name == name
    assert suite.content.description
    for entry in suite.content.method:
        assert entry.name.partition(":")[0] in {*METHODS, *PLAN_METHODS}
    for platform in suite.content.platform:
        assert platform.file is None or (suite.home / platform.file).is_file()


def test_quick_takes_less_than_two_minutes_of_solving(tmp_path: Path) -> None:
    """The limits of all its cases together stay below 110 seconds."""
    plan = make_plan(read_suite("quick"), tmp_path)
    assert sum(job.case.time_limit_s for job in plan.jobs) <= 110
