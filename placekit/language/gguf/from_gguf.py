"""Description of a language model from the header of a GGUF file: exact bytes of every tensor, no weights, no torch.

Ops are called as their tensors (``blk.3.attn_q``), and what is no tensor has a name that no tensor has. What blocks
keep of a sequence is in :mod:`placekit.language.gguf.block_states`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from placekit.language.description import PREDICTING, Block, ModelDescription, Part
from placekit.language.gguf.block_states import CacheRules, Kept, refuse_other_models
from placekit.language.gguf.header import GgufFile, Tensor, read_gguf_file
from placekit.language.graph import free_name
from placekit.model.errors import InvalidFileError

_LAST_NORMS: Mapping[str, str] = {"lfm2": "token_embd_norm", "lfm2moe": "token_embd_norm"}
"""Names of last norms that are called as those of an embedding are."""
_WITH_OUTPUT = ("output", "altup", "per_layer_model_proj", "per_layer_proj_norm")
"""Beginnings of the names of tensors that llama.cpp has where the output is, some of them used before the blocks."""
_TOWER = re.compile(r"(v|a|mm|mtmd)\.")
"""Beginning of the tensors of another modality."""


def read_gguf(path: Path) -> ModelDescription:
    """Return the description of the model of a GGUF file; of a split one, give the first file.

    Raises `InvalidFileError`: a file that is cut off, or that holds no language model; `UnsupportedProblemError`: a
    block that keeps something which is not known; `SolverUnavailableError`: the package ``gguf`` is not installed.
    """
    file = read_gguf_file(path)
    refuse_other_models(file)
    hidden = file.value("embedding_length")
    table = next((tensor for tensor in file.tensors if tensor.name == "token_embd.weight"), None)
    if table is None or not hidden or not file.num_blocks:
        raise InvalidFileError(
            f"{path}: no language model: {file.family or 'the file'} has no block_count, embedding_length or token_embd"
        )
    if table.shape[0] != hidden:
        raise InvalidFileError(f"{path}: token_embd.weight is {table.shape[0]} wide; embedding_length is {hidden}")
    rules = CacheRules(file)
    by_block, outside = _grouped(file, rules)
    front, back, shared = _outside(file, outside, hidden)
    state = front[-1].path
    blocks: list[Block] = []
    for number in range(rules.count):
        block = _block(rules, number, by_block.get(number, {}), state, hidden)
        state = block.parts[-1].path if number < rules.main else state
        blocks.append(block)
    back = [replace(part, inputs=(state if at == 0 else back[at - 1].path,)) for at, part in enumerate(back)]
    return ModelDescription(
        re.sub(r"-\d{5}-of-\d{5}$", "", path.stem), file.family, hidden, table.shape[-1], _precision(file),
        tuple(front), tuple(blocks[: rules.main]), tuple(back),
        tuple(replace(block, kind=f"{PREDICTING}: {block.kind}") for block in blocks[rules.main :]),
        shared, tuple(rules.notes()), file.value("context_length") or None,
    )  # fmt: skip


def _grouped(file: GgufFile, rules: CacheRules) -> tuple[dict[int, dict[str, list[Tensor]]], dict[str, list[Tensor]]]:
    """Return the tensors of every block and those outside, by name without ``.weight`` or ``.bias``."""
    by_block: dict[int, dict[str, list[Tensor]]] = {}
    outside: dict[str, list[Tensor]] = {}
    for tensor in file.tensors:
        found = re.fullmatch(r"blk\.(\d+)\.(.+)", tensor.name)
        rest = found[2] if found else tensor.name
        if found and int(found[1]) >= rules.count:
            raise InvalidFileError(f"{file.path}: there is {tensor.name!r}, but block_count is {rules.count}")
        if re.match(r"ffn_(gate|up|down)\.\d", rest):
            raise InvalidFileError(
                f"{file.path}: {tensor.name!r} is a single expert, as files of 2023 have them, which llama.cpp no "
                "longer reads: convert the model again"
            )
        group = by_block.setdefault(int(found[1]), {}) if found else outside
        group.setdefault(re.sub(r"\.(weight|bias|scale)$", "", rest), []).append(tensor)
    return by_block, outside


def _precision(file: GgufFile) -> str:
    held = Counter[str]()
    for tensor in file.tensors:
        held[tensor.kind] += tensor.num_bytes
    bits = 8 * sum(held.values()) / max(sum(tensor.size for tensor in file.tensors), 1)
    return f"{held.most_common(1)[0][0]} ({bits:.2f} bits per weight)"


def _part(file: GgufFile, path: str, tensors: list[Tensor], inputs: tuple[str, ...]) -> Part:
    """Return the part with these tensors."""
    largest = max(tensors, key=lambda each: each.size)
    experts, active = 1, 1
    if re.search(r"_(ch)?exps", path) and len(largest.shape) > 1:
        experts = largest.shape[-1]
        active = min(_active_experts(file, path, experts), experts)
    count = sum(tensor.size for tensor in tensors)
    matrices = sum(tensor.size for tensor in tensors if len(tensor.shape) > 1)
    out = largest.shape[1] if len(largest.shape) > 1 else largest.shape[0]
    width = float(out * (active if experts > 1 and "down" not in path else 1))
    flops = 2.0 * matrices * active / experts if matrices else 4.0 * width
    return Part(
        path, "MatMul" if matrices else "RMSNorm", inputs, width, count,
        float(sum(tensor.num_bytes for tensor in tensors)), experts, active, flops,
        tensors=tuple(tensor.name for tensor in tensors),
    )  # fmt: skip


def _active_experts(file: GgufFile, path: str, experts: int) -> int:
    """Return the experts that a token uses, by the keys of the file."""
    told, active = file.value("expert_count", experts), file.value("expert_used_count")
    if told != experts and "_chexps" not in path:
        raise InvalidFileError(f"{file.path}: {path} has {experts} experts; expert_count is {told}")
    if not active:
        raise InvalidFileError(
            f"{file.path}: {path} has {experts} experts, and no expert_used_count says how many a token uses"
        )
    return active


def _outside(
    file: GgufFile, outside: Mapping[str, list[Tensor]], hidden: int
) -> tuple[list[Part], list[Part], tuple[tuple[float, int, tuple[str, ...]], ...]]:
    """Return the parts before and behind the blocks, and tied weights."""
    tables: list[Part] = []
    others: list[Part] = []
    back: list[Part] = []
    towers: dict[str, list[Tensor]] = {}
    for name, tensors in outside.items():
        if tower := _TOWER.match(name):
            towers.setdefault(tower[1], []).extend(tensors)
            continue
        part = _part(file, name, tensors, ())
        if name in ("token_embd", "position_embd", "token_types", "per_layer_token_embd"):
            tables.append(replace(part, op_type="Gather", width=float(tensors[0].shape[0]), is_lookup=True, flops=0.0))
        elif name.startswith(_WITH_OUTPUT) or name == _LAST_NORMS.get(file.family):
            back.append(replace(part, is_last=name == "output"))
        else:
            others.append(replace(part, inputs=("token_embd",)))
    for name, tensors in towers.items():
        held = float(sum(tensor.num_bytes for tensor in tensors))
        tables.append(Part(
            name, "Tower", (), float(hidden), sum(tensor.size for tensor in tensors), held, is_tower=True,
            tensors=tuple(tensor.name for tensor in tensors),
        ))  # fmt: skip
    front = [*tables, *others]
    if len(front) > 1:
        path = free_name("embeddings", outside)
        front.append(Part(path, "Add", tuple(part.path for part in front), float(hidden), flops=float(hidden)))
    back.sort(key=lambda part: part.is_last)
    if any(part.is_last for part in back):
        return front, back, ()
    table = next(part for part in tables if part.path == "token_embd")
    head = replace(
        table, path=free_name("output", outside), op_type="MatMul", width=float(table.parameters // hidden),
        flops=2.0 * table.parameters, is_lookup=False, is_last=True,
    )  # fmt: skip
    return front, [*back, head], ((table.weight_bytes, table.parameters, (table.path, head.path)),)


def _core(kept: Kept, path: str, taken: Mapping[str, object], hidden: int) -> Part:
    """Return the part that keeps something of a sequence."""
    attends = bool(kept.heads)
    return Part(
        f"{path}.{free_name('attn' if attends else 'state', taken)}",
        "ScaledDotProductAttention" if attends else "StateUpdate", width=float(kept.width or hidden),
        flops=1.5 * kept.state_bytes, pair_flops=kept.pair_flops, cache_values=kept.cache_values, heads=kept.heads,
        kv_heads=kept.kv_heads, window=kept.window, state_bytes=kept.state_bytes,
    )  # fmt: skip


def _block(rules: CacheRules, number: int, tensors: Mapping[str, list[Tensor]], state: str, hidden: int) -> Block:
    path = f"blk.{number}"
    largest = {name: max(each, key=lambda tensor: tensor.size) for name, each in tensors.items()}
    kept = rules.kept(number, {name: tensor.shape for name, tensor in largest.items()})
    parts: list[Part] = []

    def add(name: str, *inputs: str) -> str:
        parts.append(_part(rules.file, f"{path}.{name}", tensors[name], inputs))
        return parts[-1].path

    def plus(name: str, *inputs: str) -> str:
        parts.append(Part(f"{path}.{free_name(name, tensors)}", "Add", inputs, float(hidden), flops=float(hidden)))
        return parts[-1].path

    if not tensors:  # a block that a pruned model skips; it has its number
        plus("skip", state)
        return Block(path, "skipped", tuple(parts))
    fed = [name for name in tensors if name.startswith(("ffn", "exp_probs", "channel_mix")) and "norm" not in name]
    before = [name for name in tensors if name in ("attn_norm", "attn_norm_2")]
    norms = [name for name in tensors if re.search(r"ffn.*norm|post.*norm|layer_output_norm", name)]
    outs = [name for name in ("attn_output", "ssm_out", "shortconv.out_proj", "time_mix_output") if name in tensors]
    inner = [name for name in tensors if name not in {*fed, *before, *norms, *outs}]
    source = state
    for name in before:
        source = add(name, source)
    if kept.kind:
        waiting = tuple(add(name, source) for name in inner)
        core = replace(_core(kept, path, tensors, hidden), inputs=waiting or (source,))
        parts.append(core)
        ends = [add(name, core.path) for name in outs] or [core.path]
        state = source = plus("attn_add", state, *ends)
    else:
        for name in [*inner, *outs]:
            source = add(name, source)
    for name in norms:
        source = add(name, source)
    if fed:
        ups = [add(name, source) for name in fed if "down" not in name]
        ends = [add(name, *(ups or [source])) for name in fed if "down" in name] or ups
        plus("ffn_add", state, *ends)
    experts = max((part for part in parts), key=lambda part: part.experts)
    words = (
        f"{experts.experts} experts, {experts.experts_per_token:g} active"
        if experts.experts > 1
        else "dense feed-forward"
    )
    words += " and shared ones" if experts.experts > 1 and any("shexp" in name for name in fed) else ""
    return Block(path, " + ".join(each for each in (kept.kind, words if fed else "") if each), tuple(parts))
