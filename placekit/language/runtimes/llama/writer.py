"""llama.cpp's arguments: which blocks and tensors are on which device, and the cache that was planned.

References
----------
llama.cpp: block i of n goes to the first device whose cumulative share of ``--tensor-split`` exceeds
(i - first) / (n + 1 - first), the output being block n; ``--n-gpu-layers`` counts from the end, and n counts the blocks
of multi-token prediction that the file has, although they are loaded for speculation only;
``--override-tensor REGEX=BUFFER,...`` moves the tensors whose names match, the first rule that does; a repeated flag
keeps its last value only. ``--n-cpu-moe N`` keeps the experts of the first N blocks on the CPU. ``--ctx-size`` is that
of all slots together; ``--fit off`` keeps what was asked for.
``--ubatch-size`` is 512; layers that are not offloaded are the first ones, and the token embedding is always in host
memory. Steps of 32 tokens and more are computed on the first card (``op_offload_min_batch_size``), and chunks of a
prompt overlap on several cards if no layer is on the host (``pipeline_parallel`` of ``llama_context``). Driver and
context take 0.65 GiB of a card (of 8 GiB 7.6 are usable) beside compute buffers: the splits of six models whose fate is
published fit, or do not, as published.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from placekit.exports.blocks import BlockPlacement, block_placement, refuse_teams
from placekit.exports.kept import require_kept
from placekit.language.runtimes.device_names import buffer_names, ordered, threads_of
from placekit.language.runtimes.llama.reader import TYPED, read_llama_cpp, read_served
from placekit.language.runtimes.llama.rpc import as_one_machine, is_remote, remote_devices
from placekit.language.runtimes.llama.tensors import ALL_EXPERTS, EXPERTS, KEEPING, block_tensors, end_tensor, is_file
from placekit.language.runtimes.record import Launch, Placed, Runtime
from placekit.model.blocks.block_paths import BEFORE, BEHIND
from placekit.model.errors import UnsupportedProblemError
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement
from placekit.model.platform import Platform
from placekit.model.served import Served

_CACHE_TYPES = {"f32": "f32", "f16": "f16", "bf16": "bf16", "int8": "q8_0", "int4": "q4_0"}


_PIN_ATTENTION = " (a block is where its attention is: --pin it in runs; experts may be elsewhere)"


def write_llama_cpp(runtime: Runtime, placed: Placed) -> Launch:
    """Return the arguments of llama.cpp's programs.

    Raises `UnsupportedProblemError`: a placement that llama.cpp cannot be told.
    """
    graph, platform = placed.graph, as_one_machine(placed.platform)
    placement, served = placed.placement, placed.served
    options = runtime.options
    blocks = block_placement(graph)
    further = served.further_blocks
    refuse_teams("llama.cpp", platform, placement)
    cards = [d for d, device in enumerate(platform.devices) if not device.is_host]
    remote = remote_devices(platform.devices[d] for d in np.unique(placement.device_of_op).tolist())
    names = {**buffer_names(platform), **remote.names}
    called = [names[device.name] for device in platform.devices]
    buffer = [remote.buffers.get(device.name, names[device.name]) for device in platform.devices]
    homes = [
        _home(graph, placement, blocks.block_of_op == number, blocks.is_work) for number in range(blocks.num_blocks)
    ]
    on_host = [buffer[home] == "CPU" for home in homes]
    first = on_host.index(False) if False in on_host else len(homes)
    if any(on_host[first:]):
        raise UnsupportedProblemError(
            f"llama.cpp keeps the first blocks on the CPU; block {first + on_host[first:].index(True)} is there behind "
            f"blocks on accelerators{_PIN_ATTENTION}; or place with --for llama.cpp"
        )
    chain = list(dict.fromkeys(homes[first:]))
    counts = [homes.count(home) for home in chain]
    if [home for home, count in zip(chain, counts, strict=True) for _ in range(count)] != homes[first:]:
        back = next(
            at for at in range(first + 1, len(homes)) if homes[at] != homes[at - 1] and homes[at] in homes[first:at]
        )
        name, between = placement.device_names[homes[back]], placement.device_names[homes[back - 1]]
        raise UnsupportedProblemError(
            f"llama.cpp takes a run of blocks per device; {name!r} has block {back} and blocks before those of "
            f"{between!r}{_PIN_ATTENTION}"
        )
    if chain:
        # blocks of multi-token prediction, which are not placed, and the output follow the last block
        counts[-1] += further + 1
        offloaded = [options["blocks"], str(len(homes) - first + further + 1), options["split_mode"], "layer"]
    else:
        offloaded = [options["blocks"], "0"]
    follows = {BEFORE: "CPU", BEHIND: buffer[chain[-1]] if chain else "CPU"}
    follows |= {number: buffer[home] for number, home in enumerate(homes)}
    targets = [buffer[int(d)] for d in placement.device_of_op]
    rules = _rules(graph, blocks, targets, follows, is_tied=served.tied)
    _require_kept(graph, placement, blocks, homes)
    # llama.cpp knows the cards of --device only: one that rules alone name has no block
    named = sorted({d for d in cards if buffer[d] in {target for _, target in rules}} - set(chain))
    used = [*chain, *named]
    arguments = [*offloaded, options["fit"], "off", *_serving(options, served)]
    is_working = first > 0 or any(target == "CPU" for _, target in rules)
    arguments += _of_host(options, served, platform, is_working=is_working)
    if remote.addresses:
        arguments += [options["servers"], ",".join(remote.addresses)]
    if used:
        arguments += [options["devices"], ",".join(called[d] for d in used)]
    if chain:
        arguments += [options["split"], ",".join(map(str, [*counts, *(0 for _ in named)]))]
    if rules:
        arguments += [options["tensors"], ",".join(f"{pattern}={target}" for pattern, target in rules)]
    devices = tuple(placement.device_names[d] for d in used)
    environment = ordered(platform, [platform.devices[d] for d in cards if not is_remote(platform.devices[d])])
    environment = environment if any(called[d].startswith("CUDA") for d in used) else {}
    return Launch(runtime, environment, tuple(arguments), devices, elsewhere=remote.servers)


def _rules(
    graph: OpGraph, blocks: BlockPlacement, target_of_op: Sequence[str], follows: Mapping[int, str], *, is_tied: bool
) -> list[tuple[str, str]]:
    """Return patterns of tensors that are elsewhere than what they follow by default, with their buffers.

    `follows` has the buffer of every block, and those of what is before and behind the blocks.
    """
    ends: dict[str, str] = {}  # buffer of every tensor outside of the blocks
    moved: dict[str, str] = {}
    blocks_of: dict[tuple[str, tuple[str, ...]], list[int]] = {}  # elsewhere than their blocks: by device and names
    for op in np.flatnonzero((graph.op_weight_bytes > 0) & blocks.is_work).tolist():
        number, target, name = int(blocks.block_of_op[op]), target_of_op[op], graph.op_names[op]
        if number >= 0:
            if target != follows[number]:
                names = block_tensors(graph, blocks, op)
                blocks_of.setdefault((target, names), []).append(number)
            continue
        tensor = name if is_file(blocks) else end_tensor(name, number)
        if ends.setdefault(tensor, target) != target:
            raise UnsupportedProblemError(
                f"llama.cpp has one tensor {tensor}; {name!r} is on {target}, and another op that holds it is on "
                f"{ends[tensor]}: --pin them to one device"
            )
        if target != follows[number]:
            moved[tensor] = target
    if is_tied:
        if "output" in moved:
            raise UnsupportedProblemError(
                "llama.cpp has a head that is the embedding where the last block is, not on "
                f"{moved['output']}: --pin it there"
            )
        if ends.get("token_embd") != ends.get("output"):  # a rule moves both; the table for lookups is on the CPU
            moved.pop("token_embd", None)
    names_of: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for (target, names), numbers in blocks_of.items():
        names_of.setdefault((target, tuple(sorted(set(numbers)))), []).extend(names)
    rules = [(rf"^{re.escape(tensor)}\.weight$", target) for tensor, target in moved.items()]
    return rules + [
        (rf"^blk\.{_any_of(numbers, len(follows) - 2)}\.{_one_of(names)}{_ending(*names)}", target)
        for (target, numbers), names in names_of.items()
    ]


def _require_kept(graph: OpGraph, placement: Placement, blocks: BlockPlacement, homes: Sequence[int]) -> None:
    """Refuse an op without weights that is where neither its block nor a neighbour is: rules move tensors of weights.

    Sums and activations have no tensor: the scheduler of llama.cpp puts them where what they read or feed is. Attention
    is where its block is.
    """
    inside, is_held = blocks.block_of_op >= 0, graph.op_weight_bytes > 0
    device, found_at = placement.device_of_op, placement.device_of_op.copy()
    together = device[graph.senders] == device[graph.receivers]
    beside = np.zeros(graph.num_ops, dtype=np.bool_)
    beside[graph.senders[together & is_held[graph.receivers]]] = True
    beside[graph.receivers[together & is_held[graph.senders]]] = True
    with_block = np.flatnonzero(inside & ~is_held & (~beside | np.isin(graph.op_types, KEEPING)))
    found_at[with_block] = np.array(homes, dtype=np.int64)[blocks.block_of_op[with_block]]
    found = [(int(op), placement.team_name(int(found_at[op]))) for op in np.flatnonzero(inside | is_held)]
    require_kept("llama.cpp", graph, placement, found, blocks.is_work & (inside | is_held))


def _ending(*names: str) -> str:
    """Return a pattern of what follows a name: some of a state-space model have nothing behind them."""
    return r"(\.|$)" if any(re.fullmatch(r"ssm_[a-z]", name) for name in names) else r"\."


def _serving(options: Mapping[str, str], served: Served) -> list[str]:
    """Return the arguments that make llama.cpp hold the cache that was planned."""
    arguments: list[str] = []
    if served.sequences and served.context:  # its context is that of all slots together
        arguments += [options["all_context"], str(served.context * served.sequences)]
        arguments += [options["sequences"], str(served.sequences)]
    cache = _CACHE_TYPES.get(served.cache_precision or "")
    if cache is not None:
        arguments += [options["cache_keys"], cache, options["cache_values"], cache]
        arguments += (
            [options["flash_attention"], "on"] if cache.startswith("q") else []
        )  # it quantises values with flash attention only
    if served.chunk:
        arguments += [options["chunk"], str(served.chunk)]
    return arguments


def _of_host(options: Mapping[str, str], served: Served, platform: Platform, *, is_working: bool) -> list[str]:
    """Return the arguments that give the host work beside its blocks, and as many threads as it has cores."""
    arguments = []
    if served.hosted_blocks:
        arguments += [options["hosted_dense" if served.hosts_dense else "hosted"], str(served.hosted_blocks)]
    if served.hosts_cache:
        arguments += [options["host_cache"]]
    host = next((device for device in platform.devices if device.is_host), None)
    if host is not None and (is_working or arguments) and (threads := threads_of(platform, host)) is not None:
        arguments += [options["threads"], str(threads)]
    return arguments


def _home(graph: OpGraph, placement: Placement, inside: np.ndarray[Any, Any], work: np.ndarray[Any, Any]) -> int:
    """Return the device of a block: that of its attention or state, which it keeps; of most of its work without one."""
    attention = inside & np.isin(graph.op_types, KEEPING)
    at = placement.device_of_op[attention if attention.any() else inside & work]
    return int(np.bincount(at).argmax())


def _any_of(numbers: Sequence[int], num_blocks: int) -> str:
    """Return a pattern of the numbers of blocks."""
    return r"\d+" if len(numbers) == num_blocks > 1 else _one_of(list(map(str, numbers)))


def _one_of(names: Sequence[str]) -> str:
    """Return a pattern of these texts."""
    names = [re.escape(name) for name in dict.fromkeys(names)]
    if EXPERTS.issubset(names):
        names = [*(name for name in names if name not in EXPERTS), ALL_EXPERTS]
    return names[0] if len(names) == 1 else f"({'|'.join(names)})"


LLAMA_CPP = Runtime(
    name="llama.cpp",
    version="build 11434 of October 2026",
    pages=("tools/server/README.md", "common/arg.cpp", "docs/multi-gpu.md", "tools/rpc/rpc-server.cpp"),
    host="first",
    headroom=0.0,
    reserved_bytes=0.65 * 2.0**30,
    chunk=512,
    larger_chunks=(1024, 2048),
    goal="latency",
    kernels="llama.cpp",
    offload_tokens=32,
    overlaps_prompt=True,
    has_any_type=True,
    has_buffers=True,
    has_rpc=True,
    bench="llama-bench",
    program="llama-server -m {model}",
    takes_gguf=True,
    options={
        "blocks": "--n-gpu-layers",
        "split_mode": "--split-mode",
        "split": "--tensor-split",
        "devices": "--device",
        "servers": "--rpc",
        "hosted": "--n-cpu-moe",
        "hosted_dense": "--n-cpu-ffn",
        "tensors": "--override-tensor",
        "fit": "--fit",
        "all_context": "-c",
        "sequences": "-np",
        "chunk": "-ub",
        "cache_keys": "-ctk",
        "cache_values": "-ctv",
        "flash_attention": "-fa",
        "host_cache": "-nkvo",
        "threads": "-t",
    },
    write=write_llama_cpp,
    read=read_llama_cpp,
    read_served=read_served,
    typed=TYPED,
    not_searched=(
        "single tensors elsewhere than their blocks (--override-tensor)",
        "the cache on the host (-nkvo) where the cards hold all blocks, or for the longest context",
        "steps of prefill below 512 tokens or above 2,048 (-ub)",
    ),
)
