"""Risk of spot fleets: runs against closed forms, and forecast chances against what came true.

No published trace is used, for they come without a licence. Machines live by laws made after published statistics:
memoryless ones, far beyond the bands of AWS's Spot Instance Advisor; Weibull ones; and bathtubs like those of GCP's
preemptible machines, F(t) = A (1 − e^(−t/τ₁) + e^((t − 24 h)/τ₂)) with A 0.4 to 0.5, τ₁ 0.5 to 1.5 h, τ₂ 0.8 h
(Kadupitiya, Jadhao and Sharma, HPDC 2020). Processor seconds; other work may be going on.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.machine import machine, timed
from bench.spot.closed_forms import expected_seconds, in_time_exactly
from bench.table import table
from stash.core.intervals import Interval
from stash.spot.risk.lifetimes import (
    HOUR,
    Gang,
    LifeLaw,
    Memoryless,
    ObservedLives,
    WatchedLife,
    WeibullLife,
    kaplan_meier,
    law_of,
)
from stash.spot.risk.replacing import FleetSpeeds, by_laws, by_record
from stash.spot.risk.restarting import (
    CheckpointedJob,
    drawn_seconds,
    interval,
    share_of,
)
from stash.ui.charts.chart import Chart, Dot, Drawn, Grid, Trail, Whisker, axis, extent
from stash.ui.charts.svg import svg

RUNS = 10_000
ASKED = 1_000
"""Runs behind a chance that is held against one that came true: its own error is then far below a tenth."""
WIDTH = 860


def closed_forms() -> Iterator[list[str]]:
    """Means and chances of 10,000 runs beside what they should be."""
    draw = np.random.default_rng(17)
    for hours, work, written, start in ((2, 10, 60, 120), (10, 2, 20, 120), (100, 60, 300, 240)):
        rate, gang = 1 / (hours * HOUR), Gang(((Memoryless(1 / (hours * HOUR)), 1),))
        job = CheckpointedJob(work * HOUR, interval(written, gang, start, None).best, written, start)
        (seconds, _), took = timed(drawn_seconds, job, gang, RUNS, draw)
        name = f"synchronous, {work} h of work, revoked every {hours} h"
        expected = expected_seconds(job, rate)
        yield _row(f"{name}: hours", expected / HOUR, seconds.mean() / HOUR, seconds.std() / HOUR, took)
        deadline = float(np.quantile(seconds, 0.8))
        chance = in_time_exactly(job, rate, deadline)
        yield _row("its P(deadline)", chance, (seconds <= deadline).mean(), math.sqrt(chance * (1 - chance)), took)
    for hours, shocks in ((2.0, 0.0), (2.0, 8.0), (20.0, 0.0)):
        rate, shock = 1 / (hours * HOUR), 1 / (shocks * HOUR) if shocks else 0.0
        fleet, join, deadline = _fleet(8), 180.0, 10 * HOUR
        most = 8 * (deadline - join)
        works = draw.permutation(most * (np.arange(RUNS) + 0.5) / RUNS)
        found, took = timed(by_laws, fleet, [Memoryless(rate)], shock, join, works, deadline, draw)
        share = expected_share(rate, shock, join)
        also = f", all at once every {shocks:g} h" if shocks else ""
        name = f"asynchronous, 8 workers for 10 h, each revoked every {hours:g} h{also}: share of the work"
        yield _row(name, share, np.isfinite(found.seconds).mean(), math.sqrt(share * (1 - share)), took)


def expected_share(law_rate: float, shocks: float, join: float) -> float:
    """E[share of the time since ``join`` that a memoryless worker works] = e^(−λ · join).

    The age of a renewed memoryless machine is exponential, cut off at the time since the start; it works from the
    age of ``join`` on. So of a fleet whose speed is the sum of its workers', E[work by t] = e^(−λ · join) · v ·
    (t − join).
    """
    return math.exp(-(law_rate + shocks) * join)


def _row(name: str, exactly: float, mean: float, deviation: float, took: float) -> list[str]:
    apart = (mean - exactly) / (deviation / math.sqrt(RUNS))
    return [name, f"{exactly:.4f}", f"{mean:.4f}", f"{mean / exactly - 1:+.2%}", f"{apart:+.1f}", f"{took:.2f}"]


def _fleet(size: int) -> FleetSpeeds:
    """Workers that do not get into each other's way."""
    return FleetSpeeds((size,), np.arange(size + 1.0))


@dataclass(frozen=True)
class Truth:
    """Machines as they are."""

    kind: str
    law: LifeLaw

    def history(self, draw: np.random.Generator) -> ObservedLives:
        """40 to 120 machines that were watched, for 30 h at most."""
        lived = np.maximum(self.law.drawn(1 - draw.random(int(draw.integers(40, 121)))), 1.0)
        return ObservedLives(np.minimum(lived, 30 * HOUR), lived < 30 * HOUR)


