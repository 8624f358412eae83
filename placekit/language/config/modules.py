"""Parts of the modules of transformers: what a block keeps of a sequence, which experts it has, what its weights are.

Modules are looked at by their shapes and by the names of their children, not by their family:

- *latent attention* has ``kv_a_proj_with_mqa``, whose output is what it keeps of a token;
- *attention* has ``k_proj`` and ``v_proj``, or one product for queries, keys and values: then keys and values are what
  is wider in it than the input of the output projection;
- *state space and linear attention* have a state of fixed size: heads x channels x state, and the last inputs of their
  convolution.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from placekit.language.description import Block, Part
from placekit.model.errors import UnsupportedProblemError

Leaf = tuple[str, list[tuple[str, Any]], Any]
"""Path of a part, its parameters with their paths, and their module."""

STATE_BYTES = 4
"""Bytes of a number of a recurrent state, which runtimes keep in 32 bits."""
CONV_BYTES = 2
"""Bytes of an input that a convolution remembers."""

_OUT = ("o_proj", "out_proj", "c_proj", "dense", "out_linear", "wo", "o", "output_proj", "linear_out", "resid_proj")
_FUSED = ("qkv_proj", "c_attn", "query_key_value", "Wqkv", "qkv", "att_proj", "qkv_linear", "W_pack", "wqkv", "in_proj")
_KEYS = (("k_proj", "v_proj"), ("wk", "wv"), ("key", "value"), ("k", "v"), ("linear_k", "linear_v"))
_FEED_FORWARD = re.compile(r"mlp|ffn|feed_?forward|moe|experts?\b|fc_?\d|\bff|gate_proj|up_proj|down_proj|linear", re.I)
_KEEPS = re.compile(r"attn|attention|mixer|mamba|ssm|rnn|recurrent|conv|retention|rwkv|lstm|delta|temporal", re.I)
_EXPERTS = re.compile(r"(?:^|\.)experts?(?:\.|$)")
_ACTIVE = (
    "num_experts_per_tok", "num_experts_per_token", "moe_top_k", "moe_topk", "top_k_experts", "moe_k",
    "num_selected_experts", "experts_per_token", "top_k", "num_active_experts", "moe_router_topk",
)  # fmt: skip
_EXPERT_COUNTS = (
    "num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts", "num_routed_experts", "expert_num",
)  # fmt: skip


def _number(owners: Sequence[Any], *names: str) -> int | None:
    """Return the first positive number under one of the names; of a list the first."""
    for owner in owners:
        for name in names:
            value = owner.get(name) if isinstance(owner, dict) else getattr(owner, name, None)
            value = value[0] if isinstance(value, list | tuple) and value else value
            if isinstance(value, int) and value > 0 and not isinstance(value, bool):
                return value
    return None


def _of(module: Any, *names: str) -> int | None:
    """Return a number of a module, or of its configuration."""
    return _number((module, getattr(module, "config", None)), *names)


def _sides(module: Any) -> tuple[int, int]:
    """Return inputs and outputs of a module with a matrix; 0 and 0 of another."""
    if hasattr(module, "in_features"):
        return module.in_features, module.out_features
    weight = getattr(module, "weight", None)
    if weight is None or weight.dim() != 2:
        return 0, 0
    rows, columns = weight.shape
    is_turned = type(module).__name__ == "Conv1D" or _is_lookup(module)  # GPT-2's products, and tables of rows
    return (rows, columns) if is_turned else (columns, rows)


def _is_lookup(module: Any) -> bool:
    """Return True for a table whose rows are looked up."""
    return type(module).__name__.endswith("Embedding")


def kept_by(module: Any) -> Part | None:
    """Return what a module keeps, as a part whose type is words for it; None if it is none that keeps something."""
    children = dict(module.named_children())
    return _kept_latent(module, children) or _kept_state(module, children) or _kept_keys(module, children)


def _kept_latent(module: Any, children: dict[str, Any]) -> Part | None:
    _, values = _sides(children.get("kv_a_proj_with_mqa") or children.get("kv_a_proj"))
    if not values:
        return None
    heads = _of(module, "num_heads", "num_attention_heads") or 1
    rank = _of(module, "kv_lora_rank") or values
    turned = _of(module, "qk_rope_head_dim") or 0
    plain = _of(module, "qk_nope_head_dim") or 0
    mixed = _of(module, "v_head_dim") or plain
    _, indexed = _sides(getattr(children.get("indexer"), "wk", None))
    kind = "latent attention" + (" with an indexer" if indexed else "")
    # decoding keeps the latent vector and multiplies with it; a prompt computes keys and values of heads
    pairs = (2.0 * heads * (plain + turned + mixed), 2.0 * heads * (2 * rank + turned))
    return Part("", kind, pair_flops=pairs, cache_values=values + indexed, heads=heads, kv_heads=1)


def _kept_state(module: Any, children: dict[str, Any]) -> Part | None:
    name = type(module).__name__
    convolutions = [each for each in children.values() if type(each).__name__ == "Conv1d"]
    remembered = sum(each.in_channels * (each.kernel_size[0] - 1) for each in convolutions) * CONV_BYTES
    decay = getattr(module, "A_log", None)
    keys, values = _of(module, "head_k_dim"), _of(module, "head_v_dim")
    numbers: int | None = None
    kind = "state space"
    if keys and values:
        numbers, kind = (_of(module, "num_v_heads") or 1) * keys * values, "linear attention"
    elif decay is not None and decay.dim() > 1:
        numbers = decay.numel()
    elif decay is not None:
        channels = _of(module, "head_dim", "headdim", "mamba_headdim", "mamba_d_head")
        size = _of(module, "ssm_state_size", "state_size", "mamba_d_state", "d_state")
        numbers = decay.numel() * channels * size if channels and size else None
    elif "Lightning" in name or "Delta" in name:
        heads, size = _of(module, "num_attention_heads", "num_heads"), _of(module, "head_dim")
        numbers, kind = heads * size * size if heads and size else None, "linear attention"
    elif "rg_lru" in children:
        numbers, kind = _of(module, "lru_width", "hidden_size"), "recurrent unit"
    elif convolutions and "Conv" in name:
        numbers, kind = 0, "short convolution"
    return None if numbers is None else Part("", kind, state_bytes=float(numbers * STATE_BYTES + remembered))


def _kept_keys(module: Any, children: dict[str, Any]) -> Part | None:
    is_recurrent = any(type(each).__name__ == "Conv1d" for each in children.values()) or hasattr(module, "A_log")
    if is_recurrent or not re.search(r"attn|attention", type(module).__name__, re.I) or "Rwkv" in type(module).__name__:
        return None
    is_shared = bool(getattr(module, "is_kv_shared_layer", False))
    sides = {name: _sides(child) for name, child in children.items()}
    width = next((sides[name][0] for name in _OUT if any(sides.get(name, ()))), 0)
    pair = next((pair for pair in _KEYS if any(sides.get(pair[0], ()))), None)
    if pair is not None:
        _, keys = sides[pair[0]]
        values = keys + (sides.get(pair[1], (0, 0))[1] or keys)
        width = width or keys
    elif any(sides.get("kv_proj", ())):
        values = sides["kv_proj"][1]
        width = (_of(module, "num_heads") or 0) * (_of(module, "head_dim") or 0) or values
    elif is_shared:  # keys and values are those of an earlier block: it has no products for them
        values = 2 * (_of(module, "num_key_value_heads") or 1) * (_of(module, "head_dim") or 1)
    else:
        values = next((sides[name][1] for name in _FUSED if name in sides), 0) - width
        if not width or values <= 0:
            return None
    kind = "attention" if values >= 2 * width else "grouped-query attention"
    kind = "attention to the cache of an earlier block" if is_shared else kind
    size = _of(module, "head_dim") or width // (_of(module, "num_heads", "num_attention_heads") or width)
    return Part("", kind, pair_flops=(4.0 * width, 4.0 * width), cache_values=0 if is_shared else values,
                heads=width // size, kv_heads=values // 2 // size)  # fmt: skip


@dataclass
class BlockReader:
    """Reader of the blocks of a model."""

    where: str  # file, for messages
    config: Any  # configuration of the text model
    bytes_of: Callable[[str, Any], float]  # from the path of a parameter and the parameter to its bytes
    # bytes, numbers and users (paths of parts) of every parameter, by its identity; filled by reading
    users: dict[int, tuple[float, int, tuple[str, ...]]] = field(default_factory=dict)

    def leaf(self, path: str, named: Sequence[tuple[str, Any]], module: Any, *inputs: str) -> Part:
        """Return the part of a leaf, which reads the parts with the paths `inputs`."""
        count, num_bytes, matrices = 0, 0.0, 0
        for name, parameter in named:
            size, stored = parameter.numel(), self.bytes_of(name, parameter)
            count, num_bytes = count + size, num_bytes + stored
            matrices += size if parameter.dim() > 1 else 0
            *_, users = self.users.get(id(parameter), (0, 0, ()))
            self.users[id(parameter)] = (stored, size, (*users, path))
        largest = max((parameter for _, parameter in named), key=lambda each: each.numel())
        experts, active = self._experts(path, named, module, largest)
        hidden, width = int(self.config.hidden_size), float(_sides(module)[1])
        if experts > 1 or not width:
            shape = largest.shape if largest.dim() > 1 else (hidden,)
            wide = next((side for side in reversed(shape[-2:]) if side != hidden), hidden)
            is_down = re.search(r"down|w2|output_linear|out_proj|\.c_proj", path) is not None
            width = float(hidden if is_down else active * wide if experts > 1 else wide)
        norm, is_lookup = matrices == 0, _is_lookup(module)
        flops = 4.0 * width if norm else 0.0 if is_lookup else 2.0 * matrices * active / experts
        return Part(
            path, _op_type(module, is_norm=norm), inputs, width, count, num_bytes, experts, active, flops,
            is_lookup=is_lookup, tensors=tuple(name for name, _ in named),
        )  # fmt: skip

    def _experts(self, path: str, named: Sequence[tuple[str, Any]], module: Any, largest: Any) -> tuple[int, float]:
        """Return the number of experts that share the parameters of a part, and the active ones."""
        if not (_EXPERTS.search(path) or "Experts" in type(module).__name__) or "shared" in path:
            return 1, 1
        owners = [self.config, *(getattr(self.config, name, None) for name in ("ffn_config", "moe_config"))]
        same = len({found[1] for name, _ in named if (found := re.search(r"experts\.(\d+)\.", name))})
        experts = same or (largest.shape[0] if largest.dim() > 2 else 0) or _number(owners, *_EXPERT_COUNTS)
        active = _number(owners, *_ACTIVE)
        if not experts or not active:
            raise UnsupportedProblemError(
                f"{self.where}: {path}: it is not known how many of its experts a token uses ({_ACTIVE[0]})"
            )
        return int(experts), min(active, experts)

    def window(self, layer: int, module: Any) -> int | None:
        """Return the number of last tokens that a block sees; None for all."""
        kinds = getattr(self.config, "layer_types", None)
        kind = kinds[layer] if isinstance(kinds, list | tuple) and layer < len(kinds) else None
        if kind == "full_attention" or (kind is None and getattr(module, "sliding_window", 0) is None):
            return None
        if kind == "chunked_attention":
            return getattr(self.config, "attention_chunk_size", None)
        return _number((module, self.config), "sliding_window")

    def block(self, path: str, module: Any, layer: int, state: str) -> Block:
        """Return a block.

        `state` is the path of the part whose output enters. Raises `UnsupportedProblemError`: a module that keeps
        something that is not known; with its path.
        """
        mixers = list(_outermost(module))
        mixed: dict[str, list[Leaf]] = {name: [] for name, _, _ in mixers}
        norms: list[Leaf] = []
        fed: list[Leaf] = []
        for leaf in leaves_of(path, module):
            rest, is_matrix = leaf[0][len(path) + 1 :], any(parameter.dim() > 1 for _, parameter in leaf[1])
            mixer = next((each for each in mixed if f"{rest}.".startswith(f"{each}.")), None)
            child = _child(rest, mixed)
            if mixer is not None:
                mixed[mixer].append(leaf)
            elif not is_matrix and child == rest:
                norms.append(leaf)
            else:
                if is_matrix:
                    self._require_feed_forward(path, module, child)
                fed.append(leaf)
        writer = _Writer(self, path, state)
        kinds = []
        first = 1 if mixers or fed else 0
        writer.norms(norms[:first])
        for name, kept, keeper in mixers:
            window = self.window(layer, keeper) if kept.cache_values else None
            kinds.append(kept.op_type + (f", window {window}" if window else ""))
            writer.mixer(f"{path}.{name}", replace(kept, window=window), mixed[name])
        if mixers:
            writer.join("add_1")
        writer.norms(norms[1:])
        if fed:
            kinds.append(writer.feed_forward(fed))
            writer.join("add_2")
        return Block(path, " + ".join(kinds) or "norms only", tuple(writer.parts))

    def _require_feed_forward(self, path: str, block: Any, rest: str) -> None:
        """Refuse a module that may keep something which is not known."""
        child = block
        for component in rest.split("."):
            child = getattr(child, component, None)
        kind, name = type(child).__name__, rest.rpartition(".")[2]
        if _FEED_FORWARD.search(kind) or (_FEED_FORWARD.search(name) and not _KEEPS.search(kind)):
            return
        if _KEEPS.search(kind) or _KEEPS.search(name):
            raise UnsupportedProblemError(
                f"{self.where}: {path}.{rest} ({kind}): it is not known what it keeps of a sequence"
            )


def _child(path: str, inside: Iterable[str]) -> str:
    """Return the shortest beginning of a path inside a block that holds none of the modules in `inside`."""
    names = path.split(".")
    for end in range(1, len(names) + 1):
        found = ".".join(names[:end])
        if not any(each.startswith(f"{found}.") for each in inside):
            return found
    return path


def _op_type(module: Any, *, is_norm: bool) -> str:
    name = type(module).__name__
    if _is_lookup(module):
        return "Gather"
    if name in ("Conv1d", "Conv2d", "Conv3d"):
        return "Convolution"
    return "RMSNorm" if is_norm else "MatMul"


def _outermost(block: Any) -> Iterator[tuple[str, Part, Any]]:
    """Yield name, cache and module of the outermost modules of a block that keep something."""
    found: list[str] = []
    for name, module in block.named_modules():
        if name and not any(name.startswith(f"{each}.") for each in found):
            kept = kept_by(module)
            if kept is not None:
                found.append(name)
                yield name, kept, module


def leaves_of(path: str, root: Any) -> Iterator[Leaf]:
    """Yield the leaves of a module; experts with weights of their own are one."""
    found: dict[str, tuple[list[tuple[str, Any]], Any]] = {}
    for name, module in root.named_modules():
        full = f"{path}.{name}".strip(".")
        for key, parameter in module.named_parameters(recurse=False):
            part = re.sub(r"(experts)\.\d+\.", r"\1.", full)
            if parameter.dim() > 2 and "Conv" not in type(module).__name__ and key != "weight":
                part = f"{full}.{key}"  # stacked experts: one part per matrix
            elif key != "weight" and f"{full}.{key.removesuffix('_bias')}" in found:
                part = f"{full}.{key.removesuffix('_bias')}"
            elif not name:
                part = f"{full}.{key}"
            found.setdefault(part, ([], module))[0].append((f"{full}.{key}", parameter))
    for part, (named, module) in found.items():
        yield part, named, module


@dataclass
class _Writer:
    """Writer of the parts of a block, with the edges between them."""

    reader: BlockReader
    path: str
    state: str
    parts: list[Part] = field(default_factory=list)
    source: str = ""
    ends: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.source = self.state

    def norms(self, leaves: Sequence[Leaf]) -> None:
        """Add norms, one behind the other."""
        for leaf in leaves:
            self.parts.append(self.reader.leaf(*leaf, self.source))
            self.source = leaf[0]

    def join(self, name: str) -> None:
        """Add the sum of a residual connection."""
        hidden = float(self.reader.config.hidden_size)
        inputs = tuple(dict.fromkeys([self.state, *(self.ends or [self.source])]))
        self.parts.append(Part(f"{self.path}.{name}", "Add", inputs, hidden, flops=hidden))
        self.state = self.source = f"{self.path}.{name}"
        self.ends = []

    def mixer(self, path: str, kept: Part, leaves: Sequence[Leaf]) -> None:
        """Add the products of a mixer, what mixes tokens, and the output projection."""
        hidden = int(self.reader.config.hidden_size)
        matrices = [leaf for leaf in leaves if _sides(leaf[2])[1] == hidden]
        named = [leaf for leaf in matrices if leaf[0].rpartition(".")[2] in _OUT]
        last = next(reversed(named or matrices), None)
        waiting: list[str] = []
        for leaf in leaves:
            if leaf is not last:
                reads = self.source if _sides(leaf[2])[0] == hidden or not waiting else waiting.pop()
                self.parts.append(self.reader.leaf(*leaf, reads))
                waiting.append(leaf[0])
        attends = bool(kept.pair_flops[0])
        core = replace(
            kept, path=f"{path}.attn" if attends else f"{path}.state", inputs=tuple(waiting) or (self.source,),
            op_type="ScaledDotProductAttention" if attends else "StateUpdate", flops=kept.state_bytes * 1.5,
            width=float(hidden if last is None else _sides(last[2])[0]),
        )  # fmt: skip
        self.parts.append(core)
        if last is not None:
            self.parts.append(self.reader.leaf(*last, core.path))
        self.ends.append(self.parts[-1].path)

    def feed_forward(self, leaves: Sequence[Leaf]) -> str:
        """Add the feed-forward layers and return words for them."""
        hidden = int(self.reader.config.hidden_size)
        waiting: dict[str, str] = {}  # path and parent of a part that nothing has read
        for leaf in leaves:
            parent, (enters, leaves_as) = leaf[0].rpartition(".")[0], _sides(leaf[2])
            beside = [each for each, owner in waiting.items() if owner == parent]
            if (enters == hidden and leaves_as != hidden) or not beside:
                beside = []
            self.parts.append(self.reader.leaf(*leaf, *(beside or [self.source])))
            for each in beside:
                del waiting[each]
            waiting[leaf[0]] = parent
        self.ends.extend(waiting)
        routed = [part for part in self.parts if part.experts > 1]
        if not routed:
            return "dense feed-forward"
        shared = " and shared ones" if any("shared" in leaf[0] for leaf in leaves) else ""
        return f"{routed[-1].experts} experts, {routed[-1].experts_per_token:g} active{shared}"
