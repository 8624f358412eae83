r"""Seconds per fused group from OpenVINO's profiling counters, on the CPU plugin.

The counters are integer microseconds, and on the CPU they are *averages over all inferences since the model was
compiled*, the first cold one included. What the k-th inference took is :math:`k a_k - (k - 1) a_{k-1}`. As
:math:`a_k` is cut off to an integer, this is wrong by up to k microseconds, so few inferences are made per
compilation and the model is compiled again instead.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.base import Progress, report
from placekit.cost_models.kind_profile import KindProfile
from placekit.cost_models.openvino.compiling import compile_properties, compile_unbound
from placekit.cost_models.openvino.groups import NO_GROUP, RuntimeNode, fuse, runtime_nodes
from placekit.cost_models.openvino.inputs import filled_request, random_inputs
from placekit.model.errors import ProfileError
from placekit.model.graph import OpGraph

if TYPE_CHECKING:
    import openvino

_LOGGER = logging.getLogger(__name__)

MIN_MAPPED_SHARE = 0.95
"""Least share of the executed time that must be assigned to ops of the model for a profile to be believed."""
MAX_LOST_S = 5e-6
"""Seconds that need not be assigned all the same: of a model of some microseconds, rounding is a large share."""

_WARM_UPS = 2
_PER_COMPILATION = 8
_MIN_WINDOW_S = 0.6  # the meter of other load counts in ticks of 10 ms
_MAX_COMPILATIONS = 12
_MICROSECOND_S = 1e-6


@dataclass(frozen=True, eq=False)
class Session:
    """The inferences of one compilation.

    Parameters
    ----------
    nodes
        The runtime nodes, named so that the names of two compilations agree.
    node_names
        ``[num_nodes]`` executed nodes.
    time_us
        ``[num_inferences, num_nodes]`` microseconds, averaging undone.
    latency_s
        ``[num_inferences]`` wall time of whole inferences.
    """

    nodes: tuple[RuntimeNode, ...]
    node_names: tuple[str, ...]
    time_us: NDArray[np.float64]
    latency_s: NDArray[np.float64]


def deaverage(readings: Sequence[Mapping[str, float]], first: int) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """Return what every inference took, from running averages.

    Parameters
    ----------
    readings
        Averages by node name after `first`, `first` + 1, ... inferences; at least two.
    first
        Number of inferences that the first reading averages over.

    Returns
    -------
    tuple[tuple[str, ...], NDArray[np.float64]]
        The names, and ``[len(readings) - 1, num_names]`` times in the unit of the readings. Rounded averages can
        make a time negative.

    Examples
    --------
    >>> deaverage([{"conv": 10.0}, {"conv": 12.0}], first=1)  # the second inference took 14
    (('conv',), array([[14.]]))
    """
    names = tuple(dict.fromkeys(name for reading in readings for name in reading))
    # a node can appear late (an inserted conversion): before that it took nothing
    averages = np.array([[reading.get(name, 0.0) for name in names] for reading in readings])
    totals = averages * np.arange(first, first + len(readings))[:, None]
    return names, np.diff(totals, axis=0)


def node_time_s(time_us: NDArray[np.float64], rounding_us: float) -> NDArray[np.float64]:
    """Return the typical seconds of every node from repeated measurements.

    The median for long nodes, whatever else the machine did in a minority of the inferences. For nodes not much longer
    than the rounding, the mean of the inferences that are not outliers: in a sum over consecutive inferences the
    rounding errors cancel.

    Parameters
    ----------
    time_us
        ``[num_inferences, num_nodes]`` microseconds.
    rounding_us
        Largest rounding error of one entry.
    """
    median = np.median(time_us, axis=0)
    is_inlier = time_us <= median + 2 * rounding_us
    mean = np.where(is_inlier, time_us, 0).sum(axis=0) / is_inlier.sum(axis=0)
    # half a microsecond is what cutting off takes away on average
    typical = np.where(median >= 5 * rounding_us, median, np.maximum(mean, 0)) + 0.5
    return np.asarray(typical * _MICROSECOND_S, dtype=np.float64)


def profile_counters(
    core: openvino.Core,
    model: openvino.Model,
    graph: OpGraph,
    *,
    device: str,
    properties: Mapping[str, str],
    repetitions: int,
    seed: int = 0,
    progress: Progress | None = None,
) -> KindProfile:
    """Measure `model` on `device` with the profiling counters.

    `properties` are those to compile with; at least `repetitions` inferences are measured.

    Raises
    ------
    ProfileError
        The device cannot run the model, or too little of the time can be assigned to its ops.
    """
    config = compile_properties(device, properties) | {"PERF_COUNT": True}
    inputs = random_inputs(model, seed)
    sessions: list[Session] = []
    start = time.perf_counter()
    num_sessions = -(-repetitions // _PER_COMPILATION)
    per_session = -(-repetitions // num_sessions)
    total, compiled = num_sessions, None
    while len(sessions) < num_sessions or (
        time.perf_counter() - start < _MIN_WINDOW_S and len(sessions) < _MAX_COMPILATIONS
    ):
        try:
            compiled = compile_unbound(core, model, device, config)
            sessions.append(_run_session(compiled, graph, inputs, per_session))
        except RuntimeError as error:
            raise ProfileError(f"model {graph.name!r} does not run on {device!r}: {last_line(error)}") from error
        total = max(total, len(sessions))
        report(progress, len(sessions), total, f"inferences on {device}")
    assert compiled is not None
    return _to_profile(graph, sessions, per_session, _precision(compiled))


def last_line(error: Exception) -> str:
    """Return the last line of an error's message, which says what is wrong where OpenVINO raised it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _run_session(
    compiled: openvino.CompiledModel, graph: OpGraph, inputs: Sequence[openvino.Tensor], num_inferences: int
) -> Session:
    request = filled_request(compiled, inputs)
    for _ in range(_WARM_UPS):
        request.infer()
    readings, latency_s = [read_counters(request)], []
    for _ in range(num_inferences):
        start = time.perf_counter()
        request.infer()
        latency_s.append(time.perf_counter() - start)
        readings.append(read_counters(request))
    names, time_us = deaverage(readings, _WARM_UPS)
    nodes = runtime_nodes(compiled, set(names))
    # the plugin numbers what it makes itself (Transpose_4693) anew in every compilation: go by position there
    stable = {
        node.name: node.name if any(name in graph.op_index for name in node.originals) else f"#{position}"
        for position, node in enumerate(nodes)
    }
    renamed = tuple(replace(node, name=stable[node.name]) for node in nodes)
    return Session(renamed, tuple(stable.get(name, name) for name in names), time_us, np.array(latency_s))


