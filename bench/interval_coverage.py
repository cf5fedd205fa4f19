"""How often 95 % intervals hold the truth, by simulation: ``python -m bench.interval_coverage [--profiles N]``.

A job of known stalls is profiled on a machine of known noise, again and again: real order of visits, real block
sizes, real rule of stopping, real estimators; only steps are drawn instead of trained. For every kind of noise a row
says how many of the intervals hold the truth, and half their width in the median, as a share of the step. Of noise
made of rare events the profiles that met one have a row of their own, and so has fetch as it would be known to
somebody who knows which blocks are longer and by how much, but not how often (``informed``).
Errors of the method and of the launch, of the sizes that Stash assumes, are drawn into the truth: this asks whether
the whole interval is as wide as its parts say. What real launches add is asked by ``bench.truth.interval_coverage``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.special import betaincinv, stdtrit

from bench.machine import arguments, machine
from bench.noise.models import Factors, Hiccups, Noise, drifting, even, expected, heavy, recorded, slow, spells, white
from bench.table import show
from stash.advice.stopping import FIRST_SECONDS, decided
from stash.analysis.attribution import attribute
from stash.analysis.step_times import step_matrix
from stash.analysis.uncertainty import launch_error
from stash.core.intervals import NORMAL
from stash.core.ladder import CATCH_UP, NAMES, round_of_visits, rung, stall_names
from stash.core.records.profile import Block, Profile, Rank, Settings, Workload
from stash.measure.agent.runner.block_plan import StepPace, plan

STALLS = {
    "compute": 0.100, "contention": 0.002, "interconnect": 0.030, "network": 0.040, "prep": 0.010, "fetch": 0.020,
}  # fmt: skip
"""Seconds of a step; contention is what is true besides ranks that differ."""
BUDGET, PRECISION = 60.0, 0.02
SET_ROUNDS, MAX_SETS, LAUNCHING = 3, 10, 3.0
"""Rounds of a set of launches, sets at most, and seconds that starting a launch takes."""

NOISES = (
    Noise("white", even, white(0.05)),
    Noise("heavy-tailed steps", even, heavy(0.05)),
    Noise("one cold block in 20 a third longer", even, white(0.05), hiccups=Hiccups("cold", 0.05, 0.33), rare=True),
    Noise("slow spells, 5 % of the time", spells(0.05, 8, 0.3), white(0.03), rare=True),
    Noise("drift of 10 %", drifting(0.1), white(0.03), of_the_run=True),
    Noise("remembers 20 steps", slow(0.03, 20), white(0.03)),
    Noise("remembers 60 steps", slow(0.03, 60), white(0.03)),
    Noise("remembers 200 steps", slow(0.03, 200), white(0.03)),
    Noise("recorded", recorded, white(0.02)),
    Noise("own launches, spread 1 %", even, white(0.02), launches=0.01),
    Noise("own launches, spread 2.5 %", even, white(0.02), launches=0.025),
    Noise("8 ranks, 2 nodes", even, white(0.05), 8, 2),
    Noise("64 ranks, 8 nodes", even, white(0.05), 64, 8),
    Noise("8 ranks that differ by 2 %", even, white(0.05), 8, 2, unequal=0.02),
    Noise("4 ranks that differ by 2 %", even, white(0.05), 4, 1, unequal=0.02),
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
    launch: int = 0
    pace: np.ndarray = field(default_factory=lambda: np.ones(1))
    """Of each rank, by the chance of its launch."""
    blocks: list[Block] = field(default_factory=list)
    met: int = 0
    """Measured blocks that a rare event made longer."""

    def start(self, name: str) -> None:
        """Another launch: the ranks of ``crowd`` are jobs of their own, all others share one chance."""
        count = self.noise.ranks if name == "crowd" else 1
        self.launch, self.seconds = self.launch + 1, self.seconds + LAUNCHING
        self.pace = np.ones(self.noise.ranks) * (1 + self.noise.launches * self.rng.standard_normal(count))

    def visits(self, rungs: Sequence[str], number: int) -> None:
        """All blocks of one round."""
        pace = StepPace(base(self.rungs, self.rungs[-1]))
        sizes = plan(round_of_visits(self.rungs, 0, self.noise.ranks), pace, BUDGET)
        for visit in round_of_visits(rungs, number, self.noise.ranks if self.rungs == tuple(rungs) else 1):
            size = sizes.size(visit)
            name = "solo" if visit.rung == CATCH_UP else visit.rung
            times, longer = self._steps(name, size.together)
            if visit.measured:
                self.met += bool(longer[size.settle :].any())
                ranks = 1 if visit.active == "leader" else self.noise.ranks
                self.blocks += [
                    Block(
                        round=number, rung=name, rank=rank, steps=size.steps, launch=self.launch,
                        seconds=float(times[size.settle :, rank].sum()),
                    )
                    for rank in range(ranks)
                ]  # fmt: skip

    def _steps(self, name: str, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Seconds of the next steps, ``[step, rank]``, and which of them rare events made longer.

        Where ranks exchange, all wait for the slowest of each.
        """
        now = slice(self.step, self.step + count)
        own = self.factors.ranks[now] * self.pace
        own = np.broadcast_to(own.max(axis=1, keepdims=True), own.shape) if rung(name).exchanges else own
        times = (base(self.rungs, name) + STALLS["compute"] * (own - 1)) * self.factors.machine[now, None]
        hiccups, longer = self.noise.hiccups, self.noise.rare & (self.factors.machine[now] != 1)
        if hiccups is not None and name == hiccups.rung and self.rng.random() < hiccups.share:
            times, longer = times * (1 + hiccups.size), np.ones(count, dtype=np.bool_)
        self.step, self.seconds = self.step + count, self.seconds + float(times.max(axis=1).sum())
        return times, longer

    def profile(self) -> Profile:
        nodes, ranks = self.noise.nodes, self.noise.ranks
        return Profile(
            stash_version="", created="", hosts=(), software={}, ended="budget", elapsed_seconds=self.seconds,
            workload=Workload(command=(), name=self.noise.name, batch=8),
            ranks=tuple(Rank(rank=r, node=r * nodes // ranks, local_rank=0, device="cpu") for r in range(ranks)),
            settings=Settings(
                precision=PRECISION, budget_seconds=BUDGET, rungs=self.rungs, isolated=self.launch > 0, why=""
            ),
            blocks=tuple(self.blocks),
        )  # fmt: skip

    def enough(self) -> bool:
        profile = self.profile()
        return self.seconds >= FIRST_SECONDS and bool(step_matrix(profile).rounds) and decided(attribute(profile))


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
    run = Run(noise, noise.draw(rng, round(2 * BUDGET / STALLS["compute"])), rng, rungs)
    for _ in _sets(run, rungs) if noise.launches else _rounds(run, rungs):
        if run.enough():
            break
    return run


def _rounds(run: Run, rungs: tuple[str, ...]) -> Iterator[None]:
    number = 0
    while run.seconds + run.seconds / max(1, number) <= BUDGET or number < 2:
        run.visits(rungs, number)
        number += 1
        yield


def _sets(run: Run, rungs: tuple[str, ...]) -> Iterator[None]:
    for first in range(0, SET_ROUNDS * MAX_SETS, SET_ROUNDS):
        for own in (("solo",), ("crowd",), rungs[2:]):
            run.start(own[0])
            for number in range(first, first + SET_ROUNDS):
                run.visits(own, number)
        yield
        if run.seconds > 3 * BUDGET:
            return


def truth(run: Run) -> dict[str, float]:
    """Seconds of every stall and of the step, in the long run or, where noise has no mean, over this run."""
    whole, own, slowest = expected(run.noise)
    if run.noise.of_the_run:
        whole = float(run.factors.machine[: run.step].mean())
    times, compute = [], STALLS["compute"]
    for name in run.rungs:
        factor = slowest if rung(name).exchanges else own[0] if rung(name).active == "leader" else own.max()
        times.append((base(run.rungs, name) + compute * (factor - 1)) * whole * longer(run.noise, name))
    return {**dict(zip(stall_names(run.rungs), np.diff(times, prepend=0.0), strict=True)), "step": times[-1]}


def longer(noise: Noise, name: str) -> float:
    """How much hiccups lengthen the blocks of a rung on average."""
    hiccups = noise.hiccups
    return 1.0 if hiccups is None or hiccups.rung != name else 1 + hiccups.share * hiccups.size


class Cell(NamedTuple):
    """One stall of one profile; shares are of the step."""

    holds: bool
    """Its interval, the truth."""
    width: float
    """Half of the interval's."""
    error: float = 0.0


class Held(NamedTuple):
    """Of one profile."""

    rounds: int
    met: bool
    cells: dict[str, Cell]
    """Of every stall."""
    informed: Cell | None
    """The same of fetch, where hiccups make its blocks longer, by the informed interval."""


def held(noise: Noise, seed: int) -> Held:
    """One profile against its truth."""
    return compared(noise, simulate(noise, seed), seed)


def compared(noise: Noise, run: Run, seed: int) -> Held:
    """A simulated profile against its truth."""
    true, found = truth(run), attribute(run.profile())
    rounds, step = found.rounds, found.step.value
    times = dict(zip((*stall_names(run.rungs), "step"), (*(s.time for s in found.stalls), found.step), strict=True))
    known, fetch, noisy = None, true["fetch"], np.random.default_rng((seed, 1))
    for name in times:
        stall = found.stall(name)
        errors = (launch_error(step), 0.0 if stall is None else stall.parts.method or 0.0)
        true[name] += float(noisy.normal(0, math.hypot(*errors) / NORMAL))
    cells = {
        name: Cell(time.low <= true[name] <= time.high, time.half_width / step, abs(time.value - true[name]) / step)
        for name, time in times.items()
        if time.low is not None and time.high is not None and time.half_width is not None
    }
    if noise.hiccups is not None:
        low, high = informed(noise, run, rounds)
        known = Cell(low <= fetch <= high, (high - low) / 2 / step)
    return Held(rounds, run.met > 0, cells, known)


def informed(noise: Noise, run: Run, rounds: int) -> tuple[float, float]:
    """Fetch by one who knows which cold blocks are longer, and by how much: only how often, and noise, is unknown.

    How often: Clopper and Pearson's interval of the share of blocks. Noise: Student's of the rest of the differences.
    """
    times = {name: np.array([_slowest(run, name, number) for number in range(rounds)]) for name in ("warm", "cold")}
    size, whole = noise.hiccups.size, base(run.rungs, "cold")
    longer = times["cold"] > whole * (1 + size / 2)
    met, rest = int(longer.sum()), times["cold"] / np.where(longer, 1 + size, 1) - times["warm"]
    arm = stdtrit(rounds - 1, 0.975) * rest.std(ddof=1) / math.sqrt(rounds)
    least = betaincinv(met, rounds - met + 1, 0.025) if met else 0.0
    most = betaincinv(met + 1, rounds - met, 0.975)
    effect = whole * size
    value = rest.mean() + effect * met / rounds
    below, above = (math.hypot(arm, effect * apart) for apart in (met / rounds - least, most - met / rounds))
    return value - below, value + above


def _slowest(run: Run, name: str, number: int) -> float:
    return max(b.seconds / b.steps for b in run.blocks if (b.rung, b.round) == (name, number))


def rows(noise: Noise, profiles: int) -> list[list[str]]:
    """Of one noise: rounds, and for every stall how many intervals hold, and how wide they are."""
    every = [held(noise, seed) for seed in range(profiles)]
    found = [_row(noise.name, every)]
    if noise.rare:
        met = [one for one in every if one.met]
        found.append(_row(f"… that met one ({len(met) / len(every):.0%})", met))
    known = [one.informed for one in every if one.informed is not None]
    if known:
        found.append(["… informed", "", *(_cell(known) if name == "fetch" else "" for name in (*STALLS, "step"))])
    return found


def _row(title: str, profiles: Sequence[Held]) -> list[str]:
    cells = (_cell([one.cells[name] for one in profiles if name in one.cells]) for name in (*STALLS, "step"))
    return [title, f"{np.median([one.rounds for one in profiles]):g}", *cells]


def _cell(known: Sequence[Cell]) -> str:
    if not known:
        return ""
    return f"{np.mean([cell.holds for cell in known]):.0%}, ±{np.median([cell.width for cell in known]):.1%}"


def main() -> None:
    """Simulate, print."""
    options = arguments(
        __doc__, profiles=(400, "of each kind of noise"), only=("", "kinds of noise whose name contains this")
    )
    chosen = [noise for noise in NOISES if options.only in noise.name]
    print(f"{machine()}\n")
    show(("noise", "rounds", *STALLS, "step"), (row for noise in chosen for row in rows(noise, options.profiles)))


if __name__ == "__main__":
    main()
