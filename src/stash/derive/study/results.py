"""What a study has found: each combination's step, speed, stalls and price, the mean over its repeats.

A combination that is not measured has no result; nothing stands for it. A share of a repeat in which a stall is
unknown is unknown for all of them. Of an emulated instance they are the instance's seconds and samples: scales of the
testbed are undone here, and the ranks that stand for several devices are counted as those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from stash.base.ladder import STALLS
from stash.base.stats.intervals import Interval
from stash.derive.stalls import Breakdown
from stash.derive.study.cells import Cell
from stash.derive.study.estimate import HOUR

MILLION = 1e6


@dataclass(frozen=True)
class StudyResult:
    """Of one workload at one batch at one place on so many nodes."""

    cell: Cell
    """The first of its repeats that is done."""
    repeats: int
    step: Interval
    """Seconds; the mean of the repeats' values and of their ends, unknown ends if one is."""
    samples_per_second: float | None
    """Of the whole job."""
    shares: Mapping[str, float]
    """Of the step, by stall, in ladder order; unknown ones are left out."""
    dollars_per_hour: float | None
    """Of all nodes, at the price that is paid, or would be for the instance that is emulated."""

    @property
    def dollars_per_million(self) -> float | None:
        """Of a million samples."""
        if self.dollars_per_hour is None or not self.samples_per_second:
            return None
        return self.dollars_per_hour * MILLION / self.samples_per_second / HOUR

    @property
    def seconds_per_million(self) -> float | None:
        return MILLION / self.samples_per_second if self.samples_per_second else None


def results(cells: Sequence[Cell], measured: Mapping[str, Breakdown]) -> tuple[StudyResult, ...]:
    """``measured``: by cell's id. Small workloads and batches first, places in the order of ``cells``."""
    groups: dict[object, list[Cell]] = {}
    for cell in sorted(cells, key=lambda cell: (cell.size, cell.workload, cell.batch or 0)):
        if cell.id in measured:
            groups.setdefault((cell.alike, cell.batch), []).append(cell)
    return tuple(_result(group, [measured[cell.id] for cell in group]) for group in groups.values())


def _result(cells: Sequence[Cell], found: Sequence[Breakdown]) -> StudyResult:
    speeds = [each.samples_per_second for each in found]
    known = [speed for speed in speeds if speed is not None]
    shares = {name: [stall.share for each in found if (stall := each.stall(name)) is not None] for name in STALLS}
    place = cells[0].place
    bed = cells[0].emulated
    slower, per_rank = (1.0, 1.0) if bed is None else (bed.time_scale, bed.devices / bed.ranks)
    price = place.dollars_per_hour if place.dollars_per_hour is not None else place.list_dollars_per_hour
    return StudyResult(
        cell=cells[0],
        repeats=len(cells),
        step=_mean([each.step for each in found]).scaled(1 / slower),
        samples_per_second=fmean(known) * slower * per_rank if len(known) == len(speeds) else None,
        shares={name: fmean(each) for name, each in shares.items() if len(each) == len(found)},
        dollars_per_hour=None if price is None else price * cells[0].nodes,
    )


def _mean(steps: Sequence[Interval]) -> Interval:
    lows = [each.low for each in steps if each.low is not None]
    highs = [each.high for each in steps if each.high is not None]
    known = len(lows) == len(highs) == len(steps)
    low, high = (fmean(lows), fmean(highs)) if known else (None, None)
    return Interval(value=fmean(each.value for each in steps), low=low, high=high)


def front(found: Sequence[StudyResult]) -> tuple[StudyResult, ...]:
    """Those than which no other of the same workload is both cheaper and faster, the fastest first."""
    chosen: list[StudyResult] = []
    priced = [each for each in found if each.dollars_per_million is not None]
    for each in sorted(priced, key=lambda one: (one.seconds_per_million or 0.0, one.dollars_per_million or 0.0)):
        dollars = each.dollars_per_million or 0.0
        if not chosen or dollars < (chosen[-1].dollars_per_million or 0.0):
            chosen.append(each)
    return tuple(chosen)
