"""Base of learned methods: environment, training, checkpoints and answers around a learner.

A learned method is one subclass of `LearnedMethod` that names its parameters and its learner. Everything that `solve`
and ``placekit learn`` ask of it is here; the loop itself is :func:`placekit.learned.training.loop.train`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from placekit.learned.environment import Environment
from placekit.learned.learner import Learner, TrainingParams
from placekit.learned.rewards import RewardStopped
from placekit.learned.training.checkpoint import (
    ANY_DEVICES,
    Checkpoint,
    problem_digest,
    read_checkpoint,
    write_checkpoint,
)
from placekit.learned.training.journal import Journal
from placekit.learned.training.loop import Metrics, Training, train
from placekit.learned.training.pace import Pace, out_of_time
from placekit.learned.training.threads import one_thread
from placekit.model.errors import InvalidProblemError
from placekit.model.problem import Problem
from placekit.solve.method import Method, Run, no_links
from placekit.solve.registry import get_method
from placekit.solve.stop import MaxRuntime, StopReason
from placekit.solvers.generic.baselines import offer_single_devices
from placekit.solvers.generic.bounds.work_and_path import raise_bounds_at_once
from placekit.solvers.generic.excess import offer_first_answers

if TYPE_CHECKING:
    from placekit.learned.measured_reward import MeasuredReward

PRETRAINED = Path(__file__).parent / "pretrained" / "imitation.pt"
"""The policy that comes with placekit."""

_REWARD = "reward"  # key of the name of the reward in the state of a training


@dataclass(frozen=True)
class Session:
    """Files and callbacks of a training, beside its parameters."""

    checkpoint: Path | None = None  # file to write every `checkpoint_every_s` seconds and at the end; None for none
    resume: Path | None = None  # checkpoint of the same method, parameters and problem to go on from
    policy: Path | None = None  # checkpoint whose transferable weights to begin with
    log_dir: Path | None = None  # folder for the metrics of every update
    on_update: Callable[[Metrics], None] | None = None  # called after every update
    checkpoint_every_s: float = 30.0  # seconds between two checkpoints; 0 for one after every update
    # seconds after training for a lower bound of method ``bound``, so that the answer has a gap; 0 for none
    bound_s: float = 0.0
    # times placements on the devices instead of judging them: the answer is the best by measured time, which the judge
    # scores as it stands. None for the judge.
    measured: MeasuredReward | None = None

    def __post_init__(self) -> None:
        if not self.checkpoint_every_s >= 0:
            raise InvalidProblemError(f"checkpoint interval is {self.checkpoint_every_s} s; it must be >= 0")


class LearnedMethod(Method):
    """A method that trains a policy on the problem at hand and answers with the best placement it met.

    The single devices are offered first; then every improvement during training; at the end the policy's own answers
    without randomness. A warm start is where the policy begins.

    Parameters
    ----------
    params
        Parameters of the method.
    session
        Files to read and write; nothing by default.
    """

    params_type: ClassVar[type[TrainingParams]]
    serves_any_platform: ClassVar[bool] = False
    """True if a policy is for any number of devices."""
    max_sampled_ops: ClassVar[int | None] = None
    """Ops up to which samples of a trained policy have a chance against what it decodes; None for any number."""
    learner_type: ClassVar[Callable[..., Learner]]
    """Makes a learner from an environment and parameters."""

    def __init__(self, params: TrainingParams | None = None, session: Session | None = None) -> None:
        self.params = params or self.params_type()
        self.session = session or Session()

    @classmethod
    def from_params(cls, argument: str | None, params: Mapping[str, Any]) -> Self:
        """Make the method; ``gdp:PATH`` begins with a trained policy, ``gdp:pretrained`` with that of placekit.

        The parameter ``policy`` is a path, too: suites name files by parameters.
        """
        named = params.get("policy")
        if named is not None and (argument is not None or not isinstance(named, str)):
            raise InvalidProblemError(f"method {cls.name!r}: policy is {named!r}; it must be one path, given once")
        method = super().from_params(None, {name: value for name, value in params.items() if name != "policy"})
        if argument is not None or named is not None:
            method.session = replace(method.session, policy=policy_path(str(argument or named)))
        return method

    def make_learner(self, environment: Environment) -> Learner:
        """Return a fresh learner; weights may be drawn from torch's default generator, which is seeded."""
        return type(self).learner_type(environment, self.params)

    def supports(self, problem: Problem) -> str | None:
        """Return None without direct links; the environment knows memory that ops share."""
        return no_links(problem)

    @one_thread()
    def run(self, run: Run) -> StopReason:
        """Train until the run stops, the budget is spent, or nothing improves any more.

        Bounds and answers that cost nothing come first: an answer that meets a bound leaves nothing to learn.
        """
        measured = self.session.measured
        if measured is None:
            raise_bounds_at_once(run)
        reason = self._train(run, Environment(run.problem)) if measured is None else self._train_on(measured, run)
        if self.session.bound_s > 0 and not run.is_proven:
            begin_s = run.elapsed_s
            _prove_bound(run, self.session.bound_s)
            run.info["bound_time_s"] = run.elapsed_s - begin_s
        return reason

    def _train_on(self, measured: MeasuredReward, run: Run) -> StopReason:
        """Train on measured times; then answer with the best placement by them."""
        # a run of its own: of the placements that it is offered, the judge would keep another one
        start = run.placement or run.warm_start
        aside = Run(run.problem, run.stop, run.seed, start)
        aside.interrupted = run.interrupted
        measured.should_stop = aside.should_stop
        environment = Environment(run.problem, measured)
        try:
            if start is not None:
                environment.evaluate(start.device_of_op[None])
            reason = self._train(aside, environment)
        except RewardStopped as stopped:
            reason = stopped.reason
        run.count_evaluations(measured.asked)
        if environment.best is not None and environment.best_objective is not None:
            measured.remember(environment.best, environment.best_objective)  # of the training that this one resumed
        is_interrupted = run.interrupted.is_set
        answer = measured.answer(compare=not is_interrupted(), gives_up=is_interrupted)
        if answer is not None:
            run.settle_on(answer.placement)
        run.info |= aside.info | {"measured": measured.counts() | (answer.to_dict() if answer else {})}
        return reason

    def _train(self, run: Run, environment: Environment) -> StopReason:
        session = self.session
        start = run.placement or run.warm_start  # of the method before, in a row of methods
        if session.measured is None:
            offer_single_devices(run)
        for actions in environment.homogeneous:
            run.offer(environment.answer(environment.expand(actions[None])[0]))
        if run.placement is None and offer_first_answers(run) and start is None:
            start = run.placement
        reason = run.should_stop()
        if reason is not None:
            return reason
        learner = seeded_learner(self, environment, run.seed)
        if session.policy is not None:
            apply_weights(learner, read_checkpoint(session.policy), self.name, run.problem)
        if start is not None:
            learner.prefer(start.device_of_op)
            if not np.isfinite(environment.single_devices).any():
                environment.evaluate(start.device_of_op[None])  # else nothing that is feasible may be met
        decoding_s: float | None = None
        if session.measured is None:  # measured times stop by themselves
            environment.should_stop = partial(out_of_time, run)
        if session.policy is not None:
            begun = perf_counter()
            offer_decoded(run, environment, learner)  # training never ends above what the policy says as it is
            decoding_s = perf_counter() - begun
        training = Training.begin(learner, environment, self.params, run.seed)
        if session.resume is not None:
            checkpoint = read_checkpoint(session.resume)
            state = checkpoint.check_resumable(self.name, asdict(self.params), run.problem)
            _check_reward(state, session)
            training.restore(dict(state))
            if environment.best is not None:
                run.offer(environment.answer(environment.best))
        with ExitStack() as stack:
            stack.callback(lambda: run.info.update(updates=training.update))
            watchers = [watcher for watcher in (session.on_update,) if watcher is not None]
            if session.log_dir is not None:
                resumed_at = None if session.resume is None else training.update
                watchers.append(stack.enter_context(Journal(session.log_dir, resumed_at)))
            if session.measured is None:
                stack.callback(self._save, training)
            else:
                # an update takes minutes, and the last one may end in the middle, from where nothing can go on
                self._save(training)
                watchers.append(lambda _: self._save(training))
            report = self._reporter(run, training, watchers)
            should_stop = run.should_stop
            if session.measured is None:
                pace = Pace(run, decoding_s)
                should_stop, environment.should_stop = pace.before_update, pace.within_update
            try:
                reason = train(training, should_stop, report)
            except RewardStopped as torn:
                if session.measured is not None:
                    raise
                reason = torn.reason
                if environment.best is not None:
                    run.offer(environment.answer(environment.best))
                training.undo_update()
        if session.measured is None:
            environment.should_stop = partial(out_of_time, run)
        offer_decoded(run, environment, learner)
        environment.should_stop = None
        told = _why_no_better(run, training, reason) if session.measured is None else None
        run.info |= {} if told is None else {"no_better": told}
        return reason

    def _reporter(
        self, run: Run, training: Training, watchers: list[Callable[[Metrics], None]]
    ) -> Callable[[Metrics], None]:
        """Return what to do after every update: tell the run, the watchers, and now and then the disk."""
        environment = training.environment
        told, saved_at, offered = environment.evaluations, perf_counter(), run.objective

        def report(metrics: Metrics) -> None:
            nonlocal told, saved_at, offered
            run.count_evaluations(environment.evaluations - told)
            told = environment.evaluations
            best = environment.best_objective
            if best is not None and environment.best is not None and (offered is None or best < offered):
                run.offer(environment.answer(environment.best))
                offered = best
            for watcher in watchers:
                watcher(metrics)
            if perf_counter() - saved_at >= self.session.checkpoint_every_s:
                self._save(training)
                saved_at = perf_counter()

        return report

    def _save(self, training: Training) -> None:
        if self.session.checkpoint is not None:
            write_checkpoint(
                self.session.checkpoint,
                Checkpoint(
                    method=self.name,
                    params=asdict(self.params),
                    num_devices=ANY_DEVICES if self.serves_any_platform else training.environment.num_devices,
                    problem=problem_digest(training.environment.problem),
                    transferable=training.learner.transferable(),
                    training=training.state() | {_REWARD: _reward_name(self.session)},
                ),
            )


