"""What imports what: a light package, and an order among its rooms."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import networkx as nx
import pytest

pytestmark = pytest.mark.xdist_group("imports")  # one process parses the files, once

ROOT = Path(__file__).parents[1]

ROOMS = (
    "core",
    "cost_models",
    "solvers",
    "runtime",
    "cluster",
    "exports",
    "language",
    "learned",
    "benchmarks",
    "cli",
    "page",
)
"""Lowest first; a room imports only from itself and from those before it."""

LINKED = tuple(room for room in ROOMS[1:] if room not in ("runtime", "cluster", "exports", "language", "page"))
"""Rooms that are folders of their own, with a link in ``placekit/``."""

UPWARD = {
    # the lazy public names, and the same names for type checkers
    ("placekit/__init__.py", "placekit.benchmarks.generators.shops"),
    ("placekit/__init__.py", "placekit.cost_models.analytic"),
    ("placekit/__init__.py", "placekit.cost_models.openvino.devices"),
    ("placekit/__init__.py", "placekit.language.decoder"),
    ("placekit/__init__.py", "placekit.language.model"),
    ("placekit/__init__.py", "placekit.language.planning.answer"),
    ("placekit/__init__.py", "placekit.language.planning.planner"),
    ("placekit/__init__.py", "placekit.language.planning.question"),
    ("placekit/__init__.py", "placekit.language.planning.read_line"),
    ("placekit/__init__.py", "placekit.language.report"),
    ("placekit/__init__.py", "placekit.language.runtimes"),
    ("placekit/__init__.py", "placekit.language.serving"),
    ("placekit/__init__.py", "placekit.language.task"),
    ("placekit/__init__.py", "placekit.runtime.timing"),
    ("placekit/__init__.py", "placekit.cost_models.profiled"),
    ("placekit/__init__.py", "placekit.cost_models.registry"),
    ("placekit/__init__.py", "placekit.solve.registry"),
    ("placekit/__init__.py", "placekit.solvers.training_plan.solve"),
    # what a handover costs is measured with the pipeline itself
    ("cost_models/measured/executor_costs.py", "placekit.runtime.pipelines.idle"),
    # `python -m placekit`
    ("placekit/__main__.py", "placekit.cli.main"),
}


def room_of_module(name: str) -> str | None:
    """Return the room of a ``placekit...`` module; None for other packages."""
    first, _, rest = name.partition(".")
    if first != "placekit":
        return None
    room, _, inside = rest.partition(".")
    if inside.split(".")[0] == "commands":  # commands of a product stand in its room, and belong to the command line
        return "cli"
    return room if room in ROOMS else "core"


def room_of_file(relative: str) -> str:
    """Return the room of a file of the package, by its path from the root."""
    top, _, rest = relative.partition("/")
    inner = rest.partition("/")[0] if top == "placekit" else top
    if "commands" in Path(relative).parts[:-1]:
        return "cli"
    return inner if inner in ROOMS else "core"


@cache
def imported_modules(path: Path) -> set[str]:
    """Return the absolute names of all modules that a file imports, at any depth of its code."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            # `from placekit import cli` names a room as much as `import placekit.cli` does
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def calls(path: Path, word: str) -> list[ast.Call]:
    """Return the calls in a file; none if the file has not this word, which a file is searched for sooner."""
    text = path.read_text()
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)] if word in text else []


def source_files() -> list[Path]:
    """Return every Python file of the package, once (links are skipped)."""
    folders = [ROOT / "placekit", *(ROOT / room for room in LINKED)]
    linked = {ROOT / "placekit" / room for room in LINKED}
    return [
        path
        for folder in folders
        for path in sorted(folder.rglob("*.py"))
        if not any(link in path.parents for link in linked)
    ]


