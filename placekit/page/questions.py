"""Questions of the page: a model, cards and requests; and models that were dropped on it."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from placekit.cost_models.sheets.cards import cards, processors
from placekit.cost_models.sheets.machines import machine_of, with_links
from placekit.io.link_classes import LINKS
from placekit.language.config.from_config import describe_published
from placekit.language.config.published import published, published_name
from placekit.language.decoder import BITS, DECODERS
from placekit.language.from_numbers import describe_decoder
from placekit.language.planning.question import GivenModel, Wishes
from placekit.language.precision import PRECISIONS
from placekit.language.runtimes import get_runtime, loadable
from placekit.language.serving import MAX_TOKENS, Serving
from placekit.model.errors import PlacekitError, did_you_mean
from placekit.model.platform import Platform

MAX_KEPT = 16
"""Dropped models that are kept; of more the oldest is forgotten."""

Text = Annotated[str, StringConstraints(strip_whitespace=True, max_length=400)]
Tokens = Annotated[int, Field(ge=0, le=MAX_TOKENS)]


class QuestionError(PlacekitError):
    """Bad input, with the field that caused it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@contextmanager
def blamed_on(field: str) -> Iterator[None]:
    """Give an error in the block the field that caused it."""
    try:
        yield
    except PlacekitError as error:
        raise error if isinstance(error, QuestionError) else QuestionError(field, str(error)) from None