def _why_no_better(run: Run, training: Training, reason: StopReason) -> str | None:
    """Return what stands in the way of an answer that is better than a single device; None if there is one."""
    environment = training.environment
    singles, best = environment.single_devices, environment.best_objective
    alone = float(singles.min())
    if best is not None and best < alone * (1 - 1e-9):
        return None
    device = run.problem.platform.device_names[int(np.argmin(singles))]
    told = [
        f"no placement that was met is better than {device} alone"
        if np.isfinite(alone)
        else "no placement that was met keeps all constraints"
    ]
    constraint = environment.why_refused()
    if constraint is not None and 2 * environment.infeasible >= environment.evaluations:
        told.append(f"{environment.infeasible:,} of {environment.evaluations:,} broke {constraint}")
        if constraint.startswith("contiguity"):
            told.append("`--contiguity none` allows them, where the placement may run that way")
    if reason in (StopReason.TIME, StopReason.ITERATIONS, StopReason.USER):
        told.append(f"training ended after {training.update:,} updates ({reason}): a larger budget may help")
    return "; ".join(told)


def _reward_name(session: Session) -> str:
    return "judge" if session.measured is None else f"measured, {session.measured.executor}"


def _check_reward(state: Mapping[str, Any], session: Session) -> None:
    """Refuse to go on with times of another kind."""
    before, now = state.get(_REWARD, "judge"), _reward_name(session)
    if before != now:
        raise InvalidProblemError(
            f"the checkpoint was trained on the reward {before!r}, not on {now!r}; apply it as a policy instead"
        )


