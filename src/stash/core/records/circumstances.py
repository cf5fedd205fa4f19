"""What was the case while a job was measured, as records: other work on its machine, its GPUs' clocks, its cost."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stash.core.records.base import Number, PlainName, Record, Sentence, Whole


class OtherProgram(Record):
    """A program that was no part of the job and ran on its machine meanwhile, all its processes together."""

    name: PlainName
    """Of the program, or of the script that an interpreter runs; no arguments."""
    cores: Number
    """That it used on average while blocks were measured."""


class GpuState(Record):
    """What held a GPU of the job back while blocks were measured, as NVML reported it about once a second."""

    index: Whole
    """Of NVML, on the leader's machine."""
    others: Number | None = None
    """Of the GPU's time, what processes took that are no part of the job; ``None``: NVML did not tell."""
    clock: Number | None = None
    """Of its highest streaming multiprocessors' clock, on average."""
    held_by: dict[Literal["power", "heat", "hardware"], Number] = Field(default_factory=dict)
    """Of the looks, the part that saw the clock held down, by the reason."""
    memory_errors: Whole | None = None
    """Uncorrectable ones since the driver was loaded."""
    link_errors: Whole | None = None
    """Of all its NVLinks since then: replays, recoveries, checksum errors."""


EnergyPart = Literal["packages", "gpus"]
"""Of a machine, what counts its energy: processor packages (RAPL) and GPUs (NVML)."""


class EnergyUse(Record):
    """What parts of the leader's machine drew in blocks of one rung.

    One number a block. A part without ``joules`` is ``unknown``; nothing else of the machine is counted.
    """

    rung: PlainName
    """The highest that was run."""
    seconds: tuple[Number, ...] = ()
    """That the blocks took."""
    joules: dict[EnergyPart, tuple[Number, ...]] = Field(default_factory=dict)
    """Of all processor packages, whoever used them, and of all GPUs that a process of the job was seen on."""
    counts: dict[EnergyPart, Whole] = Field(default_factory=dict)
    """How many packages and GPUs these are."""
    unknown: dict[EnergyPart, Sentence] = Field(default_factory=dict)
    """Why a part was not counted; GPUs only of a job that uses them."""
    dollars_per_kwh: Number | None = None
    """As the project's ``power-price`` said when it was measured."""


class CellCost(Record):
    """What a cell of a study has cost that was measured on machines paid for by time."""

    dollars: Number
    seconds: Number
    """From its command to the end of that: the start of machines that were rented for it included, their end not."""
    dollars_per_hour: Number
    """Of all nodes together."""
    price_source: Sentence = ""
    """Which price, of which date, by whose word."""


class MachinePrice(Record):
    """What the machines of a run cost."""

    instance: PlainName
    dollars_per_hour: Number
    """Of all nodes together."""
    source: Sentence = ""
    """Whose price, of which date."""
