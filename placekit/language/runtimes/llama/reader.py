"""llama.cpp's own rule for where blocks go: what a line with its options means.

References
----------
llama.cpp, build 11434: ``load_tensors`` of ``src/llama-model.cpp``. Of n blocks and the output, the last
``--n-gpu-layers`` are on devices. Shares of ``--tensor-split``, else free memory, are added up as 32-bit floats, and
layer i goes to the first device whose sum exceeds (i - first) / layers. Devices are those of ``--device``, else servers
of ``--rpc`` and then all cards.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from placekit.exports.blocks import block_placement
from placekit.language.runtimes.device_names import ADDRESS, buffer_names, numbers_seen
from placekit.language.runtimes.llama.rpc import remote_devices
from placekit.language.runtimes.llama.tensors import moved_ops
from placekit.language.runtimes.record import Launch, Placed, Runtime, Typed
from placekit.language.runtimes.values import names, whole_number
from placekit.model.blocks.block_paths import BEFORE, BEHIND
from placekit.model.errors import InvalidProblemError, UnsupportedProblemError
from placekit.model.placement import Placement
from placekit.model.platform import Platform
from placekit.model.problem import Problem
from placekit.model.served import Served

PRECISIONS = {"f32": "f32", "f16": "f16", "bf16": "bf16", "q8_0": "int8", "q4_0": "int4"}
"""Precision of the cache by llama.cpp's type."""
ALL_BLOCKS = 10_000
_CHUNK = 512

_FLAGS = names("""
--mlock --no-mmap --mmap --jinja --no-jinja --no-warmup --warmup --metrics --props --slots --no-slots -v --verbose
--no-webui --webui --no-ui --ui --embedding --embeddings --rerank --reranking -cb --cont-batching -nocb
--no-cont-batching --color -cnv --conversation -no-cnv -kvo --kv-offload --op-offload --repack -nr --no-repack
--context-shift --no-context-shift --cache-prompt --no-cache-prompt --perf --no-perf --offline --log-disable
--log-prefix --log-timestamps --no-mmproj --ignore-eos -sp --special -e --escape --check-tensors
--reasoning-preserve --no-reasoning-preserve --prefill-assistant --no-prefill-assistant -no-kvu --no-kv-unified
""")
_IGNORED = names("""
--host --port -tb --threads-batch -b --batch-size -a --alias --temp --temperature --top-k --top-p --min-p --top-nsigma
--typical --xtc-probability --xtc-threshold --samplers --sampler-seq --repeat-penalty --repeat-last-n
--presence-penalty --frequency-penalty --dry-multiplier --dry-base --dry-allowed-length --mirostat -s --seed -n
--predict --n-predict -p --prompt -f --file -sys --system-prompt --api-key --api-key-file --chat-template
--chat-template-file --chat-template-kwargs --reasoning --reasoning-format --reasoning-budget --reasoning-effort -to
--timeout --prio --poll --numa -r -o --keep --rope-scaling --rope-scale --rope-freq-base --rope-freq-scale
--yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast -mg --main-gpu -fitt --fit-target
-fitc --fit-ctx -lv --log-verbosity --log-file --log-colors --threads-http --cache-reuse --slot-save-path --path
--pooling --grammar --grammar-file -ctxcp --ctx-checkpoints --swa-checkpoints -cram --cache-ram -C --cpu-mask -Cr
--cpu-range --cpu-strict -hf --hf-repo -hfr -hff --hf-file -hft --hf-token -mu --model-url -sps --tags -pg -d --n-depth
""")
_REFUSED = names("""
-md --model-draft --spec-draft-model -hfd --spec-draft-hf --spec-type --spec-default -mm --mmproj -mmu --mmproj-url
--swa-full -kvu --kv-unified --kv-unified-per-slot --no-op-offload -nopo --no-host --lora --lora-scaled --override-kv
--control-vector
""")
TYPED = Typed(
    programs=("llama-server", "llama-cli", "llama-bench", "llama-run", "llama-completion"),
    model="-m",
    lenders=("ggml-rpc-server", "rpc-server"),
    also={
        "--model": "-m", "-ngl": "--n-gpu-layers", "--gpu-layers": "--n-gpu-layers", "-ts": "--tensor-split",
        "-sm": "--split-mode", "-dev": "--device", "-ncmoe": "--n-cpu-moe", "-ncffn": "--n-cpu-ffn",
        "-ot": "--override-tensor", "-fit": "--fit", "--ctx-size": "-c", "--parallel": "-np", "--ubatch-size": "-ub",
        "--cache-type-k": "-ctk", "--cache-type-v": "-ctv", "--flash-attn": "-fa", "--threads": "-t",
    },
    flags={
        "-cmoe": ("--n-cpu-moe", str(ALL_BLOCKS)), "--cpu-moe": ("--n-cpu-moe", str(ALL_BLOCKS)),
        "-nkvo": ("-nkvo", "on"), "--no-kv-offload": ("-nkvo", "on"), **dict.fromkeys(_FLAGS),
    },
    optional={"-fa": "on", "--flash-attn": "on"},
    ignored=_IGNORED,
    refused=_REFUSED,
)  # fmt: skip
"""Names and values of ``common/arg.cpp``."""


