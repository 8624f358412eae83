"""Seconds of every op of a PyTorch program on one device, each distinct op measured once.

1. The whole program runs on seeded inputs, so that every call has arguments that make sense, and calls that are the
   same are known: same operator, same numbers, tensors of the same types, shapes and strides.
2. On the CPU it runs again, call by call, as often as there are repetitions: caches and memory are as in the whole
   model, and the time of a distinct op is the median over the runs of the mean over its calls. On other devices, which
   work behind the caller's back, every distinct op is repeated by itself: warm-up, then the median. Calls that read
   weights take those of all layers in turn there, because a layer finds its weights in memory and not in a cache.
3. The whole module is timed, on the CPU in turns with the runs of 2., and the times of the ops are scaled to add up to
   it. What the scale was stands in the meta data, with the sum before.

The time of a call on the CPU includes freeing what is used for the last time there, as the module does it.

On CUDA repetitions are timed by events on the stream, elsewhere by the clock after the device has been waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.base import Progress, report
from placekit.cost_models.kind_profile import KindProfile
from placekit.cost_models.pytorch.devices import RUN_FAILURES, first_line, synchronised
from placekit.io.needs import require_torch
from placekit.model.errors import ProfileError
from placekit.pytorch.lowering import Lowered, is_in_place
from placekit.pytorch.module import NODE, random_inputs

if TYPE_CHECKING:
    from placekit.pytorch.source import TorchSource

_WARM_UP = 2
_LEAST_BATCH_S = 20e-6
"""Shortest time of a repetition: shorter calls are repeated inside it, because the clock has a cost."""
_MOST_PER_OP_S = 1.0
"""After this time an op has been repeated enough, if that was three times."""
_LEAST_REPETITIONS = 3
_MAX_WEIGHTS = 32
"""Layers whose weights take turns."""


def profile_ops(
    source: TorchSource, device: str, *, repetitions: int, seed: int, progress: Progress | None = None
) -> KindProfile:
    """Measure every op of `source` on the torch device `device`, with the threads that this thread computes with.

    Every op is a group of its own; one that an accelerator does not have is not supported there.

    Raises
    ------
    ProfileError
        An op fails, or there is not enough memory; the message names its module.
    PlacekitError
        The program cannot be run here, see :meth:`TorchSource.builder`.
    """
    torch = require_torch("measuring")
    lowered = source.lowered
    with torch.inference_mode():
        module = source.builder().whole(device)
        inputs = [each.to(device) for each in random_inputs(lowered.program, seed)]
        walk = _Walk(lowered, module, device)
        walk.run(inputs, walk.note)
        whole: list[float] = []

        def measure(node: Any, index: int, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
            key = walk.key_of[node]
            if key not in walk.measured:
                walk.measured[key] = walk.measure(node, index, args, kwargs, repetitions)
                report(progress, len(walk.measured), len(walk.calls_of) + 1, lowered.program.nodes[index].module)

        try:
            # forward itself: calling a module of torch.fx prints its code when it fails
            if _runs_in_context(device):
                for done in range(repetitions):  # in turns, so that what the machine does meanwhile hits both alike
                    walk.time(inputs)
                    whole.append(_host_seconds([lambda: module.forward(*inputs)], synchronised(device), device))
                    report(progress, done + 1, repetitions, "runs")
            else:
                walk.run(inputs, measure)
                if walk.is_supported:
                    whole = time_calls([lambda: module.forward(*inputs)], repetitions, device).tolist()
        except RUN_FAILURES as error:
            raise ProfileError(f"model {source.name!r} cannot be run again and again: {first_line(error)}") from error
        call_s = _call_s(device)
    return _profile(lowered, walk, np.array(whole), call_s)


def _runs_in_context(device: str) -> bool:
    """Return whether a call is done when it returns, so that calls can be timed inside the whole program."""
    return device == "cpu"


def time_calls(calls: Sequence[Callable[[], Any]], repetitions: int, device: str = "cpu") -> NDArray[np.float64]:
    """Return ``[<= repetitions]`` seconds of one call of each repetition; `calls` take turns.

    The calls do the same work on different memory. There are fewer repetitions, but at least three, if they take more
    than a second together.
    """
    wait = synchronised(device)
    for each in range(_WARM_UP):
        calls[each % len(calls)]()
    wait()
    start = time.perf_counter()
    calls[_WARM_UP % len(calls)]()
    wait()
    one_s = max(time.perf_counter() - start, 1e-9)
    batch = max(1, int(np.ceil(_LEAST_BATCH_S / one_s)))
    clock = _cuda_seconds if device.startswith("cuda") else _host_seconds
    times: list[float] = []
    at = 0
    begun = time.perf_counter()
    while len(times) < repetitions:
        if len(times) >= _LEAST_REPETITIONS and time.perf_counter() - begun > _MOST_PER_OP_S:
            break
        batch_calls = [calls[(at + each) % len(calls)] for each in range(batch)]
        at += batch
        times.append(clock(batch_calls, wait, device) / batch)
    return np.array(times)


def _host_seconds(calls: Sequence[Callable[[], Any]], wait: Callable[[], None], _device: str) -> float:
    start = time.perf_counter()
    for call in calls:
        call()
    wait()
    return time.perf_counter() - start


def _cuda_seconds(calls: Sequence[Callable[[], Any]], wait: Callable[[], None], device: str) -> float:
    torch = require_torch("measuring")
    with torch.cuda.device(device):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for call in calls:
            call()
        end.record()
        wait()
        return float(start.elapsed_time(end)) / 1e3


def _call_s(device: str) -> float:
    """Return the seconds that calling a module takes by itself: one that hands on what it is given."""
    torch = require_torch("measuring")
    empty = torch.fx.symbolic_trace(torch.nn.Identity())
    x = torch.zeros(1, device=device)
    return float(np.median(time_calls([lambda: empty(x)], 9, device)))


class _Walk:
    """Runs a module call by call."""

    def __init__(self, lowered: Lowered, module: Any, device: str) -> None:
        self._torch = require_torch("measuring")
        self._lowered = lowered
        self._module = module
        self._device = device
        self._op_of_node = {node: op for op, node in enumerate(lowered.node_of_op)}
        self._last_use = _last_uses(module.graph)
        self.calls_of: dict[str, list[Any]] = {}  # by key: the nodes of the calls that are the same
        self.ops_of: dict[str, list[int]] = {}
        self.measured: dict[str, NDArray[np.float64] | None] = {}  # None: not supported
        self.key_of: dict[Any, str] = {}  # what the call of a node has in common with calls that are the same
        self._seconds: dict[str, list[float]] | None = None  # by key: of one run, while it is timed

    @property
    def is_supported(self) -> bool:
        """Return True if the device supports all ops."""
        return all(each is not None for each in self.measured.values())

    def time(self, inputs: Sequence[Any]) -> None:
        """Run the module once more, and take the time of every call of an op."""
        self._seconds = {}
        self.run(inputs)
        for key, seconds in self._seconds.items():
            known = self.measured.get(key)
            mean = np.array([np.mean(seconds)])
            self.measured[key] = mean if known is None else np.append(known, mean)
        self._seconds = None

    def run(self, inputs: Sequence[Any], before: Callable[..., None] | None = None) -> None:
        """Run the module; `before` is told node, index, args and kwargs of every call that is one of an op."""
        values: dict[Any, Any] = {}
        given = iter(inputs)
        map_arg = self._torch.fx.node.map_arg
        for node in self._module.graph.nodes:
            if node.op == "placeholder":
                values[node] = next(given)
            elif node.op == "get_attr":
                values[node] = _attribute(self._module, node.target)
            elif node.op == "call_function":
                args = map_arg(node.args, values.__getitem__)
                kwargs = map_arg(node.kwargs, values.__getitem__)
                index = node.meta.get(NODE)
                if before is not None and index in self._op_of_node:
                    before(node, index, args, kwargs)
                last = self._last_use.get(node, ())
                start = time.perf_counter()
                values[node] = self._make(node, args, kwargs)
                del args, kwargs
                for each in last:
                    del values[each]
                if self._seconds is not None and node in self.key_of:
                    self._seconds.setdefault(self.key_of[node], []).append(time.perf_counter() - start)

    def note(self, node: Any, index: int, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Take note of a call, so that those that are the same are known."""
        key = f"{node.target}{self._described(args)}{self._described(dict(kwargs))}"
        self.key_of[node] = key
        self.calls_of.setdefault(key, []).append(node)
        self.ops_of.setdefault(key, []).append(self._op_of_node[index])

    def measure(
        self, node: Any, index: int, args: tuple[Any, ...], kwargs: Mapping[str, Any], repetitions: int
    ) -> NDArray[np.float64] | None:
        """Return ``[repetitions]`` seconds of a call; None if the device does not have it."""
        given = list(args)
        if is_in_place(self._lowered.program.nodes[index]) and index in self._lowered.in_place:
            given[0] = given[0].clone()  # what is repeated must not change the program's own
        calls: list[Callable[[], Any]] = []
        for weights in self._weights_in_turn(node, index):
            own = tuple(weights.get(at, each) for at, each in enumerate(given))
            calls.append(lambda own=own: node.target(*own, **kwargs))  # type: ignore[misc]  # bound in the loop
        try:
            return time_calls(calls, repetitions, self._device)
        except NotImplementedError as error:
            if self._device == "cpu":
                raise self._failed(index, error) from error
            return None
        except RUN_FAILURES as error:
            raise self._failed(index, error) from error

    def _weights_in_turn(self, node: Any, index: int) -> list[dict[int, Any]]:
        """Return the weights that the calls of the same kind read, by their places among the arguments."""
        found = [
            {
                at: _attribute(self._module, each.target)
                for at, each in enumerate(same.args)
                if getattr(each, "op", "") == "get_attr"
            }
            for same in self.calls_of[self.key_of[node]][:_MAX_WEIGHTS]
        ]
        return found if found[0] and index not in self._lowered.in_place else [{}]

    def _described(self, value: Any) -> Any:
        if isinstance(value, self._torch.Tensor):
            return f"{value.dtype}{list(value.shape)}{list(value.stride())}"
        if isinstance(value, list | tuple):
            return [self._described(each) for each in value]
        if isinstance(value, dict):
            return {name: self._described(each) for name, each in sorted(value.items())}
        return value

    def _make(self, node: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Make a call; on the CPU if the device does not have it."""
        try:
            return node.target(*args, **kwargs)
        except NotImplementedError as error:
            if self._device == "cpu":
                raise self._failed(node.meta.get(NODE, 0), error) from error
            tree_map = self._torch.utils._pytree.tree_map
            args, kwargs = (tree_map(self._to("cpu"), each) for each in (args, dict(kwargs)))
            return tree_map(self._to(self._device), node.target(*args, **kwargs))
        except RUN_FAILURES as error:
            raise self._failed(node.meta.get(NODE, 0), error) from error

    def _to(self, device: str) -> Callable[[Any], Any]:
        return lambda value: value.to(device) if isinstance(value, self._torch.Tensor) else value

    def _failed(self, index: int, error: Exception) -> ProfileError:
        node = self._lowered.program.nodes[index]
        where = f"module {node.module!r}" if node.module else "the program"
        return ProfileError(f"{where}: {node.target} does not run on {self._device}: {first_line(error)}")


def _attribute(module: Any, path: str) -> Any:
    for each in path.split("."):
        module = getattr(module, each)
    return module


def _last_uses(graph: Any) -> dict[Any, list[Any]]:
    """Return the values that are used for the last time by every node."""
    last = {}
    for node in graph.nodes:
        last[node] = node
        for each in node.all_input_nodes:
            last[each] = node
    found: dict[Any, list[Any]] = {}
    for value, node in last.items():
        found.setdefault(node, []).append(value)
    return found


def _profile(lowered: Lowered, walk: _Walk, whole: NDArray[np.float64], call_s: float) -> KindProfile:
    num_ops = lowered.graph.num_ops
    time_s, spread_s = np.zeros(num_ops), np.zeros(num_ops)
    was_measured = np.zeros(num_ops, dtype=np.bool_)
    supported = np.ones(num_ops, dtype=np.bool_)
    for key, ops in walk.ops_of.items():
        times = walk.measured[key]
        for op in ops:  # several calls of one op add up
            if times is None:
                supported[op] = False
            else:
                low, median, high = np.percentile(times, (25, 50, 75))
                time_s[op] += median
                spread_s[op] += high - low
                was_measured[op] = True
    total_s = float(time_s.sum())
    whole_s = float(np.median(whole)) if len(whole) else total_s
    scale = whole_s / total_s if total_s > 0 else 1.0
    spread = np.divide(spread_s, time_s, out=np.full(num_ops, np.nan), where=was_measured & (time_s > 0))
    meta = {
        "method": "ops",
        "sum_of_op_times_s": total_s,
        "model_latency_s": whole_s,
        "mapped_share": 1.0,
        "scale": scale,
        "num_distinct_ops": len(walk.ops_of),
        "call_s": call_s,
    }
    return KindProfile(np.arange(num_ops), np.where(supported, scale * time_s, 0.0), spread, supported, meta)
