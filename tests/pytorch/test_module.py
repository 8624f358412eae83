"""Programs that run without their module's code: whole, in parts, from a file and from memory."""

from __future__ import annotations

import pickle
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placekit.model.errors import InvalidFileError, SolverUnavailableError, UnsupportedProblemError
from placekit.pytorch.archive import check_target
from placekit.pytorch.module import random_inputs
from placekit.pytorch.source import TorchSource, read_pt2, read_torch

torch = pytest.importorskip("torch")
nn = torch.nn

import torch_modules as modules  # noqa: E402  # torch is there

NAMES = ("tied", "convolutional", "recurrent", "views", "perceptron", "changing", "infinite")


def flat(value: Any) -> list[Any]:
    """Return the tensors that a module returns, in torch's order."""
    return [each for each in torch.utils._pytree.tree_leaves(value) if isinstance(each, torch.Tensor)]


def saved(name: str, folder: Path) -> tuple[Any, tuple[Any, ...], list[TorchSource]]:
    """Return a module with its arguments, and its program, read from memory and from a file."""
    module, args = modules.examples()[name]
    exported = torch.export.export(module, args)
    torch.export.save(exported, folder / f"{name}.pt2")
    return module, args, [read_torch(exported, name=name), read_pt2(folder / f"{name}.pt2")]


@pytest.mark.parametrize("name", NAMES)
def test_a_program_gives_what_its_module_gives(name: str, tmp_path: Path) -> None:
    """On other numbers than those it was exported with."""
    module, _, sources = saved(name, tmp_path)
    for source in sources:
        inputs = random_inputs(source.lowered.program, seed=3)
        with torch.no_grad():
            expected, found = flat(module(*inputs)), source.builder().whole()(*inputs)
        assert len(expected) == len(found)
        for each, other in zip(expected, found, strict=True):
            torch.testing.assert_close(other, each)


def test_parts_of_a_program_give_the_whole(tmp_path: Path) -> None:
    """Cut anywhere: the tensors that cross are all that is needed."""
    module, _, (_, source) = saved("tied", tmp_path)
    lowered, builder = source.lowered, source.builder()
    graph, program = source.graph, lowered.program
    inputs = random_inputs(program)
    with torch.no_grad():
        expected = flat(module(*inputs))
        for cut in (3, 17, graph.num_ops - 4):
            before = graph.order[:cut].tolist()
            after = graph.order[cut:].tolist()
            made = {name for op in before for name in _made(lowered, op)}
            crossing = sorted(made)
            first = builder.part(before, program.inputs, crossing)
            second = builder.part(after, crossing, program.outputs)
            found = second(*first(*inputs))
            for each, other in zip(expected, found, strict=True):
                torch.testing.assert_close(other, each)


def _made(lowered: Any, op: int) -> tuple[str, ...]:
    node = lowered.node_of_op[op]
    return (
        ()
        if node < 0
        else tuple(each for each in lowered.program.nodes[node].outputs if each in lowered.program.tensors)
    )


def test_state_stays_from_call_to_call(tmp_path: Path) -> None:
    """Every module that is built counts for itself."""
    _, _, sources = saved("counter", tmp_path)
    for source in sources:
        one, other = source.builder().whole(), source.builder().whole()
        x = torch.ones(3, 4)
        first, second = one(x)[0], one(x)[0]
        torch.testing.assert_close(second, 2 * first)
        torch.testing.assert_close(other(x)[0], first)


