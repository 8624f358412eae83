"""Machines on the command line: a platform file, or cards and host memory by trade name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from placekit.cli.parameters import PLATFORM, option
from placekit.cost_models.sheets.machines import machine_of, with_links
from placekit.io.files.platform_toml import read_platform
from placekit.model.errors import InvalidProblemError
from placekit.model.platform import Platform


@dataclass(frozen=True)
class CardsOptions:
    """Cards, host memory and processor by trade name; None where nothing was said."""

    panel: ClassVar[str] = PLATFORM

    cards: str | None = option(None, "Cards by trade name: 'RTX 4090, 2x RTX 3060'.", "CARDS")
    ram: str | None = option(
        None, "Host memory: size, type and speed, channels: '96 GB DDR5-5600 x2' (x2: two channels).", "RAM"
    )
    processor: str | None = option(None, "Processor of the host by trade name (one of 8 cores).", "CPU")

    link: str | None = option(None, "Link of the cards: pcie4x8, usb4, 10gbe, nvlink4, ...", "LINK")

    def __post_init__(self) -> None:
        if self.link is not None and self.cards is None:
            raise InvalidProblemError(f"--link {self.link} needs --cards, whose link it is")
        if self.processor is not None and self.ram is None:
            raise InvalidProblemError(f"--processor {self.processor} needs --ram, by which a host decodes")

    @property
    def is_given(self) -> bool:
        """True if the user named a card or host memory."""
        return self.cards is not None or self.ram is not None

    def platform(self) -> Platform:
        """Return the platform that the options describe."""
        machine = machine_of(self.cards or "", self.ram, self.processor)
        return machine.platform() if self.link is None else with_links(machine, self.link)


@dataclass(frozen=True)
class MachineOptions:
    """A platform file, or a machine in a line."""

    panel: ClassVar[str] = PLATFORM

    file: Path | None = option(None, "Platform file (.toml): devices, memory, links.", "FILE", names="--platform")
    line: CardsOptions = CardsOptions()

    def platform(self) -> Platform:
        """Return the devices.

        Raises `InvalidProblemError`: neither way was chosen, or both.
        """
        if self.file is not None and self.line.is_given:
            raise InvalidProblemError("--platform and --cards or --ram both choose the devices; give one of them")
        if self.file is not None:
            return read_platform(self.file)
        if not self.line.is_given:
            raise InvalidProblemError(
                "which devices? Give --cards 'RTX 4090, RTX 3060' --ram '96 GB DDR5-5600 x2', or --platform FILE"
            )
        return self.line.platform()
