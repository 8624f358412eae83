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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from placekit.language.description import Block, Part
from placekit.model.errors import UnsupportedProblemError

__all__ = ["BlockReader", "Kept", "kept_by", "leaves_of"]

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


@dataclass(frozen=True)
class Kept:
    """Numbers that a module keeps of a sequence.

    Parameters
    ----------
    kind
        Words for the module.
    values
        Numbers of every token.
    state_bytes
        Bytes of a sequence of any length.
    pair_flops, heads, kv_heads
        As of `placekit.language.description.Part`.
    """

    kind: str
    values: int = 0
    state_bytes: float = 0.0
    pair_flops: tuple[float, float] = (0.0, 0.0)
    heads: int = 0
    kv_heads: int = 0


def _number(module: Any, *names: str) -> int | None:
    """Return the first attribute of a module, or of its configuration, that is a number."""
    for owner in (module, getattr(module, "config", None)):
        for name in names:
            value = getattr(owner, name, None)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
    return None


def _sides(module: Any) -> tuple[int, int] | None:
    """Return inputs and outputs of a module with a matrix; None for another."""
    if hasattr(module, "in_features"):
        return module.in_features, module.out_features
    weight = getattr(module, "weight", None)
    if weight is None or weight.dim() != 2:
        return None
    rows, columns = weight.shape
    is_turned = type(module).__name__ == "Conv1D" or _is_lookup(module)  # GPT-2's products, and tables of rows
    return (rows, columns) if is_turned else (columns, rows)


def _is_lookup(module: Any) -> bool:
    """Return True for a table whose rows are looked up."""
    return type(module).__name__.endswith("Embedding")


def kept_by(module: Any) -> Kept | None:
    """Return what a module with these children keeps; None if it is none that keeps something."""
    children = dict(module.named_children())
    parameters = dict(module.named_parameters(recurse=False))
    return _kept_latent(module, children) or _kept_state(module, children, parameters) or _kept_keys(module, children)


def _kept_latent(module: Any, children: dict[str, Any]) -> Kept | None:
    down = children.get("kv_a_proj_with_mqa") or children.get("kv_a_proj")
    if down is None or _sides(down) is None:
        return None
    _, values = _sides(down) or (0, 0)
    heads = _number(module, "num_heads", "num_attention_heads") or 1
    rank = _number(module, "kv_lora_rank") or values
    turned = _number(module, "qk_rope_head_dim") or 0
    plain = _number(module, "qk_nope_head_dim") or 0
    mixed = _number(module, "v_head_dim") or plain
    indexer = children.get("indexer")
    sparse = _sides(getattr(indexer, "wk", None)) if indexer is not None else None
    kind = "latent attention" + (" with an indexer" if sparse else "")
    # decoding keeps the latent vector and multiplies with it; a prompt computes keys and values of heads
    pairs = (2.0 * heads * (plain + turned + mixed), 2.0 * heads * (2 * rank + turned))
    return Kept(kind, values + (sparse[1] if sparse else 0), 0.0, pairs, heads, kv_heads=1)


def _kept_state(module: Any, children: dict[str, Any], parameters: dict[str, Any]) -> Kept | None:
    name = type(module).__name__
    convolutions = [each for each in children.values() if type(each).__name__ == "Conv1d"]
    remembered = sum(each.in_channels * (each.kernel_size[0] - 1) for each in convolutions) * CONV_BYTES
    decay = parameters.get("A_log")
    numbers: int | None = None
    heads: int | None
    kind = "state space"
    if _number(module, "head_k_dim") and _number(module, "head_v_dim"):
        heads = _number(module, "num_v_heads") or 1
        numbers = heads * (_number(module, "head_k_dim") or 0) * (_number(module, "head_v_dim") or 0)
        kind = "linear attention"
    elif decay is not None and decay.dim() > 1:
        numbers = decay.numel()
    elif decay is not None:
        heads = decay.numel()
        channels = _number(module, "head_dim", "headdim", "mamba_headdim", "mamba_d_head")
        size = _number(module, "ssm_state_size", "state_size", "mamba_d_state", "d_state")
        numbers = heads * channels * size if channels and size else None
    elif "Lightning" in name or "Delta" in name:
        heads, size = _number(module, "num_attention_heads", "num_heads"), _number(module, "head_dim")
        numbers, kind = heads * size * size if heads and size else None, "linear attention"
    elif "rg_lru" in children:
        numbers, kind = _number(module, "lru_width") or _number(module, "hidden_size"), "recurrent unit"
    elif convolutions and "Conv" in name:
        numbers, kind = 0, "short convolution"
    if numbers is None:
        return None
    return Kept(kind, 0, numbers * STATE_BYTES + remembered)


