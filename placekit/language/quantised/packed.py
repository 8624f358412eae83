"""Bytes of the weights of a quantised model, as rules give them: which modules are packed, and in how many bits.

Configurations name the modules of the checkpoint. Transformers may call a module otherwise, and stacks the experts that
a checkpoint has one by one, so a rule is asked about every name that a module may have there.

Counted are the numbers and what comes with groups of them: scales, zero points, codebooks. Vectors of one number per
row or column, such as scales of whole rows or an order of columns, are left out: 0.1 % at most.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from functools import cached_property
from typing import Any

from placekit.model.errors import UnsupportedProblemError

LINEAR, EXPERTS, HEAD, TABLE, TOWER = "linear", "experts", "head", "table", "tower"
"""Kinds of weights: products of blocks, experts, the head, lookup tables, and products of other modalities."""

BLOCKS = (LINEAR, EXPERTS)
"""Kinds that are in every block."""
PRODUCTS = (LINEAR, EXPERTS, HEAD, TOWER)
"""Kinds that are linear layers of transformers."""

_HEAD = re.compile(r"(lm_head|embed_out|output_projection|^output|head[^.]*)$")
_TOWER = re.compile(r"vision|visual|audio|image|speech|video|multi_?modal|projector|aligner|tower|connector", re.I)
_ROUTER = re.compile(r"(mlp|moe|block_sparse_moe|feed_forward)\.(gate|router)$|shared_expert_gate$")
_HALVES = {"gate_up_proj": ("gate_proj", "up_proj")}
_MIXTRAL = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
_REGEX_SIGNS = re.compile(r"[\\^$()|+]")


@dataclass(frozen=True)
class Packing:
    """Storage of packed weights."""

    bits: float  # of a number, with its share of what a group has
    module_bytes: float = 0.0  # that a module has beside: codebooks

    @property
    def is_plain(self) -> bool:
        """True for bits that stand for a module that is not quantised."""
        return self.bits >= 16


PLAIN = Packing(16.0)
"""Storage of a module that is not quantised, in the data type of the model."""


def packed(bits: float, group: float | None = None, group_bits: float = 0.0) -> Packing:
    """Return the storage of numbers of which every `group` shares `group_bits`; None or -1 for whole rows."""
    return Packing(float(bits) + (group_bits / group if group is not None and group > 0 else 0.0))


MXFP4, NVFP4 = packed(4, 32, 8), packed(4, 16, 8)
"""Small floats with scales of 8 bits."""


def pattern_of(text: str, *, is_regex: bool = False) -> re.Pattern[str] | None:
    """Return the pattern of a name in a configuration, or None if the name is plain.

    Patterns begin with ``re:``, are regular expressions, or have the signs ``*``, ``?`` and ``[`` of file names. Those
    match from the beginning of the name, up to its end or a dot. Raises `re.error`: no regular expression.
    """
    if text.startswith("re:") or is_regex:
        return re.compile(text.removeprefix("re:"))
    if _REGEX_SIGNS.search(text):
        return re.compile(rf"(?:{text})(?:(?<=\.)|(?=\.|$))")
    if re.search(r"[*?\[]", text):
        return re.compile(rf"{translate(text)}|{translate(f'{text}.*')}")
    return None


class Names:
    """Names and patterns of modules in a configuration.

    A plain name means every module whose path has it, at dots: ``self_attn`` all of that name, with what is inside.

    Examples
    --------
    >>> names = Names(["lm_head", "mlp.gate", "re:.*self_attn.*", "model.layers.0*"])
    >>> [names(each) for each in ("lm_head", "model.layers.3.mlp.gate", "model.layers.3.mlp.gate_proj")]
    [True, True, False]
    >>> names("model.layers.3.self_attn.q_proj"), names("model.layers.0.mlp.up_proj")
    (True, True)
    """

    def __init__(self, texts: Iterable[str], *, are_regexes: bool = False) -> None:
        self.texts = tuple(texts)
        found = [(text, pattern_of(text, is_regex=are_regexes)) for text in self.texts]
        self.plain = frozenset(text.removesuffix(".weight").strip(".") for text, pattern in found if pattern is None)
        self.patterns = tuple(pattern for _, pattern in found if pattern is not None)

    def __call__(self, name: str) -> bool:
        """Return True for the name of a module that is meant."""
        return not self.plain.isdisjoint(_runs(name)) or any(pattern.match(name) for pattern in self.patterns)


def _runs(name: str) -> set[str]:
    """Return every part of a path from one dot to another."""
    parts = name.split(".")
    return {".".join(parts[start:end]) for end in range(1, len(parts) + 1) for start in range(end)}


@dataclass(frozen=True)
class Rule:
    """Storage of the modules of some names, of the kinds `kinds`."""

    names: Names
    packing: Packing
    kinds: frozenset[str] = frozenset((LINEAR, EXPERTS, HEAD, TABLE, TOWER))


@dataclass(frozen=True)
class Quantised:
    """Quantisation of a model: the first rule that names a module tells its storage, else what its kind has."""

    method: str
    of_kind: Mapping[str, Packing]  # storage by kind of weights; kinds that are missing are plain
    rules: Sequence[Rule] = ()

    @property
    def _tells_experts_apart(self) -> bool:
        """True if rules may treat two experts of a stack differently."""
        return any("expert" in text for rule in self.rules for text in rule.names.texts)

    @cached_property
    def _rule_of_plain(self) -> Mapping[str, Sequence[int]]:
        """Rules that have a plain name, in order: files may have one rule for each of thousands of modules."""
        found: dict[str, list[int]] = {}
        for number, rule in enumerate(self.rules):
            for text in rule.names.plain:
                found.setdefault(text, []).append(number)
        return found

    def packings(self, kind: str, name: str, parameter: Any) -> Iterator[tuple[int, Packing]]:
        """Yield the storage of the modules of the checkpoint that a parameter stands for, and how many are alike."""
        modules = list(self._modules(kind, name, parameter))
        rules = [self._rule(kind, names) for _, names in modules]
        if kind == EXPERTS and not any(rules):  # a checkpoint may have stacks, too
            rules = [self._rule(kind, _names_of(name))] * len(modules)
        for (count, _), rule in zip(modules, rules, strict=True):
            yield count, self.of_kind.get(kind, PLAIN) if rule is None else rule.packing

    def _rule(self, kind: str, names: Sequence[str]) -> Rule | None:
        runs = set().union(*map(_runs, names))
        named = [at for run in runs for at in self._rule_of_plain.get(run, ()) if kind in self.rules[at].kinds]
        first = min(named, default=len(self.rules))
        for at, rule in self._pattern_rules:
            if at > first:
                break
            if kind in rule.kinds and any(pattern.match(name) for pattern in rule.names.patterns for name in names):
                return rule
        return self.rules[first] if first < len(self.rules) else None

    @cached_property
    def _pattern_rules(self) -> Sequence[tuple[int, Rule]]:
        return [(number, rule) for number, rule in enumerate(self.rules) if rule.names.patterns]

    def bytes_of(self, model: Any, plain: float) -> tuple[Callable[[str, Any], float], str]:
        """Return a function from a parameter of `model` to its bytes, and words for how weights are stored.

        `plain` are the bytes of a number of a module that is not quantised.
        """
        kinds = kinds_of(model)
        known: dict[str, float] = {}
        used: set[float] = set()

        def measured(name: str, parameter: Any) -> float:
            kind = kinds.get(name)
            if kind is None:
                return float(parameter.numel() * plain)
            total, packings = 0.0, list(self.packings(kind, name.removesuffix(".weight"), parameter))
            share = parameter.numel() / sum(count for count, _ in packings)
            for count, packing in packings:
                if packing.is_plain:
                    total += count * share * plain
                else:
                    used.add(packing.bits)
                    total += count * (share * packing.bits / 8 + packing.module_bytes)
            return total

        def bytes_of(name: str, parameter: Any) -> float:
            if name not in known:
                known[name] = measured(name, parameter)
            return known[name]

        for name, parameter in model.named_parameters(remove_duplicate=False):
            bytes_of(name, parameter)
        return bytes_of, f"{self.method} ({_told(sorted(used))})" if used else f"{self.method} (nothing packed)"

    def _modules(self, kind: str, name: str, parameter: Any) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Yield the modules of the checkpoint that a parameter stands for: how many are alike, and their names."""
        if kind != EXPERTS or parameter.dim() < 3:
            yield 1, _names_of(name)
            return
        parent, _, last = name.rpartition(".")
        experts = parameter.shape[0]
        counts = [1] * experts if self._tells_experts_apart else [experts]
        for number, count in enumerate(counts):
            for half in _HALVES.get(last, (last,)):
                yield count, _names_of(f"{parent}.{number}.{half}")


def _told(bits: Sequence[float]) -> str:
    if len(bits) > 3:
        return f"{bits[0]:.6g} to {bits[-1]:.6g} bits"
    return f"{' and '.join(f'{each:.6g}' for each in bits)} bits"


def _names_of(name: str) -> tuple[str, ...]:
    """Return the names that a module of transformers may have in a checkpoint."""
    found = [name]
    if name.startswith("model.language_model."):
        rest = name.removeprefix("model.language_model.")
        found += [f"language_model.model.{rest}", f"model.{rest}"]
    elif name == "lm_head":
        found.append("language_model.lm_head")
    mixture = re.search(r"^(.*)\.mlp\.(experts\.\d+\.(\w+)|gate)$", name)
    if mixture:
        last = _MIXTRAL.get(mixture[3] or "")
        inner = mixture[2] if last is None else f"{mixture[2].rpartition('.')[0]}.{last}"
        found.append(f"{mixture[1]}.block_sparse_moe.{inner}")
    return tuple(found)


def kinds_of(model: Any) -> dict[str, str]:
    """Return the kinds of the weights of a model of transformers that a quantisation may pack, by their paths."""
    found: dict[str, str] = {}
    modules = list(model.named_modules(remove_duplicate=False))
    looked_up = {
        id(parameter)
        for _, module in modules
        if type(module).__name__.endswith("Embedding")
        for parameter in module.parameters(recurse=False)
    }
    for path, module in modules:
        classes = {base.__name__ for base in type(module).__mro__}
        for key, parameter in module.named_parameters(recurse=False):
            name, dims = f"{path}.{key}".strip("."), parameter.dim()
            if id(parameter) in looked_up:  # a tied head, too: it cannot be stored otherwise than its table
                found[name] = TABLE
            elif dims > 2 and not any("Conv" in each for each in classes):
                found[name] = EXPERTS
            elif dims == 2 and key == "weight" and classes & {"Linear", "Conv1D"} and not _ROUTER.search(path):
                is_inside = re.search(r"\.experts\.\d+\.", name) is not None
                found[name] = (
                    TOWER if _TOWER.search(path) else HEAD if _HEAD.search(path) else EXPERTS if is_inside else LINEAR
                )
    return found


def alike(packing: Packing, kinds: Iterable[str] = BLOCKS, rules: Sequence[Rule] = ()) -> Quantised:
    """Return a quantisation with one storage for all modules of some kinds that no rule names."""
    return Quantised("", dict.fromkeys(kinds, packing), rules)


@dataclass
class Values:
    """Values of a quantisation in a configuration, for what reads them."""

    where: str  # file, for messages
    given: Mapping[str, Any]
    within: str = "quantization_config"  # path of keys, for messages
    asked: set[str] = field(default_factory=set)  # keys that were read

    def refuse(self, key: str, why: str = "which is not understood") -> UnsupportedProblemError:
        """Return the error of a value that is not understood."""
        shown = repr(self.given.get(key))
        shown = shown if len(shown) <= 120 else f"{shown[:120]} ..."
        return UnsupportedProblemError(
            f"{self.where}: {self.within}: {key} is {shown}, {why}; give --precision, or put the safetensors files "
            "beside the configuration, whose headers tell the bytes"
        )

    def any_of(self, *keys: str, default: Any = None) -> Any:
        """Return the first value that is there and not None."""
        self.asked.update(keys)
        return next((self.given[key] for key in keys if self.given.get(key) is not None), default)

    def number(self, *keys: str, default: float | None = None) -> float:
        """Return the first number that is there. Raises `UnsupportedProblemError`: no number, or none of them."""
        value = self.any_of(*keys, default=default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not -1 <= value < 2**31 or value == 0:
            raise self.refuse(next((key for key in keys if self.given.get(key) is not None), keys[0]))
        return value

    def names(self, *keys: str) -> list[str]:
        """Return the names of all lists under the keys, of lists of lists too, or of texts with commas."""
        found: list[str] = []
        self.asked.update(keys)
        for key in keys:
            value = self.given.get(key)
            waiting = [each.strip() for each in value.split(",")] if isinstance(value, str) else [value]
            while waiting:
                value = waiting.pop(0)
                if isinstance(value, str):
                    found.append(value)
                elif isinstance(value, list | tuple):
                    waiting = [*value, *waiting]
                elif value is not None:
                    raise self.refuse(key)
        return [each for each in found if each]

    def table(self, *keys: str) -> dict[str, Any]:
        """Return the first object under the keys; an empty one without any."""
        value = self.any_of(*keys, default={})
        if not isinstance(value, dict):
            raise self.refuse(next(key for key in keys if self.given.get(key) is not None))
        return value

    def inner(self, key: str) -> Values:
        """Return the values of the object under a key."""
        value = self.given.get(key)
        self.asked.add(key)
        if not isinstance(value, dict):
            raise self.refuse(key)
        return Values(self.where, value, f"{self.within}: {key}")

    def matcher(self, key: str, texts: Iterable[str], *, are_regexes: bool = False) -> Names:
        """Return what matches the names under a key. Raises `UnsupportedProblemError`: a broken pattern."""
        try:
            return Names(texts, are_regexes=are_regexes)
        except re.error:
            raise self.refuse(key, "with a pattern that is no regular expression") from None
