"""What a study has found: each combination's step, stalls and price, and the paper's network stall within it.

A combination that is not measured has no result; nothing stands for it. What is unknown of one repeat is unknown of
all of them. Of an emulated instance they are the instance's seconds, samples and bytes: scales are undone here, and
the ranks that stand for several devices are counted as those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from stash.api import Breakdown
from stash.core.intervals import Interval
from stash.core.ladder import STALLS
from stash.study.cells import Cell
from stash.study.status import HOUR

MILLION = 1e6
PAPER = ("interconnect", "network", "prep", "fetch")
"""Stalls that the paper has percentages of."""


@dataclass(frozen=True)
class StudyResult:
    """The result of one workload at one batch at one place on so many nodes."""

    cells: tuple[Cell, ...]
    """Its repeats that are done."""
    step: Interval
    """Seconds; the mean of the repeats' values and of their ends, unknown ends if one is."""
    samples_per_second: float | None
    seconds: Mapping[str, float]
    """Of the step, by stall, in ladder order; unknown ones are left out."""
    why_unknown: Mapping[str, str]
    """By stall that is left out."""
    paper: Mapping[str, float]
    """The paper's percentages by stall, where its rungs were run."""
    dollars_per_hour: float | None
    """Of all nodes, at the price that is paid, or would be for the instance that is emulated."""
    devices: int
    """Of all nodes: ranks."""

    @property
    def cell(self) -> Cell:
        """Its first repeat that is done."""
        return self.cells[0]

    @property
    def shares(self) -> Mapping[str, float]:
        """Of the step, by stall."""
        return {name: seconds / self.step.value for name, seconds in self.seconds.items()}

    @property
    def replayed_seconds(self) -> float:
        """A step with all exchange, on batches that are in memory."""
        return self.warm_seconds - self.seconds.get("prep", 0.0)

    @property
    def warm_seconds(self) -> float:
        """A step whose files, if it reads any, are in the page cache."""
        return self.step.value - self.seconds.get("fetch", 0.0)

    @property
    def seconds_per_million(self) -> float | None:
        """Seconds of a million samples."""
        return MILLION / self.samples_per_second if self.samples_per_second else None

    @property
    def dollars_per_million(self) -> float | None:
        """Dollars of a million samples."""
        seconds = self.seconds_per_million
        price = self.dollars_per_hour
        return None if seconds is None or price is None else seconds * price / HOUR


def make_results(
    cells: Sequence[Cell], measured: Mapping[str, Breakdown]
) -> tuple[StudyResult, ...]:
    """``measured``: by cell's id. Small workloads and batches first, places as in ``cells``."""
    groups: dict[object, list[Cell]] = {}
    for cell in sorted(cells, key=lambda cell: cell.size_order):
        if cell.id in measured:
            groups.setdefault((cell.group_key, cell.batch), []).append(cell)
    return tuple(_result(group, [measured[cell.id] for cell in group]) for group in groups.values())


def _result(cells: Sequence[Cell], found: Sequence[Breakdown]) -> StudyResult:
    place = cells[0].place
    bed = cells[0].emulated
    time, devices = (1.0, 1.0) if bed is None else (bed.time_scale, bed.devices / bed.ranks)
    price = place.dollars_per_hour
    stalls = {name: [each.stall(name) for each in found] for name in STALLS}
    known = {
        name: [stall for stall in of if stall is not None]
        for name, of in stalls.items()
        if None not in of
    }
    speed = _known_mean(each.samples_per_second for each in found)
    paper = {
        name: _known_mean(getattr(each.paper, f"{name}_pct") for each in found) for name in PAPER
    }
    steps = [each.step for each in found]
    low = _known_mean(each.low for each in steps)
    high = _known_mean(each.high for each in steps)
    ends = {} if low is None or high is None else {"low": low, "high": high}
    return StudyResult(
        cells=tuple(cells),
        step=Interval(value=fmean(each.value for each in steps), **ends).scale(1 / time),
        samples_per_second=None if speed is None else speed * time * devices,
        seconds={name: fmean(stall.seconds for stall in of) / time for name, of in known.items()},
        why_unknown={missing.name: missing.why for each in found for missing in each.skipped},
        paper={name: mean for name, mean in paper.items() if mean is not None},
        dollars_per_hour=None if price is None else price * cells[0].nodes,
        devices=round(found[0].world_size * devices),
    )


def _known_mean(values: Iterable[float | None]) -> float | None:
    """``None`` if one of them is."""
    every = list(values)
    known = [value for value in every if value is not None]
    return fmean(known) if len(known) == len(every) else None


class NetworkTwin(NamedTuple):
    """Several nodes, and the one node with as many of the same GPUs that could stand for them.

    The paper's network stall is (T_many − T_one) / T_one, of steps with all exchange on batches that are in memory.
    What one profile tells by itself compares with one of its own nodes.
    """

    many: StudyResult
    one: StudyResult

    @property
    def share(self) -> float:
        """Fraction of the step on one node; 4 is five times slower."""
        return self.many.replayed_seconds / self.one.replayed_seconds - 1


def find_twins(found: Sequence[StudyResult]) -> dict[str, NetworkTwin]:
    """Find, for results on several nodes, the fastest of the same devices on one; by cell's id."""
    singles: dict[object, StudyResult] = {}
    for one in sorted(found, key=lambda one: -one.replayed_seconds):
        if one.cell.nodes == 1:
            singles[_same_devices(one)] = one
    return {
        many.cell.id: NetworkTwin(many, singles[_same_devices(many)])
        for many in found
        if many.cell.nodes > 1
        and _same_devices(many)[0] is not None
        and _same_devices(many) in singles
    }


def _same_devices(result: StudyResult) -> tuple[object, ...]:
    cell, instance = result.cell, result.cell.place.instance
    gpu = None if instance is None else instance.gpu_model
    return gpu, result.devices, cell.workload, cell.words, cell.batch
