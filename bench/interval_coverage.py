"""How often 95 % intervals hold the truth, by simulation: ``python -m bench.interval_coverage [--profiles N]``.

A job of known stalls is profiled on a machine of known noise, again and again: real order of visits, real block
sizes, real rule of stopping, real estimators; only steps are drawn instead of trained. For every kind of noise a row
says how many of the intervals hold the truth, and half their width in the median, as a share of the step.
Errors of the method and of the launch, of the sizes that Stash assumes, are drawn into the truth: this asks whether
the whole interval is as wide as its parts say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from bench.machine import arguments, machine
from bench.noise.models import (
    Factors,
    Hiccups,
    Noise,
    draw_even,
    draw_recorded,
    drifting,
    expect_factors,
    heavy,
    slow,
    spells,
    white,
)
from bench.table import show
from stash.advice.stopping import FIRST_SECONDS, is_decided
from stash.analysis.attribution import attribute
from stash.analysis.step_times import step_matrix
from stash.analysis.uncertainty import launch_error
from stash.core.intervals import NORMAL
from stash.core.ladder import CATCH_UP, NAMES, round_of_visits, rung, stall_names
from stash.core.measured import Block, Rank
from stash.core.records.profile import Profile, Settings, Workload
from stash.measure.agent.runner.block_plan import StepPace, plan_blocks

STALLS = {
    "compute": 0.100,
    "contention": 0.002,
    "interconnect": 0.030,
    "network": 0.040,
    "prep": 0.010,
    "fetch": 0.020,
}
"""Seconds of a step; contention is what is true besides ranks that differ."""
BUDGET, PRECISION = 60.0, 0.02

NOISES = (
    Noise("white", draw_even, white(0.05)),
    Noise("heavy-tailed steps", draw_even, heavy(0.05)),
    Noise(
        "one cold block in 20 a third longer",
        draw_even,
        white(0.05),
        hiccups=Hiccups("cold", 0.05, 0.33),
    ),
    Noise("slow spells, 5 % of the time", spells(0.05, 8, 0.3), white(0.03)),
    Noise("drift of 10 %", drifting(0.1), white(0.03), of_the_run=True),
    Noise("remembers 20 steps", slow(0.03, 20), white(0.03)),
    Noise("remembers 60 steps", slow(0.03, 60), white(0.03)),
    Noise("remembers 200 steps", slow(0.03, 200), white(0.03)),
    Noise("recorded", draw_recorded, white(0.02)),
    Noise("8 ranks, 2 nodes", draw_even, white(0.05), 8, 2),
    Noise("64 ranks, 8 nodes", draw_even, white(0.05), 64, 8),
    Noise("8 ranks that differ by 2 %", draw_even, white(0.05), 8, 2, unequal=0.02),
    Noise("4 ranks that differ by 2 %", draw_even, white(0.05), 4, 1, unequal=0.02),
)


@dataclass
class Run:
    """One simulated profile under way: where it is in time, and its blocks so far."""

    noise: Noise
    factors: Factors
    rng: np.random.Generator
    rungs: tuple[str, ...]
    seconds: float = 0.0
    step: int = 0
    blocks: list[Block] = field(default_factory=list)

    def visits(self, number: int) -> None:
        """All blocks of one round."""
        pace = StepPace(base(self.rungs, self.rungs[-1]))
        sizes = plan_blocks(round_of_visits(self.rungs, 0, self.noise.ranks), pace, BUDGET)
        for visit in round_of_visits(self.rungs, number, self.noise.ranks):
            size = sizes.block_size(visit)
            name = "solo" if visit.rung == CATCH_UP else visit.rung
            times = self._steps(name, size.total_steps)
            if visit.measured:
                ranks = 1 if visit.active == "leader" else self.noise.ranks
                self.blocks += [
                    Block(
                        round=number,
                        rung=name,
                        rank=rank,
                        steps=size.steps,
                        seconds=float(times[size.settle :, rank].sum()),
                    )
                    for rank in range(ranks)
                ]

    def _steps(self, name: str, count: int) -> np.ndarray:
        """Seconds of the next steps, ``[step, rank]``.

        Where ranks exchange, all wait for the slowest of each.
        """
        now = slice(self.step, self.step + count)
        own = self.factors.ranks[now]
        own = (
            np.broadcast_to(own.max(axis=1, keepdims=True), own.shape)
            if rung(name).exchanges
            else own
        )
        times = (base(self.rungs, name) + STALLS["compute"] * (own - 1)) * self.factors.machine[
            now, None
        ]
        hiccups = self.noise.hiccups
        if hiccups is not None and name == hiccups.rung and self.rng.random() < hiccups.share:
            times = times * (1 + hiccups.size)
        self.step, self.seconds = self.step + count, self.seconds + float(times.max(axis=1).sum())
        return times

    def profile(self) -> Profile:
        nodes, ranks = self.noise.nodes, self.noise.ranks
        return Profile(
            stash_version="",
            created="",
            hosts=(),
            software={},
            ended="budget",
            elapsed_seconds=self.seconds,
            workload=Workload(command=(), name=self.noise.name, batch=8),
            ranks=tuple(
                Rank(rank=r, node=r * nodes // ranks, local_rank=0, device="cpu")
                for r in range(ranks)
            ),
            settings=Settings(
                precision=PRECISION, budget_seconds=BUDGET, rungs=self.rungs, isolated=False, why=""
            ),
            blocks=tuple(self.blocks),
        )

    def enough(self) -> bool:
        profile = self.profile()
        return (
            self.seconds >= FIRST_SECONDS
            and bool(step_matrix(profile).rounds)
            and is_decided(attribute(profile))
        )


def ladder(noise: Noise) -> tuple[str, ...]:
    """The rungs such a job has."""
    absent = {"resident", "cluster" if noise.nodes == 1 else ""}
    return tuple(name for name in NAMES if name not in absent)


def base(rungs: Sequence[str], name: str) -> float:
    """Seconds of a step under a rung, without noise."""
    upto = rungs[: rungs.index(name) + 1]
    return sum(STALLS[stall] for stall in stall_names(upto))


def simulate(noise: Noise, seed: int) -> Run:
    """One profile, from its first round until it is precise enough or out of budget."""
    rng = np.random.default_rng(seed)
    rungs = ladder(noise)
    run, number = Run(noise, noise.draw(rng, round(2 * BUDGET / STALLS["compute"])), rng, rungs), 0
    while run.seconds + run.seconds / max(1, number) <= BUDGET or number < 2:
        run.visits(number)
        number += 1
        if run.enough():
            break
    return run


def truth(run: Run) -> dict[str, float]:
    """Seconds of every stall and of the step, in the long run or, where noise has no mean, over this run."""
    whole, own, slowest = expect_factors(run.noise)
    if run.noise.of_the_run:
        whole = float(run.factors.machine[: run.step].mean())
    times, compute = [], STALLS["compute"]
    for name in run.rungs:
        factor = (
            slowest
            if rung(name).exchanges
            else own[0]
            if rung(name).active == "leader"
            else own.max()
        )
        times.append(
            (base(run.rungs, name) + compute * (factor - 1)) * whole * longer(run.noise, name)
        )
    return {
        **dict(zip(stall_names(run.rungs), np.diff(times, prepend=0.0), strict=True)),
        "step": times[-1],
    }


def longer(noise: Noise, name: str) -> float:
    """How much hiccups lengthen the blocks of a rung on average."""
    hiccups = noise.hiccups
    return 1.0 if hiccups is None or hiccups.rung != name else 1 + hiccups.share * hiccups.size


class Cell(NamedTuple):
    """One stall of one profile; its width is a share of the step."""

    holds: bool
    """Its interval, the truth."""
    width: float
    """Half of the interval's."""