def truths(draw: np.random.Generator, cases: int) -> Iterator[Truth]:
    """Machines of three kinds in turn."""
    for number in range(cases):
        if number % 3 == 0:
            yield Truth("memoryless", Memoryless(1 / (HOUR * float(draw.uniform(2, 40)))))
        elif number % 3 == 1:
            yield Truth("Weibull", WeibullLife(float(draw.uniform(0.4, 2.5)), HOUR * float(draw.uniform(3, 30))))
        else:
            yield Truth("bathtub", bathtub(float(draw.uniform(0.4, 0.5)), float(draw.uniform(0.5, 1.5))))


def bathtub(share: float, young: float) -> WatchedLife:
    """The law of GCP's preemptible machines, as so many lives of equal weight."""
    hours = np.linspace(0, 24, 20_001)
    revoked = share * (1 - np.exp(-hours / young) + np.exp((hours - 24) / 0.8))
    marks = (np.arange(4_000) + 0.5) / 4_000
    lives = np.interp(marks, revoked / revoked[-1], hours) * HOUR
    return kaplan_meier(ObservedLives(np.maximum(lives, 1.0), np.ones(len(lives), dtype=bool)))


@dataclass(frozen=True)
class Forecasts:
    """Chances of all cases by one way of reckoning, and what came true."""

    chances: list[float]
    came_true: list[bool]

    def row(self, name: str) -> list[object]:
        mean, seen = float(np.mean(self.chances)), float(np.mean(self.came_true))
        score = brier(self.chances, self.came_true)
        return [name, len(self.chances), f"{mean:.1%}", f"{seen:.1%}", f"{score:.3f}"]


def calibrated(cases: int, mode: str) -> dict[tuple[str, str], Forecasts]:
    """By kind of machine and way of reckoning: fleets of 1 to 8 that were never seen to run."""
    draw = np.random.default_rng(29)
    found: dict[tuple[str, str], Forecasts] = {}
    for truth in truths(draw, cases):
        lives = truth.history(draw)
        chosen, size, join = law_of(lives).law, int(draw.integers(1, 9)), float(draw.uniform(60, 600))
        deadline = HOUR * float(draw.uniform(3, 30))
        slack = float(draw.uniform(0.75, 1.0))
        laws: dict[str, LifeLaw] = {
            "law that is not refused": chosen,
            "always memoryless": Memoryless(lives.rate),
            "no revocations": Memoryless(0.0),
        }
        chances = _asynchronous if mode == "asynchronous" else _synchronous
        forecast, seen = chances(truth.law, laws, size, join, deadline, slack, draw)
        for way, chance in forecast.items():
            for kind in (truth.kind, "all"):
                each = found.setdefault((kind, way), Forecasts([], []))
                each.chances.append(chance)
                each.came_true.append(seen)
    return found


def _asynchronous(
    truth: LifeLaw,
    laws: dict[str, LifeLaw],
    size: int,
    join: float,
    deadline: float,
    slack: float,
    draw: np.random.Generator,
) -> tuple[dict[str, float], bool]:
    fleet = _fleet(size)
    lost = size * deadline / truth.mean * join  # seconds of work, of deadline · size: so chances are neither 0 nor 1
    work = (deadline - join) * size - lost * 2 * (1 - slack) * 4

    def share(law: LifeLaw, runs: int) -> float:
        found = by_laws(fleet, [law], 0.0, join, np.full(runs, work), deadline, draw)
        return float(np.isfinite(found.seconds).mean())

    return {way: share(law, ASKED) for way, law in laws.items()}, bool(share(truth, 1))


def _synchronous(
    truth: LifeLaw,
    laws: dict[str, LifeLaw],
    size: int,
    join: float,
    deadline: float,
    slack: float,
    draw: np.random.Generator,
) -> tuple[dict[str, float], bool]:
    chosen = Gang(((laws["law that is not refused"], size),))
    every = min(interval(60.0, chosen, join, None).best, deadline)
    overhead = 1 + 60.0 / every
    work = (deadline * (1.9 - slack) * 0.98 - join) / overhead / (1 + min(size / truth.mean * (join + every / 2), 3))

    def share(law: LifeLaw, runs: int) -> float:
        job = CheckpointedJob(max(work, 60.0), every, 60.0, join)
        seconds, _ = drawn_seconds(job, Gang(((law, size),)), runs, draw, deadline)
        return float(np.isfinite(seconds).mean())

    return {way: share(law, ASKED) for way, law in laws.items()}, bool(share(truth, 1))


def replayed(cases: int) -> Forecasts:
    """Chances that a record of two weeks tells, against one run in another record of the same market."""
    draw = np.random.default_rng(31)
    found = Forecasts([], [])
    for _ in range(cases):
        size, gap, join = int(draw.integers(2, 9)), 600.0, float(draw.uniform(60, 900))
        up, down = float(draw.uniform(20, 120)), float(draw.uniform(2, 30))
        deadline = HOUR * float(draw.uniform(6, 24))
        seen, other = (np.array(market(draw, 2016, size, up, down)) for _ in range(2))
        fleet = _fleet(size)
        work = deadline * size * up / (up + down) * float(draw.uniform(0.7, 1.1))
        runs = len(seen) - math.ceil(deadline / gap) + 1
        chances = by_record(fleet, [seen], gap, join, np.full(runs, work), deadline).seconds
        came = by_record(fleet, [other], gap, join, np.full(runs, work), deadline).seconds
        found.chances.append(float(np.isfinite(chances).mean()))
        found.came_true.append(bool(np.isfinite(came[int(draw.integers(runs))])))
    return found


