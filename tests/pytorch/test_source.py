"""PyTorch modules and saved programs as op graphs."""

from __future__ import annotations

import json
import logging
import pickle
import zipfile
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import placekit as pk
from placekit.cost_models.analytic import Analytic
from placekit.io.models.read_model import read_model
from placekit.model.errors import InvalidFileError, InvalidProblemError, PlacekitError, UnsupportedProblemError
from placekit.pytorch.source import TorchSource, read_pt2, read_torch

torch = pytest.importorskip("torch")
nn = torch.nn

import torch_modules as modules  # noqa: E402  # torch is there

NAMES = ("tied", "convolutional", "recurrent", "counter", "views", "perceptron")


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Any, Path]]:
    """Return a module's program and the file that torch saved it in."""
    folder, found = tmp_path_factory.mktemp("pt2"), {}

    def save(name: str) -> tuple[Any, Path]:
        if name not in found:
            module, args = modules.examples()[name]
            exported = torch.export.export(module, args)
            torch.export.save(exported, folder / f"{name}.pt2")
            found[name] = exported, folder / f"{name}.pt2"
        return found[name]

    return save


@pytest.mark.parametrize("name", NAMES)
def test_a_file_gives_the_graph_of_its_module(name: str, saved: Callable[[str], tuple[Any, Path]]) -> None:
    """The same ops, tensors, counts and weights."""
    exported, path = saved(name)
    of_module, of_file = read_torch(exported, name=name), read_pt2(path)
    assert of_file.graph == of_module.graph
    assert of_file.weight_bytes == of_module.weight_bytes
    assert of_file.module_of_op == of_module.module_of_op
    assert of_file.content_hash == of_module.content_hash
    assert not of_file.lowered.unknown
    assert isinstance(read_model(path), TorchSource)
    assert pickle.loads(pickle.dumps(of_file)).graph == of_file.graph


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_and_every_product_is_accounted_for(
    name: str, saved: Callable[[str], tuple[Any, Path]]
) -> None:
    """Bytes as the sum over parameters and buffers, tied ones once; products as torch's own counter has them."""
    from torch.utils.flop_counter import FlopCounterMode

    module, args = modules.examples()[name]
    source = read_torch(module, args)
    held = {each.untyped_storage()._cdata: each for each in (*module.parameters(), *module.buffers())}
    read = [each for each in held.values() if each.dtype.is_floating_point]  # batch norm's counter is not read
    assert source.weight_bytes == sum(each.untyped_storage().nbytes() for each in read)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(*args)
    dense = {"MatMul", "Convolution", "GroupConvolution", "ConvolutionBackpropData", "ScaledDotProductAttention"}
    counted = sum(
        flops for flops, kind in zip(source.graph.op_flops, source.graph.op_types, strict=True) if kind in dense
    )
    if name != "recurrent":  # torch counts nothing in these
        assert counted == pytest.approx(counter.get_total_flops(), rel=0.2 if name == "tied" else 1e-12)


def test_an_lstm_is_counted_by_its_matrices() -> None:
    """Two layers, two directions: products of every step, and 17 per hidden element."""
    module, args = modules.examples()["recurrent"]
    graph = read_torch(module, args).graph
    steps, hidden = 2 * 7, 5
    first, second = 2 * (4 * hidden * 6 + 4 * hidden * hidden), 2 * (4 * hidden * 2 * hidden + 4 * hidden * hidden)
    expected = steps * (2 * (first + second) + 4 * 17 * hidden)
    assert graph.op_flops[graph.op_types.index("LSTMSequence")] == expected


