"""Training plans: random problems whose best plan is enumerated, solved by every method."""

from __future__ import annotations

from dataclasses import replace
from time import process_time

import numpy as np

from placekit.model.memory import MEMORY_TOLERANCE
from placekit.solve.result import Status
from placekit.solve.stop import MaxRuntime
from placekit.solvers.training_plan.solve import solve_plan
from placekit.training.problem import Choice, Layer, TrainingProblem

from .apart import limit_cpu
from .checks import SLOW_CPU_S, Asked, Finding
from .training_plans import brute_force, random_training_problem
from .twists import HAIRS

ROUNDING = 1e-9
"""Relative; what the enumeration of plans may be off."""


def random_plan_problem(seed: int, case: int) -> TrainingProblem:
    """Return problem number `case` of `seed`: times that differ by 1e5 between choices, memory by a hair."""
    rng = np.random.default_rng([seed, case, 4])
    problem = random_training_problem(rng, most_layers=4)
    if rng.random() < 0.6:
        factors = [1.0, float(rng.choice([1e5, 1e-5, 0.0]))]
        by_layer: dict[int, Layer] = {}  # equal layers stay the same
        for layer in problem.layers:
            by_layer[id(layer)] = by_layer.get(id(layer)) or _scaled(rng, layer, factors)
        problem = problem.replace(layers=tuple(by_layer[id(layer)] for layer in problem.layers))
    if rng.random() < 0.4:
        problem = problem.replace(memory_bytes=problem.memory_bytes * float(rng.choice(HAIRS)))
    return problem


def _scaled(rng: np.random.Generator, layer: Layer, factors: list[float]) -> Layer:
    def scaled(choice: Choice) -> Choice:
        return replace(choice, time_s=choice.time_s * float(rng.choice(factors)))

    return Layer(layer.name, {t: tuple(map(scaled, choices)) for t, choices in layer.choices.items()})


def optimum_of_plans(problem: TrainingProblem) -> float | None:
    """Return the objective of the best plan by enumeration; None if none fits, as the judge forgives memory."""
    return brute_force(problem.replace(memory_bytes=problem.memory_bytes * (1 + MEMORY_TOLERANCE)))


def check_plan(problem: TrainingProblem, optimum_s: float | None, asked: Asked) -> Finding | None:
    """Solve `problem` and return what is wrong with the result; None if nothing is."""
    if asked.limits_cpu:
        limit_cpu(asked.time_s)
    begin_s = process_time()
    try:
        result = solve_plan(problem, asked.method, stop=MaxRuntime(asked.time_s), seed=asked.seed)
    except Exception as error:  # any exception is a finding
        return Finding(f"exception {type(error).__name__}", str(error))
    cpu_s = process_time() - begin_s
    answer, bound = result.objective, result.lower_bound
    detail = f"{result.status}: {answer!r} s, bound {bound!r} s, best plan {optimum_s!r} s"
    if optimum_s is None:
        if answer is not None:
            return Finding("infeasible plan", detail)
    elif result.status is Status.INFEASIBLE:
        return Finding("feasible called infeasible", detail)
    elif bound is not None and bound > optimum_s * (1 + ROUNDING):
        return Finding("bound above the optimum", detail)
    elif answer is not None and answer < optimum_s * (1 - ROUNDING):
        return Finding("below the enumerated optimum", detail)
    elif (
        result.status is Status.OPTIMAL
        and answer is not None
        and answer * (1 - result.tolerance) > optimum_s * (1 + ROUNDING)
    ):
        return Finding("called optimal, is not", detail)
    if asked.method == "dp" and result.status is not (Status.INFEASIBLE if optimum_s is None else Status.OPTIMAL):
        return Finding("not proven", detail)
    if cpu_s > SLOW_CPU_S:
        solve_plan_s = process_time()
        solve_plan(problem, asked.method, stop=MaxRuntime(asked.time_s), seed=asked.seed)
        if process_time() - solve_plan_s > SLOW_CPU_S:
            return Finding("slow", f"{cpu_s:.1f} s of CPU")
    return None
