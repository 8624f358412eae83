r"""Calibration: predictions that agree with measured splits.

Op times are measured inside the whole model, undisturbed. In a pipeline stages share caches and memory with other
stages, tensors come from another core, and every stage is called. A few measured placements tell how much that is:
the seconds that a measured placement needs per sample are

.. math:: \sum_k \alpha_k T_k + \gamma C + \beta B + o\,n

with, on the device that is the bottleneck (in serial execution: on all of them), the op times :math:`T_k` of kind
:math:`k`, the transfer times :math:`C` and the bytes :math:`B` that enter or leave, and the number of stages :math:`n`.
The four sorts of parameters are fitted by non-negative least squares of the relative errors, and pulled towards
":math:`\alpha = \gamma = 1`, :math:`\beta = 0`, and the stage cost that was there before". The pull is what follows if
parameters are normally distributed around these values with their usual deviations, and errors with the deviation that
the fit itself shows: measurements that agree with each other decide, and noisy ones cannot make up a cost of a
megabyte or of a stage from a few per cent of one split.

Whether that helps is seen on placements that were not used: each one is predicted by the parameters that the others
give. The differences between these parameters are their spread (jackknife).

References
----------
Lawson and Hanson, "Solving Least Squares Problems", 1974, chapter 23 (NNLS). Efron, "The Jackknife, the Bootstrap and
Other Resampling Plans", 1982, chapter 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import sum_by
from placekit.cost_models.measured.stage_costs import HAND_OVER, STAGE_OVERHEAD, StageCosts, stage_overhead_s
from placekit.model.costs import CostTable
from placekit.model.errors import InvalidProblemError
from placekit.model.graph import OpGraph

LEAST_SPLITS = 4
"""Measured placements that a calibration needs at least."""

_USUAL_OP_SCALE, _USUAL_COSTS = 0.2, (1.0, 4e-10, 3e-4)
"""By how much `Parameters` usually differ from what they are pulled to, as seen in splits of five models on a CPU.