def read_llama_cpp(runtime: Runtime, launch: Launch, problem: Problem[Any]) -> Placed:
    """Return where llama.cpp puts the blocks of a model.

    Raises
    ------
    InvalidProblemError
        A device that is not there, or a number that is none; the message names it.
    UnsupportedProblemError
        A split that llama.cpp chooses by itself, or a rule that moves a part of an op.
    """
    values, options = launch.values, runtime.options
    graph, platform, further = problem.graph, problem.platform, (problem.served or Served()).further_blocks
    if values.get(options["split_mode"], "layer") != "layer":
        raise UnsupportedProblemError(f"{options['split_mode']} {values[options['split_mode']]} is not read; layer is")
    host = next((at for at, device in enumerate(platform.devices) if device.is_host), None)
    blocks = block_placement(graph)
    offloaded = values.get(options["blocks"])
    if offloaded in (None, "auto", "-1") and values.get(options["fit"]) != "off":
        raise UnsupportedProblemError(
            f"without {options['blocks']} llama.cpp chooses it; llama-fit-params prints what it takes"
        )
    is_all = offloaded in (None, "auto", "all") or re.fullmatch(r"-\d+", offloaded)
    layers = blocks.num_blocks + further + 1  # blocks of multi-token prediction are in the file, and have a place
    wanted = ALL_BLOCKS if is_all or offloaded is None else whole_number(options["blocks"], offloaded)
    named = _named(options, values, platform, launch.environment)
    devices = _devices(options, values, named)
    active = min(wanted, layers) if devices else 0
    shares = _shares(values.get(options["split"]), devices, platform, options["split"])
    if host is None and active < layers:
        raise InvalidProblemError(
            f"{options['blocks']} {offloaded} leaves {layers - active} layers to a host; the platform has none"
        )
    homes = [host or 0] * (layers - active)
    homes += [devices[bisect_right(shares, np.float32(np.float32(at) / np.float32(active)))] for at in range(active)]
    number = blocks.block_of_op
    front = homes[0] if host is None else host  # the embedding is in host memory, of which a platform may say nothing
    inside = np.array(homes)[np.maximum(number, 0)]  # those of prediction follow, and are not placed
    place = np.where(number == BEFORE, front, np.where(number == BEHIND, homes[-1], inside))
    rules = _rules(options, values, named, host)
    if rules:
        place = moved_ops(graph, blocks, place, rules, np.array([device.is_host for device in platform.devices]))
    return Placed(
        graph, platform, Placement(graph.op_names, platform.device_names, place), read_served(runtime, launch)
    )


def read_served(runtime: Runtime, launch: Launch) -> Served:
    """Return what a line says of the cache, the sequences, the steps and the feed-forward layers on the host.

    Raises
    ------
    InvalidProblemError
        A number that is none.
    UnsupportedProblemError
        A type of the cache that placekit has no size for.
    """
    options, values = runtime.options, launch.values
    sequences = whole_number(options["sequences"], values.get(options["sequences"], "1"))
    context = whole_number(options["all_context"], values.get(options["all_context"], "0"))
    hosted = {name: whole_number(options[name], values.get(options[name], "0")) for name in ("hosted", "hosted_dense")}
    kind = values.get(options["cache_keys"], "f16")
    if kind not in PRECISIONS:
        raise UnsupportedProblemError(f"{options['cache_keys']} {kind} is not read; types are {', '.join(PRECISIONS)}")
    return Served(
        runtime=runtime.name, context=context // max(sequences, 1) or None, sequences=sequences,
        chunk=whole_number(options["chunk"], values.get(options["chunk"], str(_CHUNK))),
        cache_precision=PRECISIONS[kind],
        hosted_blocks=max(hosted.values()), hosts_dense=hosted["hosted_dense"] > 0,
        hosts_cache=options["host_cache"] in values,
    )  # fmt: skip


