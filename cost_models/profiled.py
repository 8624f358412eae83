"""Costs measured on this machine, through OpenVINO or torch.

Every kind of device of the platform is measured once, on the cores, threads and precision of its first device, and
kinds with the same configuration share one measurement. OpenVINO measures the CPU with its profiling counters inside
the whole model, other devices with one submodel per fused group (:mod:`placekit.cost_models.openvino.counters` and
:mod:`~placekit.cost_models.openvino.submodels`). Torch runs every distinct op by itself
(:mod:`placekit.cost_models.pytorch.profile`).
"""

from __future__ import annotations

import datetime
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.analytic import roofline
from placekit.cost_models.base import Backend, Progress, backend_of
from placekit.cost_models.described import anchor_of, described_specs
from placekit.cost_models.kind_profile import KindProfile, on_anchors
from placekit.cost_models.measured.cache import ProfileCache
from placekit.cost_models.measured.executor_costs import ExecutorCosts, executor_costs
from placekit.cost_models.measured.measuring import LoadMeter, measuring
from placekit.cost_models.measured.stage_costs import HAND_OVER
from placekit.cost_models.memory_model import op_memory
from placekit.cost_models.openvino.groups import join_groups
from placekit.cost_models.openvino.machine import cpu_name, running_on, usable_cores
from placekit.cost_models.sheets.device_table import DeviceSpec
from placekit.model.costs import CostTable
from placekit.model.errors import InvalidProblemError, UnsupportedProblemError
from placekit.model.graph import OpGraph
from placekit.model.platform import Device, Link, Platform

if TYPE_CHECKING:
    import openvino

    from placekit.io.models.model import ModelSource

_LOGGER = logging.getLogger(__name__)

_SCHEMA = 2
"""Version of what a cache entry means; raised when measuring changes."""

_SMALL_ERROR = 0.1
"""Relative error at which a measurement is good enough, and is not repeated."""
_RETRY_AFTER_S = 600.0
"""Age at which one with a larger error is worth another try; before that, all commands use the same one."""


@dataclass(frozen=True)
class Measured:
    """Measurements of the kinds of device of one machine or of several, before they are joined to a table."""

    profiles: Mapping[str, KindProfile]  # by kind
    specs: Mapping[str, DeviceSpec]  # of kinds that are not there, by kind
    links: Mapping[str, tuple[Link | None, str]]  # to host memory, and where each comes from, by kind
    executor: ExecutorCosts
    circumstances: Mapping[str, Any]  # versions and processor, for the provenance


