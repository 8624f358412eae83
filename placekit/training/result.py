"""The result of planning: a plan and the evidence for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from placekit.errors import InvalidProblemError
from placekit.placement import Violation
from placekit.result import Incumbent, Status
from placekit.stop import StopReason, relative_gap
from placekit.training.evaluate import StageLoad
from placekit.training.plan import PlanStage, TrainingPlan

__all__ = ["PlanResult"]


@dataclass(frozen=True)
class PlanResult:
    """What `solve_plan` returns: the best plan found, its judgement, and a proven bound.

    Parameters
    ----------
    method, problem_name
        What was planned, and how.
    status, stop_reason
        What is known, and why the method returned.
    plan
        The best feasible plan; None if none was found.
    objective, lower_bound
        Seconds per microbatch; None where not known. No plan has an objective below `lower_bound`.
    bound_name
        How the bound was proven.
    stages
        Load, memory and degrees of every stage.
    violations
        Why there is no feasible plan, or of the plan that came closest; empty if feasible.
    trace
        Incumbents and bounds over time.
    runtime_s, evaluations, seed
        Wall seconds, plans that the judge scored, and the seed.
    layer_names, choice_names
        Names of the layers, and of every layer's chosen choice (empty without a plan).
    num_devices, memory_bytes, bandwidth_bytes_per_s, num_microbatches
        The machine and the batch that it is for.
    info
        What the method wants to say beside (JSON values).
    """

    method: str
    problem_name: str
    status: Status
    stop_reason: StopReason
    plan: TrainingPlan | None
    objective: float | None
    lower_bound: float | None
    bound_name: str | None
    stages: tuple[StageLoad, ...]
    violations: tuple[Violation, ...]
    trace: tuple[Incumbent, ...]
    runtime_s: float
    evaluations: int
    seed: int
    layer_names: tuple[str, ...]
    choice_names: tuple[str, ...]
    num_devices: int
    memory_bytes: float
    bandwidth_bytes_per_s: float
    num_microbatches: int
    info: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.plan is None) != (self.objective is None):
            raise InvalidProblemError("result: plan and objective must be given together, or neither")
        if self.objective is not None and self.lower_bound is not None and self.lower_bound > self.objective:
            raise InvalidProblemError(f"result: lower bound {self.lower_bound} above the objective {self.objective}")
        if (self.plan is not None) != (self.status in (Status.OPTIMAL, Status.FEASIBLE)):
            raise InvalidProblemError(f"result: status {self.status} contradicts the plan")

    @property
    def gap(self) -> float | None:
        """Relative distance of the objective from the bound; None if unknown."""
        return relative_gap(self.objective, self.lower_bound)

    def with_info(self, name: str, value: Any) -> PlanResult:
        """Return the result with one more thing to say (a JSON value)."""
        return replace(self, info={**self.info, name: value})

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values; times in seconds."""
        return {
            "schema": "placekit/training-plan/1",
            "model": self.problem_name,
            "method": self.method,
            "objective_name": "training-plan",
            "objective": self.objective,
            "lower_bound": self.lower_bound,
            "bound_name": self.bound_name,
            "gap": self.gap,
            "status": str(self.status),
            "stop_reason": str(self.stop_reason),
            "runtime_s": self.runtime_s,
            "evaluations": self.evaluations,
            "seed": self.seed,
            "num_devices": self.num_devices,
            "memory_bytes": self.memory_bytes,
            "bandwidth_bytes_per_s": self.bandwidth_bytes_per_s,
            "num_microbatches": self.num_microbatches,
            "layers": list(self.layer_names),
            "stages": None if self.plan is None else self._stages(self.plan),
            "violations": [asdict(violation) for violation in self.violations],
            "trace": [[line.time_s, line.objective, line.bound] for line in self.trace],
            "info": dict(self.info),
        }

    def _stages(self, plan: TrainingPlan) -> list[dict[str, Any]]:
        return [
            {
                "data_degree": stage.data_degree,
                "tensor_degree": stage.tensor_degree,
                "layers": list(stage.layers),
                "choices": list(stage.choices),
                "choice_names": [self.choice_names[v] for v in stage.layers],
                "load": asdict(load),
            }
            for stage, load in zip(plan.stages, self.stages, strict=True)
        ]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PlanResult:
        """Return the result that `to_dict` wrote (the data must already be validated)."""
        plan: TrainingPlan | None = None
        loads: tuple[StageLoad, ...] = ()
        names = ("",) * len(data["layers"])
        if data["stages"] is not None:
            plan = TrainingPlan(
                tuple(
                    PlanStage(tuple(s["layers"]), s["data_degree"], s["tensor_degree"], tuple(s["choices"]))
                    for s in data["stages"]
                )
            )
            loads = tuple(StageLoad(**s["load"]) for s in data["stages"])
            named = {v: name for s in data["stages"] for v, name in zip(s["layers"], s["choice_names"], strict=True)}
            names = tuple(named.get(v, "") for v in range(len(data["layers"])))
        return cls(
            method=data["method"],
            problem_name=data["model"],
            status=Status(data["status"]),
            stop_reason=StopReason(data["stop_reason"]),
            plan=plan,
            objective=data["objective"],
            lower_bound=data["lower_bound"],
            bound_name=data["bound_name"],
            stages=loads,
            violations=tuple(Violation(**violation) for violation in data["violations"]),
            trace=tuple(Incumbent(*line) for line in data["trace"]),
            runtime_s=data["runtime_s"],
            evaluations=data["evaluations"],
            seed=data["seed"],
            layer_names=tuple(data["layers"]),
            choice_names=names if plan is not None else (),
            num_devices=data["num_devices"],
            memory_bytes=data["memory_bytes"],
            bandwidth_bytes_per_s=data["bandwidth_bytes_per_s"],
            num_microbatches=data["num_microbatches"],
            info=data["info"],
        )

    def __str__(self) -> str:
        """Return the result in a line."""
        objective = "no plan" if self.objective is None else f"{self.objective:.6g} s per microbatch"
        bound = "unknown" if self.lower_bound is None else f"{self.lower_bound:.6g} s"
        return (
            f"{self.problem_name}: training-plan by {self.method}: {self.status} ({self.stop_reason}), {objective}, "
            f"bound {bound}, {len(self.stages)} stages, {self.runtime_s:.2f} s"
        )
