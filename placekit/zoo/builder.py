"""Build a zoo model: torch module with random weights -> OpenVINO's converter -> IR file, or torch.export -> .pt2."""

from __future__ import annotations

import importlib
import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placekit import machine
from placekit.io.models.model import ModelSource
from placekit.io.models.openvino_graph import settle_names, short_reason
from placekit.io.models.read_model import read_model
from placekit.model.errors import InvalidFileError, InvalidProblemError, PlacekitError, SolverUnavailableError
from placekit.model.graph import DYNAMIC
from placekit.model.sizes import format_bytes
from placekit.zoo.registry import Value, ZooEntry, bytes_to_build, entry_of

if TYPE_CHECKING:
    import openvino
    import torch

logger = logging.getLogger(__name__)

_DYNAMIC_AXES = ("batch", "sequence")
_LARGEST_SEED = 2**63 - 1


@dataclass(frozen=True, eq=False)
class ZooModel:
    """A zoo model that was built, and what to say about it."""

    name: str  # name in the zoo
    values: Mapping[str, Value]  # value of every parameter
    seed: int  # seed of the weights
    source: ModelSource  # the model as it was read back from the file

    def facts(self) -> dict[str, int | float]:
        """Return counts and sizes, ready to print.

        ``nodes`` and ``edges`` are of the whole model (an edge joins an output port and an input port), ``ops`` and
        ``op_edges`` without constants (an edge joins two ops).
        """
        graph = self.source.graph
        return {
            "nodes": self.source.num_nodes,
            "edges": self.source.num_edges,
            "ops": graph.num_ops,
            "op_edges": graph.num_edges,
            "weight_bytes": float(graph.op_weight_bytes.sum()),
            "activation_bytes": float(graph.tensor_bytes.sum()),
            "flops": float(graph.op_flops.sum()),
        }

    def __repr__(self) -> str:
        facts = self.facts()
        return (
            f"ZooModel({self.name!r}: {facts['ops']} ops, {facts['op_edges']} edges "
            f"({facts['nodes']} nodes, {facts['edges']} edges with constants), {self.source.path.name})"
        )


def build(
    name: str, output: str | Path, *, seed: int = 0, dynamic: bool = False, half: bool = False, **params: Any
) -> ZooModel:
    """Build a zoo model with random weights and write it as an OpenVINO IR, or as a program of torch.export.

    Parameters
    ----------
    name
        A name in `ZOO`.
    output
        The ``.xml`` file to write, with the weights in the ``.bin`` next to it; or a ``.pt2`` file. Files appear
        complete or not at all.
    seed
        Seed of the weights, 0 or more: the same seed gives the same bytes. The global random state is left as it was.
    dynamic
        Leave the number of samples, and of tokens, open.
    half
        Store the constants in f16, each with a Convert behind it, as OpenVINO's converter does by default.
    **params
        Parameters of the model, see ``ZOO[name].parameters``.

    Raises
    ------
    UnknownNameError, InvalidProblemError
        No such model or parameter; a value or seed out of range, or a model for which there is not enough memory.
    InvalidFileError
        An output that is neither an ``.xml`` nor a ``.pt2`` file in a directory that exists.
    SolverUnavailableError
        torch or transformers is not installed.

    Examples
    --------
    >>> build("resnet50", "resnet50.xml")  # doctest: +SKIP
    ZooModel('resnet50': 123 ops, 138 edges (177 nodes, 192 edges with constants), resnet50.xml)
    """
    entry = entry_of(name)
    values = entry.settle(params)
    needed, has = bytes_to_build(name, values), machine.available_bytes()
    if needed > has:
        raise InvalidProblemError(
            f"zoo model {name!r} needs about {format_bytes(needed)} of memory to build; {format_bytes(has)} are left"
        )
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= _LARGEST_SEED:
        raise InvalidProblemError(f"zoo model {name!r}: seed is {seed!r}; it must be an integer from 0 to 2^63 - 1")
    output = Path(output)
    suffix = output.suffix.lower()
    if suffix not in {".xml", ".pt2"}:
        raise InvalidFileError(
            f"{output}: a zoo model is written as OpenVINO IR or by torch.export; the file must end in .xml or .pt2"
        )
    if half and suffix == ".pt2":
        raise InvalidProblemError(f"{output}: half goes with OpenVINO IR; a .pt2 file keeps the module's own types")
    if not output.parent.is_dir():
        raise InvalidFileError(f"{output}: there is no directory {output.parent}")
    missing = [package for package in ("torch", "transformers") if find_spec(package) is None]
    if missing:
        raise SolverUnavailableError(
            f'zoo model {name!r} needs {" and ".join(missing)}; install with: pip install "placekit[zoo]"'
        )
    with _quiet():
        if suffix == ".pt2":
            _export(entry, values, seed, output, dynamic=dynamic)
        else:
            _save(_convert(entry, values, seed, dynamic=dynamic), output, half=half)
    logger.info("wrote %s", output)
    return ZooModel(name, values, seed, read_model(output))


