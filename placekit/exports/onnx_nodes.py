"""The devices of the nodes of an ONNX file, and copies of the file that say them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from placekit.exports.kept import require_kept
from placekit.io.atomic import is_special, write_bytes
from placekit.io.folders import copy_file, link_or_copy, written_together
from placekit.io.models.onnx import external_files, names_of_nodes, read_nodes, tensors_of
from placekit.io.reading import inside
from placekit.model.errors import UnsupportedProblemError
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement

if TYPE_CHECKING:
    import onnx


def labelled_nodes(
    source: Path, runtime: str, graph: OpGraph, placement: Placement, key: str, labels: Sequence[str]
) -> onnx.ModelProto:
    """Return an ONNX file whose nodes have the label of their device, by index, as metadata entry `key`.

    Weights in files beside the model stay there. Nodes inside control flow have the label of theirs. Raises as
    `devices_of_nodes`.
    """
    model = read_nodes(source)
    devices = devices_of_nodes(model, runtime, graph, placement)
    for top, device in zip(model.graph.node, devices, strict=True):
        for node in _with_bodies(top):
            for entry in [entry for entry in node.metadata_props if entry.key == key]:
                node.metadata_props.remove(entry)
            entry = node.metadata_props.add()
            entry.key, entry.value = key, labels[device]
    return model


def devices_of_nodes(model: onnx.ModelProto, runtime: str, graph: OpGraph, placement: Placement) -> list[int]:
    """Return the device of every node.

    A node is where the op of its name is, or of one of its outputs if it has none. One that conversion folded or
    renamed follows the nodes that read it, or else those that it reads. Nodes inside control flow stay with theirs.

    Raises `UnsupportedProblemError`: no node has the name of an op: another model; ops of one node on two devices; a
    device without nodes.
    """
    nodes = list(model.graph.node)
    names = names_of_nodes(model)[: len(nodes)]
    named = {name: at for at, name in enumerate(names) if name}
    for at, node in enumerate(nodes):
        if not names[at]:
            for name in node.output:
                named.setdefault(name, at)
    node_of_op = _node_of_op(graph, named)
    device: list[int | None] = [None] * len(nodes)
    for op, at in sorted(node_of_op.items(), key=lambda each: graph.op_names[each[0]] not in named):  # its own op first
        if device[at] is None:
            device[at] = int(placement.device_of_op[op])
    if all(found is None for found in device):
        raise UnsupportedProblemError(f"{graph.name!r}: no node of the ONNX model has the name of an op")
    maker = {name: at for at, node in enumerate(nodes) for name in node.output}
    for at in reversed(range(len(nodes))):  # ONNX lists nodes in topological order
        for name in nodes[at].input:
            if name in maker and device[maker[name]] is None:
                device[maker[name]] = device[at]
    for at, node in enumerate(nodes):
        if device[at] is None:
            device[at] = next((device[maker[name]] for name in node.input if name in maker), None)
    fallback = next(found for found in device if found is not None)
    settled = [fallback if found is None else found for found in device]
    # what the converter adds around a node, such as a change of type, goes with it
    counted = (graph.op_flops > 0) | (graph.op_weight_bytes > 0)
    counted |= [name in named for name in graph.op_names]
    require_kept(
        runtime, graph, placement, ((op, placement.team_name(settled[at])) for op, at in node_of_op.items()), counted
    )
    return settled


def _node_of_op(graph: OpGraph, named: Mapping[str, int]) -> dict[int, int]:
    """Return the node of every op that was made of one: of several ops one has its name, others ``name/Type``."""
    found: dict[int, int] = {}
    for op, (name, op_type) in enumerate(zip(graph.op_names, graph.op_types, strict=True)):
        if op_type in ("Parameter", "Result"):  # a Result has the name of a tensor, and is no node
            continue
        stem, _, number = name.rpartition("#")
        plain = stem if number.isdecimal() else name
        for each in (name, plain, plain.rpartition("/")[0]):
            if each in named:
                found[op] = named[each]
                break
    return found


def _with_bodies(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """Yield a node and those of its bodies."""
    yield node
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            for inner in body.node:
                yield from _with_bodies(inner)


def write_copy(
    model: onnx.ModelProto,
    source: Path,
    target: Path,
    beside: Mapping[str, bytes] | None = None,
    check: Callable[[Path], object] | None = None,
) -> list[Path]:
    """Write `model`, a changed copy of `source`, with the files that `beside` has by name; return all files.

    Weights in files are read from there if the copy is in the folder of `source`, and are copied to ``TARGET.data``
    otherwise: they are never in memory. `check` is called with the copy before it takes its place; what it raises
    leaves everything as it was.
    """
    stays = target.resolve().parent == source.resolve().parent
    external = external_files(model)
    if is_special(target):
        if external:
            raise UnsupportedProblemError(f"{source} has weights in files beside it: give -o a file in a folder")
        write_bytes(target, model.SerializeToString())
        return [target]
    copied = {} if stays else {name: _name_beside(target, at) for at, name in enumerate(external)}
    for tensor in tensors_of(model):
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = copied.get(entry.value, entry.value)
    with written_together(target) as folder:
        for name in external:
            file = inside(source.parent, name, source)
            if name in copied:
                copy_file(file, folder / copied[name])
            elif check is not None:
                link_or_copy(file, folder / name)
        write_bytes(folder / target.name, model.SerializeToString())
        for name, content in (beside or {}).items():
            write_bytes(folder / name, content)
        if check is not None:
            check(folder / target.name)
        if stays:
            for name in external:
                (folder / name).unlink(missing_ok=True)
    return [target, *(target.with_name(name) for name in (*copied.values(), *(beside or {})))]


def _name_beside(target: Path, at: int) -> str:
    return f"{target.name}.data{f'.{at}' * (at > 0)}"
