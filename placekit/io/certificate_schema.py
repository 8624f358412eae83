"""Certificates in result files, as pydantic models; what they mean is in :mod:`placekit.solve.certificates`.

Only the form is checked here. Whether a certificate is of the problem, and what it proves, the verifier finds out.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from placekit.io.schema_fields import Whole

__all__ = ["CertificateModel"]

_Index = Annotated[Whole, Field(ge=0, lt=2**63)]
_Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Seconds = Annotated[float, Field(allow_inf_nan=False)]


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", protected_namespaces=())

    schema_: Literal["placekit/certificate/1"] = Field(alias="schema")


class LargestOpModel(_Model):
    """The group of one op."""

    kind: Literal["largest-op"]
    op: _Index


class NoDeviceModel(_Model):
    """The group of an op that no device takes."""

    kind: Literal["no-device"]
    op: _Index


class CriticalPathModel(_Model):
    """The ops of a path."""

    kind: Literal["critical-path"]
    ops: list[_Index]


class WorkModel(BaseModel):
    """The work of some ops on some devices, and its weight."""

    model_config = ConfigDict(strict=True, extra="forbid")

    devices: list[_Index]
    ops: list[_Index]
    weight: _Weight


class SharedWorkModel(_Model):
    """Rows of work."""

    kind: Literal["shared-work"]
    rows: list[WorkModel]


class OpWeightsModel(BaseModel):
    """Columns: ops, and the weights of their groups, one per pass."""

    model_config = ConfigDict(strict=True, extra="forbid")

    op: list[_Index]
    weights: list[list[_Weight]]


class NetModel(BaseModel):
    """The tensors of a net, and columns of prices."""

    model_config = ConfigDict(strict=True, extra="forbid")

    tensors: list[_Index]
    profile: list[_Index]
    op: list[_Index]
    seconds: list[_Seconds]

    @model_validator(mode="after")
    def _lengths_agree(self) -> NetModel:
        if not len(self.profile) == len(self.op) == len(self.seconds):
            raise ValueError("profile, op and seconds of a net must have one length")
        return self


class EdgeModel(BaseModel):
    """An edge of a path, its weight, and columns of prices."""

    model_config = ConfigDict(strict=True, extra="forbid")

    sender: _Index
    receiver: _Index
    weight: _Weight
    profile: list[_Index]
    op: list[_Index]
    seconds: list[_Seconds]

    @model_validator(mode="after")
    def _lengths_agree(self) -> EdgeModel:
        if not len(self.profile) == len(self.op) == len(self.seconds):
            raise ValueError("profile, op and seconds of an edge must have one length")
        return self


class DualsModel(BaseModel):
    """Dual multipliers."""

    model_config = ConfigDict(strict=True, extra="forbid")

    kind: Literal["prices"]
    profile_of_device: list[_Index]
    work_weight: list[list[_Weight]]
    transfer_weight: list[list[_Weight]]
    memory_price: list[_Weight]
    op_weight: OpWeightsModel
    nets: list[NetModel]
    edges: list[EdgeModel] = []

    @model_validator(mode="after")
    def _lengths_agree(self) -> Self:
        if len(self.op_weight.op) != len(self.op_weight.weights):
            raise ValueError("op and weights of op_weight must have one length")
        return self


class PricesModel(DualsModel, _Model):
    """Dual multipliers as a certificate of their own."""


class OrderModel(BaseModel):
    """Columns: edges of the order graph, and their prices."""

    model_config = ConfigDict(strict=True, extra="forbid")

    sender: list[_Index]
    receiver: list[_Index]
    seconds: list[_Seconds]

    @model_validator(mode="after")
    def _lengths_agree(self) -> OrderModel:
        if not len(self.sender) == len(self.receiver) == len(self.seconds):
            raise ValueError("sender, receiver and seconds of an order must have one length")
        return self


class OrderedPricesModel(BaseModel):
    """Dual multipliers of one direction."""

    model_config = ConfigDict(strict=True, extra="forbid")

    prices: DualsModel
    order: OrderModel


class DirectionsModel(_Model):
    """Dual multipliers for either order of two devices."""

    kind: Literal["directions"]
    cases: Annotated[list[OrderedPricesModel | None], Field(min_length=2, max_length=2)]


CertificateModel = Annotated[
    LargestOpModel | NoDeviceModel | CriticalPathModel | SharedWorkModel | PricesModel | DirectionsModel,
    Field(discriminator="kind"),
]
