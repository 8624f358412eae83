"""The table of zoo models: parameters are checked before anything heavy is imported."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import placekit.zoo.builder
from placekit.model.errors import InvalidFileError, InvalidProblemError, SolverUnavailableError, UnknownNameError
from placekit.zoo import ZOO, build
from placekit.zoo.registry import bytes_to_build, entry_of


def test_importing_the_zoo_loads_neither_torch_nor_openvino() -> None:
    """The listing of the zoo is instant: heavy packages wait for a build."""
    code = "import placekit.zoo, sys; print({'torch', 'transformers', 'openvino'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"


@pytest.mark.parametrize("name", list(ZOO))
def test_every_number_has_an_end(name: str) -> None:
    """And every model an estimate of what it takes to build it, which is modest by default."""
    for parameter in ZOO[name].parameters.values():
        assert isinstance(parameter.default, bool | str) or parameter.most < 2**31
    assert 1e7 < bytes_to_build(name, ZOO[name].defaults) < 3e9


@pytest.mark.parametrize("name", list(ZOO))
def test_defaults_pass_their_own_checks(name: str) -> None:
    """Every default is a value that could have been given, and decides the shape of every input."""
    entry = entry_of(name)
    values = entry.settle(entry.defaults)
    assert values == entry.defaults
    for shape in entry.input_shapes(values).values():
        assert all(dim >= 1 for dim in shape)


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("bert_base", {"layers": 0}, "zoo model 'bert_base': layers is 0; it must be an integer >= 1"),
        ("bert_base", {"layers": 10**9}, "layers is 1000000000; it must be an integer >= 1 and <= 1000"),
        ("resnet50", {"depths": (3, 10**9, 6, 3)}, "it must be an integer >= 1 and <= 250"),
        ("mobilenet_v2", {"width_multiplier": 1e9}, "it must be a number >= 0.0625 and <= 16"),
        (
            "gpt2",
            {"width": 65536, "layers": 1000, "heads": 8},
            r"'gpt2' needs about \S+ TiB of memory to build; .* are left",
        ),
        ("inception_v3", {"batch": 65536, "image_size": 8192}, "'inception_v3' needs about"),
        ("bert_base", {"layers": 1.5}, "layers is 1.5; it must be an integer"),
        ("bert_base", {"layers": True}, "layers is True; it must be an integer"),
        ("bert_base", {"heads": 7}, "heads is 7; it must divide width, which is 768"),
        ("bert_base", {"attention": "flash"}, "attention is 'flash'; choices are sdpa, eager"),
        ("resnet50", {"depths": (3, 4)}, r"depths is \(3, 4\); it must be 4 integers"),
        ("resnet50", {"image_size": 8}, "image_size is 8; it must be an integer >= 32"),
        ("inception_v3", {"transform_input": 1}, "transform_input is 1; it must be True or False"),
        ("mobilenet_v2", {"width_multiplier": float("nan")}, "width_multiplier is nan; it must be a number"),
    ],
)
def test_wrong_parameter_names_model_value_and_bound(
    name: str, params: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """A parameter out of range is refused before torch is imported."""
    with pytest.raises(InvalidProblemError, match=message):
        build(name, tmp_path / "model.xml", **params)


def test_unknown_names_list_what_there_is(tmp_path: Path) -> None:
    """An unknown model, or parameter, lists the known ones."""
    with pytest.raises(UnknownNameError, match="no zoo model 'vgg'; models are resnet50, inception_v3"):
        build("vgg", tmp_path / "model.xml")
    with pytest.raises(UnknownNameError, match="'gpt2' has no parameter 'depth'; parameters are batch, sequence"):
        build("gpt2", tmp_path / "model.xml", depth=3)


@pytest.mark.parametrize("seed", [-1, 1.5, True, 2**63])
def test_seed_out_of_range_is_refused(seed: Any, tmp_path: Path) -> None:
    """A seed that torch could not take is a named error."""
    with pytest.raises(InvalidProblemError, match="seed is"):
        build("gpt2", tmp_path / "model.xml", seed=seed)


def test_output_must_be_an_xml_file_in_a_directory(tmp_path: Path) -> None:
    """An output that cannot be written as IR is refused before the work."""
    with pytest.raises(InvalidFileError, match=r"must end in \.xml"):
        build("gpt2", tmp_path / "model.onnx")
    with pytest.raises(InvalidFileError, match="no directory"):
        build("gpt2", tmp_path / "nowhere" / "model.xml")


def test_missing_torch_gives_the_install_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torch the error says what to install."""
    monkeypatch.setattr(placekit.zoo.builder, "find_spec", lambda name: None if name == "torch" else object())
    with pytest.raises(SolverUnavailableError, match=r'needs torch; install with: pip install "placekit\[zoo\]"'):
        build("gpt2", tmp_path / "model.xml")
