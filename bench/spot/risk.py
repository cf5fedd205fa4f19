"""Risk of spot fleets: runs against closed forms, chances that were said against what came true, policies, and speed.

python -m bench.spot.risk [--cases 300] [--figures FOLDER]

No published trace is used, for they come without a licence. Machines live by laws made after published statistics:
memoryless ones, far beyond the bands of AWS's Spot Instance Advisor; Weibull ones; and bathtubs like those of GCP's
preemptible machines, F(t) = A (1 − e^(−t/τ₁) + e^((t − 24 h)/τ₂)) with A 0.4 to 0.5, τ₁ 0.5 to 1.5 h, τ₂ 0.8 h
(Kadupitiya, Jadhao and Sharma, HPDC 2020). Processor seconds; other work may be going on.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stash.spot.choose.fleet_costs import FleetWish
from stash.spot.choose.provision import provision
from stash.spot.pages.simulated_policies import calibration, costs_of_policies, progress, timeline
from stash.spot.policies.simulating import simulate
from stash.spot.records.fleets import FleetPlan
from stash.spot.records.risks import Obtainable
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
    ChanceBin,
    CheckpointedJob,
    binned,
    brier,
    drawn_seconds,
    expected_seconds,
    in_time_exactly,
    interval,
)
from stash.spot.spot_files import read_pool
from stash.ui.charts.chart import Blank
from stash.ui.charts.svg import svg

RUNS = 10_000
ASKED = 1_000
"""Runs behind a chance that is held against one that came true: its own error is then far below a tenth."""
HEAD = "| machines, reckoned as | fleets | said, mean | came true | Brier |\n| --- | --- | --- | --- | --- |"
POOL = Path(__file__).parent / "data" / "spotdnn.pool.yaml"
WIDTH = 860


# Closed forms -----------------------------------------------------------------------------------------------


def closed_forms() -> Iterator[str]:
    """Means and chances of 10,000 runs beside what they should be."""
    yield "| job | closed form | 10,000 runs | apart | in standard errors | processor s |"
    yield "| --- | --- | --- | --- | --- | --- |"
    draw = np.random.default_rng(17)
    for hours, work, written, start in ((2, 10, 60, 120), (10, 2, 20, 120), (100, 60, 300, 240)):
        rate, gang = 1 / (hours * HOUR), Gang(((Memoryless(1 / (hours * HOUR)), 1),))
        job = CheckpointedJob(work * HOUR, interval(written, gang, start, None).best, written, start)
        seconds, took = _drawn(job, gang, draw)
        name = f"synchronous, {work} h of work, revoked every {hours} h"
        expected = expected_seconds(job, rate)
        yield _row(f"{name}: hours", expected / HOUR, seconds.mean() / HOUR, seconds.std() / HOUR, took)
        deadline = float(np.quantile(seconds, 0.8))
        chance = in_time_exactly(job, rate, deadline)
        yield _row("its P(deadline)", chance, (seconds <= deadline).mean(), math.sqrt(chance * (1 - chance)), took)
    for hours, shocks in ((2.0, 0.0), (2.0, 8.0), (20.0, 0.0)):
        rate, shock = 1 / (hours * HOUR), 1 / (shocks * HOUR) if shocks else 0.0
        fleet, join, deadline = _fleet(8), 180.0, 10 * HOUR
        most = fleet.full * (deadline - join)
        works = draw.permutation(most * (np.arange(RUNS) + 0.5) / RUNS)
        began = time.process_time()
        found = by_laws(fleet, [Memoryless(rate)], shock, join, works, deadline, draw)
        took = time.process_time() - began
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


def _drawn(job: CheckpointedJob, gang: Gang, draw: np.random.Generator) -> tuple[np.ndarray, float]:
    began = time.process_time()
    seconds, _ = drawn_seconds(job, gang, RUNS, draw)
    return seconds, time.process_time() - began


def _row(name: str, exactly: float, mean: float, deviation: float, took: float) -> str:
    apart = (mean - exactly) / (deviation / math.sqrt(RUNS))
    return f"| {name} | {exactly:.4f} | {mean:.4f} | {mean / exactly - 1:+.2%} | {apart:+.1f} | {took:.2f} |"


def _fleet(size: int) -> FleetSpeeds:
    """Workers that do not get into each other's way."""
    return FleetSpeeds((size,), np.arange(size + 1.0), np.array([1 / size]), float(size))


# Calibration ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Truth:
    """Machines as they are, which nobody knows."""

    kind: str
    law: LifeLaw

    def history(self, draw: np.random.Generator) -> ObservedLives:
        """40 to 120 machines that somebody watched, for 30 h at most."""
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
class Said:
    """Chances of all cases by one way of reckoning, and what came true."""

    chances: list[float]
    came_true: list[bool]

    def row(self, name: str) -> str:
        mean, seen = float(np.mean(self.chances)), float(np.mean(self.came_true))
        return (
            f"| {name} | {len(self.chances)} | {mean:.1%} | {seen:.1%} | {brier(self.chances, self.came_true):.3f} |"
        )


def calibrated(cases: int, mode: str) -> dict[tuple[str, str], Said]:
    """By kind of machine and way of reckoning: fleets of 1 to 8 that nobody has seen run."""
    draw = np.random.default_rng(29)
    found: dict[tuple[str, str], Said] = {}
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
        said, seen = chances(truth.law, laws, size, join, deadline, slack, draw)
        for way, chance in said.items():
            for kind in (truth.kind, "all"):
                each = found.setdefault((kind, way), Said([], []))
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