def test_rooms_import_downwards_only() -> None:
    """A room imports nothing of those above it in `ROOMS`."""
    files = source_files()
    assert len(files) > 50
    wrong = []
    for path in files:
        relative = path.relative_to(ROOT).as_posix()
        room = room_of_file(relative)
        for module in sorted(imported_modules(path)):
            target = room_of_module(module)
            is_allowed = any(
                relative == file and (module == name or module.startswith(f"{name}.")) for file, name in UPWARD
            )
            if target is not None and ROOMS.index(target) > ROOMS.index(room) and not is_allowed:
                wrong.append(f"{relative} imports {module}")
    assert not wrong


def test_running_needs_no_solver() -> None:
    """The runtime imports the core and the cost models; it runs placements, whoever found them."""
    wrong = [
        f"{path.relative_to(ROOT).as_posix()} imports {module}"
        for path in sorted((ROOT / "placekit" / "runtime").rglob("*.py"))
        for module in sorted(imported_modules(path))
        if room_of_module(module) == "solvers"
    ]
    assert not wrong


def test_a_source_says_itself_what_it_is() -> None:
    """What measures, runs and exports a model is asked of its source, whose class only PyTorch's own files look at."""
    asking = [
        path.relative_to(ROOT).as_posix()
        for path in source_files()
        if "pytorch" not in path.parts
        and re.search(r"isinstance\([^()]*(\([^()]*\))?[^()]*(TorchSource|ModelSource)", path.read_text())
    ]
    assert not asking


PRODUCTS = ("language", "exports", "page", "training", "learned", "benchmarks", "solvers.training_plan")