def test_numbers_that_sizes_decide_are_computed(tmp_path: Path) -> None:
    """A batch that is given when the file is read: quotients, powers, roots and whole parts of it follow."""

    class Folded(nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            batch = x.shape[0]
            scale = torch.sym_sqrt(batch) + batch / 2 + batch**2 + torch.sym_int(batch / 3) - batch % 3
            return x.reshape(batch * 2, 4) * scale + torch.arange(2 * batch, dtype=torch.float32)[:, None]

    module = Folded()
    exported = torch.export.export(module, (torch.zeros(3, 8),), dynamic_shapes=({0: torch.export.Dim("b", max=99)},))
    torch.export.save(exported, tmp_path / "open.pt2")
    x = torch.randn(5, 8)
    for source in (read_pt2(tmp_path / "open.pt2", {"x": (5, 8)}), read_torch(exported, shapes={"x": (5, 8)})):
        torch.testing.assert_close(source.builder().whole()(x)[0], module(x))


def test_a_region_with_autocast_is_read_and_not_run(tmp_path: Path) -> None:
    """Operators would have to cast inside."""
    _, _, sources = saved("regions", tmp_path)
    for source in sources:
        with pytest.raises(UnsupportedProblemError, match="autocast, which is not run; export the module without it"):
            source.builder().whole()


def test_weights_of_a_file_have_memory_of_their_own(tmp_path: Path) -> None:
    """Torch would save all that is around them with each of them; tied ones share it."""
    _, _, (_, source) = saved("perceptron", tmp_path)
    for each in source.exported.state_dict.values():
        assert each.untyped_storage().nbytes() == each.numel() * each.element_size()
    _, _, (_, tied) = saved("tied", tmp_path)
    weights = tied.exported.state_dict
    assert weights["head.weight"].data_ptr() == weights["embedding.weight"].data_ptr()


def test_a_source_in_memory_can_be_sent(tmp_path: Path) -> None:
    """With its weights; one of a file reads them again."""
    _, args, sources = saved("perceptron", tmp_path)
    for source in sources:
        copy = pickle.loads(pickle.dumps(source))
        np.testing.assert_array_equal(copy.builder().whole()(*args)[0], source.builder().whole()(*args)[0])


def test_a_file_that_has_changed_is_not_run(tmp_path: Path) -> None:
    """One that is replaced stays as it was read here; another process reads the path again and says so."""
    _, args, (_, source) = saved("perceptron", tmp_path)
    expected = source.builder().whole()(*args)[0]
    _, _, (_, other) = saved("views", tmp_path)
    other.path.replace(source.path)
    torch.testing.assert_close(source.builder().whole()(*args)[0], expected)
    with pytest.raises(InvalidFileError, match="has changed since it was read"):
        pickle.loads(pickle.dumps(source))


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("torch.ops.nowhere.nothing.default", "not registered here"),
        ("torch.ops.load_library.__func__.__call__", "not registered here"),
        ("torch.ops.aten.from_file.default", "reads or writes files"),
        ("torch.ops.aten", "not registered here"),
    ],
)
def test_operators_that_are_not_run(target: str, says: str) -> None:
    """By name: whatever is no operator of torch, and those that reach for files."""
    with pytest.raises(UnsupportedProblemError, match=says):
        check_target(target)


def test_reading_needs_torch_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the line to install it."""
    _, _, (_, source) = saved("perceptron", tmp_path)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(SolverUnavailableError, match=r"needs torch: pip install 'placekit\[torch\]'"):
        read_pt2(source.path)


def test_weights_that_are_pickled_or_compressed_are_not_opened(tmp_path: Path) -> None:
    """Neither is a weight that is shorter than it says."""
    _, _, (_, source) = saved("perceptron", tmp_path)

    def changed(name: str, old: bytes) -> bytes:
        return old.replace(b'"use_pickle": false', b'"use_pickle": true') if "weights_config" in name else old

    for at, (compression, change, says) in enumerate(
        [
            (zipfile.ZIP_STORED, changed, "stored as a pickle or compressed, which is not opened"),
            (zipfile.ZIP_DEFLATED, lambda _, old: old, "stored as a pickle or compressed, which is not opened"),
            (zipfile.ZIP_STORED, lambda name, old: old[:8] if name.endswith("weight_0") else old, "has 8 bytes"),
        ]
    ):
        path = tmp_path / f"{at}.pt2"
        with zipfile.ZipFile(source.path) as archive, zipfile.ZipFile(path, "w", compression) as copy:
            for name in archive.namelist():
                copy.writestr(name, change(name, archive.read(name)))
        with pytest.raises(InvalidFileError, match=says):
            read_pt2(path).builder().whole()


def test_numbers_that_depend_on_values_are_refused() -> None:
    """In the module that reads them."""

    class Scaled(nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            return x * x.sum().item()

    with pytest.raises(UnsupportedProblemError, match="depends on the values of tensors"):
        read_torch(Scaled(), (torch.ones(3),)).builder().whole()
