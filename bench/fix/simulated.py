"""How often ``stash fix`` keeps what saves nothing, and how long that takes, on thousands of simulated jobs.

The search is the real one; launches are drawn: a step of 40 ms, of which each change takes or adds what is set for
the job, times what launches differ by (Student's t of three degrees of freedom, of the deviation in the table) and a
drift from launch to launch. Launches, turns and the profile take what they took on two cores of a machine that did
nothing else (2026-11-26), or beside an H200 (2026-11-27). Of changes that are no fault, some cost a per cent
or so, and one in five saves less than half of one. *No faster*: what was kept saves nothing in truth.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bench.machine import arguments
from bench.table import report, table
from stash.fix.change_search import Search
from stash.fix.decision import WORTH
from stash.fix.script_changes import ScriptChange
from stash.fix.tries import Candidate
from stash.measure.launcher.diagnose import Diagnosis
from stash.measure.launcher.trials import TrialRun

_SWITCHED = ("threads", "set_to_none", "pin", "fused", "cudnn", "non_blocking", "tf32", "bfloat16")
"""Knobs that blocks of one launch take turns in, besides the loader's."""
STEP = 0.04
"""Seconds as typed."""
_FREEDOM = 3
_DRIFT = (0.01, 0.7)
"""Deviation of what drifts, and how much of it the next launch has."""
_BLOCK = 0.012
"""Deviation of a block of turns."""
_ALIKE = 0.6
"""Of what the best value of a knob saves, what its others do."""
_WITHIN = 300.0
_SOON = 60.0

StepSeconds = Callable[[frozenset[str]], float]
Noise = Callable[[], float]


class SimulatedJob:
    """A script whose step takes ``step(names of changes)`` seconds, times ``exp(noise())``.

    ``clock`` goes on by ``launch`` seconds each time; what ``breaks`` names fails, what ``other_losses`` names trains
    something else, and a Ctrl-C comes at ``interrupt_at``.
    """

    def __init__(
        self, step: StepSeconds, noise: Noise, launch: float, breaks: Mapping[str, str] | None = None
    ) -> None:
        self.step, self.noise, self.seconds, self.breaks = step, noise, launch, breaks or {}
        self.now = 0.0
        self.launched: list[frozenset[str]] = []
        self.interrupt_at = float("inf")
        self.other_losses: set[str] = set()

    def clock(self) -> float:
        return self.now

    def run(self, changes: Sequence[ScriptChange], steps: int | None = None) -> TrialRun:
        """One launch."""
        names = frozenset(each.name for each in changes)
        self.launched.append(names)
        self.now += self.seconds
        if self.now > self.interrupt_at:
            raise KeyboardInterrupt
        for name in names & self.breaks.keys():
            return TrialRun(None, elapsed_seconds=self.seconds, failure=Diagnosis(self.breaks[name]))
        seconds = self.step(names) * float(np.exp(self.noise()))
        loss = 2.0 if names & self.other_losses else 1.0
        evidence = ({"losses": [loss.hex()] * 10, "batches": list(range(10)), "epochs": [], "length": None},)
        return TrialRun(seconds, steps=30, elapsed_seconds=self.seconds, evidence=evidence)


@dataclass(frozen=True)
class Setting:
    """Where a job runs: seconds of its profile, of a launch, of a block of turns; and what there is to try."""

    name: str
    profile: float
    launch: float
    block: float
    changes: tuple[ScriptChange, ...]


def _loader(number: int) -> ScriptChange:
    settings = {"loader": {"num_workers": number, "site": "x"}}
    return ScriptChange(
        f"workers={number}", "workers", f"num_workers {number}", settings=settings, forecast=0.05 * STEP
    )


def _joining(names: str) -> Iterable[ScriptChange]:
    return (replace(each, joins=True) for each in _alone(names))


def _alone(names: str, consent: str = "") -> Iterable[ScriptChange]:
    for name in names.split():
        knob = name.partition("=")[0]
        yield ScriptChange(
            name, knob, name, consent=consent, settings={"flags": {name: True}} if knob in _SWITCHED else {}
        )


_BUCKETS = (
    ScriptChange("bucket=8", "bucket", "smaller buckets"),
    ScriptChange("bucket=3", "bucket", "smaller still", beyond="bucket=8"),
)
_OF_GPUS = (
    *map(_loader, (2, 4, 8)), *_joining("pin non_blocking fused cudnn set_to_none"), *_alone("compile"),
    *_alone("tf32 bfloat16", "numerics"),
)  # fmt: skip
SETTINGS = (
    Setting(
        "2 cores", 11.4, 6.8, 0.7,
        (*map(_loader, (1, 2)), *_joining("cores=own static_graph"), *_BUCKETS),
    ),
    Setting(
        "32 cores", 11.4, 6.8, 0.7,
        (
            *map(_loader, (1, 2, 4, 8)), *_alone("threads=1 threads=4 cores=apart"),
            *_joining("prefetch=4 bucket=25 bucket_view static_graph set_to_none fused"), *_BUCKETS,
        ),
    ),
    Setting("1 GPU", 17.0, 16.0, 0.7, _OF_GPUS),
    Setting("1 GPU, starts in 40 s", 42.0, 40.0, 0.7, _OF_GPUS),
)  # fmt: skip