def _kept_keys(module: Any, children: dict[str, Any]) -> Kept | None:
    is_recurrent = any(type(each).__name__ == "Conv1d" for each in children.values()) or hasattr(module, "A_log")
    if is_recurrent or not re.search(r"attn|attention", type(module).__name__, re.I) or "Rwkv" in type(module).__name__:
        return None
    outputs = [children[name] for name in _OUT if name in children and _sides(children[name])]
    width = (_sides(outputs[0]) or (0, 0))[0] if outputs else 0
    values = 0
    for keys, mixed in _KEYS:
        if keys in children and (sides := _sides(children[keys])):
            other = _sides(children[mixed]) if children.get(mixed) is not None else None
            values = sides[1] + (other or sides)[1]
            width = width or sides[1]
            break
    if not values and "kv_proj" in children and (sides := _sides(children["kv_proj"])):
        values = sides[1]
        width = (_number(module, "num_heads") or 0) * (_number(module, "head_dim") or 0) or values
    if not values:
        fused = next((children[name] for name in _FUSED if name in children), None)
        sides = None if fused is None or not width else _sides(fused)
        if sides is None or sides[1] <= width:
            return None
        values = sides[1] - width
    is_shared = bool(getattr(module, "is_kv_shared_layer", False))
    kind = "attention" if values >= 2 * width else "grouped-query attention"
    kind = "attention to the cache of an earlier block" if is_shared else kind
    size = _number(module, "head_dim") or width // (_number(module, "num_heads", "num_attention_heads") or width)
    heads = (width // size, values // 2 // size)
    return Kept(kind, 0 if is_shared else values, 0.0, (4.0 * width, 4.0 * width), *heads)


@dataclass
class BlockReader:
    """Reader of the blocks of a model.

    Parameters
    ----------
    where
        File, for messages.
    config
        Configuration of the text model.
    bytes_of
        From the path of a parameter and the parameter to its bytes.
    owner
        Path of the part that has a parameter, by identity of the parameter; filled by reading.
    """

    where: str
    config: Any
    bytes_of: Callable[[str, Any], float]
    owner: dict[int, list[str]] = field(default_factory=dict)
    sizes: dict[int, tuple[float, int]] = field(default_factory=dict)

    def leaf(self, path: str, named: Sequence[tuple[str, Any]], *, module: Any, inputs: tuple[str, ...]) -> Part:
        """Return the part with these parameters of a module.

        Parameters
        ----------
        path
            Its path.
        named
            Paths and parameters.
        module
            The module that has the parameters.
        inputs
            As of the part.
        """
        count, num_bytes, matrices = 0, 0.0, 0
        for name, parameter in named:
            size, stored = parameter.numel(), self.bytes_of(name, parameter)
            count, num_bytes = count + size, num_bytes + stored
            matrices += size if parameter.dim() > 1 else 0
            users = self.owner.setdefault(id(parameter), [])
            users.append(path)
            self.sizes[id(parameter)] = (stored, size)
        experts, active = self.experts_of(path, named, module)
        largest = max((parameter for _, parameter in named), key=lambda each: each.numel())
        hidden = int(self.config.hidden_size)
        sides = _sides(module)
        if experts > 1 or sides is None:
            shape = largest.shape if largest.dim() > 1 else (hidden,)
            wide = next((side for side in reversed(shape[-2:]) if side != hidden), hidden)
            is_down = re.search(r"down|w2|output_linear|out_proj|\.c_proj", path) is not None
            width = float(hidden if is_down else active * wide if experts > 1 else wide)
        else:
            width = float(sides[1])
        norm, is_lookup = matrices == 0, _is_lookup(module)
        flops = 4.0 * width if norm else 0.0 if is_lookup else 2.0 * matrices * active / experts
        return Part(
            path, _op_type(module, is_norm=norm), inputs, width, count, num_bytes, experts, active, flops,
            is_lookup=is_lookup, tensors=tuple(name for name, _ in named),
        )  # fmt: skip

    def experts_of(self, path: str, named: Sequence[tuple[str, Any]], module: Any) -> tuple[int, float]:
        """Return the number of experts that share the parameters of a part, and the active ones."""
        if not (_EXPERTS.search(path) or "Experts" in type(module).__name__) or "shared" in path:
            return 1, 1
        largest = max((parameter for _, parameter in named), key=lambda each: each.numel())
        same = len({found[1] for name, _ in named if (found := re.search(r"experts\.(\d+)\.", name))})
        experts = same or (largest.shape[0] if largest.dim() > 2 else 0) or self._config_number(_EXPERT_COUNTS)
        active = self._config_number(_ACTIVE)
        if not experts or not active:
            raise UnsupportedProblemError(
                f"{self.where}: {path}: it is not known how many of its experts a token uses ({_ACTIVE[0]})"
            )
        return int(experts), min(active, experts)

    def _config_number(self, names: Sequence[str]) -> int | None:
        owners = [self.config, *(getattr(self.config, name, None) for name in ("ffn_config", "moe_config"))]
        for owner in owners:
            for name in names:
                value = owner.get(name) if isinstance(owner, dict) else getattr(owner, name, None)
                value = value[0] if isinstance(value, list | tuple) and value else value
                if isinstance(value, int) and value > 0 and not isinstance(value, bool):
                    return value
        return None

    def window(self, layer: int, module: Any) -> int | None:
        """Return the number of last tokens that a block sees; None for all."""
        kinds = getattr(self.config, "layer_types", None)
        kind = kinds[layer] if isinstance(kinds, list | tuple) and layer < len(kinds) else None
        if kind == "full_attention":
            return None
        if kind == "chunked_attention":
            return _number(self, "attention_chunk_size") or getattr(self.config, "attention_chunk_size", None)
        windows = [getattr(owner, "sliding_window", None) for owner in (module, self.config)]
        found = next((each for each in windows if isinstance(each, int) and each > 0), None)
        if kind is None and getattr(module, "sliding_window", 0) is None:
            return None
        return found

    def block(self, path: str, module: Any, layer: int, state: str) -> Block:
        """Return a block.

        Parameters
        ----------
        path, module
            The block.
        layer
            Its number.
        state
            Path of the part whose output enters.

        Raises
        ------
        UnsupportedProblemError
            A module that keeps something that is not known; with its path.
        """
        mixers = list(_outermost(module))
        inside = {name for name, _, _ in mixers}
        mixed: dict[str, list[tuple[str, list[tuple[str, Any]], Any]]] = {name: [] for name in inside}
        norms, fed = [], []
        for name, named, owner in leaves_of(path, module):
            rest = name[len(path) + 1 :]
            mixer = next((each for each in inside if rest.startswith(f"{each}.") or rest == each), None)
            if mixer is not None:
                mixed[mixer].append((name, named, owner))
            elif all(parameter.dim() < 2 for _, parameter in named) and _child(rest, inside) == rest:
                norms.append((name, named, owner))
            else:
                if any(parameter.dim() > 1 for _, parameter in named):
                    self._require_feed_forward(path, module, _child(rest, inside))
                fed.append((name, named, owner))
        writer = _Writer(self, path, state)
        kinds = []
        for norm in norms[: 1 if mixers or fed else 0]:
            writer.norm(*norm)
        for name, kept, keeper in mixers:
            window = self.window(layer, keeper) if kept.values else None
            kinds.append(kept.kind + (f", window {window}" if window else ""))
            writer.mixer(f"{path}.{name}", kept, window, mixed[name])
        if mixers:
            writer.join("add_1")
        for norm in norms[1:]:
            writer.norm(*norm)
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


def _child(path: str, inside: set[str]) -> str:
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


def _outermost(block: Any) -> Iterator[tuple[str, Kept, Any]]:
    """Yield name, cache and module of the outermost modules of a block that keep something."""
    found: list[str] = []
    for name, module in block.named_modules():
        if name and not any(name.startswith(f"{each}.") for each in found):
            kept = kept_by(module)
            if kept is not None:
                found.append(name)
                yield name, kept, module


def leaves_of(path: str, root: Any) -> Iterator[tuple[str, list[tuple[str, Any]], Any]]:
    """Yield path, named parameters and module of the parts of a module; experts with weights of their own together."""
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

    def norm(self, name: str, named: list[tuple[str, Any]], module: Any) -> None:
        """Add a norm behind what was written last."""
        inputs = (self.source,)
        self.parts.append(self.reader.leaf(name, named, module=module, inputs=inputs))
        self.source = name

    def join(self, name: str) -> None:
        """Add the sum of a residual connection."""
        hidden = float(self.reader.config.hidden_size)
        inputs = tuple(dict.fromkeys([self.state, *(self.ends or [self.source])]))
        self.parts.append(Part(f"{self.path}.{name}", "Add", inputs, hidden, flops=hidden))
        self.state = self.source = f"{self.path}.{name}"
        self.ends = []

    def mixer(
        self, path: str, kept: Kept, window: int | None, leaves: list[tuple[str, list[tuple[str, Any]], Any]]
    ) -> None:
        """Add the products of a mixer, what mixes tokens, and the output projection."""
        hidden = int(self.reader.config.hidden_size)
        matrices = [leaf for leaf in leaves if (sides := _sides(leaf[2])) and sides[1] == hidden]
        named = [leaf for leaf in matrices if leaf[0].rpartition(".")[2] in _OUT]
        last = next(reversed(named or matrices), None)
        waiting: list[str] = []
        width = 0.0
        for name, parameters, module in leaves:
            if last is not None and name == last[0]:
                continue
            sides = _sides(module)
            reads = self.source if (sides and sides[0] == hidden) or not waiting else waiting[-1]
            part = self.reader.leaf(name, parameters, module=module, inputs=(reads,))
            if reads != self.source:
                waiting.remove(reads)
            waiting.append(name)
            self.parts.append(part)
        if last is not None:
            width = float((_sides(last[2]) or (hidden, 0))[0])
        core = f"{path}.attn" if kept.values or kept.pair_flops[0] else f"{path}.state"
        self.parts.append(
            Part(
                core, "ScaledDotProductAttention" if kept.pair_flops[0] else "StateUpdate",
                tuple(waiting) or (self.source,), width or float(hidden), flops=kept.state_bytes * 1.5,
                pair_flops=kept.pair_flops, cache_values=kept.values, heads=kept.heads, kv_heads=kept.kv_heads,
                window=window, state_bytes=kept.state_bytes,
            )
        )  # fmt: skip
        if last is not None:
            self.parts.append(self.reader.leaf(last[0], last[1], module=last[2], inputs=(core,)))
        self.ends.append(self.parts[-1].path)

    def feed_forward(self, leaves: list[tuple[str, list[tuple[str, Any]], Any]]) -> str:
        """Add the feed-forward layers and return words for them."""
        hidden = int(self.reader.config.hidden_size)
        waiting: dict[str, str] = {}  # path and parent of a part that nothing has read
        experts, active, shared = 1, 1.0, False
        for name, parameters, module in leaves:
            parent = name.rpartition(".")[0]
            sides = _sides(module)
            part = self.reader.leaf(name, parameters, module=module, inputs=())
            beside = [each for each, owner in waiting.items() if owner == parent]
            is_first = (sides is not None and sides[0] == hidden and sides[1] != hidden) or not beside
            inputs = (self.source,) if is_first else tuple(beside)
            self.parts.append(replace(part, inputs=inputs))
            for each in () if is_first else beside:
                del waiting[each]
            waiting[name] = parent
            if part.experts > 1:
                experts, active = part.experts, part.experts_per_token
            shared = shared or "shared" in name
        self.ends.extend(waiting)
        if experts == 1:
            return "dense feed-forward"
        return f"{experts} experts, {active:g} active" + (" and shared ones" if shared else "")