class _Named(NamedTuple):
    """Devices by llama.cpp's names."""

    devices: dict[str, int]  # that layers may be divided among, in llama.cpp's order
    buffers: dict[str, int]


def _named(
    options: Mapping[str, str], values: Mapping[str, str], platform: Platform, environment: Mapping[str, str]
) -> _Named:
    """Return the devices that a line may name: those of servers, and the cards that programs see.

    Raises `InvalidProblemError`: a server of no device.
    """
    servers = [address for address in values.get(options["servers"], "").split(",") if address]
    remote = [device for device in platform.devices if device.properties.get(ADDRESS) in servers]
    remote.sort(key=lambda device: servers.index(device.properties[ADDRESS]))
    lacking = set(servers) - {device.properties[ADDRESS] for device in remote}
    if lacking:
        raise InvalidProblemError(f"{options['servers']} {', '.join(sorted(lacking))}: no device is at this address")
    local = [each for each in platform.devices if not each.is_host and ADDRESS not in each.properties]
    called = buffer_names(platform)
    own = [called[each.name] for each in local]
    numbered = [name for name in own if re.fullmatch(r"(CUDA|ROCm|SYCL)\d+", name)]
    seen = numbers_seen(environment, len(numbered)) if numbered else []
    found_at = {name: platform.index(each.name) for name, each in zip(own, local, strict=True)}
    places = {name: at for name, at in found_at.items() if name not in numbered}
    places = {numbered[at]: found_at[numbered[number]] for at, number in enumerate(seen)} | places
    lent = remote_devices(remote)
    first = {lent.names[each.name]: platform.index(each.name) for each in remote}
    return _Named({**first, **places}, {lent.buffers[each.name]: platform.index(each.name) for each in remote} | places)


def _rules(
    options: Mapping[str, str], values: Mapping[str, str], named: _Named, host: int | None
) -> list[tuple[str, int]]:
    """Return the patterns of tensors that are moved, with their devices.

    Raises `InvalidProblemError`: a rule without a buffer, or of one that is not there.
    """
    told, option = values.get(options["tensors"], ""), options["tensors"]
    buffers = named.buffers if host is None else {**named.buffers, "CPU": host}
    found = []
    for rule in filter(None, told.split(",")):
        pattern, _, buffer = rule.partition("=")
        if buffer not in buffers:
            raise InvalidProblemError(f"{option} {rule}: buffers are {', '.join(buffers)}")
        found.append((pattern, buffers[buffer]))
    return found


def _devices(options: Mapping[str, str], values: Mapping[str, str], named: _Named) -> list[int]:
    """Return the devices that layers are divided among, in llama.cpp's order."""
    told, at_name = values.get(options["devices"]), named.devices
    if told is None:
        return list(at_name.values())
    if told == "none":
        return []
    for name in told.split(","):
        if name not in at_name:
            raise InvalidProblemError(f"{options['devices']} {name}: devices are {', '.join(at_name) or 'none'}")
    return [at_name[name] for name in told.split(",")]


def _shares(told: str | None, devices: Sequence[int], platform: Platform, option: str) -> list[np.float32]:
    """Return the cumulated shares of devices."""
    if told is None:
        given = [platform.devices[at].memory_bytes or 1.0 for at in devices]
    else:
        try:
            given = [float(each) for each in re.split(r"[,/]", told)]
        except ValueError:
            raise InvalidProblemError(f"{option} {told!r} has a share that is no number") from None
        if len(given) > len(devices) or not all(each >= 0 for each in given) or not sum(given):
            raise InvalidProblemError(f"{option} {told}: {len(given)} shares for {len(devices)} devices")
        given += [0.0] * (len(devices) - len(given))
    total, sums = np.float32(0.0), []
    for each in given:
        total = np.float32(total + np.float32(each))
        sums.append(total)
    return [np.float32(each / total) for each in sums]
