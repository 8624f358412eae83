"""Question about a plan for a language model: the model, the requests, the goal, and how cases are solved."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

from placekit.cost_models.analytic import Analytic
from placekit.language.config.published import published, published_name
from placekit.language.decoder import Decoder
from placekit.language.description import ModelDescription
from placekit.language.from_numbers import describe_decoder
from placekit.language.model import model_task
from placekit.language.planning.plan import Solve
from placekit.language.read import is_program, read_description
from placekit.language.runtimes.record import Runtime
from placekit.language.serving import Serving
from placekit.language.task import LanguageTask, TaskForm, decoder_task
from placekit.model.contiguity import Contiguity
from placekit.model.errors import InvalidProblemError
from placekit.model.platform import Platform
from placekit.model.problem import Problem
from placekit.objectives import Objective
from placekit.solve.result import Incumbent, Result
from placekit.solve.solve import solve as solve_problem
from placekit.solve.stop import MaxRuntime, Stop
from placekit.solvers.chain.method import Chain, ChainParams

DEFAULT_CHUNK = 2048
"""Prompt tokens of a prefill step without a runtime."""
DEFAULT_CONTEXT = 8192
"""Tokens of a sequence that the cache has room for, where nobody says and the model knows as long ones."""
GOALS = ("latency", "throughput", "context")
SECONDS = 60.0
"""Time to solve all cases of a plan."""


@dataclass(frozen=True)
class GivenModel:
    """A language model to plan for."""

    name: str  # in a launch line
    description: ModelDescription | None  # None for a file with the ops of a model

    @classmethod
    def read(
        cls, name: str | None, numbers: Mapping[str, Any] | None = None, precision: str | None = None
    ) -> GivenModel:
        """Return the model of a name, a file or a folder; see `placekit.language.read.read_description`."""
        if not is_program(name):
            described = read_description(name, numbers, precision)
            known = published().get(described.name) if published_name(name) == described.name else None
            return cls(str(known["_name_or_path"]) if known else name or "MODEL", described)
        if numbers or precision is not None:
            given = "precision" if precision is not None else next(iter(numbers or {})).replace("_", "-")
            raise InvalidProblemError(f"--{given} goes with numbers of a model; {name} has its own")
        return cls(str(name), None)

    @classmethod
    def of(
        cls, model: str | Path | Decoder | ModelDescription | GivenModel, precision: str | None = None
    ) -> GivenModel:
        """Return the model that is meant; a description has its own precision."""
        if isinstance(model, GivenModel):
            return model
        if isinstance(model, Decoder):
            model = describe_decoder(model, precision or "f16")
        elif not isinstance(model, ModelDescription):
            return cls.read(str(model), None, precision)
        elif precision is not None:
            raise InvalidProblemError(f"precision {precision!r} goes with a name or numbers; {model.name} has its own")
        return cls(model.name, model)

    @property
    def called(self) -> str:
        """Name of the model in answers."""
        return self.name if self.description is None else self.description.name

    def for_runtime(self, runtime: Runtime | None) -> Self | GivenModel:
        """Return the model as a runtime loads it: with blocks of multi-token prediction, or without."""
        if self.description is None or runtime is None or not runtime.trains_prediction:
            return self
        return GivenModel(self.name, self.description.with_speculative())

    def task(
        self, costs: Analytic, wishes: Wishes, serving: Serving, platform: Platform, *, form: TaskForm
    ) -> LanguageTask:
        """Return the task of serving the model on a platform."""
        own, kept = costs.for_kinds(platform.kinds), {name: getattr(wishes, name) for name in _OF_FORM}
        make = (
            partial(model_task, Path(self.name))
            if self.description is None
            else partial(decoder_task, self.description)
        )
        return make(serving, platform, lambda graph: own.cost_table(graph, platform), replace(form, **kept))


_OF_FORM = ("cache_precision", "granularity", "together")
"""Wishes that are part of the form of every task."""


@dataclass(frozen=True)
class Wishes:
    """Question about a plan, beside the model, the devices and the runtime."""

    serving: Serving = field(default_factory=Serving)  # its batch counts as `batch`; a chunk of None is the runtime's
    batch: int | None = None  # sequences that take a step together; None for the fastest of up to six sizes
    whole_prompts: bool = False  # True if a step of prefill computes whole prompts
    goal: Literal["latency", "throughput", "context"] | None = None  # None: the runtime's; throughput without one
    objective: Objective | None = None  # None for what the goal asks for
    contiguity: Contiguity | None = None  # None for runs of blocks
    pins: Mapping[str, str] = field(default_factory=dict)  # device by op or pattern
    degrees: tuple[int, ...] = (1,)  # tensor-parallel degrees to choose from
    apart: bool = False  # also try prefill and decode on devices of their own
    cache_precision: str = "f16"
    granularity: str = "layer"  # what stays together: whole blocks, or ``"op"``
    together: int = 1  # consecutive blocks that stay on one device
    headroom: str | None = None  # memory of every device that stays free, ``"10%"`` or ``"1GiB"``; None: the runtime's
    measured: tuple[str, ...] = ()  # files of llama-bench with rates of devices, or ``DEVICE=FILE``
    kernels: str | None = None  # ``"aiconfigurator"`` or ``"aiconfigurator:VERSION"``: measured kernel times as costs
    # cards to try in the place of others, each exchange alone: trade names by devices
    instead: Mapping[str, str] = field(default_factory=dict)
    # with what a runtime does by itself, and with fewer cards; without a runtime with the rules of every one
    compares: bool = True

    def __post_init__(self) -> None:
        if self.goal not in (None, *GOALS):
            raise InvalidProblemError(f"goal is {self.goal!r}; it is one of {', '.join(GOALS)}")

    def served(self, runtime: Runtime | None, trained: int | None = None) -> Serving:
        """Return the requests, in the steps of a runtime.

        Unless a request is longer, their context is at most the tokens that the model was `trained` for; one that is
        not given is at least `DEFAULT_CONTEXT` or these.
        """
        serving, own = self.serving, DEFAULT_CHUNK if runtime is None else runtime.chunk
        chunk = None if self.whole_prompts else serving.chunk or own
        batch = serving.sequences if self.batch is None else self.batch
        is_default = not serving.has_own_context and self.goal != "context"
        context = max(serving.context, DEFAULT_CONTEXT) if is_default else serving.context
        least = serving.prompt + serving.generated + serving.depth
        context = context if trained is None else max(min(context, trained), least)
        return replace(serving, context=context, batch=batch, chunk=chunk)


@dataclass(frozen=True)
class Search:
    """Way in which the cases of a plan are solved."""

    method: str = "auto"  # where the ops are a chain, `auto` is method ``chain``
    stop: Callable[[float], Stop] = lambda spent_s: MaxRuntime(
        max(SECONDS - spent_s, 0.0)
    )  # by seconds since the first
    seed: int = 0
    params: Mapping[str, Any] = field(default_factory=dict)  # of the method
    # what takes the progress of a case, if anything does
    watch: Callable[[], AbstractContextManager[Callable[[Incumbent], None] | None]] = nullcontext

    def start(self, *, is_even: bool) -> Solve:
        """Return what solves a case; ties go to even stages, as runtimes like them, if `is_even`."""
        started = time.monotonic()

        def solve(problem: Problem[Any]) -> Result:
            chain = Chain(ChainParams(is_even=is_even))
            method = chain if self.method == "auto" and chain.supports(problem) is None else self.method
            with self.watch() as line:
                return solve_problem(
                    problem, method, stop=self.stop(time.monotonic() - started), seed=self.seed, params=self.params,
                    on_progress=line,
                )  # fmt: skip

        return solve