class Question(BaseModel):
    """A language model, the machine that serves it, and the requests; an empty text or None is the default."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    model: Text = ""
    precision: Text = ""
    cards: Text = ""
    ram: Text = ""
    processor: Text = ""
    link: Text = ""
    runtime: Text = ""
    goal: Text = ""
    context: Tokens | None = None
    prompt: Tokens = 512
    generated: Tokens = 128
    sequences: Tokens = 1
    cache_precision: Text = "f16"

    @classmethod
    def of(cls, document: Any) -> Self:
        """Return the question of a JSON value."""
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            field = str(first["loc"][0])[:40] if first["loc"] else "model"
            raise QuestionError(field, f"{field}: {first['msg']}") from None

    @property
    def platform(self) -> Platform:
        """The devices."""
        with blamed_on("cards" if self.cards or not self.ram else "ram"):
            machine_of(self.cards, None if self.cards else self.ram)
        with blamed_on("ram"):
            machine_of(self.cards, self.ram or None)
        for field, needed in (("processor", "ram"), ("link", "cards")):
            if getattr(self, field) and not getattr(self, needed):
                raise QuestionError(field, f"{field} {getattr(self, field)} needs {needed}, which is empty")
        with blamed_on("processor"):
            machine = machine_of(self.cards, self.ram or None, self.processor or None)
        with blamed_on("link"):
            return with_links(machine, self.link) if self.link else machine.platform()

    @property
    def wishes(self) -> Wishes:
        """Question about the plan."""
        with blamed_on("context"):
            serving = Serving(self.prompt, self.generated, self.context, self.sequences)  # type: ignore[arg-type]  # None: default
        with blamed_on("goal"):
            return Wishes(serving=serving, goal=self.goal or None, cache_precision=self.cache_precision)  # type: ignore[arg-type]  # checked

    def given(self, dropped: DroppedModels) -> GivenModel:
        """Return the model: one that was dropped, or one of the table. A name is never that of a file."""
        if self.runtime:
            with blamed_on("runtime"):
                get_runtime(self.runtime)
        if self.model in dropped:
            return dropped.read(self.model, self.precision or None)
        if "@" in self.model:
            raise QuestionError("model", f"{self.model.partition('@')[0]} is not here: drop the file again")
        name, precision = self.model.lower(), self.precision or None
        if name in DECODERS:
            with blamed_on("precision"):
                return GivenModel(name, describe_decoder(DECODERS[name], precision or "f16", name))
        found = published_name(self.model)
        if found is None:
            names = [*DECODERS, *published()]
            there = f"there are {', '.join(names)}{did_you_mean(name, names)}"
            raise QuestionError("model", f"no model {self.model!r}; {there}; or drop a config.json or a GGUF file")
        with blamed_on("precision"):
            return GivenModel(found, describe_published(found, precision))

    @property
    def file(self) -> str:
        """The model as one names it on the command line: a dropped one by its file."""
        name, is_dropped, _ = self.model.partition("@")
        return f"{name}/config.json" if is_dropped and not name.endswith(".gguf") else name

    @property
    def changed(self) -> dict[str, Any]:
        """The fields that are not the default."""
        return self.model_dump(exclude_defaults=True)

    @property
    def command(self) -> str:
        """The same question on the command line."""
        words, own = ["placekit", "llm", self.file], self.changed
        for name in ("precision", "cards", "ram", "processor", "link", "runtime", "goal", "context", "sequences",
                     "cache_precision"):  # fmt: skip
            if name in own:
                words += [f"--{'for' if name == 'runtime' else name.replace('_', '-')}", str(own[name])]
        if "prompt" in own or "generated" in own:
            words += ["--phase", f"prefill:{self.prompt}", "--phase", f"decode:{self.generated}"]
        return shlex.join(words)

    @property
    def python(self) -> str:
        """The same question in Python."""

        def given(*names: str) -> list[str]:
            return [f"{name}={self.changed[name]!r}" for name in names if name in self.changed]

        serving, wishes = given("prompt", "generated", "context", "sequences"), given("goal", "cache_precision")
        wishes = [f"serving=pk.Serving({', '.join(serving)})"] * bool(serving) + wishes
        more = given("precision") + [f"wishes=pk.Wishes({', '.join(wishes)})"] * bool(wishes)
        machine = [repr(self.cards), repr(self.ram or None), repr(self.processor or None)]
        devices = f"with_links(machine, {self.link!r})" if self.link else "machine.platform()"
        words = [repr(self.file), devices, repr(self.runtime or None), *more]
        return (
            "import placekit as pk\n"
            f"from placekit.cost_models.sheets.machines import machine_of{', with_links' * bool(self.link)}\n\n"
            f"machine = machine_of({', '.join(machine)})\nanswer = pk.plan_serving({', '.join(words)})\n"
            'print(*answer.launch, answer.report, sep="\\n")\n'
        )


class DroppedModels:
    """Models that were dropped on the page, in a folder of the server's own, by an id that the server gives."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: OrderedDict[str, Path] = OrderedDict()
        self._read: OrderedDict[tuple[str, str | None], GivenModel] = OrderedDict()

    def __contains__(self, model: object) -> bool:
        return model in self._files

    def add(self, name: str, content: bytes) -> str:
        """Keep the header of a GGUF file, or a ``config.json``, and return its id: a name and a part of its hash."""
        suffix = ".gguf" if content.startswith(b"GGUF") else ""
        stem = re.sub(r"\.(gguf|json)$", "", name, flags=re.IGNORECASE)
        stem = re.sub(r"[^\w.+-]+", "-", stem)[:100].strip(".-") or "model"
        model = f"{stem}{suffix}@{hashlib.sha256(content).hexdigest()[:12]}"
        folder = self._folder / model.rpartition("@")[2]
        folder.mkdir(exist_ok=True)
        self._files[model] = folder / ("model.gguf" if suffix else "config.json")
        self._files[model].write_bytes(content)
        while len(self._files) > MAX_KEPT:
            self._files.popitem(last=False)[1].unlink(missing_ok=True)
        try:
            self.read(model, None)
        except QuestionError as error:
            del self._files[model]
            raise QuestionError("model", str(error)) from None
        return model

    def read(self, model: str, precision: str | None) -> GivenModel:
        """Return a model that was dropped; of a ``config.json`` in a precision."""
        if (model, precision) not in self._read:
            path, name = self._files[model], model.partition("@")[0]
            try:
                found = GivenModel.read(str(path), None, precision)
            except PlacekitError as error:
                raise QuestionError("precision", str(error).replace(str(path), name)) from None
            assert found.description is not None
            described = found.description.replace(name=name.removesuffix(".gguf"))
            self._read[model, precision] = replace(found, name=name, description=described)
            while len(self._read) > MAX_KEPT:
                self._read.popitem(last=False)
        return self._read[model, precision]


def known() -> dict[str, Any]:
    """Return what can be chosen: models, precisions, cards, processors, links and runtimes."""
    return {
        "model": [*DECODERS, *published()], "precision": list(PRECISIONS), "cache_precision": list(BITS),
        "processor": list(processors()), "link": list(LINKS),
        "card": {card.name: card.memory_bytes for card in cards().values()},
        "runtime": [runtime.name for runtime in loadable()],
    }  # fmt: skip


def asset(name: str) -> str:
    """Return a file of the page."""
    return resources.files("placekit.page").joinpath("assets", name).read_text(encoding="utf-8")