def market(draw: np.random.Generator, ticks: int, size: int, up: float, down: float) -> list[int]:
    """Machines obtainable: all for a while, then a few or none, both for lengths without memory, in ticks."""
    found: list[int] = []
    there = True
    while len(found) < ticks:
        length = max(round(float(draw.exponential(up if there else down))), 1)
        found += [size if there else int(draw.integers(0, size))] * length
        there = not there
    return found[:ticks]


@dataclass(frozen=True)
class ChanceBin:
    """Forecasts of about the same chance: its mean, how many, and how often they came true."""

    forecast: float
    cases: int
    came_true: Interval

    @property
    def cells(self) -> list[object]:
        seen = self.came_true
        ends = "unknown" if seen.low is None or seen.high is None else f"{seen.low:.0%} to {seen.high:.0%}"
        return [f"{self.forecast:.1%}", self.cases, f"{seen.value:.1%}", ends]


def binned(forecast: Sequence[float], came_true: Sequence[bool], bins: int = 10) -> tuple[ChanceBin, ...]:
    """By tenths of the chance; those without a forecast are left out."""
    chances, seen = np.array(forecast), np.array(came_true, dtype=bool)
    tenth = np.minimum((chances * bins).astype(int), bins - 1)
    groups = [each for number in range(bins) if (each := tenth == number).any()]
    return tuple(
        ChanceBin(float(chances[each].mean()), int(each.sum()), share_of(seen[each], int(each.sum())))
        for each in groups
    )


def brier(forecast: Sequence[float], came_true: Sequence[bool]) -> float:
    """Mean squared distance of the chance from what came true (Brier, Monthly Weather Review 78, 1950): 0 is best."""
    return float(np.mean((np.array(forecast) - np.array(came_true, dtype=float)) ** 2))


def calibration(bins: Sequence[ChanceBin], caption: str) -> Chart:
    """The forecast chance of being in time, against the share of runs that were."""
    title = "Chances of being in time, forecast and come true"
    x, y = extent([0.0, 1.0]), extent([0.0, 1.0])
    marks: list[Drawn] = [Trail(((0.0, 0.0), (1.0, 1.0)), "plain")]
    for each in bins:
        across, seen = x.at(each.forecast), each.came_true
        if seen.low is not None and seen.high is not None:
            marks.append(Whisker((across, across), y.span(seen.low, seen.high), "contention"))
        says = f"forecast {each.forecast:.0%}, came true in {seen.value:.0%} of {each.cases} fleets"
        marks.append(Dot(across, y.at(seen.value), "contention", says))
    rows = tuple(tuple(map(str, each.cells)) for each in bins)
    return Chart(
        name="calibration",
        title=title,
        caption=caption,
        how="Each dot is many fleets of about the same chance, with the 95% interval of how many were in time. On "
        "the line, what was forecast is what came true.",
        x=axis(x, "forecast", lambda share: f"{share:.0%}"),
        y=axis(y, "came true", lambda share: f"{share:.0%}"),
        marks=tuple(marks),
        table=Grid(title, ("fleets", "came true", "95%"), rows, frozenset(), first="forecast"),
    )


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    print(f"wrote {path}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spot.risk", description=__doc__)
    parser.add_argument("--cases", type=int, default=300, metavar="N", help="fleets of each calibration")
    parser.add_argument("--figures", type=Path, metavar="FOLDER", help="where to draw them")
    options = parser.parse_args()
    print(f"{machine()}\n")
    heads = ("job", "closed form", "10,000 runs", "apart", "in standard errors", "processor s")
    print(table(heads, closed_forms()), end="\n\n")
    together: dict[str, Forecasts] = {}
    for mode in ("asynchronous", "synchronous"):
        print(f"P(deadline) of {mode} fleets, from 40 to 120 machines that were watched:\n")
        found = calibrated(options.cases, mode)
        ordered = sorted(found.items(), key=lambda item: item[0][0] == "all")
        heads = ("machines, reckoned as", "fleets", "forecast, mean", "came true", "Brier")
        print(table(heads, [found.row(f"{kind}, {way}") for (kind, way), found in ordered]), end="\n\n")
        together[mode] = found["all", "law that is not refused"]
    together["replayed"] = replayed(options.cases)
    chances = [chance for each in together.values() for chance in each.chances]
    seen = [true for each in together.values() for true in each.came_true]
    bins = binned(chances, seen)
    print(f"All of them, with the {options.cases} that replay a record of two weeks and run in another:\n")
    print(table(("forecast", "fleets", "came true", "95 %"), [each.cells for each in bins]), end="\n\n")
    if options.figures is not None:
        drawn = calibration(bins, f"{len(seen)} simulated fleets of `python -m bench.spot.risk`.")
        _write(options.figures / "spot-calibration.svg", svg(drawn, WIDTH, paper=True))


if __name__ == "__main__":
    main()