class Outcome(NamedTuple):
    """Of one profile: its rounds, and every stall."""

    rounds: int
    cells: dict[str, Cell]


def judge(noise: Noise, seed: int) -> Outcome:
    """One profile against its truth."""
    run = simulate(noise, seed)
    true, found, noisy = truth(run), attribute(run.profile()), np.random.default_rng((seed, 1))
    step = found.step.value
    times = dict(
        zip(
            (*stall_names(run.rungs), "step"),
            (*(s.time for s in found.stalls), found.step),
            strict=True,
        )
    )
    for name in times:
        stall = found.stall(name)
        errors = (launch_error(step), 0.0 if stall is None else stall.parts.method or 0.0)
        true[name] += float(noisy.normal(0, math.hypot(*errors) / NORMAL))
    cells = {
        name: Cell(time.low <= true[name] <= time.high, time.half_width / step)
        for name, time in times.items()
        if time.low is not None and time.high is not None and time.half_width is not None
    }
    return Outcome(found.rounds, cells)


def row(noise: Noise, profiles: int) -> list[str]:
    """Of one noise: rounds, and for every stall how many intervals hold, and how wide they are."""
    outcomes = [judge(noise, seed) for seed in range(profiles)]
    cells = (
        _cell([one.cells[name] for one in outcomes if name in one.cells])
        for name in (*STALLS, "step")
    )
    return [noise.name, f"{np.median([one.rounds for one in outcomes]):g}", *cells]


def _cell(known: Sequence[Cell]) -> str:
    if not known:
        return ""
    return f"{np.mean([cell.holds for cell in known]):.0%}, ±{np.median([cell.width for cell in known]):.1%}"


def main() -> None:
    """Simulate, print."""
    options = arguments(
        __doc__,
        profiles=(400, "of each kind of noise"),
        only=("", "kinds of noise whose name contains this"),
    )
    chosen = [noise for noise in NOISES if options.only in noise.name]
    print(f"{machine()}\n")
    show(("noise", "rounds", *STALLS, "step"), (row(noise, options.profiles) for noise in chosen))


if __name__ == "__main__":
    main()
