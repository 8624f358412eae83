"""Run of a method for training plans."""

from __future__ import annotations

from placekit.solve.method import BaseRun
from placekit.training.evaluate import PlanEvaluation, evaluate_plan
from placekit.training.plan import TrainingPlan
from placekit.training.problem import TrainingProblem

__all__ = ["PlanRun"]


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