@contextmanager
def _blaming(entry: ZooEntry) -> Iterator[None]:
    try:
        yield
    except PlacekitError:
        raise
    except Exception as error:  # torch, transformers and the converter each raise types of their own
        raise InvalidProblemError(f"zoo model {entry.name!r} cannot be built: {short_reason(error)}") from error


def _module(entry: ZooEntry, values: Mapping[str, Value], seed: int) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """Return the module with random weights, and arguments that it takes."""
    import torch

    module_name, _, function = entry.builder.partition(":")
    # transformers draws from the global generator: fork it, so that the caller's is not touched
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module: torch.nn.Module = getattr(importlib.import_module(module_name), function)(values)
        example = {name: _example(name, shape, values) for name, shape in entry.input_shapes(values).items()}
    return module.eval(), example


def _convert(entry: ZooEntry, values: Mapping[str, Value], seed: int, *, dynamic: bool) -> openvino.Model:
    import openvino as ov

    with _blaming(entry):
        module, example = _module(entry, values, seed)
        open_axes = {
            input_name: [
                DYNAMIC if dynamic and dim in _DYNAMIC_AXES else size for dim, size in zip(dims, shape, strict=True)
            ]
            for (input_name, dims), shape in zip(entry.inputs.items(), entry.input_shapes(values).values(), strict=True)
        }
        model = ov.convert_model(
            module, example_input=example, input=[(name, ov.PartialShape(shape)) for name, shape in open_axes.items()]
        )
    model.set_friendly_name(entry.name)
    # layers that the converter fused lose their names to a counter of the process: the file would differ each time
    settle_names(model, ())
    return model


def _export(entry: ZooEntry, values: Mapping[str, Value], seed: int, output: Path, *, dynamic: bool) -> None:
    import torch

    from placekit.pytorch.source import export_module

    with _blaming(entry):
        module, example = _module(entry, values, seed)
        auto = torch.export.Dim.AUTO
        open_axes = {
            name: {axis: auto for axis, dim in enumerate(dims) if dim in _DYNAMIC_AXES}
            for name, dims in entry.inputs.items()
        }
        exported = export_module(module, (), example, open_axes if dynamic else None)
        with tempfile.TemporaryDirectory(prefix=f".{output.stem[:64]}.", dir=output.parent) as directory:
            temporary = Path(directory) / output.name
            torch.export.save(exported, temporary)
            temporary.replace(output)


def _example(name: str, shape: tuple[int, ...], values: Mapping[str, Any]) -> torch.Tensor:
    import torch

    if name == "attention_mask":
        return torch.ones(shape, dtype=torch.int64)
    return torch.randint(0, values["vocabulary"], shape) if name == "input_ids" else torch.randn(shape)


def _save(model: openvino.Model, output: Path, *, half: bool) -> None:
    """Write both files under temporary names, then rename: the weights first, so that the graph never lacks them."""
    import openvino as ov

    with tempfile.TemporaryDirectory(prefix=f".{output.stem[:64]}.", dir=output.parent) as directory:
        temporary = Path(directory) / "model.xml"
        ov.save_model(model, temporary, compress_to_fp16=half)
        temporary.with_suffix(".bin").replace(output.with_suffix(".bin"))
        temporary.replace(output)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the tracer's warnings about shapes that become constants, and transformers' remarks."""
    from transformers.utils import logging as transformers_logging

    level = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers_logging.set_verbosity(level)
