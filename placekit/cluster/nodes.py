"""Costs of a platform of several machines: every node measures its own devices, by the worker that has its name."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from placekit.cluster.engine import Cluster, ClusterError
from placekit.cluster.links import with_measured_links
from placekit.cost_models.base import Progress, report
from placekit.cost_models.kind_profile import KindProfile
from placekit.cost_models.measured.executor_costs import ExecutorCosts
from placekit.cost_models.profiled import Measured, Profiled
from placekit.io.models.model import ModelSource
from placekit.io.models.read_model import read_model
from placekit.model.errors import InvalidProblemError, PlacekitError
from placekit.model.platform import Platform

_LOGGER = logging.getLogger(__name__)

PACKAGES = ("placekit", "numpy", "openvino", "torch")
"""Packages whose versions have to be the same where costs are measured."""
_ALIKE = 0.1
"""Relative difference of a kind's times on two nodes from which on the output says so."""


@dataclass(frozen=True)
class Nodes:
    """Measures on the nodes of a cluster, as `Profiled.nodes`."""

    cluster: Cluster
    linked: list[Platform] = field(default_factory=list)  # platforms with measured links, the last one at the end

    def __call__(
        self, profiled: Profiled, source: ModelSource, platform: Platform, progress: Progress | None
    ) -> tuple[Measured, Platform, Mapping[str, Any]]:
        """Measure the devices of every node on it, all nodes at once, and then the links between them.

        Raises
        ------
        InvalidProblemError
            Devices without a node.
        ClusterError
            A node without a worker, or one whose worker left and did not come back.
        """
        nodes = nodes_of(platform)
        self.cluster.require_same_versions(PACKAGES)
        self.cluster.by_node(nodes)  # all have to be there
        model, there = SentModel.of(source), replace(profiled, nodes=None)
        own = {node: platform.with_devices(d for d in platform.devices if d.node == node) for node in nodes}
        report(progress, 0, len(nodes) + 1, f"measuring on {', '.join(nodes)}")
        measured = self.cluster.on_nodes(
            _measure, {node: (node, there, model, own[node]) for node in nodes},
            lambda done: report(progress, done, len(nodes) + 1, "nodes measured"),
        )  # fmt: skip
        report(progress, len(nodes), len(nodes) + 1, "links between nodes")
        linked, told = with_measured_links(self.cluster, platform, self.cluster.by_node(nodes))
        self.linked.append(linked)
        return _joined(measured), linked, told


def nodes_of(platform: Platform) -> list[str]:
    """Return the nodes of a platform, of which each device has to have one."""
    nodes = list(dict.fromkeys(device.node for device in platform.devices))
    if None in nodes:
        raise InvalidProblemError(
            f"--cluster: device {platform.device_names[0]!r} has no node; name the machine of every device by "
            '`node = "NAME"` in a --platform file, as `dask worker --name NAME` does'
        )
    return [str(node) for node in nodes]


@dataclass(frozen=True)
class SentModel:
    """A model on its way to other machines: its files, and the shapes of its inputs."""

    name: str  # of the file that is read
    files: Mapping[str, bytes]
    shapes: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, source: ModelSource) -> Self:
        """Return the files of `source`."""
        from placekit.io.models.onnx import model_files

        path = source.path
        kinds = {".xml": [path, path.with_suffix(".bin")], ".onnx": model_files(path) if path.suffix == ".onnx" else []}
        files = [each for each in kinds.get(path.suffix.lower(), [path]) if each.is_file()]
        content = {str(each.relative_to(path.parent)): each.read_bytes() for each in files}
        return cls(path.name, content, dict(source.shapes))

    @contextmanager
    def read(self) -> Iterator[ModelSource]:
        """Read the model from a folder that is there inside the block."""
        with tempfile.TemporaryDirectory(prefix="placekit-") as folder:
            for name, content in self.files.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            yield read_model(Path(folder) / self.name, self.shapes)


def _measure(node: str, profiled: Profiled, model: SentModel, platform: Platform) -> Measured:
    """Measure on this machine, which is `node`."""
    try:
        with model.read() as source:
            return profiled.measure(source, platform)
    except PlacekitError as error:
        raise ClusterError(f"node {node!r}: {error}") from None


def _joined(measured: Mapping[str, Measured]) -> Measured:
    """Return the measurements of all nodes; of a kind that several nodes have the slowest."""
    profiles: dict[str, KindProfile] = {}
    for kind in dict.fromkeys(kind for each in measured.values() for kind in each.profiles):
        of_node = {node: each.profiles[kind] for node, each in measured.items() if kind in each.profiles}
        total_s = {node: float(profile.group_time_s.sum()) for node, profile in of_node.items()}
        slowest, fastest = (pick(total_s, key=total_s.__getitem__) for pick in (max, min))
        if total_s[slowest] > total_s[fastest] * (1 + _ALIKE):
            _LOGGER.warning(
                "kind %r takes %.3g ms on node %r and %.3g ms on %r: the slower counts; kinds of their own tell them "
                "apart", kind, 1e3 * total_s[fastest], fastest, 1e3 * total_s[slowest], slowest,
            )  # fmt: skip
        profile = of_node[slowest]
        profiles[kind] = replace(profile, meta={**profile.meta, "node": slowest, "total_s_of_nodes": total_s})
    parts = list(measured.values())
    pairs_s = [each.executor.pair_s for each in parts if each.executor.pair_s is not None]
    calls_s = {kind: call_s for each in parts for kind, call_s in each.executor.call_s.items()}
    cpus = dict.fromkeys(str(each.circumstances["cpu"]) for each in parts)
    return Measured(
        profiles,
        {kind: spec for each in parts for kind, spec in each.specs.items() if kind not in profiles},
        {kind: link for each in reversed(parts) for kind, link in each.links.items()},
        ExecutorCosts(calls_s, max(pairs_s, default=None)),
        {**parts[0].circumstances, "cpu": ", ".join(cpus)},
    )