def test_the_command_line_knows_no_product() -> None:
    """Language models, training plans, learned placers and benchmarks bring their commands by a table."""
    wrong = [
        f"{path.relative_to(ROOT).as_posix()} imports {module}"
        for path in sorted((ROOT / "cli").rglob("*.py"))
        for module in sorted(imported_modules(path))
        if module.removeprefix("placekit.").startswith(PRODUCTS)
    ]
    assert not wrong
    code = (
        "import sys; from placekit.cli.command_table import COMMANDS;"
        f"assert not [name for name in sys.modules if name.removeprefix('placekit.').startswith({PRODUCTS})];"
        "[command.load() for command in COMMANDS.values()]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


LEAVES = {
    "language": ("placekit/page/",),
    "training": ("solvers/training_plan/",),  # the methods of this product
    "exports": ("placekit/language/",),
    "zoo": ("cli/commands/zoo.py",),
    "plotting": (
        "cli/commands/show.py",
        "cli/output/views.py",
        "placekit/language/commands/",
        "placekit/page/",
        "placekit/training/commands/",
    ),
    "pytorch": ("cost_models/pytorch/", "placekit/runtime/", "placekit/zoo/"),  # measure, run and build programs
    "page": (),
    "learned": (),
    "benchmarks": (),
}
"""Rooms of products, each with what may import it beside its own commands and the benchmarks: its command elsewhere."""


def test_products_are_leaves() -> None:
    """The commands of a product, benchmarks and the lazy public names import it; nothing else does."""
    wrong = [
        f"{relative} imports {module}"
        for path in source_files()
        if (relative := path.relative_to(ROOT).as_posix()) not in ("placekit/__init__.py", "placekit/__main__.py")
        for module in sorted(imported_modules(path))
        if (room := module.removeprefix("placekit.").partition(".")[0]) in LEAVES and module.startswith("placekit.")
        if not relative.startswith((f"placekit/{room}/", f"{room}/", "benchmarks/", *LEAVES[room]))
    ]
    assert not wrong


@cache
def rooms() -> ModuleType:
    """Return the module that writes the tables and the picture of the rooms."""
    spec = spec_from_file_location("rooms", ROOT / "docs" / "rooms.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("inside", ["", "solvers"])
def test_no_circle_of_rooms(inside: str) -> None:
    """Also none that only type checkers see. Commands of a product belong to the command line."""
    graph = rooms().graph_of_rooms(inside)
    assert len(graph) > 10
    assert [sorted(circle) for circle in nx.strongly_connected_components(graph) if len(circle) > 1] == []


def test_tables_and_picture_of_the_rooms_are_current() -> None:
    """``make rooms`` writes them anew, from docstrings and imports."""
    written = rooms()
    for path, updated in ((written.PAGE, written.updated_page), (written.PICTURE, written.updated_picture)):
        assert updated(path.read_text()) == path.read_text(), f"{path.name}: run `python docs/rooms.py`"


MOST_MODULES = 14


def test_folders_are_small() -> None:
    """A folder has at most `MOST_MODULES` modules, not counting ``__init__.py``, which says what they are."""
    count = Counter(path.parent for path in source_files() if path.name != "__init__.py")
    assert {folder.relative_to(ROOT).as_posix(): num for folder, num in count.items() if num > MOST_MODULES} == {}


CORE_ROOMS = (
    "machine",
    "kernel_cache",
    "kernel_tuples",
    "kernels",
    "arrays",
    "model",
    "plugins",
    "objectives",
    "solve",
)
"""Parts of the core, lowest first: everything else in ``placekit/`` may import them, and they nothing else."""


def test_the_core_knows_nobody() -> None:
    """Each of `CORE_ROOMS` imports itself and those before it, inside functions too."""

    def height(module: str) -> int | None:
        inside = module.removeprefix("placekit.")
        found = [i for i, room in enumerate(CORE_ROOMS) if inside == room or inside.startswith(f"{room}.")]
        return min(found, default=None)

    wrong = []
    for path in source_files():
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        own = height(name)
        if own is None:
            continue
        for module in sorted(imported_modules(path)):
            if module.startswith("placekit."):
                other = height(module)
                if other is None or other > own:
                    wrong.append(f"{name} imports {module}")
    assert not wrong


def test_no_circle_of_imports() -> None:
    """Also none inside functions, and none that only type checkers see."""
    files = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in source_files()}
    modules = {
        (name if name.startswith("placekit") else f"placekit.{name}").removesuffix(".__init__"): path
        for name, path in files.items()
    }
    graph: nx.DiGraph[str] = nx.DiGraph()
    for name, path in modules.items():
        graph.add_edges_from((name, other) for other in imported_modules(path) & set(modules) if other != name)
    graph.remove_node("placekit")  # its lazy names look at everything
    assert [sorted(circle) for circle in nx.strongly_connected_components(graph) if len(circle) > 1] == []


MAKESPAN_ROOMS = ("schedule", "lists", "bounds", "decomposition", "search", "exact")
"""Rooms of `placekit.solvers.makespan`, lowest first."""


def test_rooms_of_makespan_import_downwards_only() -> None:
    """Schedule < lists < bounds < decomposition < search < exact; every room's docstring names all of its modules."""
    home, prefix = ROOT / "solvers" / "makespan", "placekit.solvers.makespan."
    wrong = []
    for room in MAKESPAN_ROOMS[1:]:
        guide = ast.get_docstring(ast.parse((home / room / "__init__.py").read_text())) or ""
        for path in sorted((home / room).glob("*.py")):
            if path.stem != "__init__" and f"`{path.stem}`" not in guide:
                wrong.append(f"{room}/__init__.py does not name {path.stem}")
            for module in sorted(imported_modules(path)):
                target = module.removeprefix(prefix).partition(".")[0]
                if module.startswith(prefix) and MAKESPAN_ROOMS.index(target) > MAKESPAN_ROOMS.index(room):
                    wrong.append(f"{room}/{path.name} imports {module}")
    assert not wrong


def test_import_placekit_is_light() -> None:
    """``import placekit`` loads no solver, no framework and no runtime."""
    heavy = ("torch", "openvino", "ortools", "pulp", "highspy", "scipy", "pydantic", "numba", "matplotlib")
    code = f"import sys, placekit; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_public_names_exist() -> None:
    """``dir(placekit)`` is the list of public names: each can be had, the lazy ones too, and none is a module."""
    import placekit

    names = dir(placekit)
    assert names == sorted(set(placekit.__all__))
    assert {"read_model", "solve", "evaluate", "explain", "Method", "Run", "Profiled", "register_method"} <= set(names)
    for name in names:
        value = getattr(placekit, name)
        assert value is not None
        assert isinstance(value, ModuleType) == (name == "errors"), name


SOLVER_ROOMS = {
    "params": 0,
    "backends": 0,
    "generic": 1,
    "chain": 1,
    "assignment": 2,
    "throughput": 3,
    "serial_latency": 3,
    "offload_latency": 3,
    "makespan": 3,
    "training_plan": 3,
    "sequence": 4,
}
"""Height of the rooms of `solvers`; a room imports from itself and from lower ones."""

ASIDE = {
    # one call a device: the best split for throughput is a start
    ("offload_latency", "throughput"),
}


def test_rooms_of_solvers_import_downwards_only() -> None:
    """Backends, parameters < generic < assignment < objectives < sequences and the table, which looks by name."""
    wrong = []
    for path in sorted((ROOT / "solvers").rglob("*.py")):
        relative = path.relative_to(ROOT / "solvers")
        room = relative.parts[0].removesuffix(".py")
        for module in sorted(imported_modules(path)):
            parts = module.split(".")
            if parts[:2] != ["placekit", "solvers"] or len(parts) < 3 or room == "__init__":
                continue
            target = parts[2]
            is_below = SOLVER_ROOMS[target] < SOLVER_ROOMS[room]
            if target != room and not is_below and (room, target) not in ASIDE:
                wrong.append(f"solvers/{relative.as_posix()} imports {module}")
    assert not wrong


def test_no_method_asks_which_objective_it_has() -> None:
    """The table chooses; a class serves one objective, or what every objective offers."""
    names = ("Throughput", "SerialLatency", "OffloadLatency", "Makespan")
    asking = [
        f"{path.relative_to(ROOT).as_posix()}: {ast.unparse(node)}"
        for path in source_files()
        if path.relative_to(ROOT).parts[0] in ("placekit", "solvers", "learned")
        and "enumeration" not in path.parts  # it bounds beginnings of placements by the formulas of four objectives
        and "language" not in path.parts  # plans of whole blocks minimise one of two objectives, which the goal names
        and "verification" not in path.parts  # the second judge has formulas of its own, so as to share none
        for node in calls(path, "isinstance")
        if isinstance(node.func, ast.Name)
        and node.func.id == "isinstance"
        and any(name in ast.unparse(node.args[1]) for name in names)
    ]
    assert not asking


def test_info_is_a_report_and_never_a_control() -> None:
    """Methods write to ``run.info``, and none reads it: what they share travels in typed fields."""
    reads = re.compile(r"(?<!info=)(?<!\"info\": )\b(?:self\.)?run\.info(?!\[[^]]*\] = | \|= |\.update\()")
    reading = [
        f"{path.relative_to(ROOT).as_posix()}: {line.strip()}"
        for path in source_files()
        if path.relative_to(ROOT).parts[0] in ("placekit", "solvers", "learned")
        for line in path.read_text().splitlines()
        if reads.search(line) and "``run.info" not in line
    ]
    assert not reading


def test_unknown_name_is_an_attribute_error() -> None:
    """A name that does not exist fails as in any module."""
    import placekit

    with pytest.raises(AttributeError, match="no attribute 'slove'"):
        _ = placekit.slove


def test_library_never_prints() -> None:
    """``print`` is called in cli/ and benchmarks/ only."""
    printing = [
        path.relative_to(ROOT).as_posix()
        for path in source_files()
        if path.relative_to(ROOT).parts[0] not in ("cli", "benchmarks")
        for node in calls(path, "print")
        if isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not printing


def test_one_core_of_openvino_serves_a_process() -> None:
    """A second one that ends before the first makes a segmentation fault of the next Ctrl-C (see `shared_core`)."""
    makers = {
        path.relative_to(ROOT).as_posix()
        for path in (*source_files(), *(ROOT / "tests").rglob("*.py"))
        for node in calls(path, "Core")
        if re.fullmatch(r"(ov|openvino|require\('openvino'.*\))\.Core", ast.unparse(node.func))
    }
    # what reads a file alone loads no plugin
    assert makers == {"cost_models/openvino/devices.py", "placekit/io/models/openvino_ir.py"}