def test_ops_are_named_by_module_and_views_are_free() -> None:
    """Paths of modules as users write them; what only reshapes costs nothing with any cost model."""
    module, args = modules.examples()["tied"]
    source = read_torch(module, args)
    graph = source.graph
    assert "layers.1.up.linear" in graph.op_names
    assert source.module_of_op[graph.op_index["layers.1.up.linear"]] == "layers.1.up"
    assert graph.op_names[0] == "ids"
    assert graph.op_names[-2:] == ("output", "output#2")
    platform = pk.Platform.of(a10=2)
    problem = source.problem(platform, Analytic().cost_table(source, platform))
    views = np.array([kind == "View" for kind in graph.op_types])
    assert views.sum() == 18
    assert (problem.costs.op_time_s[views] == 0).all()
    pinned = problem.pin({"layers.0.*": "a10.0", "layers.1.*": "a10.1"})
    result = pk.solve(pinned)
    assert result.status == "optimal"
    assert result.placement is not None
    assert result.placement["layers.1.up.linear"] == "a10.1"


def test_a_tied_weight_is_on_every_device_that_reads_it() -> None:
    """Counted once in the sum, and at each of its readers where memory is limited."""
    module, args = modules.examples()["tied"]
    source = read_torch(module, args)
    table = 50 * 32 * 4
    graph = source.graph
    assert graph.op_weight_bytes[graph.op_index["embedding.embedding"]] == table
    assert graph.op_weight_bytes[graph.op_index["head.linear"]] == table
    assert graph.op_weight_bytes.sum() == source.weight_bytes + table


def test_a_view_of_a_weight_counts_all_of_it(saved: Callable[[str], tuple[Any, Path]]) -> None:
    """Two slices of a parameter are that parameter, once; what is expanded is there once, two halves are two."""
    exported, path = saved("views")
    for source in (read_torch(exported, name="views"), read_pt2(path)):
        weights = dict(zip(source.graph.op_names, source.graph.op_weight_bytes.tolist(), strict=True))
        assert weights["cat"] == 100 * 8 * 4
        assert weights["mul"] == 8 * 4
        assert (weights["add_1"] if "add_1" in weights else weights["add#2"]) == 2 * 8 * 4
        assert source.weight_bytes == (100 * 8 + 8 + 4 * 8) * 4


