"""What a study has found: each combination's step, stalls and price, and the paper's network stall within it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple, TypeVar

from stash.analysis.breakdown import Breakdown
from stash.analysis.step_times import step_matrix
from stash.analysis.usage import Resource, usage
from stash.core.intervals import Interval
from stash.core.ladder import STALLS
from stash.core.records.profile import Profile
from stash.predict.exposure import exchanged
from stash.study.cells import Cell
from stash.study.status import HOUR

# What a breakdown does not say of a cell's profile, and figures of a study need: busy devices, layers, gradients.


@dataclass(frozen=True)
class ProfileLook:
    """What the tables need of one profile."""

    busy: Mapping[Resource, float]
    """Fractions of the time under the highest rung, mean over nodes; what was not recorded is left out."""
    layers: int | None
    """Gradients that are exchanged: one for each trained tensor."""
    gradient_bytes: float | None
    """As exchanged; of an emulated place by its scale less than the model's."""


def look(profile: Profile) -> ProfileLook:
    """Read one cell's profile, which has a complete round."""
    kept = step_matrix(profile)
    work = exchanged(profile)
    gradients = work.gradients if work is not None else ()
    return ProfileLook(
        busy={use.resource: use.amount for use in usage(profile, kept) if use.rung == kept.rungs[-1]},
        layers=len(gradients) or None,
        gradient_bytes=float(sum(gradients)) or None,
    )


# What a study has found: each combination's step, speed, stalls and price, the mean over its repeats.
#
# A combination that is not measured has no result; nothing stands for it. What is unknown of one repeat is unknown
# of all of them. Of an emulated instance they are the instance's seconds, samples and bytes: scales are undone
# here, and the ranks that stand for several devices are counted as those.

MILLION = 1e6
_Name = TypeVar("_Name", bound=str)
_OF_DATA = ("prep", "fetch")
_ALONE = ("compute", "transfer")
_PAPER = ("interconnect", "network", "prep", "fetch")


@dataclass(frozen=True)
class StudyResult:
    """The result of one workload at one batch at one place on so many nodes."""

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
    cells: tuple[Cell, ...] = ()
    """Its repeats that are done."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Of a step, by stall, in ladder order; unknown ones are left out."""
    why_unknown: Mapping[str, str] = field(default_factory=dict)
    """By stall that is left out."""
    paper: Mapping[str, float] = field(default_factory=dict)
    """The paper's percentages by stall, where its rungs were run."""
    samples_per_step: float | None = None
    """Of the whole job."""
    devices: int = 1
    """Of all nodes: ranks."""
    busy: Mapping[Resource, float] = field(default_factory=dict)
    """Fractions of the time; of an emulated place its devices' alone, which are busy while their layers compute."""
    layers: int | None = None
    gradient_bytes: float | None = None
    """Of the model itself, unscaled."""

    @property
    def stalled(self) -> float | None:
        """Fraction of the step that is not compute."""
        return None if "compute" not in self.shares else 1 - self.shares["compute"]

    @property
    def slow_down(self) -> float | None:
        """The step, as often as one device alone would take on batches that are there: 1 where nothing stalls."""
        alone = sum(self.seconds.get(name, 0.0) for name in _ALONE)
        return self.step.value / alone if "compute" in self.seconds and alone > 0 else None

    @property
    def exchange_seconds(self) -> float | None:
        """Seconds of interconnect and network stall together, as far as the place can have them."""
        known = [self.seconds[name] for name in ("interconnect", "network") if name in self.seconds]
        return sum(known) if known else None

    @property
    def replayed_seconds(self) -> float:
        """A step with all exchange, on batches that are in memory."""
        return self.step.value - sum(self.seconds.get(name, 0.0) for name in _OF_DATA)

    @property
    def warm_seconds(self) -> float | None:
        """A step whose files are in the page cache; ``None`` where no data were prepared."""
        return self.step.value - self.seconds.get("fetch", 0.0) if "prep" in self.seconds else None

    @property
    def cold_seconds(self) -> float | None:
        """A step whose files come from storage."""
        return self.step.value if "fetch" in self.seconds else None

    def hours_per_million(self, step_seconds: float) -> float | None:
        """Hours of a million samples, if a step took so long."""
        return step_seconds * MILLION / self.samples_per_step / HOUR if self.samples_per_step else None

    def dollars_of(self, step_seconds: float) -> float | None:
        """Dollars of a million samples, if a step took so long."""
        hours = self.hours_per_million(step_seconds)
        return None if hours is None or self.dollars_per_hour is None else hours * self.dollars_per_hour

    @property
    def dollars_per_million(self) -> float | None:
        """Dollars of a million samples."""
        if self.dollars_per_hour is None or not self.samples_per_second:
            return None
        return self.dollars_per_hour * MILLION / self.samples_per_second / HOUR

    @property
    def seconds_per_million(self) -> float | None:
        return MILLION / self.samples_per_second if self.samples_per_second else None


def results(
    cells: Sequence[Cell], measured: Mapping[str, Breakdown], looks: Mapping[str, ProfileLook] | None = None
) -> tuple[StudyResult, ...]:
    """``measured`` and ``looks``: by cell's id. Small workloads and batches first, places as in ``cells``."""
    groups: dict[object, list[Cell]] = {}
    for cell in sorted(cells, key=lambda cell: (cell.size, cell.workload, cell.batch or 0)):
        if cell.id in measured:
            groups.setdefault((cell.alike, cell.batch), []).append(cell)
    return tuple(
        _result(group, [measured[cell.id] for cell in group], [(looks or {}).get(cell.id) for cell in group])
        for group in groups.values()
    )