@dataclass
class Case:
    """A job with what each change saves of its step, as a share; all together they save the sum."""

    setting: Setting
    saves: dict[str, float]
    deviation: float
    random: np.random.Generator
    drift: float = field(default=0.0)

    def share(self, names: Iterable[str]) -> float:
        return sum(self.saves[name] for name in names)

    def noise(self) -> float:
        size, stays = _DRIFT
        self.drift = stays * self.drift + self.random.normal(0, size * (1 - stays**2) ** 0.5)
        return self.drift + self.deviation * float(self.random.standard_t(_FREEDOM)) / _FREEDOM**0.5

    def searched(self, **options: Any) -> tuple[Search, float]:
        """The search, and all its seconds, of which the profile is part."""
        place = self.setting
        job = SimulatedJob(lambda names: STEP * (1 - self.share(names)), self.noise, place.launch)
        job.now = place.profile

        def turns(rungs: Sequence[Mapping[str, Any]], rounds: int) -> tuple[list[dict[int, float]], TrialRun]:
            job.now += place.launch / 2 + place.block * len(rungs) * rounds
            truths = [STEP * (1 - self.share(_names(rung))) for rung in rungs]
            rows = [
                {index: step * float(np.exp(self.random.normal(0, _BLOCK))) for index, step in enumerate(truths)}
                for _ in range(rounds)
            ]
            return rows, TrialRun(None)

        first = job.run([])
        candidates = [Candidate(each) for each in place.changes]
        search = Search(candidates, job.run, job.clock, _WITHIN - job.now, first, turns=turns, **options)
        search.search()
        return search, job.now


def _names(rung: Mapping[str, Any]) -> list[str]:
    """Of the changes that are on in a block."""
    workers = rung.get("loader", {}).get("num_workers")
    return [*rung.get("flags", {}), *([f"workers={workers}"] if workers else [])]


def case(setting: Setting, fault: float, deviation: float, seed: int) -> Case:
    """A sound job, or one in which a change, by chance, saves ``fault`` of the step."""
    random = np.random.default_rng(seed)
    saves = {}
    for each in setting.changes:
        kind = random.random()
        saves[each.name] = -float(random.exponential(0.01)) if kind < (0.15 if each.joins else 0.4) else 0.0
        if kind > 0.8:
            saves[each.name] = float(random.uniform(0, 0.005))
        if each.knob == "workers":
            saves[each.name] = -float(random.uniform(0.01, 0.05))
    if fault:
        able = [each.name for each in setting.changes if not each.consent and each.knob != "workers"]
        planted = str(random.choice(able))
        knob = planted.partition("=")[0]
        saves |= {name: _ALIKE * fault for name in saves if name.partition("=")[0] == knob} | {planted: fault}
    return Case(setting, saves, deviation, random)


HEADS = (
    "job", "launches differ by", "saves", "kept any", "no faster", "under 1 %", "fault found",
    "promised off, median", "mean", "seconds, median", "90th", "over 60 s",
)  # fmt: skip


def row(setting: Setting, fault: float, deviation: float, jobs: int) -> list[str]:
    """What came of so many jobs."""
    any_kept = none = little = found = 0
    off, took = [], []
    for seed in range(jobs):
        each = case(setting, fault, deviation, seed)
        search, seconds = each.searched()
        kept, truth = search.final.kept, each.share(search.final.kept)
        any_kept += bool(kept)
        none += bool(kept) and truth <= 0
        little += bool(kept) and truth < WORTH
        found += bool(fault) and truth >= fault / 2
        took.append(seconds)
        if search.final.together is not None and search.final.typed_seconds:
            off.append(search.final.together.value / STEP - truth)
    shares = [f"{count / jobs:.1%}" for count in (any_kept, none, little)]
    return [
        setting.name, f"{deviation:.0%}", f"{fault:.0%}" if fault else "nothing", *shares,
        f"{found / jobs:.0%}" if fault else "", f"{np.median(np.abs(off)):.1%}" if off else "",
        f"{np.mean(off):+.1%}" if off else "", f"{np.median(took):.0f}", f"{np.percentile(took, 90):.0f}",
        f"{np.mean(np.array(took) > _SOON):.0%}",
    ]  # fmt: skip


def main() -> int:
    options = arguments(__doc__, jobs=(1_000, "simulated jobs of each row"))
    rows = []
    for setting in SETTINGS:
        for fault in (0.0, 0.02, 0.05, 0.1, 0.2):
            for deviation in (0.01, 0.02, 0.03, 0.08):
                rows.append(row(setting, fault, deviation, options.jobs if not fault else options.jobs // 5))
    report(table(HEADS, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
