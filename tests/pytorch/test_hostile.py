"""Archives made to run code or to hang whoever reads them: refused by name, or read without doing what they say."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placekit.model.errors import InvalidFileError, PlacekitError, UnsupportedProblemError
from placekit.model.placement import Placement
from placekit.model.platform import Device, Platform
from placekit.pytorch.archive import check_target
from placekit.pytorch.module import random_inputs
from placekit.pytorch.source import TorchSource, read_pt2
from placekit.runtime.bundles.bundle import write_bundle
from placekit.runtime.stages.torch_stages import plan_torch_stages

torch = pytest.importorskip("torch")

CALL = "__import__('pathlib').Path('MARKER').touch()"
NAMES = (
    f"x={CALL}",
    f"x):\n    {CALL}\n    pass\ndef other(x",
    f"x; {CALL}",
    f"x\n{CALL}",
    f"x', {CALL}, '",
    'x"' + f" + {CALL} #",
    "import",
    "self",
    "torch",
    "\u2028x",
)


def rewritten(module: Any, args: tuple[Any, ...], folder: Path, change: Callable[[str], str]) -> Path:
    """Export a module, and change every JSON text of the archive."""
    whole, path = folder / "whole.pt2", folder / "hostile.pt2"
    torch.export.save(torch.export.export(module, args), whole)
    with zipfile.ZipFile(whole) as archive, zipfile.ZipFile(path, "w") as copy:
        for name in archive.namelist():
            content = archive.read(name)
            copy.writestr(name, change(content.decode()) if name.endswith(".json") else content)
    return path


def renamed(old: str, new: str) -> Callable[[str], str]:
    """Return what replaces a name wherever it stands as a whole text."""
    return lambda text: text.replace(json.dumps(old), json.dumps(new))


class Two(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Two layers, for two stages."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        """Return the output."""
        return self.second(torch.relu(self.first(x)))


def run_everything(path: Path, folder: Path) -> None:
    """Read a file, run it whole, and write it as two stages; errors must be placekit's own."""
    try:
        source = read_pt2(path)
        source.builder().whole()(*random_inputs(source.lowered.program))
        write_bundle(two_stages(source), folder / "bundle")
    except PlacekitError as error:
        assert 0 < len(str(error)) < 20_000  # noqa: PT017  # every error is one of these


def two_stages(source: TorchSource) -> Any:
    """Return a plan with a cut in the middle."""
    platform = Platform(tuple(Device(f"cpu{at}", "cpu", is_host=True, openvino="CPU") for at in range(2)))
    device = (np.arange(source.graph.num_ops) >= source.graph.num_ops // 2).astype(np.int64)
    return plan_torch_stages(source, Placement(source.graph.op_names, platform.device_names, device), platform)


@pytest.mark.parametrize("old", ["x", "relu", "first.weight", "p_first_weight", "linear_1", "input"])
@pytest.mark.parametrize("new", NAMES)
def test_names_are_no_code(old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of inputs, tensors between stages, weights and outputs; torch.fx writes names into the code that it runs."""
    monkeypatch.chdir(tmp_path)
    run_everything(rewritten(Two(), (torch.zeros(3, 4),), tmp_path, renamed(old, new)), tmp_path)
    assert not (tmp_path / "MARKER").exists()


@pytest.mark.parametrize(
    "path",
    [
        "first.bias", "__class__.weight", "forward.__globals__", "_parameters", "training", "class.def", "..", "", "a.",
        'w"+__import__(chr(112)+"athlib")', "x\\", "first.weight.bias",
    ],
)  # fmt: skip
def test_paths_of_weights_lead_nowhere_else(path: str, tmp_path: Path) -> None:
    """Names of the module class's own attributes, of keywords, and of nothing."""
    file = rewritten(Two(), (torch.zeros(3, 4),), tmp_path, renamed("second.weight", path))
    run_everything(file, tmp_path)


@pytest.mark.parametrize(
    "target",
    [
        "os.system", "posix.system", "builtins.eval", "torch.hub.load", "torch.ops.aten.__class__.mro",
        "subprocess.run", "torch.ops.aten.linear.__call__", "torch.ops.load_library.default",
        "_operator.attrgetter", "math.__loader__", "torch.ops.higher_order.__class__", "torch.ops.aten.relu",
        "torch.ops.higher_order.cond.__call__",
        "torch.ops.debugprims.load_tensor.default", "torch.ops.profiler._record_function_enter.default",
        "torch.ops._c10d_functional.wait_tensor.default", "torch.ops.aten.save.default", "os.system; import os",
    ],
)  # fmt: skip
def test_targets_are_operators_or_refused(target: str, tmp_path: Path) -> None:
    """Nothing but registered operators of torch and of packages that are imported is ever called."""
    file = rewritten(Two(), (torch.zeros(3, 4),), tmp_path, renamed("torch.ops.aten.relu.default", target))
    with pytest.raises(UnsupportedProblemError, match=r"hostile\.pt2: it calls .*(not run|not registered here)"):
        read_pt2(file)


def test_sizes_and_metadata_are_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's own reader evaluates the one, and looks the other up."""
    monkeypatch.chdir(tmp_path)

    def size(text: str) -> str:
        hostile = {"as_expr": {"expr_str": CALL, "hint": {"as_int": 4}}}
        return text.replace('{"as_int": 4}', json.dumps(hostile))

    def metadata(text: str) -> str:
        document = json.loads(text)
        for node in document["graph_module"]["graph"]["nodes"] if "graph_module" in document else ():
            node["metadata"]["source_fn_stack"] = f"x,torch.hub.load;x,{CALL}"
        return json.dumps(document)

    with pytest.raises(InvalidFileError, match="is not arithmetic"):
        read_pt2(rewritten(Two(), (torch.zeros(3, 4),), tmp_path, size))
    assert read_pt2(rewritten(Two(), (torch.zeros(3, 4),), tmp_path, metadata)).graph.num_ops > 0
    assert not (tmp_path / "MARKER").exists()


def test_bodies_inside_of_bodies_are_refused_by_name(tmp_path: Path) -> None:
    """A nesting that JSON allows and the stack does not."""

    def changed(text: str) -> str:
        document = json.loads(text)
        if "graph_module" not in document:
            return text
        call = '{"target": "t", "outputs": [], "inputs": [{"name": "", "arg": {"as_graph": {"name": "g", "graph": '
        body = '{"inputs": [], "outputs": [], "tensor_values": {}, "nodes": ['
        document["graph_module"]["graph"]["nodes"].append("HERE")
        nested = (call + body) * 2000 + "]}}}]}" * 2000
        return json.dumps(document).replace('"HERE"', nested)

    file = rewritten(Two(), (torch.zeros(3, 4),), tmp_path, changed)
    with pytest.raises(InvalidFileError, match=r"hostile\.pt2"):
        read_pt2(file)


def test_a_namespace_has_to_be_one_that_may_run() -> None:
    """Those of torch that compute, of packages that are imported, and of operators that the program itself made."""

    def twice(x: Any) -> Any:
        return x * 2

    torch.library.custom_op("placekit_hostile::twice", twice, mutates_args=(), schema="(Tensor x) -> Tensor")
    check_target("torch.ops.placekit_hostile.twice.default")
    check_target("torch.ops.aten.__and__.Tensor")
    with pytest.raises(UnsupportedProblemError, match="symm_mem"):
        check_target("torch.ops.symm_mem.one_shot_all_reduce.default")