def read_counters(request: openvino.InferRequest) -> dict[str, float]:
    """Return the counters of the executed nodes in microseconds, by node name."""
    from openvino import ProfilingInfo

    executed = ProfilingInfo.Status.EXECUTED
    return {
        each.node_name: each.real_time.total_seconds() / _MICROSECOND_S
        for each in request.get_profiling_info()
        if each.status == executed
    }


def mapped_share_of(
    graph: OpGraph, names: Sequence[str], time_s: NDArray[np.float64], is_mapped: NDArray[np.bool_]
) -> float:
    """Return the share of the executed time that is assigned to ops.

    `names`, `time_s` and `is_mapped` are ``[num_nodes]`` executed nodes, their seconds, and True where they run ops.

    Raises
    ------
    ProfileError
        It is less than `MIN_MAPPED_SHARE`, and the rest is more than `MAX_LOST_S`.
    """
    total_s, lost_s = float(time_s.sum()), float(time_s[~is_mapped].sum())
    share = 1.0 - lost_s / total_s if total_s else 1.0
    if share < MIN_MAPPED_SHARE and lost_s > MAX_LOST_S:
        longest = names[int(np.argmax(np.where(is_mapped, -1.0, time_s)))]
        raise ProfileError(
            f"model {graph.name!r}: only {share:.1%} of the executed time can be assigned to its ops, at least "
            f"{MIN_MAPPED_SHARE:.0%} is needed; the longest node without an op is {longest!r}"
        )
    return share


