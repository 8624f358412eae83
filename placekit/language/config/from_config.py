"""Description of a language model from the configuration that transformers reads.

Families that are known have an outline of their modules: :mod:`placekit.language.config.families`. For others the model
class of transformers, built on torch's meta device, has every module, shape, tied weight and list of blocks, without
weights. What a block keeps of a sequence follows from its modules and from the configuration:
:mod:`placekit.language.config.modules`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from placekit.io.needs import require
from placekit.io.reading import no_such_file
from placekit.language.config.description_cache import cached_description
from placekit.language.config.families import outlined
from placekit.language.config.modules import BlockReader, leaves_of
from placekit.language.config.published import published
from placekit.language.config.stored import Group, scaled_to_files, stored_bytes
from placekit.language.description import PREDICTING, Block, ModelDescription, Part
from placekit.language.precision import precision_of
from placekit.language.quantised.readers import SIDE_FILES, read_quantised
from placekit.model.blocks.transformers import MAX_BLOCKS
from placekit.model.errors import InvalidFileError, PlacekitError, UnsupportedProblemError

CONFIG = "config.json"
"""Name of the file in a folder of transformers."""
_DIFFUSION = "model_index.json"
"""Name of the file in a folder of a diffusion model."""

_QUANTISED = ("quantization_config", "compression_config", "quantization")
"""Keys of a quantisation: of transformers, of old files of compressed-tensors, and of MLX."""

_TOWER = re.compile(r"vision|visual|audio|image|speech|video|multi_?modal|projector|aligner|tower|connector", re.I)
_HEAD = re.compile(r"(lm_head|embed_out|output_projection|^output|head[^.]*)$")
_DTYPE_BITS = {"float64": 64, "float32": 32, "float16": 16, "bfloat16": 16, "float8_e4m3fn": 8, "float8_e5m2": 8}
_FURTHER = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")
"""Names of the number of blocks of multi-token prediction."""
_ENCODERS = re.compile(
    r"For(MaskedLM|PreTraining|SequenceClassification|TokenClassification|QuestionAnswering|MultipleChoice|"
    r"ImageClassification|NextSentencePrediction|SemanticSegmentation|ObjectDetection)$"
)


def read_config(path: Path, precision: str | None = None) -> ModelDescription:
    """Return the description of the model of a ``config.json``, or of the folder that has one.

    The `precision` of weights is one of `placekit.language.precision`; that of the configuration if None. Raises
    `InvalidFileError`: no configuration of a language model; `UnsupportedProblemError`: a model that transformers does
    not know, or a module that may keep something which is not known; `SolverUnavailableError`: transformers or torch
    is not installed.
    """
    if path.is_dir():
        path /= CONFIG if (path / CONFIG).exists() else next((each.name for each in path.glob(_DIFFUSION)), CONFIG)
    values = _read_json(path)
    if "_class_name" in values or "_diffusers_version" in values:
        kind = values.get("_class_name", "a part of one")
        raise InvalidFileError(f"{path}: configuration of a diffusion model ({kind}), not of a language model")
    if not isinstance(values.get("model_type"), str):
        raise InvalidFileError(f"{path}: no model_type, so this is no configuration of transformers")
    name = path.resolve().parent.name if path.name == CONFIG else path.stem
    if path.name == CONFIG:
        values = _with_side_file(path.parent, values)
    in_files = stored_bytes(path.parent) if precision is None and path.name == CONFIG else None
    if (known := outlined(values)) is not None:
        return _describe(path, values, precision, name, in_files, (known, known.config))
    stored = None if in_files is None else [sorted(in_files[0].items()), in_files[1]]
    return cached_description(
        {"config": values, "name": name, "precision": precision, "stored": stored},
        lambda: _describe(path, values, precision, name, in_files, _built(path, values)),
    )


def describe_published(name: str, precision: str | None = None) -> ModelDescription:
    """Return the description of a model of `placekit.language.config.published`, by its name there."""
    values = dict(published()[name])
    model = outlined(values)
    assert model is not None  # a test reads them all
    return _describe(Path(name), values, precision, name, None, (model, model.config))


def _built(path: Path, values: dict[str, Any]) -> tuple[Any, Any]:
    """Return the model on the meta device, and the configuration of its text model."""
    transformers = require("transformers", f"{path}: a configuration")
    require("torch", f"{path}: a configuration")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        config = _config(path, values, transformers)
        return _meta_model(path, config, values), config.get_text_config(decoder=True)
    except PlacekitError:
        raise
    except Exception as error:  # whatever a configuration with other values than expected raises
        told = " ".join(str(error).split())[:300]
        raise InvalidFileError(f"{path}: transformers cannot build {values['model_type']!r}: {told}") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidFileError(_no_config(path)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFileError(f"{path} cannot be read: {error}") from None
    except (json.JSONDecodeError, RecursionError) as error:
        raise InvalidFileError(f"{path} is no JSON: {error}") from None
    if not isinstance(values, dict):
        raise InvalidFileError(f"{path}: no JSON object, so this is no configuration of transformers")
    return values


def _no_config(path: Path) -> str:
    """Return words for a configuration that is not there, with other files of its folder that can be read."""
    folder = path.parent
    if path.name != CONFIG or not folder.is_dir():
        return no_such_file(path)
    others = sorted(each.name for each in folder.iterdir() if each.suffix.lower() in (".gguf", ".xml", ".pt2"))
    how = f"; give {folder / others[0]}" if others else "; give the folder of a model, or a file"
    return f"{folder}: a folder without {CONFIG}{how}"


def _architecture(values: Mapping[str, Any]) -> str:
    names = values.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def _config(path: Path, values: dict[str, Any], transformers: ModuleType) -> Any:
    model_type = values["model_type"]
    known = transformers.CONFIG_MAPPING
    if model_type in known:
        return known[model_type].from_dict(values)
    other: Any = getattr(transformers, _architecture(values) or "_", None)  # kimi_k2 is a DeepSeek-V3
    if getattr(other, "config_class", None) is None:
        raise UnsupportedProblemError(
            f"{path}: transformers {transformers.__version__} does not know model_type {model_type!r}; give a GGUF "
            "file or the numbers of the model"
        )
    return other.config_class.from_dict({**values, "model_type": other.config_class.model_type})


def _model_class(path: Path, config: Any, values: Mapping[str, Any]) -> Any:
    from transformers.models.auto import modeling_auto as auto

    wanted, kind = _architecture(values), config.model_type
    if getattr(config, "is_encoder_decoder", False):
        raise InvalidFileError(
            f"{path}: {wanted or kind} is an encoder with a decoder, not a language model of one stack"
        )
    masked = kind in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False)
    if _ENCODERS.search(wanted) or (masked and not re.search(r"CausalLM|LMHead", wanted)):
        raise InvalidFileError(f"{path}: {wanted or kind} is an encoder; it generates no tokens")
    for name in (
        "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING",
        "MODEL_FOR_MULTIMODAL_LM_MAPPING",
        "MODEL_FOR_CAUSAL_LM_MAPPING",
    ):
        mapping = getattr(auto, name, {})
        if type(config) in mapping:
            found = mapping[type(config)]
            found = found[0] if isinstance(found, list | tuple) else found
            if found.__name__ == wanted or name.endswith("CAUSAL_LM_MAPPING") or "Conditional" in wanted or not wanted:
                return found
    raise InvalidFileError(f"{path}: {wanted or kind} is no model that generates text")


def _require_layers(path: Path, text: Any) -> None:
    layers = getattr(text, "num_hidden_layers", None)
    if isinstance(layers, int) and not 1 <= layers <= MAX_BLOCKS:
        raise InvalidFileError(f"{path}: num_hidden_layers is {layers}; it must be at least 1 and at most {MAX_BLOCKS}")


def _meta_model(path: Path, config: Any, values: Mapping[str, Any]) -> Any:
    import torch
    from transformers import initialization

    text = config.get_text_config(decoder=True)
    _require_layers(path, text)
    kind = _model_class(path, config, values)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    with torch.device("meta"), initialization.no_init_weights():
        model = kind._from_config(config)
    model.tie_weights()
    return model


def _stack(path: Path, model: Any, text: Any) -> str:
    """Return the path of the list of blocks."""
    lists = [
        (len(module) == text.num_hidden_layers, sum(parameter.numel() for parameter in module.parameters()), name)
        for name, module in model.named_modules()
        if type(module).__name__ == "ModuleList" and not _TOWER.search(name)
    ]
    if not lists:
        raise UnsupportedProblemError(f"{path}: {type(model).__name__} has no list of blocks")
    return str(max(lists)[2])


def _describe(
    path: Path,
    values: dict[str, Any],
    precision: str | None,
    name: str,
    in_files: tuple[dict[Group, float], str] | None,
    built: tuple[Any, Any],
) -> ModelDescription:
    model, text = built
    _require_layers(path, text)
    stack = _stack(path, model, text)
    bytes_of, stored = _storage(path, values, precision, model, is_guess=in_files is not None)
    if in_files is not None:
        bytes_of, stored = scaled_to_files(bytes_of, model.named_parameters(), in_files[0]), in_files[1]
    reader = BlockReader(str(path), text, bytes_of)
    front, back, state = _outside(reader, model, stack)
    blocks: list[Block] = []
    for layer, (number, module) in enumerate(model.get_submodule(stack).named_children()):
        blocks.append(reader.block(f"{stack}.{number}", module, layer, state))
        state = blocks[-1].parts[-1].path
    kept = [part for block in blocks for part in block.parts if part.cache_values or part.state_bytes]
    if not kept:
        raise UnsupportedProblemError(f"{path}: {stack}.0: it is not known what blocks keep of a sequence")
    notes = []
    if any(part.is_tower for part in front):
        notes.append("towers of other modalities are held and read once per prompt; their inputs are not counted")
    ends = []
    for part in sorted(back, key=lambda each: each.is_last):
        ends.append(replace(part, inputs=(state,)))
        state = part.path
    users = reader.users.values()
    shared = [(num_bytes, size, tuple(dict.fromkeys(paths))) for num_bytes, size, paths in users if len(set(paths)) > 1]
    owners = (text, values, values.get("text_config"))
    further = next((count for each in owners for key in _FURTHER if (count := _told(each, key))), 0)
    return ModelDescription(
        name, model.config.model_type, int(text.hidden_size), int(text.vocab_size),
        stored, tuple(front), tuple(blocks), tuple(ends), _speculative(blocks, further), tuple(shared), tuple(notes),
        _trained_tokens(text),
    )  # fmt: skip


def _trained_tokens(text: Any) -> int | None:
    """Return the longest sequence of a configuration, with the rotation of its positions stretched as it says."""
    most = _told(text, "max_position_embeddings")
    stretched = getattr(text, "rope_scaling", None) or getattr(text, "rope_parameters", None) or {}
    factor = stretched.get("factor")
    is_counted = stretched.get("rope_type", stretched.get("type")) in ("llama3", "longrope", "su")  # in `most` already
    if not isinstance(factor, int | float) or not most or is_counted:
        return most or None
    return max(most, int(factor * (_told(stretched, "original_max_position_embeddings") or most)))


def _told(owner: Any, key: str) -> int:
    """Return a number of a configuration, an object or a dictionary; 0 without it."""
    found = owner.get(key) if isinstance(owner, dict) else getattr(owner, key, None)
    return found if isinstance(found, int) else 0


def _outside(reader: BlockReader, model: Any, stack: str) -> tuple[list[Part], list[Part], str]:
    """Return the parts before and behind the blocks, and the path of the part whose output enters the first block."""
    front: list[Part] = []
    back: list[Part] = []
    towers: dict[str, list[tuple[str, Any]]] = {}
    is_behind = False
    tables: list[str] = []
    inner = stack.rpartition(".")[0]
    for name, named, module in leaves_of("", model):
        if name.startswith(f"{stack}."):
            is_behind = True
            continue
        tower = _TOWER.search(name)
        if tower and ("." in name.removeprefix(f"{inner}.") or not name.startswith(f"{inner}.")):
            end = name.find(".", tower.start())
            towers.setdefault(name if end < 0 else name[:end], []).extend(named)
            continue
        part = reader.leaf(name, named, module)
        is_head = _HEAD.search(name) is not None
        if part.is_lookup:
            front.append(part)
            tables.append(name)
        elif is_behind or is_head:
            back.append(replace(part, is_last=is_head))
        else:
            front.append(replace(part, inputs=(front[-1].path,) if front else ()))
    if not any(part.is_last for part in back) and tables:  # a head that is the embedding itself
        raise UnsupportedProblemError(f"{reader.where}: {type(model).__name__} has no head (lm_head)")
    hidden = float(reader.config.hidden_size)
    for path, named in towers.items():
        num_bytes = sum(reader.bytes_of(name, parameter) for name, parameter in named)
        front.append(Part(
            path, "Tower", (), hidden, sum(parameter.numel() for _, parameter in named), num_bytes,
            is_tower=True, tensors=tuple(name for name, _ in named),
        ))  # fmt: skip
    ends = [*tables, *(part.path for part in front if part.is_tower)]
    read = {path for part in front for path in part.inputs}
    ends += [part.path for part in front if part.path not in read.union(ends)]
    if len(ends) > 1:
        front.append(Part("embeddings", "Add", tuple(ends), hidden, flops=hidden))
    return front, back, front[-1].path if front else ""


def _speculative(blocks: list[Block], count: int) -> tuple[Block, ...]:
    """Return blocks for multi-token prediction, which are like the last block."""
    last = blocks[-1]
    stack = last.path.rpartition(".")[0]
    paths = [f"{stack}.{len(blocks) + each}" for each in range(count)]

    def moved(part: Part, path: str) -> Part:
        new, *inputs = (each.replace(f"{last.path}.", f"{path}.", 1) for each in (part.path, *part.inputs))
        return replace(part, path=new, inputs=tuple(inputs))

    return tuple(
        replace(
            last, path=path, kind=f"{PREDICTING}: {last.kind}", parts=tuple(moved(part, path) for part in last.parts)
        )
        for path in paths
    )


def _storage(
    path: Path, values: Mapping[str, Any], precision: str | None, model: Any, *, is_guess: bool
) -> tuple[Callable[[str, Any], float], str]:
    """Return a function from a parameter to its bytes, and words for how weights are stored.

    With `is_guess` files tell the bytes, and a quantisation that is not understood is none.
    """
    named = [values.get("dtype"), values.get("torch_dtype")]
    inner = values.get("text_config")
    inner = inner if isinstance(inner, dict) else {}
    named += [inner.get("dtype"), inner.get("torch_dtype")]
    dtype = next((str(each).removeprefix("torch.") for each in named if each), "bfloat16")
    plain = _DTYPE_BITS.get(dtype, 16) / 8
    if precision is not None:
        chosen, is_tied = precision_of(precision), _is_tied(model)

        def bytes_in(name: str, parameter: Any) -> float:
            if parameter.dim() < 2:
                return float(parameter.numel() * plain)
            path = name.rpartition(".")[0]
            is_head = _HEAD.search(path) is not None or (is_tied and path.endswith(_TABLES))
            is_expert = re.search(r"\.experts?\.", name) is not None and "shared" not in name
            return float(parameter.numel() * chosen.bytes_each(is_head=is_head, is_expert=is_expert))

        return bytes_in, chosen.name
    quantised = next(
        (owner[key] for owner in (values, inner) for key in _QUANTISED if owner.get(key) is not None), None
    )
    if quantised is not None:
        try:
            if not isinstance(quantised, dict):
                raise UnsupportedProblemError(f"{path}: quantization_config is {quantised!r}; it must be an object")
            bytes_of, told = read_quantised(str(path), quantised).bytes_of(model, plain)
            return bytes_of, f"{told}, {dtype} elsewhere"
        except UnsupportedProblemError:
            if not is_guess:
                raise
    return lambda _, parameter: parameter.numel() * plain, dtype


_TABLES = ("embed_tokens", "wte", "embed_in", "word_embeddings", "embeddings")
"""Ends of the paths of tables that a head may be."""


def _is_tied(model: Any) -> bool:
    config = model.config.get_text_config(decoder=True)
    return bool(getattr(config, "tie_word_embeddings", False) or getattr(model.config, "tie_word_embeddings", False))


def _with_side_file(folder: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a configuration, with the quantisation of a file beside it if it has none."""
    if any(values.get(key) is not None for key in _QUANTISED):
        return values
    for name, method in SIDE_FILES.items():
        if (folder / name).is_file():
            return {**values, _QUANTISED[0]: {"quant_method": method, **_read_json(folder / name)}}
    return values
