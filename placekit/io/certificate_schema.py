"""Certificates in result files, as pydantic models; what they mean is in :mod:`placekit.solve.certificates`.

Only the form is checked here. Whether a certificate is of the problem, and what it proves, the verifier finds out.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import BaseModel, Field, model_validator

from placekit.io.schema_fields import Count, Finite, NonNegative, Strict

__all__ = ["CertificateModel"]


class _Certificate(BaseModel):
    schema_: Literal["placekit/certificate/1"] = Field(alias="schema")


class NoDeviceModel(Strict, _Certificate):
    """The group of an op that no device takes."""

    kind: Literal["no-device"]
    op: Count


class WorkModel(Strict):
    """The work of some ops on some devices, and its weight."""

    devices: list[Count]
    ops: list[Count]
    weight: NonNegative


class SharedWorkModel(Strict, _Certificate):
    """Rows of work."""

    kind: Literal["shared-work"]
    rows: list[WorkModel]


class _Columns(Strict):
    """Columns of one length."""

    columns: ClassVar[tuple[str, ...]] = ("profile", "op", "seconds")

    @model_validator(mode="after")
    def _lengths_agree(self) -> Self:
        if len({len(getattr(self, name)) for name in self.columns}) > 1:
            raise ValueError(f"{', '.join(self.columns[:-1])} and {self.columns[-1]} must have one length")
        return self


class OpWeightsModel(_Columns):
    """Columns: ops, and the weights of their groups, one per pass."""

    columns: ClassVar[tuple[str, ...]] = ("op", "weights")

    op: list[Count]
    weights: list[list[NonNegative]]


class NetModel(_Columns):
    """The tensors of a net, and columns of prices."""

    tensors: list[Count]
    profile: list[Count]
    op: list[Count]
    seconds: list[Finite]


class EdgeModel(_Columns):
    """An edge of a path, its weight, and columns of prices."""

    sender: Count
    receiver: Count
    weight: NonNegative
    profile: list[Count]
    op: list[Count]
    seconds: list[Finite]


class DualsModel(Strict):
    """Dual multipliers."""

    kind: Literal["prices"]
    profile_of_device: list[Count]
    work_weight: list[list[NonNegative]]
    transfer_weight: list[list[NonNegative]]
    memory_price: list[NonNegative]
    op_weight: OpWeightsModel
    nets: list[NetModel]
    edges: list[EdgeModel] = []


class PricesModel(DualsModel, _Certificate):
    """Dual multipliers as a certificate of their own."""


class OrderModel(_Columns):
    """Columns: edges of the order graph, and their prices."""

    columns: ClassVar[tuple[str, ...]] = ("sender", "receiver", "seconds")

    sender: list[Count]
    receiver: list[Count]
    seconds: list[Finite]


class OrderedPricesModel(Strict):
    """Dual multipliers of one direction."""

    prices: DualsModel
    order: OrderModel


class DirectionsModel(Strict, _Certificate):
    """Dual multipliers for either order of two devices."""

    kind: Literal["directions"]
    cases: Annotated[list[OrderedPricesModel | None], Field(min_length=2, max_length=2)]


CertificateModel = Annotated[
    NoDeviceModel | SharedWorkModel | PricesModel | DirectionsModel,
    Field(discriminator="kind"),
]
