"""Schema of suite files as pydantic models: strict types, numbers in range, no unknown field."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from placekit.io.files.schema_fields import FreeForm, Whole

Name = Annotated[str, Field(min_length=1, max_length=256)]
Seed = Annotated[Whole, Field(ge=0, lt=2**63)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Ratio = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Evaluations = Annotated[Whole, Field(ge=1)]
Names = Annotated[tuple[Name, ...], Field(min_length=1, strict=False)]
Seeds = Annotated[tuple[Seed, ...], Field(min_length=1, strict=False)]
TRAINING_PLAN = "training-plan"
"""Objective of training problems, which have no other."""


Machine = Annotated[
    tuple[Annotated[Whole, Field(ge=1)], Annotated[float, Field(gt=0, allow_inf_nan=False)]], Field(strict=False)
]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, protected_namespaces=())


class ModelEntry(_Strict):
    """One ``[[model]]``: exactly one of `file`, `zoo` and `family`.

    The families are those of :mod:`placekit.benchmarks.generators`. Of the family ``drawn``, `seeds` are the numbers of
    its problems, `params` its split, seed and ``max_ops``.

    Attributes
    ----------
    name
        What the report calls it; by default the name of the file, the zoo model or the instance.
    file
        IR, ONNX, PyTorch (``.pt2``), workload or problem file, relative to the folder of models; may have wildcards.
    optional
        A `file` that may be absent: its cases are left out then.
    sha256
        The first digits of the hash that a `file` without wildcards should have; another one is a warning.
    zoo, family
        A model of the zoo, or a family of generated problems; each with `params`, once per seed of `seeds`.
    format
        Of a `zoo` model: ``"xml"`` for OpenVINO IR, ``"pt2"`` for a program of torch.export.
    machines
        Of a training problem (a file, or a family whose name begins with ``training-``): number of devices and GiB of
        each, one problem each.
    bandwidth_gib_per_s
        The same for files, instead of what the file says.
    objectives
        Names of the objectives that it takes part in; all by default.
    """

    name: Name | None = None
    file: Name | None = None
    optional: bool = False
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{8,64}$")] | None = None
    zoo: Name | None = None
    format: Literal["xml", "pt2"] = "xml"
    family: Name | None = None
    params: FreeForm = {}
    seeds: Seeds = (0,)
    machines: Annotated[tuple[Machine, ...], Field(strict=False)] = ()
    bandwidth_gib_per_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    objectives: Names | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [name for name in ("file", "zoo", "family") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"a model has exactly one of file, zoo and family; this one has {given or 'none'}")
        if self.file is not None and (self.params or self.seeds != (0,)):
            raise ValueError(f"model {self.file!r}: params and seeds go with zoo and family, not with a file")
        if self.zoo is None and self.format != "xml":
            raise ValueError(f"model {given[0]} {getattr(self, given[0])!r}: format goes with zoo")
        if (self.family is not None and self.family.startswith("training-")) > bool(self.machines):
            raise ValueError(f"model of family {self.family!r} needs machines: [[devices, memory in GiB], ...]")
        return self


class DrawEntry(_Strict):
    """One ``[[draw]]``: generated models, spread as :mod:`placekit.benchmarks.generators.drawn` says.

    Attributes
    ----------
    name
        What the names of its models begin with.
    seed
        Seed of the levels; the graphs have seeds from a hundred times that on.
    """

    name: Name
    seed: Annotated[Whole, Field(ge=0, lt=2**32)]


PUBLISHED = "published"
"""What `PlatformEntry.costs` can be beside a file and the name of a cost model."""


class PlatformEntry(_Strict):
    """One ``[[platform]]``, for models without devices of their own (IR, ONNX, PyTorch, zoo).

    Attributes
    ----------
    name
        What the report calls it.
    file, devices, groups
        A platform file (beside the suite), devices of OpenVINO (``"CPU,GPU"``)
        or, for PyTorch, of torch (``"cpu,cuda:0"``), or a number of core groups; at most one.
        Without any: all devices of the framework, or two core groups where the CPU is the only one.
    precision
        Precision of the CPU for `devices` and `groups`; one for each of the groups where they differ.
    costs
        ``"analytic"``, ``"profiled"``, or a costs file, in which ``{model}`` stands for the name of the model; or
        ``"published"`` for the CPU and accelerator of the HSDAG paper, which are devices, too.
    """

    name: Name
    file: Name | None = None
    devices: Name | None = None
    groups: Annotated[Whole, Field(ge=1)] | None = None
    precision: Name | Names = "f32"
    costs: Name = "profiled"

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [name for name in ("file", "devices", "groups") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"platform {self.name!r} has {' and '.join(given)}; give one of them")
        if given and self.costs == "published":
            raise ValueError(f"platform {self.name!r} has {given[0]}, but published costs bring their own devices")
        if isinstance(self.precision, tuple) and len(self.precision) != self.groups:
            raise ValueError(f"platform {self.name!r} has {len(self.precision)} precisions for {self.groups} groups")
        return self


class ObjectiveEntry(_Strict):
    """One ``[[objective]]``: its name, its variant, and the contiguity rules to combine it with."""

    name: Name
    params: FreeForm = {}
    contiguity: Names | None = None


_WRITTEN = frozenset({"mps"})
"""Parameters of methods that are files to write."""
_READ = frozenset({"policy"})
"""Parameters of methods that are files to read."""


class MethodEntry(_Strict):
    """One ``[[method]]``; what is not said here is what the suite says.

    Attributes
    ----------
    name
        A method of the registry, such as ``"ilp"`` or ``"single:GPU"``.
    label
        What the report calls it; by default made from the name, the parameters and the warm start.
    params
        Parameters by name; of a learner also ``reward = "measured"``, see :mod:`placekit.benchmarks.rewards`.
    files
        Parameters that are files, relative to the folder of models; ``{model}`` stands for the name of the model,
        ``{seed}`` for the seed. Models for which a file is not there are left out.
    warm_start
        A method that runs before, with the same seed and limits; its answer is where this one starts.
    seeds, time_limit_s, gap, max_evaluations
        One case per seed, and when to stop.
    objectives, contiguity, models
        Names of the objectives, contiguity rules and models that it is run on; those of models may have wildcards. All
        that it supports by default.
    """

    name: Name
    label: Name | None = None
    params: FreeForm = {}
    files: dict[str, Name] = {}
    warm_start: Name | None = None
    seeds: Seeds | None = None
    time_limit_s: Seconds | None = None
    gap: Ratio | None = None
    max_evaluations: Evaluations | None = None
    objectives: Names | None = None
    contiguity: Names | None = None
    models: Names | None = None

    @model_validator(mode="after")
    def _says_its_files(self) -> Self:
        for name in _WRITTEN.intersection(self.params) | _WRITTEN.intersection(self.files):
            raise ValueError(f"method {self.name!r}: {name} names a file to write; a suite writes its results only")
        for name in _READ.intersection(self.params):
            raise ValueError(f"method {self.name!r}: {name} names a file to read; it belongs under files")
        return self


class SuiteModel(_Strict):
    """A suite file.

    Attributes
    ----------
    name, description
        What it is called, and one line that says what it shows.
    measure
        Whether to execute placements of models for real, after all solves: true for the best one of every method,
        ``"together"`` for these and the runtime's own ways in turns, ``"every"`` for every placement, ``"outputs"`` to
        compare every tensor between stages instead of timing, ``"verdicts"`` to time in less rounds what the verdict
        advises, against the simplest way.
    baselines
        True to time OpenVINO's own ways of using all devices beside every placement.
    isolate
        True to solve every case alone in a new process, after the smallest problem of the suite has been solved there:
        ``memory_bytes`` is that of the solve then.
    seeds, time_limit_s, gap, max_evaluations
        What methods do that do not say otherwise.
    answers
        True for rows that hold the whole result, with its certificate, for a table of best known answers.
    origin, elsewhere
        Where the files come from, and beginnings of their paths with what each is called there: a folder from there
        is as good.
    """

    name: Name
    description: str = ""
    origin: str = ""
    elsewhere: dict[Name, Name] = {}
    measure: bool | Literal["together", "every", "outputs", "verdicts"] = False
    baselines: bool = False
    isolate: bool = False
    answers: bool = False
    seeds: Seeds = (0,)
    time_limit_s: Seconds = 60.0
    gap: Ratio | None = None
    max_evaluations: Evaluations | None = None
    model: Annotated[tuple[ModelEntry, ...], Field(strict=False)] = ()
    draw: Annotated[tuple[DrawEntry, ...], Field(strict=False)] = ()
    platform: Annotated[tuple[PlatformEntry, ...], Field(strict=False)] = ()
    objective: Annotated[tuple[ObjectiveEntry, ...], Field(strict=False)] = ()
    method: Annotated[tuple[MethodEntry, ...], Field(min_length=1, strict=False)]

    @model_validator(mode="after")
    def _has_models(self) -> Self:
        if not self.model and not self.draw:
            raise ValueError(f"suite {self.name!r} has neither a model nor a draw")
        return self