def _prove_bound(run: Run, time_limit_s: float) -> None:
    """Raise the bound of `run` by method ``bound``, whose placements do not count: the answer stays the learner's."""
    aside = Run(run.problem, MaxRuntime(time_limit_s), run.seed)
    aside.interrupted = run.interrupted
    get_method("bound").run(aside)
    if aside.bound is not None and aside.bound_name is not None:
        run.raise_bound(aside.bound, aside.bound_name, tolerance=aside.tolerance)


def seeded_learner(method: LearnedMethod, environment: Environment, seed: int) -> Learner:
    """Return a fresh learner whose weights follow from `seed`; torch's global random state is left as it was."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        return method.make_learner(environment)


def apply_weights(learner: Learner, checkpoint: Checkpoint, method: str, problem: Problem) -> None:
    """Give `learner` the transferable weights of `checkpoint`; all others stay.

    Raises `InvalidProblemError`: a policy of another method, for another number of devices, or whose weights have other
    shapes.
    """
    if checkpoint.method != method:
        raise InvalidProblemError(f"the policy is of method {checkpoint.method!r}, not of {method!r}")
    if checkpoint.num_devices not in (ANY_DEVICES, problem.platform.num_devices):
        raise InvalidProblemError(
            f"the policy chooses among {checkpoint.num_devices} devices; problem {problem.name!r} has "
            f"{problem.platform.num_devices}"
        )
    weights: dict[str, Tensor] = dict(checkpoint.transferable)
    policy: nn.Module = learner.policy
    expected = policy.state_dict()
    for name in learner.transferable():
        if name not in weights:
            raise InvalidProblemError(
                f"the policy has nothing for weight {name!r}: another version of placekit wrote it; train it again "
                f"with `placekit learn --method {method}`"
            )
        if weights[name].shape != expected[name].shape:
            found = tuple(weights[name].shape)
            raise InvalidProblemError(
                f"the policy has {found} for weight {name!r}, of shape {tuple(expected[name].shape)}"
            )
    policy.load_state_dict(weights, strict=False)


def offer_decoded(run: Run, environment: Environment, learner: Learner) -> None:
    """Offer the best that was scored, the learner's own answers among it; as many of them as there is time for."""
    try:
        environment.check_stop()
        with torch.no_grad():
            environment.evaluate(learner.decode())
    except RewardStopped:
        if environment.should_stop is None:  # whoever measures knows what becomes of it
            raise
    if environment.best is not None:
        run.offer(environment.answer(environment.best))


def policy_path(name: str | Path) -> Path:
    """Return the file of a policy; ``pretrained`` is the one that comes with placekit."""
    return PRETRAINED if str(name) == "pretrained" else Path(name)