def test_a_buffer_that_is_changed_by_a_view_stays_with_its_reader() -> None:
    """A cache: one row is written, another op reads all of it."""

    class Cache(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("rows", torch.zeros(4, 8))

        def forward(self, x: Any) -> Any:
            self.rows[1].copy_(x)
            return torch.relu(x) + self.rows.sum(0)

    source = read_torch(Cache(), (torch.ones(8),))
    label = dict(zip(source.graph.op_names, source.colocation.tolist(), strict=True))
    assert label["copy_"] == label["sum"] != label["relu"]
    edges = {
        (source.graph.op_names[u], source.graph.op_names[v])
        for u, v in zip(source.graph.senders, source.graph.receivers, strict=True)
    }
    assert ("copy_", "sum") in edges


def test_a_buffer_that_changes_stays_with_its_reader() -> None:
    """State belongs to one device, whether it is changed in place or by an assignment."""
    module, args = modules.examples()["counter"]
    exported = torch.export.export(module, args)
    in_place = read_torch(exported)
    writer, reader = in_place.graph.op_index["add_"], in_place.graph.op_index["mul"]
    assert (writer, reader) in set(zip(in_place.graph.senders.tolist(), in_place.graph.receivers.tolist(), strict=True))
    functional = read_torch(exported.run_decompositions({}))
    assign = functional.graph.op_index["calls.assign"]
    assert functional.graph.op_types[assign] == "Assign"
    for source, op in ((in_place, writer), (functional, assign)):
        (label,) = {source.colocation[op]}
        others = [name for name, each in zip(source.graph.op_names, source.colocation, strict=True) if each == label]
        assert "scale.linear" not in others
    assert (functional.colocation == functional.colocation[assign]).sum() == 2


def test_what_reads_changed_memory_comes_after_the_change() -> None:
    """An operator that works in place hands on no value that others read; the order is still there."""

    class Zeroed(nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            y = x + 1
            y[:, 0].zero_()
            return y * 2

    graph = read_torch(Zeroed(), (torch.ones(3, 4),)).graph
    edges = {(graph.op_names[u], graph.op_names[v]) for u, v in zip(graph.senders, graph.receivers, strict=True)}
    assert {("add", "select"), ("select", "zero_"), ("zero_", "mul"), ("add", "mul")} <= edges


def test_open_dimensions_take_the_sizes_that_are_given(tmp_path: Path) -> None:
    """Counts grow with the batch, in both readers."""
    module, _ = modules.examples()["perceptron"]
    batch = torch.export.Dim("batch", max=4096)
    exported = torch.export.export(module, (torch.zeros(5, 8),), dynamic_shapes=({0: batch},))
    torch.export.save(exported, tmp_path / "open.pt2")
    path, given = tmp_path / "open.pt2", {"input": (50, 8)}
    for small, large in (
        (read_torch(exported), read_torch(exported, shapes=given)),
        (read_pt2(path), read_pt2(path, given)),
    ):
        assert small.inputs[0].shape == (5, 8)
        assert large.inputs[0].shape == (50, 8)
        np.testing.assert_allclose(large.graph.op_flops, 10 * small.graph.op_flops)
        assert large.weight_bytes == small.weight_bytes
        assert large.content_hash != small.content_hash


class Branching(nn.Module):  # type: ignore[misc,name-defined]
    """Its flow depends on data."""

    def forward(self, x: Any) -> Any:
        """Return x or its double."""
        return x if x.sum() > 0 else 2 * x


class Choosing(nn.Module):  # type: ignore[misc,name-defined]
    """Its flow depends on data, as torch can export it."""

    def forward(self, x: Any) -> Any:
        """Return x or its double."""
        return torch.cond(x.sum() > 0, lambda y: y.clone(), lambda y: 2 * y, (x,))


class Looping(nn.Module):  # type: ignore[misc,name-defined]
    """Runs a body often, by one of torch's operators."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Any) -> Any:
        """Return what the last body gives, or all of them."""
        find: Any = {
            name: getattr(import_module(f"torch._higher_order_ops.{name}"), name)
            for name in ("map", "scan", "while_loop")
        }.__getitem__
        if self.kind == "while":
            return find("while_loop")(lambda y: y.sum() < 9, lambda y: (y + 1,), (x,))[0]
        if self.kind == "scan":
            return find("scan")(lambda carry, y: (carry + y, carry * y), x[0], x)[1]
        return find("map")(lambda y: y * 2, x)


class Leaving(nn.Module):  # type: ignore[misc,name-defined]
    """Leaves torch inside of forward."""

    def forward(self, x: Any) -> Any:
        """Return x and a sum of numpy's."""
        return x + float(x.numpy().sum())


class Importing(nn.Module):  # type: ignore[misc,name-defined]
    """Imports a package that nobody has."""

    def forward(self, x: Any) -> Any:
        """Return nothing."""
        import no_such_package  # type: ignore[import-not-found]

        return no_such_package.double(x)


class Unregistered(nn.Module):  # type: ignore[misc,name-defined]
    """Calls an operator that has no fake kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.library = torch.library.Library("placekit_tests", "FRAGMENT")
        self.library.define("twice(Tensor x) -> Tensor")
        self.library.impl("twice", lambda x: 2 * x, "CPU")

    def forward(self, x: Any) -> Any:
        """Return the double of x."""
        return torch.ops.placekit_tests.twice(x)


def test_regions_that_always_run_are_read_like_the_rest() -> None:
    """A body costs what its calls cost; it carries the module of each of them."""
    module, args = modules.examples()["regions"]
    exported = torch.export.export(module, args)
    assert "wrap_with_set_grad_enabled" in str(exported.graph)
    source = read_torch(exported)
    assert not any("." in name for name in source.lowered.program.outputs)
    graph = source.graph
    linear = [op for op, name in enumerate(graph.op_names) if name.partition("#")[0] in ("a.linear", "b.linear")]
    assert len(linear) == 8
    assert {graph.op_flops[op] for op in linear} == {2 * 5 * 8 * 8}
    assert {graph.op_weight_bytes[op] for op in linear} == {4 * (8 * 8 + 8)}


def nested(module: Any) -> Any:
    """Return a sequence whose second layer is `module`."""
    return nn.Sequential(nn.Identity(), module)


@pytest.mark.parametrize(
    ("module", "args", "says"),
    [
        (
            nested(Branching()),
            (torch.zeros(3),),
            r"module '1' \(Branching\) of Sequential \(forward, line .*torch\.where",
        ),
        (nested(Leaving()), (torch.zeros(3),), r"module '1' \(Leaving\) of .*; torch\.export cannot follow that code"),
        (
            nested(Importing()),
            (torch.zeros(3),),
            r"module '1' \(Importing\) of .*; install the package 'no_such_package'",
        ),
        (nested(Unregistered()), (torch.zeros(3),), r"module '1' \(Unregistered\) of .*; register a fake kernel"),
        (
            nested(nn.Linear(3, 4)),
            (torch.zeros(3, 5),),
            r"'1' \(Linear\) of .* arguments that were given: float32\[3, 5\]",
        ),
        (Branching(), (torch.zeros(3),), r"module Branching.* cannot be exported: .*torch\.where or torch\.cond"),
        (Choosing(), (torch.zeros(3),), r"calls higher_order\.cond: which branch of control flow runs is not known"),
        (Looping("while"), (torch.zeros(3),), r"calls higher_order\.while_loop: how often its body runs is not known"),
        (Looping("scan"), (torch.zeros(3, 3),), r"calls higher_order\.scan: its body runs once for every element"),
        (Looping("map"), (torch.zeros(3, 3),), r"calls higher_order\.map_impl: its body runs once for every element"),
        (nn.Linear(3, 4), (torch.zeros(3, 5),), r"module Linear.* cannot be exported: .*runs with the arguments"),
    ],
)
def test_what_cannot_be_exported_is_told_in_one_line(module: Any, args: tuple[Any, ...], says: str) -> None:
    """With the module and what to do."""
    with pytest.raises(UnsupportedProblemError, match=says) as raised:
        read_torch(module, args)
    assert "\n" not in str(raised.value)


def test_what_is_no_module_or_no_arguments_is_told() -> None:
    """A file's name, a tensor instead of a tuple, dimensions that are none."""
    with pytest.raises(InvalidProblemError, match=r"a str is no module; give a torch\.nn\.Module"):
        read_torch("model.pt2")  # type: ignore[arg-type]
    linear = nn.Linear(3, 4)
    with pytest.raises(InvalidProblemError, match=r"module Linear: example_args is a tensor; .*as a tuple"):
        read_torch(linear, torch.zeros(2, 3))
    with pytest.raises(UnsupportedProblemError, match="check dynamic_shapes"):
        read_torch(linear, (torch.zeros(2, 3),), dynamic_shapes={"nope": None})


def test_unknown_operators_are_named(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """They count one operation per output element, and never silently."""

    class Odd(nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            return torch.special.bessel_j0(x)

    logger = logging.getLogger("placekit.pytorch.source")
    monkeypatch.setattr(logger, "disabled", False)  # a library that configures logging may have disabled it
    monkeypatch.setattr(logging.getLogger("placekit"), "disabled", False)
    caplog.set_level(logging.WARNING, logger.name)
    source = read_torch(Odd(), (torch.zeros(6),))
    assert source.lowered.unknown == {"aten.special_bessel_j0.default": 1}
    assert source.graph.op_flops.sum() == 6
    assert "aten.special_bessel_j0.default (1)" in caplog.text


class Evil:
    """Pickled, it writes a file when it is loaded."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.target,)


def rewritten(path: Path, target: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    """Copy an archive with some parts changed, or left out."""
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(target, "w") as copy:
        for name in source.namelist():
            content = change(name, source.read(name))
            if content is not None:
                copy.writestr(name, content)
    return target


def test_no_code_of_a_file_runs(saved: Callable[[str], tuple[Any, Path]], tmp_path: Path) -> None:
    """Pickled parts are not even opened."""
    _, path = saved("perceptron")
    evil = pickle.dumps(Evil(tmp_path / "owned"))
    changed = rewritten(path, tmp_path / "evil.pt2", lambda name, old: evil if "sample_inputs" in name else old)
    assert read_pt2(changed).graph.num_ops == read_pt2(path).graph.num_ops
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "not an archive"), (b"PK\x03\x04garbage", "not an archive"), (b'{"a": 1}', "not an archive")],
)
def test_files_that_are_no_archives(tmp_path: Path, content: bytes, says: str) -> None:
    """One line with the path."""
    path = tmp_path / "model.pt2"
    path.write_bytes(content)
    with pytest.raises(InvalidFileError, match=says):
        read_pt2(path)
    with pytest.raises(InvalidFileError, match="No such file"):
        read_pt2(tmp_path / "none.pt2")


def test_archives_without_a_program(saved: Callable[[str], tuple[Any, Path]], tmp_path: Path) -> None:
    """A part that is missing, or is too large to be one."""
    _, path = saved("perceptron")
    without = rewritten(path, tmp_path / "a.pt2", lambda name, old: None if "/models/" in name else old)
    with pytest.raises(InvalidFileError, match="no program of torch"):
        read_pt2(without)
    bare = rewritten(path, tmp_path / "b.pt2", lambda name, old: None if "weights_config" in name else old)
    with pytest.raises(InvalidFileError, match="is not in the state dict"):
        read_pt2(bare)
    huge = rewritten(path, tmp_path / "c.pt2", lambda name, old: b"1" * (129 << 20) if "/models/" in name else old)
    with pytest.raises(InvalidFileError, match="are the limit"):
        read_pt2(huge)


MUTATIONS: st.SearchStrategy[tuple[Any, Any]] = st.tuples(
    st.randoms(use_true_random=False), st.sampled_from([None, -1, 1e308, "", "x", [], {}, True, 2**70])
)


def mutate(document: Any, chance: Any, value: Any) -> None:
    """Replace one value somewhere in a JSON document, or take it out."""
    node = document
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return
        key = chance.choice(keys)
        inner = node[key]
        if isinstance(inner, dict | list) and inner and chance.random() < 0.85:
            node = inner
        elif chance.random() < 0.3:
            del node[key]
            return
        else:
            node[key] = value
            return


@settings(max_examples=60, deadline=None)
@given(MUTATIONS)
def test_mutated_programs_are_refused_or_read(
    saved: Callable[[str], tuple[Any, Path]], tmp_path_factory: pytest.TempPathFactory, told: tuple[Any, Any]
) -> None:
    """Whatever stands in the JSON: a graph, or an error of placekit."""
    check_mutant(saved("perceptron")[1], tmp_path_factory.mktemp("mutants"), *told)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(MUTATIONS)
def test_1000_mutated_programs(
    saved: Callable[[str], tuple[Any, Path]], tmp_path_factory: pytest.TempPathFactory, told: tuple[Any, Any]
) -> None:
    """The same, more often, of a larger program."""
    check_mutant(saved("tied")[1], tmp_path_factory.mktemp("mutants"), *told)


def check_mutant(path: Path, folder: Path, chance: Any, value: Any) -> None:
    """Read a file with one change."""

    def change(name: str, old: bytes) -> bytes:
        if not name.endswith(".json") or chance.random() < 0.2:
            return old
        document = json.loads(old)
        mutate(document, chance, value)
        return json.dumps(document).encode()

    with suppress(PlacekitError):
        assert read_pt2(rewritten(path, folder / "mutant.pt2", change)).graph.num_ops > 0