def _to_profile(graph: OpGraph, sessions: Sequence[Session], per_session: int, precision: str | None) -> KindProfile:
    names = tuple(dict.fromkeys(name for session in sessions for name in session.node_names))
    column = {name: i for i, name in enumerate(names)}
    time_us = np.zeros((sum(len(session.time_us) for session in sessions), len(names)))
    row = 0
    for session in sessions:
        at = [column[name] for name in session.node_names]
        time_us[row : row + len(session.time_us), at] = session.time_us
        row += len(session.time_us)
    rounding_us = float(_WARM_UPS + per_session)
    typical_s = node_time_s(time_us, rounding_us)
    fusion = fuse(graph, sessions[-1].nodes)
    group_of = dict(zip((node.name for node in sessions[-1].nodes), fusion.node_group.tolist(), strict=True))
    node_group = np.array([group_of.get(name, NO_GROUP) for name in names], dtype=np.int64)
    is_mapped = node_group != NO_GROUP
    mapped_share = mapped_share_of(graph, names, typical_s, is_mapped)
    num_groups = fusion.num_groups
    group_time_s = np.zeros(num_groups)
    np.add.at(group_time_s, node_group[is_mapped], typical_s[is_mapped])
    repeated_us = np.zeros((len(time_us), num_groups))
    np.add.at(repeated_us.T, node_group[is_mapped], time_us.T[is_mapped])
    num_nodes = np.bincount(node_group[is_mapped], minlength=num_groups)
    latency_s = np.concatenate([session.latency_s for session in sessions])
    # of the inferences that were hardly interrupted between two nodes; half a microsecond as in `node_time_s`
    between_s = latency_s - (time_us.sum(axis=1) + 0.5 * len(names)) * _MICROSECOND_S
    return KindProfile(
        op_group=fusion.op_group,
        group_time_s=group_time_s,
        group_spread=_relative_spread(repeated_us, group_time_s, num_nodes, rounding_us),
        group_supported=np.ones(num_groups, dtype=bool),
        meta={
            "method": "counters",
            "precision": precision,
            "inferences": len(latency_s),
            "compilations": len(sessions),
            "model_latency_s": float(np.median(latency_s)),
            "sum_of_op_times_s": float(group_time_s.sum()),
            "between_ops_s": max(float(np.percentile(between_s, 10)), 0.0),
            "mapped_share": mapped_share,
        },
    )


def _relative_spread(
    repeated_us: NDArray[np.float64],
    group_time_s: NDArray[np.float64],
    num_nodes: NDArray[np.int64],
    rounding_us: float,
) -> NDArray[np.float64]:
    """``[num_groups]`` interquartile range over median, without what rounding alone adds; NaN for a group of no node.

    De-averaging adds two uniform rounding errors of about `rounding_us` per node; their variance is
    ``rounding_us**2 / 6``, and a normal error with that variance has an interquartile range of 1.35 deviations.
    """
    quartiles = np.percentile(repeated_us, [25, 75], axis=0)
    from_rounding = 1.35 * rounding_us * np.sqrt(num_nodes / 6)
    spread_us = np.sqrt(np.maximum((quartiles[1] - quartiles[0]) ** 2 - from_rounding**2, 0))
    measured = num_nodes > 0
    relative = np.full(len(num_nodes), np.nan)
    relative[measured] = spread_us[measured] * _MICROSECOND_S / group_time_s[measured]
    return relative


def _precision(compiled: openvino.CompiledModel) -> str | None:
    """Return the precision that the compiled model computes in; None if it does not say."""
    try:
        value = compiled.get_property("INFERENCE_PRECISION_HINT")
    except RuntimeError:
        return None
    return str(value.get_type_name()) if hasattr(value, "get_type_name") else str(value)