def _result(cells: Sequence[Cell], found: Sequence[Breakdown], looks: Sequence[ProfileLook | None]) -> StudyResult:
    place, seen = cells[0].place, [each for each in looks if each is not None]
    price = place.dollars_per_hour if place.dollars_per_hour is not None else place.list_dollars_per_hour
    stalls = {name: [each.stall(name) for each in found] for name in STALLS}
    known = {name: [stall for stall in of if stall is not None] for name, of in stalls.items() if None not in of}
    sizes = [size for each in seen if (size := each.gradient_bytes) is not None]
    scales, shares = scales_of(cells[0]), {name: fmean(stall.share for stall in of) for name, of in known.items()}
    busy = {name: [each.busy.get(name) for each in seen] for look in seen for name in look.busy}
    return StudyResult(
        cell=cells[0],
        repeats=len(cells),
        step=_mean([each.step for each in found]).scaled(1 / scales.seconds),
        samples_per_second=_known_mean(
            _times(each.samples_per_second, scales.seconds * scales.devices) for each in found
        ),
        shares=shares,
        dollars_per_hour=None if price is None else price * cells[0].nodes,
        cells=tuple(cells),
        seconds={name: fmean(stall.seconds for stall in of) / scales.seconds for name, of in known.items()},
        why_unknown={missing.name: missing.why for each in found for missing in each.skipped},
        paper=_means({name: [getattr(each.paper, f"{name}_pct") for each in found] for name in _PAPER}),
        samples_per_step=_known_mean(_times(each.samples_per_step, scales.devices) for each in found),
        devices=round(found[0].world_size * scales.devices),
        busy=_means(busy) if cells[0].emulated is None else _busy_layers(shares),
        layers=cells[0].layers or (seen[0].layers if seen else None),
        gradient_bytes=sizes[0] / scales.bytes if sizes else None,
    )


class EmulatedScales(NamedTuple):
    """What an emulation has for each of the real thing's."""

    bytes: float
    seconds: float
    devices: float
    """Devices that one rank stands for."""


def scales_of(cell: Cell) -> EmulatedScales:
    """Find the emulation's scales, all 1 of what is not emulated."""
    bed = cell.emulated
    return (
        EmulatedScales(1.0, 1.0, 1.0)
        if bed is None
        else EmulatedScales(bed.scale, bed.time_scale, bed.devices / bed.ranks)
    )


def _busy_layers(shares: Mapping[str, float]) -> dict[Resource, float]:
    return {"gpu": shares["compute"]} if "compute" in shares else {}


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _known_mean(values: Iterable[float | None]) -> float | None:
    """``None`` if one of them is."""
    every = list(values)
    known = [value for value in every if value is not None]
    return fmean(known) if known and len(known) == len(every) else None


def _means(values: Mapping[_Name, Sequence[float | None]]) -> dict[_Name, float]:
    """Those that are known everywhere."""
    means = {name: _known_mean(of) for name, of in values.items()}
    return {name: mean for name, mean in means.items() if mean is not None}


def _mean(steps: Sequence[Interval]) -> Interval:
    lows = [each.low for each in steps if each.low is not None]
    highs = [each.high for each in steps if each.high is not None]
    known = len(lows) == len(highs) == len(steps)
    low, high = (fmean(lows), fmean(highs)) if known else (None, None)
    return Interval(value=fmean(each.value for each in steps), low=low, high=high)


def front(found: Sequence[StudyResult]) -> tuple[StudyResult, ...]:
    """The results than which no other of the same workload is both cheaper and faster, the fastest first."""
    chosen: list[StudyResult] = []
    priced = [each for each in found if each.dollars_per_million is not None]
    for each in sorted(priced, key=lambda one: (one.seconds_per_million or 0.0, one.dollars_per_million or 0.0)):
        dollars = each.dollars_per_million or 0.0
        if not chosen or dollars < (chosen[-1].dollars_per_million or 0.0):
            chosen.append(each)
    return tuple(chosen)


# The paper's network stall within a study: several small nodes held to one large node of as many of the same GPUs.
#
#     (T_many − T_one) / T_one      of steps with all exchange, on batches that are in memory
#
# A study has it where both are among its places; what one profile tells by itself compares with one of its own
# nodes.


@dataclass(frozen=True)
class NetworkTwin:
    """Some nodes, and the one node that could stand for them."""

    many: StudyResult
    one: StudyResult

    @property
    def seconds(self) -> float:
        """Seconds that a step on several nodes takes longer."""
        return self.many.replayed_seconds - self.one.replayed_seconds

    @property
    def share(self) -> float:
        """Fraction of the step on one node that this is; 4 is five times slower."""
        return self.seconds / self.one.replayed_seconds


def twins(found: Sequence[StudyResult]) -> tuple[NetworkTwin, ...]:
    """Find, for every result on several nodes, the fastest of the same devices on one; those without are left out."""
    made = []
    for many in found:
        if many.cell.nodes > 1:
            alike = [one for one in found if _stands_for(one, many)]
            if alike:
                made.append(NetworkTwin(many, min(alike, key=lambda one: one.replayed_seconds)))
    return tuple(made)


def _stands_for(one: StudyResult, many: StudyResult) -> bool:
    gpus = [each.cell.place.instance.gpu_model if each.cell.place.instance else None for each in (one, many)]
    return (
        one.cell.nodes == 1
        and one.devices == many.devices
        and gpus[0] is not None
        and gpus[0] == gpus[1]
        and (one.cell.workload, one.cell.words, one.cell.batch)
        == (many.cell.workload, many.cell.words, many.cell.batch)
    )
