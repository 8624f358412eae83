"""Run of a method for training plans, and its result: a plan and its bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from placekit.model.reprs import short_repr
from placekit.solve.result import BaseResult
from placekit.solve.run import BaseRun
from placekit.training.evaluate import PlanEvaluation, StageLoad, evaluate_plan
from placekit.training.plan import PlanStage, TrainingPlan
from placekit.training.problem import TrainingProblem


@dataclass(frozen=True, kw_only=True)
class PlanResult(BaseResult):
    """Result of `solve_plan`: the best plan, its scores, and a proven bound; seconds are per microbatch."""

    plan: TrainingPlan | None  # the best feasible plan; None if none was found
    stages: tuple[StageLoad, ...]  # load, memory and degrees of every stage
    # layer_names, choice_names: names of the layers, and of every layer's chosen choice (empty without a plan)
    layer_names: tuple[str, ...]
    choice_names: tuple[str, ...]
    # num_devices, memory_bytes, bandwidth_bytes_per_s, num_microbatches: numbers of the problem
    num_devices: int
    memory_bytes: float
    bandwidth_bytes_per_s: float
    num_microbatches: int

    __repr__ = short_repr

    def __post_init__(self) -> None:
        self._check(self.plan, "plan")

    def with_info(self, name: str, value: Any) -> PlanResult:
        """Return the result with one more entry in `info`, a JSON value."""
        return replace(self, info={**self.info, name: value})

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values; times in seconds."""
        return {
            "schema": "placekit/training-plan/1",
            "objective_name": "training-plan",
            **self._evidence(),
            "num_devices": self.num_devices,
            "memory_bytes": self.memory_bytes,
            "bandwidth_bytes_per_s": self.bandwidth_bytes_per_s,
            "num_microbatches": self.num_microbatches,
            "layers": list(self.layer_names),
            "stages": None if self.plan is None else self._stages(self.plan),
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
            **cls._evidence_of(data),
            plan=plan,
            stages=loads,
            layer_names=tuple(data["layers"]),
            choice_names=names if plan is not None else (),
            num_devices=data["num_devices"],
            memory_bytes=data["memory_bytes"],
            bandwidth_bytes_per_s=data["bandwidth_bytes_per_s"],
            num_microbatches=data["num_microbatches"],
        )

    def __str__(self) -> str:
        """Return the result as one line."""
        objective = "no plan" if self.objective is None else f"{self.objective:.6g} s per microbatch"
        bound = "unknown" if self.lower_bound is None else f"{self.lower_bound:.6g} s"
        return (
            f"{self.problem_name}: training-plan by {self.method}: {self.status} ({self.stop_reason}), {objective}, "
            f"bound {bound}, {len(self.stages)} stages, {self.runtime_s:.2f} s"
        )


class PlanRun(BaseRun[TrainingProblem, TrainingPlan, PlanEvaluation]):
    """Run of a method for training plans; see `BaseRun`."""

    @property
    def plan(self) -> TrainingPlan | None:
        """Best plan so far."""
        return self.answer

    def judge(self, answer: TrainingPlan) -> PlanEvaluation:
        """Score a plan."""
        return evaluate_plan(self.problem, answer)

    def offer(self, plan: TrainingPlan) -> PlanEvaluation:
        """Score a plan, and keep it if it is feasible and better than the best so far."""
        return self.keep(plan)
