r"""Makespan: the time of one sample when every device works asynchronously.

Op v on device d takes :math:`t_{v,kind(d)}` seconds; a device runs one op at a time, without preemption. A tensor u
that is produced on device a and read on another device b arrives there

.. math:: c_{u,kind(a)} + c_{u,kind(b)}

seconds after its producer ends, once, however many ops read it there; on a itself it is there at once. Where a and b
have a direct link, it arrives after the time that u takes over that link instead. Transfers overlap with compute. With
`contention` a device sends one transfer at a time, over whatever link, in the order in which its ops end; the arrival
is the end of the transfer. Transfers of one op go by tensor. Those of one tensor go by receiving op: the one of largest
upward rank first (:mod:`placekit.objectives.makespan.ranks`), ties by topological position, and a device receives the
tensor when its first such op is due. So the numbers of devices mean nothing, and devices of a kind are alike. An op is
ready when all its inputs have arrived on its device; the objective is the latest finish.

**Which ready op a device starts.** A placement that carries steps (`Placement.step_of_op`) is run in their order: every
device starts its ops by (step, topological position), each as soon as the device is free and the op is ready. Devices
whose orders wait for each other are a violation (``"order"``). Without steps, or with `steps` ``"none"``, a device
never idles while it has a ready op, and starts, by `order`,

- ``"fifo"``: the one that became ready first, ties by topological position: the convention of the simulators of
  Placeto and DOPPLER;
- ``"upward-rank"``: the one of largest upward rank (see :mod:`placekit.objectives.makespan.ranks`), ties by topological
  position.

At one moment all finishes and arrivals come before any start; an op of zero seconds makes a second round of the same
moment. Topological positions are those of `OpGraph.order`. The optimum of a problem is over all placements *and* steps,
so it does not depend on `order`. Only with `steps` ``"none"``, for runtimes that take no order, it is over placements
alone; the optimum over free orders is a lower bound of that.

**Loads.** The load of a device is its busy time; its transfer time is the time that its own link spends on the tensors
it sends and receives, every transfer counted on both sides, and the time of what it receives over direct links. The
schedule holds every op and every transfer, and the peak memory of every device (see
:mod:`placekit.objectives.makespan.memory`); the memory limit concerns the ops' own memory, as for every objective.

References
----------
Topcuoglu, Hariri, Wu, "Performance-effective and low-complexity task scheduling for heterogeneous computing", IEEE
TPDS 13(3), 2002, section 2. Addanki et al., "Placeto", NeurIPS 2019. Yao et al., "DOPPLER", 2025. Jeon et al.,
"Baechi", SoCC 2020, section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import sum_by
from placekit.model.errors import InvalidProblemError
from placekit.model.placement import Violation
from placekit.objectives.base import BatchScore, Objective, Schedule, Score, fastest_class_s

if TYPE_CHECKING:
    from placekit.model.platform import Platform
    from placekit.model.problem import Problem
    from placekit.objectives.makespan.simulate import Timeline

_ORDERS = ("fifo", "upward-rank")
_STEPS = ("runtime", "none")


@dataclass(frozen=True, slots=True)
class Makespan(Objective):
    """Minimise the time of one sample when every device works asynchronously.

    Parameters
    ----------
    order
        Which ready op a device starts when the placement carries no steps: ``"fifo"`` or ``"upward-rank"``.
    contention
        True if a device sends one transfer at a time.
    steps
        ``"runtime"`` if the runtime follows the steps of a placement; ``"none"`` if it takes none, and starts ready ops
        by `order`.
    """

    name: ClassVar[str] = "makespan"
    summary: ClassVar[str] = "time of one sample when every device works asynchronously"
    direct_ends: ClassVar[int] = 1
    follows_paths: ClassVar[bool] = True

    order: Literal["fifo", "upward-rank"] = "fifo"
    contention: bool = False
    steps: Literal["runtime", "none"] = "runtime"

    def __post_init__(self) -> None:
        for name, known in (("order", _ORDERS), ("steps", _STEPS)):
            value = getattr(self, name)
            if value not in known:
                raise InvalidProblemError(f"makespan: {name} is {value!r}; it must be one of {', '.join(known)}")

    @property
    def free_order(self) -> Makespan:
        """Return the objective with a runtime that follows steps."""
        return self if self.steps == "runtime" else replace(self, steps="runtime")

    def identity(self) -> dict[str, Any]:
        """Return the variant; `steps`, which came later, only if it is not the default."""
        values = self.to_dict()
        if self.steps == "runtime":
            del values["steps"]
        return values

    def score(
        self, problem: Problem, device_of_op: NDArray[np.int64], step_of_op: NDArray[np.int64] | None = None
    ) -> Score:
        """Score a placement; see the module docstring for the model. O((ops + edges) log edges)."""
        run = self._run(problem, device_of_op, step_of_op)
        if isinstance(run, int):
            return _waits_for_itself(problem, run, device_of_op)
        return _account(problem, device_of_op, run, self.contention)

    def _run(
        self, problem: Problem, device_of_op: NDArray[np.int64], step_of_op: NDArray[np.int64] | None
    ) -> Timeline | int:
        from placekit.objectives.makespan.instance import instance_of
        from placekit.objectives.makespan.ranks import mean_upward_rank
        from placekit.objectives.makespan.simulate import simulate, simulate_fifo, simulate_steps

        instance = instance_of(problem)
        if step_of_op is not None and self.steps == "runtime":
            return simulate_steps(instance, device_of_op, step_of_op, has_contention=self.contention)
        if self.order == "fifo":
            return simulate_fifo(instance, device_of_op, has_contention=self.contention)
        rank = mean_upward_rank(instance)
        return simulate(instance, device_of_op, -rank, has_contention=self.contention)

    def without_queues(self) -> Self:
        """Return the objective without contention: in what order a device sends a tensor hangs on all times."""
        return replace(self, contention=False)

    def constants_s(self) -> tuple[float, ...]:
        """Return nothing: only times are added up."""
        return ()

    def quick_bound(self, problem: Problem) -> tuple[float, str] | None:
        """Bound by the work that cannot be divided: the largest class."""
        return float(fastest_class_s(problem).max(initial=0.0)) * (1 - 1e-12), "largest op"  # one rounding per addition

    def busy_devices(self, platform: Platform) -> NDArray[np.bool_]:
        """Return True for every device: each runs one op at a time."""
        return np.ones(platform.num_devices, dtype=np.bool_)

    def batch_score(self, problem: Problem) -> BatchScore:
        """Return the compiled form for batches, each placement in the better of two orders, or by the one rule."""
        from placekit.objectives.makespan.orders import BestOrder, EngineOrder

        if self.steps == "none":
            return EngineOrder(problem, self.order, has_contention=self.contention)
        return BestOrder(problem, self.order, has_contention=self.contention)

    def crossing_s(self, problem: Problem, tensor: int, source: int, targets: Sequence[int]) -> dict[int, float]:
        """Every receiver once, and the sender once for each of them that the tensor reaches through host memory."""
        price = Objective.crossing_s(self, problem, tensor, source, targets)
        num_by_host = int((problem.platform.direct_link(source, list(targets)) < 0).sum())
        return price | {source: price[source] * num_by_host}


def _waits_for_itself(problem: Problem, op: int, device_of_op: NDArray[np.int64]) -> Score:
    """Return the score of a placement whose steps lead through `op` back to it."""
    name, device = problem.graph.op_names[op], problem.platform.device_names[device_of_op[op]]
    message = f"op {name!r} on device {device!r} waits for itself: the steps of the devices and the graph form a cycle"
    nothing = np.zeros(problem.platform.num_devices)
    return Score(0.0, nothing, nothing, nothing, violations=(Violation("order", message, name, device),))


def _account(problem: Problem, device_of_op: NDArray[np.int64], run: Timeline, has_contention: bool) -> Score:
    """Return the score of a run: loads, schedule and memory."""
    from placekit.objectives.makespan.instance import instance_of
    from placekit.objectives.makespan.memory import memory_use
    from placekit.objectives.makespan.simulate import transfers_of

    instance, num_devices = instance_of(problem), problem.platform.num_devices
    kind, ops = instance.kind, np.argsort(run.step_of_op)
    moves = transfers_of(instance, device_of_op, run, has_contention=has_contention)
    sender = device_of_op[instance.producer[moves.tensor]]
    link = problem.platform.direct_link(sender, moves.target)
    sends = np.where(link < 0, instance.transfer_s[moves.tensor, kind[sender]], 0.0)
    receives = instance.transfer_s[moves.tensor, kind[moves.target]]
    if problem.has_direct_links:
        receives = np.where(link < 0, receives, instance.direct_s[moves.tensor, link])
    transfer = sum_by(sender, sends, num_devices) + sum_by(moves.target, receives, num_devices)
    compute = sum_by(device_of_op, instance.op_time_s[np.arange(instance.num_ops), kind[device_of_op]], num_devices)
    memory = memory_use(instance, problem.graph.tensor_bytes, device_of_op, run, moves)
    schedule = Schedule(
        device=np.concatenate([device_of_op[ops], sender]),
        op=np.concatenate([ops, instance.producer[moves.tensor]]),
        start_s=np.concatenate([run.start_s[ops], moves.start_s]),
        finish_s=np.concatenate([run.finish_s[ops], moves.finish_s]),
        is_transfer=np.repeat([False, True], [len(ops), len(sender)]),
        peer=np.concatenate([np.full(len(ops), -1), moves.target]),
        peak_memory_bytes=memory.peak_bytes,
        memory=np.stack([memory.device, memory.time_s, memory.num_bytes], axis=1),
    )
    return Score(run.makespan_s, compute, transfer, compute, schedule)