@dataclass(frozen=True)
class Profiled:
    """Cost model that measures.

    An op's seconds are those of its *fused group*: what OpenVINO executes together cannot be timed, or cut, apart.
    The whole time of a group stands on its member with the most FLOPs (the first in topological order among equals),
    the other members have 0; ``CostTable.op_group`` names the groups, so only the sum per group means something.
    Groups of kinds that fuse differently are joined until all kinds agree.

    Times of the CPU add up to a whole inference, of which the counters miss up to a tenth. Of a PyTorch program every
    op is a group of its own, and the times of every device add up to a run of the whole module.

    An op's memory is its weights plus its output tensors. A tensor's transfer time comes from the link of the kind:
    given by the platform, else measured; a host has none, but converts some tensors where they enter or leave, which is
    measured, too (:mod:`placekit.cost_models.openvino.hand_over`). What a pipeline takes for a call of a stage and for
    a handover is among the ops and the transfers (:mod:`placekit.cost_models.measured.executor_costs`).

    The error of a kind stands in the provenance: that of several measurements from their differences, that of one from
    the spread of its repetitions. If other load took more than `max_foreign_load` even of the quietest measurement, the
    error is at least that share.

    A device that is not on this machine is modelled if the platform file gives it a `spec`, beside at least one that is
    measured (:mod:`placekit.cost_models.described`); the provenance says of every kind which of the two it is.

    Parameters
    ----------
    repetitions
        Least number of measured inferences; times are medians.
    max_foreign_load
        Share of the cores' time, 0 to 1, that other load may take before a measurement counts as disturbed.
    budget_s
        Seconds per kind for which a measurement with an error above 10 % is repeated; of every group of ops the lowest
        time is kept.
    seed
        Seed of the inputs.
    cache
        Where measurements are kept; None to measure anew and keep nothing. Those with an error above 10 % are used for
        ten minutes; after that they are measured again, and merged.
    core
        OpenVINO core; the shared one if None.
    nodes
        Measures a platform of several machines in place of `measure`; called with this cost model, the source, the
        platform and `progress`, it also returns the platform with measured links, and what to tell of these.

    Raises
    ------
    InvalidProblemError
        A parameter outside its range.

    Examples
    --------
    >>> from placekit.cost_models.openvino.devices import core_groups
    >>> costs = Profiled(repetitions=9).cost_table(read_model("model.xml"), core_groups(2))  # doctest: +SKIP
    """

    repetitions: int = 15
    max_foreign_load: float = 0.1
    budget_s: float = 10.0
    seed: int = 0
    cache: ProfileCache | None = ProfileCache()  # noqa: RUF009  # frozen, holds no state
    core: openvino.Core | None = None
    nodes: Callable[..., tuple[Measured, Platform, Mapping[str, Any]]] | None = None

    def __post_init__(self) -> None:
        if self.repetitions < 3:
            raise InvalidProblemError(
                f"profiled: repetitions is {self.repetitions}; at least 3 are needed for a median"
            )
        if not 0 <= self.max_foreign_load <= 1:
            raise InvalidProblemError(f"profiled: max_foreign_load is {self.max_foreign_load}; it is a share, 0 to 1")
        if not self.budget_s >= 0:
            raise InvalidProblemError(f"profiled: budget_s is {self.budget_s}; it must be >= 0")

    @property
    def name(self) -> str:
        """Short name of the cost model."""
        return "profiled"

    def cost_table(
        self, source: ModelSource | OpGraph, platform: Platform, *, progress: Progress | None = None
    ) -> CostTable:
        """Measure every op of `source` on every kind of `platform`.

        Parameters
        ----------
        source
            A model with static shapes that was read from a file.
        platform
            Devices that this machine has, each with its OpenVINO device string, or torch's as the property ``torch``;
            others need a `spec`.
        progress
            Called with (done, total, label) as work goes on.

        Raises
        ------
        UnsupportedProblemError
            A bare graph, which cannot be run, or a model that cannot be split where it has to be.
        InvalidFileError
            A model with inputs of unknown shape.
        DeviceUnavailableError
            A device that this machine does not have and that has no spec.
        ProfileError
            A device that cannot run the model.
        """
        if isinstance(source, OpGraph):
            raise UnsupportedProblemError(
                f"graph {source.name!r} cannot be measured, it has no model behind it; use analytic costs, or read a "
                "model file"
            )
        source.require_static()
        measured_links: Mapping[str, Any] = {}
        if self.nodes is None:
            measured = self.measure(source, platform, progress)
        else:
            measured, platform, measured_links = self.nodes(self, source, platform, progress)
        profiles, specs, links, executor = measured.profiles, measured.specs, measured.links, measured.executor
        graph = source.graph
        op_group = join_groups(graph, [profile.op_group for profile in profiles.values()])
        columns = {kind: on_anchors(graph, profile, op_group) for kind, profile in profiles.items()}
        told: dict[str, Any] = {kind: {"source": "measured", **profile.meta} for kind, profile in profiles.items()}
        if specs:
            here = {kind: (time_s, spread) for kind, (time_s, spread, _) in columns.items()}
            anchor = anchor_of(graph, op_group, platform, here, source.numbers)
            for kind, spec in specs.items():
                time_s, supported = roofline(graph, op_group, spec, source.numbers)
                columns[kind] = (anchor.ratio * time_s, np.full(graph.num_ops, np.nan), supported)
                told[kind] = {
                    "source": "described",
                    "spec": spec.to_dict(),
                    "anchor": anchor.to_dict(),
                    "error": anchor.error_of(time_s),
                }
        for kind, (time_s, spread, supported) in columns.items():
            columns[kind] = (executor.with_call(kind, time_s), spread, supported)
        ends_s = {
            kind: executor.ends_s(graph) * (origin in ("host", "measured")) for kind, (_, origin) in links.items()
        }
        transfers = [
            ends_s[kind]
            + (_tensor_time_s(graph, profiles.get(kind)) if link is None else link.time_s(graph.tensor_bytes))
            for kind, (link, _) in links.items()
        ]
        op_memory_bytes, blocks = op_memory(source, op_group)
        return CostTable(
            kinds=platform.kinds,
            op_time_s=np.stack([columns[kind][0] for kind in platform.kinds], axis=1),
            transfer_time_s=np.stack(transfers, axis=1),
            direct_links=platform.direct_link_names,
            direct_time_s=platform.direct_times_s(graph.tensor_bytes),
            op_memory_bytes=op_memory_bytes,
            blocks=blocks,
            supported=np.stack([columns[kind][2] for kind in platform.kinds], axis=1),
            op_group=op_group,
            op_time_spread=np.stack([columns[kind][1] for kind in platform.kinds], axis=1),
            provenance={
                "source": "profiled",
                "model": graph.name,
                "content_hash": source.content_hash,
                **measured.circumstances,
                "num_groups": int(op_group.max()) + 1,
                "kinds": {kind: told[kind] for kind in platform.kinds},
                "links": {
                    kind: {"source": origin, **(link.to_dict() if link else {})}
                    for kind, (link, origin) in links.items()
                },
                **({"links_between_nodes": measured_links} if measured_links else {}),
                HAND_OVER: {kind: float(each.max(initial=0.0)) for kind, each in ends_s.items()},
                "stage_call_s": dict(executor.call_s),
            },
        )

    def measure(self, source: ModelSource, platform: Platform, progress: Progress | None = None) -> Measured:
        """Measure what of `platform` is on this machine, without joining kinds to a table."""
        backend = self._backend(source)
        first = [platform.devices[platform.devices_of_kind(kind)[0]] for kind in range(len(platform.kinds))]
        specs = described_specs(platform, first, backend)
        devices = [device for device in first if device.kind not in specs]
        keys = [ProfileCache.key(self._key_parts(source, device)) for device in devices]
        measured: dict[str, KindProfile] = {}
        for device, key in zip(devices, keys, strict=True):
            if key not in measured:
                measured[key] = self._profile(source, device, key, _labelled(progress, device.kind))
        profiles = {device.kind: measured[key] for device, key in zip(devices, keys, strict=True)}
        here = [device for device in platform.devices if device.kind in profiles]
        return Measured(
            profiles,
            specs,
            {device.kind: self._link(device, platform, backend, specs.get(device.kind)) for device in first},
            executor_costs(here, backend, self.cache, self.core),
            {backend.name: backend.version, "cpu": cpu_name()},
        )

    def _backend(self, source: ModelSource) -> Backend:
        from placekit.cost_models.openvino.backend import OpenVinoBackend

        return backend_of(source) if self.core is None else OpenVinoBackend(self.core)

    def _key_parts(self, source: ModelSource, device: Device) -> dict[str, Any]:
        """Return everything that a measurement of `source` on `device` depends on."""
        backend = self._backend(source)
        core_types = {core.cpu: core.core_type for core in usable_cores()}
        return {
            "schema": _SCHEMA,
            "content_hash": source.content_hash,
            "graph": source.graph.content_hash,  # times are kept by op: a reader of files may find other ops later
            "inputs": [[each.name, list(each.shape), each.dtype] for each in source.inputs],
            backend.name: backend.version,
            "cpu": cpu_name(),
            **backend.device_facts(device),
            "properties": dict(device.properties),
            "core_types": sorted(core_types.get(core, "") for core in device.cores),
            "repetitions": self.repetitions,
            "seed": self.seed,
        }

    def _profile(self, source: ModelSource, device: Device, key: str, progress: Progress | None) -> KindProfile:
        """Return the measurement from the cache, or make it and keep it."""
        stored = self._stored(source, key)
        if stored is not None:
            error = self._error(stored)
            stored = replace(stored, meta={**stored.meta, "error": error, "cached": True})
            if error <= _SMALL_ERROR or not _is_old(stored):
                return stored
            _LOGGER.info("costs of %r have an error of %.0f %%; measured once more", device.name, 100 * error)
        with measuring(f"model {source.name!r} on {device.name!r}"):
            profile = self._measure(source, device, stored, progress)
        if self.cache:
            self.cache.store(key, profile.to_arrays(), profile.meta)
        return profile

    def _stored(self, source: ModelSource, key: str) -> KindProfile | None:
        """Return the measurement from the cache; None without one that fits."""
        stored = self.cache.load(key) if self.cache else None
        if stored is None:
            return None
        profile = KindProfile.from_arrays(*stored, source.graph.num_ops)
        if profile is None or not isinstance(profile.meta.get("foreign_load"), float):
            _LOGGER.warning("cache entry %s does not fit the model and is measured again", key)
            return None
        return profile

    def _measure(
        self, source: ModelSource, device: Device, earlier: KindProfile | None, progress: Progress | None
    ) -> KindProfile:
        """Measure until the error is small or the budget is used up; return all measurements merged.

        The circumstances are those of the quietest measurement. A quiet and steady one is not merged with others: it
        stands for itself, as it would have with an empty cache.
        """
        backend = self._backend(source)
        best, start_s, told = earlier, time.perf_counter(), progress
        while True:
            with running_on(device.cores), LoadMeter(device.cores) as meter:
                profile = backend.measure(source, device, repetitions=self.repetitions, seed=self.seed, progress=told)
            profile = replace(profile, meta={**profile.meta, **self._circumstances(device, meter, source)})
            if not self._is_disturbed(profile) and profile.error <= _SMALL_ERROR:
                best = profile
                break
            best = profile if best is None else self._together(best, profile)
            error = self._error(best)
            spent_s = time.perf_counter() - start_s
            if error <= _SMALL_ERROR or spent_s + meter.wall_s > self.budget_s:
                break
            _LOGGER.info("error of %r is %.0f %% after %.0f s; measured again", device.name, 100 * error, spent_s)
            told = _labelled(progress, f"again, +-{error:.0%} so far")
        return replace(best, meta={**best.meta, "error": self._error(best)})

    def _together(self, earlier: KindProfile, new: KindProfile) -> KindProfile:
        """Return what two measurements say together; the other one alone if foreign load disturbed one of them."""
        quiet, loud = sorted((new, earlier), key=lambda profile: profile.meta["foreign_load"])
        is_alone = self._is_disturbed(loud) and not self._is_disturbed(quiet)
        best = quiet if is_alone else quiet.merged(loud)
        return replace(best, meta={**best.meta, "date": new.meta["date"], "cached": False})

    def _is_disturbed(self, profile: KindProfile) -> bool:
        return bool(profile.meta["foreign_load"] > self.max_foreign_load)

    def _error(self, profile: KindProfile) -> float:
        """Return the relative error of a profile: what its times tell, and at least what disturbed all of them."""
        load = float(profile.meta["foreign_load"]) if self._is_disturbed(profile) else 0.0
        return max(profile.error, load)

    def _circumstances(self, device: Device, meter: LoadMeter, source: ModelSource) -> dict[str, Any]:
        _LOGGER.debug("measured %r on %r in %.2f s", source.name, device.name, meter.wall_s)
        return {
            "device": device.name,
            "openvino_device": device.openvino,
            "properties": dict(device.properties),
            "cores": list(device.cores),
            "repetitions": self.repetitions,
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "wall_s": meter.wall_s,
            "own_cpu_s": meter.own_cpu_s,
            "foreign_load": float(meter.foreign_load),
            "cached": False,
        }

    def _link(
        self, device: Device, platform: Platform, backend: Backend, spec: DeviceSpec | None
    ) -> tuple[Link | None, str]:
        """Return the link of the kind of `device`, and where it comes from; `spec` is of a device that is not here."""
        given = platform.links.get(device.kind)
        if spec is not None:
            return (given, "given") if given else (None if device.is_host else spec.link, "described")
        if given is not None:
            return given, "given"
        if device.is_host:
            return None, "host"
        return backend.link(device), "measured"


def _is_old(profile: KindProfile) -> bool:
    """Return whether a measurement is so old that the next one may be better."""
    try:
        age = datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(str(profile.meta["date"]))
    except (KeyError, ValueError, TypeError):  # no date, none at all, or without its zone
        return True
    return age.total_seconds() > _RETRY_AFTER_S


def _tensor_time_s(graph: OpGraph, profile: KindProfile | None) -> NDArray[np.float64]:
    """``[num_tensors]`` what a device without a link takes for tensors at its border."""
    measured = np.zeros(0) if profile is None else profile.tensor_time_s
    return measured if len(measured) == graph.num_tensors else np.zeros(graph.num_tensors)


def _labelled(progress: Progress | None, words: str) -> Progress | None:
    """Return a callback that puts `words` before every label."""
    if progress is None:
        return None
    return lambda done, total, label: progress(done, total, f"{words}: {label}")
