"""Method ``file:PATH``: a placement from a file, scored like any other.

`PATH` is a placement file (:mod:`placekit.io.files.placement_json`), or the split of a public workload's ops by a human
expert: an object with lists `fpgas` and `cpus` of node ids. They are the ids of the workload file that the problem was
read from, or of the one given as parameter `workload` or after a second colon (``file:SPLIT:WORKLOAD``).
Ops that a split leaves out follow those of their colour class, so a split of the forward ops suffices for a training
graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from placekit.io.files.placement_json import read_placement
from placekit.io.files.schemas import SplitModel, WorkloadModel
from placekit.io.files.workload_json import node_ids
from placekit.io.reading import blaming, read_json, validated
from placekit.model.errors import InvalidFileError, InvalidProblemError
from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.solve.method import Method, Run, no_shared_memory
from placekit.solve.params import read_params
from placekit.solve.stop import StopReason


@dataclass(frozen=True, slots=True)
class FileParams:
    """Parameters of `FilePlacement`.

    Parameters
    ----------
    path
        The placement or split.
    workload
        Workload file that the node ids of a split belong to; None for the file that the problem was read from.
    default_device
        Device of the ops that a placement file leaves out; None for the file's own.
    """

    path: str = ""
    workload: str | None = None
    default_device: str | None = None

    def __post_init__(self) -> None:
        if not self.path:
            raise InvalidProblemError("method 'file' needs the path of a placement: say file:PATH")


class FilePlacement(Method):
    """The placement in a file, neither repaired nor improved; the judge names broken constraints."""

    name = "file"
    params_type = FileParams
    params: FileParams

    def supports(self, problem: Problem) -> str | None:
        """Return None without memory that ops share; the placement is given."""
        return no_shared_memory(problem)

    @classmethod
    def from_params(cls, argument: str | None, params: Mapping[str, Any]) -> Self:
        """Make the method; ``file:PATH`` names the file, ``file:SPLIT:WORKLOAD`` a split and its workload."""
        given = dict(params)
        if argument:
            given["path"] = argument
            split, colon, workload = argument.rpartition(":")
            if colon and not Path(argument).exists() and Path(split).exists():
                given |= {"path": split, "workload": workload}
        return cls(read_params(FileParams, cls.name, given))

    def knows_pools(self, problem: Problem) -> bool:  # noqa: ARG002
        """Return True: the judge counts them."""
        return True

    def run(self, run: Run) -> StopReason:
        """Offer the placement.

        Raises `InvalidFileError`: the file is broken, or places other ops or devices than the problem's.
        """
        run.offer(self._read(run.problem))
        return StopReason.FINISHED

    def _read(self, problem: Problem) -> Placement:
        path = self.params.path
        data = read_json(path)
        if not (isinstance(data, dict) and isinstance(data.get("fpgas"), list)):
            return read_placement(path).for_problem(problem, self.params.default_device)
        devices = self._split(problem, data)
        with blaming(path):
            return Placement.from_mapping(problem, devices)

    def _split(self, problem: Problem, data: Mapping[str, Any]) -> dict[str, str]:
        """Return device by op name; ops that the split leaves out follow an op that they share a device with."""
        path, names = self.params.path, problem.graph.op_names
        split = validated(SplitModel, data, path)
        op_of_id = self._op_of_id(problem)
        devices: dict[str, str] = {}
        device_of_class: dict[int, str] = {}
        for field, parts, prefix in (("fpgas", split.fpgas, "ACC"), ("cpus", split.cpus, "CPU")):
            for at, part in enumerate(parts):
                for node in part.nodes:
                    op = op_of_id.get(str(node))
                    if op is None:
                        raise InvalidFileError(
                            f"{path}: {field}[{at}] names node {node}, and {problem.name!r} has no op of this id. If "
                            "the ids are those of another file, say `--param workload=FILE`"
                        )
                    if names[op] in devices:
                        raise InvalidFileError(f"{path}: {field}[{at}] places node {node} a second time")
                    devices[names[op]] = f"{prefix}.{at}"
                    device_of_class.setdefault(int(problem.op_class[op]), f"{prefix}.{at}")
        for name, its_class in zip(names, problem.op_class.tolist(), strict=True):
            if name not in devices:
                follows = device_of_class.get(its_class)
                if follows is None:
                    raise InvalidFileError(f"{path}: op {name!r} is placed nowhere")
                devices[name] = follows
        return devices

    def _op_of_id(self, problem: Problem) -> dict[str, int]:
        workload = self.params.workload
        if workload is None:
            ids = node_ids(problem)
            return {str(name): op for op, name in enumerate(problem.graph.op_names if ids is None else ids)}
        nodes = validated(WorkloadModel, read_json(workload), workload).nodes
        if len(nodes) != problem.graph.num_ops:
            raise InvalidFileError(
                f"{workload}: has {len(nodes)} nodes; {problem.name!r} has {problem.graph.num_ops} ops"
            )
        return {str(node.id): op for op, node in enumerate(nodes)}