def replayed(cases: int) -> Said:
    """Chances that a record of two weeks tells, against one run in another record of the same market."""
    draw = np.random.default_rng(31)
    said = Said([], [])
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
        said.chances.append(float(np.isfinite(chances).mean()))
        said.came_true.append(bool(np.isfinite(came[int(draw.integers(runs))])))
    return said


def market(draw: np.random.Generator, ticks: int, size: int, up: float, down: float) -> list[int]:
    """Machines obtainable: all for a while, then a few or none, both for lengths without memory, in ticks."""
    found: list[int] = []
    there = True
    while len(found) < ticks:
        length = max(round(float(draw.exponential(up if there else down))), 1)
        found += [size if there else int(draw.integers(0, size))] * length
        there = not there
    return found[:ticks]


def bins_table(bins: tuple[ChanceBin, ...]) -> Iterator[str]:
    """What was said beside what came true."""
    yield "| said | fleets | came true | 95 % |"
    yield "| --- | --- | --- | --- |"
    for each in bins:
        seen = each.came_true
        ends = "unknown" if seen.low is None or seen.high is None else f"{seen.low:.0%} to {seen.high:.0%}"
        yield f"| {each.said:.1%} | {each.cases} | {seen.value:.1%} | {ends} |"


# Policies ---------------------------------------------------------------------------------------------------


def a_plan(deadline: float, start: float, dearer: float) -> FleetPlan:
    """The published pool, on demand at so many times the price, for a loss of 0.6."""
    pool = read_pool(POOL)
    kinds = tuple(
        kind.model_copy(update={"on_demand_dollars_per_hour": dearer * kind.dollars_per_hour}) for kind in pool.types
    )
    pool = pool.model_copy(update={"types": kinds, "start_seconds": start})
    return provision(FleetWish(pool, "paper", 0.57, deadline), "bench", "2026-11-22")


def policies(folder: Path | None) -> Iterator[str]:
    """What policies cost where spot is plenty, comes and goes, and is rare; and how long 10,000 runs take."""
    yield "| spot obtainable | change-over | greedy | uniform | on-demand | omniscient | advice | processor s |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for up, down, start in ((60, 3, 120), (20, 10, 120), (6, 12, 120), (6, 12, 1200), (2, 60, 1200)):
        draw = np.random.default_rng(3)
        plan = a_plan(10 * HOUR, start, 3.0)
        assert plan.chosen is not None
        size = sum(plan.chosen.workers.values())
        traces = [Obtainable(gap_seconds=600, machines=tuple(market(draw, 2016, size, up, down))) for _ in range(3)]
        began = time.process_time()
        names = ("greedy", "uniform", "on-demand", "spot")
        found = simulate(plan, traces, names, RUNS, write_seconds=30.0)
        took = time.process_time() - began
        hindsight = simulate(plan, traces, ("omniscient",), 25).policies[0]
        costs = {each.name: each for each in (*found.policies, hindsight)}
        cells = [_dollars(costs[name].dollars) for name in ("greedy", "uniform", "on-demand", "omniscient")]
        verdict = found.advice.split(":")[0]
        yield f"| {found.obtainable:.0%} | {start} s | {' | '.join(cells)} | {verdict} | {took:.2f} |"
        if folder is not None and (up, start) == (6, 120):
            for chart in (costs_of_policies(found), timeline(found), progress(found)):
                assert not isinstance(chart, Blank)
                _write(folder / f"spot-{chart.name}.svg", svg(chart, WIDTH, paper=True))


def _dollars(cost: object) -> str:
    value = getattr(cost, "value", None)
    return "none" if value is None else f"${value:.2f}"


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    print(f"wrote {path}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spot.risk", description=__doc__)
    parser.add_argument("--cases", type=int, default=300, metavar="N", help="fleets of each calibration")
    parser.add_argument("--figures", type=Path, metavar="FOLDER", help="where to draw them")
    options = parser.parse_args()
    print("\n".join(closed_forms()), end="\n\n")
    together: dict[str, Said] = {}
    for mode in ("asynchronous", "synchronous"):
        print(f"P(deadline) of {mode} fleets, from 40 to 120 machines that were watched:\n")
        print(HEAD)
        found = calibrated(options.cases, mode)
        for (kind, way), said in sorted(found.items(), key=lambda item: item[0][0] == "all"):
            print(said.row(f"{kind}, {way}"))
        together[mode] = found["all", "law that is not refused"]
        print()
    together["replayed"] = replayed(options.cases)
    chances = [chance for said in together.values() for chance in said.chances]
    seen = [each for said in together.values() for each in said.came_true]
    bins = binned(chances, seen)
    print(f"All of them, with the {options.cases} that replay a record of two weeks and run in another:\n")
    print("\n".join(bins_table(bins)), end="\n\n")
    print("\n".join(policies(options.figures)))
    if options.figures is not None:
        drawn = calibration(bins, f"{len(seen)} simulated fleets of `python -m bench.spot.risk`.")
        assert not isinstance(drawn, Blank)
        _write(options.figures / "spot-calibration.svg", svg(drawn, WIDTH, paper=True))


if __name__ == "__main__":
    main()
