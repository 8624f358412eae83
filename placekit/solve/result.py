"""The result: an answer and the evidence for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from html import escape
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import numpy as np

from placekit.model.device_groups import teams_from_names
from placekit.model.errors import InvalidProblemError
from placekit.model.placement import Placement, Violation
from placekit.objectives.base import Schedule
from placekit.objectives.evaluate import DeviceLoad
from placekit.solve.certificates import Certificate, certificate_from_dict
from placekit.solve.split_verdict import Verdict
from placekit.solve.stop import StopReason, relative_gap

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from placekit.model.problem import Problem

MOST_EVENTS = 100_000
"""Events of a schedule that a result file has: more take seconds to write, and nobody sees them in a picture."""
MOST_DIFFERENCES = 3
"""Differences from another problem that a message names."""
OPTIMALITY_TOLERANCE = 1e-9
"""An objective within this relative gap of a bound is called optimal, if the bound lost nothing but the rounding of
sums."""
SOLVER_TOLERANCE = 1e-6
"""The same for a bound of a solver that works within tolerances, or in units, of its own: it cannot tell more. Which of
the two holds is said by every result (`Result.tolerance`)."""


class Status(StrEnum):
    """Status of an answer."""

    OPTIMAL = "optimal"
    """Feasible, and proven within `Result.tolerance` of the best."""
    FEASIBLE = "feasible"
    """Feasible; perhaps not the best."""
    INFEASIBLE = "infeasible"
    """Proven that no placement satisfies the constraints."""
    UNKNOWN = "unknown"
    """No feasible placement was found, and none was excluded."""


@dataclass(frozen=True, slots=True)
class Incumbent:
    """One line of the trace: the best objective and the best bound at a time."""

    time_s: float  # seconds since `solve` was called
    # objective, bound: seconds; None while not known
    objective: float | None
    bound: float | None


@dataclass(frozen=True, kw_only=True)
class BaseResult:
    """Fields that results of all kinds of problems share.

    Parameters
    ----------
    method, problem_name
        What was solved, and how.
    status, stop_reason
        What is known, and why the method returned.
    objective, lower_bound
        Seconds; None where not known. No answer has an objective below `lower_bound`.
    bound_name
        How the bound was proven.
    violations
        Why there is no feasible answer, or of the one that came closest; empty if feasible.
    trace
        Incumbents and bounds over time.
    runtime_s, evaluations
        Wall seconds of solving, without `compile_s` and `load_s`; and the number of answers that the judge scored.
    seed
        The seed that makes the same answer again.
    info
        What the method wants to say beside (JSON values).
    tolerance
        Relative gap within which the objective is called optimal: `OPTIMALITY_TOLERANCE`, or `SOLVER_TOLERANCE` where
        the proof cannot tell more.
    compile_s
        Wall seconds in which kernels were compiled: 0 but on the first runs of an installation.
    load_s
        Wall seconds in which methods were imported, and kernels loaded from disk.
    """

    method: str
    problem_name: str
    status: Status
    stop_reason: StopReason
    objective: float | None
    lower_bound: float | None
    bound_name: str | None
    violations: tuple[Violation, ...]
    trace: tuple[Incumbent, ...]
    runtime_s: float
    evaluations: int
    seed: int
    info: Mapping[str, Any] = field(default_factory=dict)
    tolerance: float = OPTIMALITY_TOLERANCE
    compile_s: float = 0.0
    load_s: float = 0.0

    def _repr_html_(self) -> str:
        """Return what `print` shows, for notebooks."""
        return f"<pre>{escape(str(self))}</pre>"

    def _check(self, answer: object, what: str) -> None:
        """Refuse fields that contradict each other."""
        if (answer is None) != (self.objective is None):
            raise InvalidProblemError(f"result: {what} and objective must be given together, or neither")
        if self.objective is not None and self.lower_bound is not None and self.lower_bound > self.objective:
            raise InvalidProblemError(f"result: lower bound {self.lower_bound} above the objective {self.objective}")
        if (answer is not None) != (self.status in (Status.OPTIMAL, Status.FEASIBLE)):
            raise InvalidProblemError(f"result: status {self.status} contradicts the {what}")

    @property
    def gap(self) -> float | None:
        """Relative distance of the objective from the bound: ``(objective - bound) / objective``; None if unknown."""
        return relative_gap(self.objective, self.lower_bound)

    def _evidence(self) -> dict[str, Any]:
        return {
            "model": self.problem_name,
            "method": self.method,
            "objective": self.objective,
            "lower_bound": self.lower_bound,
            "bound_name": self.bound_name,
            "gap": self.gap,
            "status": str(self.status),
            "stop_reason": str(self.stop_reason),
            "runtime_s": self.runtime_s,
            "tolerance": self.tolerance,
            "compile_s": self.compile_s,
            "load_s": self.load_s,
            "evaluations": self.evaluations,
            "seed": self.seed,
            "violations": [asdict(violation) for violation in self.violations],
            "trace": [[line.time_s, line.objective, line.bound] for line in self.trace],
            "info": dict(self.info),
        }

    @staticmethod
    def _evidence_of(data: Mapping[str, Any]) -> dict[str, Any]:
        same = ("method", "objective", "lower_bound", "bound_name", "runtime_s", "evaluations", "seed", "info")
        return {name: data[name] for name in same} | {
            "problem_name": data["model"],
            "status": Status(data["status"]),
            "stop_reason": StopReason(data["stop_reason"]),
            "violations": tuple(Violation(**violation) for violation in data["violations"]),
            "trace": tuple(Incumbent(*line) for line in data["trace"]),
            "tolerance": data.get("tolerance", SOLVER_TOLERANCE),  # older files had one for all
            "compile_s": data.get("compile_s", 0.0),
            "load_s": data.get("load_s", 0.0),
        }


@dataclass(frozen=True, kw_only=True)
class Result(BaseResult):
    """Result of `solve`: the best placement found, its score by the judge, and a proven bound.

    Parameters
    ----------
    objective_name
        Name of the objective.
    placement
        The best feasible placement; None if none was found.
    device_loads
        Load, memory and op count of every device.
    schedule
        Start, end and device of ops and transfers, for objectives with a clock.
    problem_hash
        `Problem.content_hash` of what was solved; None in files of older versions.
    problem_terms
        `Problem.terms` of what was solved, to name what differs in another problem; None in files of older versions.
    certificate
        Certificate of the bound or of infeasibility, for :func:`placekit.verify`; None without one.
    verdict
        Whether a split is worth it (:func:`placekit.verdict`); None if nobody asked.
    problem
        The problem that was solved; None of a result that was read from a file, which does not hold it.

    Raises
    ------
    InvalidProblemError
        Parts that contradict each other, such as a bound above the objective.
    """

    objective_name: str
    placement: Placement | None
    device_loads: tuple[DeviceLoad, ...]
    schedule: Schedule | None = field(default=None, compare=False)  # follows from the placement
    problem_hash: str | None = None
    problem_terms: Mapping[str, str] | None = None
    certificate: Certificate | None = field(default=None, compare=False)  # written on demand only
    verdict: Verdict | None = field(default=None, compare=False)  # follows from the placement
    problem: Problem | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        self._check(self.placement, "placement")

    @property
    def own_problem(self) -> Problem:
        """The problem; raises an `InvalidProblemError` if the result does not hold it."""
        if self.problem is None:
            raise InvalidProblemError(
                f"this result of {self.problem_name!r} does not hold its problem: give the problem"
            )
        return self.problem

    def plot(self) -> Figure:
        """Draw the load of every device, and objective and bound over time; needs the extra `plot`."""
        return resolve_name("placekit.plotting.plot_result:plot_result")(self)  # type: ignore[no-any-return]

    def gantt(self) -> Figure:
        """Draw what every device does when: the schedule, or a few samples in the pipeline of `problem`."""
        if self.objective_name == "throughput":
            ax = resolve_name("placekit.plotting.plot_pipeline:plot_pipeline")(self, self.own_problem.graph)
        else:
            ax = resolve_name("placekit.plotting.plot_schedule:plot_schedule")(self)
        return ax.get_figure(root=True)  # type: ignore[no-any-return]

    def to_dict(self, *, with_certificate: bool = False) -> dict[str, Any]:
        """Return the result as JSON values; times in seconds. The certificate is left out unless it is asked for.

        So is a schedule of more than `MOST_EVENTS`, which :func:`placekit.evaluate` makes again from the placement.
        """
        document = {
            "schema": "placekit/result/1",
            "objective_name": self.objective_name,
            **self._evidence(),
            "device_loads": {load.device: load.load_s for load in self.device_loads},
            "devices": [load.to_dict() for load in self.device_loads],
            "placement": None if self.placement is None else self.placement.as_dict(),
            "steps": None if self.placement is None else self.placement.steps_as_dict(),
            "placement_hash": None if self.placement is None else self.placement.content_hash,
            "schedule": None if self.schedule is None or len(self.schedule) > MOST_EVENTS else self.schedule.to_dict(),
            "problem_hash": self.problem_hash,
            "problem_terms": None if self.problem_terms is None else dict(self.problem_terms),
        }
        if self.verdict is not None:
            document["verdict"] = self.verdict.to_dict()
        if with_certificate and self.certificate is not None:
            document["certificate"] = {"schema": "placekit/certificate/1", **self.certificate.to_dict()}
        return document

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Result:
        """Return the result that `to_dict` wrote (the data must already be validated)."""
        devices = tuple(DeviceLoad(**load) for load in data["devices"])
        placement = None
        if data["placement"] is not None:
            names = tuple(load.device for load in devices)
            ops: Mapping[str, str] = data["placement"]
            steps: Mapping[str, int] | None = data["steps"]
            at, teams = teams_from_names(ops.values(), names)
            placement = Placement(
                tuple(ops),
                names,
                np.array([at[team] for team in ops.values()]),
                None if steps is None else np.array([steps[op] for op in ops]),
                teams,
            )
        return cls(
            **cls._evidence_of(data),
            objective_name=data["objective_name"],
            placement=placement,
            device_loads=devices,
            schedule=None if data["schedule"] is None else Schedule.from_dict(data["schedule"]),
            problem_hash=data.get("problem_hash"),
            problem_terms=data.get("problem_terms"),
            certificate=certificate_from_dict(data.get("certificate")),
            verdict=None if data.get("verdict") is None else Verdict.from_dict(data["verdict"]),
        )

    def mismatch(self, problem: Problem) -> str | None:
        """Return what tells `problem` from the one that was solved, with both values; None if nothing does.

        A result of an older version, without a hash, can only tell the objective.
        """
        if self.problem_hash == problem.content_hash:
            return None
        mine, theirs = self.problem_terms or {"objective": self.objective_name}, problem.terms
        names = mine.keys() | theirs.keys() if self.problem_terms else mine.keys()
        told = [
            f"{name} is {mine.get(name, 'not given')} in the result, {theirs.get(name, 'not given')} in the problem"
            for name in sorted(names, key=[*theirs, *mine].index)
            if mine.get(name) != theirs.get(name)
        ]
        if told:
            return "; ".join(told[:MOST_DIFFERENCES])
        if self.problem_hash is None:
            return None
        return f"the result is of problem {self.problem_hash}, this one is {problem.content_hash}"

    def summary(self) -> str:
        """Return the result as a few lines of text, times in milliseconds."""

        def ms(value: float | None) -> str:
            return "unknown" if value is None else f"{value * 1e3:.4f} ms"

        gap = "unknown" if self.gap is None else f"{self.gap:.2%}"
        lines = [
            f"{self.problem_name}: {self.objective_name} by {self.method}: {self.status} ({self.stop_reason})",
            f"  objective {ms(self.objective)}, bound {ms(self.lower_bound)}"
            + (f" ({self.bound_name})" if self.bound_name else "")
            + f", gap {gap}, {self.runtime_s:.2f} s",
        ]
        if self.placement is not None:
            width = max(len(load.device) for load in self.device_loads)
            lines += [
                f"  {load.device:<{width}}  {ms(load.load_s):>14}  {load.num_ops} ops"
                + (f"  in team {load.team}" if load.team else "")
                for load in self.device_loads
            ]
        lines += [f"  {violation}" for violation in self.violations]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return (
            f"Result({self.problem_name!r}: {self.objective_name} by {self.method}, {self.status}, "
            f"objective {self.objective} s, bound {self.lower_bound} s, {self.placement})"
        )

    def __str__(self) -> str:
        return self.summary()