The costs are those of transfers (a factor), of a byte (images are converted at about 3 GB/s) and of a stage (up to
0.6 ms in DenseNet-121).
"""

_NOISE, _ROUNDS = (2e-3, 0.15), 3
"""Relative errors that measurements have at least and at most, and how often they are estimated."""


@dataclass(frozen=True, eq=False)
class MeasuredSplit:
    """One placement, and what it was measured to do.

    Parameters
    ----------
    name
        For messages and tables.
    stages
        What the cost table says of its stages.
    sample_s
        Measured seconds per sample: of a stream if the stages form a pipeline, else of a sample that runs alone.
    is_serial
        Whether the stages ran one after another.
    busy_s
        ``[num_stages]`` measured seconds of every stage; empty if not known. Tells which device is the bottleneck.

    Raises
    ------
    InvalidProblemError
        A time that is not positive and finite, busy times of another number of stages, or teams: what a member takes
        is known from it alone.
    """

    name: str
    stages: StageCosts
    sample_s: float
    is_serial: bool
    busy_s: NDArray[np.float64]

    def __post_init__(self) -> None:
        if not (np.isfinite(self.sample_s) and self.sample_s > 0):
            raise InvalidProblemError(f"split {self.name!r}: measured {self.sample_s} s; it must be finite and > 0")
        if self.stages.has_teams:
            raise InvalidProblemError(f"split {self.name!r} has teams; a calibration needs devices that work alone")
        if len(self.busy_s) not in (0, self.stages.num_stages):
            raise InvalidProblemError(
                f"split {self.name!r}: {len(self.busy_s)} stages were measured, the placement has "
                f"{self.stages.num_stages}"
            )


@dataclass(frozen=True)
class Parameters:
    """Parameters fitted to measurements beyond the cost table.

    Parameters
    ----------
    op_scale
        ``[num_kinds]`` factor of the op times.
    transfer_scale
        Factor of the transfer times.
    transfer_s_per_byte
        Seconds per byte of a tensor that crosses, on top.
    stage_overhead_s
        Fixed seconds per stage.
    """

    op_scale: tuple[float, ...]
    transfer_scale: float
    transfer_s_per_byte: float
    stage_overhead_s: float

    def sample_s(self, split: MeasuredSplit) -> float:
        """Return the predicted seconds per sample of a split."""
        stages = split.stages
        stage_s = (
            np.asarray(self.op_scale)[stages.kind] * stages.op_time_s
            + self.transfer_scale * stages.transfer_s
            + self.transfer_s_per_byte * stages.moved_bytes
            + self.stage_overhead_s
        )
        return float(stage_s.sum() if split.is_serial else sum_by(stages.device, stage_s, 0).max(initial=0.0))

    def vector(self) -> NDArray[np.float64]:
        """``[num_kinds + 3]`` the numbers, in the order of the fields."""
        return np.array([*self.op_scale, self.transfer_scale, self.transfer_s_per_byte, self.stage_overhead_s])

    @classmethod
    def of_vector(cls, values: NDArray[np.float64]) -> Parameters:
        """Return the parameters from their numbers."""
        *scales, transfer, per_byte, overhead = values.tolist()
        return cls(tuple(scales), transfer, per_byte, overhead)


@dataclass(frozen=True, eq=False)
class Calibration:
    """Fitted parameters, and how good they are.

    Parameters
    ----------
    kinds
        Names of the kinds of device.
    parameters, spread
        The parameters from all splits, and the standard error of each (jackknife).
    before, after
        ``[num_splits]`` relative error of the predicted seconds per sample of every split: as the costs were, and by
        the parameters that the other splits give.
    names
        ``[num_splits]`` names of the splits.
    circumstances
        How and when the splits were measured, for the provenance (JSON values).
    """

    kinds: tuple[str, ...]
    parameters: Parameters
    spread: Parameters
    before: NDArray[np.float64]
    after: NDArray[np.float64]
    names: tuple[str, ...]
    circumstances: Mapping[str, Any] = field(default_factory=dict)

    @property
    def error_before(self) -> float:
        """Mean absolute relative error before."""
        return float(np.abs(self.before).mean())

    @property
    def error_after(self) -> float:
        """Mean absolute relative error after, on splits that were held out."""
        return float(np.abs(self.after).mean())

    @property
    def is_better(self) -> bool:
        """True if held-out splits are predicted better than before."""
        return self.error_after < self.error_before

    def apply(self, costs: CostTable, graph: OpGraph) -> CostTable:
        """Return the table with the parameters put in, or as it was if predictions do not become better.

        Either way the provenance says what was found, under ``"calibration"``. The stage cost, which has no
        column, stands in the provenance, too, where :func:`~placekit.cost_models.measured.stage_costs.predict` reads
        it.

        Raises
        ------
        InvalidProblemError
            A table of other kinds, or of another graph.
        """
        if costs.kinds != self.kinds or costs.num_tensors != graph.num_tensors:
            raise InvalidProblemError(
                f"calibration of kinds {', '.join(self.kinds)} does not fit costs of {', '.join(costs.kinds)} for "
                f"{costs.num_tensors} tensors, graph {graph.name!r} has {graph.num_tensors}"
            )
        provenance = {**costs.provenance, "calibration": self.to_dict()}
        if not self.is_better:
            return costs.replace(provenance=provenance)
        found = self.parameters
        moved_s = found.transfer_s_per_byte * graph.tensor_bytes[:, None]
        ends_s = costs.provenance.get(HAND_OVER)
        if isinstance(ends_s, Mapping):
            provenance[HAND_OVER] = {kind: found.transfer_scale * each for kind, each in ends_s.items()}
        return costs.replace(
            op_time_s=costs.op_time_s * np.asarray(found.op_scale),
            transfer_time_s=costs.transfer_time_s * found.transfer_scale + moved_s,
            provenance=provenance | {STAGE_OVERHEAD: found.stage_overhead_s},
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            **self.circumstances,
            "applied": self.is_better,
            **_told(self.kinds, self.parameters),
            "standard_error": _told(self.kinds, self.spread),
            "error_before": self.error_before,
            "error_after": self.error_after,
            "splits": {
                name: {"error_before": before, "error_after": after}
                for name, before, after in zip(self.names, self.before.tolist(), self.after.tolist(), strict=True)
            },
        }


def _told(kinds: Sequence[str], parameters: Parameters) -> dict[str, Any]:
    return {
        "op_scale": dict(zip(kinds, parameters.op_scale, strict=True)),
        "transfer_scale": parameters.transfer_scale,
        "transfer_s_per_byte": parameters.transfer_s_per_byte,
        "stage_overhead_s": parameters.stage_overhead_s,
    }


def calibrate(
    costs: CostTable, splits: Sequence[MeasuredSplit], circumstances: Mapping[str, Any] | None = None
) -> Calibration:
    """Fit the parameters to measured splits.

    Parameters
    ----------
    costs
        The table that the splits' `StageCosts` were made from.
    splits
        At least `LEAST_SPLITS` measured placements.
    circumstances
        How and when they were measured, for the provenance (JSON values).

    Raises
    ------
    InvalidProblemError
        Too few splits, or a split whose costs are all 0.
    """
    if len(splits) < LEAST_SPLITS:
        raise InvalidProblemError(f"calibration: {len(splits)} splits; at least {LEAST_SPLITS} are needed")
    start = Parameters((1.0,) * len(costs.kinds), 1.0, 0.0, stage_overhead_s(costs))
    for split in splits:
        if start.sample_s(split) <= 0:
            raise InvalidProblemError(f"split {split.name!r}: all of its costs are 0, so they cannot be scaled")
    found = _fit(splits, start)
    held_out = [_fit([*splits[:at], *splits[at + 1 :]], start) for at in range(len(splits))]
    vectors = np.array([each.vector() for each in held_out])
    variance = (len(splits) - 1) / len(splits) * ((vectors - vectors.mean(axis=0)) ** 2).sum(axis=0)
    return Calibration(
        kinds=costs.kinds,
        parameters=found,
        spread=Parameters.of_vector(np.sqrt(variance)),
        before=np.array([start.sample_s(each) / each.sample_s - 1 for each in splits]),
        after=np.array([mine.sample_s(each) / each.sample_s - 1 for mine, each in zip(held_out, splits, strict=True)]),
        names=tuple(each.name for each in splits),
        circumstances=dict(circumstances or {}),
    )


def _fit(splits: Sequence[MeasuredSplit], start: Parameters) -> Parameters:
    """Return the most likely parameters, none negative, if they lie around `start` as usual."""
    from scipy.optimize import nnls

    num_kinds = len(start.op_scale)
    measured_s = np.array([each.sample_s for each in splits])
    rows = np.array([_row(each, num_kinds) for each in splits]) / measured_s[:, None]
    unit = Parameters((_USUAL_OP_SCALE,) * num_kinds, *_USUAL_COSTS).vector()
    goal = start.vector() / unit
    noise, values = _NOISE[0], goal
    for _ in range(_ROUNDS):
        matrix = np.concatenate([rows * unit, noise * np.eye(len(unit))])
        values = nnls(matrix, np.concatenate([np.ones(len(splits)), noise * goal]))[0]
        residual = rows @ (values * unit) - 1
        # op times and one cost more are what a few splits determine
        freedom = max(len(splits) - num_kinds - 1, 1)
        noise = float(np.clip(np.sqrt((residual**2).sum() / freedom), *_NOISE))
    return Parameters.of_vector(values * unit)


def _row(split: MeasuredSplit, num_kinds: int) -> NDArray[np.float64]:
    """``[num_kinds + 3]`` what each parameter is multiplied with in the seconds per sample of `split`."""
    stages = split.stages
    used = np.ones(stages.num_stages, dtype=bool)
    if not split.is_serial:
        busy_s = split.busy_s if len(split.busy_s) else stages.op_time_s + stages.transfer_s
        used = stages.device == int(np.argmax(np.bincount(stages.device, weights=busy_s)))
    op_time_s = sum_by(stages.kind[used], stages.op_time_s[used], num_kinds)
    return np.array([*op_time_s, stages.transfer_s[used].sum(), stages.moved_bytes[used].sum(), float(used.sum())])
